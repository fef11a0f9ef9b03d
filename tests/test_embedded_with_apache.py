"""An Apache broker at the embedded name server, and an embedded broker at Apache's."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rocketmq_fast as rmq
from rocketmq_fast.embedded import Cluster
from tests.apache import ApacheCluster
from tests.apache.java import body_digest, consume
from tests.embedded_raw import Raw
from tests.require import require
from tests.waiting import wait_for

pytestmark = pytest.mark.apache
ROUTE = 105
FROM_FIRST: dict[str, Any] = {"from": "first"}


class Elsewhere(ApacheCluster):
    """Apache brokers at a name server that is not theirs."""

    def __init__(self, namesrv_addr: str) -> None:
        super().__init__("4.9.4")
        self._elsewhere = namesrv_addr

    @property
    def namesrv_addr(self) -> str:
        return self._elsewhere


def test_an_apache_broker_serves_through_the_embedded_name_server() -> None:
    require("apache")
    with (
        Cluster(broker_name="embedded", cluster_name="Own") as cluster,
        Elsewhere(cluster.namesrv_addr) as apache,
    ):
        apache.create_topic("FromApache", 2)
        bodies = {b"%d" % number for number in range(20)}
        with rmq.Producer("p", namesrv_addr=cluster.namesrv_addr) as producer:
            for body in bodies:
                sent = producer.send(rmq.Message("FromApache", body))
                assert sent.message_queue.broker_name == apache.broker_name
        got: list[bytes] = []
        with rmq.PullConsumer("reader", namesrv_addr=cluster.namesrv_addr) as consumer:
            queues = [rmq.MessageQueue("FromApache", apache.broker_name, n) for n in range(2)]
            consumer.assign(queues)
            consumer.seek_to_begin()

            def all_read() -> bool:
                got.extend(message.body for message in consumer.poll(1.0))
                return len(got) >= len(bodies)

            wait_for(all_read, lambda: f"{len(bodies)} messages, not {len(got)}")
        assert set(got) == bodies
        apache.kill_broker()
        with Raw(cluster.namesrv_addr) as raw:
            wait_for(
                lambda: raw.call(ROUTE, {"topic": "FromApache"}).code == 17,
                "the end of the killed broker's routes",
            )
            route = json.loads(raw.call(ROUTE, {"topic": "SELF_TEST_TOPIC"}).body)
        assert [broker["brokerName"] for broker in route["brokerDatas"]] == ["embedded"]


@pytest.mark.java
def test_an_embedded_broker_serves_java_through_an_apache_name_server(
    apache_494: ApacheCluster,
) -> None:
    address = apache_494.namesrv_addr
    with Cluster(
        name_servers=0, register_at=address, broker_name="guest", cluster_name="Guests"
    ) as guest:
        guest.create_topic("FromGuest", 4)
        bodies = [b"%d" % number for number in range(100)]
        with rmq.Producer("p", namesrv_addr=address) as producer:
            for body in bodies:
                producer.send(rmq.Message("FromGuest", body))
        assert guest.message_count("FromGuest") == 100
        got = consume(address, "FromGuest", "visitors", 100, **FROM_FIRST)
        assert (got["messages"], got["duplicates"]) == (100, 0)
        assert got["digest"] == body_digest(bodies)
        wait_for(  # its last commits are one-way
            lambda: sum(guest.committed("visitors", "FromGuest", n) for n in range(4)) == 100,
            "the progress of the Java consumer",
        )
    with Raw(address) as raw:
        assert raw.call(ROUTE, {"topic": "FromGuest"}).code == 17
