"""The admin against the embedded cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

import rocketmq_fast as rmq
from rocketmq_fast import Admin, Message, MessageExt, MessageQueue, Producer
from rocketmq_fast.admin.bodies import (
    QueueLag,
    QueueRange,
    consume_stats_of,
    group_names_of,
    members_of,
    topic_stats_of,
)
from rocketmq_fast.client.addresses import parse_offset_id
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.errors import (
    BodyError,
    BrokerNotFound,
    BrokerSystemError,
    ClientStateError,
    ConfigError,
    NoNameServer,
    QueryNotFound,
    TopicRouteNotFound,
)

WAIT = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(namesrv_addr=cluster.namesrv_addr) as running:
        yield running


@pytest.fixture(scope="module")
def producer(cluster: Cluster) -> Iterator[Producer]:
    with Producer("AdminPG", namesrv_addr=cluster.namesrv_addr) as running:
        yield running


class Collector:
    """A push consumer that keeps what it gets."""

    def __init__(self, cluster: Cluster, group: str, topic: str, **options: Any) -> None:
        self.bodies: list[bytes] = []
        self._changed = threading.Condition()
        self.consumer = rmq.PushConsumer(
            group, namesrv_addr=cluster.namesrv_addr,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET", **options,
        )  # fmt: skip
        self.consumer.subscribe(topic)
        self.consumer.register_listener(self._on_messages)

    def _on_messages(self, messages: list[MessageExt], _: Any) -> rmq.ConsumeStatus:
        with self._changed:
            self.bodies += [m.body for m in messages]
            self._changed.notify_all()
        return rmq.ConsumeStatus.CONSUME_SUCCESS

    def wait(self, count: int) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.bodies) >= count, WAIT), self.bodies
            return list(self.bodies)


def consumed(cluster: Cluster, group: str, topic: str, count: int, **options: Any) -> list[bytes]:
    """What a group gets that consumes so many messages and leaves."""
    collector = Collector(cluster, group, topic, **options)
    with collector.consumer:
        return collector.wait(count)


# -------------------------------------------------------------------------------------- topics


def test_topics_are_created_listed_and_deleted(
    cluster: Cluster, admin: Admin, producer: Producer
) -> None:
    admin.create_topic("Made", queues=3)
    route = admin.route("Made")
    assert [(q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queue_datas] == [
        (3, 3, 6)
    ]
    assert admin.queues("Made") == [MessageQueue("Made", cluster.broker_name, i) for i in range(3)]
    assert "Made" in admin.topics()
    assert "TBW102" not in admin.topics()
    assert {"TBW102", "Made"} <= set(admin.topics(internal=True))
    admin.create_topic("Made", read_queues=4, write_queues=2, perm=4, broker=cluster.broker_name)
    (data,) = admin.route("Made").queue_datas
    assert (data.read_queue_nums, data.write_queue_nums, data.perm) == (4, 2, 4)
    with pytest.raises(TopicRouteNotFound, match="no writable queue"):
        producer.send(Message("Made", b"1"))
    admin.delete_topic("Made")
    with pytest.raises(TopicRouteNotFound):
        admin.route("Made")
    assert "Made" not in admin.topics(internal=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": "no good"}, ConfigError),
        ({"topic": "T", "queues": 0}, ConfigError),
        ({"topic": "T", "read_queues": -1}, ConfigError),
        ({"topic": "T", "perm": 64}, ConfigError),
        ({"topic": "T", "broker": "nowhere"}, BrokerNotFound),
        ({"topic": "T", "cluster": "nowhere"}, BrokerNotFound),
        ({"topic": "TBW102"}, BrokerSystemError),
    ],
)
def test_topics_that_cannot_be(
    admin: Admin, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        admin.create_topic(**options)


def test_cluster_names_its_brokers(cluster: Cluster, admin: Admin) -> None:
    info = admin.cluster()
    assert info.brokers[cluster.broker_name].master == cluster.broker_addr
    assert info.clusters["DefaultCluster"] == (cluster.broker_name,)


def test_offsets_of_a_topic(cluster: Cluster, admin: Admin, producer: Producer) -> None:
    admin.create_topic("Bounds", queues=2)
    first, second = admin.queues("Bounds")
    assert admin.offsets("Bounds") == {first: QueueRange(0, 0), second: QueueRange(0, 0)}
    for i in range(5):
        producer.send(Message("Bounds", b"%d" % i), queue=second)
    assert admin.offsets("Bounds") == {first: QueueRange(0, 0), second: QueueRange(0, 5)}
    assert (admin.min_offset(second), admin.max_offset(second)) == (0, 5)
    assert admin.search_offset(second, 0) == 0
    with pytest.raises(TopicRouteNotFound):
        admin.offsets("Absent")
    with pytest.raises(BrokerNotFound, match="names no master"):
        admin.max_offset(MessageQueue("Bounds", "nowhere", 0))


# -------------------------------------------------------------------------------------- groups


def test_groups_members_and_lag(cluster: Cluster, admin: Admin, producer: Producer) -> None:
    admin.create_topic("Lagging", queues=2)
    queues = admin.queues("Lagging")
    for i in range(10):
        producer.send(Message("Lagging", b"%d" % i), queue=queues[i % 2])
    assert admin.lag("Laggard") == {}
    collector = Collector(cluster, "Laggard", "Lagging")
    with collector.consumer:
        collector.wait(10)
        (member,) = admin.members("Laggard")
        assert member.client_id == collector.consumer.stats()["client_id"]
        assert (member.language, member.version) == ("PYTHON", 401)
    assert admin.members("Laggard") == []
    assert "Laggard" in admin.groups()
    for i in range(6):
        producer.send(Message("Lagging", b"%d" % i), queue=queues[0])
    found = admin.lag("Laggard")
    assert [found[q].lag for q in queues] == [6, 0]
    assert [(found[q].committed, found[q].max_offset) for q in queues] == [(5, 11), (5, 5)]
    assert abs(found[queues[0]].last_timestamp - time.time() * 1000) < 3_600_000
    assert list(found) == sorted(found)
    assert admin.lag("Laggard", "Lagging").keys() == set(queues)


def test_groups_can_be_created(admin: Admin) -> None:
    admin.create_group("Fresh", retry_max_times=3)
    assert "Fresh" in admin.groups()
    assert not {"TOOLS_CONSUMER", "CLIENT_INNER_PRODUCER"} & set(admin.groups())
    with pytest.raises(ConfigError):
        admin.create_group("DEFAULT_CONSUMER")


# --------------------------------------------------------------------------------------- reset


def test_a_group_without_members_is_moved(
    cluster: Cluster, admin: Admin, producer: Producer
) -> None:
    admin.create_topic("Moved", queues=2)
    queues = admin.queues("Moved")
    for i in range(20):
        producer.send(Message("Moved", b"%d" % i), queue=queues[i % 2])
    assert len(consumed(cluster, "Mover", "Moved", 20)) == 20

    def moved(**where: Any) -> list[int]:
        result = admin.reset_offsets("Mover", "Moved", **where)
        assert [admin.lag("Mover", "Moved")[q].committed for q in result] == list(result.values())
        return [result.get(queue, -1) for queue in queues]

    assert moved(offset="earliest") == [0, 0]
    assert sorted(consumed(cluster, "Mover", "Moved", 20)) == sorted(b"%d" % i for i in range(20))
    assert moved(offset=7) == [7, 7]
    assert sorted(consumed(cluster, "Mover", "Moved", 6)) == [b"%d" % i for i in range(14, 20)]
    assert moved(offset={queues[1]: 3}) == [-1, 3]
    assert moved(offset="latest") == [10, 10]
    assert moved(offset=99) == [10, 10]
    assert moved(timestamp=0) == [0, 0]
    assert moved(timestamp=datetime.fromtimestamp(time.time() + 60)) == [10, 10]


def test_a_group_that_never_ran_is_moved_before_it_starts(
    cluster: Cluster, admin: Admin, producer: Producer
) -> None:
    admin.create_topic("Ahead", queues=1)
    for i in range(5):
        producer.send(Message("Ahead", b"%d" % i))
    assert list(admin.reset_offsets("NotYet", "Ahead", offset=3).values()) == [3]
    assert consumed(cluster, "NotYet", "Ahead", 2) == [b"3", b"4"]


def test_a_running_group_is_moved(cluster: Cluster, admin: Admin, producer: Producer) -> None:
    admin.create_topic("Live", queues=1)
    collector = Collector(cluster, "Live", "Live", persist_consumer_offset_interval=100)
    with collector.consumer:
        for i in range(5):
            producer.send(Message("Live", b"%d" % i))
        collector.wait(5)
        (queue,) = admin.queues("Live")
        deadline = time.monotonic() + WAIT
        while admin.lag("Live", "Live")[queue].lag:
            assert time.monotonic() < deadline, "the group did not commit"
            time.sleep(0.02)
        assert list(admin.reset_offsets("Live", "Live", timestamp=0).values()) == [0]
        assert collector.wait(10) == [b"%d" % (i % 5) for i in range(10)]
        assert admin.reset_offsets("Live", "Live", offset=3) == {queue: 3}
        assert collector.wait(12)[10:] == [b"3", b"4"]
        assert admin.reset_offsets("Live", "Live", offset={queue: 99}) == {queue: 5}


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"timestamp": 1, "offset": 1},
        {"offset": "middle"},
        {"offset": -1},
        {"timestamp": -5},
        {"offset": {MessageQueue("Bad", "nowhere", 0): 1}},
    ],
)
def test_where_a_group_cannot_be_moved(admin: Admin, where: dict[str, Any]) -> None:
    admin.create_topic("Bad", queues=1)
    with pytest.raises(ConfigError):
        admin.reset_offsets("BadGroup", "Bad", **where)


# ------------------------------------------------------------------------------------ messages


def test_messages_are_found_by_id_and_key(admin: Admin, producer: Producer) -> None:
    admin.create_topic("Found", queues=2)
    results = [
        producer.send(Message("Found", b"%d" % i, keys=[f"k{i % 3}", "all"])) for i in range(9)
    ]
    for i, result in enumerate(results):
        assert admin.view(result.offset_msg_id).body == b"%d" % i
        assert admin.view(result.msg_id, "Found").body == b"%d" % i
    assert {m.body for m in admin.query("Found", "k1")} == {b"1", b"4", b"7"}
    assert len(admin.query("Found", "all")) == 9
    assert len(admin.query("Found", "all", max_num=4)) == 4
    assert admin.query("Found", "k") == []
    assert admin.query("Found", "all", end=1) == []
    with pytest.raises(QueryNotFound, match="'Found'"):
        admin.view("0" * 32, "Found")
    with pytest.raises(BrokerNotFound, match="needs the topic"):
        admin.view(results[0].msg_id)
    with pytest.raises(ConfigError, match="no message id"):
        admin.view("xyz")


def test_offset_ids() -> None:
    assert parse_offset_id("7F00000100002A9F000000005F669224") == ("127.0.0.1:10911", 0x5F669224)
    sixteen = "0" * 31 + "1"
    assert parse_offset_id(f"{sixteen}00002A9F0000000000000005") == ("[::1]:10911", 5)


# ---------------------------------------------------------------------------------- life cycle


def test_life_cycle(cluster: Cluster) -> None:
    before = threading.active_count()
    admin = Admin(namesrv_addr=cluster.namesrv_addr)
    with pytest.raises(ClientStateError, match="not started"):
        admin.topics()
    for _ in range(2):
        with admin:
            with pytest.raises(ClientStateError, match="started already"):
                admin.start()
            assert isinstance(admin.topics(), list)
        admin.shutdown()
    assert threading.active_count() == before
    with pytest.raises(TypeError, match="namesrv_addr"):
        Admin(namesrv_adr="127.0.0.1:1")
    with pytest.raises(NoNameServer):
        Admin(namesrv_addr="127.0.0.1:1").start()


# -------------------------------------------------------------------------------------- bodies


def test_bodies_in_the_dialect() -> None:
    queue = b'{"brokerName":"b","queueId":1,"topic":"t"}'
    row = b'{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":7}'
    stats = consume_stats_of(b'{"consumeTps":0.0,"offsetTable":{' + queue + b":" + row + b"}}", "g")
    assert stats == {MessageQueue("t", "b", 1): QueueLag(4, 9, 7)}
    assert QueueLag(9, 4).lag == 0
    row = b'{"lastUpdateTimestamp":0,"maxOffset":3,"minOffset":1}'
    assert topic_stats_of(b'{"offsetTable":{' + queue + b":" + row + b"}}", "t") == {
        MessageQueue("t", "b", 1): QueueRange(1, 3)
    }
    assert group_names_of(b'{"subscriptionGroupTable":{"a":{},"b":{}}}') == ["a", "b"]


@pytest.mark.parametrize(
    ("function", "body"),
    [
        (consume_stats_of, b"[]"),
        (consume_stats_of, b'{"offsetTable":[]}'),
        (consume_stats_of, b'{"offsetTable":{"x":{}}}'),
        (topic_stats_of, b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:{}}}'),
        (topic_stats_of, b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:3}}'),
        (members_of, b'{"connectionSet":{}}'),
        (members_of, b'{"connectionSet":[1]}'),
        (members_of, b'{"connectionSet":[{"version":"new"}]}'),
        (members_of, b"{"),
    ],
)
def test_bodies_of_a_wrong_shape(function: Any, body: bytes) -> None:
    with pytest.raises(BodyError):
        function(body, "name")
