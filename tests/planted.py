"""What tests with planted bugs share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.brokers import TestBroker
from tests.history import History
from tests.witness import Witness

# Changes the client for the time of a test: a mistake that somebody could make.
Plant = Callable[[pytest.MonkeyPatch], None]


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
