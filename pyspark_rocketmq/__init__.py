"""Lets PySpark find format("rocketmq") by itself: it looks into every module named pyspark_*."""

from rocketmq_fast.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
