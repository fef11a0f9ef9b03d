"""What the log says of pulls that fail: a line when it begins, a summary now and then, an end.

A broker that is away fails the pulls of all its queues, again and again. Told is what changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    ConnectError,
    ConnectionClosed,
    SubscriptionNotExist,
    SubscriptionNotLatest,
)

logger = logging.getLogger(__name__)

SUMMARY_SECONDS = 30.0

_AWAY = (ConnectionClosed, ConnectError, BrokerNotFound)
# A heartbeat mends these at once; only if they stay they are worth a line.
_PASSING = (SubscriptionNotExist, SubscriptionNotLatest)

_Key = tuple[str, str]


class _Outage:
    """One kind of failure at one broker, since it began."""

    __slots__ = ("failures", "queues", "since", "told", "told_at")

    def __init__(self, now: float) -> None:
        self.since = self.told_at = now
        self.failures = 0
        self.told = False
        self.queues: set[AssignedQueue] = set()


class PullOutages:
    """The failing brokers of one consumer. Event loop's thread."""

    def __init__(
        self, group: str, retry_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._group = group
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._open: dict[_Key, _Outage] = {}

    def failed(self, queue: AssignedQueue, error: Exception) -> None:
        """A pull failed and is tried again."""
        now = self._clock()
        broker = queue.message_queue.broker_name
        away = isinstance(error, _AWAY)
        if not away:
            self._reached(broker, now)
        key = (broker, _kind(error))
        outage = self._open.get(key)
        first = outage is None
        if outage is None:
            outage = self._open[key] = _Outage(now)
        outage.failures += 1
        outage.queues = {other for other in outage.queues if not other.dropped} | {queue}
        if now - outage.told_at >= SUMMARY_SECONDS:
            outage.told = True
            outage.told_at = now
            logger.warning(
                "group %s: pulls from broker %s have failed for %.0f s, %d queues, %d times; "
                "the last of %s: %s",
                self._group,
                broker,
                now - outage.since,
                len(outage.queues),
                outage.failures,
                queue.message_queue,
                error,
            )
        elif not first:
            logger.debug("group %s: pull of %s: %s", self._group, queue.message_queue, error)
        elif isinstance(error, _PASSING):
            logger.info("group %s: pull of %s: %s", self._group, queue.message_queue, error)
        else:
            outage.told = True
            logger.warning(
                "group %s: %s; pull of %s: %s; tried again every %.3g s",
                self._group,
                f"broker {broker} is away" if away else f"broker {broker} fails pulls",
                queue.message_queue,
                error,
                self._retry_seconds,
            )

    def answered(self, queue: AssignedQueue) -> None:
        """A pull was answered as it should be."""
        if not self._open:
            return
        now = self._clock()
        broker = queue.message_queue.broker_name
        self._reached(broker, now)
        for key, outage in list(self._open.items()):
            if key[0] != broker:
                continue
            outage.queues = {q for q in outage.queues if q is not queue and not q.dropped}
            if not outage.queues:
                self._end(key, now)

    def _reached(self, broker: str, now: float) -> None:
        """The broker gave an answer, if only an error: it is not away."""
        self._end((broker, _AWAY_KIND), now)

    def _end(self, key: _Key, now: float) -> None:
        outage = self._open.pop(key, None)
        if outage is not None and outage.told:
            logger.warning(
                "group %s: broker %s answers pulls again, after %.1f s and %d failed pulls",
                self._group,
                key[0],
                now - outage.since,
                outage.failures,
            )


_AWAY_KIND = "away"


def _kind(error: Exception) -> str:
    """Failures of one kind at a broker are one outage."""
    if isinstance(error, _AWAY):
        return _AWAY_KIND
    return f"code {error.code}" if isinstance(error, BrokerError) else type(error).__name__
