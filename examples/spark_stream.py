"""Stream a topic into Parquet files with PySpark, up to what is there now; run it again for more.

Needs pip install '.[spark]' and a JDK 17.
"""

import argparse
import os
import sys

# The workers must run this interpreter: it is the one that has the package.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

from rocketmq_fast.spark import lag, register

parser = argparse.ArgumentParser(description="Stream TopicTest into Parquet files.")
parser.add_argument("directory", help="for the files and the checkpoint")
directory = parser.parse_args().directory

spark = SparkSession.builder.master("local[2]").appName("example").getOrCreate()
register(spark)
messages = (
    spark.readStream.format("rocketmq")
    .option("namesrvAddr", os.environ["NAMESRV_ADDR"])
    .option("topic", "TopicTest")
    .option("startingOffsets", "earliest")  # counts for the first run only
    .option("maxOffsetsPerTrigger", 100_000)
    .option("columns", "brokerName,queueId,queueOffset,tags,body")
    .load()
)
query = (
    messages.writeStream.format("parquet")
    .option("path", os.path.join(directory, "messages"))
    .option("checkpointLocation", os.path.join(directory, "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
if query.lastProgress is not None:
    print("not read yet:", sum(lag(query.lastProgress).values()))
print(spark.read.parquet(os.path.join(directory, "messages")).count(), "messages in the files")
