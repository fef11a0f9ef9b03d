"""The pull consumer for asyncio: the same core, awaited instead of blocked on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Any, Self

from rocketmq_fast._core import ArrowBatch, ArrowBuilder, MessageExt
from rocketmq_fast.consumer.fetched import Piece
from rocketmq_fast.consumer.lite_pull import (
    ARROW_MESSAGES,
    POLL_MESSAGES,
    PullConsumer,
    commit_offsets,
    find_brokers,
    in_columns,
    messages_of,
    poll_limit,
)
from rocketmq_fast.consumer.subscription import Sql
from rocketmq_fast.errors import ClientStateError, ConfigError
from rocketmq_fast.model import MessageQueue

_ITERATION_SECONDS = 60.0
# Messages of an iteration that never had to wait, after which other tasks get a turn.
_TURN_MESSAGES = 100


class AsyncPullConsumer:
    """A PullConsumer whose methods are awaited; see there for what they do.

    `async with` starts and ends it. `poll` and `commit` wait on futures that the client's own
    thread completes; what asks a name server or a broker once in a while runs on a thread of
    asyncio. `seek`, `pause`, `resume`, `position` and `assignment` wait for nothing and are plain
    methods.
    """

    def __init__(self, group: str, **options: Any) -> None:
        self._consumer = PullConsumer(group, **options)

    def __repr__(self) -> str:
        return f"<AsyncPullConsumer around {self._consumer!r}>"

    # ----------------------------------------------------------------------------- lifecycle

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._consumer.group

    async def start(self) -> None:
        """See PullConsumer.start."""
        await asyncio.to_thread(self._consumer.start)

    async def shutdown(self) -> None:
        """See PullConsumer.shutdown."""
        await asyncio.to_thread(self._consumer.shutdown)

    close = shutdown

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await asyncio.to_thread(self._consumer.__exit__, kind, *rest)

    # -------------------------------------------------------------------------------- queues

    async def queues(self, topic: str) -> list[MessageQueue]:
        """See PullConsumer.queues."""
        return await asyncio.to_thread(self._consumer.queues, topic)

    async def subscribe(self, topic: str, expression: str | Sql | None = "*") -> None:
        """See PullConsumer.subscribe."""
        await asyncio.to_thread(self._consumer.subscribe, topic, expression)

    async def assign(
        self, queues: Iterable[MessageQueue], expression: str | Sql | None = "*"
    ) -> None:
        """See PullConsumer.assign."""
        await asyncio.to_thread(self._consumer.assign, queues, expression)

    async def unsubscribe(self, topic: str | None = None) -> None:
        """See PullConsumer.unsubscribe."""
        await asyncio.to_thread(self._consumer.unsubscribe, topic)

    async def wait_assigned(self, timeout: float = 10.0) -> bool:
        """See PullConsumer.wait_assigned."""
        return await asyncio.to_thread(self._consumer.wait_assigned, timeout)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return self._consumer.assignment()

    # ------------------------------------------------------------------------------ position

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """See PullConsumer.seek."""
        self._consumer.seek(queue, offset)

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """See PullConsumer.seek_to_begin."""
        await asyncio.to_thread(self._consumer.seek_to_begin, *queues)

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """See PullConsumer.seek_to_end."""
        await asyncio.to_thread(self._consumer.seek_to_end, *queues)

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp: datetime | int) -> None:
        """See PullConsumer.seek_to_timestamp."""
        await asyncio.to_thread(self._consumer.seek_to_timestamp, queue, timestamp)

    def position(self, queue: MessageQueue) -> int:
        """Offset of the next message that `poll` gives of a queue."""
        return self._consumer.position(queue)

    def pause(self, *queues: MessageQueue) -> None:
        """See PullConsumer.pause."""
        self._consumer.pause(*queues)

    def resume(self, *queues: MessageQueue) -> None:
        """See PullConsumer.resume."""
        self._consumer.resume(*queues)

    # --------------------------------------------------------------------------------- polls

    async def poll(self, timeout: float = 1.0, max_messages: int | None = None) -> list[MessageExt]:
        """See PullConsumer.poll. Cancelling it loses no message."""
        return messages_of(await self._poll(timeout, max_messages, POLL_MESSAGES))

    async def poll_arrow(
        self,
        timeout: float = 1.0,
        max_messages: int | None = None,
        columns: Iterable[str] | None = None,
    ) -> ArrowBatch:
        """See PullConsumer.poll_arrow. Cancelling it loses no message."""
        builder = ArrowBuilder(columns)
        return in_columns(builder, await self._poll(timeout, max_messages, ARROW_MESSAGES))

    async def _poll(self, timeout: float, max_messages: int | None, most: int) -> list[Piece]:
        limit = poll_limit(max_messages, most)
        if timeout < 0:
            raise ConfigError(f"timeout is {timeout}; it must be 0 or more seconds")
        running = self._consumer.running
        fetched = running.fetched
        running.begin_poll()
        whole = max_messages is None
        deadline = time.monotonic() + timeout
        while not (pieces := running.take(limit, whole=whole)) and not fetched.closed:
            rest = deadline - time.monotonic()
            if rest <= 0:
                break
            await self._wait(rest)
            failure = fetched.failure
            if failure is not None:
                raise failure
        return pieces

    async def _wait(self, seconds: float) -> None:
        """Until there may be something to take."""
        fetched = self._consumer.running.fetched
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def complete() -> None:
            if not future.done():
                future.set_result(None)

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(complete)

        if not fetched.call_when_worth(wake):
            return
        timer = loop.call_later(seconds, complete)
        try:
            await future
        finally:
            timer.cancel()
            fetched.forget_waker(wake)

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Messages one by one, until the consumer is shut down.

        A message counts as consumed when the next one is asked for.
        """
        running = self._consumer.running
        turn = 0
        while self._consumer.is_running(running):
            try:
                messages = await self.poll(_ITERATION_SECONDS, 1)
            except ClientStateError:
                if self._consumer.is_running(running):
                    raise
                return  # shut down by somebody else
            for message in messages:
                yield message
            turn += 1
            if turn == _TURN_MESSAGES:
                turn = 0
                await asyncio.sleep(0)

    # ------------------------------------------------------------------------------- commits

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """See PullConsumer.commit."""
        running = self._consumer.running
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def complete(error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        def done(error: Exception | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(complete, error)

        wanted = self._consumer.wire_offsets(offsets)
        if wanted:
            await asyncio.to_thread(find_brokers, running, wanted)
        running.store.commit(commit_offsets(running, wanted), done)
        await future

    async def committed(self, queue: MessageQueue) -> int | None:
        """See PullConsumer.committed."""
        return await asyncio.to_thread(self._consumer.committed, queue)

    # ------------------------------------------------------------------------------- offsets

    async def begin_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """See PullConsumer.begin_offsets."""
        return await asyncio.to_thread(self._consumer.begin_offsets, queues)

    async def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """See PullConsumer.end_offsets."""
        return await asyncio.to_thread(self._consumer.end_offsets, queues)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp: datetime | int) -> int:
        """See PullConsumer.offset_for_timestamp."""
        return await asyncio.to_thread(self._consumer.offset_for_timestamp, queue, timestamp)

    async def offsets_for_timestamp(
        self, queues: Iterable[MessageQueue], timestamp: datetime | int
    ) -> dict[MessageQueue, int]:
        """See PullConsumer.offsets_for_timestamp."""
        return await asyncio.to_thread(self._consumer.offsets_for_timestamp, queues, timestamp)

    async def lag(self) -> dict[MessageQueue, int]:
        """See PullConsumer.lag."""
        return await asyncio.to_thread(self._consumer.lag)

    def stats(self) -> dict[str, Any]:
        """See PullConsumer.stats."""
        return self._consumer.stats()
