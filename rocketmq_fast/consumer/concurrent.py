"""Concurrent consumption: workers that take messages from pulled chunks and call the listener.

A chunk is what one pull brought. Workers claim batches from its front one by one, so a chunk is as
parallel as there are workers on it, and costs one hand-over when one worker is enough. How many
workers are woken follows from the measured time of a listener call: enough to work off the backlog
within milliseconds, one for a listener of microseconds. A listener that blocks is noticed by a
watch on the event loop, which adds workers as long as nothing moves.
"""

from __future__ import annotations

import _thread
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, cast

from rocketmq_fast._core import MessageBatch, MessageExt
from rocketmq_fast._core.consume import Chunk, ConsumeContext, ConsumeWorker
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.errors import RocketMQError
from rocketmq_fast.model import ConsumeStatus
from rocketmq_fast.remoting.loop import EventLoop

logger = logging.getLogger(__name__)

ConcurrentListener = Callable[[list[MessageExt], ConsumeContext], object]

# The backlog that is due at once should be worked off in about this time.
_TARGET_SECONDS = 0.002
# Without a finished call for this long, workers are added.
_WATCH_SECONDS = 0.01
_IDLE_SECONDS = 60.0
_LOCAL_RETRY_SECONDS = 5.0
_EXPIRED_DELAY_LEVEL = 3
_EXPIRED_PER_SCAN = 16
_SMOOTHING = 0.3


class SendBack(Protocol):
    """Gives a message back to the broker for a retry. Raises RocketMQError when it cannot."""

    def __call__(self, queue: AssignedQueue, message: MessageExt, delay_level: int) -> None:
        """Blocks until the broker has it."""


class _Worker:
    """A thread of the pool."""

    __slots__ = ("park", "run", "thread")

    def __init__(self) -> None:
        self.run = ConsumeWorker()
        self.park = _thread.allocate_lock()
        self.park.acquire()
        self.thread: threading.Thread | None = None


class ConsumeConcurrentlyService:
    """The pool. `submit` is called on the event loop, everything else from any thread."""

    def __init__(
        self,
        group: str,
        options: PushConsumerOptions,
        listener: ConcurrentListener,
        loop: EventLoop,
        send_back: SendBack,
    ) -> None:
        self.consumed = 0
        self.failed = 0
        self._group = group
        self._options = options
        self._listener = listener
        self._loop = loop
        self._send_back = send_back
        self._lock = threading.Lock()
        self._chunks: deque[Chunk] = deque()
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._named = 0
        self._stopping = False
        self._call_seconds = 0.0
        self._watching = False
        self._calls_seen = -1
        self._all_done = threading.Condition(self._lock)

    # ------------------------------------------------------------------------------- intake

    def submit(self, queue: AssignedQueue, batch: MessageBatch) -> None:
        """Queue a pulled batch and wake as many workers as it deserves."""
        self._add(Chunk(queue, batch, 0, len(batch)))

    def _add(self, chunk: Chunk) -> None:
        with self._lock:
            if self._stopping:
                return
            self._chunks.append(chunk)
            self._wake(self._wanted() - (len(self._workers) - len(self._idle)))
            watch = not self._watching
            self._watching = True
        if watch:
            self._loop.call_soon(self._begin_watch)

    def _wanted(self) -> int:
        """Workers that the backlog deserves. Lock held."""
        batch = self._options.consume_message_batch_max_size
        calls = sum(math.ceil(chunk.left / batch) for chunk in self._chunks)
        return max(1, math.ceil(calls * self._call_seconds / _TARGET_SECONDS))

    def _wake(self, count: int) -> None:
        """Give work to `count` more workers, new ones if none is idle. Lock held."""
        for _ in range(count):
            if self._idle:
                self._idle.pop().park.release()
            elif len(self._workers) < self._options.consume_thread_max:
                self._start_worker()
            else:
                return

    def _start_worker(self) -> None:
        worker = _Worker()
        self._named += 1
        worker.thread = threading.Thread(
            target=self._work,
            args=(worker,),
            name=f"rocketmq-consume-{self._group}-{self._named}",
            daemon=True,
        )
        self._workers.append(worker)
        worker.thread.start()

    def _begin_watch(self) -> None:
        self._loop.call_later(_WATCH_SECONDS, self._watch)

    def _watch(self) -> None:
        """Add workers while there is a backlog and no call ends. Event loop's thread."""
        with self._lock:
            if not self._chunks or self._stopping:
                self._watching = False
                return
            calls = sum(worker.run.calls for worker in self._workers)
            active = len(self._workers) - len(self._idle)
            if calls == self._calls_seen or active == 0:
                self._wake(max(1, active))
            else:
                self._wake(self._wanted() - active)
            self._calls_seen = calls
        self._loop.call_later(_WATCH_SECONDS, self._watch)

    # ------------------------------------------------------------------------------ workers

    def _next_chunk(self, worker: _Worker) -> Chunk | None:
        """A chunk with messages left; None when the worker shall end. Parks in between."""
        while True:
            with self._lock:
                while self._chunks:
                    chunk = self._chunks[0]
                    if chunk.left and not chunk.queue.dropped and not self._stopping:
                        return chunk
                    self._chunks.popleft()
                if self._stopping:
                    self._remove(worker)
                    return None
                self._idle.append(worker)
            if worker.park.acquire(timeout=_IDLE_SECONDS):
                continue
            with self._lock:
                if worker in self._idle:
                    self._idle.remove(worker)
                    if len(self._workers) > self._options.consume_thread_min:
                        self._remove(worker)
                        return None
                else:
                    worker.park.acquire()  # woken just after the wait ended

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._all_done.notify_all()

    def _is_stopping(self) -> bool:
        return self._stopping

    def _work(self, worker: _Worker) -> None:
        run = worker.run
        while (chunk := self._next_chunk(worker)) is not None:
            calls, seconds = run.calls, run.seconds
            try:
                claimed = run.consume(
                    chunk,
                    self._listener,
                    self._options.consume_message_batch_max_size,
                    self._on_failure,
                    self._is_stopping,
                )
            except Exception:
                logger.exception("worker of group %s: messages stay unacknowledged", self._group)
                continue
            calls = run.calls - calls
            with self._lock:
                self.consumed += claimed
                if calls:
                    mean = (run.seconds - seconds) / calls
                    known = self._call_seconds
                    self._call_seconds = (
                        mean if known == 0.0 else known + _SMOOTHING * (mean - known)
                    )

    # ------------------------------------------------------------------------------ results

    def _on_failure(
        self,
        chunk: Chunk,
        start: int,
        stop: int,
        messages: list[MessageExt],
        status: object,
        context: ConsumeContext,
        error: BaseException | None,
    ) -> None:
        """Settle a call that did not end in plain success: acknowledge, send back, retry."""
        queue = cast(AssignedQueue, chunk.queue)
        first, last = messages[0].queue_offset, messages[-1].queue_offset
        where = f"{queue.message_queue} offsets {first} to {last}"
        if error is not None:
            logger.error("listener failed on %s; retrying later", where, exc_info=error)
        elif status is ConsumeStatus.CONSUME_SUCCESS:
            logger.debug("listener acknowledged up to index %d of %s", context.ack_index, where)
        elif status is not ConsumeStatus.RECONSUME_LATER:
            logger.error(
                "listener returned %r on %s, not a ConsumeStatus; retrying later", status, where
            )
        succeeded = status is ConsumeStatus.CONSUME_SUCCESS
        acked = min(context.ack_index + 1, stop - start) if succeeded else 0
        settled = start + max(0, acked)
        with self._lock:
            self.failed += stop - settled
        unsent = []
        for index in range(settled, stop):
            message = messages[index - start]
            try:
                self._send_back(queue, message, context.delay_level_when_next_consume)
            except RocketMQError as failure:
                logger.warning(
                    "%s offset %d was not sent back, it is tried here again in %.0f s: %s",
                    queue.message_queue,
                    message.queue_offset,
                    _LOCAL_RETRY_SECONDS,
                    failure,
                )
                unsent.append(index)
        keep = set(unsent)
        done = [m.queue_offset for i, m in enumerate(messages, start) if i not in keep]
        if done and not queue.dropped:
            queue.on_removed(queue.process_queue.remove(done))
        for index in unsent:
            chunk.batch.count_reconsume(index)
            retry = Chunk(queue, chunk.batch, index, index + 1)
            self._loop.call_later(_LOCAL_RETRY_SECONDS, self._add, retry)

    def give_back_expired(self, queues: Iterable[AssignedQueue]) -> None:
        """Send back messages whose listener call is older than consume_timeout.

        Only the smallest offset of a queue is looked at, since it alone holds the commit. The
        listener goes on; what it returns for such a message changes nothing, so it may run twice.
        """
        timeout = self._options.consume_timeout_seconds
        for queue in queues:
            for _ in range(_EXPIRED_PER_SCAN):
                message = queue.process_queue.first()
                if message is None or queue.dropped:
                    break
                offset = message.queue_offset
                running = self._running_since(queue, offset)
                if running is None or time.monotonic() - running < timeout:
                    break
                logger.warning(
                    "listener holds %s offset %d for more than %.0f s; it is sent back",
                    queue.message_queue,
                    offset,
                    timeout,
                )
                try:
                    self._send_back(queue, message, _EXPIRED_DELAY_LEVEL)
                except RocketMQError as failure:
                    logger.warning("%s offset %d: %s", queue.message_queue, offset, failure)
                    break
                if queue.process_queue.min_offset == offset and not queue.dropped:
                    queue.on_removed(queue.process_queue.remove([offset]))

    def _running_since(self, queue: AssignedQueue, offset: int) -> float | None:
        """When the listener call that holds this offset began."""
        with self._lock:
            runs = [worker.run for worker in self._workers]
        for run in runs:
            chunk, start, stop, since = run.chunk, run.start, run.stop, run.since
            if chunk is None or chunk.queue is not queue or since == 0.0:
                continue
            if any(chunk.batch[i].queue_offset == offset for i in range(start, stop)):
                return since
        return None

    # ----------------------------------------------------------------------------- lifecycle

    @property
    def threads(self) -> int:
        """Threads of the pool."""
        return len(self._workers)

    @property
    def backlog(self) -> int:
        """Messages that wait for a worker."""
        with self._lock:
            return sum(chunk.left for chunk in self._chunks)

    @property
    def call_seconds(self) -> float:
        """Smoothed time of a listener call."""
        return self._call_seconds

    def stop(self, timeout: float) -> bool:
        """Claim nothing more and wait for the running calls. Returns whether all have ended.

        Claims go in offset order, so what was not claimed lies behind everything that was: once the
        running calls are acknowledged, the commit leaves nothing to be delivered twice.
        """
        end = time.monotonic() + timeout
        with self._lock:
            self._stopping = True
            for chunk in self._chunks:
                chunk.give_up()
            self._chunks.clear()
            while self._idle:
                self._idle.pop().park.release()
            me = threading.current_thread()
            while any(worker.thread is not me for worker in self._workers):
                rest = end - time.monotonic()
                if rest <= 0:
                    return False
                self._all_done.wait(rest)
        return True
