"""A local Spark session of two cores, its reads with the clock on, and what its processes use."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.measure import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PERIOD_SECONDS = 0.5


@contextlib.contextmanager
def session(jars: Sequence[Path], scratch: Path) -> Iterator[SparkSession]:
    """A session whose Python workers run this interpreter and can import these benchmarks."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT) if not path else f"{ROOT}{os.pathsep}{path}"
    from pyspark.sql import SparkSession

    from benchmarks.spark_trivial import TrivialDataSource
    from rocketmq_fast.spark import register

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("rocketmq-fast-benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(TrivialDataSource)
    try:
        yield spark
    finally:
        spark.stop()


def read(spark: SparkSession, source: str, options: Mapping[str, object]) -> float:
    """Load and write to the noop sink; seconds, with the planning in them."""
    began = time.perf_counter()
    frame = spark.read.format(source).options(**{k: str(v) for k, v in options.items()}).load()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def stream(
    spark: SparkSession, source: str, options: Mapping[str, object], checkpoint: Path
) -> dict[str, Any]:
    """An availableNow stream to the noop sink, from its start to its end."""
    began = time.perf_counter()
    frame = (
        spark.readStream.format(source).options(**{k: str(v) for k, v in options.items()}).load()
    )
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.perf_counter() - began
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    durations = [one["durationMs"] for one in batches]
    return {
        "messages": sum(one["numInputRows"] for one in batches),
        "batches": len(batches),
        "seconds": seconds,
        # What the micro-batches took, without the start and the end of the query.
        "batch_seconds": sum(one["triggerExecution"] for one in durations) / 1000,
        "parts_ms": {
            name: sum(one.get(name, 0) for one in durations) / len(durations)
            for name in sorted(set().union(*durations))
        },
    }


# --------------------------------------------------------------------------------- the processes


class _Process:
    """What /proc tells of a process now."""

    def __init__(self, pid: int) -> None:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text[text.rindex(")") + 2 :].split()
        self.parent = int(fields[1])
        # Its own time and that of children that ended.
        self.seconds = sum(map(int, fields[11:15])) / _TICKS
        self.rss = int(fields[21]) * _PAGE

    def command(self, pid: int) -> str:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def processes() -> dict[int, _Process]:
    """Everything that runs."""
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):  # it has just ended
                found[int(entry.name)] = _Process(int(entry.name))
    return found


def descendants(of: int, among: Mapping[int, _Process]) -> set[int]:
    """Children of a process, their children and so on."""
    found: set[int] = set()
    grown = True
    while grown:
        more = {
            pid
            for pid, process in among.items()
            if pid not in found and (process.parent == of or process.parent in found)
        }
        grown = bool(more)
        found |= more
    return found


class Watch:
    """Memory of the Python workers of this process's Spark while a block runs, and CPU time.

    `samples` are (seconds, resident bytes of the largest worker); `cpu` the seconds of CPU time
    of the JVM, of the Python processes under it, and of the processes in `others`.
    """

    def __init__(self, others: Mapping[str, int] | None = None) -> None:
        self._others = dict(others or {})
        self.samples: list[tuple[float, int]] = []
        self.cpu: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began = 0.0

    @property
    def peak(self) -> int:
        """Most resident bytes of a worker."""
        return max((rss for _, rss in self.samples), default=0)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self.cpu = self._cpu()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.cpu = {name: round(now - self.cpu[name], 2) for name, now in self._cpu().items()}

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_SECONDS):
            among = processes()
            workers = [among[pid].rss for pid in self._pythons(among)]
            if workers:
                self.samples.append((time.perf_counter() - self._began, max(workers)))

    def _pythons(self, among: Mapping[int, _Process]) -> set[int]:
        found = set()
        for pid in descendants(os.getpid(), among):
            with contextlib.suppress(OSError):
                if "pyspark.daemon" in among[pid].command(pid):
                    found.add(pid)
        return found

    def _cpu(self) -> dict[str, float]:
        among = processes()
        below = descendants(os.getpid(), among)
        spent = {"JVM": 0.0, "Python": 0.0}
        for pid in below - set(self._others.values()):
            with contextlib.suppress(OSError):
                command = among[pid].command(pid)
                if "pyspark" in command and "java" not in command.split(" ", 1)[0]:
                    spent["Python"] += among[pid].seconds
                elif "org.apache.spark" in command:
                    spent["JVM"] += among[pid].seconds
        for name, pid in self._others.items():
            spent[name] = among[pid].seconds if pid in among else 0.0
        return spent
