"""Reading of ranges in a task: pipelined pulls, straight into Arrow columns.

A broker hands out at most 32 messages a pull by default, so one pull at a time would wait for the
network most of the time. A range is cut into windows that are asked for at once; a short answer is
asked on from where it ended. Answers are decoded and appended on the event loop's thread, in the
order of the queue, and finished batches wait in a short line for the task's thread: pulling goes on
while Spark takes a batch. No Python object exists per message.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rocketmq_fast._core import ArrowBatch, ArrowBuilder, MessageBatch, RemotingCommand, TagFilter
from rocketmq_fast._core.message import decode_command
from rocketmq_fast.client.broker_calls import read_command
from rocketmq_fast.errors import (
    BrokerError,
    ConnectionClosed,
    HeaderError,
    MessageDecodeError,
    RemotingError,
    RocketMQError,
)
from rocketmq_fast.protocol.codes import ResponseCode
from rocketmq_fast.spark.brokers import Brokers
from rocketmq_fast.spark.offsets import DataLossError, QueueRange
from rocketmq_fast.spark.options import ReadOptions

logger = logging.getLogger(__name__)

# Finished batches that wait for Spark; with them, pulling stops.
_READY_MAX = 2
# The first batch is small: show() and limit() want few rows, and soon.
_FIRST_ROWS = 1000
_GROWTH = 4
# Pulls in flight of one task, over all its queues.
_OUTSTANDING_MAX = 64
# A filtered pull looks through up to 800 entries of the index; windows are several of these.
_FILTERED_WINDOW = 4000
_MAX_BODY = 32 << 20
_WAIT_SECONDS = 1.0

_CODES_OF_A_STEP = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_NOT_FOUND,
)


@dataclass(slots=True, eq=False)
class _Window:
    """Offsets [cursor, end) of a queue, one pull in flight at a time."""

    queue: _Queue
    cursor: int
    end: int
    parts: list[MessageBatch]
    failures: int = 0
    done: bool = False


class _Queue:
    """A range being read: windows in flight or complete, in order."""

    __slots__ = ("next_start", "part", "step", "warned", "windows")

    def __init__(self, part: QueueRange, step: int) -> None:
        self.part = part
        self.next_start = part.start
        self.step = step
        self.windows: deque[_Window] = deque()
        self.warned = False

    def at(self, offset: int) -> str:
        """Where a trouble is, for messages."""
        queue = self.part.queue
        return (
            f"topic {queue.topic!r}, broker {queue.broker_name!r} ({self.part.address}), "
            f"queue {queue.queue_id}, offset {offset}"
        )


class RangesReader:
    """The ArrowBatches of some ranges. One thread iterates; leaving the loop ends the pulls."""

    def __init__(
        self,
        brokers: Brokers,
        ranges: Sequence[QueueRange],
        columns: Sequence[str],
        options: ReadOptions,
    ) -> None:
        self._loop = brokers.loop
        self._client = brokers.client
        self._options = options
        tags = TagFilter(options.tags)
        self._filter = None if tags.matches_all else tags
        step = options.pull_batch_size if self._filter is None else _FILTERED_WINDOW
        self._queues = deque(_Queue(part, step) for part in ranges)
        self._builder = ArrowBuilder(columns)
        self._row_limit = min(_FIRST_ROWS, options.arrow_batch_rows)
        self._outstanding = 0
        self._changed = threading.Condition()
        self._ready: deque[ArrowBatch] = deque()
        self._complete = False
        self._failure: Exception | None = None
        self._closed = False

    def __iter__(self) -> Iterator[ArrowBatch]:
        self._loop.call_soon(self._pump)
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        """Ask for nothing more; answers in flight are dropped. Any thread."""
        self._closed = True

    def _next(self) -> ArrowBatch | None:
        """The next batch, None at the end. The task's thread."""
        with self._changed:
            while not self._ready and not self._complete and self._failure is None:
                self._changed.wait(_WAIT_SECONDS)
            if self._failure is not None:
                raise self._failure
            if not self._ready:
                return None
            batch = self._ready.popleft()
        self._loop.call_soon(self._pump)
        return batch

    # ---------------------------------------------------------- on the event loop's thread

    def _pump(self) -> None:
        """Ask for as much as may be in flight."""
        try:
            self._fill()
        except Exception as error:  # noqa: BLE001 - handed to the task's thread
            self._fail(error)

    def _fill(self) -> None:
        if self._closed or self._complete or self._failure is not None:
            return
        idle = 0
        while (
            self._queues
            and idle < len(self._queues)
            and self._outstanding < _OUTSTANDING_MAX
            and len(self._ready) < _READY_MAX
        ):
            queue = self._queues[0]
            self._queues.rotate(-1)
            if (
                queue.next_start < queue.part.end
                and len(queue.windows) < self._options.pull_pipeline
            ):
                idle = 0
                end = min(queue.next_start + queue.step, queue.part.end)
                window = _Window(queue, queue.next_start, end, [])
                queue.windows.append(window)
                queue.next_start = end
                self._outstanding += 1
                self._ask(window)
            else:
                idle += 1
        if not self._queues and not self._outstanding:
            self._finish_batch()
            with self._changed:
                self._complete = True
                self._changed.notify()

    def _ask(self, window: _Window) -> None:
        if self._closed:
            return
        options = self._options
        queue = window.queue.part.queue
        count = options.pull_batch_size
        if self._filter is None:
            count = min(count, window.end - window.cursor)
        self._client.invoke_async(
            window.queue.part.address,
            read_command(options.group, queue, window.cursor, count, options.tags),
            options.pull_timeout,
            partial(self._on_answer, window),
        )

    def _on_answer(self, window: _Window, answer: RemotingCommand | Exception) -> None:
        if self._closed or self._failure is not None:
            return
        try:
            self._take(window, answer)
            self._fill()
        except Exception as error:  # noqa: BLE001 - handed to the task's thread
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify()

    def _take(self, window: _Window, answer: RemotingCommand | Exception) -> None:
        if isinstance(answer, Exception):
            self._again(window, answer)
            return
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._moved(window, answer)
        elif answer.code not in _CODES_OF_A_STEP:
            where = window.queue.at(window.cursor)
            remark = f"{where}: {answer.remark}"
            self._again(window, BrokerError.of(answer.code, remark, window.queue.part.address))
            return
        elif not self._step(window, answer):
            return
        if window.cursor < window.end:
            self._ask(window)
            return
        self._outstanding -= 1
        window.done = True
        self._collect(window.queue)

    def _step(self, window: _Window, answer: RemotingCommand) -> bool:
        """Take what a pull found. False when the same offset is asked for again later."""
        begin = _field(answer, "nextBeginOffset", window)
        if answer.code == ResponseCode.SUCCESS:
            batch = decode_command(answer, True, _MAX_BODY)
            self._check(window, batch, begin)
            window.parts.append(batch)
        elif begin > window.cursor and self._filter is None:
            self._lost(window, f"no message up to offset {begin}")
        if begin <= window.cursor:
            # A message that the range promises is not there: a restarted or lagging broker.
            reason = f"{window.queue.at(window.cursor)}: no message, {answer.remark}"
            self._again(window, DataLossError(reason))
            return False
        window.cursor = begin
        window.failures = 0
        return True

    def _check(self, window: _Window, batch: MessageBatch, begin: int) -> None:
        """Without a filter every offset has a message: look for corrupt and for missing ones."""
        if batch.errors:
            _, offset, reason = batch.errors[0]
            where = window.queue.at(window.cursor if offset is None else offset)
            if not self._options.skip_corrupt:
                raise MessageDecodeError(
                    f"{where}: {reason}; set onCorruptMessage to skip to leave such messages out"
                )
            logger.warning("%s: %s; %d left out", where, reason, len(batch.errors))
        if self._filter is not None:
            return
        found = len(batch) + len(batch.errors)
        if found != begin - window.cursor or (
            len(batch) == found and batch[0].queue_offset != window.cursor
        ):
            self._lost(window, f"{found} messages up to offset {begin}")

    def _moved(self, window: _Window, answer: RemotingCommand) -> None:
        """The broker calls the offset illegal: it has less than it had, or another queue."""
        begin = _field(answer, "nextBeginOffset", window)
        low, high = answer.ext_fields.get("minOffset"), answer.ext_fields.get("maxOffset")
        self._lost(window, f"the broker has [{low}, {high})")
        window.cursor = begin if begin > window.cursor else window.end

    def _lost(self, window: _Window, what: str) -> None:
        """Fail, or warn once for the queue. Raises DataLossError."""
        text = f"{window.queue.at(window.cursor)}: {what}"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{text}; set failOnDataLoss to false to read what is there without an error"
            )
        if not window.queue.warned:
            window.queue.warned = True
            logger.warning("%s; going on with what is there", text)

    def _again(self, window: _Window, error: Exception) -> None:
        """Ask once more after a while, when the error can pass and did not come too often."""
        window.failures += 1
        can_pass = isinstance(error, DataLossError) or (
            isinstance(error, RocketMQError) and error.retriable
        )
        if can_pass and window.failures <= self._options.retries:
            logger.warning("pull failed, attempt %d: %s", window.failures, error)
            # The first failure of a kept connection says nothing: it may have been idle too long.
            quick = isinstance(error, ConnectionClosed) and window.failures == 1
            delay = 0.0 if quick else self._options.retry_interval
            self._loop.call_later(delay, self._ask_safely, window)
            return
        if isinstance(error, DataLossError):
            self._lost(window, "no message is there")
            window.cursor = window.end
            self._outstanding -= 1
            window.done = True
            self._collect(window.queue)
            return
        if isinstance(error, RemotingError):
            where = window.queue.at(window.cursor)
            raise type(error)(f"{where}: {error}", error.address) from error
        raise error

    def _ask_safely(self, window: _Window) -> None:
        try:
            self._ask(window)
        except Exception as error:  # noqa: BLE001 - handed to the task's thread
            self._fail(error)

    def _collect(self, queue: _Queue) -> None:
        """Append what is complete and next in the queue's order."""
        part = queue.part
        while queue.windows and queue.windows[0].done:
            window = queue.windows.popleft()
            for batch in window.parts:
                mask = self._filter.mask(batch) if self._filter is not None else None
                self._builder.append(batch, part.queue.broker_name, part.start, window.end, mask)
                if (
                    self._builder.num_rows >= self._row_limit
                    or self._builder.nbytes >= self._options.arrow_batch_bytes
                ):
                    self._finish_batch()
        if not queue.windows and queue.next_start >= part.end:
            self._queues.remove(queue)

    def _finish_batch(self) -> None:
        if self._builder.num_rows == 0:
            return
        batch = self._builder.finish()
        self._row_limit = min(self._row_limit * _GROWTH, self._options.arrow_batch_rows)
        with self._changed:
            self._ready.append(batch)
            self._changed.notify()


def _field(answer: RemotingCommand, name: str, window: _Window) -> int:
    text = answer.ext_fields.get(name)
    try:
        return int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise HeaderError(
            f"{window.queue.at(window.cursor)}: field {name!r} is {text!r}, not an integer"
        ) from None
