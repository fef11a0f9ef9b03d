"""Bodies of administrative answers as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketmq_fast.errors import BodyError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol import fastjson


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a group is in one queue.

    `committed` is the next offset the group reads, `max_offset` the next one to be written.
    `last_timestamp`: store time in ms of the last message consumed, 0 when unknown.
    """

    committed: int
    max_offset: int
    last_timestamp: int = 0

    @property
    def lag(self) -> int:
        """Messages left."""
        return max(0, self.max_offset - self.committed)


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets of a queue: the first that is there, and the next one to be written."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, order=True)
class GroupMember:
    """A connected consumer. `version` is the ordinal of its client's version."""

    client_id: str
    address: str
    language: str
    version: int


def _table(body: bytes, name: str, what: str) -> dict[Any, Any]:
    """An object in the answer. Raises BodyError."""
    value = fastjson.loads(body)
    table = value.get(name) if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise BodyError(f"{what}: field {name!r} is {type(table).__name__}, not an object")
    return table


def _number(table: object, name: str, what: str, default: int | None = None) -> int:
    value = table.get(name, default) if isinstance(table, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        raise BodyError(f"{what}: field {name!r} is {value!r}, not an integer")
    return value


def consume_stats_of(body: bytes, group: str) -> dict[MessageQueue, QueueLag]:
    """Answer 208. Raises BodyError."""
    what = f"consume stats of group {group!r}"
    return {
        fastjson.queue_of_key(key): QueueLag(
            _number(row, "consumerOffset", what),
            _number(row, "brokerOffset", what),
            _number(row, "lastTimestamp", what, 0),
        )
        for key, row in _table(body, "offsetTable", what).items()
    }


def topic_stats_of(body: bytes, topic: str) -> dict[MessageQueue, QueueRange]:
    """Answer 202. Raises BodyError."""
    what = f"stats of topic {topic!r}"
    return {
        fastjson.queue_of_key(key): QueueRange(
            _number(row, "minOffset", what), _number(row, "maxOffset", what)
        )
        for key, row in _table(body, "offsetTable", what).items()
    }


def group_names_of(body: bytes) -> list[str]:
    """Answer 201. Raises BodyError."""
    return [str(name) for name in _table(body, "subscriptionGroupTable", "group table")]


def members_of(body: bytes, group: str) -> list[GroupMember]:
    """Answer 203. Raises BodyError."""
    what = f"connections of group {group!r}"
    value = fastjson.loads(body)
    rows = value.get("connectionSet") if isinstance(value, dict) else None
    if not isinstance(rows, list):
        raise BodyError(f"{what}: field 'connectionSet' is {type(rows).__name__}, not a list")
    members = []
    for row in rows:
        if not isinstance(row, dict):
            raise BodyError(f"{what}: a row is {type(row).__name__}, not an object")
        members.append(
            GroupMember(
                str(row.get("clientId")),
                str(row.get("clientAddr")),
                str(row.get("language")),
                _number(row, "version", what, 0),
            )
        )
    return members
