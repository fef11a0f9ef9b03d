"""What our producer sends to Apache brokers, as Java clients read it."""

from __future__ import annotations

import hashlib
import itertools
import json
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

import rocketmq_fast as rmq
from rocketmq_fast import Admin, Message, Producer, SendError, SendStatus
from rocketmq_fast.errors import MessageIllegal, TopicRouteNotFound
from tests.apache import ApacheCluster
from tests.apache.java import body_digest, body_for, consume, pull_dump
from tests.require import require

pytestmark = [pytest.mark.apache, pytest.mark.slow]

WAIT = 60.0
_numbers = itertools.count()


@pytest.fixture(params=["apache_494", "apache_533"], ids=["4.9.4", "5.3.3"])
def cluster(request: pytest.FixtureRequest) -> ApacheCluster:
    found: ApacheCluster = request.getfixturevalue(request.param)
    return found


def started(cluster: ApacheCluster, **options: Any) -> Producer:
    return Producer("PyPG", namesrv_addr=cluster.namesrv_addr, send_msg_timeout=10_000, **options)


def fresh(name: str) -> str:
    return f"Py_{name}_{next(_numbers)}"


def dumped(cluster: ApacheCluster, topic: str, path: Path, count: int) -> list[dict[str, Any]]:
    """All messages of a topic as the Java pull consumer sees them, by queue and offset."""
    output = path / f"{topic}.jsonl"
    result = pull_dump(cluster.namesrv_addr, topic, output=output, count=count)
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == result["messages"] == count
    return lines


def test_every_way_of_sending_reaches_java(cluster: ApacheCluster) -> None:
    topic = fresh("ways")
    cluster.create_topic(topic, queues=4)
    bodies = [body_for(i, 500) for i in range(1000)]
    with started(cluster) as producer:
        for body in bodies[:100]:
            assert producer.send(Message(topic, body, tags="A")).status is SendStatus.SEND_OK
        futures = [producer.send_async(Message(topic, body, tags="B")) for body in bodies[100:500]]
        done, left = wait(futures, WAIT)
        assert not left
        assert {future.result().status for future in done} == {SendStatus.SEND_OK}
        for body in bodies[500:600]:
            producer.send_oneway(Message(topic, body, tags="C"))
        for start in range(600, 1000, 50):
            batch = [Message(topic, body, tags="D") for body in bodies[start : start + 50]]
            result = producer.send_batch(batch)
            assert len(set(result.msg_id.split(","))) == 50
            assert len(set(result.offset_msg_id.split(","))) == 50
    got = consume(cluster.namesrv_addr, topic, fresh("group"), 1000)
    assert (got["messages"], got["duplicates"]) == (1000, 0)
    assert got["digest"] == body_digest(bodies)
    tagged = consume(cluster.namesrv_addr, topic, fresh("group"), 500, tags="A || D")
    assert tagged["digest"] == body_digest(bodies[:100] + bodies[600:])


def test_java_sees_every_part_of_a_message(cluster: ApacheCluster, tmp_path: Path) -> None:
    topic = fresh("parts")
    cluster.create_topic(topic, queues=1)
    with started(cluster) as producer:
        single = producer.send(
            Message(
                topic, b"x\x00y", tags="Tag-ü", keys=["k1", "k2"],
                properties={"grüße": "né 中文 🚀", "blank ": "a=b"}, flag=5,
            )
        )  # fmt: skip
        batch = producer.send_batch([Message(topic, b"in a batch", keys="k3"), Message(topic)])
    lines = dumped(cluster, topic, tmp_path, 3)
    first, batched, empty = lines
    assert first["properties"]["grüße"] == "né 中文 🚀"
    assert first["properties"]["blank "] == "a=b"
    assert first["properties"]["TAGS"] == "Tag-ü"
    assert first["properties"]["KEYS"] == "k1 k2"
    assert first["flag"] == 5
    assert first["msgId"] == single.msg_id
    assert first["offsetMsgId"] == single.offset_msg_id
    assert [line["queueOffset"] for line in lines] == [0, 1, 2]
    assert (single.queue_offset, batch.queue_offset) == (0, 1)
    assert [batched["msgId"], empty["msgId"]] == batch.msg_id.split(",")
    digests = [hashlib.sha256(body).hexdigest() for body in (b"x\x00y", b"in a batch")]
    assert [first["bodySha256"], batched["bodySha256"]] == digests
    # A Java client shows an empty body as null, which the program prints as -1.
    assert empty["bodyLength"] == -1


def test_an_empty_body(cluster: ApacheCluster, tmp_path: Path) -> None:
    topic = fresh("empty")
    cluster.create_topic(topic, queues=1)
    with started(cluster) as producer:
        if cluster.version.startswith("4."):
            producer.send(Message(topic, tags="A"))
            (line,) = dumped(cluster, topic, tmp_path, 1)
            assert (line["tags"], line["bodyLength"]) == ("A", -1)
        else:
            # 5.x reads the length of a body that is not there, and says so with code 1.
            with pytest.raises(SendError, match="NullPointerException"):
                producer.send(Message(topic, tags="A"))


@pytest.mark.parametrize("name", ["ZLIB", "LZ4", "ZSTD"])
def test_java_inflates_what_we_compress(cluster: ApacheCluster, name: str) -> None:
    topic = fresh(name)
    cluster.create_topic(topic, queues=1)
    bodies = [body_for(i, 5000 + 40_000 * i) for i in range(8)]
    with started(cluster, compress_type=name) as producer:
        for body in bodies:
            producer.send(Message(topic, body))
    got = consume(cluster.namesrv_addr, topic, fresh("group"), 8)
    assert (got["messages"], got["digest"]) == (8, body_digest(bodies))


def test_a_delayed_message_arrives(cluster: ApacheCluster) -> None:
    topic = fresh("delay")
    cluster.create_topic(topic, queues=1)
    with started(cluster) as producer:
        for level in (1, 2, 18, 99):
            message = Message(topic, b"level %d" % level, delay_time_level=level)
            assert producer.send(message).status is SendStatus.SEND_OK
    got = consume(cluster.namesrv_addr, topic, fresh("group"), 4)
    expected = body_digest(b"level %d" % level for level in (1, 2, 18, 99))
    assert (got["messages"], got["digest"]) == (4, expected)


def test_a_topic_is_created_by_sending(cluster: ApacheCluster) -> None:
    topic = fresh("created")
    with started(cluster, default_topic_queue_nums=3) as producer:
        queues = {producer.send(Message(topic, b"1")).message_queue.queue_id for _ in range(6)}
    assert queues == {0, 1, 2}
    with Admin(namesrv_addr=cluster.namesrv_addr) as admin:
        assert len(admin.queues(topic)) == 3


def test_what_the_broker_refuses(cluster: ApacheCluster) -> None:
    topic = fresh("refused")
    cluster.create_topic(topic, queues=1)
    with started(cluster, max_message_size=8 << 20, compress_msg_body_over_howmuch=1 << 30) as it:
        with pytest.raises(MessageIllegal):
            it.send(Message(topic, bytes((4 << 20) + 1)))
        with pytest.raises(MessageIllegal):
            it.send_async(Message(topic, b"x", properties={"p": "x" * 33_000})).result(WAIT)
        assert it.send(Message(topic, bytes(4 << 20))).status is SendStatus.SEND_OK


def test_messages_of_a_key_keep_their_order(cluster: ApacheCluster, tmp_path: Path) -> None:
    topic = fresh("order")
    cluster.create_topic(topic, queues=4)
    sent: dict[str, list[str]] = {}
    with started(cluster) as producer:
        for i in range(210):
            key = f"key{i % 7}"
            message = Message(topic, b"%d" % i, keys=key)
            result = producer.send(message, selector=rmq.select_by_hash, arg=key)
            sent.setdefault(key, []).append(result.msg_id)
    found: dict[str, list[str]] = {}
    places = set()
    for line in dumped(cluster, topic, tmp_path, 210):
        found.setdefault(line["properties"]["KEYS"], []).append(line["msgId"])
        places.add((line["properties"]["KEYS"], line["queueId"]))
    assert len(places) == 7  # each key in one queue
    assert found == sent


def test_a_killed_broker_ends_no_producer() -> None:
    require("apache")
    with ApacheCluster("4.9.4", brokers=2) as cluster:
        topic = fresh("kill")
        cluster.create_topic(topic, queues=2)
        stored = 0
        with started(cluster) as producer:
            producer.send(Message(topic, b"first"))
            stored += 1
            cluster.kill_broker(0)
            for i in range(200):
                try:
                    result = producer.send(Message(topic, b"%d" % i))
                except (SendError, TopicRouteNotFound):
                    continue
                stored += 1
                assert result.status is SendStatus.SEND_OK
            # The other broker takes over at once: no message of a retried send is lost.
            assert stored == 201
            futures = [producer.send_async(Message(topic, b"%d" % i)) for i in range(200)]
            done, left = wait(futures, WAIT)
            assert not left
            assert {future.result().status for future in done} == {SendStatus.SEND_OK}
            stored += 200
        cluster.start_broker(0)
        dump = pull_dump(cluster.namesrv_addr, topic, count=stored)
        assert dump["messages"] >= stored
