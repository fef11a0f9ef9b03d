"""Concurrent consumption: workers that take messages from pulled chunks and call the listener.

A chunk is what one pull brought. Workers claim batches from its front one by one, so a chunk is as
parallel as there are workers on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol, cast

from rocketmq_fast._core import MessageBatch, MessageExt
from rocketmq_fast._core.consume import Chunk, ConsumeContext
from rocketmq_fast._core.message import count_reconsume
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.pool import PooledService, Worker
from rocketmq_fast.consumer.stats import ConsumerStats
from rocketmq_fast.errors import RocketMQError
from rocketmq_fast.model import ConsumeStatus, MessageModel
from rocketmq_fast.remoting.loop import EventLoop

logger = logging.getLogger(__name__)

ConcurrentListener = Callable[[list[MessageExt], ConsumeContext], object]

_LOCAL_RETRY_SECONDS = 5.0
_EXPIRED_DELAY_LEVEL = 3
_EXPIRED_PER_SCAN = 16


class SendBack(Protocol):
    """Gives a message back to the broker for a retry. Raises RocketMQError when it cannot."""

    def __call__(self, queue: AssignedQueue, message: MessageExt, delay_level: int) -> None:
        """Blocks until the broker has it."""


class ConsumeConcurrentlyService(PooledService[Chunk]):
    """Chunks in, listener calls, results out. `submit` is called on the event loop, everything else
    from any thread.
    """

    def __init__(
        self,
        group: str,
        options: PushConsumerOptions,
        listener: ConcurrentListener,
        loop: EventLoop,
        send_back: SendBack,
        stats: ConsumerStats,
    ) -> None:
        super().__init__(group, options, loop, stats, shared=True)
        self._listener = listener
        self._send_back = send_back
        self._broadcasting = options.message_model is MessageModel.BROADCASTING

    def submit(self, queue: AssignedQueue, batch: MessageBatch, _dispatch: bool = True) -> None:
        """Queue a pulled batch and wake as many workers as it deserves."""
        self._submit(Chunk(queue, batch, 0, len(batch), self._batch_size))

    def _submit(self, chunk: Chunk) -> None:
        self._pool.submit(chunk)

    def _is_stopping(self) -> bool:
        return self._pool.stopping

    def _perform(self, chunk: Chunk, worker: Worker) -> None:
        try:
            worker.run.consume(chunk, self._listener, self._on_failure, self._is_stopping)
        finally:
            worker.report(self._stats.topic(chunk.topic), self._lock)

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
        fate = self._fate(messages, context)
        if error is not None:
            logger.error("listener failed on %s; %s", where, fate, exc_info=error)
        elif status is ConsumeStatus.CONSUME_SUCCESS:
            logger.debug("listener acknowledged up to index %d of %s", context.ack_index, where)
        elif status is not ConsumeStatus.RECONSUME_LATER:
            logger.error("listener returned %r on %s, not a ConsumeStatus; %s", status, where, fate)
        succeeded = status is ConsumeStatus.CONSUME_SUCCESS
        acked = min(context.ack_index + 1, stop - start) if succeeded else 0
        settled = start + max(0, acked)
        self._count(queue, settled - start, stop - settled)
        unsent: list[int] = []
        if self._broadcasting and settled < stop:
            logger.warning("broadcasting has no retry; given up: %s", where)
            settled = stop
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
                continue
            if self._is_last(message, context):
                logger.warning(
                    "%s offset %d went to the dead letters after %d deliveries",
                    queue.message_queue,
                    message.queue_offset,
                    message.reconsume_times + 1,
                )
        keep = set(unsent)
        done = [m.queue_offset for i, m in enumerate(messages, start) if i not in keep]
        if done and not queue.dropped:
            queue.on_removed(queue.process_queue.remove(done))
        for index in unsent:
            count_reconsume(messages[index - start])
            retry = Chunk(queue, chunk.batch, index, index + 1, 1)
            self._loop.call_later(_LOCAL_RETRY_SECONDS, self._submit, retry)

    def _is_last(self, message: MessageExt, context: ConsumeContext) -> bool:
        """Whether the broker moves a message that is given back to the dead letters."""
        if context.delay_level_when_next_consume < 0:
            return True
        return message.reconsume_times >= self._options.reconsume_limit

    def _fate(self, messages: list[MessageExt], context: ConsumeContext) -> str:
        """What becomes of messages that failed."""
        if self._broadcasting:
            return "giving up"
        last = sum(self._is_last(message, context) for message in messages)
        if last == 0:
            return "retrying later"
        which = "" if last == len(messages) else f"{last} of {len(messages)} "
        return f"moving {which}to the dead letters"

    def give_back_expired(self, queues: Iterable[AssignedQueue]) -> None:
        """Send back messages whose listener call is older than consume_timeout.

        Only the smallest offset of a queue is looked at, since it alone holds the commit. The
        listener goes on; what it returns for such a message changes nothing, so it may run twice.
        """
        timeout = self._options.consume_timeout_seconds
        self.flush()
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
        for worker in self._pool.workers():
            run = worker.run
            chunk, start, stop, since = run.chunk, run.start, run.stop, run.since
            if chunk is None or chunk.queue is not queue or since == 0.0:
                continue
            if any(chunk.batch[i].queue_offset == offset for i in range(start, stop)):
                return since
        return None

    # ----------------------------------------------------------------------------- lifecycle

    @property
    def backlog(self) -> int:
        """Messages that wait for a worker."""
        return sum(chunk.left for chunk in self._pool.line())

    def stop(self, timeout: float) -> bool:
        """Claim nothing more and wait for the running calls. Returns whether all have ended.

        Claims go in offset order, so what was not claimed lies behind everything that was: once the
        running calls are acknowledged, the commit leaves nothing to be delivered twice.
        """
        return self._pool.stop(timeout, Chunk.give_up)
