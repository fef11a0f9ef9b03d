"""The brokers' second port, and units: what goes where, and what brokers are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rocketmq_fast import (
    Admin,
    LocalTransactionState,
    Message,
    OrderlyStatus,
    Producer,
    TransactionProducer,
    encode_frame,
)
from rocketmq_fast.client.addresses import vip_channel
from rocketmq_fast.protocol.bodies import HeartbeatData
from rocketmq_fast.protocol.codes import RequestCode
from tests.apache import ApacheCluster, java
from tests.apache.settings import free_port
from tests.brokers import TestBroker
from tests.consuming import LATER, SUCCESS, Recorder, bodies, consuming
from tests.proxy import Frame, Proxy
from tests.require import require
from tests.waiting import wait_for

# What stays on the first port (MQClientAPIImpl, 4.9.4).
FIRST_PORT = {
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.PULL_MESSAGE,
}


class TwoPorts:
    """A broker's two ports behind proxies that note the codes of the requests."""

    def __init__(self, broker: TestBroker) -> None:
        real = broker.broker_addr
        # The embedded broker has one port; what is asked of it is the same.
        second = vip_channel(real) if isinstance(broker.cluster, ApacheCluster) else real
        port = free_port((-2, 0))
        self.codes: dict[str, set[int]] = {"first": set(), "second": set()}
        self.frames: list[Frame] = []
        self._lock = threading.Lock()
        self._proxies = [
            self._proxy("first", real, port),
            self._proxy("second", second, port - 2),
        ]
        self.address = f"127.0.0.1:{port}"
        self._real = real.encode()
        self.namesrv = Proxy(broker.namesrv_addr, on_answer=self._redirect)

    def _proxy(self, name: str, target: str, port: int) -> Proxy:
        def note(frame: Frame) -> None:
            with self._lock:
                self.codes[name].add(frame.code)
                self.frames.append(frame)

        return Proxy(target, on_request=note, port=port)

    def _redirect(self, frame: Frame) -> bytes | None:
        command = frame.command
        if self._real not in command.body:
            return None
        command.body = command.body.replace(self._real, self.address.encode())
        return encode_frame(command)

    def close(self) -> None:
        for proxy in (self.namesrv, *self._proxies):
            proxy.close()


@pytest.fixture
def ports(broker: TestBroker) -> Iterator[TwoPorts]:
    made = TwoPorts(broker)
    yield made
    made.close()


def test_address_of_the_second_port() -> None:
    assert vip_channel("10.0.0.1:10911") == "10.0.0.1:10909"
    assert vip_channel("[::1]:10911") == "[::1]:10909"


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_what_goes_over_the_vip_channel(
    broker: TestBroker, ports: TwoPorts, *, orderly: bool
) -> None:
    topic, group = broker.topic(1), broker.group()
    options = {"namesrv_addr": ports.namesrv.address, "vip_channel_enabled": True}
    with Producer(broker.group(), **options) as producer:
        for body in bodies(4):
            producer.send(Message(topic, body))
    if orderly:
        seen = Recorder(lambda *_: OrderlyStatus.SUCCESS)  # type: ignore[arg-type]
    else:
        seen = Recorder(lambda m, _: LATER if m[0].reconsume_times == 0 else SUCCESS)
    with consuming(
        ports.namesrv.address,
        group,
        topic,
        seen,
        vip_channel_enabled=True,
        orderly=orderly,
        persist_consumer_offset_interval=100,
    ):
        seen.wait_deliveries(4 if orderly else 8)
    with Admin(**options) as admin:
        assert admin.max_offset(broker.queue(topic)) == 4
    assert broker.committed(group, topic) == {0: 4}
    second = {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_MAX_OFFSET,
    }
    second |= (
        {RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ}
        if orderly
        else {RequestCode.CONSUMER_SEND_MSG_BACK}
    )
    assert ports.codes["first"] == FIRST_PORT
    assert ports.codes["second"] >= second
    assert not ports.codes["second"] & FIRST_PORT


def test_decisions_stay_on_the_first_port(broker: TestBroker, ports: TwoPorts) -> None:
    commit = LocalTransactionState.COMMIT_MESSAGE
    with TransactionProducer(
        broker.group(),
        execute=lambda *_: commit,
        check=lambda _: commit,
        namesrv_addr=ports.namesrv.address,
        vip_channel_enabled=True,
    ) as producer:
        producer.send_in_transaction(Message(broker.topic(1), b"x"))
        ended = RequestCode.END_TRANSACTION
        wait_for(lambda: ended in ports.codes["first"] | ports.codes["second"], "the decision")
    assert RequestCode.SEND_MESSAGE_V2 in ports.codes["second"]
    assert ended not in ports.codes["second"]


def test_one_port_unless_asked(broker: TestBroker, ports: TwoPorts) -> None:
    topic = broker.topic(1)
    with Producer(broker.group(), namesrv_addr=ports.namesrv.address) as producer:
        producer.send(Message(topic, b"x"))
    seen = Recorder()
    with consuming(ports.namesrv.address, broker.group(), topic, seen):
        seen.wait(1)
    assert ports.codes["second"] == set()


@pytest.mark.java
@pytest.mark.slow
def test_java_divides_requests_in_the_same_way(broker: TestBroker, ports: TwoPorts) -> None:
    require("java")
    topic = broker.topic(1)
    addr = ports.namesrv.address
    java.produce(addr, topic, 3, vip=True)
    java.consume(addr, topic, broker.group(), 3, vip=True, fail=1, **{"from": "first"})
    assert ports.codes["first"] == FIRST_PORT
    assert {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    } <= ports.codes["second"]


def test_units(broker: TestBroker, ports: TwoPorts) -> None:
    topic, group = broker.topic(1), broker.group()
    options = {"unit_name": "east", "unit_mode": True}
    seen = Recorder()
    with Producer(broker.group(), namesrv_addr=ports.namesrv.address, **options) as producer:
        producer.send(Message(topic, b"x"))
    with consuming(ports.namesrv.address, group, topic, seen, **options) as consumer:
        seen.wait(1)
        assert consumer.stats()["client_id"].endswith("@east")
        assert broker.members(group) == [consumer.stats()["client_id"]]
    sends = [f.command for f in ports.frames if f.code == RequestCode.SEND_MESSAGE_V2]
    assert [command.ext_fields["k"] for command in sends] == ["true"]
    told = [
        data
        for frame in ports.frames
        if frame.code == RequestCode.HEART_BEAT
        for data in HeartbeatData.from_body(frame.command.body).consumers
        if data.group_name == group
    ]
    assert told
    assert all(data.unit_mode for data in told)
    if isinstance(broker.cluster, ApacheCluster):
        cluster = broker.cluster

        def flags() -> set[object]:
            route = cluster.route(f"%RETRY%{group}") or {"queueDatas": []}
            names = ("topicSysFlag", "topicSynFlag")
            return {data[n] for data in route["queueDatas"] for n in names if n in data}

        # 2 is "a unit subscribes it" (TopicSysFlag): the broker understood.
        wait_for(lambda: flags() == {2}, lambda: f"the mark on the retry topic; {flags()}")
