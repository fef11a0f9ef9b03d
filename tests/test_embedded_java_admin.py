"""mqadmin 4.9.4 at an embedded cluster of two brokers and two name servers."""

from __future__ import annotations

import json
import threading

import pytest

import rocketmq_fast as rmq
from rocketmq_fast.embedded import Cluster
from tests.apache.java import run_java
from tests.embedded_raw import Raw
from tests.require import require
from tests.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_mqadmin_reads_and_changes_the_cluster() -> None:
    require("java")
    with Cluster(brokers=2, name_servers=2) as cluster:
        cluster.create_topic("Orders", 1)
        with rmq.Producer("p", namesrv_addr=cluster.namesrv_addr) as producer:
            first = [
                producer.send(
                    rmq.Message("Orders", b"x", keys=f"key-{name}"),
                    queue=rmq.MessageQueue("Orders", name, 0),
                )
                for name in cluster.broker_names
            ]
        done = threading.Event()
        seen: list[bytes] = []

        def listener(messages: list[rmq.MessageExt], _: object) -> rmq.ConsumeStatus:
            seen.extend(message.body for message in messages)
            if len(seen) >= 2:
                done.set()
            return rmq.ConsumeStatus.CONSUME_SUCCESS

        consumer = rmq.PushConsumer(
            "readers", namesrv_addr=cluster.namesrv_addr,
            consume_from_where=rmq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            persist_consumer_offset_interval=100,
        )  # fmt: skip
        consumer.subscribe("Orders")
        consumer.register_listener(listener)
        consumer.start()
        try:
            assert done.wait(30)
            wait_for(
                lambda: [cluster.committed("readers", "Orders", 0, n) for n in (0, 1)] == [1, 1],
                "the progress of both brokers",
            )
            said = admin(cluster, first[1].offset_msg_id)
        finally:
            consumer.shutdown()
        for address in cluster.namesrv_addrs:
            with Raw(address) as raw:
                route = json.loads(raw.call(105, {"topic": "Orders"}).body)
            perms = {queues["brokerName"]: queues["perm"] for queues in route["queueDatas"]}
            assert perms == {"broker-a": 6, "broker-b": 4}, said
        with Raw(cluster.namesrv_addrs[1]) as raw:
            order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Orders"}
            assert raw.call(101, order).ext_fields["value"] == "broker-a:1"


def admin(cluster: Cluster, msg_id: str | None) -> list[str]:
    """Run the commands, and look for what each has to say."""
    both = [*cluster.broker_names, *cluster.broker_addrs]
    expected: dict[str, list[str]] = {
        "topicList": ["Orders", "%RETRY%readers", "SELF_TEST_TOPIC"],
        "clusterList": [*both, "V4_9_4"],
        "topicRoute -t Orders": both,
        "topicStatus -t Orders": cluster.broker_names,
        "consumerProgress -g readers": ["Orders", *cluster.broker_names, "Diff Total: "],
        "consumerConnection -g readers": ["PYTHON", "CONSUME_PASSIVELY", "Orders"],
        f"queryMsgById -i {msg_id}": ["key-broker-b", "Orders"],
        "queryMsgByKey -t Orders -k key-broker-a": ["0"],
        "resetOffsetByTime -g readers -t Orders -s -1": cluster.broker_names,
        "updateOrderConf -m put -t Orders -v broker-a:1": ["success"],
        "wipeWritePerm -b broker-b": ["OK", *cluster.namesrv_addrs],
    }
    said: list[str] = run_java(
        "Admin", [f"{command} -n {cluster.namesrv_addr}" for command in expected]
    )["outputs"]
    for (command, words), text in zip(expected.items(), said, strict=True):
        for word in words:
            assert word in text, f"{command}: no {word!r} in\n{text}"
        assert "Exception" not in text, f"{command}:\n{text}"
    return said
