"""Hooks: what a program can see, change and forbid of requests, sends and listener calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rocketmq_fast import (
    Admin,
    HookError,
    Message,
    Producer,
    RemotingCommand,
    RpcHook,
)
from tests.brokers import TestBroker
from tests.consuming import Recorder, consuming
from tests.waiting import wait_for

SEND, PULL, HEARTBEAT, ROUTE = 310, 11, 34, 105


class Watch(RpcHook):
    """Notes every request and answer."""

    def __init__(self, name: str = "", log: list[str] | None = None) -> None:
        self._lock = threading.Lock()
        self.name = name
        self.log = log if log is not None else []
        self.requests: list[tuple[str, int]] = []
        self.answers: list[tuple[str, int, int]] = []
        self.failures: list[Exception] = []

    def before_request(self, address: str, request: RemotingCommand) -> None:
        request.ext_fields[f"hook{self.name}"] = "was here"
        with self._lock:
            self.log.append(self.name)
            self.requests.append((address, request.code))

    def after_response(
        self, address: str, request: RemotingCommand, response: RemotingCommand | Exception
    ) -> None:
        with self._lock:
            if isinstance(response, Exception):
                self.failures.append(response)
                return
            assert request.ext_fields[f"hook{self.name}"] == "was here"
            assert response.opaque == request.opaque
            self.answers.append((address, request.code, response.code))

    def codes(self) -> set[int]:
        with self._lock:
            return {code for _, code, _ in self.answers}


def test_rpc_hooks_see_every_request_and_answer(broker: TestBroker) -> None:
    topic, watch, got = broker.topic(), Watch(), Recorder()
    with (
        Producer(broker.group(), namesrv_addr=broker.namesrv_addr, rpc_hooks=watch) as producer,
        consuming(broker.namesrv_addr, broker.group(), topic, got, rpc_hooks=[watch]),
    ):
        producer.send(Message(topic, b"waiting"))
        producer.send_async(Message(topic, b"async")).result(30.0)
        producer.send_oneway(Message(topic, b"oneway"))
        got.wait(3)
    assert watch.codes() >= {SEND, PULL, HEARTBEAT, ROUTE}
    assert (broker.broker_addr, SEND, 0) in watch.answers
    assert (broker.namesrv_addr, ROUTE, 0) in watch.answers
    assert [code for _, code in watch.requests].count(SEND) == 3
    assert [code for _, code, _ in watch.answers].count(SEND) == 2


def test_rpc_hooks_run_in_their_order_and_for_administration(broker: TestBroker) -> None:
    log: list[str] = []
    hooks = [Watch("a", log), Watch("b", log)]
    with Admin(namesrv_addr=broker.namesrv_addr, rpc_hooks=hooks) as admin:
        admin.topics()
    assert log[:2] == ["a", "b"]
    assert log[::2] == ["a"] * (len(log) // 2)


def test_an_rpc_hook_may_refuse(broker: TestBroker) -> None:
    topic = broker.topic(1)

    class Refuse(RpcHook):
        def before_request(self, _: str, request: RemotingCommand) -> None:
            if request.code == SEND:
                raise PermissionError("not this one")

        def after_response(self, *_: Any) -> None:
            raise RuntimeError("is logged, no more")

    options: dict[str, Any] = {"rpc_hooks": Refuse(), "retry_times_when_send_failed": 0}
    with Producer(broker.group(), namesrv_addr=broker.namesrv_addr, **options) as producer:
        queue = broker.queue(topic)
        for failing in (
            lambda: producer.send(Message(topic, b"x"), queue=queue),
            lambda: producer.send_async(Message(topic, b"x"), queue=queue).result(30.0),
        ):
            with pytest.raises(Exception, match="not this one") as caught:
                failing()
            causes = getattr(caught.value, "causes", [caught.value])
            assert {type(cause) for cause in causes} == {HookError}
        producer.send_batch([Message(topic, b"y")])
    assert broker.max_offset(topic, 0) == 1


def test_a_lost_connection_is_shown(broker: TestBroker) -> None:
    watch = Watch()
    with broker.proxied() as proxied:
        topic = broker.topic(1)
        options: dict[str, Any] = {"rpc_hooks": watch, "retry_times_when_send_failed": 0}
        with Producer(broker.group(), namesrv_addr=proxied.namesrv_addr, **options) as producer:
            producer.send(Message(topic, b"x"))
            proxied.broker.refuse()
            with pytest.raises(Exception, match="was not sent"):
                producer.send(Message(topic, b"y"))
            wait_for(lambda: watch.failures, "the failure")
