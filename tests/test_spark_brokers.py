"""Access to the cluster from the data source, on the embedded cluster and without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_fast.errors import (
    ConfigError,
    ConnectError,
    NoNameServer,
    TopicRouteNotFound,
)
from rocketmq_fast.model import MessageQueue
from tests.fix_spark import Filled, batch_rows
from tests.require import require

if TYPE_CHECKING:
    from tests.brokers import TestBroker

require("spark")  # before what imports pyspark

from pyspark.sql.datasource import (  # noqa: E402
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
)

from rocketmq_fast.spark.batch import PushingReader  # noqa: E402
from rocketmq_fast.spark.brokers import Brokers, kept_brokers, retrying  # noqa: E402
from rocketmq_fast.spark.offsets import DataLossError  # noqa: E402
from rocketmq_fast.spark.option_parser import ConnectOptions  # noqa: E402
from rocketmq_fast.spark.options import ReadOptions  # noqa: E402
from rocketmq_fast.spark.schema import SCHEMA  # noqa: E402


def test_bounds_of_all_queues(spark_cluster: Any, spark_topic: Filled) -> None:
    spark_cluster.create_topic("SparkWide", queues=300)
    brokers = Brokers(ConnectOptions((spark_cluster.namesrv_addr,)))
    try:
        queues, addresses = brokers.queues(["SparkRead", "SparkWide"])
        assert len(queues) == 304
        assert addresses == {spark_cluster.broker_name: spark_cluster.broker_addr}
        bounds = brokers.bounds(queues, addresses)
        assert list(bounds) == queues
        found = {queue.queue_id: bounds[queue] for queue in queues if queue.topic == "SparkRead"}
        assert found == {0: (0, 2500), 1: (0, 1400), 2: (0, 100), 3: (0, 0)}
        with pytest.raises(TopicRouteNotFound, match="SparkNowhere"):
            brokers.queues(["SparkNowhere"])
        assert brokers.bounds([], addresses) == {}
    finally:
        brokers.close()


def test_nobody_there() -> None:
    brokers = Brokers(ConnectOptions(("127.0.0.1:1",)))
    try:
        with pytest.raises(NoNameServer, match=r"127\.0\.0\.1:1"):
            brokers.queues(["T"])
        queue = MessageQueue("T", "broker-a", 0)
        with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
            brokers.bounds([queue], {"broker-a": "127.0.0.1:1"})
    finally:
        brokers.close()


def test_one_client_per_process_until_a_task_is_retried(spark_topic: Filled) -> None:
    key = ConnectOptions((spark_topic.namesrv_addr,))
    first = kept_brokers.get(key)
    assert kept_brokers.get(key) is first
    second = kept_brokers.get(key, fresh=True)
    try:
        assert second is not first
        assert first.client.closed
        assert kept_brokers.get(key) is second
        assert second.queues(["SparkRead"])[0]
    finally:
        kept_brokers.clear()


@pytest.mark.parametrize(
    ("failures", "error", "calls"),
    [(0, None, 1), (2, None, 3), (3, NoNameServer, 3), (1, ConfigError, 1)],
)
def test_what_can_pass_is_tried_again(
    failures: int, error: type[Exception] | None, calls: int
) -> None:
    made = 0

    def action() -> str:
        nonlocal made
        made += 1
        if made <= failures:
            raise (error or NoNameServer)("nobody")
        return "done"

    if error is None:
        assert retrying(action, 2, 0.0) == "done"
    else:
        with pytest.raises(error):
            retrying(action, 2, 0.0)
    assert made == calls


# --------------------------------------------------- plans and reads of batches, without Spark


def rows(broker: TestBroker, **options: object) -> list[tuple[str, int, int]]:
    """What a batch read finds: its plan and its tasks, run here."""
    given = {"namesrvAddr": broker.namesrv_addr} | {n: str(value) for n, value in options.items()}
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in batch_rows(given))


def test_starts_and_ends_on_brokers(broker: TestBroker) -> None:
    """Times are exact although brokers answer with near ones; groups, queues and patterns."""
    topic = broker.topic(queues=2)
    filled = Filled(broker.namesrv_addr, broker.broker_addr, broker.broker_name, topic)
    for number in range(8):
        filled.send(0, [b"x"] * (number % 3 + 1))  # those of one batch have one time
    filled.send(1, [b"y"] * 5)
    high = broker.max_offset(topic, 0)
    everything = rows(broker, topic=topic)
    assert everything == [(topic, 0, n) for n in range(high)] + [(topic, 1, n) for n in range(5)]
    connect = ConnectOptions((broker.namesrv_addr,))
    brokers = Brokers(connect)
    try:
        _, addresses = brokers.queues([topic])
        times = [
            int(brokers.peek("G", {broker.queue(topic): n}, addresses)[broker.queue(topic)]
                .store_timestamps[0])
            for n in range(high)
        ]  # fmt: skip
        found = brokers.topics_like(".*")
        assert topic in found
        # Other tests leave topics of namespaces there, which are names with a % too.
        assert not [name for name in found if name[0] == "%" or "%%" in name or "SYS_" in name]
        assert "DefaultCluster" not in found
    finally:
        brokers.close()
    queue = f'{{"{topic}":{{"{broker.broker_name}":[0]}}}}'
    for wanted in sorted({times[0] - 1, *times, times[-1] + 1}):
        later = [(topic, 0, n) for n, time in enumerate(times) if time >= wanted]
        earlier = [(topic, 0, n) for n, time in enumerate(times) if time < wanted]
        assert rows(broker, assign=queue, startingTimestamp=wanted) == later
        assert rows(broker, assign=queue, endingTimestamp=wanted) == earlier
    group = broker.group()
    broker.commit(group, topic, 0, 3)
    broker.commit(group, topic, 1, 4)
    wanted = [(topic, 0, n) for n in range(3, high)] + [(topic, 1, 4)]
    assert rows(broker, topicPattern=topic, group=group, startingOffsets="group") == wanted


def test_sql_on_brokers(broker: TestBroker) -> None:
    topic = broker.topic(queues=1)
    for colour in ("red", "blue", "red"):
        broker.send(topic, [b"x"] * 40, properties={"colour": colour, "size": "7"})
    sql = {"topic": topic, "expressionType": "SQL92"}
    red = rows(broker, expression="colour = 'red' AND size > 5", **sql)
    assert red == [(topic, 0, n) for n in (*range(40), *range(80, 120))]
    with pytest.raises(ConfigError, match=r"option 'expression' is 'colour = = 1': broker"):
        rows(broker, expression="colour = = 1", **sql)


def test_a_namespace(broker: TestBroker) -> None:
    name = broker.name("t")
    broker.cluster.create_topic(f"shop%{name}", queues=1)
    broker.send(f"shop%{name}", [b"x"] * 3)
    wanted = [(name, 0, n) for n in range(3)]
    assert rows(broker, topic=name, namespace="shop") == wanted
    assert rows(broker, topicPattern=f"{name}.*", namespace="shop") == wanted


def test_queues_that_are_not_there(broker: TestBroker) -> None:
    topic = broker.topic(queues=1)
    for option, value in (
        ("assign", f'{{"{topic}":{{"{broker.broker_name}":[7]}}}}'),
        ("startingOffsets", f'{{"{topic}":{{"{broker.broker_name}":{{"7":1}}}}}}'),
    ):
        given = {option: value} | ({} if option == "assign" else {"topic": topic})
        with pytest.raises(ConfigError, match=rf"'{option}' names.* queue 7"):
            rows(broker, **given)
    place = f'{{"{topic}":{{"{broker.broker_name}":{{"0":%d}}}}}}'
    with pytest.raises(ConfigError, match="'startingOffsets' is behind 'endingOffsets'"):
        rows(broker, topic=topic, startingOffsets=place % 2, endingOffsets=place % 1)
    with pytest.raises(DataLossError, match=r"queue 0, offsets \[5, 0\): the broker has \[0, 0\)"):
        rows(broker, topic=topic, startingOffsets=place % 5)


def test_pushed_filters_leave_the_rows_that_they_mean(embedded_broker: TestBroker) -> None:
    """Exact ones and, for store times, no row too few; each with a reader of its own."""
    topic = embedded_broker.topic(queues=2)
    where = embedded_broker.namesrv_addr, embedded_broker.broker_addr, embedded_broker.broker_name
    filled = Filled(*where, topic)
    for number in range(6):
        filled.send(number % 2, [b"x"] * 50, {"TAGS": ("Aa", "BB", "C")[number % 3]})

    def read(*filters: Filter) -> tuple[list[dict[str, Any]], list[Filter]]:
        reader = PushingReader(SCHEMA, ReadOptions.of(filled.options(pushFilters="true")))
        rest = list(reader.pushFilters(list(filters)))
        batches = [batch for one in reader.partitions() for batch in reader.read(one)]
        return [row for batch in batches for row in batch.to_pylist()], rest

    def key(row: dict[str, Any]) -> tuple[int, int]:
        return row["queueId"], row["queueOffset"]

    everything, _ = read()
    assert len(everything) == 300
    for filters, holds in (
        ([EqualTo(("tags",), "Aa")], lambda row: row["tags"] == "Aa"),
        (
            [In(("tags",), ("BB", "C")), GreaterThan(("queueId",), 0)],
            lambda row: row["tags"] in ("BB", "C") and row["queueId"] > 0,
        ),
        (
            [GreaterThanOrEqual(("queueOffset",), 10), LessThan(("queueOffset",), 60)],
            lambda row: 10 <= row["queueOffset"] < 60,
        ),
    ):
        found, rest = read(*filters)
        assert rest == []
        assert sorted(map(key, found)) == sorted(key(row) for row in everything if holds(row))
    times = sorted({row["storeTimestamp"] for row in everything})
    for time in times:
        filters = [GreaterThanOrEqual(("storeTimestamp",), time)]
        found, rest = read(*filters)
        assert rest == filters
        wanted = sorted(key(row) for row in everything if row["storeTimestamp"] >= time)
        assert sorted(key(row) for row in found if row["storeTimestamp"] >= time) == wanted
        assert len(found) == len(wanted)
