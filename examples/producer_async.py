"""Send without waiting for each answer, and in batches: what it takes to send fast."""

import rocketmq_fast as rmq

with rmq.Producer("example_producer") as producer:
    # A future per message. With too many of them open (max_in_flight), send_async waits.
    futures = [
        producer.send_async(rmq.Message("TopicTest", f"async {number}".encode()))
        for number in range(100)
    ]
    print(sum(future.result().status is rmq.SendStatus.SEND_OK for future in futures), "sent")

    # Messages of one topic in one request; split_batches cuts where a request would be too large.
    messages = [rmq.Message("TopicTest", f"batch {number}".encode()) for number in range(1000)]
    for part in producer.split_batches(messages):
        result = producer.send_batch(part)
        print(len(part), "messages to", result.message_queue)
