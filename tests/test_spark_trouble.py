"""Trouble while Spark reads: the sink holds each message once, or the query says what is lost."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketmq_fast.embedded import Cluster
from tests.apache import ApacheCluster
from tests.apache.mqadmin import mqadmin
from tests.apache.settings import INDEX_FILE_MESSAGES
from tests.fix_spark import SECONDS, Filled, batch_rows, fill, patiently, started, to_end
from tests.require import require
from tests.scripts import environment
from tests.waiting import wait_for

require("spark")  # before what imports pyspark

from pyspark.errors import StreamingQueryException  # noqa: E402

from rocketmq_fast.spark.batch import RocketMQReader  # noqa: E402
from rocketmq_fast.spark.brokers import Brokers  # noqa: E402
from rocketmq_fast.spark.offsets import DataLossError  # noqa: E402
from rocketmq_fast.spark.options import ReadOptions  # noqa: E402
from rocketmq_fast.spark.schema import SCHEMA  # noqa: E402
from rocketmq_fast.spark.stream import StreamPlanner  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.brokers import TestBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Row = tuple[int, int, str]
# A restart of a broker on a busy machine takes its time.
PATIENT = {"fetchOffset.numRetries": "600", "fetchOffset.retryIntervalMs": "200"}
SOON = {"latestOffsetIntervalMs": "0", "routeRefreshMs": "0"}


class Sink:
    """Rows by batch: one that comes again replaces what it left, as in an idempotent sink."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.before: Callable[[], None] | None = None  # called once, when a batch was planned

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        from pyspark.sql import functions as f

        if self.before is not None:
            action, self.before = self.before, None
            action()
        chosen = frame.select("queueId", "queueOffset", f.sha2("body", 256).alias("hash"))
        self.batches[batch_id] = [(row[0], row[1], row[2]) for row in chosen.collect()]

    def rows(self) -> list[Row]:
        return sorted(row for rows in list(self.batches.values()) for row in rows)

    def settle(self, query: StreamingQuery, filled: Filled) -> None:
        """Wait for all that a topic holds, each once. A broker that is away is no end of it."""

        def complete() -> bool:
            assert query.isActive, query.exception()
            return sum(map(len, list(self.batches.values()))) >= filled.count

        wait_for(complete, lambda: f"{filled.count} rows; {len(self.rows())} came", SECONDS)
        assert self.rows() == rows_of(filled)


def rows_of(filled: Filled) -> list[Row]:
    """What a topic holds."""
    return sorted(
        (queue_id, offset, hashlib.sha256(body).hexdigest())
        for queue_id, bodies in filled.bodies.items()
        for offset, body in enumerate(bodies)
    )


def planner(filled: Filled, **more: object) -> StreamPlanner:
    options = ReadOptions.of(filled.options(**SOON, **more), streaming=True)
    return StreamPlanner(Brokers(options.connect), options)


def batch_reader(filled: Filled, **more: str) -> RocketMQReader:
    return RocketMQReader(SCHEMA, ReadOptions.of(filled.options(**more)))


def forget_first_messages(cluster: ApacheCluster, topic: str) -> None:
    """Delete the first file of a stopped broker's index of queue 0: its messages have expired."""
    folder = cluster.workdir / cluster.broker_name / "store" / "consumequeue" / topic / "0"
    first, *others = sorted(folder.iterdir())
    assert others
    first.unlink()


def delete_topic(broker: TestBroker, topic: str) -> None:
    """As an operator does it."""
    if isinstance(broker.cluster, ApacheCluster):
        words = ("deleteTopic", "-c", "DefaultCluster", "-t", topic)
        mqadmin(broker.cluster.version, broker.namesrv_addr, *words)
    else:
        broker.cluster.delete_topic(topic)


def test_a_stream_in_trouble(spark: SparkSession, broker: TestBroker, tmp_path: Path) -> None:
    """A broker killed between plan and read, old messages gone, queues added, the topic deleted."""
    topic, old = broker.topic(queues=2), INDEX_FILE_MESSAGES
    filled = Filled(broker.namesrv_addr, broker.broker_addr, broker.broker_name, topic)
    filled.send(0, [b"%d" % number for number in range(old + 200)])
    filled.send(1, [b"one"] * 5)
    options = filled.options(columns="queueId,queueOffset,body", startingOffsets="earliest")
    frame = spark.readStream.format("rocketmq").options(**options, **SOON, **PATIENT).load()
    sink = Sink()
    writer = frame.writeStream.foreachBatch(sink)
    query = started(writer.option("checkpointLocation", str(tmp_path)))

    def trouble() -> None:
        broker.kill()
        if isinstance(broker.cluster, ApacheCluster):
            forget_first_messages(broker.cluster, topic)
        restart.start()

    restart = threading.Thread(target=broker.start)
    try:
        sink.settle(query, filled)
        sink.before = trouble
        filled.send(0, [b"planned before the broker was killed"] * 30)
        sink.settle(query, filled)
        restart.join(SECONDS)
        broker.cluster.create_topic(topic, queues=3)
        filled.send(2, [b"new queue"] * 10)
        filled.send(1, [b"after the restart"] * 10)
        sink.settle(query, filled)
        if isinstance(broker.cluster, ApacheCluster):
            check_expired(filled, old)
        quick = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "10"}
        strict = batch_reader(filled, **quick)
        lax = batch_reader(filled, **quick, failOnDataLoss="false")
        tasks = strict.partitions()
        delete_topic(broker, topic)
        with pytest.raises(DataLossError, match="set failOnDataLoss to false"):
            list(strict.read(tasks[-1]))
        assert list(lax.read(tasks[-1])) == []
        lost = r"queue \d: offset \d+ is wanted, the queue (is not in the route any more|ends at 0)"
        with pytest.raises(StreamingQueryException, match=rf"{lost}.*set failOnDataLoss to false"):
            query.awaitTermination(SECONDS)
    finally:
        query.stop()


def check_expired(filled: Filled, smallest: int) -> None:
    """Queue 0 begins at `smallest`: what a query that was last at offset 50 says and does."""
    place = f'{{"{filled.topic}":{{"{filled.broker_name}":{{"0":50,"1":-1,"2":-1}}}}}}'
    end = len(filled.bodies[0])
    strict, lax = planner(filled, startingOffsets=place), planner(filled, failOnDataLoss="false")
    try:
        start = strict.initial_offsets()
        lost = rf"queue 0: offset 50 is wanted, the smallest is {smallest}; set failOnDataLoss"
        assert strict.next_offsets(start, unlimited=True) == start  # which makes it durable
        with pytest.raises(DataLossError, match=lost):
            strict.next_offsets(start, unlimited=True)
        newest = lax.next_offsets(start, unlimited=True)
        assert newest is not None
        (part,) = (piece for one in lax.partitions(start, newest) for piece in one.ranges)
        assert (part.queue.queue_id, part.start, part.end) == (0, smallest, end)
    finally:
        strict.close()
        lax.close()
    lost = rf"queue 0, offsets \[50, {end}\): the broker has \[{smallest}, {end}\); set failOn"
    with pytest.raises(DataLossError, match=lost):
        batch_rows(filled.options(startingOffsets=place))
    found = batch_rows(filled.options(startingOffsets=place, failOnDataLoss="false"))
    assert [row["queueOffset"] for row in found] == list(range(smallest, end))


# --------------------------------------------------------------------------- killed drivers

DRIVER = """
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

namesrv_addr, topic, folder, when = sys.argv[1:]
place = Path(folder)
commits = place / "checkpoint" / "commits"


def die():
    os.killpg(0, signal.SIGKILL)  # with the JVM and the process that plans the stream


def done():
    return {path.name for path in commits.glob("[0-9]*")}


def keep(frame, batch_id):
    frame.write.mode("overwrite").parquet(str(place / "rows" / f"batch={batch_id}"))
    if when == "before the commit":
        die()


settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
options = {
    "namesrvAddr": namesrv_addr,
    "topic": topic,
    "columns": "queueId,queueOffset,body",
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "100",
}
stream = spark.readStream.format("rocketmq").options(**options).load()
before = done()
query = (
    stream.writeStream.foreachBatch(keep)
    .option("checkpointLocation", str(place / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
while done() == before and query.isActive:
    time.sleep(0.005)
if when == "after the commit" and done() != before:
    die()
query.awaitTermination()
"""


def test_a_driver_that_is_killed(
    spark: SparkSession, spark_cluster: Cluster, tmp_path: Path
) -> None:
    """Before the commit of a batch that is in the sink, and after it; the next one goes on."""
    filled = fill(spark_cluster, "KilledDriver", {0: 150, 1: 150})
    program = tmp_path / "driver.py"
    program.write_text(DRIVER, encoding="utf-8")
    said = tmp_path / "driver.txt"
    planned: list[str] = []

    def run(when: str) -> None:
        words = [sys.executable, str(program), filled.namesrv_addr, filled.topic, str(tmp_path)]
        # Not by pipes: Spark's Python workers hold them open until they see that they are alone.
        with said.open("wb") as output:
            done = subprocess.run(
                [*words, when], start_new_session=True, stdout=output, stderr=output, check=False,
                env=environment(PYSPARK_PYTHON=sys.executable), timeout=SECONDS,
            )  # fmt: skip
        assert done.returncode == -9, said.read_text()

    def names(folder: str) -> set[str]:
        return {path.name for path in (tmp_path / "checkpoint" / folder).glob("[0-9]*")}

    for when in ("before the commit", "after the commit"):
        patiently(lambda when=when: run(when))  # type: ignore[misc]
        planned.append((tmp_path / "checkpoint" / "offsets" / "0").read_text())
        assert ("0" in names("commits")) == (when == "after the commit")
        filled.send(0, [when.encode()] * 20)  # what a batch that is planned again must not read
    assert planned[0] == planned[1]

    def keep(frame: DataFrame, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(str(tmp_path / "rows" / f"batch={batch_id}"))

    options = filled.options(columns="queueId,queueOffset,body", maxOffsetsPerTrigger=100)
    frame = spark.readStream.format("rocketmq").options(**options).load()
    checkpoint = str(tmp_path / "checkpoint")
    to_end(frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint))
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sum(row.batch == 0 for row in rows) == 100
    found = [(row.queueId, row.queueOffset, hashlib.sha256(row.body).hexdigest()) for row in rows]
    assert sorted(found) == rows_of(filled)
