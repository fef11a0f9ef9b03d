"""An `async def` listener: it runs on the event loop of the program."""

import asyncio

import rocketmq_fast as rmq


async def on_messages(messages, context):
    await asyncio.sleep(0.01)  # stands for a database or an HTTP call
    for message in messages:
        print("done", message.body.decode())
    return rmq.ConsumeStatus.CONSUME_SUCCESS


async def main():
    consumer = rmq.PushConsumer("example_async", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    consumer.subscribe("TopicTest")
    consumer.register_listener(on_messages)
    async with consumer:
        await asyncio.Event().wait()  # until Ctrl-C


try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("stopped")
