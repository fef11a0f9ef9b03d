"""Counts distinct (queue, offset) pairs of what a listener is given."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

from rocketmq_fast import MessageExt, MessageQueue

_PAGE_BITS = 16
_PAGE_MASK = (1 << _PAGE_BITS) - 1


class OffsetSet:
    """Offsets of one queue.

    As long as they come without a gap and without a repetition, a run of them is all there is; then
    a bit each, in pages, since offsets are dense but begin anywhere.
    """

    __slots__ = ("_pages", "_start", "next")

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] | None = None
        self._start = -1
        # The offset that the run goes on with; -1 once there are pages.
        self.next = -1

    def add(self, offset: int) -> bool:
        """Add an offset. Returns whether it is new."""
        pages = self._pages
        if pages is None:
            if self._start < 0:
                self._start = self.next = offset
            if offset == self.next:
                self.next = offset + 1
                return True
            if self._start <= offset < self.next:
                return False
            pages = self._pages = _pages_of(self._start, self.next)
            self.next = -1
        return _set(pages, offset)


def _pages_of(start: int, end: int) -> dict[int, bytearray]:
    """Pages that hold the offsets from start to end, without end."""
    pages = {}
    for number in range(start >> _PAGE_BITS, ((end - 1) >> _PAGE_BITS) + 1):
        base = number << _PAGE_BITS
        low, high = max(start - base, 0), min(end - base, 1 << _PAGE_BITS)
        bits = ((1 << (high - low)) - 1) << low
        pages[number] = bytearray(bits.to_bytes(1 << (_PAGE_BITS - 3), "little"))
    return pages


def _set(pages: dict[int, bytearray], offset: int) -> bool:
    page = pages.get(offset >> _PAGE_BITS)
    if page is None:
        page = pages[offset >> _PAGE_BITS] = bytearray(1 << (_PAGE_BITS - 3))
    index = offset & _PAGE_MASK
    bit = 1 << (index & 7)
    if page[index >> 3] & bit:
        return False
    page[index >> 3] |= bit
    return True


class Tally:
    """What was consumed: distinct messages, duplicates, bytes of bodies, and from when to when.

    With a limit it is full at that many distinct messages and takes no more. Any thread. It runs
    for each message of a consumer that does nothing else, so it is written to be quick.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.messages = 0
        self.duplicates = 0
        self.bytes = 0
        self.full = threading.Event()
        self.is_full = False
        self._limit = sys.maxsize if limit is None else limit
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
        if self._first is None:
            self._first = time.perf_counter()
        with self._lock:
            if self.is_full:
                return 0
            # By identity: a queue's hash costs more than counting does.
            known = self._by_identity.get(id(queue))
            offsets = known[1] if known is not None else self._offsets_of(queue)
            taken = new = size = 0
            left = self._limit - self.messages
            for message in messages:
                taken += 1
                offset = message.queue_offset
                if offset == offsets.next:
                    offsets.next = offset + 1
                elif not offsets.add(offset):
                    self.duplicates += 1
                    continue
                size += len(message.body)
                new += 1
                if new == left:
                    self.is_full = True
                    break
            self.messages += new
            self.bytes += size
            self._last = time.perf_counter()
        if self.is_full:
            self.full.set()
        return taken

    def _offsets_of(self, queue: MessageQueue) -> OffsetSet:
        """The set of a queue that was not seen yet, or not as this object."""
        offsets = self._queues.setdefault(queue, OffsetSet())
        # The queue is kept with it, so that no other object gets its identity.
        self._by_identity[id(queue)] = (queue, offsets)
        return offsets
