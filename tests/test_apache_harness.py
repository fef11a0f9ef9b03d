"""The Apache brokers and the Java programs that other tests rely on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.apache import ApacheCluster, wire
from tests.apache.java import body_digest, body_for, consume, offsets, produce, pull_dump

UPDATE_CONSUMER_OFFSET = 15

_numbers = itertools.count()

pytestmark = pytest.mark.apache


@pytest.fixture(params=["apache_494", "apache_533"], ids=["4.9.4", "5.3.3"])
def cluster(request: pytest.FixtureRequest) -> ApacheCluster:
    found: ApacheCluster = request.getfixturevalue(request.param)
    return found


def fresh(name: str) -> str:
    return f"Harness_{name}_{next(_numbers)}"


def begin(cluster: ApacheCluster, topic: str, group: str) -> None:
    """Give a new group its first offset.

    A broker makes the table of a group and topic when it finds none, 4.9.4 and 5.3.3 alike, so of
    the first offsets that arrive side by side some are lost; a Java consumer sends them so, and
    those of its end only once.
    """
    cluster.create_group(group)
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"}
    answer = wire.request(cluster.broker_addr, UPDATE_CONSUMER_OFFSET, fields, timeout=10.0)
    assert answer.code == wire.SUCCESS, answer


def test_route_shows_the_created_topic(cluster: ApacheCluster) -> None:
    topic = fresh("route")
    cluster.create_topic(topic, queues=3)
    route = cluster.route(topic)
    assert route is not None
    (queue_data,) = route["queueDatas"]
    assert queue_data["brokerName"] == cluster.broker_name
    assert (queue_data["readQueueNums"], queue_data["writeQueueNums"]) == (3, 3)
    (broker,) = route["brokerDatas"]
    assert broker["brokerAddrs"] == {"0": cluster.broker_addr}
    assert cluster.route(fresh("absent")) is None


def test_java_consumes_what_java_produced(cluster: ApacheCluster) -> None:
    topic, group = fresh("plain"), fresh("group")
    cluster.create_topic(topic, queues=4)
    sent = produce(cluster.namesrv_addr, topic, 200, size=300, tags="TagA,TagB", threads=2)
    assert sent["statuses"] == {"SEND_OK": 200}
    assert sent["digest"] == body_digest(body_for(i, 300) for i in range(200))

    begin(cluster, topic, group)
    got = consume(cluster.namesrv_addr, topic, group, 200)
    assert (got["messages"], got["duplicates"]) == (200, 0)
    assert got["digest"] == sent["digest"]
    assert got["queues"] == sent["queues"]

    state = offsets(cluster.namesrv_addr, topic, group)
    assert state["problems"] == {}
    assert {name: entry["committed"] for name, entry in state["queues"].items()} == sent["queues"]
    assert {name: entry["max"] for name, entry in state["queues"].items()} == sent["queues"]


def test_batches_tags_and_compressed_bodies(apache_494: ApacheCluster, tmp_path: Path) -> None:
    cluster = apache_494
    topic = fresh("mixed")
    cluster.create_topic(topic, queues=2)
    batched = produce(cluster.namesrv_addr, topic, 90, size=50, batch=30, tags="TagA,TagB")
    large = produce(cluster.namesrv_addr, topic, 5, first=90, size=9000, tags="TagB", mode="async")
    expected = [body_for(i, 50) for i in range(90)] + [body_for(i, 9000) for i in range(90, 95)]
    assert batched["digest"] == body_digest(expected[:90])
    assert large["digest"] == body_digest(expected[90:])

    output = tmp_path / "messages.jsonl"
    dump = pull_dump(cluster.namesrv_addr, topic, output=output, count=95)
    assert dump["messages"] == 95
    assert dump["digest"] == body_digest(expected)
    assert dump["tags"] == {"TagA": 45, "TagB": 50}
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 95
    # Only the five large bodies went through zlib (system flag 1).
    assert sum(line["sysFlag"] & 1 for line in lines) == 5

    tagged = consume(cluster.namesrv_addr, topic, fresh("group"), 50, tags="TagB")
    assert (tagged["messages"], tagged["duplicates"]) == (50, 0)
    assert tagged["digest"] == body_digest([*expected[1:90:2], *expected[90:]])


def test_refused_messages_come_back(apache_494: ApacheCluster) -> None:
    cluster = apache_494
    topic, group = fresh("retry"), fresh("group")
    cluster.create_topic(topic, queues=1)
    cluster.create_group(group)
    produce(cluster.namesrv_addr, topic, 10)
    got = consume(cluster.namesrv_addr, topic, group, 10, fail=3)
    assert (got["messages"], got["refused"]) == (10, 3)
    assert got["digest"] == body_digest(body_for(i, 100) for i in range(10))


def test_delayed_message_arrives_in_the_end(apache_494: ApacheCluster) -> None:
    cluster = apache_494
    topic = fresh("delay")
    cluster.create_topic(topic, queues=1)
    sent = produce(cluster.namesrv_addr, topic, 2, delay=1)
    assert sent["statuses"] == {"SEND_OK": 2}
    got = consume(cluster.namesrv_addr, topic, fresh("group"), 2)
    assert (got["messages"], got["digest"]) == (2, sent["digest"])


def test_killed_broker_comes_back_with_its_store(apache_494: ApacheCluster) -> None:
    cluster = apache_494
    topic = fresh("kill")
    cluster.create_topic(topic, queues=1)
    sent = produce(cluster.namesrv_addr, topic, 20)
    before = dict(cluster.pids)
    cluster.kill_broker()
    assert list(cluster.pids) == ["namesrv 4.9.4"]
    cluster.start_broker()
    assert cluster.pids.keys() == before.keys()
    assert cluster.max_offset(topic, 0) == 20
    dump = pull_dump(cluster.namesrv_addr, topic, count=20)
    assert (dump["messages"], dump["digest"]) == (20, sent["digest"])
