"""A message that fails comes again after a while, and in the end goes to the dead letters."""

import rocketmq_fast as rmq


def on_messages(messages, context):
    for message in messages:
        if message.body.startswith(b"bad"):
            print("failed", message.body.decode(), "attempt", message.reconsume_times + 1)
            # Level 1 is the broker's shortest delay; without it the delays grow with each attempt.
            # An exception in the listener, or returning nothing, also means "later".
            context.delay_level_when_next_consume = 1
            return rmq.ConsumeStatus.RECONSUME_LATER
        print("done", message.body.decode())
    return rmq.ConsumeStatus.CONSUME_SUCCESS


consumer = rmq.PushConsumer(
    "example_retry",
    max_reconsume_times=2,  # two retries, then the topic %DLQ%example_retry
    consume_from_where="CONSUME_FROM_FIRST_OFFSET",
)
consumer.subscribe("TopicTest")
consumer.register_listener(on_messages)
consumer.run()
