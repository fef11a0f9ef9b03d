"""Orderly consumption: each queue's messages in offset order, one listener call at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol, cast

from rocketmq_fast._core import MessageBatch, MessageExt
from rocketmq_fast._core.consume import OrderlyContext, QueueState
from rocketmq_fast._core.message import count_reconsume
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.pool import PooledService, Worker
from rocketmq_fast.consumer.stats import ConsumerStats
from rocketmq_fast.errors import RocketMQError
from rocketmq_fast.model import MessageQueue, OrderlyStatus
from rocketmq_fast.remoting.loop import EventLoop

logger = logging.getLogger(__name__)

# A queue that never runs empty lets go of its worker after this time.
CONTINUOUS_SECONDS = 60.0
# With other queues in line, a worker changes over after this time.
_SLICE_SECONDS = 0.005
_AGAIN_SECONDS = 0.01
_NOT_LOCKED_SECONDS = 0.1
_SUSPEND_MIN_MILLIS, _SUSPEND_MAX_MILLIS = 10, 30_000
_NO_LIMIT = 2**31 - 1


OrderlyListener = Callable[[list[MessageExt], OrderlyContext], object]


class DeadLetter(Protocol):
    """Moves a message to the dead-letter topic. Raises RocketMQError when it cannot."""

    def __call__(self, message: MessageExt) -> None:
        """Blocks until the broker has it."""


class _QueueWork:
    """A queue in the pool's line."""

    __slots__ = ("_batch_size", "queue")

    def __init__(self, queue: AssignedQueue, batch_size: int) -> None:
        self.queue = queue
        self._batch_size = batch_size

    @property
    def topic(self) -> str:
        """The queue's."""
        return self.queue.message_queue.topic

    @property
    def calls_left(self) -> int:
        """At least 1, also for a lost queue: its worker ends what is to be ended."""
        messages = self.queue.process_queue
        return max(1, -(-(messages.count - messages.taken_count) // self._batch_size))


class ConsumeOrderlyService(PooledService[_QueueWork]):
    """Queues in, listener calls in order, results out.

    At most one worker is on a queue: the process queue's consuming flag is set from the message
    that ends an idle time until a worker finds nothing more to take, waits in between included.
    """

    def __init__(
        self,
        group: str,
        options: PushConsumerOptions,
        listener: OrderlyListener,
        loop: EventLoop,
        dead_letter: DeadLetter,
        stats: ConsumerStats,
    ) -> None:
        super().__init__(group, options, loop, stats, shared=False)
        self._listener = listener
        self._dead_letter = dead_letter
        self._busy: dict[MessageQueue, AssignedQueue] = {}
        self._released: dict[AssignedQueue, Callable[[AssignedQueue], None]] = {}
        limit = options.max_reconsume_times
        self._reconsume_limit = _NO_LIMIT if limit == -1 else limit

    # ------------------------------------------------------------------------------- intake

    def submit(self, queue: AssignedQueue, batch: MessageBatch, dispatch: bool) -> None:
        """Messages came; `dispatch` says that nobody is on the queue. Event loop."""
        if dispatch:
            self._line_up(queue)

    def _line_up(self, queue: AssignedQueue) -> None:
        self._pool.submit(_QueueWork(queue, self._batch_size))

    # ----------------------------------------------------------------------------- releasing

    def is_busy(self, queue: MessageQueue) -> bool:
        """Whether a listener call for the queue runs, of this assignment or an earlier one."""
        with self._lock:
            return queue in self._busy

    def release(self, queue: AssignedQueue, then: Callable[[AssignedQueue], None]) -> None:
        """Call `then` once no listener call runs for the queue, and begin none until then.

        At once, or on the worker that ends.
        """
        with self._lock:
            queue.releasing = True
            if queue.busy:
                self._released[queue] = then
                return
        then(queue)

    def cancel_release(self, queue: AssignedQueue) -> bool:
        """Keep a queue after all. False when it is too late."""
        with self._lock:
            if self._released.pop(queue, None) is None:
                return False
            queue.releasing = False
            return True

    # ------------------------------------------------------------------------------- workers

    def _perform(self, work: _QueueWork, worker: Worker) -> None:
        queue = work.queue
        with self._lock:
            other = self._busy.get(queue.message_queue)
            if other is None:
                self._busy[queue.message_queue] = queue
                queue.busy = True
        if other is not None:  # a call of an earlier assignment has not ended
            self._loop.call_later(_NOT_LOCKED_SECONDS, self._line_up, queue)
            return
        again: float | None = _NOT_LOCKED_SECONDS
        try:
            again = self._consume(queue, worker)
        finally:
            with self._lock:
                del self._busy[queue.message_queue]
                queue.busy = False
                then = self._released.pop(queue, None)
            if then is not None:
                then(queue)
            elif again is not None and not queue.dropped:
                if again == 0.0:
                    self._line_up(queue)
                else:
                    self._loop.call_later(again, self._line_up, queue)

    def _consume(self, queue: AssignedQueue, worker: Worker) -> float | None:
        """Consume until empty or stopped. Returns when to go on, None for not at all."""
        begun = time.monotonic()
        counters = self._stats.topic(queue.message_queue.topic)

        def pause(now: float) -> float | None:
            worker.report(counters, self._lock)
            if queue.releasing or self._pool.stopping:
                return _AGAIN_SECONDS
            if now >= queue.locked_until:
                return _NOT_LOCKED_SECONDS
            if now - begun > CONTINUOUS_SECONDS:
                return _AGAIN_SECONDS
            return 0.0 if now - begun > _SLICE_SECONDS and self._pool.waiting else None

        try:
            return worker.run.consume_in_order(
                queue, self._batch_size, self._listener, self._settle, pause
            )
        finally:
            worker.report(counters, self._lock)

    def _settle(
        self,
        state: QueueState,
        taken: list[MessageExt],
        context: OrderlyContext,
        status: object,
        error: BaseException | None,
    ) -> float | None:
        """Apply a result that is not plain success. How long to suspend the queue, None: not."""
        queue = cast(AssignedQueue, state)
        if status is OrderlyStatus.SUCCESS:  # without auto_commit
            self._count(queue, len(taken), 0)
            return None
        where = f"{queue.message_queue} offsets {taken[0].queue_offset} to {taken[-1].queue_offset}"
        if status is OrderlyStatus.COMMIT:
            if context.auto_commit:
                logger.warning("COMMIT means nothing with auto_commit; taken as SUCCESS: %s", where)
            self._count(queue, len(taken), 0)
            queue.on_removed(queue.process_queue.commit())
            return None
        if status is OrderlyStatus.ROLLBACK and not context.auto_commit:
            queue.process_queue.rollback()
            return self._suspension(context)
        if error is not None:
            logger.error("listener failed on %s; suspending the queue", where, exc_info=error)
        elif status is OrderlyStatus.ROLLBACK:
            logger.error("ROLLBACK needs auto_commit=False; suspending the queue: %s", where)
        elif status is not OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            logger.error(
                "listener returned %r on %s, not an OrderlyStatus; suspending the queue",
                status,
                where,
            )
        self._count(queue, 0, len(taken))
        return self._suspend(queue, taken, context)

    def _suspend(
        self, queue: AssignedQueue, taken: list[MessageExt], context: OrderlyContext
    ) -> float | None:
        """Keep failed messages for another try, except those that had enough of them."""
        retry = []
        for message in taken:
            if message.reconsume_times >= self._reconsume_limit and self._bury(queue, message):
                continue
            count_reconsume(message)
            retry.append(message.queue_offset)
        messages = queue.process_queue
        messages.make_consume_again(retry)
        if context.auto_commit and len(retry) < len(taken):
            committed = messages.commit()
            smallest = messages.min_offset
            queue.on_removed(committed if smallest < 0 else min(committed, smallest))
        return self._suspension(context) if retry else None

    def _bury(self, queue: AssignedQueue, message: MessageExt) -> bool:
        try:
            self._dead_letter(message)
        except RocketMQError as error:
            logger.warning(
                "%s offset %d was not moved to the dead letters, it is tried again: %s",
                queue.message_queue,
                message.queue_offset,
                error,
            )
            return False
        logger.warning(
            "%s offset %d was moved to the dead letters after %d deliveries",
            queue.message_queue,
            message.queue_offset,
            message.reconsume_times + 1,
        )
        return True

    def _suspension(self, context: OrderlyContext) -> float:
        millis = context.suspend_current_queue_time_millis
        if millis == -1:
            millis = self._options.suspend_current_queue_time_millis
        return min(max(millis, _SUSPEND_MIN_MILLIS), _SUSPEND_MAX_MILLIS) / 1000

    # ----------------------------------------------------------------------------- lifecycle

    @property
    def backlog(self) -> int:
        """Queues that wait for a worker."""
        return len(self._pool.line())

    def stop(self, timeout: float) -> bool:
        """Wait for the running calls, and those that begin within 2 ms. Whether all have ended."""
        return self._pool.stop(timeout)
