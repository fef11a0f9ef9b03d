"""A Spark session, clusters to read from, and messages in them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.apache import wire
from tests.require import require

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tests.brokers import TestBroker

_T = TypeVar("_T")
# A query that hangs ends; nothing else depends on it.
SECONDS = 300
PATIENT = {"sendTimeoutMs": "60000"}  # a send that timed out would be stored twice
SEND_BATCH_MESSAGE = 320
_STREAM_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"
_BATCH = 200


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session with two cores for all tests; its workers run this interpreter."""
    require("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from rocketmq_fast.spark import register

    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("rocketmq-fast-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.task.maxFailures", "1")
        .config("spark.sql.execution.pyspark.udf.faulthandler.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


def patiently(run_stream: Callable[[], _T]) -> _T:
    """Run something that starts a stream, anew where its process was slow to start.

    Spark gives the Python process that plans a stream 10 s to import what it needs, whatever the
    machine does meanwhile. Nothing was read by then, and the checkpoint makes another run safe.
    """
    for _ in range(20):
        try:
            return run_stream()
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        # Not at once again: another such process shall have come through the imports first.
        subprocess.run([sys.executable, "-c", f"import {_STREAM_PROCESS}"], check=True)
    raise AssertionError("the process that plans a stream did not start")


def jobs_so_far(spark: SparkSession) -> int:
    """How many jobs the session has run; what fails on the driver adds none."""
    number: int = spark.sparkContext._jsc.sc().dagScheduler().nextJobId()
    return number


def to_files(frame: DataFrame, place: Path) -> StreamingQuery:
    """Run a stream into Parquet files below `place` until all is read that was there at the start.

    Its checkpoint is there too: another run goes on from it.
    """
    writer = frame.writeStream.format("parquet").option("path", str(place / "rows"))
    return to_end(writer.option("checkpointLocation", str(place / "checkpoint")))


def to_end(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query until all is read that was there at the start."""
    writer.trigger(availableNow=True)

    def run() -> StreamingQuery:
        query = writer.start()
        try:
            assert query.awaitTermination(SECONDS), "the query did not end"
        finally:
            query.stop()
        return query

    return patiently(run)


def started(writer: DataStreamWriter) -> StreamingQuery:
    """A running query that has read what was there."""

    def run() -> StreamingQuery:
        query = writer.start()
        try:
            query.processAllAvailable()
        except BaseException:
            query.stop()
            raise
        return query

    return patiently(run)


def batch_rows(options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of a batch read without Spark: its plan and its tasks run here, one after another."""
    from rocketmq_fast.spark.batch import RocketMQReader
    from rocketmq_fast.spark.options import ReadOptions
    from rocketmq_fast.spark.schema import SCHEMA

    reader = RocketMQReader(SCHEMA, ReadOptions.of(options))
    batches = (batch for partition in reader.partitions() for batch in reader.read(partition))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def no_kept_producers() -> Iterator[None]:
    """This process stands for a worker: it leaves no producer behind."""
    from rocketmq_fast.spark.writer import kept_producers

    yield
    kept_producers.clear()


def save(frame: DataFrame, broker: TestBroker, **options: object) -> None:
    """Write a frame to a broker, each row once."""
    given = {"namesrvAddr": broker.namesrv_addr, **PATIENT}
    given |= {name: str(value) for name, value in options.items()}
    frame.write.format("rocketmq").options(**given).mode("append").save()


def stored(broker: TestBroker, topic: str, queues: int) -> list[Any]:
    """All messages of a topic, by raw pulls and the readable decoder."""
    from rocketmq_fast.client.broker_calls import read_command
    from tests.reference.message import decode_messages

    found = []
    for queue_id in range(queues):
        queue = broker.queue(topic, queue_id)
        offset, end = 0, broker.max_offset(topic, queue_id)
        while offset < end:
            command = read_command("witness", queue, offset, 32, "*")
            answer = broker.wire.invoke(broker.broker_addr, command)
            assert answer.code == 0, answer.remark
            decoded = decode_messages(answer.body, check_crc=True)
            assert not decoded.errors
            found += decoded.messages
            offset = int(answer.ext_fields["nextBeginOffset"])
    return found


@dataclass(slots=True)
class Filled:
    """A topic on a broker, and the bodies in it by queue, in the order of their offsets."""

    namesrv_addr: str
    broker_addr: str
    broker_name: str
    topic: str
    bodies: dict[int, list[bytes]] = field(default_factory=dict, repr=False)

    def options(self, **more: object) -> dict[str, str]:
        """Options of a read of the topic."""
        options = {"namesrvAddr": self.namesrv_addr, "topic": self.topic}
        return options | {name: str(value) for name, value in more.items()}

    @property
    def count(self) -> int:
        """All messages."""
        return sum(map(len, self.bodies.values()))

    def send(
        self, queue_id: int, bodies: list[bytes], properties: Mapping[str, str] | None = None
    ) -> None:
        """Append to a queue, many at a time. Keys are k<offset>; a tag comes by the properties."""
        from rocketmq_fast._core import encode_batch

        known = self.bodies.setdefault(queue_id, [])
        for start in range(0, len(bodies), _BATCH):
            chunk = bodies[start : start + _BATCH]
            elements = [
                (0, body, {"KEYS": f"k{len(known) + n}", **(properties or {})})
                for n, body in enumerate(chunk)
            ]
            self._send_batch(queue_id, encode_batch(elements))
            known += chunk

    def _send_batch(self, queue_id: int, body: bytes) -> None:
        fields = {
            "a": "spark_test_producer",
            "b": self.topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": "0",
            "g": str(time.time_ns() // 1_000_000),
            "h": "0",
            "i": "",
            "j": "0",
            "k": "false",
            "m": "true",
        }
        for _ in range(20):
            answer = wire.request(self.broker_addr, SEND_BATCH_MESSAGE, fields, body, timeout=15.0)
            if answer.code == wire.SUCCESS:
                return
            time.sleep(0.1)  # a busy broker says so
        raise AssertionError(f"{self.topic}: {answer.code} {answer.remark}")


def fill(cluster: Any, topic: str, counts: Mapping[int, int], *, size: int = 100) -> Filled:
    """Create a topic on a cluster, embedded or Apache, and put messages into its queues."""
    cluster.create_topic(topic, queues=max(counts) + 1)
    filled = Filled(cluster.namesrv_addr, cluster.broker_addr, cluster.broker_name, topic)
    source = random.Random(topic)
    for queue_id, count in counts.items():
        filled.send(queue_id, [source.randbytes(size) for _ in range(count)])
    return filled


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[Any]:
    """An embedded cluster for the Spark tests."""
    from rocketmq_fast.embedded import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark_topic(spark_cluster: Any) -> Filled:
    """4,000 messages in queues of very different sizes; queue 3 is empty."""
    return fill(spark_cluster, "SparkRead", {0: 2500, 1: 1400, 2: 100, 3: 0})
