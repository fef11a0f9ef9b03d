"""The embedded cluster as a whole: its class, its name server, its tools, over real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import threading
from pathlib import Path

import pytest

from rocketmq_fast._core import decode_messages
from rocketmq_fast.embedded import Cluster, StoreError
from rocketmq_fast.errors import ClientStateError, ConfigError
from tests.embedded_raw import (
    PULL,
    SEND,
    Raw,
    pull_fields,
    send,
    send_fields,
    texts,
)
from tests.waiting import wait_for

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what the checks are about


# ----------------------------------------------------------------------------- the class


def test_start_stop_and_restart_keep_the_ports(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "store")
    with pytest.raises(ClientStateError):
        _ = cluster.namesrv_addr
    with cluster:
        assert cluster.start() is cluster
        addresses = (cluster.namesrv_addr, cluster.broker_addr)
        with Raw(cluster.broker_addr) as raw:
            send(raw, "T", 0, b"kept")
    assert not cluster.running
    cluster.stop()
    with cluster, Raw(cluster.broker_addr) as raw, Raw(cluster.namesrv_addr) as namesrv:
        assert (cluster.namesrv_addr, cluster.broker_addr) == addresses
        assert namesrv.call(105, {"topic": "T"}).code == 0
        assert texts(raw.call(PULL, pull_fields("T"))) == [b"kept"]


def test_a_temporary_store_disappears_and_threads_end() -> None:
    before = threading.active_count()
    cluster = Cluster()
    with cluster:
        store = cluster.store
        assert store.is_dir()
        assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert not store.exists()
    assert threading.active_count() == before
    with pytest.raises(ClientStateError):
        _ = cluster.store


def test_a_killed_cluster_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
    for round_number in range(3):
        cluster.start()
        with Raw(cluster.broker_addr) as raw:
            sent = [raw.send(SEND, send_fields("T", i % 4), b"%d" % i) for i in range(50)]
            for opaque in sent:
                assert raw.wait(opaque).code == 0
            cluster.kill()
            with pytest.raises(OSError, match=r"."):
                raw.call(30, {"topic": "T", "queueId": "0"})
        cluster.start()
        assert cluster.message_count("T") == 50 * (round_number + 1)
    cluster.stop()


def test_a_store_is_used_by_one_cluster(tmp_path: Path) -> None:
    with Cluster(tmp_path), pytest.raises(StoreError, match="in use"):
        Cluster(tmp_path).start()
    with Cluster(tmp_path):
        pass


def test_only_loopback_without_permission() -> None:
    for host in (EVERYWHERE, "::", "192.0.2.1"):
        with pytest.raises(ConfigError, match="allow_remote"):
            Cluster(host=host)
    with pytest.raises(ConfigError, match="advertised_host"):
        Cluster(host=EVERYWHERE, allow_remote=True)
    with pytest.raises(ConfigError):
        Cluster(host="no such host")
    everywhere = Cluster(host=EVERYWHERE, allow_remote=True, advertised_host="127.0.0.1")
    with everywhere, Raw(everywhere.broker_addr) as raw:
        send(raw, "T", 0, b"x")


def test_unknown_options_name_the_nearest() -> None:
    with pytest.raises(TypeError, match="delay_levels"):
        Cluster(delay_level="1s")
    with pytest.raises(ConfigError):
        Cluster(delay_levels="1x")
    with pytest.raises(ConfigError):
        Cluster(flush_disk_type="MAYBE")


def test_a_taken_port_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        before = threading.active_count()
        with pytest.raises(OSError, match=r"."):
            Cluster(tmp_path, broker_port=port).start()
        with pytest.raises(OSError, match=r"."):
            Cluster(tmp_path, namesrv_port=port).start()
        assert threading.active_count() == before
    with Cluster(tmp_path):
        pass


def loopbacks() -> list[str]:
    """The loopback addresses of this machine; some have no IPv6."""
    found = ["127.0.0.1"]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        found.append("::1")
    return found


@pytest.mark.parametrize("host", loopbacks())
def test_hosts_of_both_families_are_stored_as_such(host: str) -> None:
    with Cluster(host=host) as cluster, Raw(cluster.broker_addr) as raw:
        response = send(raw, "T", 0, b"x")
        assert len(response.ext_fields["msgId"]) == (56 if ":" in host else 32)
        message = decode_messages(raw.call(PULL, pull_fields("T")).body)[0]
        assert message.born_host[0] == host
        assert message.store_host == (host, int(cluster.broker_addr.rpartition(":")[2]))


# ---------------------------------------------------------------------------- name server


def test_routes_in_both_json_forms(fresh_cluster: Cluster, raw_namesrv: Raw) -> None:
    fresh_cluster.create_topic("T", queues=3)
    standard = raw_namesrv.call(105, {"topic": "T"}, version=401)
    route = json.loads(standard.body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": fresh_cluster.broker_addr}
    assert route["queueDatas"] == [
        {"brokerName": "broker-a", "perm": 6, "readQueueNums": 3, "topicSysFlag": 0,
         "writeQueueNums": 3}
    ]  # fmt: skip
    old = raw_namesrv.call(105, {"topic": "T"}, version=399)
    assert b'"brokerAddrs":{0:"' in old.body
    asked = raw_namesrv.call(105, {"topic": "T", "acceptStandardJsonOnly": "true"}, version=399)
    assert asked.body == standard.body
    assert raw_namesrv.call(105, {"topic": "nope"}).code == 17
    assert raw_namesrv.call(105, {}).code == 17
    assert raw_namesrv.call(4711).code == 3


def test_other_brokers_register_over_the_wire(raw_namesrv: Raw, fresh_cluster: Cluster) -> None:
    config = {"order": False, "perm": 6, "readQueueNums": 2, "topicFilterType": "SINGLE_TAG",
              "topicName": "W", "topicSysFlag": 0, "writeQueueNums": 2}  # fmt: skip
    body = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 1, "timestamp": 5},
            "topicConfigTable": {"W": config},
        },
    }
    other = {"brokerName": "other", "brokerAddr": "127.0.0.1:1", "clusterName": "C",
             "brokerId": "0", "haServerAddr": "127.0.0.1:2", "bodyCrc32": "0"}  # fmt: skip
    with Raw(fresh_cluster.namesrv_addr) as registrar:
        assert registrar.call(103, other, json.dumps(body).encode()).code == 0
        slave = {**other, "brokerAddr": "127.0.0.1:3", "brokerId": "1"}
        answer = registrar.call(103, slave, json.dumps(body).encode())
        assert answer.ext_fields["masterAddr"] == "127.0.0.1:1"
        route = json.loads(raw_namesrv.call(105, {"topic": "W"}).body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:1", "1": "127.0.0.1:3"}
        version = raw_namesrv.call(322, other, b'{"counter":1,"timestamp":5}')
        assert version.ext_fields["changed"] == "false"
        listed = json.loads(raw_namesrv.call(224, {"cluster": "C"}).body)
        assert listed["topicList"] == ["W"]
        wiped = raw_namesrv.call(205, {"brokerName": "other"})
        assert wiped.ext_fields["wipeTopicCount"] == "1"
        assert json.loads(raw_namesrv.call(105, {"topic": "W"}).body)["queueDatas"][0]["perm"] == 4
        assert registrar.call(104, slave).code == 0
    # A broker that is gone takes its topics along.
    wait_for(lambda: raw_namesrv.call(105, {"topic": "W"}).code == 17, "the end of the route")
    assert raw_namesrv.call(103, other, b"junk").code == 1


def test_key_values_survive_a_restart(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, order_message_enable=True)
    with cluster, Raw(cluster.namesrv_addr) as raw:
        cluster.create_topic("T")
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
        assert raw.call(101, order).code == 22
        assert raw.call(100, {**order, "value": "broker-a:4"}).code == 0
        assert raw.call(101, order).ext_fields["value"] == "broker-a:4"
    with cluster, Raw(cluster.namesrv_addr) as raw:
        assert json.loads(raw.call(219, order).body) == {"table": {"T": "broker-a:4"}}
        assert json.loads(raw.call(105, {"topic": "T"}).body)["orderTopicConf"] == "broker-a:4"
        assert raw.call(102, order).code == 0
        assert raw.call(101, order).code == 22


# ----------------------------------------------------------------------------------- tools


def test_topics_can_be_created_changed_and_deleted(raw_broker: Raw, raw_namesrv: Raw) -> None:
    fields = {"topic": "C", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2",
              "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
              "order": "false"}  # fmt: skip
    assert raw_broker.call(17, fields).code == 0
    queues = json.loads(raw_namesrv.call(105, {"topic": "C"}).body)["queueDatas"][0]
    assert (queues["readQueueNums"], queues["writeQueueNums"]) == (3, 2)
    for wrong in ({"topic": "TBW102"}, {"topic": "a b"}, {"topicFilterType": "X"},
                  {"perm": "x"}, {"readQueueNums": "99999999"}):  # fmt: skip
        assert raw_broker.call(17, {**fields, **wrong}).code == 1
    send(raw_broker, "C", 0, b"old")
    assert raw_broker.call(215, {"topic": "C"}).code == 0
    assert raw_broker.call(215, {"topic": "../x"}).code == 1
    assert raw_namesrv.call(105, {"topic": "C"}).code == 17
    assert raw_broker.call(17, fields).code == 0
    assert send(raw_broker, "C", 0, b"new").ext_fields["queueOffset"] == "0"


def test_search_by_key(raw_broker: Raw) -> None:
    for i in range(50):
        send(raw_broker, "T", i % 4, b"%d" % i, f"KEYS\x01k{i % 5} all\x02UNIQ_KEY\x01U{i}")
    fields = {"topic": "T", "key": "k3", "maxNum": "64", "beginTimestamp": "0",
              "endTimestamp": str(2**62)}  # fmt: skip
    found = texts(raw_broker.call(12, fields))
    assert found == [b"%d" % i for i in range(48, 0, -5)]
    assert len(texts(raw_broker.call(12, {**fields, "key": "all", "maxNum": "7"}))) == 7
    unique = {**fields, "key": "U17", "_UNIQUE_KEY_QUERY": "true"}
    assert texts(raw_broker.call(12, unique)) == [b"17"]
    assert raw_broker.call(12, {**fields, "key": "zz"}).code == 22
    assert raw_broker.call(12, {**fields, "topic": "U"}).code == 22
