"""Read a topic with PySpark (needs pip install '.[spark]' and a JDK 17)."""

import os
import sys

# The workers must run this interpreter: it is the one that has the package.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

from rocketmq_fast.spark import register

spark = SparkSession.builder.master("local[2]").appName("example").getOrCreate()
register(spark)
messages = (
    spark.read.format("rocketmq")
    .option("namesrvAddr", os.environ["NAMESRV_ADDR"])
    .option("topic", "TopicTest")
    .option("columns", "queueId,queueOffset,tags,body")  # select alone does not spare any work
    .load()
)
messages.groupBy("tags").count().show()
print(messages.count(), "messages")
spark.stop()
