"""Ask for messages instead of being called: choose the queues, seek, poll, commit when done."""

import rocketmq_fast as rmq

with rmq.PullConsumer("example_pull", auto_commit=False) as pull:
    queues = pull.queues("TopicTest")
    pull.assign(queues)
    pull.seek_to_begin()
    left = sum(pull.end_offsets(queues).values()) - sum(pull.begin_offsets(queues).values())
    while left > 0:
        messages = pull.poll(timeout=1.0)
        for message in messages:
            print(message.queue_id, message.queue_offset, message.body.decode())
        left -= len(messages)
        pull.commit()  # waits for the broker
    print("lag", sum(pull.lag().values()))
