"""Requests that fail again and again are told by broker: the begin, each half minute, the end."""

from __future__ import annotations

import logging
import threading

import pytest

from rocketmq_fast import ConnectError, MessageQueue
from rocketmq_fast.consumer.outages import SUMMARY_SECONDS, Outages
from rocketmq_fast.errors import BrokerError, RequestTimeout
from tests.brokers import TestBroker
from tests.consuming import SUCCESS, Recorder, bodies, consuming, releasing
from tests.proxy import ProxiedCluster
from tests.waiting import wait_for

AWAY = ConnectError("connection refused", "127.0.0.1:1")
UNKNOWN = BrokerError.of(24, "not exist")
DENIED = BrokerError.of(16, "no permission")


class Told:
    """Outages on a clock of the test, and the lines that they made."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "rocketmq_fast.consumer.outages")
        self._caplog = caplog
        self.now = 100.0
        self.outages = Outages("g", "pulls from", lambda: self.now)

    def lines(self) -> list[str]:
        found = self._caplog.messages[:]
        self._caplog.clear()
        return found


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def queues(broker: str, count: int = 4) -> list[MessageQueue]:
    return [MessageQueue("T", broker, index) for index in range(count)]


def test_a_broker_that_is_away_is_one_line_and_a_slow_summary(told: Told) -> None:
    ours = queues("a")
    for _ in range(int(2 * SUMMARY_SECONDS)):
        for queue in ours:
            told.outages.failed(queue, AWAY)
        told.now += 1
    first, later = told.lines()
    assert "pulls from broker a fail" in first
    assert "connection refused" in first
    assert "4 queues" in later
    assert "30 s" in later
    told.outages.succeeded(ours[0])
    for queue in ours:
        told.outages.succeeded(queue)
    (end,) = told.lines()
    assert "pulls from broker a work again, after 60.0 s and 240 failures" in end


def test_brokers_are_told_apart(told: Told) -> None:
    a, b = queues("a", 1)[0], queues("b", 1)[0]
    told.outages.failed(a, AWAY)
    told.outages.failed(b, AWAY)
    assert len(told.lines()) == 2
    told.outages.succeeded(b)
    (end,) = told.lines()
    assert "broker b work again" in end


def test_one_queue_that_fails_among_others_that_do_not_is_no_flood(told: Told) -> None:
    bad, *good = queues("a")
    for _ in range(20):
        told.outages.failed(bad, DENIED)
        for queue in good:
            told.outages.succeeded(queue)
        told.now += 1
    assert len(told.lines()) == 1
    told.outages.succeeded(bad)
    assert len(told.lines()) == 1


def test_an_error_is_an_answer_too(told: Told) -> None:
    """A broker that is back and knows nobody yet: no line for what a heartbeat mends at once."""
    ours = queues("a")
    for queue in ours:
        told.outages.failed(queue, AWAY)
    told.lines()
    for queue in ours:
        told.outages.failed(queue, UNKNOWN)
    (end,) = told.lines()
    assert "work again" in end
    for queue in ours:
        told.outages.succeeded(queue)
    assert told.lines() == []


def test_an_unknown_subscription_that_stays_is_told(told: Told) -> None:
    (queue,) = queues("a", 1)
    for _ in range(int(SUMMARY_SECONDS) + 1):
        told.outages.failed(queue, UNKNOWN)
        told.now += 1
    (line,) = told.lines()
    assert "code 24" in line


def test_queues_that_were_lost_do_not_keep_an_outage_open(told: Told) -> None:
    lost, kept = queues("a", 2)
    told.outages.failed(lost, RequestTimeout("no answer"))
    told.lines()
    told.outages.succeeded(kept)
    assert told.lines() == []
    told.outages.forget(lost)
    (end,) = told.lines()
    assert "not ours any more" in end


def test_a_broker_that_goes_and_comes_back_is_two_lines_of_pulls_and_of_commits(
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(4), broker.group()
    gate = threading.Event()
    recorder = Recorder(lambda *_: SUCCESS if gate.wait(60.0) else None)
    caplog.set_level(logging.DEBUG, "rocketmq_fast.consumer.outages")
    with (
        releasing(gate),
        consuming(
            embedded_proxied.namesrv_addr,
            group,
            topic,
            recorder,
            pull_time_delay_millis_when_exception=20,
            persist_consumer_offset_interval=50,
        ) as consumer,
    ):
        broker.send(topic, bodies(4, "first"), queues=range(4))
        recorder.wait(4)
        embedded_proxied.broker.refuse()
        gate.set()
        wait_for(lambda: consumer.stats()["pull_errors"] > 20, "pulls that fail")
        wait_for(lambda: caplog.text.count("commits to broker") > 20, "commits that fail")
        embedded_proxied.broker.listen()
        broker.send(topic, bodies(4), queues=range(4))
        recorder.wait(8)
        wait_for(lambda: broker.committed(group, topic) == {0: 2, 1: 2, 2: 2, 3: 2}, "commits")
    told = [
        record.getMessage()
        for record in caplog.records
        if record.name == "rocketmq_fast.consumer.outages" and record.levelno == logging.WARNING
    ]
    for what in ("pulls from", "commits to"):
        away, back = (text for text in told if what in text)
        assert f"group {group}: {what} broker {broker.broker_name} fail" in away
        assert "work again" in back
    assert "was not stored" not in caplog.text
