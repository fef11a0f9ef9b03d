"""A queue that this consumer owns: Java's PullRequest and the state part of its ProcessQueue."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

from rocketmq_fast._core.consume import QueueState
from rocketmq_fast.model import MessageQueue

if TYPE_CHECKING:
    from rocketmq_fast.consumer.offsets import OffsetStore
    from rocketmq_fast.remoting.loop import Timer


# The broker keeps a lock for 60 s after its last renewal; half of that is relied on.
LOCK_LIFE_SECONDS = 30.0
_NEVER = -1e9


class FlowListener(Protocol):
    """Told when a queue that waits for room may pull again. Any thread."""

    def on_room(self, queue: AssignedQueue) -> None:
        """The queue fell below its limits."""


class AssignedQueue(QueueState):
    """One assignment of a queue, from the rebalance that gave it to the one that took it.

    A new assignment, a reset or a repaired offset makes a new object, and `dropped` voids the old
    one: answers and results that are still under way for it change nothing. `next_offset` and what
    belongs to the pull loop is touched by the event loop only; the rest by any thread.
    """

    def __init__(
        self, queue: MessageQueue, next_offset: int, store: OffsetStore, flow: FlowListener
    ) -> None:
        super().__init__(queue)
        self.next_offset = next_offset
        self.broker_id = 0
        self.paused = False
        self.count_limit = 0
        self.size_limit_bytes = 0
        self.created = time.monotonic()
        self.last_pull = self.created
        self.last_consume = self.created
        self.last_illegal = _NEVER
        self.min_offset = -1  # of the broker, from the last answer, as max_offset
        self.max_offset = -1
        self.locked_at = self.locked_until = self._distrusted_at = _NEVER
        self.busy = False  # orderly: a worker is on it
        self.waiting_for_room = False
        self.waiting_for_master = False
        self.room_timer: Timer | None = None
        self._store = store
        self._flow = flow
        self._lock = threading.Lock()
        self._held: list[int] = []

    @property
    def locked(self) -> bool:
        """Orderly: whether the lock was confirmed lately enough to be relied on."""
        return time.monotonic() < self.locked_until

    def confirm_lock(self, at: float) -> None:
        """Orderly: the broker, asked at this monotonic time, said that the lock is ours.

        What it said before the latest distrust counts for nothing.
        """
        with self._lock:
            if at > self._distrusted_at:
                self.locked_at = at
                self.locked_until = at + LOCK_LIFE_SECONDS

    def distrust_lock(self) -> None:
        """Orderly: consume no more before the broker, asked anew, has confirmed the lock."""
        with self._lock:
            self._distrusted_at = time.monotonic()
            self.locked_at = self.locked_until = _NEVER

    def hold(self, offset: int) -> None:
        """Keep the commit at or below this offset: a message there could not be decoded."""
        with self._lock:
            self._held.append(offset)

    def release(self, offset: int) -> None:
        """End a hold: the message there is taken care of."""
        with self._lock:
            if offset in self._held:
                self._held.remove(offset)

    @property
    def held_offset(self) -> int | None:
        """The smallest offset that `hold` keeps."""
        with self._lock:
            return min(self._held) if self._held else None

    @property
    def span(self) -> int:
        """Largest cached offset minus the smallest one that is cached or held."""
        queue = self.process_queue
        held = self.held_offset
        if held is None:
            return queue.span
        return max(queue.max_offset, self.next_offset - 1) - min(
            held, queue.min_offset if queue.min_offset >= 0 else held
        )

    def advance(self, offset: int) -> None:
        """Note that everything below `offset` is done, unless something below is held."""
        if self._held:
            held = self.held_offset
            if held is not None and held < offset:
                offset = held
        if offset >= 0 and not self.dropped:
            self._store.update(self.message_queue, offset, increase_only=True)

    def on_removed(self, offset: int) -> None:
        """Take an acknowledgement: note the progress, and pull again if that waited for room."""
        self.last_consume = time.monotonic()
        if offset >= 0:
            self.advance(offset)
        if self.waiting_for_room:
            self._flow.on_room(self)

    def __repr__(self) -> str:
        state = " dropped" if self.dropped else ""
        return f"<AssignedQueue {self.message_queue} next={self.next_offset}{state}>"
