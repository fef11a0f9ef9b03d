"""Send a message and wait for the broker's answer."""

import rocketmq_fast as rmq

with rmq.Producer("example_producer") as producer:
    message = rmq.Message("TopicTest", b"hello", tags="TagA", keys="order-1")
    result = producer.send(message)
    print(result.status.name, result.message_queue, result.queue_offset, result.msg_id)
