"""The Spark benchmark, small and without a look at the clock."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fix_spark import Filled, patiently
from tests.require import require

require("spark")  # before what imports pyspark

from benchmarks import measure, publish, spark_report  # noqa: E402
from benchmarks.spark_latency import latencies  # noqa: E402
from benchmarks.spark_report import KAFKA, OURS, RAW, TRIVIAL  # noqa: E402
from benchmarks.spark_session import Watch, descendants, processes, read, stream  # noqa: E402
from benchmarks.spark_trivial import TrivialDataSource, TrivialReader  # noqa: E402
from tests.waiting import wait_for  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATES = {RAW: 400_000.0, TRIVIAL: 800_000.0, OURS: 240_000.0, KAFKA: 160_000.0}


def batch_row(columns: str, *, raised: bool, part: float) -> dict[str, Any]:
    return {
        "size": 1024,
        "columns": columns,
        "raised": raised,
        "messages": 1000,
        "rates": {client: [rate, rate * 1.1] for client, rate in RATES.items()},
        "median": RATES,
        "bound": 266_667.0,
        "ratio_to_bound": part,
        "ratio_to_kafka": 1.5,
        "worker_mib": 180.0,
    }


def stream_row(source: str, part: float | None) -> dict[str, Any]:
    return {
        "source": source,
        "messages": 1000,
        "a_trigger": 100,
        "runs": {"batch": [290_000.0]},
        "batch": 290_000.0,
        "whole": 110_000.0,
        "triggers": 163_000.0,
        "ratio": 0.56,
        "ratio_to_trivial": part,
    }


def report() -> dict[str, Any]:
    head = measure.circumstances("benchmarks.spark", ["--rounds", "2"])
    samples = [{"messages": n * 10, "seconds": n / 2, "rss_bytes": 180 << 20} for n in range(50)]
    found: dict[str, Any] = {
        "batch": [
            batch_row("body", raised=False, part=0.9),
            batch_row("all", raised=False, part=0.7),
        ],
        "raised": [batch_row("body", raised=True, part=0.9)],
        "streams": [stream_row(f"{OURS}, body", 0.82), stream_row(KAFKA, None)],
        "memory": {
            "messages": 490,
            "rss_low_mib": 180.0,
            "rss_high_mib": 181.0,
            "rss_growth_mib": 0.5,
            "samples": samples,
        },
        "latency": {
            "messages": 600,
            "trigger": "1 second",
            "period_seconds": 0.1,
            "median_ms": 700.0,
            "p99_ms": 1300.0,
            "least_ms": 150.0,
            "most_ms": 1400.0,
            "batch_ms": 300.0,
        },
    }
    return {**head, "parts": {name: {**head, "found": what} for name, what in found.items()}}


def test_report(tmp_path: Path) -> None:
    text = spark_report.markdown(report())
    assert "| 1024 B | body | 400 k | 800 k | 240 k | 10% | 90% | >= 80%: reached | 160 k |" in text
    assert "| 70% | >= 80%: MISSED |" in text
    assert "| 1.50x, > 1x: reached |" in text
    missed = "| rocketmq_fast, body | 290 k | 163 k | 56% | >= 80%: MISSED | 82% | 110 k |"
    assert missed in text
    assert "| Kafka's source | 290 k | 163 k | 56% |  |  | 110 k |" in text
    assert "180.0 to 181.0 MiB" in text
    assert "median 700 ms, p99 1300 ms" in text
    assert text.count("`python -m benchmarks.spark --rounds 2`") == 5
    assert "1 / (1/raw + 1/trivial)" in publish.summary({"spark": report()})
    spark_report.plot(report(), tmp_path / "spark.png")
    picture = (tmp_path / "spark.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000


@pytest.mark.spark
def test_reads_streams_and_ages_of_messages(
    spark: SparkSession, spark_cluster: Any, spark_topic: Filled, tmp_path: Path
) -> None:
    spark.dataSource.register(TrivialDataSource)
    ready = ready_batch(tmp_path)
    options = spark_topic.options(columns="body", startingOffsets="earliest")
    with Watch() as watch:
        assert read(spark, "rocketmq", options) > 0
        assert read(spark, "trivial", {"path": ready, "rows": 100, "tasks": 2}) > 0
    assert watch.cpu["JVM"] > 0
    found = patiently(
        lambda: stream(
            spark,
            "rocketmq",
            options | {"maxOffsetsPerTrigger": "1000"},
            tmp_path / uuid.uuid4().hex,
        )
    )
    assert (found["messages"], found["batches"]) == (spark_topic.count, 4)
    ages = patiently(
        lambda: latencies(
            spark,
            spark_cluster,
            tmp_path / uuid.uuid4().hex,
            0.5,
            warm_seconds=0.2,
            trigger="0 seconds",
        )
    )
    assert 0 < ages["least_ms"] <= ages["median_ms"] <= ages["most_ms"]


def ready_batch(folder: Path) -> Path:
    import pyarrow as pa

    path = folder / "ready.arrow"
    batch = pa.record_batch([pa.array([b"x"] * 40)], names=["body"])
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    return path


def test_the_trivial_source_gives_so_many_rows(tmp_path: Path) -> None:
    reader = TrivialReader(str(ready_batch(tmp_path)), 1000, 3)
    parts = [
        [rows.num_rows for rows in reader.read(partition)] for partition in reader.partitions()
    ]
    assert len(parts) == 3
    assert sum(map(sum, parts)) == 1000
    assert max(map(max, parts)) == 40


@pytest.mark.spark
def test_the_trivial_source_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(TrivialDataSource)
    ready = ready_batch(tmp_path)
    options = {"path": ready, "rows": 100, "tasks": 2, "maxOffsetsPerTrigger": 30}
    found = patiently(lambda: stream(spark, "trivial", options, tmp_path / uuid.uuid4().hex))
    assert (found["messages"], found["batches"]) == (100, 4)


def test_python_workers_are_watched() -> None:
    """A process under this one whose command names the daemon counts, and so does its memory."""
    program = "import sys; print('there', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "pyspark.daemon"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        assert child.pid in descendants(os.getpid(), processes())
        with Watch({"itself": os.getpid()}) as watch:
            wait_for(lambda: watch.samples, "a sample")
        assert child.stdin is not None
        child.stdin.close()
    assert watch.peak > 1 << 20
    assert set(watch.cpu) == {"JVM", "Python", "itself"}
