"""Members of groups at the embedded broker: offsets, locks, retries, and what they are asked."""

from __future__ import annotations

import json
from pathlib import Path

from rocketmq_fast._core import RemotingCommand, decode_messages, encode_frame
from rocketmq_fast.embedded import Cluster
from tests.embedded_raw import (
    PULL,
    Raw,
    heartbeat,
    lock_body,
    pull_fields,
    send,
    send_fields,
    texts,
)
from tests.waiting import wait_for


def test_members_are_told_of_changes(fresh_cluster: Cluster) -> None:
    body = {"T": ("*", list[int](), 1)}
    with Raw(fresh_cluster.broker_addr) as first, Raw(fresh_cluster.namesrv_addr) as namesrv:
        opaque = first.send(34, None, heartbeat("c1", "G", body))
        assert first.wait_push().code == 40  # comes before the answer
        assert first.wait(opaque).code == 0
        assert namesrv.call(105, {"topic": "%RETRY%G"}).code == 0
        first.call(34, None, heartbeat("c1", "G", body))
        assert first.pushed == []
        with Raw(fresh_cluster.broker_addr) as second:
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


def test_offsets(raw_broker: Raw, fresh_cluster: Cluster) -> None:
    key = {"consumerGroup": "G", "topic": "T", "queueId": "1"}
    assert raw_broker.call(14, key).ext_fields == {"offset": "0"}
    for value in (5, 3, 1000):
        assert raw_broker.call(15, {**key, "commitOffset": str(value)}).code == 0
        assert raw_broker.call(14, key).ext_fields == {"offset": str(value)}
    raw_broker.call(15, {**key, "commitOffset": "-5"})
    assert raw_broker.call(14, key).ext_fields == {"offset": "0"}
    assert raw_broker.call(15, key).code == 1
    assert raw_broker.call(15, {**key, "commitOffset": "x"}).code == 1


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


def test_locks(fresh_cluster: Cluster) -> None:
    def held(raw: Raw, client: str, *queues: int) -> list[int]:
        body = raw.call(41, None, lock_body(client, "G", "T", "broker-a", *queues)).body
        return sorted(key["queueId"] for key in json.loads(body)["lockOKMQSet"])

    with Raw(fresh_cluster.broker_addr) as second:
        with Raw(fresh_cluster.broker_addr) as first:
            first.call(34, None, heartbeat("c1", "G", {"T": ("*", [], 1)}))
            assert held(first, "c1", 0, 1) == [0, 1]
            assert held(second, "c2", 1, 2) == [2]
            assert second.call(42, None, lock_body("c2", "G", "T", "broker-a", 0, 1)).code == 0
            assert held(second, "c2", 0, 1) == []
            first.call(42, None, lock_body("c1", "G", "T", "broker-a", 1))
            assert held(second, "c2", 0, 1) == [1]
        left = {"consumerGroup": "G"}
        wait_for(lambda: second.call(38, left).code == 1, "the end of the connection")
        assert held(second, "c2", 0) == []  # whose client may be in a listener call
        assert second.call(41, None, b"junk").code == 1


def test_lock_of_a_client_that_is_gone_runs_out() -> None:
    with Cluster(lock_expiry_ms=50) as cluster, Raw(cluster.broker_addr) as second:
        with Raw(cluster.broker_addr) as first:
            first.call(41, None, lock_body("c1", "G", "T", "broker-a", 0))

        def lock() -> bytes:
            return second.call(41, None, lock_body("c2", "G", "T", "broker-a", 0)).body

        wait_for(lambda: b'"queueId":0' in lock(), "the lock")


def test_send_back_retries_and_ends_in_the_dead_letter_topic(raw_broker: Raw) -> None:
    sent = send(raw_broker, "T", 0, b"bad", "TAGS\x01A\x02UNIQ_KEY\x01U")
    raw_broker.call(34, None, heartbeat("c", "G", {"T": ("*", [], 1), "%RETRY%G": ("*", [], 1)}))
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
        return raw_broker.call(36, table)

    def held(topic: str, offset: int) -> RemotingCommand:
        fields = pull_fields(topic, 0, offset, sysFlag="6", suspendTimeoutMillis="60000")
        return raw_broker.call(PULL, fields)

    assert back(position).code == 0
    for times in (1, 2):
        response = held("%RETRY%G", times - 1)
        message = decode_messages(response.body)[0]
        assert (message.body, message.reconsume_times) == (b"bad", times)
        assert message.properties["RETRY_TOPIC"] == "T"
        assert message.properties["ORIGIN_MESSAGE_ID"] == sent.ext_fields["msgId"]
        assert message.properties["DELAY"] == str(2 + times)
        assert back(message.commit_log_offset).code == 0
    dead = decode_messages(raw_broker.call(PULL, pull_fields("%DLQ%G")).body)[0]
    assert (dead.body, dead.reconsume_times, dead.tags) == (b"bad", 3, "A")
    assert back(position, delayLevel="-1").code == 0
    assert raw_broker.call(30, {"topic": "%DLQ%G", "queueId": "0"}).ext_fields["offset"] == "2"
    assert back(99_999_999).code == 1
    assert back(position + 1).code == 1


def test_questions_about_consumers_are_passed_on(fresh_cluster: Cluster, raw_broker: Raw) -> None:
    sent = send(raw_broker, "T", 0, b"x")
    with Raw(fresh_cluster.broker_addr) as consumer:
        consumer.call(34, None, heartbeat("c", "G", {"T": ("*", [], 1)}), version=401)
        assert consumer.wait_push().code == 40

        def answer(code: int, body: bytes) -> RemotingCommand:
            request = consumer.wait_push()
            assert (request.code, request.is_oneway) == (code, False)
            response = RemotingCommand(0, None, body, opaque=request.opaque, flag=1)
            consumer.sock.sendall(encode_frame(response))
            return request

        asked = raw_broker.send(
            307, {"consumerGroup": "G", "clientId": "c", "jstackEnable": "false"}
        )
        answer(307, b'{"properties":{}}')
        assert raw_broker.wait(asked).body == b'{"properties":{}}'
        asked = raw_broker.send(
            309, {"consumerGroup": "G", "clientId": "c", "msgId": sent.ext_fields["msgId"]}
        )
        request = answer(309, b"{}")
        assert decode_messages(request.body)[0].body == b"x"
        assert request.ext_fields["brokerName"] == "broker-a"
        assert raw_broker.wait(asked).code == 0
        asked = raw_broker.send(223, {"topic": "T", "group": "G"})
        table = b'{"consumerTable":{},"messageQueueTable":{{"topic":"}{"}:5}}'
        answer(221, table)
        assert raw_broker.wait(asked).body == (
            b'{"consumerTable":{"c":{{"topic":"}{"}:5}},"messageQueueTable":{}}'
        )
        reset = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
        assert raw_broker.call(222, reset).code == 1
        for queue in range(4):
            raw_broker.call(15, {"consumerGroup": "G", "topic": "T", "queueId": str(queue),
                             "commitOffset": "0"})  # fmt: skip
        response = raw_broker.call(222, reset)
        pushed = consumer.wait_push()
        assert (pushed.code, pushed.is_oneway, pushed.body) == (220, True, response.body)
        assert b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:1' in pushed.body
    assert raw_broker.call(307, {"consumerGroup": "G", "clientId": "gone"}).code == 1


def test_a_consumer_that_leaves_while_it_is_asked(fresh_cluster: Cluster, raw_broker: Raw) -> None:
    consumer = Raw(fresh_cluster.broker_addr)
    consumer.call(34, None, heartbeat("c", "G", {"T": ("*", [], 1)}))
    asked = raw_broker.send(307, {"consumerGroup": "G", "clientId": "c"})
    consumer.wait_push()
    consumer.wait_push()
    consumer.close()
    assert raw_broker.wait(asked).code == 1


def test_replies_reach_the_client_that_asked(fresh_cluster: Cluster, raw_broker: Raw) -> None:
    body = {"clientID": "asker", "consumerDataSet": [], "producerDataSet": [{"groupName": "P"}]}
    properties = "\x02".join(
        f"{name}\x01{value}" for name, value in (
            ("MSG_TYPE", "reply"), ("CORRELATION_ID", "c1"), ("REPLY_TO_CLIENT", "asker"),
            ("TTL", "5000"),
        )
    )  # fmt: skip
    fields = send_fields("DefaultCluster_REPLY_TOPIC", 0, i=properties)
    refused = raw_broker.call(325, fields, b"pong")
    assert (refused.code, refused.ext_fields["queueOffset"]) == (1, "0")
    with Raw(fresh_cluster.broker_addr) as asker:
        assert asker.call(34, None, json.dumps(body).encode()).code == 0
        for result in (0, 1):
            sent = raw_broker.send(325, fields, b"pong")
            push = asker.wait_push()
            assert (push.code, push.is_oneway, push.body) == (326, False, b"pong")
            assert push.ext_fields["properties"].startswith(properties)
            assert "PUSH_REPLY_TIME" in push.ext_fields["properties"]
            assert push.ext_fields["topic"] == "DefaultCluster_REPLY_TOPIC"
            assert push.ext_fields["storeHost"] == fresh_cluster.broker_addr
            done = RemotingCommand(result, None, b"", opaque=push.opaque, flag=1)
            asker.sock.sendall(encode_frame(done))
            assert raw_broker.wait(sent).code == result
    assert fresh_cluster.message_count("DefaultCluster_REPLY_TOPIC") == 3
