"""The admin against Apache brokers, with Java's own view of the offsets beside it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import rocketmq_fast as rmq
from rocketmq_fast import Admin, Message, MessageExt, Producer
from rocketmq_fast.consumer import pull
from rocketmq_fast.errors import BrokerError, ClientStateError, TopicRouteNotFound
from tests.apache import ApacheCluster
from tests.apache.java import offsets

pytestmark = pytest.mark.apache

WAIT = 60.0
_numbers = itertools.count()


@pytest.fixture(params=["apache_494", "apache_533"], ids=["4.9.4", "5.3.3"])
def cluster(request: pytest.FixtureRequest) -> ApacheCluster:
    found: ApacheCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def admin(cluster: ApacheCluster) -> Iterator[Admin]:
    with Admin(namesrv_addr=cluster.namesrv_addr) as running:
        yield running


def fresh(name: str) -> str:
    return f"Adm_{name}_{next(_numbers)}"


def fill(cluster: ApacheCluster, admin: Admin, topic: str, each: int) -> None:
    """The same number of messages in each queue of a topic."""
    with Producer("AdmPG", namesrv_addr=cluster.namesrv_addr, send_msg_timeout=10_000) as producer:
        for queue in admin.queues(topic):
            for i in range(each):
                producer.send(Message(topic, b"%d" % i, keys=f"k{i}"), queue=queue)


def eventually(condition: Any, what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.1)


def test_topics(cluster: ApacheCluster, admin: Admin) -> None:
    topic = fresh("topic")
    admin.create_topic(topic, queues=3)
    assert len(admin.queues(topic)) == 3
    assert topic in admin.topics()
    assert not {"TBW102", cluster.broker_name, "DefaultCluster"} & set(admin.topics())
    assert admin.cluster().brokers[cluster.broker_name].master == cluster.broker_addr
    with pytest.raises(BrokerError):
        admin.create_topic("TBW102")
    admin.delete_topic(topic)
    with pytest.raises(TopicRouteNotFound):
        admin.route(topic)


def test_lag_and_reset_without_members(cluster: ApacheCluster, admin: Admin) -> None:
    topic, group = fresh("lag"), fresh("group")
    admin.create_topic(topic, queues=2)
    fill(cluster, admin, topic, 10)
    eventually(
        lambda: [r.max_offset for r in admin.offsets(topic).values()] == [10, 10], "indexing"
    )
    assert admin.lag(group) == {}
    # The group has not run yet; a 5.x broker has to be told of it first.
    assert list(admin.reset_offsets(group, topic, offset=4).values()) == [4, 4]
    assert [row.lag for row in admin.lag(group).values()] == [6, 6]
    java = offsets(cluster.namesrv_addr, topic, group)["queues"]
    assert [entry["committed"] for entry in java.values()] == [4, 4]
    assert list(admin.reset_offsets(group, topic, offset="latest").values()) == [10, 10]
    assert [row.lag for row in admin.lag(group, topic).values()] == [0, 0]
    assert list(admin.reset_offsets(group, topic, timestamp=0).values()) == [0, 0]
    assert list(admin.reset_offsets(group, topic, offset={admin.queues(topic)[1]: 5}).values()) == [
        5
    ]
    assert [row.committed for row in admin.lag(group).values()] == [0, 5]


def test_groups_members_and_a_running_group_moved(
    cluster: ApacheCluster, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A 5.x broker moves a group by itself, and its members learn of it by their next pulls.
    monkeypatch.setattr(pull, "SUSPEND_MILLIS", 1000)
    topic, group = fresh("live"), fresh("group")
    admin.create_topic(topic, queues=1)
    admin.create_group(group)
    assert group in admin.groups()
    assert "TOOLS_CONSUMER" not in admin.groups()
    fill(cluster, admin, topic, 5)
    bodies: list[bytes] = []
    changed = threading.Condition()

    def listener(messages: list[MessageExt], _: Any) -> rmq.ConsumeStatus:
        with changed:
            bodies.extend(m.body for m in messages)
            changed.notify_all()
        return rmq.ConsumeStatus.CONSUME_SUCCESS

    consumer = rmq.PushConsumer(
        group, namesrv_addr=cluster.namesrv_addr, persist_consumer_offset_interval=200,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )  # fmt: skip
    consumer.subscribe(topic)
    consumer.register_listener(listener)
    with consumer:
        with changed:
            assert changed.wait_for(lambda: len(bodies) == 5, WAIT)
        (member,) = admin.members(group)
        assert member.client_id == consumer.stats()["client_id"]
        eventually(
            lambda: (lag := admin.lag(group, topic)) and not sum(r.lag for r in lag.values()),
            "the commit",
        )
        assert list(admin.reset_offsets(group, topic, timestamp=0).values()) == [0]
        with changed:
            assert changed.wait_for(lambda: len(bodies) == 10, WAIT), bodies
        assert sorted(bodies) == sorted(b"%d" % i for i in range(5) for _ in range(2))
        if cluster.version == "4.9.4":
            with pytest.raises(ClientStateError, match=r"has 1 members, .* by time only"):
                admin.reset_offsets(group, topic, offset=2)
        else:
            assert list(admin.reset_offsets(group, topic, offset=2).values()) == [2]
            with changed:
                assert changed.wait_for(lambda: len(bodies) == 13, WAIT), bodies
            assert sorted(bodies[10:]) == [b"2", b"3", b"4"]
    assert admin.members(group) == []


def test_messages_by_id_and_key(cluster: ApacheCluster, admin: Admin) -> None:
    topic = fresh("find")
    admin.create_topic(topic, queues=2)
    with Producer("AdmPG", namesrv_addr=cluster.namesrv_addr, send_msg_timeout=10_000) as producer:
        results = [producer.send(Message(topic, b"%d" % i, keys=f"k{i}")) for i in range(5)]
    for i, result in enumerate(results):
        assert admin.view(result.offset_msg_id).body == b"%d" % i
    eventually(lambda: len(admin.query(topic, "k4")) == 1, "the index")
    assert admin.query(topic, "k3")[0].body == b"3"
    assert admin.view(results[2].msg_id, topic).body == b"2"
