"""Members of one group that subscribe differently: brokers do not say so, the client warns."""

from __future__ import annotations

import itertools

import pytest

from rocketmq_fast.consumer import group_watch
from tests.brokers import TestBroker
from tests.consuming import Recorder, consuming
from tests.waiting import wait_for


def test_members_with_other_topics_are_told(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, group = broker.topic(2), broker.topic(2), broker.group()
    numbers = itertools.count()

    def told() -> bool:
        for topic in (one, two):  # pulls end with messages, and the next ask for the subscription
            broker.send(topic, [f"m{next(numbers)}".encode() for _ in range(2)], queues=(0, 1))
        return "another member probably subscribes to other topics" in caplog.text

    soon = {"pull_time_delay_millis_when_exception": 20}
    with (
        consuming(broker.namesrv_addr, group, one, Recorder(), assigned=False, **soon),
        consuming(broker.namesrv_addr, group, two, Recorder(), assigned=False, **soon),
    ):
        wait_for(told, "the warning")
    assert f"group {group}, topic" in caplog.text


def test_members_with_other_expressions_are_told(
    broker: TestBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_watch, "SETTLED_SECONDS", 0.0)
    topic, group = broker.topic(2), broker.group()

    def told() -> bool:
        broker.send(topic, [b"m", b"m"], queues=(0, 1), tags="TagA")
        broker.send(topic, [b"m", b"m"], queues=(0, 1), tags="TagB")
        return "another member probably subscribes by another expression" in caplog.text

    recorders = Recorder(), Recorder()
    with (
        consuming(broker.namesrv_addr, group, {topic: "TagA"}, recorders[0]),
        consuming(broker.namesrv_addr, group, {topic: "TagB"}, recorders[1], assigned=False),
    ):
        wait_for(told, "the warning")
    assert {seen.tags for seen in recorders[0].seen} <= {"TagA"}
    assert {seen.tags for seen in recorders[1].seen} <= {"TagB"}
