"""Namespaces: tenants of one cluster, with names that only the wire sees in full."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow
import pytest

from rocketmq_fast import (
    Admin,
    AsyncPullConsumer,
    ConfigError,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    OrderlyStatus,
    Producer,
    PullConsumer,
    PushConsumer,
    RemotingCommand,
)
from rocketmq_fast._core.consume import ConsumeContext, OrderlyContext
from rocketmq_fast.client.namespaces import Namespace, namespace_of_endpoint
from rocketmq_fast.client.records import plain_records
from rocketmq_fast.protocol.codes import RequestCode
from tests.apache import java
from tests.brokers import TestBroker
from tests.consuming import LATER, SUCCESS, Recorder, assert_once, bodies, consuming
from tests.require import require
from tests.waiting import wait_for

NS = "shop"


@pytest.mark.parametrize(
    ("plain", "wire"),
    [
        ("orders", "shop%orders"),
        ("shop%orders", "shop%orders"),
        ("%RETRY%group", "%RETRY%shop%group"),
        ("%DLQ%group", "%DLQ%shop%group"),
        ("other%orders", "shop%other%orders"),
        ("TBW102", "TBW102"),
        ("rmq_sys_TRACE_DATA_x", "rmq_sys_TRACE_DATA_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("", ""),
    ],
)
def test_names_are_java_s(plain: str, wire: str) -> None:
    assert Namespace(NS).wrap(plain) == wire
    assert Namespace(NS).wrap(wire) == wire
    assert Namespace(NS).unwrap(wire) == plain.removeprefix("shop%")
    assert Namespace(None).wrap(plain) == Namespace(None).unwrap(plain) == plain


def test_another_namespace_s_name_stays() -> None:
    assert Namespace(NS).unwrap("other%orders") == "other%orders"
    assert Namespace(NS).unwrap("%RETRY%other%g") == "%RETRY%other%g"


@pytest.mark.parametrize(
    ("address", "namespace"),
    [
        ("http://MQ_INST_12_ab.mq.example:80", "MQ_INST_12_ab"),
        ("MQ_INST_12_ab.mq.example:80", "MQ_INST_12_ab"),
        ("mq.example:80", None),
        ("MQ_INST.example:80", None),
    ],
)
def test_endpoint_names_a_namespace(address: str, namespace: str | None) -> None:
    assert namespace_of_endpoint(address) == namespace
    made = PushConsumer("g", namesrv_addr=address)._options
    assert made.namespace == namespace
    assert made.namesrv_addr == (address.removeprefix("http://"),)
    assert PushConsumer("g", namesrv_addr=address, namespace="own")._options.namespace == "own"


def test_wrong_namespaces() -> None:
    for wrong in ("", "a%b", " ", 5):
        with pytest.raises(ConfigError, match="namespace"):
            PushConsumer("g", namesrv_addr="a:1", namespace=wrong)
    with pytest.raises(ConfigError, match="longer"):
        PushConsumer("g" * 255, namesrv_addr="a:1", namespace=NS)
    with pytest.raises(ConfigError, match="whole names"):
        Admin(namesrv_addr="a:1", namespace=NS)


def test_broken_records_pass_as_they_are() -> None:
    names = Namespace(NS)
    for body in (b"", b"\0\0\0", b"\0\0\0\x08abcd", b"\x7f\xff\xff\xffabc", b"\0\0\0\0abcd"):
        assert plain_records(body, names, True) == body


def test_names_on_the_wire_and_in_the_program(broker: TestBroker) -> None:
    short, group = broker.name("t"), broker.group()
    wire_topic, wire_group = f"{NS}%{short}", f"{NS}%{group}"
    broker.cluster.create_topic(wire_topic, queues=2)
    queues: list[MessageQueue] = []

    def answer(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        queues.append(context.message_queue)
        first = messages[0]
        return LATER if first.body == b"again" and first.reconsume_times == 0 else SUCCESS

    seen = Recorder(answer)
    wanted = bodies(20)
    options = {"namesrv_addr": broker.namesrv_addr, "namespace": NS}
    with Producer(broker.group(), **options) as producer:
        sent = [producer.send(Message(short, body, tags="A")) for body in wanted]
        sent.append(producer.send(Message(short, b"again"), selector=lambda found, *_: found[0]))
        sent.append(producer.send_batch([Message(short, b"b1"), Message(short, b"b2")]))
        future = producer.send_async(Message(short, b"async"), queue=producer.queues(short)[1])
        sent.append(future.result(10.0))
        producer.send_oneway(Message(short, b"oneway"))
    assert {result.message_queue.topic for result in sent} == {short}
    total = len(wanted) + 5
    wait_for(
        lambda: sum(broker.max_offset(wire_topic, queue) for queue in (0, 1)) == total,
        "the messages under their name on the wire",
    )
    with consuming(
        broker.namesrv_addr,
        group,
        {short: "*"},
        seen,
        namespace=NS,
        persist_consumer_offset_interval=100,
    ) as consumer:
        assert consumer.group == group
        assert broker.members(wire_group) != []
        seen.wait_deliveries(total + 1)
        assigned = consumer.assigned()
        assert {queue.topic for queue in assigned} >= {short}
        assert not [queue for queue in assigned if NS in queue.topic]
        stats = consumer.stats()
        assert stats["group"] == group
        assert not [name for name in (*stats["topics"], *stats["queues"]) if NS in name]
        assert set(consumer.lag()) == set(assigned)
        consumer.pause(*assigned)
        consumer.resume(*assigned)
        wait_for(
            lambda: sum(broker.committed(wire_group, wire_topic).values()) == total,
            lambda: f"the commits; {broker.committed(wire_group, wire_topic)}",
        )
    assert set(seen.bodies) == {*wanted, b"again", b"b1", b"b2", b"async", b"oneway"}
    first, second = seen.of(b"again")
    assert (first.topic, second.topic) == (short, short)
    assert second.properties["RETRY_TOPIC"] == short
    assert first.properties["INSTANCE_ID"] == NS
    assert {queue.topic for queue in queues} == {short, f"%RETRY%{group}"}
    plain = seen.of(wanted[0])[0]
    assert (plain.tags, plain.msg_id, plain.offset) == ("A", sent[0].msg_id, sent[0].queue_offset)


def test_namespaces_do_not_meet(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    short, group = broker.name("t"), broker.group()
    listeners = {name: Recorder() for name in ("one", "two", None)}
    for name in listeners:
        broker.cluster.create_topic(Namespace(name).wrap(short), queues=1)
        with Producer(broker.group(), namesrv_addr=broker.namesrv_addr, namespace=name) as producer:
            producer.send(Message(short, f"of {name}".encode()))
    for name, seen in listeners.items():
        with consuming(broker.namesrv_addr, group, short, seen, namespace=name):
            seen.wait(1)
    for name, seen in listeners.items():
        assert_once(seen, [f"of {name}".encode()])


def test_dead_letters_of_a_namespace(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    short, group = broker.name("t"), broker.group()
    broker.cluster.create_topic(f"{NS}%{short}", queues=1)
    broker.send(f"{NS}%{short}", [b"bad"])
    seen = Recorder(lambda *_: LATER)
    with consuming(broker.namesrv_addr, group, short, seen, namespace=NS, max_reconsume_times=1):
        seen.wait_deliveries(2)
    dead_seen = Recorder()
    with consuming(
        broker.namesrv_addr, broker.group(), f"%DLQ%{group}", dead_seen, namespace=NS,
        assigned=False, poll_name_server_interval=200,
    ):  # fmt: skip
        dead_seen.wait(1)
    assert dead_seen.bodies == [b"bad"]
    assert broker.max_offset(f"%DLQ%{NS}%{group}", 0) == 1


def test_message_that_an_operator_has_consumed(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    short, group = broker.name("t"), broker.group()
    broker.cluster.create_topic(f"{NS}%{short}", queues=1)
    (sent,) = broker.send(f"{NS}%{short}", [b"x"])
    seen = Recorder()
    with consuming(broker.namesrv_addr, group, short, seen, namespace=NS) as consumer:
        seen.wait(1)
        fields = {
            "consumerGroup": f"{NS}%{group}",
            "clientId": str(consumer.stats()["client_id"]),
            "msgId": sent.offset_msg_id,
            "brokerName": broker.broker_name,
            "topic": f"{NS}%{short}",
        }
        command = RemotingCommand(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
        answer = broker.wire.invoke(broker.broker_addr, command)
        assert answer.code == 0, answer.remark
    assert [(one.topic, one.queue.topic, one.body) for one in seen.seen] == [
        (short, short, b"x")
    ] * 2


def test_orderly_and_async_listeners(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    short = broker.name("t")
    broker.cluster.create_topic(f"{NS}%{short}", queues=1)
    broker.send(f"{NS}%{short}", bodies(5))
    orderly: list[tuple[str, str, bytes]] = []
    awaited: list[tuple[str, str, bytes]] = []

    def in_order(messages: list[MessageExt], context: OrderlyContext) -> OrderlyStatus:
        orderly.extend((m.topic, context.message_queue.topic, m.body) for m in messages)
        return OrderlyStatus.SUCCESS

    async def later(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        await asyncio.sleep(0)
        awaited.extend((m.topic, context.message_queue.topic, m.body) for m in messages)
        return SUCCESS

    addr = broker.namesrv_addr
    with (
        consuming(addr, broker.group(), short, in_order, orderly=True, namespace=NS),
        consuming(addr, broker.group(), short, later, namespace=NS),
    ):
        wait_for(lambda: len(orderly) >= 5 and len(awaited) >= 5, "both listeners")
    assert orderly == [(short, short, body) for body in bodies(5)]
    assert sorted(awaited) == sorted(orderly)


def test_pull_consumer_in_a_namespace(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    short, group = broker.name("t"), broker.group()
    wire_topic = f"{NS}%{short}"
    broker.cluster.create_topic(wire_topic, queues=2)
    broker.send(wire_topic, bodies(10), queues=(0, 1))
    options = {"namesrv_addr": broker.namesrv_addr, "namespace": NS, "auto_commit": False}
    with PullConsumer(group, **options) as pull:
        queues = pull.queues(short)
        assert [queue.topic for queue in queues] == [short, short]
        pull.assign(queues)
        assert pull.assignment() == queues
        assert pull.begin_offsets(queues) == dict.fromkeys(queues, 0)
        assert pull.end_offsets(queues) == dict.fromkeys(queues, 5)
        pull.seek_to_begin()
        found: list[MessageExt] = []
        wait_for(lambda: bool(found.extend(pull.poll(0.5))) or len(found) >= 10, "10 messages")
        assert sorted(message.body for message in found) == sorted(bodies(10))
        assert {message.topic for message in found} == {short}
        assert pull.lag() == dict.fromkeys(queues, 0)
        assert pull.position(queues[0]) == 5
        pull.commit()
        assert [pull.committed(queue) for queue in queues] == [5, 5]
        pull.commit({queues[0]: 3})
        assert broker.committed(f"{NS}%{group}", wire_topic) == {0: 3, 1: 5}
        pull.pause(queues[0])
        pull.resume()
        pull.seek(queues[0], 4)
        assert column_of(pull, "topic") == [short]
        stats = pull.stats()
        assert not [name for name in (*stats["topics"], *stats["queues"]) if NS in name]

    async def read() -> list[str]:
        async with AsyncPullConsumer(broker.group(), **options) as other:
            await other.assign(await other.queues(short))
            await other.seek_to_begin()
            topics: list[str] = []
            while len(topics) < 10:
                topics += [message.topic for message in await other.poll(1.0)]
            await other.commit()
            return topics

    assert set(asyncio.run(asyncio.wait_for(read(), 30.0))) == {short}


def column_of(pull: PullConsumer, name: str) -> list[str]:
    """A column of the next Arrow poll that has messages."""
    rows: list[str] = []

    def came() -> bool:
        batch = pyarrow.record_batch(pull.poll_arrow(0.5, columns=[name]))
        rows.extend(batch.column(0).to_pylist())
        return bool(rows)

    wait_for(came, "rows")
    return rows


@pytest.mark.java
@pytest.mark.slow
def test_java_and_python_share_a_namespace(broker: TestBroker, tmp_path: Path) -> None:
    require("java")
    short = broker.name("t")
    broker.cluster.create_topic(f"{NS}%{short}", queues=2)
    addr = broker.namesrv_addr
    sent = java.produce(addr, short, 30, namespace=NS, tags="A")
    seen = Recorder()
    with consuming(addr, broker.group(), short, seen, namespace=NS):
        seen.wait(30)
    assert java.body_digest(seen.bodies) == sent["digest"]
    assert {one.topic for one in seen.seen} == {short}
    assert {one.properties["INSTANCE_ID"] for one in seen.seen} == {NS}
    with Producer(broker.group(), namesrv_addr=addr, namespace=NS) as producer:
        for body in bodies(5):
            producer.send(Message(short, body))
    output = tmp_path / "messages"
    got = java.consume(
        addr, short, broker.group(), 35, namespace=NS, fail=3, output=output, **{"from": "first"}
    )
    assert (got["messages"], got["refused"]) == (35, 3)
    told = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert {line["topic"] for line in told} == {short}
