"""Facts of a process, written as lines of a file and read by the one that judges them.

Each line has the machine's monotonic time, so the facts of all processes have one order.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

from rocketmq_fast import MessageQueue
from tests.ordering import Call


class Fact(NamedTuple):
    """What `note` of a History takes, and when it was noted (monotonic nanoseconds)."""

    at: int
    kind: str
    values: tuple[Any, ...]


def _plain(value: Any) -> Any:
    """A value for JSON."""
    if isinstance(value, MessageQueue):
        return {"queue": [value.topic, value.broker_name, value.queue_id]}
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, Call):
        return {"call": astuple(value)}
    return {"place": [_plain(part) for part in value]} if isinstance(value, tuple) else value


_MAKERS: dict[str, Callable[[list[Any]], Any]] = {
    "queue": lambda parts: MessageQueue(*parts),
    "place": lambda parts: tuple(parts),
    "call": lambda parts: Call(
        *(tuple(part) if isinstance(part, list) else part for part in parts)
    ),
}


def _made(found: dict[str, Any]) -> Any:
    """The value of `_plain`."""
    ((kind, value),) = found.items()
    return value.encode("latin-1") if kind == "bytes" else _MAKERS[kind](value)


class FactFile:
    """Takes facts; a line is there whole or not at all, also when the process is killed."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: str, *values: object) -> None:
        """As History.note. Any thread."""
        line = json.dumps([time.monotonic_ns(), kind, [_plain(value) for value in values]])
        os.write(self._fd, f"{line}\n".encode())


class FactReader:
    """Reads a file that another process goes on writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> Iterator[Fact]:
        """The facts since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            at, kind, values = json.loads(line, object_hook=_made)
            yield Fact(at, kind, tuple(values))
