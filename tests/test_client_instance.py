"""The client instance: name servers with failover, routes that change, heartbeats, sharing."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator

import pytest

from rocketmq_fast import ConfigError, MessageQueue, RemotingCommand, encode_frame
from rocketmq_fast.client.addresses import local_ip
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.instances import acquire_instance, release_instance, unique_instance_name
from rocketmq_fast.client.options import ClientOptions
from rocketmq_fast.client.tasks import PeriodicTasks
from rocketmq_fast.errors import BodyError, BrokerNotFound, NoNameServer, TopicRouteNotFound
from rocketmq_fast.protocol.bodies import ConsumerData, HeartbeatData
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.proxy import Frame, ProxiedCluster, answer_with
from tests.waiting import wait_for


@pytest.fixture
def instance(embedded_broker: TestBroker) -> Iterator[ClientInstance]:
    options = ClientOptions(namesrv_addr=embedded_broker.namesrv_addr)
    made = acquire_instance(options.client_id(unique_instance_name()), options)
    yield made
    release_instance(made)


@pytest.fixture
def proxied_instance(embedded_proxied: ProxiedCluster) -> Iterator[ClientInstance]:
    options = ClientOptions(
        namesrv_addr=embedded_proxied.namesrv_addr, heartbeat_broker_interval=600_000
    )
    made = acquire_instance(options.client_id(unique_instance_name()), options)
    yield made
    release_instance(made)


def test_route_of_a_topic(instance: ClientInstance, embedded_broker: TestBroker) -> None:
    topic = embedded_broker.topic(3)
    assert instance.route(topic) is None
    route = instance.update_route(topic)
    assert instance.route(topic) == route
    queues = route.publish_queues(topic)
    assert queues == [MessageQueue(topic, embedded_broker.broker_name, i) for i in range(3)]
    assert instance.master_of(queues[0]) == embedded_broker.broker_addr
    assert instance.any_broker_of(topic) == embedded_broker.broker_addr
    assert instance.broker_address(embedded_broker.broker_name) == (
        embedded_broker.broker_addr,
        False,
    )


def test_what_does_not_exist_is_named(
    instance: ClientInstance, embedded_broker: TestBroker
) -> None:
    absent = embedded_broker.name("absent")
    with pytest.raises(TopicRouteNotFound, match=absent) as caught:
        instance.update_route(absent)
    assert caught.value.topic == absent
    with pytest.raises(TopicRouteNotFound):
        instance.any_broker_of(absent)
    with pytest.raises(BrokerNotFound, match="no-broker"):
        instance.broker_address("no-broker")
    # With a default the topic gets the route that a broker would give it.
    route = instance.update_route(absent, default_queues=3)
    assert len(route.publish_queues(absent)) == 3


def test_route_that_changes_is_noticed(
    instance: ClientInstance, embedded_broker: TestBroker
) -> None:
    topic = embedded_broker.topic(1)
    before = instance.update_route(topic)
    assert instance.update_route(topic) is not None
    assert instance.route(topic) is before  # the same content is no change
    embedded_broker.cluster.create_topic(topic, queues=5)
    assert len(instance.update_route(topic).subscribe_queues(topic)) == 5
    assert instance.route(topic) is not before


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"queueDatas":[{}]}', b'{"queueDatas":5}', b"\xff\xfe"]
)
def test_route_that_is_none_is_a_typed_error(
    proxied_instance: ClientInstance,
    embedded_proxied: ProxiedCluster,
    embedded_broker: TestBroker,
    body: bytes,
) -> None:
    topic = embedded_broker.topic(1)

    def on_answer(frame: Frame) -> bytes | None:
        if frame.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return None
        frame.command.body = body
        return encode_frame(frame.command)

    embedded_proxied.namesrv.on_answer = on_answer
    expected = TopicRouteNotFound if not body else BodyError
    with pytest.raises(expected, match=topic):
        proxied_instance.update_route(topic)
    assert proxied_instance.route(topic) is None


def test_a_round_that_the_end_overtakes_says_nothing(
    instance: ClientInstance, embedded_broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    instance.keep_route(embedded_broker.topic(1))
    instance.remoting.close()
    instance.refresh_routes()
    assert caplog.messages == []


def test_name_servers_fail_over(
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedded_proxied.namesrv.refuse()
    dead, alive = embedded_proxied.namesrv_addr, embedded_broker.namesrv_addr
    for addresses in (f"{dead};{alive}", f"{alive};{dead}"):
        options = ClientOptions(namesrv_addr=addresses)
        made = acquire_instance(options.client_id(unique_instance_name()), options)
        try:
            topic = embedded_broker.topic(1)
            made.update_route(topic)
            # The one that answered is asked first from now on.
            assert made.name_servers.addresses[0] == alive
        finally:
            release_instance(made)
    options = ClientOptions(namesrv_addr=f"{dead};{alive}")
    made = acquire_instance(options.client_id(unique_instance_name()), options)
    caplog.clear()
    try:
        made.name_servers.update([dead])
        with pytest.raises(NoNameServer, match=dead):
            made.update_route("any")
        assert "does not answer" not in caplog.text  # the error says it all
        made.name_servers.update([dead, alive])
        made.update_route(topic)
        assert any(f"using {alive}" in text and dead in text for text in caplog.messages)
    finally:
        release_instance(made)


class Member:
    """A consumer that does nothing."""

    def __init__(self, group: str, topics: Iterable[str]) -> None:
        self.group = group
        self.topics = list(topics)
        self.rounds = 0
        self.rebalanced = threading.Event()

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self.group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", ()
        )

    def subscribed_topics(self) -> Iterable[str]:
        return self.topics

    def rebalance(self) -> None:
        self.rounds += 1
        self.rebalanced.set()

    def persist_offsets(self) -> None:
        """Nothing to store."""

    def on_disconnected(self, broker_name: str) -> None:
        """Nothing to doubt."""


def test_member_that_the_first_round_missed_gets_its_topic_soon(
    embedded_broker: TestBroker,
) -> None:
    """A round is ten minutes away, and the first was over before the member was there."""
    options = ClientOptions(
        namesrv_addr=embedded_broker.namesrv_addr, poll_name_server_interval=600_000
    )
    instance = acquire_instance(options.client_id(unique_instance_name()), options)
    try:
        first_round = threading.Event()
        instance._tasks.every(math.inf, first_round.set, first=0.02)  # due after it
        assert first_round.wait(30.0)
        topic = embedded_broker.name("later")
        member = Member(embedded_broker.group(), [topic])
        instance.register_consumer(member)  # type: ignore[arg-type]
        embedded_broker.cluster.create_topic(topic, queues=1)
        wait_for(lambda: instance.route(topic), "the route")
        instance.unregister_consumer(member.group)
    finally:
        release_instance(instance)


def test_heartbeats_tell_about_every_member(
    proxied_instance: ClientInstance,
    embedded_proxied: ProxiedCluster,
    embedded_broker: TestBroker,
) -> None:
    heard: list[HeartbeatData] = []

    def on_request(frame: Frame) -> None:
        if frame.code == RequestCode.HEART_BEAT:
            heard.append(HeartbeatData.from_body(frame.command.body))

    embedded_proxied.broker.on_request = on_request
    topic = embedded_broker.topic(1)
    proxied_instance.update_route(topic)
    one = Member(embedded_broker.group(), [topic])
    two = Member(embedded_broker.group(), [topic])
    for member in (one, two):
        proxied_instance.register_consumer(member)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=one.group):
        proxied_instance.register_consumer(Member(one.group, []))  # type: ignore[arg-type]
    proxied_instance.heartbeat()
    assert heard[-1].client_id == proxied_instance.client_id
    assert {data.group_name for data in heard[-1].consumers} == {one.group, two.group}
    assert "CLIENT_INNER_PRODUCER" in heard[-1].producer_groups
    assert embedded_broker.members(one.group) == [proxied_instance.client_id]
    # The broker tells the members of its group that somebody came.
    wait_for(lambda: one.rounds and two.rounds, "a round of rebalancing")
    proxied_instance.unregister_consumer(one.group)
    assert embedded_broker.members(one.group) == []
    assert embedded_broker.members(two.group) == [proxied_instance.client_id]
    proxied_instance.unregister_consumer(two.group)
    count = len(heard)
    proxied_instance.heartbeat()
    assert len(heard) == count  # nobody to tell about


def test_failed_heartbeat_is_only_logged(
    proxied_instance: ClientInstance,
    embedded_proxied: ProxiedCluster,
    embedded_broker: TestBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_answer(frame: Frame) -> bytes | None:
        return answer_with(frame, 1, "no heart") if frame.code == RequestCode.HEART_BEAT else None

    embedded_proxied.broker.on_answer = on_answer
    topic = embedded_broker.topic(1)
    proxied_instance.update_route(topic)
    member = Member(embedded_broker.group(), [topic])
    proxied_instance.register_consumer(member)  # type: ignore[arg-type]
    proxied_instance.heartbeat()
    assert "no heart" in caplog.text
    proxied_instance.unregister_consumer(member.group)


def test_unknown_request_of_a_broker_is_answered(
    proxied_instance: ClientInstance,
    embedded_proxied: ProxiedCluster,
    embedded_broker: TestBroker,
) -> None:
    answers: list[RemotingCommand] = []
    asked = threading.Event()

    def on_request(frame: Frame) -> list[bytes] | None:
        if frame.command.is_response:
            answers.append(frame.command)
            return []
        return None

    def on_answer(frame: Frame) -> list[bytes] | None:
        if asked.is_set():
            return None
        asked.set()
        question = RemotingCommand(4711, {}, opaque=77)
        return [encode_frame(question), frame.raw]

    embedded_proxied.broker.on_request = on_request
    embedded_proxied.broker.on_answer = on_answer
    topic = embedded_broker.topic(1)
    proxied_instance.update_route(topic)
    queue = embedded_broker.queue(topic)
    proxied_instance.brokers.max_offset(proxied_instance.master_of(queue), queue)
    wait_for(lambda: answers, "the client's answer")
    assert (answers[0].opaque, answers[0].code) == (77, 3)
    assert "4711" in (answers[0].remark or "")


def test_instances_are_shared_by_client_id(embedded_broker: TestBroker) -> None:
    options = ClientOptions(namesrv_addr=embedded_broker.namesrv_addr)
    name = options.client_id("shared")
    one, two = acquire_instance(name, options), acquire_instance(name, options)
    assert one is two
    with pytest.raises(ConfigError, match="name servers"):
        acquire_instance(name, ClientOptions(namesrv_addr="127.0.0.1:1"))
    release_instance(one)
    topic = embedded_broker.topic(1)
    two.update_route(topic)  # still at work for the other user
    release_instance(two)
    three = acquire_instance(name, options)
    assert three is not two
    release_instance(three)


def test_unique_names_are_unique() -> None:
    names = {unique_instance_name() for _ in range(2000)}
    assert len(names) == 2000


def test_local_ip_is_an_address() -> None:
    parts = local_ip().split(".")
    assert len(parts) == 4
    assert all(0 <= int(part) <= 255 for part in parts)


def test_periodic_tasks_go_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    tasks = PeriodicTasks("test-tasks")
    ran: list[str] = []

    def fail() -> None:
        ran.append("fail")
        raise ValueError("on purpose")

    tasks.every(0.01, fail, first=0.0)
    tasks.every(0.01, lambda: ran.append("good"), first=0.0)
    tasks.start()
    wait_for(lambda: ran.count("fail") > 2 and ran.count("good") > 2, "several runs")
    tasks.stop()
    count = len(ran)
    assert "on purpose" in caplog.text
    assert len(ran) == count


def test_heartbeat_body_is_plain_json() -> None:
    assert json.loads(HeartbeatData("cid").to_body()) == {
        "clientID": "cid",
        "consumerDataSet": [],
        "producerDataSet": [],
    }
