"""Executors that are processes of their own: a cluster of two workers on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_fast.embedded import Cluster
from tests.require import require
from tests.scripts import environment

SECONDS = 1800.0  # a bound for a run that hangs; six processes start on what may be a busy machine
JOB = """
import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

options = {"namesrvAddr": sys.argv[1], "topic": sys.argv[2]}
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # No task starts before both executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}
spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
rows = spark.range(0, 4000, 1, 4).select(
    f.col("id").cast("string").alias("body"), f.concat(f.lit("k"), "id").alias("keys")
)
rows.write.format("rocketmq").options(**options, sendTimeoutMs="60000").mode("append").save()
read = spark.read.format("rocketmq").options(**options, columns="keys,body", minPartitions="4")
found = read.load().where("keys = concat('k', cast(body as string))")
total = found.select(f.count("*"), f.sum(f.col("body").cast("string").cast("long"))).first()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
spark.stop()
print(json.dumps({"rows": total[0], "sum": total[1], "executors": executors}))
"""


def spark_home(folder: Path) -> Path:
    """The installed Spark, with a place of its own for the files of its workers."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    for name in os.listdir(installed):
        if name != "work":
            (folder / name).symlink_to(installed / name)
    return folder


@pytest.mark.slow
@pytest.mark.spark
def test_executors_write_and_read(tmp_path: Path) -> None:
    """The format is found by itself; executors load the extension and reach the brokers."""
    require("spark")
    home = tmp_path / "spark"
    home.mkdir()
    job = tmp_path / "job.py"
    job.write_text(JOB, encoding="utf-8")
    with Cluster() as cluster:
        cluster.create_topic("OnCluster", queues=4)
        done = subprocess.run(
            [sys.executable, str(job), cluster.namesrv_addr, "OnCluster"],
            env=environment(SPARK_HOME=str(spark_home(home)), PYSPARK_PYTHON=sys.executable),
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert cluster.message_count("OnCluster") == 4000
    expected = {"rows": 4000, "sum": sum(range(4000)), "executors": 2}
    assert json.loads(done.stdout.splitlines()[-1]) == expected
