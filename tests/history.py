"""What was sent, delivered, acknowledged and committed, in order; and whether that was right.

Facts are noted at the moment they hold: an acknowledgement just before the listener returns, a
commit and a send-back when they pass. So a right consumer can never look wrong. tests/witness.py
has the places where they are noted.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rocketmq_fast import MessageQueue, SendResult
from tests import witness
from tests.consuming import Answer
from tests.lock_facts import LockFacts, Span
from tests.ordering import Call, due_order, overlapping
from tests.proxy import ProxiedCluster

Place = tuple[MessageQueue, int]


@dataclass(slots=True)
class History:
    """Facts about one group, noted from any thread."""

    sent: dict[Place, bytes] = field(default_factory=dict)
    doubtful: set[bytes] = field(default_factory=set)  # sent, and nobody said what became of it
    unwanted: set[Place] = field(default_factory=set)  # filtered, or skipped by a policy
    deliveries: list[tuple[Place, bytes, int]] = field(default_factory=list)
    done: dict[Place, int] = field(default_factory=dict)  # at which step
    acked: set[bytes] = field(default_factory=set)
    commits: list[tuple[int, MessageQueue, int]] = field(default_factory=list)
    starts: dict[MessageQueue, int] = field(default_factory=dict)
    calls: dict[MessageQueue, list[Call]] = field(default_factory=dict)  # of orderly listeners
    locks: LockFacts = field(default_factory=LockFacts)
    steps: int = 0
    # By broker and position in its commit log.
    _places: dict[tuple[str, int], Place] = field(default_factory=dict)
    # Of each commit, whose it is: a member's time as the owner of the queue.
    _tenures: list[tuple[str, int]] = field(default_factory=list)
    _tenure_of: dict[tuple[str, MessageQueue], int] = field(default_factory=dict)
    _begun_at: dict[tuple[str, int, MessageQueue], int] = field(default_factory=dict)
    # Places whose last delivery ended, and those of them where it may come again.
    _over: set[Place] = field(default_factory=set)
    _again: set[Place] = field(default_factory=set)
    _repeats: Counter[Place] = field(default_factory=Counter)
    _calm_repeats: list[Place] = field(default_factory=list)
    _moved: set[Place] = field(default_factory=set)  # to the retry or dead-letter topic
    _resets: dict[MessageQueue, list[tuple[int, int]]] = field(default_factory=dict)
    # From which step to which other a place was done, until a reset undid that.
    _undone: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)
    # Who owned what from which step on, while nobody came or went; None: that time was over.
    _steady: list[tuple[int, Mapping[MessageQueue, str] | None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # -------------------------------------------------------------------------------- facts

    def note(self, kind: str, *values: object) -> None:
        """Note a fact by the name of its kind, as witnesses do that may stand in other processes.

        Kinds are the methods below: "delivered" for `note_delivered`.
        """
        getattr(self, f"note_{kind}")(*values)

    def note_sent(self, results: Iterable[SendResult], bodies: Iterable[bytes]) -> None:
        """Messages that the broker stored."""
        with self._lock:
            for result, body in zip(results, bodies, strict=True):
                self.sent[result.message_queue, result.queue_offset] = body

    def note_doubtful(self, bodies: Iterable[bytes]) -> None:
        """Messages that the broker may have stored, or not."""
        with self._lock:
            self.doubtful.update(bodies)

    def note_start(self, queue: MessageQueue, offset: int) -> None:
        """What was committed before, so that nothing below is expected."""
        self.starts[queue] = offset

    def note_unwanted(self, place: Place) -> None:
        """A message that need not be delivered: filtered, or skipped by a policy of the user."""
        with self._lock:
            self.unwanted.add(place)

    def note_delivered(self, place: Place, body: bytes, log_offset: int) -> None:
        """The listener is about to see a message."""
        with self._lock:
            self.steps += 1
            self.deliveries.append((place, body, log_offset))
            self._places[place[0].broker_name, log_offset] = place
            if place in self._over and place not in self._again:
                self._repeats[place] += 1
                if self._steady and self._steady[-1][1] is not None:
                    self._calm_repeats.append(place)
            self._over.add(place)
            self._again.discard(place)

    def note_acked(self, place: Place, body: bytes) -> None:
        """The listener is about to return success for a message."""
        with self._lock:
            self.steps += 1
            if place not in self._again:  # else a reset came meanwhile: this call is void
                self.acked.add(body)
                self.done.setdefault(place, self.steps)

    def note_refused(self, place: Place) -> None:
        """The listener is about to refuse a message, or to give up what it did: it may come again.

        As after a rollback, for a message whose call had succeeded.
        """
        with self._lock:
            self.steps += 1
            self._again.add(place)

    def note_sent_back(self, broker_name: str, log_offset: int) -> None:
        """The broker took a message back."""
        with self._lock:
            self.steps += 1
            place = self._places.get((broker_name, log_offset))
            if place is not None:
                self._settle(place)

    def note_copied(self, body: bytes) -> None:
        """The broker has a copy in the retry or dead-letter topic, which a member sent itself."""
        with self._lock:
            self.steps += 1
            for place in [place for place, delivered, _ in self.deliveries if delivered == body]:
                self._settle(place)

    def _settle(self, place: Place) -> None:
        """The broker has a message for another time: its place is done."""
        self.done.setdefault(place, self.steps)
        self._moved.add(place)
        self._again.discard(place)

    def note_owner(self, member: str, queue: MessageQueue, offset: int | None) -> None:
        """A member asked where to go on in a queue, and was told this offset, or none."""
        with self._lock:
            number = self._tenure_of.get((member, queue), 0) + 1
            self._tenure_of[member, queue] = number
            if offset is not None:
                self._begun_at[member, number, queue] = offset
            owners = self._steady[-1][1] if self._steady else None
            if owners is not None and owners.get(queue, member) != member:
                # Queues change hands after all, as where brokers differ about who is a member.
                self.steps += 1
                self._steady.append((self.steps, None))

    def note_commit(self, queue: MessageQueue, offset: int, member: str = "") -> None:
        """An offset went to the broker."""
        with self._lock:
            self.steps += 1
            self.commits.append((self.steps, queue, offset))
            self._tenures.append((member, self._tenure_of.get((member, queue), 0)))

    def note_reset(self, queue: MessageQueue, offset: int) -> None:
        """The group was told to go on at an offset: what is done from there on is to be done anew.

        Calls that run meanwhile count for nothing.
        """
        with self._lock:
            self.steps += 1
            self._resets.setdefault(queue, []).append((self.steps, offset))
            behind = {place for place in self._over if place[0] == queue and place[1] >= offset}
            self._again |= behind
            for place in behind & self.done.keys():
                self._undone.setdefault(place, []).append((self.done.pop(place), self.steps))

    def note_steady(self, owners: Mapping[MessageQueue, str] | None) -> None:
        """From here on nobody comes or goes: only the owners commit, nothing comes again.

        None: until here.
        """
        with self._lock:
            self.steps += 1
            self._steady.append((self.steps, owners))

    def note_call(self, queue: MessageQueue, call: Call) -> None:
        """A call of an orderly listener, when it has ended."""
        with self._lock:
            self.calls.setdefault(queue, []).append(call)

    def note_locks(
        self, member: str, asked: Sequence[MessageQueue], held: Sequence[MessageQueue],
        times: tuple[int, int],
    ) -> None:  # fmt: skip
        """A member asked for locks, when that left and when the answer came, and has these now."""
        with self._lock:
            self.locks.note_answer(member, asked, held, Span(*times))

    def note_cut_off(self, member: str, broker_name: str, at: int) -> None:
        """A pull of a member ended with its connection."""
        with self._lock:
            self.locks.note_cut_off(member, broker_name, at)

    # ------------------------------------------------------------------------------- verdict

    def told(self) -> list[tuple[MessageQueue, int, str]]:
        """The commits in order: queue, offset, member."""
        return [
            (queue, offset, member)
            for (_, queue, offset), (member, _) in zip(self.commits, self._tenures, strict=True)
        ]

    def unacked(self) -> list[Place]:
        """Sent and wanted, and no listener call succeeded with that body (a retry counts)."""
        return sorted(
            place
            for place, body in list(self.sent.items())
            if body not in self.acked and place not in self.unwanted and not self._below(place)
        )

    def lost(self) -> list[Place]:
        """Sent and wanted, but no delivery of that body anywhere (a retry counts)."""
        delivered = {body for _, body, _ in self.deliveries}
        return sorted(
            place
            for place, body in self.sent.items()
            if body not in delivered and place not in self.unwanted and not self._below(place)
        )

    def duplicates(self) -> dict[Place, int]:
        """Places that were delivered again, and how often, though nobody had refused them."""
        return dict(self._repeats)

    def _below(self, place: Place) -> bool:
        return place[1] < self.starts.get(place[0], 0)

    def _bad_bodies(self) -> list[str]:
        known = self.doubtful.union(self.sent.values())
        found = []
        first: dict[Place, bytes] = {}
        for place, body, _ in self.deliveries:
            wanted = self.sent.get(place)
            if wanted is not None and wanted != body:
                found.append(f"{place[0]} offset {place[1]} has another body than was sent")
            elif body not in known:
                found.append(f"{place[0]} offset {place[1]} was never sent")
            elif first.setdefault(place, body) != body:
                found.append(f"{place[0]} offset {place[1]} came with two bodies")
        return found

    def _bad_commits(self) -> list[str]:
        found = []
        last: dict[tuple[MessageQueue, tuple[str, int]], int] = {}
        places: dict[MessageQueue, list[Place]] = {}
        for place in self.sent:
            if not self._below(place) and place not in self.unwanted:
                places.setdefault(place[0], []).append(place)
        for (step, queue, offset), tenure in zip(self.commits, self._tenures, strict=True):
            if offset < 0:
                found.append(f"{queue}: commit of {offset}")
                continue
            begun = self._begun_at.get((*tenure, queue), self.starts.get(queue))
            before = last.get((queue, tenure), begun)
            reset = self._reset_before(queue, step)
            if before is not None and offset < before and (reset is None or offset < reset):
                found.append(f"{queue}: commit went back from {before} to {offset}")
            last[queue, tenure] = offset
            owner = self._owner_at(queue, step)
            if owner is not None and owner != tenure[0]:
                found.append(f"{queue}: commit of {offset} by {tenure[0]}, but {owner} has it")
            passed = [
                place[1]
                for place in places.get(queue, ())
                if place[1] < offset
                and not self._was_done(place, step)
                and (reset is None or place[1] >= reset)
            ]
            if passed:
                found.append(f"{queue}: commit of {offset} passed unfinished {sorted(passed)[:5]}")
        return found

    def _was_done(self, place: Place, step: int) -> bool:
        return self.done.get(place, step) < step or any(
            begun < step < ended for begun, ended in self._undone.get(place, ())
        )

    def _reset_before(self, queue: MessageQueue, step: int) -> int | None:
        """The offset of the last reset of a queue before a step."""
        resets = self._resets.get(queue, [])
        index = bisect_right(resets, (step, -1))
        return resets[index - 1][1] if index else None

    def _owner_at(self, queue: MessageQueue, step: int) -> str | None:
        """Who alone may commit at a step; None when that is not certain."""
        owners = [owners for begun, owners in self._steady if begun < step]
        return owners[-1].get(queue) if owners and owners[-1] is not None else None

    def _bad_order(self) -> list[str]:
        found = []
        for queue, calls in self.calls.items():
            found += [
                f"{queue}: two calls at a time: {one} and {other}"
                for one, other in overlapping(calls)
                if not self.locks.excuse(queue, calls, one, other)
            ]
            moved = {offset for place_queue, offset in self._moved if place_queue == queue}
            start = self.starts.get(queue, 0)
            found += [f"{queue}: {text}" for text in due_order(calls, start, moved)]
        return found

    def violations(self, *, duplicates: int = 0) -> list[str]:
        """Everything that is wrong; `duplicates` more deliveries than messages are allowed."""
        found = [f"{queue} offset {offset} was lost" for queue, offset in self.lost()]
        found += self._bad_bodies()
        found += self._bad_commits()
        found += self._bad_order()
        found += [
            f"{queue} offset {offset} came again though nobody came or went"
            for queue, offset in self._calm_repeats
        ]
        extra = sum(self.duplicates().values())
        if extra > duplicates:
            found.append(f"{extra} duplicates, {duplicates} allowed: {self.duplicates()}")
        return found

    def check(self, *, duplicates: int = 0) -> None:
        """Fail with all violations. An empty history proves nothing, so it fails too."""
        assert self.sent, "nothing was sent"
        assert self.commits, "no commit was seen"
        found = self.violations(duplicates=duplicates)
        assert not found, "\n".join(found)

    # ------------------------------------------------------------------------------ watching

    def listener(self, answer: Answer | None = None) -> Answer:
        """A listener that notes; `answer` decides as in Recorder."""
        return witness.listener(self.note, answer)

    def watch(
        self, cluster: ProxiedCluster, group: str, broker_name: str, member: str = ""
    ) -> None:
        """Note the commits and send-backs of a group that pass the broker's proxy."""
        cluster.broker.on_request, cluster.broker.on_answer = witness.hooks(
            self.note, group, broker_name, member
        )
