"""RocketMQ for PySpark: `register(spark)`, then `spark.read.format("rocketmq")` or
`spark.readStream`.

Where this package is installed, PySpark also finds the format by itself (pyspark_rocketmq).
Python workers must be able to import it: PYSPARK_PYTHON names their interpreter.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from typing import TYPE_CHECKING

from rocketmq_fast.spark.offsets import DataLossError
from rocketmq_fast.spark.progress import lag
from rocketmq_fast.spark.schema import SCHEMA
from rocketmq_fast.spark.source import RocketMQDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SCHEMA", "DataLossError", "RocketMQDataSource", "lag", "register"]

logger = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Make format("rocketmq") known to a session; again does no harm.

    Warns when the workers of a local session run another interpreter than this one, which then
    perhaps has neither this package nor pyarrow: Spark would only say that a worker crashed.
    """
    spark.dataSource.register(RocketMQDataSource)
    context = getattr(spark, "_sc", None)  # not there with Spark Connect
    worker = getattr(context, "pythonExec", None)
    if worker is None or not str(getattr(context, "master", "")).startswith("local"):
        return
    found = shutil.which(worker)
    if found is None or not os.path.samefile(_prefix(found), _prefix(sys.executable)):
        logger.warning(
            "Spark's Python workers run %s, this process runs %s: set PYSPARK_PYTHON before the "
            "session starts",
            found or worker,
            sys.executable,
        )


def _prefix(executable: str) -> str:
    """The directory of an interpreter; its file is a link to the same one in every environment."""
    return os.path.dirname(os.path.abspath(executable))
