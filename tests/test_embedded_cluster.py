"""The embedded cluster over real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_fast._core import RemotingCommand, decode_messages, encode_frame, java_hash
from rocketmq_fast.embedded import Cluster, StoreError
from rocketmq_fast.errors import ClientStateError, ConfigError
from rocketmq_fast.protocol import codes
from tests.embedded_raw import Raw, element, heartbeat, lock_body, pull_fields, send_fields

SEND, BATCH, PULL = 310, 320, 11
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what the checks are about


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(delay_levels="1s 1s 1s 1s") as running:
        yield running


@pytest.fixture
def broker(cluster: Cluster) -> Iterator[Raw]:
    with Raw(cluster.broker_addr) as raw:
        yield raw


@pytest.fixture
def namesrv(cluster: Cluster) -> Iterator[Raw]:
    with Raw(cluster.namesrv_addr) as raw:
        yield raw


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that another thread does; fails after half a minute."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def send(raw: Raw, topic: str, queue: int, body: bytes, properties: str = "") -> RemotingCommand:
    response = raw.call(SEND, send_fields(topic, queue, i=properties), body)
    assert response.code == 0, response.remark
    return response


def texts(response: RemotingCommand) -> list[bytes]:
    assert response.code == 0, response.remark
    return [message.body for message in decode_messages(response.body, check_crc=True)]


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


def test_routes_in_both_json_forms(cluster: Cluster, namesrv: Raw) -> None:
    cluster.create_topic("T", queues=3)
    standard = namesrv.call(105, {"topic": "T"}, version=401)
    route = json.loads(standard.body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": cluster.broker_addr}
    assert route["queueDatas"] == [
        {"brokerName": "broker-a", "perm": 6, "readQueueNums": 3, "topicSysFlag": 0,
         "writeQueueNums": 3}
    ]  # fmt: skip
    old = namesrv.call(105, {"topic": "T"}, version=399)
    assert b'"brokerAddrs":{0:"' in old.body
    asked = namesrv.call(105, {"topic": "T", "acceptStandardJsonOnly": "true"}, version=399)
    assert asked.body == standard.body
    assert namesrv.call(105, {"topic": "nope"}).code == 17
    assert namesrv.call(105, {}).code == 17
    assert namesrv.call(4711).code == 3


def test_other_brokers_register_over_the_wire(namesrv: Raw, cluster: Cluster) -> None:
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
    with Raw(cluster.namesrv_addr) as registrar:
        assert registrar.call(103, other, json.dumps(body).encode()).code == 0
        slave = {**other, "brokerAddr": "127.0.0.1:3", "brokerId": "1"}
        answer = registrar.call(103, slave, json.dumps(body).encode())
        assert answer.ext_fields["masterAddr"] == "127.0.0.1:1"
        route = json.loads(namesrv.call(105, {"topic": "W"}).body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:1", "1": "127.0.0.1:3"}
        version = namesrv.call(322, other, b'{"counter":1,"timestamp":5}')
        assert version.ext_fields["changed"] == "false"
        listed = json.loads(namesrv.call(224, {"cluster": "C"}).body)
        assert listed["topicList"] == ["W"]
        wiped = namesrv.call(205, {"brokerName": "other"})
        assert wiped.ext_fields["wipeTopicCount"] == "1"
        assert json.loads(namesrv.call(105, {"topic": "W"}).body)["queueDatas"][0]["perm"] == 4
        assert registrar.call(104, slave).code == 0
    # A broker that is gone takes its topics along.
    eventually(lambda: namesrv.call(105, {"topic": "W"}).code == 17, "the end of the route")
    assert namesrv.call(103, other, b"junk").code == 1


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


# ----------------------------------------------------------------------------------- send


def test_a_send_is_stored_as_apache_stores_it(broker: Raw, cluster: Cluster) -> None:
    properties = "KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01TagA"
    response = send(broker, "T", 1, b"hello-wire", properties)
    assert response.ext_fields["queueOffset"] == "0"
    assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert response.ext_fields["TRACE_ON"] == "true"
    message = decode_messages(broker.call(PULL, pull_fields("T", 1)).body, check_crc=True)[0]
    assert message.body_crc == 768658287
    assert message.offset_msg_id == response.ext_fields["msgId"]
    assert message.properties == {
        "KEYS": "k1 k2", "UNIQ_KEY": "U", "TAGS": "TagA", "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    assert message.born_host == broker.sock.getsockname()
    assert message.store_host == ("127.0.0.1", int(cluster.broker_addr.rpartition(":")[2]))
    viewed = broker.call(33, {"offset": str(message.commit_log_offset)})
    assert decode_messages(viewed.body)[0].body == b"hello-wire"


def test_long_names_and_one_way_sends(broker: Raw) -> None:
    long = {
        "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "7",
        "flag": "9", "properties": "a\x01b", "reconsumeTimes": "2", "unitMode": "false",
    }  # fmt: skip
    assert broker.call(10, long, b"one").code == 0
    broker.send(SEND, send_fields("T", 0), b"two", flag=codes.FLAG_ONEWAY)
    response = broker.call(PULL, pull_fields("T"))
    assert texts(response) == [b"one", b"two"]
    message = decode_messages(response.body)[0]
    assert (message.flag, message.reconsume_times, message.born_timestamp) == (9, 2, 7)


def test_batches_become_single_messages(broker: Raw) -> None:
    body = b"".join(element(b"%d" % i, "TAGS\x01A" if i % 2 else "", flag=i) for i in range(40))
    response = broker.call(BATCH, send_fields("T", 0, m="true", i="WAIT\x01true"), body)
    assert response.code == 0
    ids = response.ext_fields["msgId"].split(",")
    got = broker.call(PULL, pull_fields("T", maxMsgNums="100"))
    assert texts(got) == [b"%d" % i for i in range(32)]
    batch = decode_messages(got.body)
    assert [m.offset_msg_id for m in batch] == ids[:32]
    assert [m.flag for m in batch] == list(range(32))
    assert batch[1].properties == {"TAGS": "A", "WAIT": "true", "CLUSTER": "DefaultCluster"}
    tagged = broker.call(PULL, pull_fields("T", subscription="A"))
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
    broker: Raw, fields: dict[str, str], body: bytes, code: int
) -> None:
    send(broker, "T", 0, b"before")
    response = broker.call(SEND, fields, body)
    assert response.code == code, response.remark
    assert response.remark
    assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
    send(broker, "T", 0, b"after")
    assert texts(broker.call(PULL, pull_fields("T"))) == [b"before", b"after"]


def test_the_largest_body_is_taken(broker: Raw) -> None:
    send(broker, "T", 0, b"x" * (4 << 20))
    assert len(texts(broker.call(PULL, pull_fields("T")))[0]) == 4 << 20


def test_delay_levels(broker: Raw) -> None:
    send(broker, "T", 2, b"late", "DELAY\x012\x02TAGS\x01A\x02WAIT\x01true")
    assert broker.call(PULL, pull_fields("T", 2)).code == 19
    held = pull_fields("T", 2, sysFlag="6", suspendTimeoutMillis="15000", subscription="A")
    message = decode_messages(broker.call(PULL, held).body)[0]
    assert message.body == b"late"
    assert message.properties == {
        "DELAY": "2", "TAGS": "A", "WAIT": "true", "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "T", "REAL_QID": "2",
    }  # fmt: skip
    assert message.store_timestamp - message.born_timestamp > 1000
    levels = broker.call(45).body
    assert levels == b'{"offsetTable":{2:1}}'


# ----------------------------------------------------------------------------------- pull


def test_pull_codes(broker: Raw, cluster: Cluster) -> None:
    send(broker, "T", 0, b"x", "TAGS\x01A")
    cluster.create_topic("W", perm=2)

    def code(topic: str = "T", queue: int = 0, offset: int = 0, **fields: str | None) -> int:
        return broker.call(PULL, pull_fields(topic, queue, offset, **fields)).code

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
    moved = broker.call(PULL, pull_fields("T", 0, 9))
    assert moved.ext_fields == {
        "suggestWhichBrokerId": "0", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1",
    }  # fmt: skip


def test_a_pull_uses_the_subscription_of_the_heartbeat(broker: Raw) -> None:
    send(broker, "T", 0, b"a", "TAGS\x01A")
    send(broker, "T", 0, b"b", "TAGS\x01B")
    own = {"consumerGroup": "G", "sysFlag": "0", "subscription": None}

    def pull(version: int, topic: str = "T") -> RemotingCommand:
        return broker.call(PULL, pull_fields(topic, subVersion=str(version), **own))

    assert pull(1).code == 24
    assert broker.call(34, None, heartbeat("c", "G", {"T": ("B", [java_hash("B")], 5)})).code == 0
    assert texts(pull(5)) == [b"b"]
    assert pull(6).code == 25
    assert broker.call(34, None, heartbeat("c", "G", {"T": ("A", [java_hash("A")], 4)})).code == 0
    assert texts(pull(5)) == [b"b"]
    assert broker.call(34, None, heartbeat("c", "G", {"T": ("*", [], 6)})).code == 0
    assert texts(pull(6)) == [b"a", b"b"]
    assert pull(6, "BenchmarkTest").code == 24


def test_the_commit_that_comes_with_a_pull(broker: Raw, cluster: Cluster) -> None:
    send(broker, "T", 0, b"x")
    broker.call(PULL, pull_fields("T", sysFlag="5", commitOffset="7"))
    assert cluster.committed("CG", "T", 0) == 7
    broker.call(PULL, pull_fields("T", sysFlag="4", commitOffset="9"))
    assert cluster.committed("CG", "T", 0) == 7


def test_a_held_pull_wakes_on_arrival(broker: Raw, cluster: Cluster) -> None:
    cluster.create_topic("T")
    held = broker.send(PULL, pull_fields("T", sysFlag="6", suspendTimeoutMillis="60000"))
    tagged = broker.send(
        PULL, pull_fields("T", sysFlag="6", suspendTimeoutMillis="60000", subscription="B")
    )
    with Raw(cluster.broker_addr) as producer:
        send(producer, "T", 1, b"other queue", "TAGS\x01B")
        send(producer, "T", 0, b"a", "TAGS\x01A")
        assert texts(broker.wait(held)) == [b"a"]
        send(producer, "T", 0, b"b", "TAGS\x01B")
    assert texts(broker.wait(tagged)) == [b"b"]


def test_a_held_pull_answers_in_json_also_to_compact_requests(cluster: Cluster) -> None:
    cluster.create_topic("T")
    with Raw(cluster.broker_addr, serialize_type=1) as raw, Raw(cluster.broker_addr) as producer:
        held = raw.send(PULL, pull_fields("T", sysFlag="6", suspendTimeoutMillis="60000"))
        send(producer, "T", 0, b"a")
        response = raw.wait(held)
        assert (response.serialize_type, texts(response)) == (0, [b"a"])
        assert raw.call(PULL, pull_fields("T")).serialize_type == 1
        assert raw.call(30, {"topic": "T"}).serialize_type == 0


@pytest.mark.slow
def test_a_held_pull_ends_after_its_time(broker: Raw, cluster: Cluster) -> None:
    cluster.create_topic("T")
    start = time.monotonic()
    held = pull_fields("T", sysFlag="6", suspendTimeoutMillis="1000")
    response = broker.call(PULL, held)
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (19, "0")
    assert time.monotonic() - start >= 1


def test_many_held_pulls_of_closed_connections_are_forgotten(cluster: Cluster) -> None:
    cluster.create_topic("T")
    for _ in range(20):
        raw = Raw(cluster.broker_addr)
        for _ in range(20):
            raw.send(PULL, pull_fields("T", sysFlag="6", suspendTimeoutMillis="60000"))
        raw.call(30, {"topic": "T", "queueId": "0"})
        raw.close()
    inner = cluster._broker
    assert inner is not None
    eventually(lambda: inner.pulls.parked_count == 0, "the end of the held pulls")
    with Raw(cluster.broker_addr) as raw:
        send(raw, "T", 0, b"x")


# ------------------------------------------------------------------------------ membership


def test_members_are_told_of_changes(cluster: Cluster) -> None:
    body = {"T": ("*", list[int](), 1)}
    with Raw(cluster.broker_addr) as first, Raw(cluster.namesrv_addr) as namesrv:
        opaque = first.send(34, None, heartbeat("c1", "G", body))
        assert first.wait_push().code == 40  # comes before the answer
        assert first.wait(opaque).code == 0
        assert namesrv.call(105, {"topic": "%RETRY%G"}).code == 0
        first.call(34, None, heartbeat("c1", "G", body))
        assert first.pushed == []
        with Raw(cluster.broker_addr) as second:
            second.call(34, None, heartbeat("c2", "G", body))
            assert second.wait_push().ext_fields == {"consumerGroup": "G"}
            pushed = first.wait_push()
            assert (pushed.code, pushed.is_oneway) == (40, True)
            ids = json.loads(first.call(38, {"consumerGroup": "G"}).body)["consumerIdList"]
            assert sorted(ids) == ["c1", "c2"]
            connections = json.loads(first.call(203, {"consumerGroup": "G"}).body)
            assert len(connections["connectionSet"]) == 2
            assert connections["subscriptionTable"]["T"]["subString"] == "*"
        assert first.wait_push().code == 40  # the second one has gone
        assert json.loads(first.call(38, {"consumerGroup": "G"}).body)["consumerIdList"] == ["c1"]
        assert first.call(35, {"clientID": "c1", "consumerGroup": "G"}).code == 0
        assert first.call(38, {"consumerGroup": "G"}).code == 1
        assert first.call(203, {"consumerGroup": "G"}).code == 206


def test_offsets(broker: Raw, cluster: Cluster) -> None:
    key = {"consumerGroup": "G", "topic": "T", "queueId": "1"}
    assert broker.call(14, key).ext_fields == {"offset": "0"}
    for value in (5, 3, 1000):
        assert broker.call(15, {**key, "commitOffset": str(value)}).code == 0
        assert broker.call(14, key).ext_fields == {"offset": str(value)}
    broker.call(15, {**key, "commitOffset": "-5"})
    assert broker.call(14, key).ext_fields == {"offset": "0"}
    assert broker.call(15, key).code == 1
    assert broker.call(15, {**key, "commitOffset": "x"}).code == 1


def test_offsets_survive_a_stop_and_two_groups_read_everything(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster, Raw(cluster.broker_addr) as raw:
        for i in range(10):
            send(raw, "T", 0, b"%d" % i)
        for group in ("G1", "G2"):
            assert len(texts(raw.call(PULL, pull_fields("T", consumerGroup=group)))) == 10
        raw.call(15, {"consumerGroup": "G1", "topic": "T", "queueId": "0", "commitOffset": "6"})
    with cluster, Raw(cluster.broker_addr) as raw:
        key = {"topic": "T", "queueId": "0"}
        assert raw.call(14, {"consumerGroup": "G1", **key}).ext_fields["offset"] == "6"
        assert raw.call(14, {"consumerGroup": "G2", **key}).ext_fields["offset"] == "0"
        stats = raw.call(208, {"consumerGroup": "G1"}).body
        assert b'"brokerOffset":10,"consumerOffset":6' in stats


def test_locks(cluster: Cluster) -> None:
    def held(raw: Raw, client: str, *queues: int) -> list[int]:
        body = raw.call(41, None, lock_body(client, "G", "T", "broker-a", *queues)).body
        return sorted(key["queueId"] for key in json.loads(body)["lockOKMQSet"])

    with Raw(cluster.broker_addr) as second:
        with Raw(cluster.broker_addr) as first:
            first.call(34, None, heartbeat("c1", "G", {"T": ("*", [], 1)}))
            assert held(first, "c1", 0, 1) == [0, 1]
            assert held(second, "c2", 1, 2) == [2]
            assert second.call(42, None, lock_body("c2", "G", "T", "broker-a", 0, 1)).code == 0
            assert held(second, "c2", 0, 1) == []
            first.call(42, None, lock_body("c1", "G", "T", "broker-a", 1))
            assert held(second, "c2", 0, 1) == [1]
        eventually(lambda: held(second, "c2", 0) == [0], "the release of a lost client's lock")
        assert second.call(41, None, b"junk").code == 1


def test_send_back_retries_and_ends_in_the_dead_letter_topic(broker: Raw) -> None:
    sent = send(broker, "T", 0, b"bad", "TAGS\x01A\x02UNIQ_KEY\x01U")
    broker.call(34, None, heartbeat("c", "G", {"T": ("*", [], 1), "%RETRY%G": ("*", [], 1)}))
    position = int(sent.ext_fields["msgId"][16:], 16)

    def back(at: int, **fields: str) -> RemotingCommand:
        table = {
            "offset": str(at),
            "group": "G",
            "delayLevel": "0",
            "originMsgId": "U",
            "originTopic": "T",
            "unitMode": "false",
            "maxReconsumeTimes": "2",
            **fields,
        }
        return broker.call(36, table)

    def held(topic: str, offset: int) -> RemotingCommand:
        fields = pull_fields(topic, 0, offset, sysFlag="6", suspendTimeoutMillis="60000")
        return broker.call(PULL, fields)

    assert back(position).code == 0
    for times in (1, 2):
        response = held("%RETRY%G", times - 1)
        message = decode_messages(response.body)[0]
        assert (message.body, message.reconsume_times) == (b"bad", times)
        assert message.properties["RETRY_TOPIC"] == "T"
        assert message.properties["ORIGIN_MESSAGE_ID"] == sent.ext_fields["msgId"]
        assert message.properties["DELAY"] == str(2 + times)
        assert back(message.commit_log_offset).code == 0
    dead = decode_messages(broker.call(PULL, pull_fields("%DLQ%G")).body)[0]
    assert (dead.body, dead.reconsume_times, dead.tags) == (b"bad", 3, "A")
    assert back(position, delayLevel="-1").code == 0
    assert broker.call(30, {"topic": "%DLQ%G", "queueId": "0"}).ext_fields["offset"] == "2"
    assert back(99_999_999).code == 1
    assert back(position + 1).code == 1


# ----------------------------------------------------------------------------------- tools


def test_topics_can_be_created_changed_and_deleted(broker: Raw, namesrv: Raw) -> None:
    fields = {"topic": "C", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2",
              "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
              "order": "false"}  # fmt: skip
    assert broker.call(17, fields).code == 0
    queues = json.loads(namesrv.call(105, {"topic": "C"}).body)["queueDatas"][0]
    assert (queues["readQueueNums"], queues["writeQueueNums"]) == (3, 2)
    for wrong in ({"topic": "TBW102"}, {"topic": "a b"}, {"topicFilterType": "X"},
                  {"perm": "x"}, {"readQueueNums": "99999999"}):  # fmt: skip
        assert broker.call(17, {**fields, **wrong}).code == 1
    send(broker, "C", 0, b"old")
    assert broker.call(215, {"topic": "C"}).code == 0
    assert broker.call(215, {"topic": "../x"}).code == 1
    assert namesrv.call(105, {"topic": "C"}).code == 17
    assert broker.call(17, fields).code == 0
    assert send(broker, "C", 0, b"new").ext_fields["queueOffset"] == "0"


def test_search_by_key(broker: Raw) -> None:
    for i in range(50):
        send(broker, "T", i % 4, b"%d" % i, f"KEYS\x01k{i % 5} all\x02UNIQ_KEY\x01U{i}")
    fields = {"topic": "T", "key": "k3", "maxNum": "64", "beginTimestamp": "0",
              "endTimestamp": str(2**62)}  # fmt: skip
    found = texts(broker.call(12, fields))
    assert found == [b"%d" % i for i in range(48, 0, -5)]
    assert len(texts(broker.call(12, {**fields, "key": "all", "maxNum": "7"}))) == 7
    unique = {**fields, "key": "U17", "_UNIQUE_KEY_QUERY": "true"}
    assert texts(broker.call(12, unique)) == [b"17"]
    assert broker.call(12, {**fields, "key": "zz"}).code == 22
    assert broker.call(12, {**fields, "topic": "U"}).code == 22


def test_questions_about_consumers_are_passed_on(cluster: Cluster, broker: Raw) -> None:
    sent = send(broker, "T", 0, b"x")
    with Raw(cluster.broker_addr) as consumer:
        consumer.call(34, None, heartbeat("c", "G", {"T": ("*", [], 1)}), version=401)
        assert consumer.wait_push().code == 40

        def answer(code: int, body: bytes) -> RemotingCommand:
            request = consumer.wait_push()
            assert (request.code, request.is_oneway) == (code, False)
            response = RemotingCommand(0, None, body, opaque=request.opaque, flag=1)
            consumer.sock.sendall(encode_frame(response))
            return request

        asked = broker.send(307, {"consumerGroup": "G", "clientId": "c", "jstackEnable": "false"})
        answer(307, b'{"properties":{}}')
        assert broker.wait(asked).body == b'{"properties":{}}'
        asked = broker.send(
            309, {"consumerGroup": "G", "clientId": "c", "msgId": sent.ext_fields["msgId"]}
        )
        request = answer(309, b"{}")
        assert decode_messages(request.body)[0].body == b"x"
        assert request.ext_fields["brokerName"] == "broker-a"
        assert broker.wait(asked).code == 0
        asked = broker.send(223, {"topic": "T", "group": "G"})
        table = b'{"consumerTable":{},"messageQueueTable":{{"topic":"}{"}:5}}'
        answer(221, table)
        assert broker.wait(asked).body == (
            b'{"consumerTable":{"c":{{"topic":"}{"}:5}},"messageQueueTable":{}}'
        )
        reset = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
        assert broker.call(222, reset).code == 1
        for queue in range(4):
            broker.call(15, {"consumerGroup": "G", "topic": "T", "queueId": str(queue),
                             "commitOffset": "0"})  # fmt: skip
        response = broker.call(222, reset)
        pushed = consumer.wait_push()
        assert (pushed.code, pushed.is_oneway, pushed.body) == (220, True, response.body)
        assert b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:1' in pushed.body
    assert broker.call(307, {"consumerGroup": "G", "clientId": "gone"}).code == 1


def test_a_consumer_that_leaves_while_it_is_asked(cluster: Cluster, broker: Raw) -> None:
    consumer = Raw(cluster.broker_addr)
    consumer.call(34, None, heartbeat("c", "G", {"T": ("*", [], 1)}))
    asked = broker.send(307, {"consumerGroup": "G", "clientId": "c"})
    consumer.wait_push()
    consumer.wait_push()
    consumer.close()
    assert broker.wait(asked).code == 1


def test_replies_reach_the_client_that_asked(cluster: Cluster, broker: Raw) -> None:
    body = {"clientID": "asker", "consumerDataSet": [], "producerDataSet": [{"groupName": "P"}]}
    properties = "\x02".join(
        f"{name}\x01{value}" for name, value in (
            ("MSG_TYPE", "reply"), ("CORRELATION_ID", "c1"), ("REPLY_TO_CLIENT", "asker"),
            ("TTL", "5000"),
        )
    )  # fmt: skip
    fields = send_fields("DefaultCluster_REPLY_TOPIC", 0, i=properties)
    refused = broker.call(325, fields, b"pong")
    assert (refused.code, refused.ext_fields["queueOffset"]) == (1, "0")
    with Raw(cluster.broker_addr) as asker:
        assert asker.call(34, None, json.dumps(body).encode()).code == 0
        for result in (0, 1):
            sent = broker.send(325, fields, b"pong")
            push = asker.wait_push()
            assert (push.code, push.is_oneway, push.body) == (326, False, b"pong")
            assert push.ext_fields["properties"].startswith(properties)
            assert "PUSH_REPLY_TIME" in push.ext_fields["properties"]
            assert push.ext_fields["topic"] == "DefaultCluster_REPLY_TOPIC"
            assert push.ext_fields["storeHost"] == cluster.broker_addr
            done = RemotingCommand(result, None, b"", opaque=push.opaque, flag=1)
            asker.sock.sendall(encode_frame(done))
            assert broker.wait(sent).code == result
    assert cluster.message_count("DefaultCluster_REPLY_TOPIC") == 3


# ----------------------------------------------------------------------------------- abuse


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF) + b"\0" * 8,
        struct.pack(">iI", 8, 0xFFFF) + b"\0" * 4,
        struct.pack(">iI", 6, 2) + b"{{",
        struct.pack(">iI", 8, 7 << 24 | 4) + b"\0" * 4,
        struct.pack(">iI", 4, 0),
    ],
)
def test_bytes_that_are_no_frame_end_their_connection_only(cluster: Cluster, data: bytes) -> None:
    for address in (cluster.broker_addr, cluster.namesrv_addr):
        with Raw(address) as good, Raw(address) as bad:
            bad.sock.sendall(data)
            assert bad.sock.recv(100) == b""
            assert good.call(4711).code == 3


def test_garbage_in_every_request_never_stops_the_server(cluster: Cluster) -> None:
    """Each code the server knows, with nothing, junk and too much in it."""
    served = cluster._broker
    assert served is not None
    known = sorted(served._dispatcher.codes)
    assert len(known) > 40
    with Raw(cluster.broker_addr) as raw:
        for code in known:
            for fields in ({}, {"topic": "T", "group": "G", "queueId": "99999999999"}):
                for body in (b"", b"junk", b"[]", b"{}", b"[" * 5000, b"\xff" * 64,
                             b'{"clientID":5,"consumerDataSet":{},"mqSet":[5]}'):  # fmt: skip
                    response = raw.call(code, fields, body)
                    assert response.code in (0, 1, 3, 13, 16, 17, 22, 24, 206), (code, fields, body)
        assert raw.call(30, {"topic": "T", "queueId": "0"}).code == 0


def test_a_slow_reader_does_not_hold_up_others(cluster: Cluster, broker: Raw) -> None:
    body = b"x" * 60_000
    for _ in range(4):
        send(broker, "T", 0, body)
    slow = Raw(cluster.broker_addr)
    for _ in range(300):  # 70 MB of answers that nobody reads
        slow.send(PULL, pull_fields("T"))
    for _ in range(50):
        assert broker.call(30, {"topic": "T", "queueId": "0"}).ext_fields["offset"] == "4"
    slow.close()


def test_many_connections_at_once(cluster: Cluster) -> None:
    raws = [Raw(cluster.broker_addr) for _ in range(200)]
    for index, raw in enumerate(raws):
        raw.send(SEND, send_fields("T", index % 4), b"%d" % index)
    for raw in raws:
        raw.receive()
        raw.close()
    assert cluster.message_count("T") == 200


def test_no_more_connections_than_allowed() -> None:
    with Cluster(max_connections=3) as cluster:
        raws = [Raw(cluster.broker_addr) for _ in range(3)]
        for raw in raws:
            assert raw.call(4711).code == 3
        with Raw(cluster.broker_addr) as extra:
            assert extra.sock.recv(10) == b""
        assert raws[0].call(4711).code == 3
        for raw in raws:
            raw.close()
