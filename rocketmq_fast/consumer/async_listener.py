"""Concurrent consumption with an `async def` listener, on an asyncio event loop.

Worker coroutines take the place of worker threads: each claims a batch, awaits the listener and
acknowledges. There is one as long as listeners return without suspending; while calls are suspended
and messages wait, more are started, up to consume_thread_max calls at a time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeGuard, cast

from rocketmq_fast._core import MessageExt
from rocketmq_fast._core.consume import Chunk, ConsumeContext
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.concurrent import ConsumeConcurrentlyService, SendBack
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.stats import ConsumerStats
from rocketmq_fast.model import ConsumeStatus
from rocketmq_fast.remoting.loop import EventLoop

logger = logging.getLogger(__name__)

AsyncListener = Callable[[list[MessageExt], ConsumeContext], Awaitable[object]]

# A listener that never suspends leaves the loop to others after this time.
_TURN_SECONDS = 0.005
_SMOOTHING = 0.1
# Threads that give messages back: the broker is asked, which blocks.
_SETTLERS = 4
_DIRECT_SECONDS = 60.0


def is_async_listener(listener: object) -> TypeGuard[AsyncListener]:
    """Whether calling it gives a coroutine."""
    if inspect.iscoroutinefunction(listener):
        return True
    call = getattr(listener, "__call__", None)  # noqa: B004 - the method is what is looked at
    return inspect.iscoroutinefunction(call)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Work:
    """A chunk in line, and the next message of it that nobody has claimed."""

    __slots__ = ("chunk", "end", "next")

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.next = chunk.next
        self.end = chunk.end


class _Call:
    """A running listener call."""

    __slots__ = ("chunk", "since", "start", "stop")

    def __init__(self, chunk: Chunk, start: int, stop: int) -> None:
        self.chunk = chunk
        self.start = start
        self.stop = stop
        self.since = time.monotonic()


class AsyncConsumeService(ConsumeConcurrentlyService):
    """As its base, which settles what did not succeed; calls are made on an asyncio loop.

    `loop` None: on a loop of its own, on a thread of its own.
    """

    def __init__(
        self,
        group: str,
        options: PushConsumerOptions,
        listener: AsyncListener,
        io_loop: EventLoop,
        send_back: SendBack,
        stats: ConsumerStats,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(group, options, listener, io_loop, send_back, stats)
        self._call = listener
        self._most = options.consume_thread_max
        self._line: deque[_Work] = deque()
        self._calls: set[_Call] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._poked = False
        self._stopping = False
        self._ended = threading.Event()
        self._mean = 0.0
        self._settlers = ThreadPoolExecutor(_SETTLERS, f"rocketmq-settle-{group}")
        self._thread: threading.Thread | None = None
        self._name = f"rocketmq-asyncio-{group}"
        self._given_loop = loop

    @cached_property
    def _aio(self) -> asyncio.AbstractEventLoop:
        """The loop; our own one starts with its first use, so that a failed start leaves none."""
        with self._lock:
            if self._given_loop is None:
                self._given_loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run_loop, args=(self._given_loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._given_loop

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    # --------------------------------------------------------------------------------- intake

    def _submit(self, chunk: Chunk) -> None:
        """Put a chunk in line. Any thread."""
        if self._stopping:
            return
        self._line.append(_Work(chunk))
        if not self._poked:
            self._poked = True
            # At the end of the loop's round: several pulls may be answered in it.
            self._loop.call_soon(self._on_loop, self._poke)

    def _on_loop(self, callback: Callable[[], object]) -> bool:
        try:
            self._aio.call_soon_threadsafe(callback)
        except RuntimeError as error:
            if not self._stopping:
                logger.error("nothing is consumed any more: %s", error)  # noqa: TRY400
            return False
        return True

    # ------------------------------------------------------------------- the loop's own thread

    def _poke(self) -> None:
        self._poked = False
        self._grow()

    def _grow(self) -> None:
        """Start a worker, and come back after its first step: if it is suspended, start another."""
        if self._stopping or len(self._tasks) >= self._most or not self._line:
            return
        task = self._aio.create_task(self._work())
        self._tasks.add(task)
        task.add_done_callback(self._on_worker_end)
        self._aio.call_soon(self._grow)

    def _on_worker_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("messages stay unacknowledged", exc_info=task.exception())
        if self._stopping and not self._tasks:
            self._ended.set()

    def _claim(self) -> _Call | None:
        """The next messages in line."""
        while self._line and not self._stopping:
            work = self._line[0]
            if work.next >= work.end or work.chunk.queue.dropped:
                self._line.popleft()
                continue
            start = work.next
            work.next = min(start + self._batch_size, work.end)
            return _Call(work.chunk, start, work.next)
        return None

    def _retires(self) -> bool:
        """Whether this worker is one too many since the maximum was lowered; it counts no more."""
        task = asyncio.current_task()
        if task is None or len(self._tasks) <= self._most:
            return False
        self._tasks.discard(task)
        return True

    async def _work(self) -> None:
        turn = time.monotonic()
        while not self._retires() and (call := self._claim()) is not None:
            now = await self._consume(call)
            if now - turn > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn = time.monotonic()

    async def _consume(self, call: _Call) -> float:
        chunk, start, stop = call.chunk, call.start, call.stop
        queue = cast(AssignedQueue, chunk.queue)
        messages = chunk.batch[start:stop]
        context = ConsumeContext(queue.message_queue)
        status: object = None
        error: BaseException | None = None
        self._calls.add(call)
        try:
            status = await self._call(messages, context)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the loop ends; the messages are delivered again
            error = cancelled
        except Exception as raised:  # noqa: BLE001 - any error of a listener means "later"
            error = raised
        finally:
            self._calls.discard(call)
        now = time.monotonic()
        took = now - call.since
        self._mean = took if self._mean == 0.0 else self._mean + _SMOOTHING * (took - self._mean)
        count = stop - start
        counters = self._stats.topic(queue.message_queue.topic)
        succeeded = status is ConsumeStatus.CONSUME_SUCCESS and context.ack_index >= count - 1
        with self._lock:
            counters.calls += 1
            counters.call_seconds += took
            if succeeded:
                counters.succeeded += count  # others are counted as they are settled
        if queue.dropped:
            return now  # the result is void: another member has the queue now
        if succeeded:
            queue.on_removed(queue.process_queue.remove_batch(chunk.batch, start, stop))
        else:
            await self._aio.run_in_executor(
                self._settlers,
                self._on_failure,
                *(chunk, start, stop, messages, status, context, error),
            )
        return now

    # -------------------------------------------------------------------------------- any thread

    def resize(self, fewest: int, most: int) -> None:
        """Change how many calls may run at a time."""
        self._most = most
        if self._line and not self._stopping:
            self._on_loop(self._grow)  # what waits would else wait for the next pull

    def call_once(
        self, listener: AsyncListener, message: MessageExt, context: ConsumeContext
    ) -> object:
        """Call a listener outside of the flow, and wait. Not on the loop's thread."""

        async def call() -> object:
            return await listener([message], context)

        future = asyncio.run_coroutine_threadsafe(call(), self._aio)
        return future.result(_DIRECT_SECONDS)

    def _running_since(self, queue: AssignedQueue, offset: int) -> float | None:
        """When the listener call that holds this offset began."""
        for call in list(self._calls):
            batch = call.chunk.batch
            if call.chunk.queue is queue and any(
                batch[index].queue_offset == offset for index in range(call.start, call.stop)
            ):
                return call.since
        return None

    @property
    def threads(self) -> int:
        """Listener calls at a time, now."""
        return len(self._tasks)

    @property
    def backlog(self) -> int:
        """Messages that wait."""
        return sum(work.end - work.next for work in list(self._line))

    @property
    def call_seconds(self) -> float:
        """Smoothed time of a listener call."""
        return self._mean

    def stop(self, timeout: float) -> bool:
        """Claim nothing more and wait for the running calls. Returns whether all have ended.

        On the loop's own thread nothing can be waited for: what still runs is delivered again.
        """
        self._stopping = True
        self._line.clear()
        done = self._given_loop is None or self._wait_ended(timeout)
        if self._thread is not None:
            self._on_loop(self._end_loop)
            if self._thread is not threading.current_thread():
                self._thread.join(5.0)
        self._settlers.shutdown(wait=done)
        return done

    def _wait_ended(self, timeout: float) -> bool:
        if not self._aio.is_running():
            return not self._tasks
        if running_loop() is self._aio:
            if self._tasks:
                logger.warning(
                    "shutdown() on the listener's event loop cannot wait for its calls; use "
                    "`async with`, or await asyncio.to_thread(consumer.shutdown)"
                )
            return not self._tasks

        def check() -> None:
            if not self._tasks:
                self._ended.set()

        return self._on_loop(check) and self._ended.wait(timeout) and not self._tasks

    def stop_waiting(self) -> None:
        """Have the stop wait no longer for running calls."""
        self._ended.set()

    def _end_loop(self) -> None:
        """Cancel what is left on our own loop, and end it."""
        left: list[asyncio.Task[Any]] = [t for t in asyncio.all_tasks(self._aio) if not t.done()]
        for task in left:
            task.cancel()

        async def stop() -> None:
            await asyncio.gather(*left, return_exceptions=True)
            self._aio.stop()

        self._ending = self._aio.create_task(stop())
