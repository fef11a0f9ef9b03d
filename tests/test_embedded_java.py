"""The Java 4.9.4 client produces to, and consumes from, the embedded cluster: exact counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketmq_fast.embedded import Cluster
from tests.apache import SHORT_DELAYS
from tests.apache.java import consume, offsets, produce, pull_dump
from tests.require import require

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require("java")
    with Cluster(delay_levels=SHORT_DELAYS["messageDelayLevel"]) as running:
        yield running


def test_single_sends_reach_two_groups_in_full(cluster: Cluster) -> None:
    sent = produce(cluster.namesrv_addr, "Single", 3000, size=300, tags="A,B,C", keys=True)
    assert sent["statuses"] == {"SEND_OK": 3000}
    assert cluster.message_count("Single") == 3000
    for group in ("one", "two"):
        got = consume(cluster.namesrv_addr, "Single", group, 3000, **{"from": "first"})
        assert (got["messages"], got["duplicates"]) == (3000, 0)
        assert got["digest"] == sent["digest"]
    tagged = consume(cluster.namesrv_addr, "Single", "tagged", 2000, tags="A || C")
    assert (tagged["messages"], tagged["duplicates"]) == (2000, 0)
    progress = offsets(cluster.namesrv_addr, "Single", "one")["queues"].values()
    assert sum(queue["committed"] for queue in progress) == 3000


def test_batches_and_refused_messages(cluster: Cluster) -> None:
    sent = produce(cluster.namesrv_addr, "Batched", 4096, size=1024, batch=32)
    assert cluster.message_count("Batched") == 4096
    dumped = pull_dump(cluster.namesrv_addr, "Batched")
    assert (dumped["messages"], dumped["digest"]) == (4096, sent["digest"])
    got = consume(
        cluster.namesrv_addr, "Batched", "refusing", 4096, consumeBatch=1, fail=64,
        **{"from": "first"},
    )  # fmt: skip
    assert (got["messages"], got["refused"]) == (4096, 64)
    assert got["digest"] == sent["digest"]
    assert got["queues"]["%RETRY%refusing/broker-a/0"] == 64


def test_delayed_and_compressed_messages(cluster: Cluster) -> None:
    sent = produce(cluster.namesrv_addr, "Delayed", 100, delay=3, size=8000, tags="A")
    got = consume(cluster.namesrv_addr, "Delayed", "late", 100, tags="A", **{"from": "first"})
    assert (got["messages"], got["duplicates"]) == (100, 0)
    assert got["digest"] == sent["digest"]


@pytest.mark.parametrize("mode", ["async", "oneway"])
def test_other_ways_of_sending(cluster: Cluster, mode: str) -> None:
    produce(cluster.namesrv_addr, f"Mode-{mode}", 2000, size=100, mode=mode, threads=2)
    got = consume(cluster.namesrv_addr, f"Mode-{mode}", "modes", 2000, **{"from": "first"})
    assert (got["messages"], got["duplicates"]) == (2000, 0)


def test_broadcasting(cluster: Cluster) -> None:
    sent = produce(cluster.namesrv_addr, "Broad", 500, size=100)
    for _ in range(2):
        got = consume(
            cluster.namesrv_addr, "Broad", "broad", 500, broadcast=True, **{"from": "first"}
        )
        assert (got["messages"], got["digest"]) == (500, sent["digest"])
