"""Commits of a pull consumer: only what was staged, never what the pull loop notes by itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.broker_calls import OFFSET_TIMEOUT
from rocketmq_fast.consumer.offsets import RemoteOffsetStore
from rocketmq_fast.errors import BrokerError, RequestTimeout
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.codes import ResponseCode

logger = logging.getLogger(__name__)

Done = Callable[[Exception | None], object]


class PullOffsetStore(RemoteOffsetStore):
    """Offsets in memory are those that were staged; they wait to be sent."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Nothing: a seek, or an offset that the pull loop passed, is no commit yet."""

    def stage(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Note what may be committed, in whichever direction."""
        for queue, offset in offsets.items():
            super().update(queue, offset, increase_only=False)

    def commit(self, offsets: Mapping[MessageQueue, int], done: Done) -> None:
        """Send offsets, all at once; `done` gets the first error, or None when all are stored.

        It is called on the event loop's thread, or on this one when nothing could be sent.
        """
        if not offsets:
            done(None)
            return
        self._send(offsets.items(), _Commit(done, len(offsets)).on_answer)

    def commit_now(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Send offsets and wait. Raises RocketMQError when one was not stored."""
        ended = threading.Event()
        errors: list[Exception | None] = []

        def done(error: Exception | None) -> None:
            errors.append(error)
            ended.set()

        self._connect_anew(offsets)
        self.commit(offsets, done)
        if not ended.wait(2 * OFFSET_TIMEOUT):
            raise RequestTimeout(f"commit of {len(offsets)} queues was not answered")
        if errors[0] is not None:
            raise errors[0]

    def unconfirmed(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        """What was staged of these queues and is not known to be stored."""
        with self._lock:
            return dict(self._changed(queues, self._is_certain))


class _Commit:
    """One commit of several queues."""

    def __init__(self, done: Done, left: int) -> None:
        self._done = done
        self._left = left
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def on_answer(
        self, queue: MessageQueue, offset: int, answer: RemotingCommand | Exception
    ) -> None:
        """Note one answer; the last one ends the commit."""
        error: Exception | None = None
        if isinstance(answer, Exception):
            error = answer
        elif answer.code != ResponseCode.SUCCESS:
            error = BrokerError.of(answer.code, f"offset {offset} of {queue}: {answer.remark}")
        if error is not None:
            logger.warning("offset %d of %s was not stored: %s", offset, queue, error)
        with self._lock:
            self._error = self._error or error
            self._left -= 1
            last = self._left == 0
        if last:
            self._done(self._error)
