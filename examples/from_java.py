"""The quick start of the Java client in Python: `from_java.py producer`, then `consumer`."""

import argparse

import rocketmq_fast as rmq

TOPIC = "TopicTest"


def producer():
    # new DefaultMQProducer("quick_start_producers"); setNamesrvAddr or NAMESRV_ADDR
    producer = rmq.Producer("quick_start_producers")
    producer.start()
    for number in range(10):
        message = rmq.Message(TOPIC, f"Hello RocketMQ {number}".encode(), tags="TagA")
        result = producer.send(message)
        print(result.status.name, result.msg_id, result.message_queue, result.queue_offset)
    producer.shutdown()


def consumer():
    # new DefaultMQPushConsumer("quick_start_consumers"); setters are keyword arguments
    consumer = rmq.PushConsumer(
        "quick_start_consumers",
        consume_from_where=rmq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC, "TagA")

    # MessageListenerConcurrently.consumeMessage(msgs, context)
    def on_messages(messages, context):
        for message in messages:
            print(f"received {message.body.decode()} of {context.message_queue}")
        return rmq.ConsumeStatus.CONSUME_SUCCESS

    consumer.register_listener(on_messages)
    consumer.start()
    print("consumer started")
    consumer.run()  # until Ctrl-C or SIGTERM, then shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("producer", "consumer"))
    {"producer": producer, "consumer": consumer}[parser.parse_args().part]()
