"""RocketMQ push consumer for Python and Spark on a native core."""
