"""Consume, and let Prometheus see how it goes: python prometheus.py [port]. Needs '.[metrics]'."""

import sys

from prometheus_client import start_http_server

import rocketmq_fast as rmq
from rocketmq_fast.metrics import register_prometheus


def on_messages(messages, context):
    return rmq.ConsumeStatus.CONSUME_SUCCESS


consumer = rmq.PushConsumer("example", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
consumer.subscribe("TopicTest")
consumer.register_listener(on_messages)
register_prometheus([consumer])
start_http_server(int(sys.argv[1]) if len(sys.argv) > 1 else 9100, "127.0.0.1")
consumer.run()
