"""What the log says of requests that fail again and again: when it begins, now and then, the end.

A broker that is away fails the pulls and the commits of all its queues each time that they are
tried. Told is what changes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    ConnectError,
    ConnectionClosed,
    SubscriptionNotExist,
    SubscriptionNotLatest,
)
from rocketmq_fast.model import MessageQueue

logger = logging.getLogger(__name__)

SUMMARY_SECONDS = 30.0

_AWAY = (ConnectionClosed, ConnectError, BrokerNotFound)
_AWAY_KIND = "away"
_AGAIN = "work again"
# A heartbeat mends these at once; only if they stay they are worth a line.
_PASSING = (SubscriptionNotExist, SubscriptionNotLatest)


class _Outage:
    """One kind of failure at one broker, since it began."""

    __slots__ = ("failures", "queues", "since", "told", "told_at")

    def __init__(self, now: float) -> None:
        self.since = self.told_at = now
        self.failures = 0
        self.told = False
        self.queues: set[MessageQueue] = set()


class Outages:
    """The brokers at which one kind of request of a consumer fails. Any thread.

    what: "pulls from", or the like, before the name of a broker.
    """

    def __init__(self, group: str, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._group = group
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], _Outage] = {}

    def failed(self, queue: MessageQueue, error: Exception) -> None:
        """A request for a queue failed and is repeated later."""
        with self._lock:
            self._failed(queue, error, self._clock())

    def _failed(self, queue: MessageQueue, error: Exception, now: float) -> None:
        broker = queue.broker_name
        if not isinstance(error, _AWAY):
            self._end((broker, _AWAY_KIND), now)  # an error is an answer too
        key = (broker, _kind(error))
        outage = self._open.get(key)
        first = outage is None
        if outage is None:
            outage = self._open[key] = _Outage(now)
        outage.failures += 1
        outage.queues.add(queue)
        if now - outage.told_at >= SUMMARY_SECONDS:
            outage.told = True
            outage.told_at = now
            logger.warning(
                "group %s: %s broker %s have failed for %.0f s, %d queues, %d times; the last for "
                "%s: %s",
                self._group,
                self._what,
                broker,
                now - outage.since,
                len(outage.queues),
                outage.failures,
                queue,
                error,
            )
            return
        level = logging.DEBUG
        if first:
            outage.told = not isinstance(error, _PASSING)
            level = logging.WARNING if outage.told else logging.INFO
        text = "group %s: %s broker %s fail, for %s: %s; they are repeated"
        logger.log(level, text, self._group, self._what, broker, queue, error)

    def succeeded(self, queue: MessageQueue) -> None:
        """A request for a queue was answered as it should be."""
        if not self._open:
            return
        with self._lock:
            now = self._clock()
            self._end((queue.broker_name, _AWAY_KIND), now)
            self._settle(queue, now, _AGAIN)

    def forget(self, queue: MessageQueue) -> None:
        """A queue was given up: it neither fails nor succeeds any more."""
        if not self._open:
            return
        with self._lock:
            self._settle(queue, self._clock(), "ended, its queues are not ours any more")

    def _settle(self, queue: MessageQueue, now: float, how: str) -> None:
        for key, outage in list(self._open.items()):
            if queue in outage.queues:
                outage.queues.remove(queue)
                if not outage.queues:
                    self._end(key, now, how)

    def _end(self, key: tuple[str, str], now: float, how: str = _AGAIN) -> None:
        outage = self._open.pop(key, None)
        if outage is not None and outage.told:
            logger.warning(
                "group %s: %s broker %s %s, after %.1f s and %d failures",
                self._group,
                self._what,
                key[0],
                how,
                now - outage.since,
                outage.failures,
            )


def _kind(error: Exception) -> str:
    """Failures of one kind at a broker are one outage."""
    if isinstance(error, _AWAY):
        return _AWAY_KIND
    return f"code {error.code}" if isinstance(error, BrokerError) else type(error).__name__
