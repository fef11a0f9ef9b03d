"""A test of a service against a real broker.

    pytest -c /dev/null examples/embedded_test.py

In this tree pytest would find the settings of the package's own tests, which want more plugins: -c
keeps them out. Copied into a project of yours it needs no option.

The fixtures rocketmq_cluster and rocketmq_topic come with the package: a cluster of each test's own
on free ports, ready within milliseconds, and NAMESRV_ADDR names it. Here retries come after 1 s.
"""

import threading

import pytest

import rocketmq_fast as rmq


@pytest.mark.rocketmq(queues=2, delay_levels="1s 1s 1s 1s 1s")
def test_an_order_is_handled(rocketmq_topic):
    handled = []
    done = threading.Event()

    def on_messages(messages, context):
        handled.extend(message.body for message in messages)
        done.set()
        return rmq.ConsumeStatus.CONSUME_SUCCESS

    consumer = rmq.PushConsumer("billing", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    consumer.subscribe(rocketmq_topic, "created")
    consumer.register_listener(on_messages)
    with consumer, rmq.Producer("shop") as producer:
        producer.send(rmq.Message(rocketmq_topic, b"order 1", tags="created"))
        producer.send(rmq.Message(rocketmq_topic, b"order 1", tags="cancelled"))
        assert done.wait(10)
    assert handled == [b"order 1"]


def test_nothing_is_left_of_other_tests(rocketmq_cluster, rocketmq_topic):
    with rmq.Producer("shop") as producer:
        producer.send(rmq.Message(rocketmq_topic, b"order 2"))
    assert rocketmq_cluster.message_count(rocketmq_topic) == 1
