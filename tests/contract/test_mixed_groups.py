"""Groups with members of ours and of the Java client: one owner per queue, and the same order."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import TestBroker
from tests.consuming import bodies
from tests.member import Member, java_member, member
from tests.ordering import Call, overlaps, steps, written
from tests.require import require
from tests.waiting import wait_for

SOON: dict[str, Any] = {"persist_consumer_offset_interval": 100}
JAVA_SOON: dict[str, Any] = {"persist": 100}
# A JVM starts, or members of two kinds agree, on a machine that does other things too.
PATIENCE = 90.0


@pytest.fixture(autouse=True)
def _java() -> None:
    require("java")


def average(queues: int, members: int) -> list[set[int]]:
    """The queues of each member in the order of their client ids."""
    parts, first = [], 0
    for index in range(members):
        count = queues // members + (index < queues % members)
        parts.append(set(range(first, first + count)))
        first += count
    return parts


def wait_settled(broker: TestBroker, group: str, topic: str, queues: int, members: int) -> None:
    """Wait until the broker knows so many members, and each holds what is its own and no more."""

    def parts() -> list[set[int]]:
        return [broker.held_by(group, client, topic) for client in sorted(broker.members(group))]

    wait_for(
        lambda: parts() == average(queues, members),
        lambda: f"{members} members with their part each: {broker.members(group)} {parts()}",
        PATIENCE,
    )


def delivered(calls: Sequence[Call]) -> Counter[tuple[int, int]]:
    """How often each (queue, offset) succeeded."""
    return Counter((c.queue, offset) for c in calls if c.good for offset in c.offsets)


def seen(folder: Path, names: Sequence[str]) -> list[Call]:
    """Calls of the members that have begun to write."""
    return written(folder, [name for name in names if (folder / f"{name}.log").exists()])


def test_members_of_both_kinds_join_and_leave(broker: TestBroker, tmp_path: Path) -> None:
    topic, group, queues = broker.topic(6), broker.group(), 6
    where = (broker.namesrv_addr, group, topic)
    names = ("A", "B", "J")
    sent = 0

    def settled(members: int) -> None:
        """With nobody coming or going each message comes once, whoever has its queue."""
        nonlocal sent
        wait_settled(broker, group, topic, queues, members)
        broker.send(topic, bodies(60, f"{sent}_"), queues=range(queues))
        sent += 60
        wait_for(
            lambda: len(delivered(seen(tmp_path, names))) == sent,
            lambda: f"{sent} messages, {members} members: {len(delivered(seen(tmp_path, names)))}",
        )
        # The next owner begins at what is committed, not at what the last one has in hand.
        ends = dict.fromkeys(range(queues), sent // queues)
        wait_for(lambda: broker.committed(group, topic) == ends, "the commits", PATIENCE)

    with contextlib.ExitStack() as stack:

        def join(name: str) -> Member:
            if name in "AB":
                return stack.enter_context(member(tmp_path, name, *where, **SOON))
            return stack.enter_context(java_member(tmp_path, name, *where, **JAVA_SOON))

        first = join("A")
        settled(1)
        java = join("J")
        settled(2)
        second = join("B")
        settled(3)
        assert first.terminate() == 0, first.said()
        settled(2)
        assert second.terminate() == 0, second.said()
        settled(1)  # Java alone
        again = join("A")
        settled(2)
        java.terminate()
        settled(1)
        assert again.terminate() == 0, again.said()
    calls = written(tmp_path, names)
    assert {call.member for call in calls} == set(names)
    assert set(delivered(calls).values()) == {1}
    assert len(delivered(calls)) == sent


def test_orderly_members_of_both_kinds_keep_the_order(broker: TestBroker, tmp_path: Path) -> None:
    topic, group, queues = broker.topic(4), broker.group(), 4
    where = (broker.namesrv_addr, group, topic)
    names = ("A", "J", "B")
    options: dict[str, Any] = {"orderly": True, "pause": 0.002}
    sent = 0

    def more(count: int = 40) -> None:
        nonlocal sent
        broker.send(topic, bodies(count, f"{sent}_"), queues=range(queues))
        sent += count

    def at_work(who: Member) -> None:
        """Send until a member gets something that was sent after its joining."""
        known = len(who.lines("E"))

        def check() -> bool:
            if len(who.lines("E")) > known:
                return True
            more(queues)
            return False

        wait_for(check, who.said, PATIENCE)

    with (
        member(tmp_path, "A", *where, **options, **SOON) as first,
        member(tmp_path, "B", *where, **options, **SOON) as second,
    ):
        for who in (first, second):
            at_work(who)
        with java_member(tmp_path, "J", *where, **options, **JAVA_SOON) as java:
            at_work(java)
            more(200)
            assert first.terminate() == 0, first.said()
            at_work(java)
            at_work(second)
            more(200)
            java.terminate()
        at_work(second)
        more(200)
        ends = dict.fromkeys(range(queues), sent // queues)
        wait_for(
            lambda: len(delivered(written(tmp_path, names))) == sent,
            lambda: f"{sent} messages: {len(delivered(written(tmp_path, names)))}",
            PATIENCE,
        )
        wait_for(lambda: broker.committed(group, topic) == ends, "the commits", PATIENCE)
        assert second.terminate() == 0, second.said()
    calls = written(tmp_path, names)
    assert not overlaps(calls)
    assert not steps(calls, ends)


def test_killed_orderly_member_of_either_kind_is_replaced_by_the_other(
    short_locks: TestBroker, tmp_path: Path
) -> None:
    broker = short_locks
    topic, group, queues = broker.topic(4), broker.group(), 4
    where = (broker.namesrv_addr, group, topic)
    options: dict[str, Any] = {"orderly": True, "pause": 0.02}
    sent = 0

    def kill(victim: Member, survivor: Member) -> None:
        """Kill a member with work in hand in all its queues; the other one gets all of it."""
        nonlocal sent
        wait_settled(broker, group, topic, queues, 2)
        known = len(victim.lines("E"))
        broker.send(topic, bodies(800, f"{sent}_"), queues=range(queues))
        sent += 800
        wait_for(lambda: len(victim.lines("E")) >= known + 20, victim.said)
        victim.kill()
        ends = dict.fromkeys(range(queues), sent // queues)
        wait_for(lambda: broker.committed(group, topic) == ends, survivor.said, PATIENCE)

    with java_member(tmp_path, "J", *where, **options, **JAVA_SOON) as java:
        wait_settled(broker, group, topic, queues, 1)
        with member(tmp_path, "A", *where, **options, **SOON) as ours:
            kill(java, ours)
            with java_member(tmp_path, "K", *where, **options, **JAVA_SOON) as last:
                kill(ours, last)
                last.terminate()
    calls = written(tmp_path, ("J", "A", "K"))
    ends = dict.fromkeys(range(queues), sent // queues)
    assert {call.member for call in calls} == {"J", "A", "K"}
    assert not overlaps(calls)
    assert not steps(calls, ends)
