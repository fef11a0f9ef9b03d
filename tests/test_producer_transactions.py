"""Transactional and asking producers before brokers that a test plays, and without threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from rocketmq_fast import (
    LocalTransactionState,
    Message,
    Producer,
    ReplyTimeout,
    TopicRouteNotFound,
    TransactionProducer,
)
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.producer.checks import CheckPool
from rocketmq_fast.producer.request_reply import Requests
from rocketmq_fast.remoting.server import Peer
from tests.scripted_cluster import ScriptedCluster
from tests.waiting import wait_for

COMMIT = LocalTransactionState.COMMIT_MESSAGE


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster(("a",)) as running:
        yield running


@pytest.mark.parametrize("offset_id", ["", "no hex", "7F00000100002A9F", "G" * 32])
def test_an_id_that_is_none_costs_the_decision_but_not_the_result(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture, offset_id: str
) -> None:
    """The local transaction has run: its caller must learn how, and a check tells the broker."""

    def odd(peer: Peer, request: RemotingCommand) -> None:
        fields = {"msgId": offset_id, "queueId": "0", "queueOffset": "0"}
        peer.reply(request, RemotingCommand(0, fields))

    cluster.brokers["a"].steps.append(odd)
    executed: list[Message] = []
    with TransactionProducer(
        "PG",
        execute=lambda message, _: executed.append(message) or COMMIT,
        check=lambda _: COMMIT,
        namesrv_addr=cluster.namesrv_addr,
    ) as producer:
        result = producer.send_in_transaction(Message("T", b"x"))
    assert len(executed) == 1
    assert result.local_transaction_state is COMMIT
    (warning,) = [r.getMessage() for r in caplog.records if "was not sent" in r.getMessage()]
    assert "the broker will ask" in warning
    assert f"{offset_id!r} is no message id" in warning


# --------------------------------------------------------------------------------- threads


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_check_that_finds_no_thread_is_refused_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool, ran = CheckPool("checks", 1, 1, 10), threading.Event()
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(threading.Thread, "start", no_thread)
        assert not pool.submit(ran.set)
    assert "checks-1: can't start new thread" in caplog.text
    assert not ran.is_set()
    assert pool.submit(ran.set)
    assert ran.wait(30.0)
    pool.stop()


def test_without_a_second_thread_the_first_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, go_on, ran = CheckPool("checks", 1, 2, 1), threading.Event(), threading.Semaphore(0)
    busy = threading.Event()

    def first() -> None:
        busy.set()
        assert go_on.wait(30.0)
        ran.release()

    assert pool.submit(first)
    assert busy.wait(30.0)
    assert pool.submit(ran.release)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        assert not pool.submit(ran.release)  # the line is full and no thread can help
    go_on.set()
    for _ in range(2):
        assert ran.acquire(timeout=30.0)
    pool.stop()


# ------------------------------------------------------------------------ request and reply


def test_getting_ready_is_part_of_a_requests_time(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(requests: Requests, _: str) -> None:
        wait_for(lambda: not requests._open, "the end of the request's time")

    monkeypatch.setattr(Requests, "_announce", slow)
    with Producer("PG", namesrv_addr=cluster.namesrv_addr) as producer:
        future = producer.request_async(Message("T", b"x"), timeout=0.05)
        assert isinstance(future.exception(30.0), ReplyTimeout)
    assert cluster.sends == []


def test_a_request_for_an_unknown_topic_fails_in_its_future(cluster: ScriptedCluster) -> None:
    with Producer("PG", namesrv_addr=cluster.namesrv_addr) as producer:
        del cluster.topics["TBW102"]
        future = producer.request_async(Message("Unknown", b"x"), timeout=30.0)
        assert isinstance(future.exception(30.0), TopicRouteNotFound)
        with pytest.raises(TopicRouteNotFound):
            producer.request(Message("Unknown", b"x"), timeout=30.0)
