"""Executors that are processes of their own: clusters of two workers on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketmq_fast.embedded import Cluster
from tests.apache.settings import free_port
from tests.fix_spark import fill, patiently
from tests.require import require
from tests.scripts import environment
from tests.style import ROOT
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS = 1800.0  # a bound for a run that hangs; six processes start on what may be a busy machine
# Runs in an executor; `killed` is a file that the first call makes.
KILL = """
def in_an_executor(batches):
    import os
    import signal
    from pathlib import Path

    import rocketmq_fast

    for batch in batches:
        yield batch
        try:
            note = os.open(killed, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            continue
        os.write(note, rocketmq_fast.__file__.encode())
        # Parent of this worker is the daemon that forks them, and its parent is the executor.
        fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        os.kill(int(fields[1]), signal.SIGKILL)


"""
JOB = """
import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

options = {"namesrvAddr": sys.argv[1], "topic": sys.argv[2]}
killed = sys.argv[3]
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    # No task starts before both executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}
spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
rows = spark.range(0, 4000, 1, 4).select(
    f.col("id").cast("string").alias("body"), f.concat(f.lit("k"), "id").alias("keys")
)
rows = rows.mapInArrow(in_an_executor, rows.schema)
rows.write.format("rocketmq").options(**options, sendTimeoutMs="60000").mode("append").save()
read = spark.read.format("rocketmq").options(**options, columns="keys,body", minPartitions="4")
found = read.load().where("keys = concat('k', cast(body as string))")
number = f.col("body").cast("string").cast("long")
total = found.select(f.count_distinct(number), f.sum_distinct(number), f.count("*")).first()
spark.stop()
print(json.dumps(dict(zip(("numbers", "sum", "rows"), total))))
"""


def spark_home(folder: Path) -> Path:
    """The installed Spark, with a place of its own for the files of its workers."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    folder /= "spark"
    folder.mkdir()
    for name in os.listdir(installed):
        if name != "work":
            (folder / name).symlink_to(installed / name)
    return folder


def test_executors_write_and_read(tmp_path: Path) -> None:
    """The package is installed; the format is found by itself, executors reach the brokers.

    One is killed in mid-task while it writes: every row is there, some perhaps twice.
    """
    require("spark")
    with Cluster() as cluster:
        cluster.create_topic("OnCluster", queues=4)
        env = environment(SPARK_HOME=str(spark_home(tmp_path)), PYSPARK_PYTHON=sys.executable)
        killed = tmp_path / "killed"
        found = run_job(JOB, [cluster.namesrv_addr, "OnCluster", str(killed)], env, tmp_path)
        assert cluster.message_count("OnCluster") == found.pop("rows") >= 4000
    assert found == {"numbers": 4000, "sum": sum(range(4000))}
    assert killed.read_text() == str(ROOT / "rocketmq_fast" / "__init__.py")


# --------------------------------------------------- a standalone master, executors killed

STREAM = """
import hashlib
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

master, namesrv_addr, topic, folder = sys.argv[1:]
place = Path(folder)
killed = str(place / "killed")
settings = {
    "spark.archives": "environment.tar.gz#environment",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}
spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
options = {
    "namesrvAddr": namesrv_addr,
    "topic": topic,
    "columns": "queueId,queueOffset,body",
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "4000",
    "minRecordsPerPartition": "0",
}
stream = spark.readStream.format("rocketmq").options(**options).load()
query = (
    stream.mapInArrow(in_an_executor, stream.schema)
    .writeStream.format("parquet")
    .option("path", str(place / "rows"))
    .option("checkpointLocation", str(place / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
sink = spark.read.parquet(str(place / "rows"))
rows = sink.select("queueId", "queueOffset", f.sha2("body", 256)).collect()
spark.stop()
lines = sorted(f"{queue} {offset} {body}" for queue, offset, body in rows)
digest = hashlib.sha256(str(lines).encode()).hexdigest()
print(json.dumps({"rows": len(lines), "digest": digest}))
"""


def run_job(text: str, args: list[str], env: dict[str, str], folder: Path) -> dict[str, Any]:
    """Run a program as a driver; what the last line that it prints says."""
    job = folder / "job.py"
    job.write_text(KILL + text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(job), *args], env=env, cwd=folder, capture_output=True, text=True,
        check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def pack_environment(folder: Path) -> None:
    """environment.tar.gz for executors, and `environment`, the same unpacked, for the driver.

    Its interpreter is the one of this process, but finds the package in the archive first.
    """
    place = folder / "environment"
    (place / "bin").mkdir(parents=True)
    (place / "lib").mkdir()
    python = place / "bin" / "python"
    python.write_text(
        '#!/bin/sh\nlib=$(cd "$(dirname "$0")/../lib" && pwd)\n'
        f'PYTHONPATH="$lib:$PYTHONPATH" exec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    for package in ("rocketmq_fast", "pyspark_rocketmq"):
        (place / "lib" / package).symlink_to(ROOT / package)

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = member.name
        return None if name.endswith((".c", ".h", ".pyx", "__pycache__")) else member

    with tarfile.open(
        folder / "environment.tar.gz", "w:gz", compresslevel=1, dereference=True
    ) as out:
        for part in ("bin", "lib"):
            out.add(place / part, part, filter=wanted)


@contextmanager
def standalone(home: Path, folder: Path) -> Iterator[str]:
    """A master and two workers of one core each; its address."""
    env = environment(SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY="256m")
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    output = folder / "servers.txt"
    with ExitStack() as ends, output.open("wb") as sink:

        def serve(name: str, *words: str) -> None:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words,
                 "--host", "127.0.0.1", "--webui-port", "0"],
                env=env, cwd=folder, stdout=sink, stderr=sink,
            )  # fmt: skip
            ends.callback(process.wait)
            ends.callback(process.terminate)

        serve("master.Master", "--port", str(port))
        wait_for(lambda: b"elected leader" in output.read_bytes(), output.read_text, SECONDS)
        for number in range(2):
            work = str(folder / f"worker-{number}")
            serve("worker.Worker", master, "--cores", "1", "--memory", "1g", "--work-dir", work)
        wait_for(
            lambda: output.read_bytes().count(b"Registering worker 127.0.0.1") == 2,
            output.read_text, SECONDS,
        )  # fmt: skip
        yield master


def test_an_executor_that_is_killed(tmp_path: Path) -> None:
    """In mid-task, on a standalone master; the package comes as an archive. Each message once."""
    require("spark")
    pack_environment(tmp_path)
    home = spark_home(tmp_path)
    env = environment(
        SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON="./environment/bin/python", PYSPARK_DRIVER_PYTHON=sys.executable,
    )  # fmt: skip
    with Cluster() as cluster, standalone(home, tmp_path) as master:
        filled = fill(cluster, "KilledExecutor", {0: 3000, 1: 3000}, size=500)
        args = [master, filled.namesrv_addr, filled.topic, str(tmp_path)]
        found = patiently(lambda: run_job(STREAM, args, env, tmp_path))
    lines = sorted(
        f"{queue_id} {offset} {hashlib.sha256(body).hexdigest()}"
        for queue_id, bodies in filled.bodies.items()
        for offset, body in enumerate(bodies)
    )
    digest = hashlib.sha256(str(lines).encode()).hexdigest()
    assert found == {"rows": 6000, "digest": digest}
    loaded = Path((tmp_path / "killed").read_text())
    assert loaded.is_relative_to(tmp_path)
    assert loaded.parent.parent.parent.name == "environment"
