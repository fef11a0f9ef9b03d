"""Coroutines as listeners, and the pull consumer awaited."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from rocketmq_fast import (
    AsyncPullConsumer,
    ConfigError,
    ConsumeStatus,
    MessageExt,
    PushConsumer,
)
from rocketmq_fast._core.consume import ConsumeContext
from tests.brokers import TestBroker
from tests.consuming import bodies
from tests.pulling import FIRST, no_thread_left
from tests.waiting import wait_for

SUCCESS = ConsumeStatus.CONSUME_SUCCESS


class AsyncRecorder:
    """A listener that suspends, and notes how many calls of it run at a time."""

    def __init__(self, pause: float = 0.0) -> None:
        self._pause = pause
        self.bodies: list[bytes] = []
        self.sizes: list[int] = []
        self.threads: set[int] = set()
        self.running = 0
        self.most = 0

    async def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> object:
        self.running += 1
        self.most = max(self.most, self.running)
        self.threads.add(threading.get_ident())
        await asyncio.sleep(self._pause)
        self.running -= 1
        self.bodies += [message.body for message in messages]
        self.sizes.append(len(messages))
        return SUCCESS


def push(broker: TestBroker, group: str, topic: str, **options: object) -> PushConsumer:
    consumer = PushConsumer(group, namesrv_addr=broker.namesrv_addr, **{**FIRST, **options})
    consumer.subscribe(topic)
    return consumer


async def until(recorder: AsyncRecorder, count: int) -> None:
    async with asyncio.timeout(30.0):
        while len(recorder.bodies) < count:
            await asyncio.sleep(0.01)


def test_listener_runs_on_the_loop_of_start(broker: TestBroker) -> None:
    topic, group = broker.topic(4), broker.group()
    sent = bodies(400)
    broker.send(topic, sent, queues=range(4))
    recorder = AsyncRecorder(0.005)

    async def main() -> None:
        options = {"consume_thread_min": 1, "consume_thread_max": 8}
        consumer = push(broker, group, topic, consume_message_batch_max_size=3, **options)
        consumer.register_listener(recorder)
        async with consumer:
            await until(recorder, 400)

    with no_thread_left():
        asyncio.run(main())
    assert Counter(recorder.bodies) == Counter(sent)
    assert recorder.threads == {threading.get_ident()}
    assert 1 < recorder.most <= 8
    assert max(recorder.sizes) == 3
    assert broker.committed(group, topic) == dict.fromkeys(range(4), 100)


def test_without_a_loop_the_listener_gets_one(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    sent = bodies(100)
    broker.send(topic, sent)
    recorder = AsyncRecorder()
    consumer = push(broker, group, topic)
    consumer.register_listener(recorder)
    with no_thread_left(), consumer:
        wait_for(lambda: len(recorder.bodies) == 100, "all messages")
    assert Counter(recorder.bodies) == Counter(sent)
    assert len(recorder.threads) == 1
    assert recorder.threads != {threading.get_ident()}
    assert broker.committed(group, topic) == {0: 100}


def test_what_is_no_success_comes_again(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    sent = bodies(12)
    broker.send(topic, sent)
    seen: list[tuple[bytes, int]] = []

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> object:
        await asyncio.sleep(0)
        seen.extend((message.body, message.reconsume_times) for message in messages)
        if messages[0].reconsume_times > 0:
            return SUCCESS
        match int(messages[0].body[1:]) // 4:
            case 0:
                raise KeyError("listener")
            case 1:
                return ConsumeStatus.RECONSUME_LATER
        context.ack_index = 1
        return SUCCESS

    consumer = push(broker, group, topic, consume_message_batch_max_size=4)
    consumer.register_listener(listener)
    with no_thread_left(), consumer:
        wait_for(lambda: len(seen) >= 22, lambda: f"22 deliveries: {seen}")
    assert Counter(body for body, times in seen if times == 0) == Counter(sent)
    again = [body for body, times in seen if times == 1]
    assert Counter(again) == Counter([*sent[:8], *sent[10:]])
    assert broker.committed(group, topic) == {0: 12}


def test_end_waits_for_running_calls(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(5))
    began = threading.Event()
    ended = []

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> object:
        began.set()
        await asyncio.sleep(0.2)
        ended.extend(messages)
        return SUCCESS

    consumer = push(broker, group, topic, consume_message_batch_max_size=5, pull_batch_size=5)
    consumer.register_listener(listener)
    with no_thread_left(), consumer:
        assert began.wait(60.0)
    assert broker.committed(group, topic) == {0: len(ended)}
    assert ended


def test_the_wait_for_running_calls_can_be_ended(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(1))
    began = threading.Event()

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> object:
        began.set()
        await asyncio.Event().wait()
        return SUCCESS

    consumer = push(broker, group, topic, await_termination_millis_when_shutdown=3_600_000)
    consumer.register_listener(listener)
    with no_thread_left(), consumer:
        assert began.wait(60.0)
        running = consumer._running
        assert running is not None
        running.stop_waiting()  # one that is still to come, as it happens
    assert broker.committed(group, topic).get(0, 0) == 0


def test_orderly_listeners_are_not_async() -> None:
    consumer = PushConsumer("group", namesrv_addr="127.0.0.1:1")
    with pytest.raises(ConfigError, match="async"):
        consumer.register_listener(AsyncRecorder(), orderly=True)


def test_pull_awaited(broker: TestBroker) -> None:
    topic, group = broker.topic(2), broker.group()
    sent = bodies(200)
    broker.send(topic, sent, queues=range(2))

    async def main() -> list[bytes]:
        got: list[bytes] = []
        async with AsyncPullConsumer(group, namesrv_addr=broker.namesrv_addr, **FIRST) as consumer:
            queues = await consumer.queues(topic)
            await consumer.assign(queues)
            while len(got) < 150:
                got += [message.body for message in await consumer.poll(10.0, 10)]
            await consumer.commit()
            assert sum(broker.committed(group, topic).values()) == len(got)
            assert await consumer.committed(queues[0]) == consumer.position(queues[0])
            async for message in consumer:
                got.append(message.body)
                if len(got) == 200:
                    break
            assert set((await consumer.lag()).values()) == {0}
            assert await consumer.poll(0.05) == []
            await consumer.seek_to_begin()
            consumer.pause(queues[0])
            rows = 0
            while rows < 100:
                rows += len(await consumer.poll_arrow(10.0))
            assert rows == 100
            consumer.resume(queues[0])
            assert len(await consumer.poll(10.0, 1)) == 1
            consumer.seek(queues[0], 99)
            assert (await consumer.poll(10.0))[0].queue_offset == 99
        return got

    with no_thread_left():
        assert Counter(asyncio.run(main())) == Counter(sent)


def test_other_tasks_run_and_waiting_polls_wake(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(2000))

    async def main() -> None:
        async with AsyncPullConsumer(group, namesrv_addr=broker.namesrv_addr, **FIRST) as consumer:
            await consumer.subscribe(topic)
            assert await consumer.wait_assigned(60.0)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            count = 0
            async for _ in consumer:
                count += 1
                if count == 2000:
                    break
            task.cancel()
            assert turns >= 10
            # A poll that waits is woken by the message, and loses nothing when cancelled.
            waiting = asyncio.create_task(consumer.poll(60.0))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            waiting = asyncio.create_task(consumer.poll(60.0))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(broker.send, topic, [b"last"])
            assert [message.body for message in await waiting] == [b"last"]

    with no_thread_left():
        asyncio.run(main())
    assert broker.committed(group, topic) == {0: 2001}
