"""Planning of micro-batches, without Spark running: shares, first batches, limits, losses."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from rocketmq_fast.embedded import Cluster
from rocketmq_fast.errors import (
    BrokerNotFound,
    ConfigError,
    ConnectError,
    NoNameServer,
    TopicRouteNotFound,
)
from rocketmq_fast.model import MessageQueue
from tests.fix_spark import Filled, fill
from tests.require import require
from tests.waiting import wait_for

require("spark")  # before what imports pyspark

from rocketmq_fast.spark.admission import records_of_bytes, share  # noqa: E402
from rocketmq_fast.spark.brokers import Brokers  # noqa: E402
from rocketmq_fast.spark.offsets import (  # noqa: E402
    COMMITTED,
    EARLIEST,
    LATEST,
    AtTime,
    DataLossError,
    OffsetSpec,
    parse_offsets,
)
from rocketmq_fast.spark.options import ReadOptions  # noqa: E402
from rocketmq_fast.spark.planner import RangesPartition  # noqa: E402
from rocketmq_fast.spark.positions import (  # noqa: E402
    first_at_or_after,
    moves,
    resolve_spec,
)
from rocketmq_fast.spark.progress import lag  # noqa: E402
from rocketmq_fast.spark.stream import StreamPlanner  # noqa: E402

Offsets = dict[MessageQueue, int]


def queue(number: int, topic: str = "T", broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker, number)


# -------------------------------------------------------------------------------- shares


def test_shares_follow_the_lag() -> None:
    lags = {queue(0): 900, queue(1): 90, queue(2): 10, queue(3): 0}
    shares = share(lags, 100, 0)
    assert sum(shares.values()) == 100
    assert 87 <= shares[queue(0)] <= 90
    assert shares[queue(1)] in (9, 10)
    assert shares[queue(2)] >= 1
    assert queue(3) not in shares
    assert share(lags, 1000, 0) == {queue(0): 900, queue(1): 90, queue(2): 10}


@pytest.mark.parametrize("seed", range(100))
def test_shares_never_pass_lag_or_limit(seed: int) -> None:
    source = random.Random(seed)
    lags = {queue(n): source.choice([0, 1, 7, 10_000, 2**40]) for n in range(source.randrange(40))}
    limit = source.choice([1, 5, 39, 1000, 2**41])
    shares = share(lags, limit, source.randrange(5))
    assert sum(shares.values()) == min(limit, sum(lags.values()))
    assert all(0 < count <= lags[one] for one, count in shares.items())
    waiting = sum(count > 0 for count in lags.values())
    assert len(shares) == min(limit, waiting)


def test_no_queue_starves_behind_others() -> None:
    lags = {queue(n): 2**40 if n else 1 for n in range(10)}
    served: set[MessageQueue] = set()
    for turn in range(4):
        served |= share(lags, 3, turn).keys()
    assert served == set(lags)


def test_bytes_become_messages() -> None:
    lags = {queue(0): 100, queue(1): 300, queue(2): 5}
    assert records_of_bytes(4000, lags, {queue(0): 100.0, queue(1): 20.0}) == 100
    assert records_of_bytes(1, lags, {queue(0): 100.0}) == 1
    assert records_of_bytes(7, lags, {}) == 7


# --------------------------------------------------------------------------------- times


def searched(times: list[int], low: int, guess: int, wanted: int) -> tuple[int, int]:
    """What a search finds in messages of some times, and how many it looked at."""
    search: Generator[int, int, int] = first_at_or_after(low, low + len(times), guess, wanted)
    looks = 0
    try:
        probe = next(search)
        while True:
            assert low <= probe < low + len(times)
            looks += 1
            probe = search.send(times[probe - low])
    except StopIteration as end:
        return end.value, looks


@pytest.mark.parametrize("seed", range(50))
def test_the_first_message_at_or_after_a_time(seed: int) -> None:
    source = random.Random(seed)
    times = sorted(source.choices(range(source.choice([3, 50, 10**6])), k=source.randrange(400)))
    low = source.randrange(1000)
    for wanted in (-1, 0, 10**7, *source.sample(range(10**6), 5), *times[::37]):
        right = next((n for n, time in enumerate(times) if time >= wanted), len(times))
        guess = source.choice([0, low, low + right, low + right - 1, low + len(times), 10**9])
        found, looks = searched(times, low, guess, wanted)
        assert found == low + right
        assert looks <= 2 * len(times).bit_length() + 2


def test_a_near_guess_needs_few_looks() -> None:
    times = list(range(0, 1_000_000, 10))
    for guess in (49_999, 50_000, 50_001):
        assert searched(times, 0, guess, 500_000)[1] <= 4


def test_choices_that_mean_another_place_later() -> None:
    assert moves(OffsetSpec("o", LATEST), 1000)
    assert moves(OffsetSpec("o", COMMITTED), 1000)
    assert moves(OffsetSpec("o", AtTime(5, before_now=True)), 1000)
    assert moves(OffsetSpec("o", AtTime(1000)), 1000)
    assert moves(parse_offsets("startingOffsets", '{"T":{"b":{"0":-1}}}', EARLIEST), 1000)
    assert not moves(OffsetSpec("o", AtTime(999)), 1000)
    assert not moves(parse_offsets("startingOffsets", '{"T":{"b":{"0":7}}}', EARLIEST), 1000)


# ----------------------------------------------------------------- planners on a cluster


class Planners:
    """Planners of a topic, closed at the end."""

    def __init__(self) -> None:
        self._made: list[StreamPlanner] = []

    def __call__(self, filled: Filled, **more: object) -> StreamPlanner:
        more = {"latestOffsetIntervalMs": 0, "fetchOffset.retryIntervalMs": 1} | more
        given = filled.options(**more)
        if "topicPattern" in more:
            del given["topic"]
        options = ReadOptions.of(given, streaming=True)
        self._made.append(StreamPlanner(Brokers(options.connect), options))
        return self._made[-1]

    def close(self) -> None:
        for planner in self._made:
            planner.close()


@pytest.fixture
def planners() -> Iterator[Planners]:
    made = Planners()
    yield made
    made.close()


def ends(offsets: Offsets | None) -> list[int] | None:
    return None if offsets is None else [offsets[one] for one in sorted(offsets)]


def planned(partitions: list[Any]) -> dict[int, tuple[int, int]]:
    assert all(isinstance(one, RangesPartition) for one in partitions)
    pieces = [piece for one in partitions for piece in one.ranges]
    return {piece.queue.queue_id: (piece.start, piece.end) for piece in pieces}


def test_batches_of_a_limit(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanLimit", {0: 900, 1: 100, 2: 0})
    planner = planners(filled, startingOffsets="earliest", maxRecordsPerTrigger=400)
    start = planner.initial_offsets()
    assert ends(start) == [0, 0, 0]
    total = 0
    while (end := planner.next_offsets(start, unlimited=False)) is not None:
        count = sum(end[one] - start.get(one, 0) for one in end)
        assert 0 < count <= 400
        assert sum(b - a for a, b in planned(planner.partitions(start, end)).values()) == count
        total += count
        start = end
    assert total == 1000
    assert ends(planner.newest) == [900, 100, 0]
    once = planners(filled, startingOffsets="earliest", maxRecordsPerTrigger=400)
    assert ends(once.next_offsets(once.initial_offsets(), unlimited=True)) == [900, 100, 0]


def test_bytes_of_a_batch(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanBytes", {0: 300, 1: 300}, size=1000)
    planner = planners(filled, startingOffsets="earliest", maxBytesPerTrigger="120k")
    start = planner.initial_offsets()
    end = planner.next_offsets(start, unlimited=False)
    assert end is not None
    assert 90 < sum(end.values()) <= 120


def test_a_start_at_latest_is_made_durable(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanLatest", {0: 10, 1: 0})
    first = planners(filled)
    start = first.initial_offsets()
    filled.send(1, [b"between"] * 3)
    assert first.initial_offsets() == start
    assert ends(start) == [10, 0]
    anchor = first.next_offsets(start, unlimited=True)
    assert anchor == start
    assert first.partitions(start, anchor) == []
    assert ends(first.next_offsets(anchor, unlimited=True)) == [10, 3]
    # The process dies; Spark asks for the start again and plays the first batch once more.
    again = planners(filled)
    later = again.initial_offsets()
    assert ends(later) == [10, 3]
    assert again.partitions(later, anchor) == []
    end = again.next_offsets(anchor, unlimited=True)
    assert end is not None
    assert planned(again.partitions(anchor, end)) == {1: (0, 3)}


def test_waiting_for_more(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanWait", {0: 5})
    planner = planners(
        filled, startingOffsets="earliest", minOffsetsPerTrigger=10, maxTriggerDelay="1h"
    )
    start = planner.initial_offsets()
    first = planner.next_offsets(start, unlimited=False)  # nothing to wait after
    assert ends(first) == [5]
    assert first is not None
    filled.send(0, [b"x"] * 9)
    assert planner.next_offsets(first, unlimited=False) is None
    assert ends(planner.next_offsets(first, unlimited=True)) == [14]
    filled.send(0, [b"x"])
    assert ends(planner.next_offsets(first, unlimited=False)) == [15]
    hasty = planners(
        filled, startingOffsets="earliest", minOffsetsPerTrigger=99, maxTriggerDelay="0s"
    )
    begin = hasty.initial_offsets()
    assert ends(hasty.next_offsets(begin, unlimited=False)) == [15]
    assert ends(
        hasty.next_offsets({queue(0, filled.topic, filled.broker_name): 14}, unlimited=False)
    ) == [15]


def test_available_now_ends_where_it_began(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanNow", {0: 30})
    planner = planners(filled, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    planner.stop_at_present()
    start = planner.initial_offsets()
    filled.send(0, [b"late"] * 50)
    one = planner.next_offsets(start, unlimited=False)
    assert one is not None
    two = planner.next_offsets(one, unlimited=False)
    assert (ends(one), ends(two)) == ([20], [30])
    assert two is not None
    assert planner.next_offsets(two, unlimited=False) is None


def test_new_queues_and_topics_are_read_from_their_start(
    spark_cluster: Any, planners: Planners
) -> None:
    filled = fill(spark_cluster, "PlanNew-a", {0: 4})
    planner = planners(filled, topicPattern="PlanNew-.*", routeRefreshMs=0)
    start = planner.next_offsets(planner.initial_offsets(), unlimited=True)
    assert ends(start) == [4]
    assert start is not None
    assert planner.next_offsets(start, unlimited=True) is None
    spark_cluster.create_topic("PlanNew-a", queues=2)
    assert planner.next_offsets(start, unlimited=True) is None  # nothing is in it yet
    filled.send(1, [b"new queue"] * 2)
    other = fill(spark_cluster, "PlanNew-b", {0: 3})
    end = planner.next_offsets(start, unlimited=True)
    assert end is not None
    assert end[queue(1, "PlanNew-a", filled.broker_name)] == 2
    assert end[queue(0, "PlanNew-b", other.broker_name)] == 3
    assert sum(high - low for low, high in planned(planner.partitions(start, end)).values()) == 5
    with pytest.raises(ConfigError, match=r"'topicPattern' is 'Nothing\.\*': no topic"):
        planners(filled, topicPattern="Nothing.*").initial_offsets()
    quick = {"fetchOffset.numRetries": 0}
    with pytest.raises(TopicRouteNotFound, match=r"option 'topic': no route for topic 'Nowhere'"):
        planners(filled, topic="Nowhere", **quick).initial_offsets()
    with pytest.raises(NoNameServer, match=r"option 'namesrvAddr': no name server answered"):
        planners(filled, namesrvAddr="127.0.0.1:1", **quick).initial_offsets()


def test_a_lost_queue_is_looked_for_without_a_name_server(
    spark_cluster: Any, planners: Planners, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = fill(spark_cluster, "PlanUnseen", {0: 10})
    planner = planners(filled)
    planner.initial_offsets()

    def nobody() -> dict[str, str]:
        raise NoNameServer("no name server answered: it is away")

    monkeypatch.setattr(planner._brokers, "masters", nobody)
    gone = queue(7, filled.topic, filled.broker_name)
    with pytest.raises(NoNameServer, match=r"option 'namesrvAddr': no name server answered"):
        planner.next_offsets({gone: 3}, unlimited=True)


def test_data_loss_names_queue_wanted_and_smallest(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanLoss", {0: 10})
    mine = queue(0, filled.topic, filled.broker_name)
    strict = planners(filled)
    strict._view.refresh()
    text = r"'PlanLoss', broker .*, queue 0: offset 25 is wanted, the queue ends at 10"
    with pytest.raises(DataLossError, match=text):
        strict.next_offsets({mine: 25}, unlimited=True)
    with pytest.raises(DataLossError, match=r"offsets \[5, 30\): the broker has \[0, 10\)"):
        strict.partitions({mine: 5}, {mine: 30})
    gone = queue(7, filled.topic, filled.broker_name)
    with pytest.raises(DataLossError, match=r"queue 7: offset 3 .* not in the route any more"):
        strict.next_offsets({mine: 10, gone: 3}, unlimited=True)
    with pytest.raises(DataLossError, match="queue 7"):
        strict.partitions({gone: 3}, {gone: 4})
    lax = planners(filled, failOnDataLoss="false")
    assert lax.next_offsets({mine: 25}, unlimited=True) == {mine: 10}
    assert lax.next_offsets({mine: 8, gone: 3}, unlimited=True) == {mine: 10, gone: 3}
    assert planned(lax.partitions({mine: 8, gone: 3}, {mine: 30, gone: 4})) == {0: (8, 10)}


def test_a_deleted_beginning(planners: Planners) -> None:
    """The broker keeps 64 KiB; a query comes back that was away for too long."""
    most = 64 << 10
    with Cluster(
        mapped_file_size_commit_log=8 << 10, max_log_bytes=most, retention_interval=0.05
    ) as cluster:
        filled = fill(cluster, "PlanOld", {0: 400})

        def expired() -> bool:
            return (
                cluster._call(lambda it: it.state.store.log.end - it.state.store.log.start) <= most
            )

        wait_for(expired, "the broker to delete old messages")
        mine = queue(0, filled.topic, filled.broker_name)
        planner, lax = planners(filled), planners(filled, failOnDataLoss="false")
        ((low, high),) = planner._brokers.bounds(
            [mine], {filled.broker_name: filled.broker_addr}
        ).values()
        assert 50 < low < high == 400
        with pytest.raises(DataLossError, match=f"offset 50 is wanted, the smallest is {low}; set"):
            planner.next_offsets({mine: 50}, unlimited=True)
        with pytest.raises(DataLossError, match=rf"\[50, 400\): the broker has \[{low}, 400\)"):
            planner.partitions({mine: 50}, {mine: 400})
        assert lax.next_offsets({mine: 50}, unlimited=True) == {mine: 400}
        assert planned(lax.partitions({mine: 50}, {mine: 400})) == {0: (low, 400)}


def test_a_broker_that_is_away(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanAway", {0: 10})
    mine = queue(0, filled.topic, filled.broker_name)
    elsewhere = queue(0, filled.topic, "broker-away")
    planner = planners(filled)
    assert planner.next_offsets({mine: 4, elsewhere: 5}, unlimited=True) == {mine: 10, elsewhere: 5}
    with pytest.raises(BrokerNotFound, match=r"broker-away.*\[5, 6\).*not registered"):
        planner.partitions({elsewhere: 5}, {elsewhere: 6})
    until = planners(filled)
    until.stop_at_present()
    with pytest.raises(BrokerNotFound, match=r"broker-away.* cannot be read to its end"):
        until.next_offsets({mine: 4, elsewhere: 5}, unlimited=True)


def test_an_unreachable_broker_stands_still(
    spark_cluster: Any, planners: Planners, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = fill(spark_cluster, "PlanStill", {0: 10})
    mine = queue(0, filled.topic, filled.broker_name)
    planner = planners(filled)
    error = ConnectError("no way", "127.0.0.1:1")
    with monkeypatch.context() as patched:
        patched.setattr(
            planner._brokers, "bounds_of_reachable", lambda *_: ({}, {filled.broker_name: error})
        )
        assert planner.next_offsets({mine: 4}, unlimited=True) is None
        with pytest.raises(BrokerNotFound, match="no way"):
            planner.partitions({mine: 4}, {mine: 5})
    assert planner.next_offsets({mine: 4}, unlimited=True) == {mine: 10}


def test_a_route_that_is_older_than_the_broker_is_no_loss(
    spark_cluster: Any, planners: Planners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The route is asked for, then the broker registers, then it is found to be registered."""
    filled = fill(spark_cluster, "PlanRace", {0: 10})
    mine = queue(0, filled.topic, filled.broker_name)
    planner = planners(filled)
    real = planner._brokers.known_queues
    answers: list[Any] = [([], {})]
    monkeypatch.setattr(
        planner._brokers, "known_queues", lambda t: answers.pop() if answers else real(t)
    )
    assert planner.next_offsets({mine: 4}, unlimited=True) is None
    answers.append(([], {}))
    planner._view.refresh(force=True)
    assert not planner._view.bounds
    assert planned(planner.partitions({mine: 4}, {mine: 6})) == {0: (4, 6)}
    assert planner.next_offsets({mine: 4}, unlimited=True) == {mine: 10}


def test_a_lost_queue_is_told_once(
    spark_cluster: Any, planners: Planners, caplog: pytest.LogCaptureFixture
) -> None:
    filled = fill(spark_cluster, "PlanOnce", {0: 10})
    mine = queue(0, filled.topic, filled.broker_name)
    start = {mine: 10, queue(7, filled.topic, filled.broker_name): 3}
    planner = planners(filled, failOnDataLoss="false")
    for _ in range(3):
        assert planner.next_offsets(start, unlimited=True) is None
    told = [one for one in caplog.messages if "not in the route any more" in one]
    assert len(told) == 1


def test_progress_is_shown_to_the_group(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanShown", {0: 10, 1: 5})
    queues = [queue(n, filled.topic, filled.broker_name) for n in (0, 1)]
    planner = planners(filled, commitOffsets="true", group="PlanShownGroup")
    planner.stop_at_present()
    planner.show_progress(dict(zip(queues, (7, 5), strict=True)))
    shown = [spark_cluster.committed("PlanShownGroup", filled.topic, n) for n in (0, 1)]
    assert shown == [7, 5]
    silent = planners(filled, group="PlanShownGroup")
    silent.show_progress(dict(zip(queues, (9, 5), strict=True)))
    assert silent._showing is None
    # A start at the group's offsets reads what the group did not.
    for fallback, offset in (("earliest", 0), ("latest", 10)):
        spec_options = ReadOptions.of(
            filled.options(
                startingOffsets="group", group="PlanNobody", groupOffsetFallback=fallback
            )
        )
        assert resolved(planner, spec_options)[queues[0]] in (offset, 0)  # brokers may answer 0
    known = ReadOptions.of(filled.options(startingOffsets="group", group="PlanShownGroup"))
    assert resolved(planner, known) == dict(zip(queues, (7, 5), strict=True))


def resolved(planner: StreamPlanner, options: ReadOptions) -> Offsets:
    view = planner._view
    view.refresh(force=True)
    spec = options.starting_offsets
    return resolve_spec(planner._brokers, spec, view.bounds, view.addresses, options, 10**13)


def test_starts_by_time(spark_cluster: Any, planners: Planners) -> None:
    filled = fill(spark_cluster, "PlanTimes", {0: 0, 1: 0})
    times = []
    for number in range(12):
        filled.send(0, [b"%d" % number] * (number % 3 + 1))
        planner = planners(filled)
    view = planner._view
    view.refresh(force=True)
    mine = queue(0, filled.topic, filled.broker_name)
    _, high = view.bounds[mine]
    for offset in range(high):
        batch = planner._brokers.peek("G", {mine: offset}, view.addresses)[mine]
        times.append(int(batch.store_timestamps[0]))
    for wanted in sorted({1, *times, times[-1] + 1, times[0] - 1, 10**14}):
        options = ReadOptions.of(filled.options(startingTimestamp=wanted))
        right = next((n for n, time in enumerate(times) if time >= wanted), high)
        assert resolved(planner, options)[mine] == right
    options = ReadOptions.of(
        filled.options(startingTimestamp=10**14, startingOffsetsByTimestampStrategy="error")
    )
    with pytest.raises(ConfigError, match=r"'startingTimestamp'.*queue 0 has no message"):
        resolved(planner, options)


# ------------------------------------------------------------------------------ progress


def test_lag_of_a_progress() -> None:
    newest = '{"T":{"broker-a":{"0":10,"1":5,"2":3}}}'
    end = {"T": {"broker-a": {"0": 4, "1": 5}}}
    other = {"latestOffset": "7", "endOffset": None}
    progress = {"sources": [{"latestOffset": newest, "endOffset": end}, other]}
    assert lag(progress) == {queue(0): 6, queue(1): 0, queue(2): 3}
