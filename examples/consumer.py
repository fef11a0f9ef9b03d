"""Consume a topic until Ctrl-C. NAMESRV_ADDR says where the name servers are."""

import rocketmq_fast as rmq


def on_messages(messages, context):
    for message in messages:
        print(message.topic, message.queue_offset, message.tags, message.body.decode())
    return rmq.ConsumeStatus.CONSUME_SUCCESS


consumer = rmq.PushConsumer("example", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
consumer.subscribe("TopicTest")
consumer.register_listener(on_messages)
consumer.run()
