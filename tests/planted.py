"""What tests with planted bugs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.brokers import TestBroker
from tests.consuming import bodies
from tests.history import History
from tests.witness import Witness

# Changes the client for the time of a test: a mistake that somebody could make.
Plant = Callable[[pytest.MonkeyPatch], None]


class Stage(NamedTuple):
    """Where a scenario takes place: its messages are there, and noted."""

    topic: str
    group: str
    history: History


def stage(
    broker: TestBroker, patch: pytest.MonkeyPatch, plant: Plant | None, count: int,
    *, queues: int = 1, size: int = 0,
) -> Stage:  # fmt: skip
    """So many messages in a new topic, and the mistake in the client."""
    topic, group, history = broker.topic(queues), broker.group(), History()
    sent = bodies(count, size=size)
    history.note_sent(broker.send(topic, sent, queues=range(queues)), sent)
    if plant is not None:
        plant(patch)
    return Stage(topic, group, history)


def seen_by(broker: TestBroker, history: History, member: str = "A") -> Witness:
    """A hook that notes what a member of a group asks the broker."""
    return Witness(member, history.note, {broker.broker_addr: broker.broker_name})


def verdict(plant: Plant | None, history: History, text: str, *, duplicates: int = 0) -> None:
    """Nothing is wrong without a planted bug; with one it is what was meant."""
    found = "\n".join(history.violations(duplicates=duplicates))
    if plant is None:
        assert history.commits, "no commit was seen"
        assert not found, found
    else:
        assert text in found, found or "nothing was found"
