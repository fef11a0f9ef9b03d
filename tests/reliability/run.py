"""Carries a plan out and checks what came of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from unittest import mock

import rocketmq_fast as rmq
from tests.history import History
from tests.lock_facts import Span
from tests.reliability.facts import Fact
from tests.reliability.grounds import LOCK_MILLIS, Ground
from tests.reliability.members import (
    LOCK_LIFE_SECONDS,
    SHORT_LOCKS,
    ProcessMember,
    Refusals,
    consumer,
)
from tests.reliability.plan import BROKERS, MEMBERS, QUEUES, Plan, Step
from tests.waiting import wait_for

_BATCH = 20
_PAUSE = 0.02
_SEND_TIMEOUT = 1.0
_CALM_MESSAGES = 60
# A broker keeps locks in its memory.
_FORGETTING = ("stop_broker", "kill_broker", "forget_locks")


@dataclass
class Report:
    """What a round came to."""

    seed: int
    mode: str
    broker: str
    processes: bool
    sent: int = 0
    unanswered: int = 0
    deliveries: int = 0
    duplicates: int = 0
    commits: int = 0
    killed: int = 0
    paused: int = 0
    strikes: dict[str, int] = field(default_factory=dict)
    settled_seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return json.dumps(self.__dict__)


class _Member(Protocol):
    """A member on threads or in a process."""

    name: str

    def stop(self) -> list[str]:
        """A clean end; what was wrong with it."""


class ThreadMember:
    """A consumer in this process."""

    def __init__(self, name: str, started: rmq.PushConsumer) -> None:
        self.name = name
        self._consumer = started

    def stop(self) -> list[str]:
        """Shut down."""
        self._consumer.shutdown()
        return []


class Round:
    """One round: a producer, up to four members of a group, and trouble. Once."""

    def __init__(self, plan: Plan, ground: Ground, folder: Path) -> None:
        self.plan = plan
        self.history = History()
        self._ground = ground
        self._folder = folder
        self._report = Report(plan.seed, plan.mode, plan.broker, plan.processes)
        self._members: dict[str, _Member] = {}
        self._processes: list[ProcessMember] = []
        self._facts: list[Fact] = []  # of processes, not in order yet
        self._refusals = Refusals(plan.seed)
        self._number = 0
        self.history.locks.kept_ns = LOCK_MILLIS * 10**6
        self.history.locks.trusted_ns = int(LOCK_LIFE_SECONDS * 10**9)
        self._producing = threading.Event()
        self._producing.set()

    # ------------------------------------------------------------------------------- members

    def _join(self, name: str) -> None:
        if name in self._members:
            return
        ground = self._ground
        if self.plan.processes:
            made = ProcessMember(
                self.plan,
                name,
                ground.namesrv_addr,
                ground.brokers,
                self._folder / f"{name}{len(self._processes)}",
            )
            self._processes.append(made)
            self._members[name] = made
            return
        started = consumer(
            self.plan, name, ground.namesrv_addr, self.history.note, ground.brokers, self._refusals
        )
        try:
            started.start()
        except rmq.RocketMQError:
            return  # the name servers are stopped, or refuse: no member this time
        self._members[name] = ThreadMember(name, started)

    def _leave(self, name: str) -> None:
        member = self._members.pop(name, None)
        if member is not None:
            self._report.violations += member.stop()

    def _process(self, name: str) -> ProcessMember | None:
        member = self._members.get(name)
        return member if isinstance(member, ProcessMember) else None

    def _note(self, kind: str, *values: object) -> None:
        """Note a fact beside those of members."""
        if self.plan.processes:
            self._facts.append(Fact(time.monotonic_ns(), kind, values))
        else:
            self.history.note(kind, *values)

    def _read_facts(self) -> None:
        for member in self._processes:
            for fact in member.facts.new():
                self._facts.append(fact)
                if fact.kind == "acked":
                    self.history.acked.add(fact.values[1])

    # ------------------------------------------------------------------------------ producer

    def _produce(self) -> None:
        try:
            with rmq.Producer(
                "troubled",
                namesrv_addr=self._ground.namesrv_addr,
                poll_name_server_interval=300,
            ) as producer:
                while self._producing.is_set():
                    self._send(producer, _BATCH)
                    time.sleep(_PAUSE)
        except BaseException as error:  # noqa: BLE001 - told at the end of the round
            self._report.violations.append(f"the producer ended: {error!r}")

    def _send(self, producer: rmq.Producer, count: int) -> None:
        for _ in range(count):
            body = b"%d" % self._number
            self._number += 1
            message = rmq.Message(self.plan.topic, body)
            try:
                result = producer.send(message, timeout=_SEND_TIMEOUT)
            except rmq.RocketMQError:
                self.history.note_doubtful([body])
            else:
                self.history.note_sent([result], [body])

    # ----------------------------------------------------------------------------------- run

    def _carry_out(self, step: Step) -> None:
        name = step.values.get("member", "")
        process = self._process(name)
        if step.action == "toggle":
            if name in self._members:
                self._leave(name)
            else:
                self._join(name)
        elif step.action == "join_member":
            self._join(name)
        elif step.action == "kill_member":
            if process is not None:
                self._report.killed += 1
                process.resume()
                process.kill()
                del self._members[name]
        elif step.action == "pause_member":
            if process is not None:
                self._report.paused += 1
                process.pause()
        elif step.action == "resume_member":
            if process is not None:
                process.resume()
        else:
            begun = time.monotonic_ns()
            self._ground.act(step)
            if step.action in _FORGETTING:
                self._note_forgot(step, Span(begun, time.monotonic_ns()))

    def _note_forgot(self, step: Step, span: Span) -> None:
        """A broker has lost its locks, or all have."""
        names = list(dict.fromkeys(self._ground.brokers.values()))
        number = step.values.get("number")
        for name in names if number is None else [names[number]]:
            self.history.locks.note_forgot(name, span)

    @contextmanager
    def _started(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, value in SHORT_LOCKS.items():
                stack.enter_context(mock.patch(name, value))
            self._ground.open_topic(self.plan.topic, self.plan.group)
            stack.callback(self._end)
            for name in MEMBERS[:2]:
                self._join(name)
            producing = threading.Thread(target=self._produce, name="producing")
            producing.start()
            stack.callback(producing.join, 60)
            stack.callback(self._producing.clear)
            yield
            self._ground.calm()
            self._producing.clear()
            producing.join(60)
            self._settle()

    def _end(self) -> None:
        for name in list(self._members):
            self._leave(name)
        for process in self._processes:
            process.kill()

    def run(self) -> Report:
        """Carry the plan out; what is wrong stands in the report."""
        with self._started():
            begun = time.monotonic()
            for step in self.plan.steps:
                time.sleep(max(0.0, begun + step.at - time.monotonic()))
                self._carry_out(step)
        self._judge()
        return self._report

    # -------------------------------------------------------------------------------- settle

    def _settle(self) -> None:
        """Wait until all is consumed and each queue has one owner; then a time of calm."""
        over = time.monotonic()
        for process in self._processes:
            if self._members.get(process.name) is process:
                process.resume()
        if not self._wait_settled("after the last fault"):
            return
        self._report.settled_seconds = round(time.monotonic() - over, 2)
        owners = self._wait_owners()
        if owners is None:
            return
        self._note("steady", owners)
        with rmq.Producer("troubled", namesrv_addr=self._ground.namesrv_addr) as producer:
            self._send(producer, _CALM_MESSAGES)
        self._wait_settled("after all was calm")
        self._note("steady", None)

    def _wait_settled(self, when: str) -> bool:
        ground, plan = self._ground, self.plan

        def settled() -> bool:
            self._read_facts()
            return not self.history.unacked() and (
                ground.committed(plan.topic, plan.group) == ground.count(plan.topic)
            )

        try:
            wait_for(settled, "the end", ground.settle_seconds)
        except AssertionError:
            unacked = self.history.unacked()
            self._report.violations.append(
                f"not over {ground.settle_seconds:.0f} s {when}: {len(unacked)} messages are not "
                f"consumed, as {unacked[:3]}; committed {ground.committed(plan.topic, plan.group)} "
                f"of {ground.count(plan.topic)}; held {ground.holders(plan.topic, plan.group)}; "
                f"last commits {self._last_commits()}"
            )
            self._report.violations += [
                process.process.said()
                for process in self._processes
                if self._members.get(process.name) is process
            ]
            return False
        return True

    def _last_commits(self) -> dict[str, list[tuple[str, int]]]:
        """Of each queue the last members that committed, and what."""
        commits: dict[str, list[tuple[str, int]]] = {}
        noted = [
            fact.values
            for fact in sorted(self._facts, key=lambda fact: fact.at)
            if fact.kind == "commit"
        ]
        for queue, offset, member in noted or self.history.told():
            commits.setdefault(str(queue), []).append((member, offset))
        return {queue: last[-4:] for queue, last in sorted(commits.items())}

    def _wait_owners(self) -> Mapping[rmq.MessageQueue, str] | None:
        found: dict[rmq.MessageQueue, list[str]] = {}

        def owned() -> bool:
            nonlocal found
            found = self._ground.holders(self.plan.topic, self.plan.group)
            return len(found) == BROKERS * QUEUES and all(len(who) == 1 for who in found.values())

        try:
            wait_for(owned, "owners", self._ground.settle_seconds)
        except AssertionError:
            self._report.violations.append(f"not one owner for each queue: {found}")
            return None
        return {queue: who[0] for queue, who in found.items()}

    # --------------------------------------------------------------------------------- judge

    def _judge(self) -> None:
        history, report = self.history, self._report
        self._read_facts()
        for fact in sorted(self._facts, key=lambda fact: fact.at):
            history.note(fact.kind, *fact.values)
        report.sent = len(history.sent)
        report.unanswered = len(history.doubtful)
        report.deliveries = len(history.deliveries)
        report.duplicates = sum(history.duplicates().values())
        report.commits = len(history.commits)
        report.strikes = self._ground.strikes()
        # Members die with their brokers' memory of offsets here, so duplicates are counted; those
        # of the calm time are wrong.
        report.violations += history.violations(duplicates=report.duplicates)
        if not history.sent or not history.commits:
            report.violations.append("nothing was sent, or nothing committed")
