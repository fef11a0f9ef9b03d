"""The trace in the background: bounded, in few messages, and never in the way."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_fast import ConfigError, ConsumeMessageHook, Message, Producer, PushConsumer
from rocketmq_fast._core import RemotingCommand, decode_properties
from rocketmq_fast.client.trace import TraceDispatcher, record
from rocketmq_fast.consumer.hooked import hooked_listener
from tests.scripted_cluster import ScriptedCluster, ignore
from tests.waiting import wait_for


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster(("a",)) as running:
        running.topics["trace"] = ("a",)
        yield running


def started(cluster: ScriptedCluster, **options: Any) -> Producer:
    producer = Producer("PG", namesrv_addr=cluster.namesrv_addr, **options)
    producer.start()
    return producer


def dispatcher_of(producer: Producer, topic: str = "trace") -> TraceDispatcher:
    running = producer._require_running()
    return TraceDispatcher(running.instance, "PG", "PRODUCE", topic)


def body_of(command: RemotingCommand) -> bytes:
    compressed = int(command.ext_fields["f"]) & 1
    return zlib.decompress(command.body) if compressed else bytes(command.body)


def test_the_form_of_a_record() -> None:
    assert record("Pub", 17, None, True, False, "x y") == (
        "Pub\x0117\x01null\x01true\x01false\x01x y\x02"
    )


def test_records_go_together_with_their_keys(cluster: ScriptedCluster) -> None:
    producer = started(cluster)
    dispatcher = dispatcher_of(producer)
    for i in range(500):
        dispatcher.append(record("Pub", i), f"id{i}", "k1 k2", None)
    dispatcher.start()
    dispatcher.stop()
    producer.shutdown()
    commands = cluster.brokers["a"].sends
    assert len(commands) == 1
    fields = commands[0].ext_fields
    assert fields["a"].startswith("_INNER_TRACE_PRODUCER-PG-PRODUCE-")
    assert fields["b"] == "trace"
    assert body_of(commands[0]) == "".join(record("Pub", i) for i in range(500)).encode()
    keys = decode_properties(fields["i"].encode())["KEYS"].split()
    assert sorted(keys) == sorted(["k1", "k2", *(f"id{i}" for i in range(500))])
    assert dispatcher.dropped == 0


def test_many_records_are_cut_into_messages_that_a_broker_takes(cluster: ScriptedCluster) -> None:
    producer = started(cluster)
    dispatcher = dispatcher_of(producer)
    for i in range(1000):
        dispatcher.append(record("Pub", "x" * 300, i), f"{i:032d}", f"{i:060d}")
    dispatcher.start()
    dispatcher.stop()
    producer.shutdown()
    commands = cluster.brokers["a"].sends
    assert len(commands) >= 3
    assert all(len(command.ext_fields["i"]) < 32_767 for command in commands)
    bodies = b"".join(body_of(command) for command in commands)
    assert bodies.count(b"\x02") == 1000


@pytest.mark.parametrize("word", ["€" * 1000, "€" * 9000, "€" * 11_000])
def test_keys_are_measured_in_bytes(cluster: ScriptedCluster, word: str) -> None:
    """Properties are bytes; keys that no message can carry are left out, their records are not."""
    producer = started(cluster)
    dispatcher = dispatcher_of(producer)
    for i in range(40):
        dispatcher.append(record("Pub", i), f"id{i}", f"{word}{i}")
    dispatcher.start()
    dispatcher.stop()
    producer.shutdown()
    commands = cluster.brokers["a"].sends
    assert b"".join(body_of(command) for command in commands).count(b"\x02") == 40
    assert all(len(command.ext_fields["i"].encode()) < 32_767 for command in commands)
    found = [
        key
        for command in commands
        for key in decode_properties(command.ext_fields["i"].encode())["KEYS"].split()
    ]
    assert {f"id{i}" for i in range(40)} <= set(found)
    assert len([key for key in found if key.startswith(word)]) == (40 if len(word) < 10_000 else 0)


def test_what_finds_no_room_is_dropped_and_counted(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = started(cluster)
    dispatcher = dispatcher_of(producer)  # not started: nothing leaves
    with caplog.at_level(logging.WARNING):
        for i in range(1024 + 100):
            dispatcher.append(record("Pub", i))
    assert dispatcher.dropped == 100
    warnings = [r.getMessage() for r in caplog.records if "trace records" in r.getMessage()]
    assert warnings[0].startswith("1 trace records")
    assert len(warnings) == 7  # 1, 2, 4, ... 64
    dispatcher.stop()
    producer.shutdown()


@pytest.mark.parametrize("trouble", ["refused", "no topic"])
def test_what_cannot_be_sent_is_dropped_and_counted(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    cluster.brokers["a"].steps.append(13)
    producer = started(cluster)
    if trouble == "no topic":
        cluster.topics.clear()
    dispatcher = dispatcher_of(producer)
    dispatcher.start()
    with caplog.at_level(logging.WARNING):
        for i in range(3):
            dispatcher.append(record("Pub", i))
        wait_for(lambda: dispatcher.dropped == 3, "the loss of three records")
    assert "3 trace records of _INNER_TRACE_PRODUCER-PG-PRODUCE-" in caplog.text
    dispatcher.stop()
    producer.shutdown()


def test_a_silent_broker_holds_up_neither_sends_nor_the_end(cluster: ScriptedCluster) -> None:
    cluster.brokers["a"].steps.extend([0, ignore])
    producer = started(cluster, enable_msg_trace=True, customized_trace_topic="trace")
    producer.send(Message("T", b"x"))
    wait_for(lambda: len(cluster.brokers["a"].sends) == 2, "the record")
    producer.shutdown()  # gives up after some seconds


def test_the_route_of_the_trace_topic_is_kept_fresh() -> None:
    with ScriptedCluster(("a", "b")) as cluster:
        cluster.topics["trace"] = ("a", "b")
        options = {"enable_msg_trace": True, "customized_trace_topic": "trace"}
        with Producer("PG", namesrv_addr=cluster.namesrv_addr, **options) as producer:
            instance = producer._require_running().instance
            producer.send(Message("T", b"x"))
            wait_for(lambda: instance.route("trace") is not None, "the route")
            cluster.topics["trace"] = ("a",)
            instance.refresh_routes()
            route = instance.route("trace")
            assert route is not None
            assert [data.broker_name for data in route.broker_datas] == ["a"]


def test_the_trace_of_the_trace_topic_is_not_traced(cluster: ScriptedCluster) -> None:
    producer = started(cluster, enable_msg_trace=True, customized_trace_topic="trace")
    producer.send(Message("trace", b"by hand"))
    producer.shutdown()
    assert len(cluster.brokers["a"].sends) == 1


def test_a_broker_that_wants_no_trace_gets_none(cluster: ScriptedCluster) -> None:
    def untraced(peer: Any, request: RemotingCommand) -> None:
        fields = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0", "TRACE_ON": "false"}
        peer.reply(request, RemotingCommand(0, fields))

    cluster.brokers["a"].steps.append(untraced)
    producer = started(cluster, enable_msg_trace=True, customized_trace_topic="trace")
    assert not producer.send(Message("T", b"x")).trace_on
    producer.shutdown()
    assert len(cluster.brokers["a"].sends) == 1


def test_a_listener_without_hooks_is_called_as_it_is() -> None:
    def listener(*_: Any) -> None:
        """Never called."""

    assert hooked_listener(listener, (), "G", 1.0) is listener


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("send_message_hooks", object(), "not a SendMessageHook or a list"),
        ("send_message_hooks", [ConsumeMessageHook()], "not a SendMessageHook"),
        ("check_forbidden_hooks", 1, "not callable"),
        ("check_forbidden_hooks", [print, 1], "not callable"),
        ("rpc_hooks", print, "not a RpcHook"),
        ("customized_trace_topic", "a b", "holds characters"),
    ],
)
def test_what_is_no_hook_is_refused(option: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Producer("PG", namesrv_addr="127.0.0.1:1", **{option: value})


def test_what_is_no_hook_of_a_consumer_is_refused() -> None:
    with pytest.raises(ConfigError, match="consume_message_hooks"):
        PushConsumer("G", namesrv_addr="127.0.0.1:1", consume_message_hooks=[print])
