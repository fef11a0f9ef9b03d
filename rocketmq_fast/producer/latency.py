"""Which brokers answer slowly or not at all, and are left alone for a while."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocketmq_fast.model import MessageQueue
from rocketmq_fast.producer.selectors import RoundRobin

LATENCY_MAX = (50, 100, 550, 1000, 2000, 3000, 15000)
NOT_AVAILABLE_DURATION = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
# What a send counts as that got no answer, or a refusal.
_FAILED_MILLIS = 30_000


@dataclass(slots=True)
class _Fault:
    """The last send to a broker, and when the next one may go there."""

    latency: float
    available_at: float


class FaultTable:
    """Brokers by their last latency. Times are milliseconds. Any thread.

    A send of at least `latency_max[i]` keeps others from its broker for
    `not_available_duration[i]`.
    """

    def __init__(
        self,
        latency_max: Sequence[float] = LATENCY_MAX,
        not_available_duration: Sequence[float] = NOT_AVAILABLE_DURATION,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = sorted(zip(latency_max, not_available_duration, strict=True), reverse=True)
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._turn = itertools.count()
        self._lock = threading.Lock()

    def record(self, broker_name: str, latency: float, *, failed: bool) -> None:
        """A send has ended."""
        counts_as = _FAILED_MILLIS if failed else latency
        away = next((duration for limit, duration in self._steps if counts_as >= limit), 0)
        fault = _Fault(latency, self._clock() * 1000 + away)
        with self._lock:
            self._faults[broker_name] = fault

    def available(self, broker_name: str) -> bool:
        """Whether nothing speaks against a broker."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.available_at <= self._clock() * 1000

    def least_bad(self) -> str | None:
        """A broker of the better half of all that had a send; None without any."""
        now = self._clock() * 1000
        with self._lock:
            ranked = sorted(
                self._faults.items(),
                key=lambda item: (
                    item[1].available_at > now,
                    item[1].latency,
                    item[1].available_at,
                ),
            )
        if not ranked:
            return None
        half = len(ranked) // 2
        return ranked[next(self._turn) % half if half else 0][0]

    def forget(self, broker_name: str) -> None:
        """Nothing speaks against this broker any more."""
        with self._lock:
            self._faults.pop(broker_name, None)


class AvoidFaults(RoundRobin):
    """Queues in turn, of brokers that are available; of one of the better brokers if none is."""

    def __init__(self, faults: FaultTable) -> None:
        super().__init__()
        self._faults = faults

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue. `avoid` counts only when no broker is known to be better."""
        for _ in range(len(queues)):
            queue = super().choose(queues)
            if self._faults.available(queue.broker_name):
                return queue
        name = self._faults.least_bad()
        own = [queue for queue in queues if queue.broker_name == name]
        if own:
            return super().choose(own)
        if name is not None:
            self._faults.forget(name)  # it is not in this topic's route
        return super().choose(queues, avoid)
