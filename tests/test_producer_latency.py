"""Brokers that are slow or fail are left alone for a while, if the producer is told to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_fast import ConfigError, Message, MessageQueue, Producer, RpcHook, SendError
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.errors import MessageIllegal, RocketMQError
from rocketmq_fast.producer.latency import AvoidFaults, FaultTable
from rocketmq_fast.remoting.server import Peer
from tests.scripted_cluster import SEND, ScriptedCluster, Step, close

MESSAGE = Message("T", b"body")
QUEUES = [MessageQueue("T", name, queue) for name in ("a", "b", "c") for queue in range(2)]


class Clock:
    """Seconds that only move when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> FaultTable:
    return FaultTable(clock=clock)


@pytest.mark.parametrize(
    ("latency", "away"),
    [
        (0, 0), (49, 0), (50, 0), (549, 0), (550, 30), (999, 30), (1000, 60), (2000, 120),
        (3000, 180), (14_999, 180), (15_000, 600), (90_000, 600),
    ],
)  # fmt: skip
def test_how_long_a_slow_broker_is_left_alone(
    table: FaultTable, clock: Clock, latency: int, away: int
) -> None:
    table.record("a", latency, failed=False)
    assert table.available("b")
    assert table.available("a") == (away == 0)
    clock.now += max(0, away - 0.001)
    assert table.available("a") == (away == 0)
    clock.now += 0.001
    assert table.available("a")


def test_a_failure_counts_as_half_a_minute(table: FaultTable, clock: Clock) -> None:
    table.record("a", 3, failed=True)
    clock.now += 599.9
    assert not table.available("a")
    table.record("a", 3, failed=False)  # somebody had to try it, and it works
    assert table.available("a")


def test_the_better_half_is_taken_when_none_is_good(table: FaultTable) -> None:
    assert table.least_bad() is None
    for name, latency in (("a", 4000), ("b", 600), ("c", 700), ("d", 20_000)):
        table.record(name, latency, failed=False)
    assert [table.least_bad() for _ in range(4)] == ["b", "c", "b", "c"]
    table.forget("b")
    assert {table.least_bad() for _ in range(4)} == {"c"}


def test_turns_skip_brokers_that_are_away(table: FaultTable, clock: Clock) -> None:
    turn = AvoidFaults(table)
    assert {turn.choose(QUEUES) for _ in range(6)} == set(QUEUES)
    table.record("b", 5000, failed=False)
    assert {turn.choose(QUEUES).broker_name for _ in range(12)} == {"a", "c"}
    for name in "abc":
        table.record(name, {"a": 2000, "b": 600, "c": 3000}[name], failed=False)
    assert {turn.choose(QUEUES) for _ in range(8)} == {q for q in QUEUES if q.broker_name == "b"}
    clock.now += 600
    assert {turn.choose(QUEUES).broker_name for _ in range(12)} == {"a", "b", "c"}


def test_a_broker_of_another_topic_is_not_chosen(table: FaultTable) -> None:
    turn = AvoidFaults(table)
    for name in ("a", "b", "c"):
        table.record(name, 9000, failed=False)
    table.record("elsewhere", 600, failed=False)
    assert {turn.choose(QUEUES).broker_name for _ in range(20)} <= {"a", "b", "c"}


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as running:
        yield running


def started(cluster: ScriptedCluster, **options: Any) -> Producer:
    return Producer("PG", namesrv_addr=cluster.namesrv_addr, **options)


def counts(cluster: ScriptedCluster) -> dict[str, int]:
    return {name: len(broker.sends) for name, broker in cluster.brokers.items()}


@pytest.mark.parametrize("way", ["send", "send_async"])
def test_after_a_failure_the_other_broker_gets_everything(
    cluster: ScriptedCluster, way: str
) -> None:
    cluster.brokers["a"].steps.extend([close])
    with started(cluster, send_latency_fault_enable=True) as producer:
        for _ in range(40):
            if way == "send":
                producer.send(MESSAGE)
            else:
                producer.send_async(MESSAGE).result(30.0)
    assert len(cluster.brokers["a"].sends) <= 2  # before the failure, and the failure
    assert sum(counts(cluster).values()) == 41


def test_without_the_option_only_the_retry_avoids_the_broker(cluster: ScriptedCluster) -> None:
    cluster.brokers["a"].steps.extend([close])
    with started(cluster) as producer:
        for _ in range(40):
            producer.send(MESSAGE)
    assert len(cluster.brokers["a"].sends) > 10


def nonsense(peer: Peer, request: RemotingCommand) -> None:
    peer.reply(request, RemotingCommand(0))


@pytest.mark.parametrize("way", ["send", "send_async"])
@pytest.mark.parametrize(
    ("step", "avoided"),
    [(close, True), (1, True), (2, True), (16, True), (nonsense, True), (13, False)],
    ids=["closed", "error", "busy", "no permission", "nonsense", "illegal"],
)
def test_both_ways_hold_the_same_against_a_broker(
    cluster: ScriptedCluster, way: str, step: Step, *, avoided: bool
) -> None:
    """An illegal message alone says nothing about the broker that refused it."""
    cluster.brokers["a"].steps.append(step)
    with started(cluster, send_latency_fault_enable=True) as producer:
        for _ in range(40):
            with contextlib.suppress(RocketMQError):
                if way == "send":
                    producer.send(MESSAGE)
                else:
                    producer.send_async(MESSAGE).result(30.0)
    assert (counts(cluster)["a"] <= 2) == avoided  # before the failure, and the failure


def test_a_broker_that_cannot_be_reached_is_avoided_by_async_sends_too(
    cluster: ScriptedCluster,
) -> None:
    with started(cluster, send_latency_fault_enable=True) as producer:
        cluster.stop_brokers("a")
        for _ in range(5):
            producer.send_async(MESSAGE).result(30.0)
        running = producer._running
        assert running is not None
        assert running.sender.faults is not None
        assert not running.sender.faults.available("a")


def test_what_never_left_says_nothing_about_the_broker(cluster: ScriptedCluster) -> None:
    class Refuses(RpcHook):
        def before_request(self, address: str, request: RemotingCommand) -> None:
            if request.code == SEND:
                raise ValueError("not this one")

    with started(cluster, send_latency_fault_enable=True, rpc_hooks=[Refuses()]) as producer:
        for send in (producer.send, lambda m: producer.send_async(m).result(30.0)):
            with pytest.raises(SendError):
                send(MESSAGE)
        running = producer._running
        assert running is not None
        assert running.sender.faults is not None
        assert running.sender.faults.least_bad() is None


def test_when_every_broker_failed_one_is_tried_again(cluster: ScriptedCluster) -> None:
    for broker in cluster.brokers.values():
        broker.steps.extend([14])
    with started(cluster, send_latency_fault_enable=True) as producer:
        producer.send(MESSAGE)
        for _ in range(10):
            producer.send(MESSAGE)


def test_a_slow_broker_is_avoided_by_the_users_own_table(cluster: ScriptedCluster) -> None:
    def slow(peer: Peer, request: RemotingCommand) -> None:
        cluster.loop.call_later(0.25, peer.reply, request, RemotingCommand(13, remark="slow"))

    cluster.brokers["a"].steps.extend([slow] * 40)
    options = {"latency_max": (200,), "not_available_duration": (600_000,)}
    with started(cluster, send_latency_fault_enable=True, **options) as producer:
        for _ in range(20):
            try:
                producer.send(MESSAGE)
            except RocketMQError as error:
                assert isinstance(error, MessageIllegal)  # noqa: PT017
    assert len(cluster.brokers["a"].sends) <= 2
    with pytest.raises(ConfigError, match="not_available_duration 2"):
        started(cluster, latency_max=(1,), not_available_duration=(1, 2))
