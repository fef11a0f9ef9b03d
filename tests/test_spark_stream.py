"""Streams through Spark: every message once, over restarts and failures."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_fast.model import MessageQueue
from tests.fix_spark import SECONDS, Filled, fill, jobs_so_far, started, to_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.brokers import TestBroker

pytestmark = pytest.mark.spark

COLUMNS = "queueId,queueOffset,body"


def stream(spark: SparkSession, filled: Filled, **more: object) -> DataFrame:
    options = filled.options(columns=COLUMNS, latestOffsetIntervalMs=0, **more)
    return spark.readStream.format("rocketmq").options(**options).load()


def rows_of(spark: SparkSession, place: Path) -> list[tuple[int, int, str]]:
    from pyspark.sql import functions

    frame = spark.read.schema("queueId int, queueOffset bigint, body binary")
    chosen = frame.parquet(str(place / "rows")).select(
        "queueId", "queueOffset", functions.sha2("body", 256).alias("hash")
    )
    return [(row.queueId, row.queueOffset, row.hash) for row in chosen.collect()]


def expected_rows(filled: Filled) -> list[tuple[int, int, str]]:
    return sorted(
        (queue_id, offset, hashlib.sha256(body).hexdigest())
        for queue_id, bodies in filled.bodies.items()
        for offset, body in enumerate(bodies)
    )


def test_each_message_once_over_restarts(
    spark: SparkSession, broker: TestBroker, tmp_path: Path
) -> None:
    """Start options count once, limits hold, the group sees the progress."""
    from rocketmq_fast.spark import lag

    filled = fill(broker.cluster, broker.name("t"), {0: 900, 1: 300, 2: 5, 3: 0}, size=300)
    group = broker.group()
    shown = {"commitOffsets": "true", "group": group}
    first = to_files(
        stream(spark, filled, startingOffsets="earliest", maxOffsetsPerTrigger=700, **shown),
        tmp_path,
    )
    counts = [one.numInputRows for one in first.recentProgress if one.numInputRows]
    assert sum(counts) == filled.count
    assert len(counts) == 2
    assert max(counts) <= 700
    queues = [MessageQueue(filled.topic, filled.broker_name, n) for n in range(4)]
    assert first.recentProgress[0].batchId == 0
    assert sum(lag(first.recentProgress[0]).values()) == filled.count - counts[0]
    assert first.lastProgress is not None
    assert lag(first.lastProgress) == dict.fromkeys(queues, 0)
    filled.send(2, [b"more", b"", b"\x00\xff"])
    to_files(stream(spark, filled, startingOffsets="latest", **shown), tmp_path)
    assert sorted(rows_of(spark, tmp_path)) == expected_rows(filled)
    assert [broker.committed(group, filled.topic).get(n) for n in range(3)] == [900, 300, 8]


def test_a_first_batch_that_fails_loses_nothing(
    spark: SparkSession, spark_cluster: Any, tmp_path: Path
) -> None:
    """A query that starts at latest; then queues that appear while it runs."""
    from pyspark.errors import StreamingQueryException

    filled = fill(spark_cluster, "StreamLatest", {0: 50})
    found: list[tuple[int, int]] = []

    def into(sink: Any) -> StreamingQuery:
        frame = stream(spark, filled, routeRefreshMs=0).drop("body")
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path))
        return started(writer)

    def fail(frame: DataFrame, batch_id: int) -> None:
        if frame.count():
            raise RuntimeError("the sink is broken")

    def keep(frame: DataFrame, batch_id: int) -> None:
        found.extend((row.queueId, row.queueOffset) for row in frame.collect())

    query = into(fail)
    try:
        filled.send(0, [b"in the first batch"] * 3)
        with pytest.raises(StreamingQueryException, match="the sink is broken"):
            query.awaitTermination(SECONDS)
    finally:
        query.stop()
    filled.send(0, [b"while nobody read"] * 2)
    query = into(keep)
    try:
        assert found == [(0, offset) for offset in range(50, 55)]
        spark_cluster.create_topic("StreamLatest", queues=2)
        filled.send(1, [b"new queue"] * 4)
        query.processAllAvailable()
        assert found[5:] == [(1, offset) for offset in range(4)]
    finally:
        query.stop()


def test_wrong_streams_fail_at_the_start(
    spark: SparkSession, spark_topic: Filled, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException, StreamingQueryException

    before = jobs_so_far(spark)
    with pytest.raises(PySparkException, match="did you mean 'maxOffsetsPerTrigger'"):
        stream(spark, spark_topic, maxOffsetPerTrigger=5)
    with pytest.raises(PySparkException, match="'endingOffsets' is for batch reads only"):
        to_files(stream(spark, spark_topic, endingOffsets="latest"), tmp_path / "a")
    beyond = f'{{"SparkRead":{{"{spark_topic.broker_name}":{{"0":9999}}}}}}'
    with pytest.raises(StreamingQueryException, match=r"offset 9999 is wanted.*failOnDataLoss"):
        to_files(stream(spark, spark_topic, startingOffsets=beyond), tmp_path / "b")
    assert jobs_so_far(spark) == before
