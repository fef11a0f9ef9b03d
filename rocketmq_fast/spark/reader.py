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
from rocketmq_fast.client.broker_calls import number_field, read_command
from rocketmq_fast.client.records import plain_records
from rocketmq_fast.errors import (
    BrokerError,
    ConnectionClosed,
    MessageDecodeError,
    RemotingError,
    RocketMQError,
    TopicNotExist,
)
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from rocketmq_fast.spark.brokers import Brokers
from rocketmq_fast.spark.offsets import DataLossError, QueueRange, lost, where
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

Batch = ArrowBatch | list["RawMessage"]

_CODES_OF_A_STEP = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_NOT_FOUND,
)


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message that could not be decoded, as it is stored; the offset is None if unreadable."""

    queue: MessageQueue
    offset: int | None
    stored: bytes


@dataclass(slots=True, eq=False)
class _Window:
    """Offsets [cursor, end) of a queue, one pull in flight at a time.

    `parts` are what the pulls found, with the messages that shall be passed on undecoded.
    """

    queue: _Queue
    cursor: int
    end: int
    parts: list[tuple[MessageBatch, list[RawMessage]]]
    failures: int = 0
    done: bool = False


class _Queue:
    """A range being read: windows in flight or complete, in order."""

    __slots__ = ("fields", "next_start", "part", "step", "warned", "windows")

    def __init__(self, part: QueueRange, step: int, fields: dict[str, str]) -> None:
        self.part = part
        self.fields = fields  # of its pulls, but for offset and count
        self.next_start = part.start
        self.step = step
        self.windows: deque[_Window] = deque()
        self.warned = False

    def at(self, offset: int) -> str:
        """Where a trouble is, for messages."""
        return f"{where(self.part.queue)} at {self.part.address}, offset {offset}"


class RangesReader:
    """The messages of some ranges: batches, and lists of messages that could not be decoded.

    One thread iterates; leaving the loop ends the pulls.
    """

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
        self._names = brokers.names
        tags = TagFilter(options.tags)
        self._filter = None if tags.matches_all else tags
        # Where a filter leaves messages out, no offset is missed.
        self._complete_offsets = self._filter is None and options.sql is None
        step = options.pull_batch_size if self._complete_offsets else _FILTERED_WINDOW
        self._queues = deque(_Queue(part, step, self._fields(part)) for part in ranges)
        self._builder = ArrowBuilder(columns)
        self._row_limit = min(_FIRST_ROWS, options.arrow_batch_rows)
        self._outstanding = 0
        self._changed = threading.Condition()
        self._ready: deque[Batch] = deque()
        self._complete = False
        self._failure: Exception | None = None
        self._closed = False

    def _fields(self, part: QueueRange) -> dict[str, str]:
        options = self._options
        sql = options.sql
        return read_command(
            self._names.wrap(options.group),
            self._names.wrap_queue(part.queue),
            part.start,
            options.pull_batch_size,
            options.tags if sql is None else sql,
            "TAG" if sql is None else "SQL92",
        ).ext_fields

    def __iter__(self) -> Iterator[Batch]:
        self._loop.call_soon(self._pump)
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        """Ask for nothing more; answers in flight are dropped. Any thread."""
        self._closed = True

    def _next(self) -> Batch | None:
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
        queue = window.queue
        count = self._options.pull_batch_size
        if self._complete_offsets:
            count = min(count, window.end - window.cursor)
        # A copy: what goes out may be signed.
        fields = queue.fields.copy()
        fields["queueOffset"] = str(window.cursor)
        fields["maxMsgNums"] = str(count)
        self._client.invoke_async(
            queue.part.address,
            RemotingCommand(RequestCode.PULL_MESSAGE, fields),
            self._options.pull_timeout,
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
            remark = f"{window.queue.at(window.cursor)}: {answer.remark}"
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
        begin = _next_begin(window, answer)
        if answer.code == ResponseCode.SUCCESS:
            if self._names:
                body = plain_records(answer.body, self._names, True)
                answer = RemotingCommand(answer.code, answer.ext_fields, body)
            batch = decode_command(answer, True, _MAX_BODY)
            raw = self._check(window, batch, begin, answer)
            window.parts.append((batch, raw))
        elif begin > window.cursor and self._complete_offsets:
            self._lost(window, f"no message up to offset {begin}")
        if begin <= window.cursor:
            # A message that the range promises is not there: a restarted or lagging broker.
            reason = f"{window.queue.at(window.cursor)}: no message, {answer.remark}"
            self._again(window, DataLossError(reason))
            return False
        window.cursor = begin
        window.failures = 0
        return True

    def _check(
        self, window: _Window, batch: MessageBatch, begin: int, answer: RemotingCommand
    ) -> list[RawMessage]:
        """Look for corrupt messages and, without a filter, for missing ones.

        Returns the corrupt ones that shall be passed on.
        """
        raw: list[RawMessage] = []
        if batch.errors:
            _, offset, reason = batch.errors[0]
            place = window.queue.at(window.cursor if offset is None else offset)
            if self._options.on_corrupt == "fail":
                raise MessageDecodeError(
                    f"{place}: {reason}; set onCorruptMessage to skip to leave such messages out, "
                    "or to raw to get their bytes"
                )
            done = "left out"
            if self._options.on_corrupt == "raw":
                done = "passed on as stored"
                body = answer.body_view()
                raw = [
                    RawMessage(window.queue.part.queue, found, _stored(body, position))
                    for position, found, _ in batch.errors
                ]
            logger.warning("%s: %s; %d %s", place, reason, len(batch.errors), done)
        if not self._complete_offsets:
            return raw
        count = len(batch) + len(batch.errors)
        if count != begin - window.cursor or (
            len(batch) == count and batch[0].queue_offset != window.cursor
        ):
            self._lost(window, f"{count} messages up to offset {begin}")
        return raw

    def _moved(self, window: _Window, answer: RemotingCommand) -> None:
        """The broker calls the offset illegal: it has less than it had, or another queue."""
        begin = _next_begin(window, answer)
        low, high = answer.ext_fields.get("minOffset"), answer.ext_fields.get("maxOffset")
        self._lost(window, f"the broker has [{low}, {high})")
        window.cursor = begin if begin > window.cursor else window.end

    def _lost(self, window: _Window, what: str, cause: Exception | None = None) -> None:
        """Fail, or warn once for the queue. Raises DataLossError."""
        text = f"{window.queue.at(window.cursor)}: {what}"
        if self._options.fail_on_data_loss:
            raise lost(text) from cause
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
        if isinstance(error, (DataLossError, TopicNotExist)):
            topic_gone = isinstance(error, TopicNotExist)
            self._lost(
                window,
                "the topic is not there any more" if topic_gone else "no message is there",
                error,
            )
            window.cursor = window.end
            self._outstanding -= 1
            window.done = True
            self._collect(window.queue)
            return
        if isinstance(error, RemotingError):
            place = window.queue.at(window.cursor)
            raise type(error)(f"{place}: {error}", error.address) from error
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
            for batch, raw in window.parts:
                self._append(part, window.end, batch, raw)
        if not queue.windows and queue.next_start >= part.end:
            self._queues.remove(queue)

    def _append(
        self, part: QueueRange, end: int, batch: MessageBatch, raw: list[RawMessage]
    ) -> None:
        mask = self._filter.mask(batch) if self._filter is not None else None
        broker = part.queue.broker_name
        start = part.start
        for message in raw:
            if message.offset is not None:
                if not start <= message.offset < end:
                    continue
                self._builder.append(batch, broker, start, message.offset, mask)
                start = message.offset + 1
            self._finish_batch()
            self._hand_over([message])
        self._builder.append(batch, broker, start, end, mask)
        if (
            self._builder.num_rows >= self._row_limit
            or self._builder.nbytes >= self._options.arrow_batch_bytes
        ):
            self._finish_batch()

    def _finish_batch(self) -> None:
        if self._builder.num_rows == 0:
            return
        self._row_limit = min(self._row_limit * _GROWTH, self._options.arrow_batch_rows)
        self._hand_over(self._builder.finish())

    def _hand_over(self, batch: Batch) -> None:
        with self._changed:
            self._ready.append(batch)
            self._changed.notify()


def _next_begin(window: _Window, answer: RemotingCommand) -> int:
    """Where to ask on. Raises HeaderError that says where."""
    try:
        return int(answer.ext_fields["nextBeginOffset"])
    except (KeyError, ValueError):
        # Only now: to put the place into words takes longer than all else here.
        return number_field(answer, "nextBeginOffset", window.queue.at(window.cursor))


def _stored(body: memoryview, position: int) -> bytes:
    """The bytes of a stored message; all that is left where its size makes no sense."""
    size = int.from_bytes(body[position : position + 4], "big", signed=True)
    end = position + size
    return bytes(body[position : end if size >= 4 and end <= len(body) else len(body)])
