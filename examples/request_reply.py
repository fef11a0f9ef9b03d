"""A question as a message, and its answer: request and reply."""

import rocketmq_fast as rmq

# Messages that are no requests cannot be answered: requests have a topic of their own.
TOPIC = "ExampleRequests"

answering = rmq.Producer("example_answering")


def on_messages(messages, context):
    for message in messages:
        answering.send(rmq.create_reply_message(message, message.body.upper()))
    return rmq.ConsumeStatus.CONSUME_SUCCESS


consumer = rmq.PushConsumer("example_service", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
consumer.subscribe(TOPIC)
consumer.register_listener(on_messages)

with answering, consumer, rmq.Producer("example_asking") as asking:
    reply = asking.request(rmq.Message(TOPIC, b"hello"), timeout=40)  # seconds
    print(reply.body.decode())
    try:
        asking.request(rmq.Message("ExampleUnanswered", b"is anybody there"), timeout=1)
    except rmq.ReplyTimeout:
        print("nobody")
