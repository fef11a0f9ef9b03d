"""Sends to the embedded broker and pulls from it, request by request."""

from __future__ import annotations

import time

import pytest

from rocketmq_fast._core import RemotingCommand, decode_messages, java_hash
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.protocol import codes
from tests.embedded_raw import (
    BATCH,
    PULL,
    SEND,
    Raw,
    element,
    heartbeat,
    pull_fields,
    send,
    send_fields,
    texts,
)
from tests.waiting import wait_for

# ----------------------------------------------------------------------------------- send


def test_a_send_is_stored_as_apache_stores_it(raw_broker: Raw, fresh_cluster: Cluster) -> None:
    properties = "KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01TagA"
    response = send(raw_broker, "T", 1, b"hello-wire", properties)
    assert response.ext_fields["queueOffset"] == "0"
    assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert response.ext_fields["TRACE_ON"] == "true"
    message = decode_messages(raw_broker.call(PULL, pull_fields("T", 1)).body, check_crc=True)[0]
    assert message.body_crc == 768658287
    assert message.offset_msg_id == response.ext_fields["msgId"]
    assert message.properties == {
        "KEYS": "k1 k2", "UNIQ_KEY": "U", "TAGS": "TagA", "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    assert message.born_host == raw_broker.sock.getsockname()
    assert message.store_host == ("127.0.0.1", int(fresh_cluster.broker_addr.rpartition(":")[2]))
    viewed = raw_broker.call(33, {"offset": str(message.commit_log_offset)})
    assert decode_messages(viewed.body)[0].body == b"hello-wire"


def test_long_names_and_one_way_sends(raw_broker: Raw) -> None:
    long = {
        "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "7",
        "flag": "9", "properties": "a\x01b", "reconsumeTimes": "2", "unitMode": "false",
    }  # fmt: skip
    assert raw_broker.call(10, long, b"one").code == 0
    raw_broker.send(SEND, send_fields("T", 0), b"two", flag=codes.FLAG_ONEWAY)
    response = raw_broker.call(PULL, pull_fields("T"))
    assert texts(response) == [b"one", b"two"]
    message = decode_messages(response.body)[0]
    assert (message.flag, message.reconsume_times, message.born_timestamp) == (9, 2, 7)


def test_batches_become_single_messages(raw_broker: Raw) -> None:
    body = b"".join(element(b"%d" % i, "TAGS\x01A" if i % 2 else "", flag=i) for i in range(40))
    response = raw_broker.call(BATCH, send_fields("T", 0, m="true", i="WAIT\x01true"), body)
    assert response.code == 0
    ids = response.ext_fields["msgId"].split(",")
    got = raw_broker.call(PULL, pull_fields("T", maxMsgNums="100"))
    assert texts(got) == [b"%d" % i for i in range(32)]
    batch = decode_messages(got.body)
    assert [m.offset_msg_id for m in batch] == ids[:32]
    assert [m.flag for m in batch] == list(range(32))
    assert batch[1].properties == {"TAGS": "A", "WAIT": "true", "CLUSTER": "DefaultCluster"}
    tagged = raw_broker.call(PULL, pull_fields("T", subscription="A"))
    assert texts(tagged) == [b"%d" % i for i in range(1, 40, 2)]


@pytest.mark.parametrize(
    ("fields", "body", "code"),
    [
        (send_fields("T", 4), b"x", 1),
        (send_fields("T", "x"), b"x", 1),
        (send_fields("T", None), b"x", 1),
        (send_fields(" "), b"x", 1),
        (send_fields("a b"), b"x", 1),
        (send_fields("../../x"), b"x", 1),
        (send_fields("T" * 128), b"x", 1),
        (send_fields("T", b=None), b"x", 1),
        (send_fields("T", g="99999999999999999999"), b"x", 1),
        (send_fields("SCHEDULE_TOPIC_XXXX"), b"x", 16),
        (send_fields("U", c="nope"), b"x", 17),
        (send_fields("T"), b"x" * ((4 << 20) + 1), 13),
        (send_fields("T", i="k\x01" + "v" * 32766), b"x", 13),
        (send_fields("T", m="true"), b"x", 13),
        (send_fields("T", m="true"), b"", 13),
        (send_fields("T", m="true"), element(b"x") + b"\0", 13),
        (send_fields("T", m="true", i="DELAY\x011"), element(b"x"), 13),
        (send_fields("T", m="true", f="4"), element(b"x"), 13),
        ({}, b"", 1),
    ],
)
def test_wrong_sends_are_refused_and_the_connection_goes_on(
    raw_broker: Raw, fields: dict[str, str], body: bytes, code: int
) -> None:
    send(raw_broker, "T", 0, b"before")
    response = raw_broker.call(SEND, fields, body)
    assert response.code == code, response.remark
    assert response.remark
    assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
    send(raw_broker, "T", 0, b"after")
    assert texts(raw_broker.call(PULL, pull_fields("T"))) == [b"before", b"after"]


def test_the_largest_body_is_taken(raw_broker: Raw) -> None:
    send(raw_broker, "T", 0, b"x" * (4 << 20))
    assert len(texts(raw_broker.call(PULL, pull_fields("T")))[0]) == 4 << 20


def test_delay_levels(raw_broker: Raw) -> None:
    send(raw_broker, "T", 2, b"late", "DELAY\x012\x02TAGS\x01A\x02WAIT\x01true")
    assert raw_broker.call(PULL, pull_fields("T", 2)).code == 19
    held = pull_fields("T", 2, sysFlag="6", suspendTimeoutMillis="15000", subscription="A")
    message = decode_messages(raw_broker.call(PULL, held).body)[0]
    assert message.body == b"late"
    assert message.properties == {
        "DELAY": "2", "TAGS": "A", "WAIT": "true", "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "T", "REAL_QID": "2",
    }  # fmt: skip
    assert message.store_timestamp - message.born_timestamp > 1000
    levels = raw_broker.call(45).body
    assert levels == b'{"offsetTable":{2:1}}'


# ----------------------------------------------------------------------------------- pull


def test_pull_codes(raw_broker: Raw, fresh_cluster: Cluster) -> None:
    send(raw_broker, "T", 0, b"x", "TAGS\x01A")
    fresh_cluster.create_topic("W", perm=2)

    def code(topic: str = "T", queue: int = 0, offset: int = 0, **fields: str | None) -> int:
        return raw_broker.call(PULL, pull_fields(topic, queue, offset, **fields)).code

    assert code() == 0
    assert code(offset=1) == 19
    assert code(offset=2) == 21
    assert code(offset=-1) == 21
    assert code(queue=1) == 19
    assert code(queue=1, offset=5) == 21
    assert code(queue=4) == 1
    assert code(queue=-1) == 1
    assert code("nope") == 17
    assert code("W") == 16
    assert code(subscription="B") == 20
    assert code(subscription="||") == 23
    assert code(subscription=" ") == 20
    assert code(subscription=None) == 0
    assert code(subscription="a > 1", expressionType="SQL92") == 1
    assert code(maxMsgNums="-1") == 1
    assert code(maxMsgNums="0") == 0
    assert code(maxMsgNums=None) == 1
    assert code(sysFlag="0") == 24
    moved = raw_broker.call(PULL, pull_fields("T", 0, 9))
    assert moved.ext_fields == {
        "suggestWhichBrokerId": "0", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1",
    }  # fmt: skip


def test_a_pull_uses_the_subscription_of_the_heartbeat(raw_broker: Raw) -> None:
    send(raw_broker, "T", 0, b"a", "TAGS\x01A")
    send(raw_broker, "T", 0, b"b", "TAGS\x01B")
    own = {"consumerGroup": "G", "sysFlag": "0", "subscription": None}

    def pull(version: int, topic: str = "T") -> RemotingCommand:
        return raw_broker.call(PULL, pull_fields(topic, subVersion=str(version), **own))

    assert pull(1).code == 24
    assert (
        raw_broker.call(34, None, heartbeat("c", "G", {"T": ("B", [java_hash("B")], 5)})).code == 0
    )
    assert texts(pull(5)) == [b"b"]
    assert pull(6).code == 25
    assert (
        raw_broker.call(34, None, heartbeat("c", "G", {"T": ("A", [java_hash("A")], 4)})).code == 0
    )
    assert texts(pull(5)) == [b"b"]
    assert raw_broker.call(34, None, heartbeat("c", "G", {"T": ("*", [], 6)})).code == 0
    assert texts(pull(6)) == [b"a", b"b"]
    assert pull(6, "BenchmarkTest").code == 24


def test_the_commit_that_comes_with_a_pull(raw_broker: Raw, fresh_cluster: Cluster) -> None:
    send(raw_broker, "T", 0, b"x")
    raw_broker.call(PULL, pull_fields("T", sysFlag="5", commitOffset="7"))
    assert fresh_cluster.committed("CG", "T", 0) == 7
    raw_broker.call(PULL, pull_fields("T", sysFlag="4", commitOffset="9"))
    assert fresh_cluster.committed("CG", "T", 0) == 7


def test_a_held_pull_wakes_on_arrival(raw_broker: Raw, fresh_cluster: Cluster) -> None:
    fresh_cluster.create_topic("T")
    held = raw_broker.send(PULL, pull_fields("T", sysFlag="6", suspendTimeoutMillis="60000"))
    tagged = raw_broker.send(
        PULL, pull_fields("T", sysFlag="6", suspendTimeoutMillis="60000", subscription="B")
    )
    with Raw(fresh_cluster.broker_addr) as producer:
        send(producer, "T", 1, b"other queue", "TAGS\x01B")
        send(producer, "T", 0, b"a", "TAGS\x01A")
        assert texts(raw_broker.wait(held)) == [b"a"]
        send(producer, "T", 0, b"b", "TAGS\x01B")
    assert texts(raw_broker.wait(tagged)) == [b"b"]


def test_a_held_pull_answers_in_json_also_to_compact_requests(fresh_cluster: Cluster) -> None:
    fresh_cluster.create_topic("T")
    with (
        Raw(fresh_cluster.broker_addr, serialize_type=1) as raw,
        Raw(fresh_cluster.broker_addr) as producer,
    ):
        held = raw.send(PULL, pull_fields("T", sysFlag="6", suspendTimeoutMillis="60000"))
        send(producer, "T", 0, b"a")
        response = raw.wait(held)
        assert (response.serialize_type, texts(response)) == (0, [b"a"])
        assert raw.call(PULL, pull_fields("T")).serialize_type == 1
        assert raw.call(30, {"topic": "T"}).serialize_type == 0


@pytest.mark.slow
def test_a_held_pull_ends_after_its_time(raw_broker: Raw, fresh_cluster: Cluster) -> None:
    fresh_cluster.create_topic("T")
    start = time.monotonic()
    held = pull_fields("T", sysFlag="6", suspendTimeoutMillis="1000")
    response = raw_broker.call(PULL, held)
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (19, "0")
    assert time.monotonic() - start >= 1


def test_many_held_pulls_of_closed_connections_are_forgotten(fresh_cluster: Cluster) -> None:
    fresh_cluster.create_topic("T")
    for _ in range(20):
        raw = Raw(fresh_cluster.broker_addr)
        for _ in range(20):
            raw.send(PULL, pull_fields("T", sysFlag="6", suspendTimeoutMillis="60000"))
        raw.call(30, {"topic": "T", "queueId": "0"})
        raw.close()
    inner = fresh_cluster._broker
    assert inner is not None
    wait_for(lambda: inner.pulls.parked_count == 0, "the end of the held pulls")
    with Raw(fresh_cluster.broker_addr) as raw:
        send(raw, "T", 0, b"x")
