"""A consumer with very many queues: what it does for each of them does not grow with them."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from rocketmq_fast import PushConsumer
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import Recorder, assert_once, bodies, consuming, owned
from tests.proxy import Frame, ProxiedCluster
from tests.waiting import wait_for

MANY = 1000


def run_round(consumer: PushConsumer) -> None:
    """One rebalance round, to its end."""
    running = consumer._running
    assert running is not None
    ended = threading.Event()
    whole = running.rebalance

    def noted() -> None:
        whole()
        ended.set()

    running.rebalance = noted  # type: ignore[method-assign]
    running.instance.rebalance_soon()
    assert ended.wait(30.0), "no round"
    running.rebalance = whole  # type: ignore[method-assign]


@pytest.mark.parametrize("topics", [1, 50])
def test_a_thousand_queues_in_one_consumer(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster, topics: int
) -> None:
    broker = embedded_broker
    each = MANY // topics
    names = [broker.topic(each) for _ in range(topics)]
    requests: list[tuple[int, str]] = []

    def on_request(frame: Frame) -> None:
        requests.append((frame.code, frame.command.ext_fields.get("topic", "")))

    embedded_proxied.broker.on_request = on_request
    recorder = Recorder()
    sent = bodies(MANY)
    with consuming(
        embedded_proxied.namesrv_addr, broker.group(), dict.fromkeys(names, "*"), recorder
    ) as consumer:
        wait_for(lambda: sum(len(owned(consumer, name)) for name in names) == MANY, "all queues")
        for place, name in enumerate(names):
            broker.send(name, sent[place * each : (place + 1) * each], queues=range(each))
        recorder.wait(MANY)
        # A round asks for the members of each topic, and asks nothing about a queue.
        before = Counter(requests)
        run_round(consumer)
        asked = Counter(requests) - before
        members = asked[RequestCode.GET_CONSUMER_LIST_BY_GROUP, ""]
        # Of the round before and of one that the retry topic's route asked for there may be some.
        assert topics <= members <= 3 * (topics + 1)
        # The group's retry topic is found at some time, perhaps in this round: its queue is new.
        offsets = RequestCode.QUERY_CONSUMER_OFFSET
        assert [name for code, name in asked if code == offsets and name in names] == []
        ours = [
            thread.name
            for thread in threading.enumerate()
            if thread.name.startswith("rocketmq-") and "consume" not in thread.name
        ]
        assert len(ours) <= 8, ours  # threads are the instance's and the consumer's, not a queue's
        stats = consumer.stats()
        assert stats["threads"] <= 20
        assert stats["cached_messages"] == 0
    assert_once(recorder, sent)


def test_orderly_locks_of_many_queues_are_renewed_in_one_request(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(200), broker.group()
    locks: list[int] = []

    def on_request(frame: Frame) -> None:
        if frame.code == RequestCode.LOCK_BATCH_MQ:
            locks.append(frame.command.body.count(b'"queueId"'))

    recorder = Recorder()
    with consuming(embedded_proxied.namesrv_addr, group, topic, recorder, orderly=True) as consumer:
        wait_for(lambda: len(owned(consumer, topic)) == 200, "all queues")
        embedded_proxied.broker.on_request = on_request
        running = consumer._running
        assert running is not None
        assert running.order is not None
        queues = running.assignment.queues()
        running.order.locks.renew(queues)
        # Beside it the retry queue may be taken, and whoever renews by the clock may do so too.
        wait_for(lambda: len(queues) in locks, lambda: f"one request for all: {locks}")
