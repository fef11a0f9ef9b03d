"""Messages with the same key go to the same queue, so they keep their order."""

import rocketmq_fast as rmq

with rmq.Producer("example_producer") as producer:
    for step in ("created", "paid", "shipped"):
        for order in ("order-1", "order-2", "order-3"):
            message = rmq.Message("TopicTest", step.encode(), keys=order)
            result = producer.send(message, selector=rmq.select_by_hash, arg=order)
            print(order, step, "to queue", result.message_queue.queue_id)
