"""What was sent, delivered, acknowledged and committed, in order; and whether that was right.

Facts are noted at the moment they hold: an acknowledgement just before the listener returns, a
commit and a send-back when they pass the proxy. So a right consumer can never look wrong.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rocketmq_fast import MessageExt, MessageQueue, SendResult
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.protocol.codes import PullSysFlag, RequestCode
from tests.consuming import SUCCESS, Answer
from tests.proxy import Frame, ProxiedCluster

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
    steps: int = 0
    # By broker and position in its commit log.
    _places: dict[tuple[str, int], Place] = field(default_factory=dict)
    # Of each commit, whose it is: a member's time as the owner of the queue.
    _tenures: list[tuple[str, int]] = field(default_factory=list)
    _tenure_of: dict[tuple[str, MessageQueue], int] = field(default_factory=dict)
    _begun_at: dict[tuple[str, int, MessageQueue], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # -------------------------------------------------------------------------------- facts

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

    def note_acked(self, place: Place, body: bytes) -> None:
        """The listener is about to return success for a message."""
        with self._lock:
            self.steps += 1
            self.acked.add(body)
            self.done.setdefault(place, self.steps)

    def note_sent_back(self, broker_name: str, log_offset: int) -> None:
        """The broker took a message back."""
        with self._lock:
            self.steps += 1
            place = self._places.get((broker_name, log_offset))
            if place is not None:
                self.done.setdefault(place, self.steps)

    def note_copied(self, body: bytes) -> None:
        """The broker has a copy in the retry topic, which a member sent itself."""
        with self._lock:
            self.steps += 1
            for place in [place for place, delivered, _ in self.deliveries if delivered == body]:
                self.done.setdefault(place, self.steps)

    def note_owner(self, member: str, queue: MessageQueue, offset: int | None) -> None:
        """A member asked where to go on in a queue, and was told this offset, or none."""
        with self._lock:
            number = self._tenure_of.get((member, queue), 0) + 1
            self._tenure_of[member, queue] = number
            if offset is not None:
                self._begun_at[member, number, queue] = offset

    def note_commit(self, queue: MessageQueue, offset: int, member: str = "") -> None:
        """An offset went to the broker."""
        with self._lock:
            self.steps += 1
            self.commits.append((self.steps, queue, offset))
            self._tenures.append((member, self._tenure_of.get((member, queue), 0)))

    # ------------------------------------------------------------------------------- verdict

    def unacked(self) -> list[Place]:
        """Sent and wanted, and no listener call succeeded with that body (a retry counts)."""
        return sorted(
            place
            for place, body in self.sent.items()
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
        """Places that were delivered more than once, with how often more."""
        counts = Counter(place for place, _, _ in self.deliveries)
        return {place: count - 1 for place, count in counts.items() if count > 1}

    def _below(self, place: Place) -> bool:
        return place[1] < self.starts.get(place[0], 0)

    def _bad_bodies(self) -> list[str]:
        known = self.doubtful.union(self.sent.values())
        found = []
        for place, body, _ in self.deliveries:
            wanted = self.sent.get(place)
            if wanted is not None and wanted != body:
                found.append(f"{place[0]} offset {place[1]} has another body than was sent")
            elif body not in known:
                found.append(f"{place[0]} offset {place[1]} was never sent")
        return found

    def _bad_commits(self) -> list[str]:
        found = []
        last: dict[tuple[MessageQueue, tuple[str, int]], int] = {}
        for (step, queue, offset), tenure in zip(self.commits, self._tenures, strict=True):
            if offset < 0:
                found.append(f"{queue}: commit of {offset}")
                continue
            begun = self._begun_at.get((*tenure, queue), self.starts.get(queue))
            before = last.get((queue, tenure), begun)
            if before is not None and offset < before:
                found.append(f"{queue}: commit went back from {before} to {offset}")
            last[queue, tenure] = offset
            passed = [
                place[1]
                for place in self.sent
                if place[0] == queue
                and place[1] < offset
                and not self._below(place)
                and place not in self.unwanted
                and self.done.get(place, step) >= step
            ]
            if passed:
                found.append(f"{queue}: commit of {offset} passed unfinished {sorted(passed)[:5]}")
        return found

    def violations(self, *, duplicates: int = 0) -> list[str]:
        """Everything that is wrong; `duplicates` more deliveries than messages are allowed."""
        found = [f"{queue} offset {offset} was lost" for queue, offset in self.lost()]
        found += self._bad_bodies()
        found += self._bad_commits()
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

        def listen(messages: list[MessageExt], context: ConsumeContext) -> object:
            places = [(context.message_queue, message.queue_offset) for message in messages]
            for place, message in zip(places, messages, strict=True):
                self.note_delivered(place, message.body, message.commit_log_offset)
            status = SUCCESS if answer is None else answer(messages, context)
            if status is SUCCESS:
                acked = list(zip(places, messages, strict=True))[: context.ack_index + 1]
                for place, message in acked:
                    self.note_acked(place, message.body)
            return status

        return listen

    def watch(self, cluster: ProxiedCluster, group: str, broker_name: str) -> None:
        """Note the commits and send-backs of a group that pass the broker's proxy."""

        def on_request(frame: Frame) -> None:
            fields = frame.command.ext_fields
            if fields.get("consumerGroup") != group:
                return
            pulls = frame.code == RequestCode.PULL_MESSAGE
            if frame.code == RequestCode.UPDATE_CONSUMER_OFFSET or (
                pulls and int(fields["sysFlag"]) & PullSysFlag.COMMIT_OFFSET
            ):
                queue = MessageQueue(fields["topic"], broker_name, int(fields["queueId"]))
                self.note_commit(queue, int(fields["commitOffset"]))

        def on_answer(frame: Frame) -> None:
            if (
                frame.request is not None
                and frame.code == RequestCode.CONSUMER_SEND_MSG_BACK
                and frame.command.code == 0
                and frame.request.ext_fields["group"] == group
            ):
                self.note_sent_back(broker_name, int(frame.request.ext_fields["offset"]))

        cluster.broker.on_request = on_request
        cluster.broker.on_answer = on_answer
