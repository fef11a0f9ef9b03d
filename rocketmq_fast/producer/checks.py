"""Threads that find out the state of transactions for brokers that ask."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)

Task = Callable[[], None]


class CheckPool:
    """Runs tasks on few daemon threads; a line that is full refuses more.

    `low` threads are made as tasks come, up to `high` when the line is full, as Java's pool does.
    """

    def __init__(self, name: str, low: int, high: int, room: int) -> None:
        self._name = name
        self._low = low
        self._high = max(low, high)
        self._room = room
        self._tasks: deque[Task] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._stopping = False

    def submit(self, task: Task) -> bool:
        """Line a task up; False when there is no room. Does not block."""
        with self._changed:
            if self._stopping:
                return False
            full = len(self._tasks) >= self._room
            if full and self._threads >= self._high:
                return False
            if self._threads < self._low or full:
                grown = self._grow()
                if not grown and (full or not self._threads):
                    return False
            self._tasks.append(task)
            self._changed.notify()
        return True

    def _grow(self) -> bool:
        """Add a thread; whether the process had one more."""
        name = f"{self._name}-{self._threads + 1}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError as error:
            logger.warning("thread %s: %s", name, error)
            return False
        self._threads += 1
        return True

    def stop(self) -> None:
        """Run nothing more; a task that runs goes on."""
        with self._changed:
            self._stopping = True
            self._tasks.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._tasks and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                task = self._tasks.popleft()
            try:
                task()
            except Exception:
                logger.exception("%s: a task failed", self._name)
