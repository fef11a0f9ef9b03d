"""What orderly listeners saw, in this process or in others, and whether the order was kept."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from rocketmq_fast import MessageExt, OrderlyContext, OrderlyStatus

SUCCESS = OrderlyStatus.SUCCESS
SUSPEND = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

Answer = Callable[[list[MessageExt], OrderlyContext], object]


@dataclass(frozen=True, slots=True)
class Call:
    """One listener call. `ended` is 0 for one that never returned, in the clock of the machine."""

    member: str
    queue: int
    offsets: tuple[int, ...]
    times: tuple[int, ...]
    begun: int
    ended: int
    good: bool


class OrderLog:
    """A listener per member; all note into one list."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._lock = threading.Lock()

    def listener(self, member: str = "A", answer: Answer | None = None) -> Answer:
        """A listener that notes its calls; without `answer` they succeed."""

        def listen(messages: list[MessageExt], context: OrderlyContext) -> object:
            begun = time.monotonic_ns()
            offsets = tuple(message.queue_offset for message in messages)
            times = tuple(message.reconsume_times for message in messages)
            status: object = None
            try:
                status = SUCCESS if answer is None else answer(messages, context)
            finally:
                good = status in (SUCCESS, OrderlyStatus.COMMIT)
                ended = time.monotonic_ns()
                queue = context.message_queue.queue_id
                with self._lock:
                    self.calls.append(Call(member, queue, offsets, times, begun, ended, good))
            return status

        return listen

    def of(self, queue: int = 0) -> list[Call]:
        """The calls of one queue in the order of their beginning."""
        with self._lock:
            return sorted((c for c in self.calls if c.queue == queue), key=lambda c: c.begun)

    def successes(self, queue: int = 0) -> list[int]:
        """The offsets that succeeded."""
        return [offset for call in self.of(queue) if call.good for offset in call.offsets]

    def count(self) -> int:
        """Distinct successes."""
        with self._lock:
            return len({(c.queue, o) for c in self.calls if c.good for o in c.offsets})

    def members(self) -> set[str]:
        """Members that had a success."""
        with self._lock:
            return {call.member for call in self.calls if call.good}


def written(folder: Path, members: Iterable[str]) -> list[Call]:
    """The calls that processes of tests.member wrote."""
    calls = []
    for member in members:
        open_calls: dict[str, tuple[int, tuple[int, ...], int]] = {}
        lines = (folder / f"{member}.log").read_text().splitlines()
        for line in lines:
            kind, key, *rest = line.split()
            if kind == "B":
                queue, begun, *offsets = rest
                open_calls[key] = int(queue), tuple(map(int, offsets)), int(begun)
            elif kind == "E":
                number, at, began = open_calls.pop(key)
                calls.append(Call(member, number, at, (), began, int(rest[0]), True))
        for number, at, began in open_calls.values():
            calls.append(Call(member, number, at, (), began, 0, False))
    return sorted(calls, key=lambda call: call.begun)


def overlapping(calls: Iterable[Call]) -> list[tuple[Call, Call]]:
    """Pairs of calls for one queue that ran at a time; one without an end ends with the next."""
    found = []
    queues: dict[int, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.begun):
        before = queues[call.queue][-1:] or None
        if before is not None and before[0].ended > call.begun:
            found.append((before[0], call))
        queues[call.queue].append(call)
    return found


def overlaps(calls: Iterable[Call]) -> list[str]:
    """As `overlapping`, in words."""
    return [f"{one} and {other}" for one, other in overlapping(calls)]


def due_order(calls: Iterable[Call], start: int, moved: Container[int]) -> list[str]:
    """Offsets of one queue that were passed over, whoever had the queue.

    `moved` are those that the broker took for another time or place, as dead letters. An owner
    begins at or below what was done before it, for the commit may be behind; from there on each
    offset follows the one before, or comes again after a refusal.
    """
    found = []
    due = start
    for call in sorted(calls, key=lambda call: call.begun):
        while due in moved:
            due += 1
        reached = due
        for offset in call.offsets:
            if offset > reached:
                found.append(f"offset {offset} where {reached} was due: {call}")
            reached = max(reached, offset + 1)
        if call.good:
            due = reached
    return found


def disorder(calls: Iterable[Call], ends: dict[int, int], *, again: bool = False) -> list[str]:
    """What is wrong with the successes: each queue's must be 0, 1, ... to its end, without a gap.

    `again` allows a queue to go back, as it does after a kill: from there on it must be in order.
    """
    found = []
    calls = list(calls)
    for queue, end in ends.items():
        reached = 0
        ordered = sorted((c for c in calls if c.queue == queue and c.good), key=lambda c: c.begun)
        for call in ordered:
            for offset in call.offsets:
                if offset > reached or (offset < reached and not again):
                    found.append(f"queue {queue}: offset {offset} where {reached} was due: {call}")
                reached = offset + 1
        if reached != end:
            found.append(f"queue {queue} ended at {reached}, not {end}")
    return found


def steps(calls: Iterable[Call], ends: dict[int, int]) -> list[str]:
    """As `disorder`, for members of which one may begin with what the one before had done already.

    Within a member's turn at a queue each offset follows the one before; where the member changes
    a queue may go back, as far as the commit was behind, and never forward.
    """
    found = []
    for queue, end in ends.items():
        member, due, most = "", 0, 0
        ordered = sorted((c for c in calls if c.queue == queue and c.good), key=lambda c: c.begun)
        for call in ordered:
            for offset in call.offsets:
                back = call.member != member and offset < due
                if offset != due and not back:
                    found.append(f"queue {queue}: offset {offset} where {due} was due: {call}")
                member, due = call.member, offset + 1
                most = max(most, due)
        if most != end:
            found.append(f"queue {queue} ended at {most}, not {end}")
    return found
