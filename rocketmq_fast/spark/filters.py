"""Filters that Spark hands to a batch read: what they leave of the ranges, and of the tags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rocketmq_fast.model import MessageQueue
from rocketmq_fast.spark.offsets import EARLIEST, LATEST, AtTime, OffsetSpec, QueueRange

_NEVER_NULL = ("topic", "brokerName", "queueId", "queueOffset")
_OF_QUEUES = ("topic", "brokerName", "queueId")
_COMPARISONS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PushedFilters:
    """Collects filters, all of which hold. `tags` is what the broker shall filter by, if anything.

    Taken filters are exact: Spark does not look again. Store times only narrow the ranges.
    """

    def __init__(self, tags_are_free: bool) -> None:
        self.tags: str | None = None
        self._tags_are_free = tags_are_free
        self._of_queues: list[Any] = []
        self._low, self._high = 0, 2**63 - 1  # offsets [low, high)
        self._since: int | None = None  # ms
        self._before: int | None = None

    def take(self, one: Filter) -> bool:
        """Take a filter over. False where Spark has to check it, too."""
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1:
            return False
        column = str(path[0])
        if isinstance(one, IsNotNull):
            return column in _NEVER_NULL
        if column in _OF_QUEUES and isinstance(one, (*_COMPARISONS, In)):
            self._of_queues.append(one)
            return True
        if column == "queueOffset" and isinstance(one, _COMPARISONS):
            self._cut(one)
            return True
        if column == "tags" and isinstance(one, (EqualTo, In)):
            return self._take_tags([one.value] if isinstance(one, EqualTo) else list(one.value))
        if column == "storeTimestamp" and isinstance(one, _COMPARISONS):
            self._hint(one)
        return False

    def time_bounds(self) -> tuple[OffsetSpec, OffsetSpec]:
        """Where the store times begin and end, for `narrow`."""
        since = EARLIEST if self._since is None else AtTime(self._since)
        before = LATEST if self._before is None else AtTime(self._before)
        return OffsetSpec("pushFilters", since), OffsetSpec("pushFilters", before)

    def narrow(
        self,
        ranges: Iterable[QueueRange],
        since: Mapping[MessageQueue, int],
        before: Mapping[MessageQueue, int],
    ) -> Iterator[QueueRange]:
        """What the filters leave of ranges."""
        for one in ranges:
            queue = one.queue
            start = max(one.start, self._low, since[queue])
            end = min(one.end, self._high)
            if self._before is not None:
                end = min(end, before[queue])
            if start < end and all(_holds(test, queue) for test in self._of_queues):
                yield replace(one, start=start, end=end)

    def _take_tags(self, values: list[Any]) -> bool:
        if not self._tags_are_free or self.tags is not None:
            return False
        for value in values:
            plain = isinstance(value, str) and value == value.strip()
            if not plain or value in ("", "*") or "|" in value or "\ufffd" in value:
                return False
        if not values:
            return False
        self.tags = "||".join(dict.fromkeys(values))
        return True

    def _cut(self, one: Any) -> None:
        value = one.value
        if isinstance(one, (EqualTo, GreaterThanOrEqual)):
            self._low = max(self._low, value)
        if isinstance(one, (EqualTo, LessThanOrEqual)):
            self._high = min(self._high, value + 1)
        if isinstance(one, GreaterThan):
            self._low = max(self._low, value + 1)
        if isinstance(one, LessThan):
            self._high = min(self._high, value)

    def _hint(self, one: Any) -> None:
        microseconds = round((one.value - _EPOCH).total_seconds() * 1_000_000)
        floor = max(0, microseconds // 1000)
        if isinstance(one, (EqualTo, GreaterThan, GreaterThanOrEqual)):
            self._since = floor if self._since is None else max(self._since, floor)
        if isinstance(one, (EqualTo, LessThan, LessThanOrEqual)):
            after = floor + 1
            self._before = after if self._before is None else min(self._before, after)


def _holds(one: Any, queue: MessageQueue) -> bool:
    """Whether a queue passes a filter of its names or number."""
    column = str(one.attribute[0])
    value: Any = {
        "topic": queue.topic,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
    }[column]
    if isinstance(one, In):
        return value in one.value
    if isinstance(one, EqualTo):
        return bool(value == one.value)
    if isinstance(one, GreaterThan):
        return bool(value > one.value)
    if isinstance(one, GreaterThanOrEqual):
        return bool(value >= one.value)
    return bool(value < one.value if isinstance(one, LessThan) else value <= one.value)
