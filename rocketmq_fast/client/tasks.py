"""Periodic tasks that may block, on one thread."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)


class PeriodicTasks:
    """Runs callables at fixed intervals, one after another. An error is logged, no more."""

    def __init__(self, name: str) -> None:
        self._condition = threading.Condition()
        self._due: list[tuple[float, int, float, Callable[[], object]]] = []
        self._sequence = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to run the tasks."""
        self._thread.start()

    def every(self, period: float, task: Callable[[], object], *, first: float) -> None:
        """Run `task` after `first` seconds and then every `period` seconds."""
        with self._condition:
            entry = (time.monotonic() + first, next(self._sequence), period, task)
            heapq.heappush(self._due, entry)
            self._condition.notify()

    def soon(self, task: Callable[[], object]) -> None:
        """Run `task` once, after what is running."""
        self.every(math.inf, task, first=0.0)

    def stop(self, timeout: float = 5.0) -> None:
        """End after the task that is running."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join(timeout)

    def _next(self) -> Callable[[], object] | None:
        with self._condition:
            while not self._stopping:
                if not self._due:
                    self._condition.wait()
                    continue
                wait = self._due[0][0] - time.monotonic()
                if wait > 0:
                    self._condition.wait(wait)
                    continue
                when, _, period, task = heapq.heappop(self._due)
                if period != math.inf:
                    # A task that was late is not made up for.
                    again = max(when + period, time.monotonic())
                    heapq.heappush(self._due, (again, next(self._sequence), period, task))
                return task
        return None

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except Exception:
                logger.exception("periodic task %r failed", task)
