"""Take up to 32 messages in one call, and say how far the call got."""

import rocketmq_fast as rmq


def store(messages):
    """Stands for a bulk insert. Returns how many messages it took."""
    print(f"{len(messages)} messages, offsets {messages[0].queue_offset} and up")
    return len(messages)


def on_messages(messages, context):
    # Messages up to ack_index are done, those behind it are delivered again later.
    context.ack_index = store(messages) - 1
    return rmq.ConsumeStatus.CONSUME_SUCCESS


consumer = rmq.PushConsumer(
    "example_batch",
    consume_message_batch_max_size=32,
    consume_from_where="CONSUME_FROM_FIRST_OFFSET",
)
consumer.subscribe("TopicTest")
consumer.register_listener(on_messages)
consumer.run()
