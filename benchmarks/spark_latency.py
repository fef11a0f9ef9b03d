"""From the call of send to the sink, at a low rate and a trigger of a second."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rocketmq_fast as rmq
from benchmarks.measure import say
from tests.apache import ApacheCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from rocketmq_fast.embedded import Cluster

TRIGGER = "1 second"
PERIOD_SECONDS = 0.1
# Until the first micro-batch came through, Spark compiles and starts processes.
WARM_SECONDS = 20.0
_END_SECONDS = 60.0


def latencies(
    spark: SparkSession,
    cluster: ApacheCluster | Cluster,
    scratch: Path,
    seconds: float,
    *,
    warm_seconds: float = WARM_SECONDS,
    trigger: str = TRIGGER,
) -> dict[str, Any]:
    """Ten messages a second, each with the time it was sent at; how old they were at the sink."""
    topic = f"SparkLatency_{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 4)
    ages: list[float] = []
    arrived = threading.Condition()

    def sink(frame: DataFrame, number: int) -> None:
        rows = frame.collect()
        now = time.time_ns()
        with arrived:
            ages.extend((now - int(row.body)) / 1e6 for row in rows)
            arrived.notify_all()

    query = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", cluster.namesrv_addr)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "body")
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(scratch / topic))
        .trigger(processingTime=trigger)
        .start()
    )
    try:
        with rmq.Producer("spark_latency", namesrv_addr=cluster.namesrv_addr) as producer:
            warm = _send(producer, topic, warm_seconds)
            _wait(query, arrived, lambda: len(ages) >= warm)
            ages.clear()
            sent = _send(producer, topic, seconds)
            _wait(query, arrived, lambda: len(ages) >= sent)
    finally:
        query.stop()
    cuts = statistics.quantiles(ages, n=100)
    result = {
        "messages": sent,
        "trigger": trigger,
        "period_seconds": PERIOD_SECONDS,
        "median_ms": statistics.median(ages),
        "p99_ms": cuts[98],
        "least_ms": min(ages),
        "most_ms": max(ages),
        "batch_ms": statistics.median(
            one["durationMs"]["triggerExecution"]
            for one in query.recentProgress
            if one["numInputRows"]
        ),
    }
    say(f"latency: median {result['median_ms']:.0f} ms, p99 {result['p99_ms']:.0f} ms")
    return result


def _send(producer: rmq.Producer, topic: str, seconds: float) -> int:
    """Send at even times; how many."""
    began = time.monotonic()
    count = 0
    while time.monotonic() < began + seconds:
        producer.send(rmq.Message(topic, str(time.time_ns()).encode()))
        count += 1
        time.sleep(max(0.0, began + count * PERIOD_SECONDS - time.monotonic()))
    return count


def _wait(query: StreamingQuery, arrived: threading.Condition, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _END_SECONDS
    with arrived:
        while not arrived.wait_for(done, 1.0):
            error = query.exception()
            if error is not None:
                raise error
            if time.monotonic() > deadline:
                raise AssertionError("not all messages came to the sink")
