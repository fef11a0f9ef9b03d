"""Which overlaps of orderly calls no client can prevent: those after a broker gave up a lock.

A broker keeps locks in its memory, for a time. A member goes on by its lock until it hears that its
connection ended or that the lock is refused, or it relies on it no more; the next owner may have a
new lock by then. All other overlaps are wrong. Times are monotonic nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rocketmq_fast import MessageQueue
from tests.ordering import Call


class Span(NamedTuple):
    """When something happened at the earliest and at the latest."""

    begun: int
    ended: int


class LockFacts:
    """Answers to requests for locks, connections that ended, and brokers that forgot.

    `kept_ns` is how long a broker keeps a lock that is not renewed, `trusted_ns` how long a member
    relies on it; without them no lock runs out.
    """

    def __init__(self) -> None:
        self.kept_ns = self.trusted_ns = 1 << 62
        self._granted: dict[tuple[str, MessageQueue], list[Span]] = defaultdict(list)
        self._refused: dict[tuple[str, MessageQueue], list[int]] = defaultdict(list)
        self._cut_off: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._forgot: dict[str, list[Span]] = defaultdict(list)

    def note_answer(
        self, member: str, asked: Sequence[MessageQueue], held: Sequence[MessageQueue], span: Span
    ) -> None:
        """A member asked for locks, and has these now."""
        for queue in asked:
            if queue in held:
                self._granted[member, queue].append(span)
            else:
                self._refused[member, queue].append(span.ended)

    def note_cut_off(self, member: str, broker_name: str, at: int) -> None:
        """A pull of the member ended with its connection: it trusts no lock of the broker."""
        self._cut_off[member, broker_name].append(at)

    def note_forgot(self, broker_name: str, span: Span) -> None:
        """The broker lost its locks."""
        self._forgot[broker_name].append(span)

    def excuse(self, queue: MessageQueue, calls: Sequence[Call], one: Call, other: Call) -> bool:
        """Whether one of two calls is by a lock that was gone, and the other by a later lock.

        `calls` are all of the queue.
        """
        return self._is_left_over(queue, calls, one, other) or self._is_left_over(
            queue, calls, other, one
        )

    def _lock_of(self, queue: MessageQueue, call: Call) -> Span | None:
        """The lock by which a call runs."""
        before = [span for span in self._granted[call.member, queue] if span.ended <= call.begun]
        return max(before, key=lambda span: span.ended, default=None)

    def _ends_of(self, queue: MessageQueue, lock: Span) -> Iterator[Span]:
        """When the broker gave up a lock that was not renewed."""
        yield Span(lock.begun + self.kept_ns, lock.ended + self.kept_ns)
        for lost in self._forgot[queue.broker_name]:
            if lock.begun <= lost.ended:
                yield lost

    def _is_left_over(
        self, queue: MessageQueue, calls: Sequence[Call], old: Call, new: Call
    ) -> bool:
        """Whether `old` is by a lock that was gone when that of `new` was given, unknown to it.

        The member may have looked at its lock just before: one call may begin after it knew.
        """
        lock, next_lock = self._lock_of(queue, old), self._lock_of(queue, new)
        if lock is None or next_lock is None:
            return False
        for lost in self._ends_of(queue, lock):
            if next_lock.ended < lost.begun:
                continue
            known = min(
                (
                    at
                    for at in (
                        *self._refused[old.member, queue],
                        *self._cut_off[old.member, queue.broker_name],
                    )
                    if at >= max(lost.begun, lock.ended)
                ),
                default=old.begun,
            )
            known = min(known, lock.ended + self.trusted_ns)
            late = [
                call
                for call in calls
                if call.member == old.member and known < call.begun <= old.begun
            ]
            if len(late) <= 1:
                return True
        return False
