"""Subscribe to some tags. The broker filters by hash; the client compares the text again."""

import rocketmq_fast as rmq


def on_messages(messages, context):
    for message in messages:
        print(message.tags, message.body.decode())
    return rmq.ConsumeStatus.CONSUME_SUCCESS


consumer = rmq.PushConsumer("example_tags", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
consumer.subscribe("TopicTest", "TagA || TagC")
consumer.register_listener(on_messages)
consumer.run()
