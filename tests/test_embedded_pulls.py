"""Pulls that are held while their messages become unreadable."""

from __future__ import annotations

import pytest

from rocketmq_fast._core import decode_messages
from rocketmq_fast.embedded import Cluster, StoreError, pull
from rocketmq_fast.errors import MessageDecodeError
from tests.embedded_raw import Raw, pull_fields, send_fields
from tests.waiting import wait_for

SEND, PULL = 310, 11
HOLD = {"sysFlag": "6", "suspendTimeoutMillis": "60000"}


@pytest.mark.parametrize("error", [StoreError("no block"), MessageDecodeError("no record")])
def test_held_pulls_outlive_one_that_cannot_be_served(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with Cluster(enable_property_filter=True) as cluster:
        cluster.create_topic("T", 1)
        inner = cluster._broker
        assert inner is not None
        store, pulls = inner.state.store, inner.pulls
        with Raw(cluster.broker_addr) as raw, Raw(cluster.broker_addr) as sender:
            sql = {"expressionType": "SQL92", **HOLD}
            unreadable = raw.send(PULL, pull_fields("T", subscription="a > 1", **sql))
            waits = raw.send(PULL, pull_fields("T", 0, 0, subscription="TagA", **HOLD))
            later = raw.send(PULL, pull_fields("T", 0, 0, subscription="*", **HOLD))
            wait_for(lambda: pulls.parked_count == 3, "three held pulls")

            def fail(*_: object) -> bool:
                raise error

            monkeypatch.setattr(store, "first_match", fail)
            assert sender.call(SEND, send_fields("T"), b"x").code == 0
            refused = raw.wait(unreadable)
            assert refused.code == 1
            assert str(error) in (refused.remark or "")
            served = raw.wait(later)
            assert [m.body for m in decode_messages(served.body, check_crc=True)] == [b"x"]
            wait_for(lambda: pulls.parked_count == 1, "one held pull")

            monkeypatch.setattr(store, "get", fail)
            tagged = send_fields("T", i="TAGS\x01TagA")
            assert sender.call(SEND, tagged, b"y").code == 0
            refused = raw.wait(waits)
            assert refused.code == 1
            assert str(error) in (refused.remark or "")
            monkeypatch.undo()
            assert raw.call(PULL, pull_fields("T")).code == 0


def test_a_broker_holds_only_so_many_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "MAX_HELD", 3)
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        with Raw(cluster.broker_addr) as raw:
            held = [raw.send(PULL, pull_fields("T", **HOLD)) for _ in range(3)]
            assert raw.call(PULL, pull_fields("T", **HOLD)).code == 19
            with Raw(cluster.broker_addr) as sender:
                assert sender.call(SEND, send_fields("T"), b"x").code == 0
            assert [raw.wait(opaque).code for opaque in held] == [0, 0, 0]
            inner = cluster._broker
            assert inner is not None
            wait_for(lambda: inner.pulls.parked_count == 0, "that none is held")
            raw.send(PULL, pull_fields("T", 0, 1, **HOLD))
            wait_for(lambda: inner.pulls.parked_count == 1, "a held pull")
        wait_for(lambda: inner.pulls.parked_count == 0, "the end of the connection")
