"""What happens in a round, drawn from its seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BROKERS, NAME_SERVERS, QUEUES = 2, 2, 3
MEMBERS = ("A", "B", "C", "D")
ORDERLY, CONCURRENT = "orderly", "concurrent"
EMBEDDED = "embedded"

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
_EVERYWHERE = {"error": 6, "silence": 2, "delay": 3, "cut": 3, "corrupt": 2, "route": 1,
               "namesrv": 1, "member": 3}  # fmt: skip
# How often a kind of trouble is drawn, by the kind of broker. A real one takes seconds to start.
_WEIGHTS: dict[str, dict[str, int]] = {
    EMBEDDED: {**_EVERYWHERE, "broker": 2, "locks": 1},
    "apache-4.9.4": {**_EVERYWHERE, "broker": 1, "freeze": 2, "half_open": 1},
    "apache-5.3.3": {**_EVERYWHERE, "broker": 1, "freeze": 2, "half_open": 1},
}
KINDS_OF_BROKERS = tuple(_WEIGHTS)
# What happens to members that are processes.
_PROCESSES = {"kill": 3, "pause": 3}
# Members that come and go, and die, all the time.
_STORM = {"member": 6, "kill": 4, "pause": 2, "error": 1, "cut": 1}


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
    broker: str = EMBEDDED
    processes: bool = False

    @property
    def orderly(self) -> bool:
        """Whether the listeners are orderly: those of odd seeds."""
        return self.mode == ORDERLY

    @property
    def topic(self) -> str:
        """A topic of its own, for clusters that see several rounds."""
        return f"Trouble_{self.seed}"

    @property
    def group(self) -> str:
        """As the topic."""
        return f"trouble_{self.seed}"

    @classmethod
    def of(
        cls, seed: int, seconds: float, *, long: bool = False, broker: str = EMBEDDED,
        processes: bool = False, storm: bool = False,
    ) -> Plan:  # fmt: skip
        """The plan of a seed: trouble for so many seconds.

        `processes`: members are processes of their own. `storm`: it is mostly they that have it.
        """
        chance = random.Random(seed)
        mode = ORDERLY if seed % 2 else CONCURRENT
        weights = _STORM if storm else _WEIGHTS[broker]
        if processes:
            weights = {**weights, **_PROCESSES}
        else:
            weights = {kind: n for kind, n in weights.items() if kind not in _PROCESSES}
        steps: list[Step] = []
        at = 0.3
        while at < seconds:
            kind = chance.choices(tuple(weights), tuple(weights.values()))[0]
            steps += _DRAWN[kind](chance, at, _Ground(long, processes or broker != EMBEDDED))
            at += chance.uniform(0.1, 0.6)
        steps.sort(key=lambda step: step.at)
        return cls(seed, mode, seconds, steps, broker, processes)


@dataclass(frozen=True, slots=True)
class _Ground:
    long: bool
    fixed_ports: bool  # a broker comes back where it was


def _of_requests(kind: str) -> Callable[[random.Random, float, _Ground], list[Step]]:
    def draw(chance: random.Random, at: float, ground: _Ground) -> list[Step]:
        times, asked = chance.randint(1, 4), chance.choice(_ASKED)
        served = chance.random() < 0.5
        values: Mapping[str, Any]
        if kind == "error":
            code = chance.choice((_SYSTEM_ERROR, _BUSY))
            values = {"code": code, "served": served, "times": times}
        elif kind == "silence" and (ground.long or asked != _PULL):
            values = {"served": served, "times": 1}
        elif kind == "cut":
            values = {"at": chance.randint(0, 200), "times": times}
        elif kind == "corrupt":
            # Of the first bytes, which the frame's form depends on: bodies have sums of their own.
            values = {"at": chance.randint(0, 8), "times": 1}
        else:
            return [Step(at, "delay", {"requests": asked, "seconds": chance.uniform(0.05, 0.8),
                                       "times": times})]  # fmt: skip
        return [Step(at, kind, {"requests": asked, **values})]

    return draw


def _route(chance: random.Random, at: float, _: _Ground) -> list[Step]:
    values = {"queues": chance.randint(1, 2 * QUEUES), "times": chance.randint(1, 4)}
    return [Step(at, "wrong_route", values)]


def _broker(chance: random.Random, at: float, ground: _Ground) -> list[Step]:
    number, back = chance.randrange(BROKERS), at + chance.uniform(0.2, 1.5)
    end = chance.choice(("stop_broker", "kill_broker"))
    port = None if ground.fixed_ports else chance.choice((None, 0))
    return [
        Step(at, end, {"number": number}),
        Step(back, "start_broker", {"number": number, "port": port}),
    ]


def _namesrv(chance: random.Random, at: float, _: _Ground) -> list[Step]:
    values = {"number": chance.randrange(NAME_SERVERS)}
    back = at + chance.uniform(0.2, 1.5)
    return [Step(at, "stop_namesrv", values), Step(back, "start_namesrv", values)]


def _locks(_: random.Random, at: float, __: _Ground) -> list[Step]:
    return [Step(at, "forget_locks")]


def _member(chance: random.Random, at: float, _: _Ground) -> list[Step]:
    return [Step(at, "toggle", {"member": chance.choice(MEMBERS[1:])})]


def _kill(chance: random.Random, at: float, _: _Ground) -> list[Step]:
    """kill -9, and another process takes the name."""
    values = {"member": chance.choice(MEMBERS)}
    return [
        Step(at, "kill_member", values),
        Step(at + chance.uniform(0.1, 1.5), "join_member", values),
    ]


def _pause(chance: random.Random, at: float, _: _Ground) -> list[Step]:
    """SIGSTOP, and SIGCONT later: with short locks, after they have run out or before."""
    values = {"member": chance.choice(MEMBERS)}
    return [
        Step(at, "pause_member", values),
        Step(at + chance.uniform(0.3, 4.0), "resume_member", values),
    ]


def _freeze(chance: random.Random, at: float, _: _Ground) -> list[Step]:
    """SIGSTOP of a broker: connections stay, nothing is answered."""
    values = {"number": chance.randrange(BROKERS)}
    return [
        Step(at, "pause_broker", values),
        Step(at + chance.uniform(0.3, 4.0), "resume_broker", values),
    ]


def _half_open(chance: random.Random, at: float, _: _Ground) -> list[Step]:
    """The connections to a broker lead nowhere any more, and nobody says so."""
    return [Step(at, "strand", {"number": chance.randrange(BROKERS)})]


_DRAWN: dict[str, Callable[[random.Random, float, _Ground], list[Step]]] = {
    **{kind: _of_requests(kind) for kind in ("error", "silence", "delay", "cut", "corrupt")},
    "route": _route,
    "broker": _broker,
    "namesrv": _namesrv,
    "locks": _locks,
    "member": _member,
    "kill": _kill,
    "pause": _pause,
    "freeze": _freeze,
    "half_open": _half_open,
}
