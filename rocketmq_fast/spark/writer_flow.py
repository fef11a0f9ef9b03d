"""Sending of a task's requests: several in flight, those of a fixed queue one after another."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from rocketmq_fast.errors import RocketMQError
from rocketmq_fast.model import MessageQueue, SendResult, SendStatus
from rocketmq_fast.producer.outgoing import Outgoing
from rocketmq_fast.producer.selectors import RoundRobin
from rocketmq_fast.spark.writer_rows import Request

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 10.0

# fn(out, queue, callback(result, error)): send once; may call back before it returns.
SendOnce = Callable[
    [Outgoing, MessageQueue, Callable[[SendResult | None, Exception | None], None]], None
]
# fn(topic on the wire): its writable queues.
Queues = Callable[[str], Sequence[MessageQueue]]


class _Sending:
    """A request with what became of its attempts."""

    __slots__ = ("attempts", "request", "target")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.attempts = 0
        self.target = request.queue


class SendFlow:
    """Sends the requests of one task. One thread puts them in and finishes; answers come on
    another. At least once: a request without an answer is sent again and may be stored twice.
    """

    def __init__(
        self,
        send: SendOnce,
        queues: Queues,
        *,
        max_in_flight: int,
        retries: int,
        retry_interval: float,
    ) -> None:
        self._send = send
        self._queues = queues
        self._max = max_in_flight
        self._retries = retries
        self._interval = retry_interval
        self._turn = RoundRobin()
        self._changed = threading.Condition()
        self._open = 0  # requests that are not stored yet
        self._in_flight = 0
        self._ready: deque[_Sending] = deque()
        self._again: list[tuple[float, int, _Sending]] = []
        self._numbers = itertools.count()
        # A fixed queue has one request in flight: brokers store in any order what they get at once.
        self._lanes: dict[MessageQueue, deque[_Sending]] = {}
        self._failure: Exception | None = None
        self.sent: dict[MessageQueue, int] = {}
        self.bytes = 0
        self.not_ok: dict[SendStatus, int] = {}

    def put(self, request: Request) -> None:
        """Send, when there is room. Raises the failure of this or an earlier request."""
        sending = _Sending(request)
        self._run_until(lambda: self._open < self._max)
        with self._changed:
            self._open += 1
            lane = None if request.queue is None else self._lanes.get(request.queue)
            if lane is None:
                self._ready.append(sending)
                if request.queue is not None:
                    self._lanes[request.queue] = deque()
            else:
                lane.append(sending)
        self._run_until(lambda: not self._ready)

    def finish(self) -> None:
        """Return when all is stored. Raises the first failure."""
        self._run_until(lambda: self._open == 0)

    def settle(self, timeout: float) -> None:
        """After a failure: wait for the answers to what is in flight, so that it is counted."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._in_flight and time.monotonic() < deadline:
                self._changed.wait(_WAIT_SECONDS)

    @property
    def messages(self) -> int:
        """Messages that are known to be stored."""
        with self._changed:
            return sum(self.sent.values())

    def _run_until(self, done: Callable[[], bool]) -> None:
        """Send what may leave, until `done`. The task's thread."""
        while True:
            with self._changed:
                while True:
                    if self._failure is not None:
                        raise self._failure
                    if self._ready:
                        sending = self._ready.popleft()
                        break
                    now = time.monotonic()
                    if self._again and self._again[0][0] <= now:
                        sending = heapq.heappop(self._again)[2]
                        break
                    if done():
                        return
                    due = self._again[0][0] - now if self._again else _WAIT_SECONDS
                    self._changed.wait(min(due, _WAIT_SECONDS))
                self._in_flight += 1
            self._attempt(sending)

    def _attempt(self, sending: _Sending) -> None:
        request = sending.request
        try:
            if request.queue is None:
                failed = sending.target
                sending.target = self._turn.choose(
                    self._queues(request.out.topic), failed.broker_name if failed else None
                )
            assert sending.target is not None
            self._send(
                request.out,
                sending.target,
                lambda result, error: self._answered(sending, result, error),
            )
        except Exception as error:  # noqa: BLE001 - as an answer: perhaps another attempt helps
            self._answered(sending, None, error)

    def _answered(
        self, sending: _Sending, result: SendResult | None, error: Exception | None
    ) -> None:
        """Any thread."""
        request = sending.request
        with self._changed:
            self._in_flight -= 1
            if result is not None:
                self._stored(request, result)
            elif error is not None:
                self._failed(sending, error)
            self._changed.notify_all()

    def _stored(self, request: Request, result: SendResult) -> None:
        queue = result.message_queue
        self.sent[queue] = self.sent.get(queue, 0) + request.rows
        self.bytes += len(request.out.body)
        if result.status is not SendStatus.SEND_OK:
            self.not_ok[result.status] = self.not_ok.get(result.status, 0) + request.rows
        self._open -= 1
        if request.queue is not None:
            lane = self._lanes[request.queue]
            if lane:
                self._ready.append(lane.popleft())
            else:
                del self._lanes[request.queue]

    def _failed(self, sending: _Sending, error: Exception) -> None:
        sending.attempts += 1
        can_pass = isinstance(error, RocketMQError) and error.retriable
        if not can_pass or sending.attempts > self._retries:
            if self._failure is None:
                self._failure = error
            return
        logger.warning("sending to %s, attempt %d: %s", sending.target, sending.attempts, error)
        due = time.monotonic() + pause(self._interval, sending.attempts)
        heapq.heappush(self._again, (due, next(self._numbers), sending))


def pause(interval: float, attempts: int) -> float:
    """Seconds before the next attempt: doubled each time, so that a restarted broker is met."""
    return min(interval * 2.0 ** (attempts - 1), max(interval, _LONGEST_PAUSE_SECONDS))
