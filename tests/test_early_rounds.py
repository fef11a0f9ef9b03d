"""A broker that does not know a group yet: no warning at start, but one when it stays so."""

from __future__ import annotations

import logging

import pytest

from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import Recorder, bodies, make
from tests.proxy import Frame, ProxiedCluster, answer_with
from tests.waiting import wait_for


@pytest.mark.parametrize(("refusals", "warnings"), [(4, False), (40, True)])
def test_unknown_group_is_a_warning_only_when_it_lasts(
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    refusals: int,
    warnings: bool,
) -> None:
    monkeypatch.setattr("rocketmq_fast.consumer.rebalance._AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("rocketmq_fast.consumer.rebalance._AGAIN_MOST", 0.02)
    topic = embedded_broker.topic(1)
    embedded_broker.send(topic, bodies(1))
    refused = 0

    def on_answer(frame: Frame) -> bytes | None:
        nonlocal refused
        if frame.code != RequestCode.GET_CONSUMER_LIST_BY_GROUP or refused >= refusals:
            return None
        refused += 1
        return answer_with(frame, 1, "no consumer for this group, x")

    embedded_proxied.broker.on_answer = on_answer
    seen = Recorder()
    consumer = make(embedded_proxied.namesrv_addr, embedded_broker.group(), topic, seen)
    with caplog.at_level(logging.DEBUG, "rocketmq_fast.consumer.rebalance"):
        consumer.start()
        try:
            seen.wait(1)
            wait_for(lambda: refused == refusals, "all refusals")
        finally:
            consumer.shutdown()
    found = [r.levelname for r in caplog.records if "no consumer for this group" in r.message]
    assert len(found) == refusals
    assert ("WARNING" in found) is warnings
    assert found[:4] == ["DEBUG"] * 4
