"""Offsets of queues: the user's choice, the JSON of it, and the ranges they come to.

An offset is always the next one to read. The JSON is {"topic": {"broker": {"queue": offset}}}, with
-2 for earliest and -1 for latest, or {"topic": "earliest"}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketmq_fast.errors import ConfigError, RocketMQError
from rocketmq_fast.model import MessageQueue

EARLIEST = "earliest"
LATEST = "latest"
_EARLIEST_OFFSET = -2
_LATEST_OFFSET = -1
_MAX_OFFSET = 2**63 - 1


class DataLossError(RocketMQError):
    """Messages of the wanted range are not on the broker (any more)."""


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Where to start or end: for single queues, else for their topic, else the default."""

    default: str
    topics: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[MessageQueue, int] = field(default_factory=dict)

    def resolve(self, queue: MessageQueue, earliest: int, latest: int) -> int:
        """The offset for a queue that holds [earliest, latest)."""
        offset = self.queues.get(queue)
        if offset is None:
            word = self.topics.get(queue.topic, self.default)
            offset = _EARLIEST_OFFSET if word == EARLIEST else _LATEST_OFFSET
        if offset == _EARLIEST_OFFSET:
            return earliest
        return latest if offset == _LATEST_OFFSET else offset


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """Offsets [start, end) of a queue, and where its broker is."""

    queue: MessageQueue
    start: int
    end: int
    address: str

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.end - self.start

    def __str__(self) -> str:
        queue = self.queue
        return (
            f"topic {queue.topic!r}, broker {queue.broker_name!r}, queue {queue.queue_id}, "
            f"offsets [{self.start}, {self.end})"
        )


def parse_offsets(option: str, text: str, topics: Sequence[str]) -> OffsetSpec:
    """Read "earliest", "latest" or JSON. Raises ConfigError that names the option and the entry.

    A queue that the JSON leaves out starts at the earliest and ends at the latest offset; a topic
    that is not read is an error.
    """
    default = EARLIEST if option.lower().startswith("starting") else LATEST
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return OffsetSpec(word)
    try:
        table = json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError as error:
        raise ConfigError(
            f"option {option!r} is {text!r}: not earliest, latest or JSON ({error})"
        ) from error
    if not isinstance(table, dict):
        raise ConfigError(f"option {option!r} is not a JSON object of topics")
    by_topic: dict[str, str] = {}
    by_queue: dict[MessageQueue, int] = {}
    for topic, value in table.items():
        if topic not in topics:
            raise ConfigError(f"option {option!r} names topic {topic!r}, which is not read")
        if isinstance(value, str) and value.lower() in (EARLIEST, LATEST):
            by_topic[topic] = value.lower()
            continue
        for broker, queues in _object(option, f"topic {topic!r}", value).items():
            where = f"topic {topic!r}, broker {broker!r}"
            for queue_id, offset in _object(option, where, queues).items():
                queue = MessageQueue(topic, broker, _queue_id(option, where, queue_id))
                by_queue[queue] = _offset(option, queue, offset)
    return OffsetSpec(default, by_topic, by_queue)


def offsets_json(offsets: Mapping[MessageQueue, int]) -> str:
    """The JSON of next offsets. Equal offsets give equal text: Spark compares it."""
    table: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = table.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return json.dumps(table, separators=(",", ":"))


def check_known(option: str, spec: OffsetSpec, queues: Sequence[MessageQueue]) -> None:
    """Raise ConfigError for a queue in the JSON that does not exist."""
    unknown = sorted(spec.queues.keys() - set(queues))
    if unknown:
        queue = unknown[0]
        raise ConfigError(
            f"option {option!r} names queue {queue.queue_id} of topic {queue.topic!r} on broker "
            f"{queue.broker_name!r}, which is not in the route"
        )


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return table


def _object(option: str, where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"option {option!r}: {where} has {value!r}, not an object")
    return value


def _queue_id(option: str, where: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise ConfigError(f"option {option!r}: {where} has queue {text!r}, not a number")
    return int(text)


def _offset(option: str, queue: MessageQueue, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"option {option!r}: offset of {queue} is {value!r}, not an integer")
    low = _EARLIEST_OFFSET if option.lower().startswith("starting") else _LATEST_OFFSET
    if not low <= value <= _MAX_OFFSET:
        raise ConfigError(f"option {option!r}: offset of {queue} is {value}; {low} is the least")
    return value
