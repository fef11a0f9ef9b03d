"""Counts distinct (queue, offset) pairs of what a listener is given."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rocketmq_fast import MessageExt, MessageQueue

_PAGE_BITS = 16
_PAGE_MASK = (1 << _PAGE_BITS) - 1


class OffsetSet:
    """Offsets of one queue, a bit each, in pages: offsets are dense but begin anywhere."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def add(self, offset: int) -> bool:
        """Add an offset. Returns whether it is new."""
        page = self._pages.get(offset >> _PAGE_BITS)
        if page is None:
            page = self._pages[offset >> _PAGE_BITS] = bytearray(1 << (_PAGE_BITS - 3))
        index = offset & _PAGE_MASK
        bit = 1 << (index & 7)
        if page[index >> 3] & bit:
            return False
        page[index >> 3] |= bit
        return True


class Tally:
    """What was consumed: distinct messages, duplicates, bytes of bodies, and from when to when.

    With a limit it is full at that many distinct messages and takes no more. Any thread.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.messages = 0
        self.duplicates = 0
        self.bytes = 0
        self.full = threading.Event()
        self._limit = limit
        self._lock = threading.Lock()
        self._queues: dict[MessageQueue, OffsetSet] = {}
        self._by_identity: dict[int, tuple[MessageQueue, OffsetSet]] = {}
        self._first: float | None = None
        self._last = 0.0

    @property
    def seconds(self) -> float:
        """Time from the first to the last message that was taken."""
        return 0.0 if self._first is None else self._last - self._first

    def add(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> int:
        """Take messages of a queue. Returns how many of them, from the front, were taken."""
        entered = time.perf_counter()
        with self._lock:
            if self.full.is_set():
                return 0
            if self._first is None:
                self._first = entered
            offsets = self._offsets_of(queue)
            taken = 0
            for message in messages:
                taken += 1
                if not offsets.add(message.queue_offset):
                    self.duplicates += 1
                    continue
                self.bytes += len(message.body)
                self.messages += 1
                if self.messages == self._limit:
                    self.full.set()
                    break
            self._last = time.perf_counter()
            return taken

    def _offsets_of(self, queue: MessageQueue) -> OffsetSet:
        """The set of a queue. By identity first: a queue's hash costs more than counting does."""
        known = self._by_identity.get(id(queue))
        if known is None:
            offsets = self._queues.setdefault(queue, OffsetSet())
            # The queue is kept with it, so that no other object gets its identity.
            known = self._by_identity[id(queue)] = (queue, offsets)
        return known[1]
