"""The checker of histories finds what it is for, in facts that are made up.

In a client with planted bugs: test_planted_concurrent.py, test_planted_orderly.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_fast import MessageQueue
from tests.history import History
from tests.lock_facts import Span
from tests.ordering import Call

QUEUE = MessageQueue("T", "broker-a", 0)


def made(*facts: tuple[str, Any]) -> History:
    """A history of five messages, m0 to m4, and these facts in order."""
    history = History()
    history.sent = {(QUEUE, offset): f"m{offset}".encode() for offset in range(5)}
    for kind, value in facts:
        if kind == "deliver":
            history.note_delivered((QUEUE, value), f"m{value}".encode(), 1000 + value)
        elif kind == "ack":
            history.note_acked((QUEUE, value), f"m{value}".encode())
        elif kind == "back":
            history.note_sent_back(QUEUE.broker_name, 1000 + value)
        elif kind == "commit":
            history.note_commit(QUEUE, value)
        elif kind == "start":
            history.note_start(QUEUE, value)
        elif kind == "skip":
            history.note_unwanted((QUEUE, value))
        else:
            raise ValueError(kind)
    return history


def handled(*offsets: int) -> Iterator[tuple[str, int]]:
    for offset in offsets:
        yield "deliver", offset
        yield "ack", offset


@pytest.mark.parametrize(
    "facts",
    [
        [*handled(0, 1, 2, 3, 4), ("commit", 5)],
        [*handled(4, 3, 2, 1), ("commit", 0), *handled(0), ("commit", 5)],
        [*handled(0, 1, 2), ("deliver", 3), ("back", 3), *handled(4), ("commit", 5)],
        [("start", 2), *handled(2, 3, 4), ("commit", 2), ("commit", 5), ("commit", 5)],
        [("skip", 1), *handled(0, 2, 3, 4), ("commit", 3), ("commit", 5)],
    ],
    ids=["plain", "any order", "sent back", "later start", "filtered"],
)
def test_right_histories_pass(facts: list[tuple[str, Any]]) -> None:
    made(*facts).check()


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ([*handled(0, 1, 2, 4), ("commit", 3)], "offset 3 was lost"),
        ([*handled(0, 1, 3, 4), ("deliver", 2), ("commit", 5)], "passed unfinished [2]"),
        ([("deliver", 0), ("commit", 1), ("ack", 0)], "passed unfinished [0]"),
        ([*handled(0, 1), ("commit", 2), ("commit", 1)], "went back from 2 to 1"),
        ([("start", 3), ("commit", 0)], "went back from 3 to 0"),
        ([("commit", -1)], "commit of -1"),
        ([*handled(0, 1, 2, 3, 4, 4), ("commit", 5)], "1 duplicates"),
        ([("deliver", 0), ("back", 4), ("commit", 1)], "passed unfinished [0]"),
    ],
    ids=["lost", "maximum", "before ack", "back", "zero", "negative", "duplicate", "other back"],
)
def test_wrong_histories_fail(facts: list[tuple[str, Any]], text: str) -> None:
    assert text in "\n".join(made(*facts).violations())


def test_wrong_bodies_fail() -> None:
    history = made(*handled(0, 1, 2, 3, 4))
    history.note_delivered((QUEUE, 2), b"other", 1002)
    history.note_delivered((QUEUE, 9), b"never sent", 1009)
    text = "\n".join(history.violations(duplicates=9))
    assert "offset 2 has another body" in text
    assert "offset 9 was never sent" in text


def test_an_empty_history_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="nothing was sent"):
        History().check()
    with pytest.raises(AssertionError, match="no commit was seen"):
        made(*handled(0, 1, 2, 3, 4)).check()


@pytest.mark.parametrize("moved", [False, True])
def test_while_nobody_comes_or_goes(moved: bool) -> None:
    """Only the owner commits and nothing comes again, unless the queue changes hands after all."""
    history = made(*handled(0, 1, 2, 3, 4))
    history.note_steady({QUEUE: "A"})
    history.note_commit(QUEUE, 5, "A")
    if moved:
        history.note_owner("B", QUEUE, 4)
    history.note_delivered((QUEUE, 4), b"m4", 1004)
    history.note_commit(QUEUE, 5, "B")
    found = "\n".join(history.violations(duplicates=1))
    assert ("commit of 5 by B, but A has it" in found) is not moved
    assert ("offset 4 came again though nobody came or went" in found) is not moved
    assert not moved or not found


def test_orderly_calls() -> None:
    """One at a time, and no offset passed over but those that the broker took."""

    def call(offset: int, begun: int, ended: int, *, good: bool = True) -> Call:
        return Call("A", 0, (offset,), (0,), begun, ended, good)

    history = made(*handled(0, 1, 2, 3, 4))
    for one in (call(0, 1, 2), call(1, 3, 4, good=False), call(1, 5, 6), call(2, 7, 8)):
        history.note_call(QUEUE, one)
    assert not history.violations()
    history.note_call(QUEUE, call(4, 9, 10))
    assert "offset 4 where 3 was due" in "\n".join(history.violations())
    history.note_copied(b"m3")  # a dead letter
    assert not history.violations()
    history.note_call(QUEUE, call(4, 9, 11))
    assert "two calls at a time" in "\n".join(history.violations())


@pytest.mark.parametrize(
    ("facts", "excused"),
    [
        ([], False),
        ([("forgot", 30, 35)], True),
        ([("forgot", 30, 35), ("cut off", 41)], True),
        ([("forgot", 30, 35), ("cut off", 38)], True),  # it had looked just before
        ([("forgot", 30, 35), ("cut off", 36), ("call", 37, 38)], False),
        ([("forgot", 30, 35), ("refused", 36), ("call", 37, 38)], False),
        ([("forgot", 30, 35), ("locked", 36, 37)], False),
        ([("forgot", 60, 65)], False),
        ([("another forgot", 30, 35)], False),
        ([("kept", 45)], True),
        ([("kept", 60)], False),
        ([("kept", 45), ("trusted", 29)], True),
        ([("kept", 45), ("trusted", 10), ("call", 37, 38)], False),
    ],
)  # fmt: skip
def test_two_calls_at_a_time_are_excused_by_nothing_but_a_lost_lock(
    facts: list[tuple[Any, ...]], excused: bool
) -> None:
    """A has the lock since 10 and a call from 40 to 60; B gets the lock at 50, and calls at 55."""
    history = made(*handled(0, 1, 2, 3, 4))
    history.note_locks("A", (QUEUE,), (QUEUE,), (9, 10))
    history.note_locks("B", (QUEUE,), (), (39, 40))
    history.note_locks("B", (QUEUE,), (QUEUE,), (49, 50))
    for member, begun, ended in (("A", 40, 60), ("B", 55, 58)):
        history.note_call(QUEUE, Call(member, 0, (0,), (0,), begun, ended, True))
    for kind, *times in facts:
        if kind == "call":
            history.note_call(QUEUE, Call("A", 0, (0,), (0,), times[0], times[1], True))
        elif kind == "cut off":
            history.note_cut_off("A", QUEUE.broker_name, times[0])
        elif kind in ("locked", "refused"):
            held = (QUEUE,) if kind == "locked" else ()
            history.note_locks("A", (QUEUE,), held, (times[0], times[-1]))
        elif kind == "kept":
            history.locks.kept_ns = times[0] - 10
        elif kind == "trusted":
            history.locks.trusted_ns = times[0]
        else:
            name = QUEUE.broker_name if kind == "forgot" else "broker-b"
            history.locks.note_forgot(name, Span(*times))
    found = "\n".join(history.violations())
    assert ("two calls at a time" in found) is not excused
