"""The Spark steps of the demonstration: a topic read as a batch, and streamed into Parquet files.

Both prove that every message is there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeVar

from rocketmq_fast.cli.output import Progress
from rocketmq_fast.errors import RocketMQError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")
_TICK_SECONDS = 0.2
_COLUMNS = "brokerName,queueId,queueOffset,body"
# Several micro-batches, each large enough that its fixed cost does not count.
_BATCHES = 4
_LEAST_BATCH = 10_000
# Spark gives the process that plans a stream 10 s to start, which a busy machine may not manage.
_STARTS = 10
_SLOW_START = "Python worker failed to connect back"


@dataclass(frozen=True, slots=True)
class SparkRead:
    """What Spark found: in the topic, or in the files that a stream wrote."""

    rows: int
    distinct: int
    bytes: int
    checksum: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SparkSteps:
    """Both reads, and what they ran on. `batches`: micro-batches of the stream."""

    batch: SparkRead
    stream: SparkRead
    batches: int
    start_seconds: float
    version: str


def why_not() -> str | None:
    """Why Spark cannot run here; None when it can."""
    without = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if without:
        return f"{' and '.join(without)} not installed (pip install 'rocketmq-fast[spark]')"
    home = os.environ.get("JAVA_HOME")
    if not (home and shutil.which("java", path=os.path.join(home, "bin"))) and not shutil.which(
        "java"
    ):
        return "no java on PATH and no JAVA_HOME (Spark needs a JDK 17)"
    return None


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[IO[bytes]]:
    """What a child process that starts in the block writes to standard error goes to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def _session(scratch: str) -> SparkSession:
    # The workers have to be this interpreter: it is the one that has this package.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    with _quiet_stderr() as said:
        try:
            session = (
                SparkSession.builder.master("local[2]")
                .appName("rocketmq-fast demo")
                .config("spark.ui.enabled", "false")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.local.dir", scratch)
                .config("spark.sql.warehouse.dir", os.path.join(scratch, "warehouse"))
                .config("spark.sql.shuffle.partitions", "4")
                .getOrCreate()
            )
        except Exception as error:
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines()
            reason = lines[-1] if lines else str(error)
            raise RocketMQError(f"Spark did not start: {reason}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def read(namesrv_addr: str, topic: str, count: int, progress: Progress) -> SparkSteps:
    """Read a topic from its beginning to its end, in both ways. Raises RocketMQError."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rocketmq-fast-spark-") as scratch:
        progress.update(0, "starting Spark")
        session = _session(scratch)
        try:
            from rocketmq_fast.spark import register

            register(session)
            started = time.perf_counter()
            options = {"namesrvAddr": namesrv_addr, "topic": topic, "columns": _COLUMNS}
            table = session.read.format("rocketmq").options(**options).load()
            found = _watched(session, lambda: _aggregate(table), progress)
            batch = SparkRead(*found, time.perf_counter() - started)
            limit = max(_LEAST_BATCH, -(-count // _BATCHES))
            options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(limit)}
            streaming = time.perf_counter()
            batches = _watched(session, lambda: _stream(session, options, scratch), progress)
            seconds = time.perf_counter() - streaming
            files = session.read.parquet(os.path.join(scratch, "parquet"))
            stream = SparkRead(*_watched(session, lambda: _aggregate(files), progress), seconds)
        finally:
            session.stop()
    return SparkSteps(batch, stream, batches, started - begin, str(session.version))


def _stream(session: SparkSession, options: dict[str, str], scratch: str) -> int:
    """Stream what is there into Parquet files. Returns how many micro-batches it took."""
    from pyspark.errors import StreamingQueryException

    writer = (
        session.readStream.format("rocketmq")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("path", os.path.join(scratch, "parquet"))
        .option("checkpointLocation", os.path.join(scratch, "checkpoint"))
        .trigger(availableNow=True)
    )
    for left in reversed(range(_STARTS)):
        query = writer.start()
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as error:
            if not left or _SLOW_START not in str(error):
                raise
    return sum(1 for batch in query.recentProgress if batch.numInputRows)


def _aggregate(table: DataFrame) -> tuple[int, int, int, int]:
    """Rows, distinct offsets, bytes of bodies, sum of their CRC-32."""
    from pyspark.sql import functions

    # Distinct offsets as bitmaps, a bit per offset: exact, and only the bitmaps are shuffled.
    offset = functions.col("queueOffset")
    parts = table.groupBy(
        "brokerName", "queueId", functions.bitmap_bucket_number(offset).alias("bucket")
    ).agg(
        functions.count("*").alias("messages"),
        functions.bitmap_construct_agg(functions.bitmap_bit_position(offset)).alias("bitmap"),
        functions.sum(functions.length("body")).alias("bytes"),
        functions.sum(functions.crc32("body")).alias("checksum"),
    )
    row: Any = parts.agg(
        functions.sum("messages"),
        functions.sum(functions.bitmap_count("bitmap")),
        functions.sum("bytes"),
        functions.sum("checksum"),
    ).first()
    return int(row[0] or 0), int(row[1] or 0), int(row[2] or 0), int(row[3] or 0)


def _watched(session: SparkSession, action: Callable[[], _T], progress: Progress) -> _T:
    """Run an action beside a look at its tasks now and then."""
    results: list[_T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(action())
        except Exception as error:  # noqa: BLE001 - handed to the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="demo-spark", daemon=True)
    thread.start()
    tracker = session.sparkContext.statusTracker()
    while thread.is_alive():
        thread.join(_TICK_SECONDS)
        parts = [
            f"stage {stage}: {info.numCompletedTasks} of {info.numTasks} tasks"
            for stage in tracker.getActiveStageIds()
            if (info := tracker.getStageInfo(stage)) is not None
        ]
        progress.update(0, ", ".join(parts) or "planning")
    if errors:
        raise RocketMQError(f"Spark failed: {_first_line(errors[0])}") from errors[0]
    return results[0]


def _first_line(error: Exception) -> str:
    """The first line of an error of Spark, which brings pages along."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "failed")
