"""What happens in a round, drawn from its seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BROKERS, NAME_SERVERS, QUEUES = 2, 2, 3
MEMBERS = ("A", "B", "C")
ORDERLY, CONCURRENT = "orderly", "concurrent"

_SYSTEM_ERROR, _BUSY = 1, 2
# What may be refused, delayed or cut: whoever asks for it asks again by itself.
_ASKED = (
    "PULL_MESSAGE",
    "SEND_MESSAGE_V2",
    "SEND_BATCH_MESSAGE",
    "UPDATE_CONSUMER_OFFSET",
    "QUERY_CONSUMER_OFFSET",
    "HEART_BEAT",
    "GET_CONSUMER_LIST_BY_GROUP",
    "GET_ROUTEINFO_BY_TOPIC",
    "LOCK_BATCH_MQ",
    "CONSUMER_SEND_MSG_BACK",
)
# A pull that is not answered holds its queue up for half a minute: long rounds alone have it.
_PULL = "PULL_MESSAGE"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, so many seconds after the start."""

    at: float
    action: str
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"{self.at:5.2f} s {self.action}({values})"


@dataclass(frozen=True, slots=True)
class Plan:
    """A round."""

    seed: int
    mode: str
    seconds: float
    steps: Sequence[Step]

    @classmethod
    def of(cls, seed: int, seconds: float, *, long: bool = False) -> Plan:
        """The plan of a seed: faults for so many seconds."""
        chance = random.Random(seed)
        mode = ORDERLY if seed % 2 else CONCURRENT
        steps: list[Step] = []
        at = 0.3
        while at < seconds:
            steps += _draw(chance, at, long=long)
            at += chance.uniform(0.1, 0.6)
        return cls(seed, mode, seconds, sorted(steps, key=lambda step: step.at))


def _draw(chance: random.Random, at: float, *, long: bool) -> list[Step]:
    """Something that happens at a time, with what ends it."""
    kind = chance.choices(
        ("error", "silence", "delay", "cut", "corrupt", "route", "broker", "namesrv", "member",
         "locks"),
        (6, 2, 3, 3, 2, 1, 2, 1, 3, 1),
    )[0]  # fmt: skip
    times = chance.randint(1, 4)
    asked = chance.choice(_ASKED)
    served = chance.random() < 0.5
    if kind == "error":
        code = chance.choice((_SYSTEM_ERROR, _BUSY))
        return [Step(at, "error", {"requests": asked, "code": code, "served": served,
                                   "times": times})]  # fmt: skip
    if kind == "silence" and (long or asked != _PULL):
        return [Step(at, "silence", {"requests": asked, "served": served, "times": 1})]
    if kind == "cut":
        return [Step(at, "cut", {"requests": asked, "at": chance.randint(0, 200), "times": times})]
    if kind == "corrupt":
        # Of the first bytes, which the frame's form depends on: bodies have sums of their own.
        return [Step(at, "corrupt", {"requests": asked, "at": chance.randint(0, 8), "times": 1})]
    if kind == "route":
        return [Step(at, "wrong_route", {"queues": chance.randint(1, 2 * QUEUES), "times": times})]
    if kind == "broker":
        number, back = chance.randrange(BROKERS), at + chance.uniform(0.2, 1.5)
        end = chance.choice(("stop_broker", "kill_broker"))
        start = {"number": number, "port": chance.choice((None, 0))}
        return [Step(at, end, {"number": number}), Step(back, "start_broker", start)]
    if kind == "namesrv":
        name_server = {"number": chance.randrange(NAME_SERVERS)}
        back = at + chance.uniform(0.2, 1.5)
        return [Step(at, "stop_namesrv", name_server), Step(back, "start_namesrv", name_server)]
    if kind == "member":
        return [Step(at, "toggle", {"member": chance.choice(MEMBERS[1:])})]
    if kind == "locks":
        return [Step(at, "forget_locks")]
    seconds = chance.uniform(0.05, 0.8)
    return [Step(at, "delay", {"requests": asked, "seconds": seconds, "times": times})]
