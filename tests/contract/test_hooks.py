"""Hooks: what a program can see, change and forbid of requests, sends and listener calls."""

from __future__ import annotations

import re
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from rocketmq_fast import (
    Admin,
    ConsumeHookContext,
    ConsumeMessageHook,
    ConsumeStatus,
    EndTransactionContext,
    HookError,
    LocalTransactionState,
    Message,
    MessageExt,
    OrderlyStatus,
    Producer,
    RemotingCommand,
    RpcHook,
    SendContext,
    SendMessageHook,
    TransactionProducer,
)
from rocketmq_fast.errors import MessageEncodeError, MessageIllegal
from tests.apache.java import run_java
from tests.apache.mqadmin import AdminError, mqadmin
from tests.brokers import TestBroker
from tests.consuming import Recorder, consuming
from tests.pulling import assigned, take
from tests.require import require
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


def test_rpc_hooks_run_in_their_order_and_for_administration(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    log: list[str] = []
    hooks = [Watch("a", log), Watch("b", log)]
    with Admin(namesrv_addr=broker.namesrv_addr, rpc_hooks=hooks) as admin:
        admin.topics()
    assert log[:2] == ["a", "b"]
    assert log[::2] == ["a"] * (len(log) // 2)


def test_an_rpc_hook_may_refuse(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
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


def test_a_lost_connection_is_shown(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
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


# ------------------------------------------------------------------------------------- sending


class Sends(SendMessageHook):
    """Notes every attempt."""

    def __init__(self, fail: bool = False) -> None:
        self._fail = fail
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []

    def before_send(self, context: SendContext) -> None:
        assert context.send_result is None
        assert context.exception is None
        context.data[self] = len(self.before)
        self.before.append(context)
        if self._fail:
            raise RuntimeError("is logged, no more")

    def after_send(self, context: SendContext) -> None:
        assert self.before[context.data[self]] is context
        self.after.append(context)
        if self._fail:
            raise RuntimeError("is logged, no more")


def test_send_hooks_see_every_way_of_sending(broker: TestBroker) -> None:
    topic, hook, failing, group = broker.topic(1), Sends(), Sends(fail=True), broker.group()
    messages = [Message(topic, b"%d" % i, tags="A", keys="k") for i in range(5)]
    options: dict[str, Any] = {"send_message_hooks": [failing, hook]}
    with Producer(group, namesrv_addr=broker.namesrv_addr, **options) as producer:
        results = [
            producer.send(messages[0]),
            producer.send_async(messages[1]).result(30.0),
            None,
            producer.send_batch(messages[3:]),
        ]
        producer.send_oneway(messages[2])
        wait_for(lambda: broker.max_offset(topic, 0) == 5, "five messages")
        wait_for(lambda: len(hook.after) == 4, "four calls")
    by_mode = {context.communication_mode: context for context in hook.after}
    assert list(by_mode["SYNC"].messages) == messages[3:]  # the batch was the last
    assert by_mode["SYNC"].send_result == results[3]
    assert list(by_mode["ASYNC"].messages) == [messages[1]]
    assert by_mode["ASYNC"].send_result == results[1]
    assert list(by_mode["ONEWAY"].messages) == [messages[2]]
    assert by_mode["ONEWAY"].send_result is None
    for context in hook.after:
        assert context.producer_group == group
        assert context.message_queue == broker.queue(topic)
        assert context.broker_addr == broker.broker_addr
        assert context.exception is None
    assert len(failing.after) == 4


def test_send_hooks_see_a_one_way_send_that_did_not_leave(embedded_broker: TestBroker) -> None:
    broker = embedded_broker

    class Refuse(RpcHook):
        def before_request(self, _: str, request: RemotingCommand) -> None:
            if request.code == SEND:
                raise PermissionError("not this one")

    topic, hook = broker.topic(1), Sends()
    options: dict[str, Any] = {"send_message_hooks": hook, "rpc_hooks": Refuse()}
    with Producer(broker.group(), namesrv_addr=broker.namesrv_addr, **options) as producer:
        with pytest.raises(HookError):
            producer.send_oneway(Message(topic, b"x"))
        with pytest.raises(Exception, match="lone surrogate"):
            producer.send_oneway(Message(topic, b"x", properties={"p": "\ud800"}))
    assert [context.communication_mode for context in hook.after] == ["ONEWAY"] * 2
    assert isinstance(hook.after[0].exception, HookError)
    assert isinstance(hook.after[1].exception, MessageEncodeError)


def test_send_hooks_see_failures(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, hook = broker.topic(1), Sends()
    options: dict[str, Any] = {"send_message_hooks": hook, "retry_times_when_send_failed": 0}
    with Producer(broker.group(), namesrv_addr=broker.namesrv_addr, **options) as producer:
        wrong = Message(topic, b"x", properties={"p": "x" * 33_000})
        with pytest.raises(MessageIllegal):
            producer.send(wrong)
        with pytest.raises(MessageIllegal):
            producer.send_async(wrong).result(30.0)
    assert [type(context.exception) for context in hook.after] == [MessageIllegal] * 2


def test_a_message_may_be_forbidden(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, asked = broker.topic(1), []

    def forbid(context: SendContext) -> None:
        asked.append(context.communication_mode)
        if context.messages[0].body == b"no":
            raise PermissionError(f"not to {context.message_queue.topic}")

    options: dict[str, Any] = {"check_forbidden_hooks": forbid}
    with Producer(broker.group(), namesrv_addr=broker.namesrv_addr, **options) as producer:
        for failing in (
            lambda: producer.send(Message(topic, b"no")),
            lambda: producer.send_async(Message(topic, b"no")).result(30.0),
            lambda: producer.send_oneway(Message(topic, b"no")),
            lambda: producer.send_batch([Message(topic, b"no")]),
        ):
            with pytest.raises(PermissionError, match=topic):
                failing()
        producer.send(Message(topic, b"yes"))
    assert broker.max_offset(topic, 0) == 1
    assert asked == ["SYNC", "ASYNC", "ONEWAY", "SYNC", "SYNC"]


# ----------------------------------------------------------------------------------- consuming


class Calls(ConsumeMessageHook):
    """Notes every listener call."""

    def __init__(self) -> None:
        self.before: list[list[bytes]] = []
        self.after: list[ConsumeHookContext] = []

    def before_consume(self, context: ConsumeHookContext) -> None:
        self.before.append([message.body for message in context.messages])
        raise RuntimeError("is logged, no more")

    def after_consume(self, context: ConsumeHookContext) -> None:
        self.after.append(context)
        raise RuntimeError("is logged, no more")

    def types(self) -> list[tuple[bytes, str, bool]]:
        return sorted((c.messages[0].body, c.return_type, c.success) for c in self.after)


def _answer(messages: list[MessageExt], orderly: bool) -> Any:
    body, times = messages[0].body, messages[0].reconsume_times
    if times:
        return OrderlyStatus.SUCCESS if orderly else ConsumeStatus.CONSUME_SUCCESS
    if body == b"raises":
        raise ValueError("no")
    if body == b"none":
        return None
    if body == b"later":
        return (
            OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
            if orderly
            else ConsumeStatus.RECONSUME_LATER
        )
    return OrderlyStatus.SUCCESS if orderly else ConsumeStatus.CONSUME_SUCCESS


@pytest.mark.parametrize("kind", ["concurrent", "orderly", "async"])
def test_consume_hooks_see_every_listener_call(embedded_broker: TestBroker, kind: str) -> None:
    broker = embedded_broker
    topic, group, calls = broker.topic(1), broker.group(), Calls()
    orderly = kind == "orderly"

    def listener(messages: list[MessageExt], _: Any) -> Any:
        return _answer(messages, orderly)

    async def awaited(messages: list[MessageExt], _: Any) -> Any:
        return _answer(messages, orderly=False)

    broker.send(topic, [b"fine", b"later", b"none", b"raises"])
    options: dict[str, Any] = {"consume_message_hooks": calls, "orderly": orderly}
    if orderly:
        options["suspend_current_queue_time_millis"] = 10
    with consuming(
        broker.namesrv_addr, group, topic, awaited if kind == "async" else listener, **options
    ) as consumer:
        wait_for(lambda: len(calls.after) >= 7, lambda: f"7 calls: {calls.types()}", 60.0)
        # What mqadmin has consumed directly goes past the hooks, as in Java.
        running = consumer._running
        assert running is not None
        (fine,) = (c.messages[0] for c in calls.after if c.messages[0].body == b"fine")
        assert running.consume_directly(fine)["consumeResult"] == "CR_SUCCESS"
    assert calls.types() == [
        (b"fine", "SUCCESS", True),
        (b"later", "FAILED", False), (b"later", "SUCCESS", True),
        (b"none", "RETURNNULL", False), (b"none", "SUCCESS", True),
        (b"raises", "EXCEPTION", False), (b"raises", "SUCCESS", True),
    ]  # fmt: skip
    assert len(calls.before) == 7
    assert {context.consumer_group for context in calls.after} == {group}
    failures = [c.exception for c in calls.after if c.return_type == "EXCEPTION"]
    assert [type(failure) for failure in failures] == [ValueError]


def test_a_call_that_takes_too_long_is_a_time_out(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, calls, go = broker.topic(1), Calls(), threading.Event()

    def listener(*_: Any) -> ConsumeStatus:
        assert go.wait(60.0)
        return ConsumeStatus.CONSUME_SUCCESS

    broker.send(topic, [b"slow"])
    with consuming(
        broker.namesrv_addr, broker.group(), topic, listener,
        consume_message_hooks=[calls], consume_timeout=timedelta(milliseconds=1),
    ):  # fmt: skip
        wait_for(lambda: calls.before, "the call")
        began = time.monotonic()
        wait_for(lambda: time.monotonic() - began > 0.005, "a few milliseconds")
        go.set()
        wait_for(lambda: calls.after, "its end")
    assert calls.after[0].return_type == "TIME_OUT"


# --------------------------------------------------------------------------------------- trace


def _trace_of(broker: TestBroker, topic: str, count: int) -> list[dict[str, Any]]:
    said = run_java(
        "TraceDump",
        {"namesrv": broker.namesrv_addr, "topic": topic, "group": broker.group(), "count": count},
        240.0,
    )
    records: list[dict[str, Any]] = said["records"]
    assert len(records) == count, records
    return records


@pytest.mark.java
def test_java_reads_the_trace_of_sends_and_listener_calls(broker: TestBroker) -> None:
    require("java")
    topic, trace, group, got = broker.topic(1), broker.topic(1), broker.group(), Recorder()
    reader = broker.group()  # a pull consumer's
    options: dict[str, Any] = {"enable_msg_trace": True, "customized_trace_topic": trace}
    with Producer(group, namesrv_addr=broker.namesrv_addr, **options) as producer:
        one = producer.send(Message(topic, b"12345", tags="A", keys=["k1", "k2"]))
        two = producer.send_async(Message(topic, b"x"))
        batch = producer.send_batch([Message(topic, b"ab"), Message(topic, b"cde")])
        late = producer.send(Message(topic, b"later", delay_time_level=1))
        producer.send_oneway(Message(topic, b"has no record"))
        with pytest.raises(MessageIllegal):
            producer.send(Message(topic, b"has none", properties={"p": "x" * 33_000}))
        with consuming(broker.namesrv_addr, group, topic, got, **options):
            got.wait(6)
        with assigned(broker.namesrv_addr, reader, topic, **options) as pull:
            polled = {message.msg_id for message in take(pull, 6)}
    records = _trace_of(broker, trace, 4 + 2 * 6 + 2 * 6)
    assert {record["group"] for record in records} == {group, reader}
    sent = {r["msgId"]: r for r in records if r["type"] == "Pub"}
    ids = [one.msg_id, two.result().msg_id, batch.msg_id, late.msg_id]
    assert set(sent) == set(ids)
    first = sent[one.msg_id]
    assert (first["tags"], first["keys"], first["bodyLength"]) == ("A", "k1 k2", 5)
    assert (first["topic"], first["region"], first["success"]) == (topic, "DefaultRegion", True)
    assert first["storeHost"] == broker.broker_addr
    assert first["offsetMsgId"] == one.offset_msg_id
    assert set(first["messageKeys"].split()) >= {one.msg_id, "k1", "k2"}
    assert [sent[i]["kind"] for i in ids] == ["Normal_Msg"] * 3 + ["Delay_Msg"]
    assert sent[batch.msg_id]["bodyLength"] == 5
    for member, wanted in ((group, {seen.msg_id for seen in got.seen}), (reader, polled)):
        ours = [record for record in records if record["group"] == member]
        before = {r["msgId"]: r for r in ours if r["type"] == "SubBefore"}
        after = {r["msgId"]: r for r in ours if r["type"] == "SubAfter"}
        assert set(before) == set(after) == wanted
        for msg_id, begun in before.items():
            ended = after[msg_id]
            assert begun["requestId"] == ended["requestId"]
            assert (ended["success"], ended["code"], begun["retryTimes"]) == (True, 0, 0)
        assert before[one.msg_id]["keys"] == "k1 k2"


@pytest.mark.java
def test_java_reads_the_trace_of_transactions(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    require("java")
    topic, trace, group = broker.topic(1), broker.topic(1), broker.group()
    told: list[EndTransactionContext] = []
    states = iter(LocalTransactionState)
    with TransactionProducer(
        group,
        execute=lambda *_: next(states),
        check=lambda _: LocalTransactionState.ROLLBACK_MESSAGE,
        namesrv_addr=broker.namesrv_addr,
        enable_msg_trace=True,
        customized_trace_topic=trace,
        end_transaction_hooks=told.append,
    ) as producer:
        sent = [
            producer.send_in_transaction(Message(topic, b"x", tags="T", keys="k")).msg_id
            for _ in range(3)
        ]
    records = _trace_of(broker, trace, 6)
    assert {r["kind"] for r in records if r["type"] == "Pub"} == {"Trans_Msg_Half"}
    ends = {r["msgId"]: r for r in records if r["type"] == "EndTransaction"}
    assert [ends[i]["state"] for i in sent] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
    for end in ends.values():
        assert (end["kind"], end["fromCheck"], end["group"]) == ("Trans_msg_Commit", False, group)
        assert (end["topic"], end["tags"], end["keys"]) == (topic, "T", "k")
        assert end["storeHost"] == broker.broker_addr
    assert [context.msg_id for context in told] == sent
    assert [context.state.name for context in told] == [ends[i]["state"] for i in sent]


def test_the_trace_topic_of_the_brokers_is_the_default(broker: TestBroker) -> None:
    topic, got = broker.topic(1), Recorder()
    with Producer(
        broker.group(), namesrv_addr=broker.namesrv_addr, enable_msg_trace=True
    ) as producer:
        sent = [producer.send(Message(topic, b"%d" % i)).msg_id for i in range(100)]
    with consuming(broker.namesrv_addr, broker.group(), "RMQ_SYS_TRACE_TOPIC", got):
        wait_for(
            lambda: all(any(i.encode() in body for body in got.bodies) for i in sent),
            "the records",
        )
    # Many records went in few messages, found by the ids of what they tell about.
    ours = [seen for seen in got.seen if sent[0].encode() in seen.body]
    assert sent[0] in ours[0].properties["KEYS"].split()
    assert len([body for body in got.bodies if any(i.encode() in body for i in sent)]) <= 10


@pytest.mark.java
def test_mqadmin_finds_the_trace_by_the_id_of_a_message(broker: TestBroker) -> None:
    require("java")
    topic, trace, got = broker.topic(1), broker.topic(1), Recorder()
    group, member = broker.group(), broker.group()
    options: dict[str, Any] = {"enable_msg_trace": True, "customized_trace_topic": trace}
    with (
        Producer(group, namesrv_addr=broker.namesrv_addr, **options) as producer,
        consuming(broker.namesrv_addr, member, topic, got, **options),
    ):
        sent = producer.send(Message(topic, b"x")).msg_id
        got.wait(1)

    def said() -> str:
        words = ("queryMsgTraceById", "-i", sent, "-t", trace)
        try:
            return mqadmin("4.9.4", broker.namesrv_addr, *words)
        except AdminError as error:  # its time-outs are short for a busy machine
            return str(error)

    def complete() -> bool:
        text = said()
        pub = re.search(rf"^Pub +{group} .* success *$", text, re.M)
        return (
            pub is not None and re.search(rf"^Sub +{member} .* success *$", text, re.M) is not None
        )

    wait_for(complete, said, 90.0)  # the index of a broker is a little behind its messages
