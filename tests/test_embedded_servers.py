"""Several brokers and name servers in one cluster: who is registered where, and until when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketmq_fast as rmq
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.embedded.name_server import BROKER_EXPIRY, NameServer
from rocketmq_fast.errors import ClientStateError, ConfigError
from rocketmq_fast.remoting.loop import EventLoop
from tests.embedded_raw import Raw, pull_fields, send_fields
from tests.waiting import wait_for

ROUTE, CLUSTER, TOPICS, SEND, PULL = 105, 106, 206, 310, 11


@pytest.fixture
def pair() -> Iterator[Cluster]:
    with Cluster(brokers=2, name_servers=2, order_message_enable=True) as running:
        yield running


def ask(address: str, code: int, body: bytes = b"", **fields: str) -> tuple[int, Any]:
    """Code and body of an answer."""
    with Raw(address) as raw:
        answer = raw.call(code, fields, body)
        text = answer.body.decode().replace("{0:", '{"0":')
        return answer.code, json.loads(text) if text else None


def brokers_of(address: str, topic: str) -> dict[str, str]:
    """Name and address of the brokers in a route; nothing when there is none."""
    code, route = ask(address, ROUTE, topic=topic)
    assert code in (0, 17)
    if code:
        return {}
    assert {q["brokerName"] for q in route["queueDatas"]} == {
        b["brokerName"] for b in route["brokerDatas"]
    }
    return {b["brokerName"]: b["brokerAddrs"]["0"] for b in route["brokerDatas"]}


def test_every_name_server_knows_every_broker(pair: Cluster) -> None:
    both = dict(zip(pair.broker_names, pair.broker_addrs, strict=True))
    assert pair.broker_names == ["broker-a", "broker-b"]
    pair.create_topic("T", 2)
    for address in pair.namesrv_addrs:
        assert brokers_of(address, "T") == both
        _, info = ask(address, CLUSTER)
        assert sorted(info["clusterAddrTable"]["DefaultCluster"]) == sorted(both)
        assert "T" in ask(address, TOPICS)[1]["topicList"]
    assert pair.namesrv_addr == ";".join(pair.namesrv_addrs)


def test_a_topic_may_be_on_one_broker_only(pair: Cluster) -> None:
    with Raw(pair.broker_addrs[1]) as raw:
        assert raw.call(SEND, send_fields("Only"), b"x").code == 0
    for address in pair.namesrv_addrs:
        assert brokers_of(address, "Only") == {"broker-b": pair.broker_addrs[1]}
    assert pair.message_count("Only") == 1
    pair.delete_topic("Only")
    assert [brokers_of(address, "Only") for address in pair.namesrv_addrs] == [{}, {}]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_leaves_and_comes_back_elsewhere(tmp_path: Path, end: str) -> None:
    with Cluster(tmp_path, brokers=2, name_servers=2, flush_disk_type="SYNC_FLUSH") as cluster:
        cluster.create_topic("T", 1)
        old = cluster.broker_addrs[1]
        with Raw(old) as raw:
            assert raw.call(SEND, send_fields("T"), b"kept").code == 0
            {"stop": cluster.stop_broker, "kill": cluster.kill_broker}[end](1)
            with pytest.raises(OSError, match=r"."):
                raw.call(SEND, send_fields("T"), b"x")
        for address in cluster.namesrv_addrs:
            assert brokers_of(address, "T") == {"broker-a": cluster.broker_addrs[0]}
        cluster.stop_broker(1)  # nothing to do
        cluster.start_broker(1, port=0)
        cluster.start_broker(1)
        new = cluster.broker_addrs[1]
        assert new != old
        for address in cluster.namesrv_addrs:
            assert brokers_of(address, "T") == {
                "broker-a": cluster.broker_addrs[0], "broker-b": new,
            }  # fmt: skip
        with Raw(new) as raw:
            assert raw.call(PULL, pull_fields("T")).code == 0
    # All stores are saved and released.
    with Cluster(tmp_path, brokers=2) as again:
        assert again.message_count("T") == 1


def test_a_name_server_that_was_away_knows_all_at_once(pair: Cluster) -> None:
    first, second = pair.namesrv_addrs
    pair.stop_namesrv(0)
    with pytest.raises(OSError, match=r"."):
        Raw(first)
    pair.create_topic("Meanwhile", 1)
    assert len(brokers_of(second, "Meanwhile")) == 2
    pair.start_namesrv(0)
    pair.start_namesrv(0)
    assert len(brokers_of(first, "Meanwhile")) == 2
    assert pair.namesrv_addrs == [first, second]


def test_values_and_ordered_topics_outlive_a_restart(tmp_path: Path) -> None:
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
    with Cluster(tmp_path, name_servers=2, order_message_enable=True) as cluster:
        first, second = cluster.namesrv_addrs
        assert ask(first, 100, b"", **order)[0] == 0
        assert json.loads((tmp_path / "config" / "kvConfig.json").read_text()) == {
            "configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4"}}
        }
        assert ask(second, 101, namespace="ORDER_TOPIC_CONFIG", key="T")[0] == 22
    with Cluster(tmp_path, name_servers=2, order_message_enable=True) as cluster:
        cluster.create_topic("T", 4)
        first, second = cluster.namesrv_addrs
        assert ask(first, ROUTE, topic="T")[1]["orderTopicConf"] == "broker-a:4"
        assert "orderTopicConf" not in ask(second, ROUTE, topic="T")[1]
        code, settings = ask(cluster.broker_addr, 21)
        assert code == 0
        table = settings["topicConfigTable"]
        assert [name for name, topic in table.items() if topic["order"]] == ["T"]
        assert ask(first, 102, namespace="ORDER_TOPIC_CONFIG", key="T")[0] == 0
        cluster.create_topic("U", 1)  # the next registration
        table = ask(cluster.broker_addr, 21)[1]["topicConfigTable"]
        assert not any(topic["order"] for topic in table.values())


def test_what_a_broker_forbids_is_in_all_routes() -> None:
    with Cluster(broker_permission=4) as cluster:
        cluster.create_topic("T", 1)
        _, route = ask(cluster.namesrv_addr, ROUTE, topic="T")
        assert [queues["perm"] for queues in route["queueDatas"]] == [4]


def test_a_broker_without_news_is_dropped() -> None:
    """Over the network, as a broker of another process registers; the clock is the test's."""
    now = [1000.0]
    loop = EventLoop("name-server")
    server = NameServer(loop, clock=lambda: now[0])
    server.server.listen("127.0.0.1", 0)
    body = {"topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 1, "timestamp": 2},
        "topicConfigTable": {"T": {"topicName": "T", "perm": 6, "readQueueNums": 1,
                                   "writeQueueNums": 1}}}}  # fmt: skip

    def names(number: int) -> dict[str, str]:
        return {"clusterName": "C", "brokerName": f"b{number}", "brokerId": "0",
                "brokerAddr": f"127.0.0.1:{number}"}  # fmt: skip

    loop.start()
    try:
        server.start()
        address = f"127.0.0.1:{server.server.port}"
        with Raw(address) as one, Raw(address) as two:
            for number, raw in enumerate((one, two), 1):
                answer = raw.call(103, names(number), json.dumps(body).encode())
                assert answer.code == 0
            assert sorted(brokers_of(address, "T")) == ["b1", "b2"]
            now[0] += BROKER_EXPIRY - 1
            same = json.dumps({"counter": 1, "timestamp": 2}).encode()
            assert two.call(322, names(2), same).ext_fields["changed"] == "false"
            now[0] += 2
            loop.call_soon(server.drop_silent)
            with pytest.raises(ConnectionError):
                one.receive()
            assert sorted(brokers_of(address, "T")) == ["b2"]
            assert two.call(104, names(2)).code == 0
            assert brokers_of(address, "T") == {}
    finally:
        loop.call_soon(server.stop_serving)
        loop.stop()


def test_a_cluster_can_register_at_the_name_server_of_another() -> None:
    with Cluster(brokers=2, broker_name="inner-a") as host:
        guest = Cluster(name_servers=0, register_at=host.namesrv_addr, broker_name="guest")
        with guest:
            assert guest.namesrv_addr == host.namesrv_addr
            guest.create_topic("Guests", 3)
            assert brokers_of(host.namesrv_addr, "Guests") == {"guest": guest.broker_addr}
            with rmq.Producer("p", namesrv_addr=host.namesrv_addr) as producer:
                sent = producer.send(rmq.Message("Guests", b"x"))
            assert sent.message_queue.broker_name == "guest"
            guest.kill_broker()
            wait_for(lambda: not brokers_of(host.namesrv_addr, "Guests"), "the end of the broker")
            guest.start_broker()
            assert guest.message_count("Guests") == 1
            assert brokers_of(host.namesrv_addr, "Guests") == {"guest": guest.broker_addr}
        assert brokers_of(host.namesrv_addr, "Guests") == {}


def test_a_name_server_outside_may_be_away() -> None:
    with Cluster() as gone:
        address = gone.namesrv_addr
    with Cluster(register_at=address) as cluster:
        cluster.create_topic("T", 1)
        assert brokers_of(cluster.namesrv_addr, "T") == {"broker-a": cluster.broker_addr}


def test_wrong_numbers_and_stopped_servers() -> None:
    for wrong in ({"brokers": 0}, {"brokers": 27}, {"name_servers": 27}, {"name_servers": 0},
                  {"register_at": "nowhere"}):  # fmt: skip
        with pytest.raises(ConfigError):
            Cluster(**wrong)
    cluster = Cluster(brokers=2)
    with pytest.raises(ClientStateError):
        cluster.stop_broker(1)
    with cluster:
        cluster.stop_broker(1)
        with pytest.raises(ClientStateError, match="broker 1"):
            cluster.committed("G", "T", 0, broker=1)
