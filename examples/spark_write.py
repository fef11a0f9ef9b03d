"""Write a DataFrame to a topic with PySpark (needs pip install '.[spark]' and a JDK 17)."""

import os
import sys

# The workers must run this interpreter: it is the one that has the package.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rocketmq_fast.spark import register

spark = SparkSession.builder.master("local[2]").appName("example").getOrCreate()
register(spark)
orders = spark.range(1000).withColumn("customer", f.concat(f.lit("customer-"), f.col("id") % 7))
messages = orders.select(
    f.to_json(f.struct("id", "customer")).alias("body"),
    f.lit("created").alias("tags"),
    f.concat(f.lit("order-"), "id").alias("keys"),
    f.create_map(f.lit("source"), f.lit("spark")).alias("properties"),
    f.col("customer").alias("shardingKey"),  # the orders of a customer stay in one queue
)
(
    messages.write.format("rocketmq")
    .option("namesrvAddr", os.environ["NAMESRV_ADDR"])
    .option("topic", "TopicTest")
    .mode("append")
    .save()
)
print(messages.count(), "messages written")
