"""Limits of a topic: divided over the queues that a member holds, anew when these change."""

from __future__ import annotations

import contextlib
import threading

import pytest

from rocketmq_fast import ConsumeStatus, MessageExt, PushConsumer
from rocketmq_fast._core.consume import ConsumeContext
from tests.brokers import TestBroker
from tests.consuming import SUCCESS, Recorder, assert_once, bodies, consuming, owned, releasing
from tests.waiting import wait_for

_MIB = 1 << 20


def limits(consumer: PushConsumer, topic: str) -> dict[int, tuple[int, int]]:
    """Messages and MiB that each held queue of a topic may cache."""
    running = consumer._running
    assert running is not None
    return {
        assigned.message_queue.queue_id: (
            assigned.count_limit,
            assigned.size_limit_bytes // _MIB,
        )
        for assigned in running.assignment.queues()
        if assigned.message_queue.topic == topic
    }


def wait_limits(consumer: PushConsumer, topic: str, queues: int, each: tuple[int, int]) -> None:
    """Wait until a member holds so many queues, with these limits each."""
    wait_for(
        lambda: list(limits(consumer, topic).values()) == [each] * queues,
        lambda: f"{queues} queues with {each}: {limits(consumer, topic)}",
    )


def test_limits_are_divided_anew_when_queues_change_hands(broker: TestBroker) -> None:
    topic, other, group = broker.topic(6), broker.topic(1), broker.group()
    options = {"pull_threshold_for_topic": 100, "pull_threshold_size_for_topic": 8}

    def member(**more: int) -> contextlib.AbstractContextManager[PushConsumer]:
        subscriptions = {topic: "*", other: "*"}
        return consuming(
            broker.namesrv_addr, group, subscriptions, Recorder(), **options | more, assigned=False
        )

    with member() as first:
        wait_limits(first, topic, 6, (16, 1))
        wait_limits(first, other, 1, (100, 8))  # a topic's share is its own
        with member() as second:
            wait_limits(first, topic, 3, (33, 2))
            wait_limits(second, topic, 3, (33, 2))
            with member() as third:
                for consumer in (first, second, third):
                    wait_limits(consumer, topic, 2, (50, 4))
            wait_limits(first, topic, 3, (33, 2))
        wait_limits(first, topic, 6, (16, 1))
    with member(pull_threshold_for_topic=4, pull_threshold_size_for_topic=1) as alone:
        wait_limits(alone, topic, 6, (1, 1))  # never none at all


def test_limits_of_a_queue_hold_where_the_topic_has_none(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(2)
    with consuming(broker.namesrv_addr, broker.group(), topic, Recorder()) as consumer:
        wait_limits(consumer, topic, 2, (1000, 100))
    with consuming(
        broker.namesrv_addr,
        broker.group(),
        topic,
        Recorder(),
        pull_threshold_for_queue=7,
        pull_threshold_size_for_queue=3,
        pull_threshold_for_topic=50,
    ) as consumer:
        wait_limits(consumer, topic, 2, (25, 3))


class Turnstile:
    """A listener that lets one message pass at a time, when told to."""

    def __init__(self) -> None:
        self.passes = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        while not self.opened.is_set() and not self.passes.acquire(timeout=0.05):
            pass
        return SUCCESS


@pytest.mark.parametrize(
    ("options", "size", "most"),
    [
        # A pull is sent as long as a queue is not above its share; so much more it may bring.
        ({"pull_threshold_for_topic": 80, "pull_batch_size": 16}, 10, 80 + 4 * 16),
        # Whole MiB are compared: below 2 MiB counts as 1. A pull brings at most 256 KiB.
        ({"pull_threshold_size_for_topic": 4}, 50_000, 4 * (2 * _MIB + 262_144) // 50_000 + 4),
    ],
    ids=["count", "size"],
)
def test_slow_listener_keeps_the_cache_bounded(
    embedded_broker: TestBroker, options: dict[str, int], size: int, most: int
) -> None:
    broker = embedded_broker
    topic, group, queues = broker.topic(4), broker.group(), 4
    sent = bodies(400, size=size)
    broker.send(topic, sent, queues=range(queues))
    turnstile = Turnstile()
    recorder = Recorder(turnstile)
    with (
        consuming(
            broker.namesrv_addr,
            group,
            topic,
            recorder,
            consume_thread_min=2,
            consume_thread_max=2,
            **options,
        ) as consumer,
        releasing(turnstile.opened),
    ):
        wait_for(lambda: len(owned(consumer, topic)) == queues, "all queues")
        cached: list[int] = []

        def full() -> bool:
            """Flow controlled once more, whatever is cached by then."""
            stats = consumer.stats()
            cached.append(stats["cached_messages"])
            return stats["flow_controlled"] >= known + 2 * queues

        for passed in range(0, 60, 20):
            known = consumer.stats()["flow_controlled"]
            wait_for(full, f"flow control after {passed} messages")
            turnstile.passes.release(20)
            recorder.wait(passed + 20)
        assert max(cached) <= most
        assert max(cached) > most // 3  # it is the limit that holds, and nothing else
        turnstile.opened.set()
        recorder.wait(400)
    assert_once(recorder, sent)
    assert broker.committed(group, topic) == dict.fromkeys(range(queues), 100)
