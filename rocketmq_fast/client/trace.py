"""Message trace: records of what clients did with messages, sent as messages in the background.

The records are Java's, so that its tools read them: columns end with U+0001, records with U+0002.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterable

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.sending import (
    DEFAULT_TOPIC_QUEUE_NUMS,
    create_unique_id,
    send_command,
    send_result,
)
from rocketmq_fast.errors import RocketMQError, TopicRouteNotFound
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.codes import MessageSysFlag
from rocketmq_fast.protocol.names import TRACE_TOPIC

logger = logging.getLogger(__name__)

_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
_ROOM = 1024
# A message of records is sent when it has so many characters, or at this age.
_MOST_CHARS = 118_000
_MOST_KEY_BYTES = 30_000  # of a message of records: properties may have 32767 bytes
_AGE_SECONDS = 0.5
_SEND_SECONDS = 5.0
_MOST_IN_FLIGHT = 16
FLUSH_SECONDS = 3.0
_COMPRESS_FROM, _COMPRESS_LEVEL = 4096, 5
_COMPRESSED = int(MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZLIB)

_numbers = itertools.count(1)


def record(*columns: object) -> str:
    """One record; None is written as Java writes null, bools in lower case."""
    return (
        "\x01".join(
            "null" if c is None else str(c).lower() if isinstance(c, bool) else str(c)
            for c in columns
        )
        + "\x02"
    )


class TraceDispatcher:
    """Collects records and sends them with the connections of a client. Any thread.

    Records that find the line full are dropped and counted: tracing must not hold a client up.
    """

    def __init__(
        self, instance: ClientInstance, group: str, kind: str, topic: str | None = None
    ) -> None:
        self.topic = topic or TRACE_TOPIC
        self.dropped = 0
        self._instance = instance
        self._group = f"{_GROUP_PREFIX}-{group}-{kind}-{next(_numbers)}"
        self._changed = threading.Condition()
        self._records: deque[tuple[str, tuple[str, ...]]] = deque()
        self._chars = 0
        self._in_flight = 0
        self._stopping = False
        self._turn = itertools.count()
        self._thread = threading.Thread(
            target=self._run, name=f"rocketmq-trace-{group}", daemon=True
        )

    def start(self) -> None:
        """Send from now on."""
        self._thread.start()

    def append(self, text: str, *keys: str | None) -> None:
        """Line a record up; it can be found by its keys, of which each may be several words."""
        words = tuple(_fitting(word for key in keys if key for word in key.split()))
        with self._changed:
            if len(self._records) >= _ROOM:
                self._drop(1, "too many wait to be sent")
                return
            self._records.append((text, words))
            before, self._chars = self._chars, self._chars + len(text)
            if before == 0 or before < _MOST_CHARS <= self._chars:
                self._changed.notify_all()

    def _drop(self, count: int, reason: object) -> None:
        before, self.dropped = self.dropped, self.dropped + count
        if before.bit_length() != self.dropped.bit_length():  # the more, the rarer
            logger.warning("%d trace records of %s lost: %s", self.dropped, self._group, reason)

    def stop(self, timeout: float = FLUSH_SECONDS) -> None:
        """Send what is there, in `timeout` seconds; on the event loop without waiting for it."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._instance.loop.in_loop or not self._thread.is_alive():
            return
        self._thread.join(timeout)
        with self._changed:
            while self._in_flight and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            left_over = len(self._records)
        if left_over or self._in_flight:
            logger.warning(
                "%d trace records and %d messages of them were on their way at the end",
                left_over, self._in_flight,
            )  # fmt: skip

    # ------------------------------------------------------------------------------- sending

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                self._send(batch)
            except RocketMQError as error:
                with self._changed:
                    self._drop(len(batch), error)

    def _next(self) -> list[tuple[str, tuple[str, ...]]] | None:
        """Records for one message, None at the end."""
        with self._changed:
            while not self._records:
                if self._stopping:
                    return None
                self._changed.wait()
            deadline = time.monotonic() + _AGE_SECONDS
            while self._chars < _MOST_CHARS or self._in_flight >= _MOST_IN_FLIGHT:
                left = deadline - time.monotonic()
                waiting = self._in_flight >= _MOST_IN_FLIGHT
                if (left <= 0 or self._stopping) and not waiting:
                    break
                self._changed.wait(_SEND_SECONDS if waiting else left)
            batch: list[tuple[str, tuple[str, ...]]] = []
            chars = key_bytes = 0
            while self._records and chars < _MOST_CHARS:
                text, keys = self._records[0]
                key_bytes += sum(map(_size, keys))
                if batch and key_bytes > _MOST_KEY_BYTES:
                    break
                self._records.popleft()
                batch.append((text, keys))
                chars += len(text)
            self._chars -= chars
            return batch

    def _send(self, batch: list[tuple[str, tuple[str, ...]]]) -> None:
        queue = self._queue()
        body = "".join(text for text, _ in batch).encode()
        sys_flag = 0
        if len(body) >= _COMPRESS_FROM:
            body, sys_flag = zlib.compress(body, _COMPRESS_LEVEL), _COMPRESSED
        properties = {props.UNIQ_KEY: create_unique_id(), props.WAIT: "true"}
        keys = " ".join(_distinct(key for _, words in batch for key in words))
        if keys:
            properties[props.KEYS] = keys
        command = send_command(self._group, queue, body, properties, sys_flag=sys_flag)
        address, _ = self._instance.broker_address(queue.broker_name, only_this=True)

        def on_answer(answer: RemotingCommand | Exception) -> None:
            error: Exception | None = answer if isinstance(answer, Exception) else None
            if not isinstance(answer, Exception):
                try:
                    send_result(answer, queue, properties[props.UNIQ_KEY])
                except RocketMQError as refused:
                    error = refused
            with self._changed:
                self._in_flight -= 1
                if error is not None:
                    self._drop(len(batch), error)
                self._changed.notify_all()

        with self._changed:
            self._in_flight += 1
        try:
            self._instance.remoting.invoke_async(address, command, _SEND_SECONDS, on_answer)
        except RocketMQError:
            with self._changed:
                self._in_flight -= 1
            raise

    def _queue(self) -> MessageQueue:
        """The next queue of the topic. Raises TopicRouteNotFound, NoNameServer, BodyError."""
        route = self._instance.route(self.topic) or self._instance.update_route(
            self.topic, default_queues=DEFAULT_TOPIC_QUEUE_NUMS
        )
        self._instance.keep_route(self.topic)
        queues = route.publish_queues(self.topic)
        if not queues:
            raise TopicRouteNotFound(self.topic, f"topic {self.topic!r} has no writable queue")
        return queues[next(self._turn) % len(queues)]


def _size(key: str) -> int:
    """Bytes that a key takes in the properties."""
    return len(key.encode()) + 1


def _fitting(words: Iterable[str]) -> Iterable[str]:
    """The first words, as many as one message can be found by."""
    left = _MOST_KEY_BYTES
    for word in words:
        left -= _size(word)
        if left < 0:
            return
        yield word


def _distinct(words: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(words)
