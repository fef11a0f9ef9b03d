"""How much may be sent without an answer."""

from __future__ import annotations

import threading
import time


class InFlight:
    """Counts requests and bytes without an answer; `acquire` blocks while there are too many.

    A blocked caller goes on when an eighth is free again, not at each answer: one change of threads
    for many messages. A single request over the limit of bytes passes when nothing else is in
    flight.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._resume_count = max_count - (max_count + 7) // 8
        self._resume_bytes = max_bytes - (max_bytes + 7) // 8
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting = 0
        self._count = 0
        self._bytes = 0

    @property
    def count(self) -> int:
        """Requests without an answer."""
        return self._count

    def _full(self, size: int) -> bool:
        count = self._count
        return count > 0 and (count >= self._max_count or self._bytes + size > self._max_bytes)

    def acquire(self, size: int, *, wait: bool) -> None:
        """Count a request; with `wait`, after there is room: each ends within its timeout."""
        with self._lock:
            if wait and self._full(size):
                self._waiting += 1
                try:
                    while self._full(size):
                        self._room.wait(1.0)
                finally:
                    self._waiting -= 1
            self._count += 1
            self._bytes += size

    def release(self, size: int) -> None:
        """A request has ended."""
        with self._lock:
            self._count -= 1
            self._bytes -= size
            if self._waiting and (
                self._count == 0
                or (self._count <= self._resume_count and self._bytes <= self._resume_bytes)
            ):
                self._room.notify_all()

    def wait_empty(self, timeout: float) -> bool:
        """Wait until nothing is in flight. Returns whether that came true."""
        deadline = time.monotonic() + timeout
        with self._lock:
            self._waiting += 1
            try:
                while self._count:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._room.wait(min(left, 0.1))
            finally:
                self._waiting -= 1
        return True
