"""Consumer offsets: kept in memory, stored at the brokers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.broker_calls import OFFSET_TIMEOUT
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.consumer.outages import Outages
from rocketmq_fast.errors import BrokerError, BrokerNotFound, ClientStateError, RocketMQError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.codes import ResponseCode

logger = logging.getLogger(__name__)

# A member that stood still may tell an older offset of a queue that it has lost, at any time: what
# a broker has confirmed is told again after this time. Java's client tells everything every 5 s.
CONFIRMED_SECONDS = 60.0
HURRY_SECONDS = 1.0  # for the commits at the exit of the interpreter
OffsetAnswer = Callable[[MessageQueue, int, RemotingCommand | Exception], object]
# What to send, who hears the answer, and what to send after it.
_Flight = tuple[tuple[MessageQueue, int], OffsetAnswer, Sequence[tuple[MessageQueue, int]]]


class OffsetStore(Protocol):
    """Where a group's progress is kept. Threads of the consumer call it concurrently.

    An offset is the next one to read. "Not stored" is None; a store that could not be asked raises,
    so that an unknown offset is never taken for 0.
    """

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note progress in memory."""

    def in_memory(self, queue: MessageQueue) -> int | None:
        """What `update` noted last."""

    def read(self, queue: MessageQueue) -> int | None:
        """What is stored durably; becomes the value in memory. May block."""

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Begin to store what changed. Must not block."""

    def persist_now(self, queues: Iterable[MessageQueue]) -> None:
        """Store what changed and wait for it. Failures are logged."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget the value in memory."""


class RemoteOffsetStore:
    """Offsets of a clustering group, stored at each queue's master broker, or while that is away at
    a slave, which does not tell the master.

    Only values are sent that the broker which now stands for the queue has not confirmed lately,
    and of each queue one at a time: a broker's threads may carry out two that are under way in
    either order. A pull carries an offset too where there is news and no commit is under way; one
    that is carried out late may set a later commit back. When it has ended the commit counts as
    unknown and is repeated; where no pull will follow, the broker is asked what it kept.
    """

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._lock = threading.Lock()
        self._offsets: dict[MessageQueue, int] = {}
        # Offset, who has it, since when.
        self._confirmed: dict[MessageQueue, tuple[int, str, float]] = {}
        self._carried: dict[MessageQueue, int] = {}  # by the pull that is under way
        # A broker answers 0 for a queue it has no offset of, too. Stored, once the queue is seen to
        # be empty, it makes the queue known: a group can only be reset where all its queues are.
        # Not before: while queues change hands it could set another member's commit back.
        self._doubtful_zeros: set[MessageQueue] = set()
        self._flying: Counter[MessageQueue] = Counter()  # sent and not answered yet
        self._outages = Outages(group, "commits to")
        self._landed = threading.Condition(self._lock)
        self._parked: dict[MessageQueue, deque[_Flight]] = {}  # until what flies has landed
        self._begun: set[tuple[str, str]] = set()  # (broker, topic) that has an offset of ours

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note progress in memory."""
        if offset < 0:
            raise ValueError(f"offset {offset} of {queue} is no progress")
        with self._lock:
            known = self._offsets.get(queue)
            if known is None or not increase_only or offset > known:
                self._offsets[queue] = offset
            if queue in self._doubtful_zeros:
                self._doubtful_zeros.remove(queue)
                if offset == 0:
                    self._confirmed.pop(queue, None)

    def in_memory(self, queue: MessageQueue) -> int | None:
        """What `update` noted last."""
        return self._offsets.get(queue)

    def read(self, queue: MessageQueue) -> int | None:
        """Ask the broker. Raises when it cannot say: only code 22 means that nothing is stored."""
        address = self._instance.master_of(queue)
        offset = self._instance.brokers.consumer_offset(address, self._group, queue)
        if offset is not None and offset < 0:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"offset {offset} of {queue} is impossible", address
            )
        with self._lock:
            if offset is None:
                self._offsets.pop(queue, None)
                self._confirmed.pop(queue, None)
            else:
                self._offsets[queue] = offset
                self._confirmed[queue] = (offset, address, time.monotonic())
                if offset == 0:
                    self._doubtful_zeros.add(queue)
                else:
                    self._begun.add((queue.broker_name, queue.topic))
        return offset

    def carry(self, queue: MessageQueue) -> int | None:
        """What a pull that is about to leave shall tell the broker; None when there is no news.

        The pull before it has ended. The first offset of a topic goes alone, see `_depart`.
        """
        with self._lock:
            if self._flying[queue]:
                return None  # an older value may be on its way: the next pull has the news
            carried = self._carried.pop(queue, None)
            offset = self._offsets.get(queue)
            if offset is None or (queue.broker_name, queue.topic) not in self._begun:
                return None
            known = self._confirmed.get(queue)
            if known is not None:
                if carried is not None and carried != known[0]:
                    del self._confirmed[queue]
                elif known[0] == offset:
                    return None
            self._carried[queue] = offset
            return offset

    def doubt(self, broker_name: str) -> None:
        """Send the offsets of a broker's queues again: what it had confirmed may be lost."""
        with self._lock:
            for queue in list(self._confirmed):
                if queue.broker_name == broker_name:
                    del self._confirmed[queue]
            self._begun = {part for part in self._begun if part[0] != broker_name}

    def _is_confirmed(self, queue: MessageQueue, offset: int) -> bool:
        """Whether the broker that is to be told has this offset. Lock held."""
        known = self._confirmed.get(queue)
        if known is None or known[0] != offset:
            return False
        try:
            return known[1] == self._instance.broker_address(queue.broker_name)[0]
        except BrokerNotFound:
            return False

    def _is_fresh(self, queue: MessageQueue, offset: int) -> bool:
        """As `_is_confirmed`, and that not long ago. Lock held."""
        known = self._confirmed.get(queue)
        fresh = known is not None and time.monotonic() - known[2] < CONFIRMED_SECONDS
        return fresh and self._is_confirmed(queue, offset)

    def _is_certain(self, queue: MessageQueue, offset: int) -> bool:
        """As `_is_confirmed`, and no pull is under way that could change it. Lock held."""
        carried = self._carried.get(queue, offset)
        return carried == offset and self._is_confirmed(queue, offset)

    def _confirm(self, queue: MessageQueue, offset: int, address: str) -> None:
        """Note that a broker has an offset, unless the queue was given up meanwhile."""
        with self._lock:
            self._begun.add((queue.broker_name, queue.topic))
            if queue in self._offsets:
                self._confirmed[queue] = (offset, address, time.monotonic())

    def _changed(
        self, queues: Iterable[MessageQueue], is_known: Callable[[MessageQueue, int], bool]
    ) -> list[tuple[MessageQueue, int]]:
        """The values of queues that are not known to be stored. Lock held."""
        return [
            (queue, offset)
            for queue in queues
            if (offset := self._offsets.get(queue)) is not None and not is_known(queue, offset)
        ]

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Send what changed, or was confirmed long ago; what fails is sent again the next time."""
        with self._lock:
            # One that is under way may be older; behind it one waits, not one of each time.
            unparked = (queue for queue in queues if queue not in self._parked)
            leaving = self._depart(self._changed(unparked, self._is_fresh), self._on_answer)
        for flight in leaving:
            self._fly(*flight)

    def _is_free(self, queue: MessageQueue) -> bool:
        return not self._flying[queue]

    def _land(self, queue: MessageQueue) -> None:
        """Something was answered; what waited for that takes its place."""
        with self._landed:
            parked = self._parked.get(queue)
            if parked is None:
                self._flying[queue] -= 1
                if self._flying[queue] <= 0:
                    del self._flying[queue]
                self._landed.notify_all()
                return
            waiting = parked.popleft()
            if not parked:
                del self._parked[queue]
        self._fly(*waiting)

    def _send(self, offsets: Iterable[tuple[MessageQueue, int]], on_answer: OffsetAnswer) -> None:
        """Send offsets; each answer or error goes to `on_answer`."""
        with self._lock:
            leaving = self._depart(offsets, on_answer)
        for flight in leaving:
            self._fly(*flight)

    def _depart(
        self, offsets: Iterable[tuple[MessageQueue, int]], on_answer: OffsetAnswer
    ) -> list[_Flight]:
        """What `_fly` may send now; the others leave when they can. Lock held.

        Where the value was read under the same lock, no pull takes a newer one past it. A 4.9
        broker that gets the first offsets of a group and topic at once may keep only some: each
        request makes the table when it finds none. So the very first goes alone.
        """
        parts: dict[tuple[str, str], list[tuple[MessageQueue, int]]] = {}
        for queue, offset in offsets:
            parts.setdefault((queue.broker_name, queue.topic), []).append((queue, offset))
        flights: list[_Flight] = []
        for part, items in parts.items():
            if part in self._begun:
                flights += [(item, on_answer, ()) for item in items]
            else:
                flights.append((items[0], on_answer, items[1:]))
        return [flight for flight in flights if self._may_fly(flight)]

    def _may_fly(self, flight: _Flight) -> bool:
        """Count a flight as under way, or park it behind one that is. Lock held."""
        queue = flight[0][0]
        if self._flying[queue]:
            self._parked.setdefault(queue, deque()).append(flight)
            return False
        self._flying[queue] += 1
        return True

    def _fly(
        self,
        item: tuple[MessageQueue, int],
        on_answer: OffsetAnswer,
        after: Sequence[tuple[MessageQueue, int]],
    ) -> None:
        queue, offset = item
        address = ""

        def answered(answer: RemotingCommand | Exception) -> None:
            try:
                if not isinstance(answer, Exception) and answer.code == ResponseCode.SUCCESS:
                    self._confirm(queue, offset, address)
                on_answer(queue, offset, answer)
                for item in after:
                    self._fly_late(item, on_answer)
            finally:
                self._land(queue)  # or nothing of this queue would ever be sent again

        try:
            address, _ = self._instance.broker_address(queue.broker_name)
            self._instance.brokers.commit_offset_async(
                address, self._group, queue, offset, answered
            )
        except RocketMQError as error:
            answered(error)

    def _fly_late(self, item: tuple[MessageQueue, int], on_answer: OffsetAnswer) -> None:
        """Send what is current now: by this time a newer one may be there, or another owner."""
        queue, offset = item
        with self._lock:
            current = self._offsets.get(queue)
            leaving = [] if current is None else self._depart([(queue, current)], on_answer)
        if current is None:
            on_answer(queue, offset, ClientStateError(f"{queue} was given up"))
        for flight in leaving:
            self._fly(*flight)

    def _on_answer(
        self, queue: MessageQueue, offset: int, answer: RemotingCommand | Exception
    ) -> None:
        if isinstance(answer, Exception):
            self._outages.failed(queue, answer)
        elif answer.code != ResponseCode.SUCCESS:
            text = f"offset {offset}: {answer.remark}"
            self._outages.failed(queue, BrokerError.of(answer.code, text))
        else:
            self._outages.succeeded(queue)

    def wait_landed(self, timeout: float) -> bool:
        """Wait until everything that was sent is answered, and what waited for it sent too."""
        with self._landed:
            return self._landed.wait_for(lambda: not self._flying, timeout)

    def persist_now(self, queues: Iterable[MessageQueue]) -> None:
        """Store what changed, one queue after another, waiting for each answer."""
        stored = []
        with self._lock:
            changed = self._changed(queues, self._is_certain)
        self._connect_anew(queue for queue, _ in changed)
        for queue, _ in changed:
            with self._landed:
                self._landed.wait_for(partial(self._is_free, queue), OFFSET_TIMEOUT)
                offset = self._offsets.get(queue)
                if offset is None or self._is_certain(queue, offset):
                    continue
                self._flying[queue] += 1
            try:
                if self._persist_one(queue, offset):
                    stored.append((queue, offset))
            finally:
                self._land(queue)
        for queue, offset in stored:
            carried = self._carried.get(queue, offset)
            if carried != offset and self._has_kept(queue, carried):
                self._persist_one(queue, offset)

    def _connect_anew(self, queues: Iterable[MessageQueue]) -> None:
        """Forget that brokers were out of reach a moment ago: what is sent now may be the last."""
        for name in {queue.broker_name for queue in queues}:
            with contextlib.suppress(BrokerNotFound):
                address, _ = self._instance.broker_address(name)
                self._instance.remoting.connect_anew(address)

    def _has_kept(self, queue: MessageQueue, carried: int) -> bool:
        """Whether the broker has the offset of the last pull in place of the later commit."""
        try:
            address = self._instance.master_of(queue)
            return self._instance.brokers.consumer_offset(address, self._group, queue) == carried
        except RocketMQError as error:
            logger.warning("the offset of %s could not be checked: %s", queue, error)
            return False

    def _persist_one(self, queue: MessageQueue, offset: int) -> bool:
        try:
            address = self._instance.master_of(queue)
            self._instance.brokers.commit_offset(address, self._group, queue, offset)
        except RocketMQError as error:
            logger.warning("offset %d of %s was not stored: %s", offset, queue, error)
            return False
        self._confirm(queue, offset, address)
        return True

    def remove(self, queue: MessageQueue) -> None:
        """Forget the queue."""
        with self._lock:
            self._offsets.pop(queue, None)
            self._confirmed.pop(queue, None)
            self._carried.pop(queue, None)
            self._doubtful_zeros.discard(queue)
        self._outages.forget(queue)
