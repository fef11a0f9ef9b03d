"""A test of a service against a real broker: pytest examples/embedded_test.py."""

import threading

import pytest

import rocketmq_fast as rmq
from rocketmq_fast.embedded import Cluster


@pytest.fixture(scope="session")
def cluster():
    # Free ports, a temporary store, ready within milliseconds. Retries come after 1 s.
    with Cluster(delay_levels="1s 1s 1s 1s 1s") as running:
        yield running


def test_an_order_is_handled(cluster):
    cluster.create_topic("Orders", queues=2)
    handled = []
    done = threading.Event()

    def on_messages(messages, context):
        handled.extend(message.body for message in messages)
        done.set()
        return rmq.ConsumeStatus.CONSUME_SUCCESS

    consumer = rmq.PushConsumer(
        "billing",
        namesrv_addr=cluster.namesrv_addr,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )
    consumer.subscribe("Orders", "created")
    consumer.register_listener(on_messages)
    with consumer, rmq.Producer("shop", namesrv_addr=cluster.namesrv_addr) as producer:
        producer.send(rmq.Message("Orders", b"order 1", tags="created"))
        producer.send(rmq.Message("Orders", b"order 1", tags="cancelled"))
        assert done.wait(10)
    assert handled == [b"order 1"]
