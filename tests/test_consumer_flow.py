"""Flow control, messages that take too long, and pulls that were forgotten."""

from __future__ import annotations

import threading
import time

import pytest

from rocketmq_fast import ConsumeStatus, MessageExt
from rocketmq_fast._core.consume import ConsumeContext
from tests.brokers import TestBroker
from tests.consuming import SUCCESS, Recorder, assert_once, bodies, consuming, releasing
from tests.waiting import wait_for

SPAN = (0, *range(40, 240))


class Gate:
    """A listener that waits at chosen offsets until it is opened."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = offsets
        self.opened = threading.Event()

    def __call__(self, messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        first = messages[0]
        if first.reconsume_times == 0 and (
            not self._offsets or first.queue_offset in self._offsets
        ):
            assert self.opened.wait(60.0)
        return SUCCESS


@pytest.mark.parametrize(
    ("options", "offsets", "queues", "size", "most"),
    [
        ({"pull_threshold_for_queue": 40, "pull_batch_size": 16}, (), 1, 10, 40 + 16),
        ({"pull_threshold_for_topic": 80, "pull_batch_size": 16}, (), 4, 10, 80 + 4 * 16),
        # Whole MiB are compared, as Java does: below 2 MiB counts as 1. A pull brings 256 KiB.
        ({"pull_threshold_size_for_queue": 1}, (), 1, 50_000, (2 * 1048576 + 262144) // 50_000 + 1),
        ({"pull_threshold_size_for_topic": 2}, (), 2, 50_000, 2 * 2359296 // 50_000 + 2),
        # As in Java, what counts is what is cached now: the first offset, and some from 40 on.
        ({"consume_concurrently_max_span": 50, "pull_batch_size": 16}, SPAN, 1, 10, 50 + 1 + 16),
    ],
    ids=["count", "count per topic", "size", "size per topic", "span"],
)
def test_no_more_is_pulled_than_allowed(
    embedded_broker: TestBroker,
    options: dict[str, int],
    offsets: tuple[int, ...],
    queues: int,
    size: int,
    most: int,
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(queues), broker.group()
    sent = bodies(240, size=size)
    broker.send(topic, sent, queues=range(queues))
    gate = Gate(*offsets)
    recorder = Recorder(gate)
    with (
        consuming(
            broker.namesrv_addr, group, topic, recorder, consume_thread_max=20, **options
        ) as consumer,
        releasing(gate.opened),
    ):
        wait_for(lambda: consumer.stats()["flow_controlled"] >= 3 * queues, "flow control")
        stats = consumer.stats()
        assert stats["pulled"] <= most
        assert stats["cached_messages"] <= most
        assert stats["pulled"] > most // 3  # it is the limit that holds, and nothing else
        gate.opened.set()
        recorder.wait(240)
    assert_once(recorder, sent)


def test_slow_consumer_gets_more_as_it_goes(embedded_broker: TestBroker) -> None:
    """A queue that waits for room pulls again when there is room, not only by the clock."""
    broker = embedded_broker
    topic = broker.topic(1)
    sent = bodies(300)
    broker.send(topic, sent)
    recorder = Recorder(lambda *_: time.sleep(0.0005) or SUCCESS)
    with consuming(
        broker.namesrv_addr,
        broker.group(),
        topic,
        recorder,
        pull_threshold_for_queue=20,
        pull_batch_size=10,
        consume_thread_min=1,
        consume_thread_max=1,
    ):
        recorder.wait(300)
    assert_once(recorder, sent)


@pytest.mark.parametrize("place", [0, 7])
def test_message_that_takes_too_long_is_sent_back(embedded_broker: TestBroker, place: int) -> None:
    """It holds the commit no longer; the call goes on, and its result changes nothing."""
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(20))
    gate = Gate(place)
    recorder = Recorder(gate)
    with (
        consuming(
            broker.namesrv_addr,
            group,
            topic,
            recorder,
            consume_timeout=0.3 / 60,
            persist_consumer_offset_interval=20,
            poll_name_server_interval=200,
        ),
        releasing(gate.opened),
    ):
        wait_for(lambda: len(recorder.of(f"m{place}".encode())) == 2, "the second delivery")
        wait_for(lambda: broker.committed(group, topic) == {0: 20}, "the commit to pass")
        gate.opened.set()
    first, second = recorder.of(f"m{place}".encode())
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert second.topic == topic
    assert len(recorder.seen) == 21
    assert broker.committed(group, topic) == {0: 20}


def test_queue_whose_pull_was_forgotten_is_taken_anew(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(1)
    recorder = Recorder()
    with consuming(broker.namesrv_addr, broker.group(), topic, recorder) as consumer:
        broker.send(topic, bodies(5, "one"))
        recorder.wait(5)
        running = consumer._running
        assert running is not None
        old = running.assignment.get(broker.queue(topic))
        assert old is not None
        old.last_pull -= 121.0  # as if no pull had left for so long
        running.instance.rebalance_soon()
        wait_for(
            lambda: running.assignment.get(broker.queue(topic)) not in (old, None), "a new pull"
        )
        assert old.dropped
        broker.send(topic, bodies(5, "two"))
        recorder.wait(10)
    assert_once(recorder, bodies(5, "one") + bodies(5, "two"))


def test_pull_interval_spaces_the_pulls(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(1)
    broker.send(topic, bodies(40))
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr,
        broker.group(),
        topic,
        recorder,
        pull_interval=60_000,
        pull_batch_size=10,
    ) as consumer:
        recorder.wait(10)
        # The next pull is a minute away.
        assert consumer.stats()["pulled"] == 10
    assert len(recorder.seen) == 10


def test_idle_threads_are_few_and_busy_ones_many(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(1)
    together = threading.Barrier(16)

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        together.wait(30.0)  # breaks unless sixteen calls run at a time
        return SUCCESS

    broker.send(topic, bodies(32))
    recorder = Recorder(listen)
    with consuming(
        broker.namesrv_addr,
        broker.group(),
        topic,
        recorder,
        consume_thread_max=16,
        consume_thread_min=1,
    ) as consumer:
        recorder.wait(32)
        assert consumer.stats()["threads"] == 16
    assert not together.broken
