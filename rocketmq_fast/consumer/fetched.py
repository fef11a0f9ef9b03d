"""Messages that were fetched ahead of `poll`, and how far each queue was handed out."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rocketmq_fast._core import MessageBatch
from rocketmq_fast.consumer.assigned import AssignedQueue, FlowListener
from rocketmq_fast.model import MessageQueue

if TYPE_CHECKING:
    from rocketmq_fast.consumer.offsets import OffsetStore
    from rocketmq_fast.errors import RocketMQError

Waker = Callable[[], object]
# Messages start..stop of a batch that are handed out.
Piece = tuple["PullQueue", MessageBatch, int, int]


class _Chunk:
    """What one pull brought and nobody has taken yet: messages start..stop of a batch."""

    __slots__ = ("batch", "end_offset", "start", "stop")

    def __init__(self, batch: MessageBatch, end_offset: int) -> None:
        self.batch = batch
        self.start = 0
        self.stop = len(batch)
        self.end_offset = end_offset  # where the next pull went on, behind what a filter took out


class PullQueue(AssignedQueue):
    """A queue of a pull consumer.

    `position` is the offset behind the last message that was handed out. It is written under the
    lock of Fetched.
    """

    def __init__(
        self, queue: MessageQueue, next_offset: int, store: OffsetStore, flow: FlowListener
    ) -> None:
        super().__init__(queue, next_offset, store, flow)
        self.position = next_offset
        self.chunks: deque[_Chunk] = deque()
        self.started = False
        self.failure: RocketMQError | None = None
        self.fetched: Fetched | None = None

    def advance(self, offset: int) -> None:
        """Note that nothing is left below `offset`, which a filter or a gap may have emptied."""
        if self.fetched is not None:
            self.fetched.advance(self, offset)

    @property
    def commit_offset(self) -> int:
        """The position, unless a message below it is held."""
        held = self.held_offset
        return self.position if held is None else min(held, self.position)


class Fetched:
    """All fetched messages of a consumer, in turns of its queues.

    The event loop puts, threads and coroutines of the user take.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._line: deque[PullQueue] = deque()  # queues with chunks, not paused, next first
        self._holding: set[PullQueue] = set()  # queues with chunks
        self._moved: set[PullQueue] = set()  # queues whose position is not staged yet
        self._wakers: list[Waker] = []
        self._failed: set[PullQueue] = set()
        self.closed = False
        self.count = 0
        self.size = 0

    # ----------------------------------------------------------------------------- event loop

    def put(self, queue: PullQueue, batch: MessageBatch) -> None:
        """Add what a pull brought; nothing when the queue was lost or moved meanwhile."""
        with self._lock:
            if queue.dropped or self.closed:
                return
            chunk = _Chunk(batch, queue.next_offset)
            if not queue.chunks:
                self._holding.add(queue)
                if not queue.paused:
                    self._line.append(queue)
            queue.chunks.append(chunk)
            self.count += chunk.stop
            self.size += batch.body_bytes
            self._wake()

    def advance(self, queue: PullQueue, offset: int) -> None:
        """Move the position of a queue of which nothing waits."""
        with self._lock:
            if not queue.dropped and not queue.chunks and offset > queue.position:
                queue.position = offset
                self._moved.add(queue)

    def skip_to(self, queue: PullQueue, offset: int) -> None:
        """The broker has nothing up to `offset`: what waits is still handed out, then that."""
        with self._lock:
            if queue.dropped:
                return
            queue.next_offset = offset
            if queue.chunks:
                queue.chunks[-1].end_offset = offset
            else:
                queue.position = offset
                self._moved.add(queue)

    def fail(self, queue: PullQueue, error: RocketMQError) -> None:
        """Have `poll` raise until the queue is moved or given up."""
        with self._lock:
            queue.failure = error
            self._failed.add(queue)
            self._wake()

    # -------------------------------------------------------------------------------- queues

    def moved(self, queue: PullQueue) -> None:
        """The position was set by the user, or by a repair."""
        with self._lock:
            self._moved.add(queue)

    def forget_dropped(self) -> None:
        """Throw away what waits of queues that are not ours any more, or were moved."""
        with self._lock:
            for queue in [queue for queue in self._holding if queue.dropped]:
                for chunk in queue.chunks:
                    self._uncount(chunk, chunk.start, chunk.stop)
                queue.chunks.clear()
                self._holding.discard(queue)
            self._line = deque(queue for queue in self._line if not queue.dropped)
            self._moved = {queue for queue in self._moved if not queue.dropped}
            self._failed = {queue for queue in self._failed if not queue.dropped}

    def set_paused(self, queues: Iterable[PullQueue], paused: bool) -> None:
        """Hold back, or let go, what waits of these queues."""
        with self._lock:
            for queue in queues:
                queue.paused = paused
            self._line = deque(queue for queue in self._line if not queue.paused)
            listed = set(self._line)
            for queue in self._holding:
                if not queue.paused and not queue.dropped and queue not in listed:
                    self._line.append(queue)
            self._wake()

    def staged(self) -> dict[MessageQueue, int]:
        """Commit offsets of the queues that moved since the last call."""
        if not self._moved:
            return {}
        with self._lock:
            moved, self._moved = self._moved, set()
            return {q.message_queue: q.commit_offset for q in moved if not q.dropped}

    # ---------------------------------------------------------------------------------- user

    def take(self, limit: int, *, whole: bool) -> list[Piece]:
        """Hand out up to `limit` messages.

        With `whole`, chunks are not cut, and the first is given whatever its size.
        """
        pieces: list[Piece] = []
        left = limit
        with self._lock:
            while self._line and left > 0:
                queue = self._line[0]
                chunk = queue.chunks[0]
                waiting = chunk.stop - chunk.start
                if whole and pieces and waiting > left:
                    break
                count = waiting if whole else min(left, waiting)
                start, stop = chunk.start, chunk.start + count
                pieces.append((queue, chunk.batch, start, stop))
                self._moved.add(queue)
                self._uncount(chunk, start, stop)
                left -= count
                if stop < chunk.stop:
                    chunk.start = stop
                    queue.position = chunk.batch[stop - 1].queue_offset + 1
                    break
                queue.position = chunk.end_offset
                queue.chunks.popleft()
                self._line.popleft()
                if queue.chunks:
                    self._line.append(queue)
                else:
                    self._holding.discard(queue)
        return pieces

    def _uncount(self, chunk: _Chunk, start: int, stop: int) -> None:
        self.count -= stop - start
        if stop == chunk.stop:
            self.size -= chunk.batch.body_bytes  # with its last message the batch goes

    @property
    def failure(self) -> RocketMQError | None:
        """Why a queue does not go on."""
        if not self._failed:
            return None
        with self._lock:
            return next((queue.failure for queue in self._failed if not queue.dropped), None)

    def _is_worth(self) -> bool:
        return bool(self._line or self._failed or self.closed)

    def wait(self, deadline: float) -> bool:
        """Block until there is something to take, a failure or the end. False at the deadline."""
        with self._changed:
            return self._changed.wait_for(self._is_worth, max(0.0, deadline - time.monotonic()))

    def call_when_worth(self, waker: Waker) -> bool:
        """Have `waker` called once when there is something; False when there is already."""
        with self._lock:
            if self._is_worth():
                return False
            self._wakers.append(waker)
            return True

    def forget_waker(self, waker: Waker) -> None:
        """Undo call_when_worth."""
        with self._lock:
            if waker in self._wakers:
                self._wakers.remove(waker)

    def _wake(self) -> None:
        """Lock held."""
        self._changed.notify_all()
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            waker()

    def close(self) -> None:
        """Nothing comes any more; waiting calls return."""
        with self._lock:
            self.closed = True
            self._line.clear()
            self._holding.clear()
            self._wake()
