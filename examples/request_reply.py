"""A question as a message, and its answer: request and reply."""

import rocketmq_fast as rmq

answering = rmq.Producer("example_answering")


def on_messages(messages, context):
    for message in messages:
        answering.send(rmq.create_reply_message(message, message.body.upper()))
    return rmq.ConsumeStatus.CONSUME_SUCCESS


consumer = rmq.PushConsumer("example_service", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
consumer.subscribe("TopicTest")
consumer.register_listener(on_messages)

with answering, consumer, rmq.Producer("example_asking") as asking:
    reply = asking.request(rmq.Message("TopicTest", b"hello"), timeout=40)
    print(reply.body.decode())
    try:
        asking.request(rmq.Message("AnotherTopic", b"is anybody there"), timeout=1)
    except rmq.ReplyTimeout:
        print("nobody")
