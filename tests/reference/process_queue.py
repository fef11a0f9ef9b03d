"""The cache of one queue: pulled messages by offset, and those that an orderly listener holds."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class Cached(Protocol):
    """What the queue needs to know of a message."""

    @property
    def queue_offset(self) -> int:
        """Offset in the queue."""

    @property
    def body(self) -> bytes:
        """Its length counts for the size."""


class ProcessQueue:
    """Messages by offset, with the smallest and the largest at hand.

    An offset that is put while its message is taken replaces that message once both meet.

    The dicts are what counts. The two heaps only find the ends: an offset that left the dict stays
    in them until it comes up, or until they are more waste than content.
    """

    def __init__(self) -> None:
        self._messages: dict[int, Cached] = {}
        self._taken: dict[int, Cached] = {}
        self._smallest: list[int] = []
        self._largest: list[int] = []
        self._queue_offset_max = 0
        self._consuming = False
        self.count = 0
        self.size = 0

    def put(self, messages: Iterable[Cached]) -> bool:
        """Insert; True when an idle queue now has work. An offset held already counts once."""
        for message in messages:
            offset = message.queue_offset
            if offset not in self._messages:
                self._insert(offset, message)
                self.count += 1
                self.size += len(message.body)
                self._queue_offset_max = max(self._queue_offset_max, offset)
        if self._messages and not self._consuming:
            self._consuming = True
            return True
        return False

    def remove(self, offsets: Iterable[int]) -> int:
        """Drop consumed messages; the offset to commit, -1 if nothing was cached."""
        if not self._messages:
            return -1
        for offset in offsets:
            self._drop(self._messages.pop(offset, None))
        self._compact()
        first = self._first()
        return self._queue_offset_max + 1 if first is None else first

    def take(self, count: int) -> list[Cached]:
        """Hand out up to `count` of the smallest offsets, which stay counted until `commit`."""
        taken: list[Cached] = []
        while len(taken) < count and (first := self._first()) is not None:
            message = self._messages.pop(first)
            self._drop(self._taken.pop(first, None))
            self._taken[first] = message
            taken.append(message)
        if not taken:
            self._consuming = False
        return taken

    def commit(self) -> int:
        """Forget what was taken; the offset behind it, -1 if nothing was."""
        if not self._taken:
            return -1
        last = max(self._taken)
        self.count -= len(self._taken)
        self.size -= sum(len(message.body) for message in self._taken.values())
        self._taken.clear()
        return last + 1

    def rollback(self) -> None:
        """Put back everything that was taken."""
        self.make_consume_again(list(self._taken))

    def make_consume_again(self, offsets: Iterable[int]) -> None:
        """Put back some of what was taken."""
        for offset in offsets:
            message = self._taken.pop(offset, None)
            if message is not None and offset not in self._messages:
                self._insert(offset, message)
            else:
                self._drop(message)

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()
        self._taken.clear()
        self._smallest.clear()
        self._largest.clear()
        self._queue_offset_max = self.count = self.size = 0

    @property
    def min_offset(self) -> int:
        """The smallest cached offset, -1 without one."""
        first = self._first()
        return -1 if first is None else first

    @property
    def max_offset(self) -> int:
        """The largest cached offset, -1 without one."""
        while self._largest and -self._largest[0] not in self._messages:
            heapq.heappop(self._largest)
        return -self._largest[0] if self._largest else -1

    @property
    def span(self) -> int:
        """Distance between the two ends."""
        return self.max_offset - self.min_offset

    def _first(self) -> int | None:
        while self._smallest and self._smallest[0] not in self._messages:
            heapq.heappop(self._smallest)
        return self._smallest[0] if self._smallest else None

    def _drop(self, message: Cached | None) -> None:
        if message is not None:
            self.count -= 1
            self.size -= len(message.body)

    def _insert(self, offset: int, message: Cached) -> None:
        self._messages[offset] = message
        heapq.heappush(self._smallest, offset)
        heapq.heappush(self._largest, -offset)

    def _compact(self) -> None:
        limit = 2 * len(self._messages) + 64
        if len(self._smallest) > limit or len(self._largest) > limit:
            self._smallest = sorted(self._messages)
            self._largest = [-offset for offset in reversed(self._smallest)]
