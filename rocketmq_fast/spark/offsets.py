"""Offsets of queues: what the user chose, the JSON of it, and the ranges they come to.

An offset is always the next one to read. The JSON is {"topic": {"broker": {"queue": offset}}}, with
-2 for earliest, -1 for latest, -3 for the group's committed offset, or {"topic": "earliest"}.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rocketmq_fast.errors import ConfigError, RocketMQError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.spark.option_parser import parse_duration

EARLIEST = -2
LATEST = -1
COMMITTED = -3
_WORDS = {"earliest": EARLIEST, "latest": LATEST, "group": COMMITTED}
_MAX_OFFSET = 2**63 - 1


class DataLossError(RocketMQError):
    """Messages of the wanted range are not on the broker (any more)."""


def lost(text: str) -> DataLossError:
    """The error for what is not there, with the option that reads on without it."""
    return DataLossError(
        f"{text}; set failOnDataLoss to false to read what is there without an error"
    )


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at or after a time: milliseconds since 1970, or before now."""

    ms: int
    before_now: bool = False

    def at(self, now_ms: int) -> int:
        """Milliseconds since 1970."""
        return now_ms - self.ms if self.before_now else self.ms


# An offset that is not negative, EARLIEST, LATEST, COMMITTED, or a time.
Position = int | AtTime


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Where to start or end: for single queues, else for their topic, else the default.

    `option` is the one that it came from, for messages.
    """

    option: str
    default: Position
    topics: Mapping[str, Position] = field(default_factory=dict)
    queues: Mapping[MessageQueue, Position] = field(default_factory=dict)

    def position(self, queue: MessageQueue) -> Position:
        """Of a queue."""
        found = self.queues.get(queue)
        return found if found is not None else self.topics.get(queue.topic, self.default)

    def check_topics(self, topics: Collection[str]) -> None:
        """Raise ConfigError for a topic in the JSON that is not read."""
        for topic in sorted({*self.topics, *(queue.topic for queue in self.queues)}):
            if topic not in topics:
                raise ConfigError(
                    f"option {self.option!r} names topic {topic!r}, which is not read"
                )

    def check_queues(self, queues: Collection[MessageQueue]) -> None:
        """Raise ConfigError for a queue in the JSON that does not exist."""
        unknown = sorted(self.queues.keys() - set(queues))
        if unknown:
            queue = unknown[0]
            raise ConfigError(
                f"option {self.option!r} names queue {queue.queue_id} of topic {queue.topic!r} on "
                f"broker {queue.broker_name!r}, which is not in the route or not read"
            )


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
        return f"{where(self.queue)}, offsets [{self.start}, {self.end})"


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def where(queue: MessageQueue) -> str:
    """A queue, for messages."""
    return f"topic {queue.topic!r}, broker {queue.broker_name!r}, queue {queue.queue_id}"


def parse_offsets(option: str, text: str, default: int) -> OffsetSpec:
    """Read a word or JSON. Raises ConfigError that names the option and the entry.

    A queue that the JSON leaves out has the default.
    """
    words = list(_WORDS) if default == EARLIEST else ["latest"]
    word = text.strip().lower()
    if word in words:
        return OffsetSpec(option, _WORDS[word])
    if word in _WORDS:
        raise ConfigError(f"option {option!r} cannot be {word!r}; it is {words[0]} or JSON")
    expected = f"{', '.join(words)} or JSON"

    def of_topic(topic: str, value: Any) -> Position | None:
        return _WORDS[value.lower()] if str(value).lower() in words else None

    def of_queue(queue: MessageQueue, value: Any) -> Position:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"option {option!r}: offset of {queue} is {value!r}, not an integer")
        low = COMMITTED if default == EARLIEST else LATEST
        if not low <= value <= _MAX_OFFSET:
            raise ConfigError(
                f"option {option!r}: offset of {queue} is {value}; it must be {low} to 2^63-1"
            )
        return value

    return _parse_table(option, text, default, expected, of_topic, of_queue)


def parse_times(option: str, text: str, default: int) -> OffsetSpec:
    """Read JSON of times, by queue or by topic. Raises ConfigError."""

    def of_topic(topic: str, value: Any) -> Position | None:
        return None if isinstance(value, dict) else parse_time(option, str(value))

    def of_queue(queue: MessageQueue, value: Any) -> Position:
        return parse_time(option, str(value))

    return _parse_table(option, text, default, "JSON", of_topic, of_queue)


def parse_time(option: str, text: str) -> AtTime:
    """Milliseconds since 1970, ISO 8601 (UTC unless it says otherwise) or "-10m"."""
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,15}", text):
        return AtTime(int(text))
    if text.startswith("-") and (ago := parse_duration(text[1:])) is not None:
        return AtTime(round(ago * 1000), before_now=True)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"option {option!r} is {text!r}, not milliseconds since 1970, a time as "
            "2026-01-31T12:00:00Z, or a time ago as -10m"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return AtTime(round(time.timestamp() * 1000))


def offsets_table(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Offsets as Spark keeps them, in one order of keys for equal offsets: Spark compares text."""
    table: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = table.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return table


def offsets_of_table(table: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Offsets out of what `offsets_table` made and a checkpoint kept. Raises ConfigError."""
    try:
        return {
            MessageQueue(topic, broker, int(queue_id)): int(offset)
            for topic, brokers in table.items()
            for broker, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"not offsets that rocketmq left in a checkpoint: {table!r}") from None


def _parse_table(
    option: str, text: str, default: int, expected: str, of_topic: Any, of_queue: Any
) -> OffsetSpec:
    try:
        table = json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError as error:
        raise ConfigError(f"option {option!r} is {text!r}: not {expected} ({error})") from error
    if not isinstance(table, dict):
        raise ConfigError(f"option {option!r} is {text!r}, not a JSON object of topics")
    by_topic: dict[str, Position] = {}
    by_queue: dict[MessageQueue, Position] = {}
    for topic, value in table.items():
        position = of_topic(topic, value)
        by_topic[topic] = default if position is None else position
        if position is not None:
            continue
        if isinstance(value, str):
            raise ConfigError(f"option {option!r}: topic {topic!r} has {value!r}, not {expected}")
        for broker, queues in _object(option, f"topic {topic!r}", value, "brokers").items():
            place = f"topic {topic!r}, broker {broker!r}"
            for queue_id, given in _object(option, place, queues, "queues").items():
                queue = MessageQueue(topic, broker, _queue_id(option, place, queue_id))
                by_queue[queue] = of_queue(queue, given)
    return OffsetSpec(option, default, by_topic, by_queue)


def parse_queues(option: str, text: str) -> frozenset[MessageQueue]:
    """Read {"topic": {"broker": [0, 1]}}. Raises ConfigError."""
    try:
        table = json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError as error:
        raise ConfigError(f"option {option!r} is {text!r}: not JSON ({error})") from error
    found = set()
    for topic, brokers in _object(option, "it", table, "topics").items():
        for broker, ids in _object(option, f"topic {topic!r}", brokers, "brokers").items():
            place = f"topic {topic!r}, broker {broker!r}"
            if not isinstance(ids, list):
                raise ConfigError(f"option {option!r}: {place} has {ids!r}, not a list of queues")
            found |= {
                MessageQueue(topic, broker, _queue_id(option, place, str(queue_id)))
                for queue_id in ids
            }
    if not found:
        raise ConfigError(f"option {option!r} names no queue")
    return frozenset(found)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return table


def _object(option: str, place: str, value: Any, of: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"option {option!r}: {place} has {value!r}, not an object of {of}")
    return value


def _queue_id(option: str, place: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise ConfigError(f"option {option!r}: {place} has queue {text!r}, not a number")
    return int(text)
