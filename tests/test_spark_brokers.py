"""Access to the cluster from the data source, on the embedded cluster and without one."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_fast.errors import (
    ConfigError,
    ConnectError,
    NoNameServer,
    TopicRouteNotFound,
)
from rocketmq_fast.model import MessageQueue
from tests.fix_spark import Filled
from tests.require import require

require("spark")  # before what imports pyspark

from rocketmq_fast.spark.brokers import Brokers, cached_brokers, retrying  # noqa: E402
from rocketmq_fast.spark.option_parser import ConnectOptions  # noqa: E402


def test_bounds_of_all_queues(spark_cluster: Any, spark_topic: Filled) -> None:
    spark_cluster.create_topic("SparkWide", queues=300)
    brokers = Brokers(ConnectOptions((spark_cluster.namesrv_addr,)))
    try:
        queues, addresses = brokers.queues(["SparkRead", "SparkWide"])
        assert len(queues) == 304
        assert addresses == {spark_cluster.broker_name: spark_cluster.broker_addr}
        bounds = brokers.bounds(queues, addresses)
        assert list(bounds) == queues
        found = {queue.queue_id: bounds[queue] for queue in queues if queue.topic == "SparkRead"}
        assert found == {0: (0, 2500), 1: (0, 1400), 2: (0, 100), 3: (0, 0)}
        with pytest.raises(TopicRouteNotFound, match="SparkNowhere"):
            brokers.queues(["SparkNowhere"])
        assert brokers.bounds([], addresses) == {}
    finally:
        brokers.close()


def test_nobody_there() -> None:
    brokers = Brokers(ConnectOptions(("127.0.0.1:1",)))
    try:
        with pytest.raises(NoNameServer, match=r"127\.0\.0\.1:1"):
            brokers.queues(["T"])
        queue = MessageQueue("T", "broker-a", 0)
        with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
            brokers.bounds([queue], {"broker-a": "127.0.0.1:1"})
    finally:
        brokers.close()


def test_one_client_per_process_until_a_task_is_retried(spark_topic: Filled) -> None:
    key = ConnectOptions((spark_topic.namesrv_addr,))
    first = cached_brokers(key)
    assert cached_brokers(key) is first
    second = cached_brokers(key, fresh=True)
    try:
        assert second is not first
        assert first.client.closed
        assert cached_brokers(key) is second
        assert second.queues(["SparkRead"])[0]
    finally:
        second.close()
        cached_brokers(key, fresh=True).close()


@pytest.mark.parametrize(
    ("failures", "error", "calls"),
    [(0, None, 1), (2, None, 3), (3, NoNameServer, 3), (1, ConfigError, 1)],
)
def test_what_can_pass_is_tried_again(
    failures: int, error: type[Exception] | None, calls: int
) -> None:
    made = 0

    def action() -> str:
        nonlocal made
        made += 1
        if made <= failures:
            raise (error or NoNameServer)("nobody")
        return "done"

    if error is None:
        assert retrying(action, 2, 0.0) == "done"
    else:
        with pytest.raises(error):
            retrying(action, 2, 0.0)
    assert made == calls
