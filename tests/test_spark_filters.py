"""Filters taken over from Spark: what they leave of ranges is what their rows are in."""

from __future__ import annotations

import operator
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketmq_fast.model import MessageQueue
from tests.require import require

require("spark")  # before what imports pyspark

from pyspark.sql.datasource import (  # noqa: E402
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from rocketmq_fast.spark.filters import PushedFilters  # noqa: E402
from rocketmq_fast.spark.offsets import EARLIEST, LATEST, AtTime, QueueRange  # noqa: E402

COMPARISONS: dict[Any, Any] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
QUEUES = [MessageQueue(topic, name, n) for topic in "TU" for name in "ab" for n in range(3)]
RANGES = [QueueRange(queue, 5, 25, "here:1") for queue in QUEUES]
SINCE, BEFORE = dict.fromkeys(QUEUES, 0), dict.fromkeys(QUEUES, 100)


def places(pushed: PushedFilters) -> set[tuple[MessageQueue, int]]:
    found = [
        (one.queue, offset)
        for one in pushed.narrow(RANGES, SINCE, BEFORE)
        for offset in range(one.start, one.end)
    ]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("seed", range(100))
def test_ranges_hold_exactly_the_rows(seed: int) -> None:
    source = random.Random(seed)
    pushed = PushedFilters(tags_are_free=True)
    tests = []
    for _ in range(source.randrange(4)):
        column = source.choice(["topic", "brokerName", "queueId", "queueOffset"])
        value: Any = {
            "topic": source.choice("STU"),
            "brokerName": source.choice("abc"),
            "queueId": source.randrange(-1, 4),
            "queueOffset": source.choice([-1, 0, 5, 6, 24, 25, 30]),
        }[column]
        if column != "queueOffset" and source.random() < 0.3:
            values = (value, "a" if column in ("topic", "brokerName") else 1)
            assert pushed.take(In((column,), values))
            tests.append((column, lambda have, want: have in want, values))
        else:
            kind = source.choice(list(COMPARISONS))
            assert pushed.take(kind((column,), value))
            tests.append((column, COMPARISONS[kind], value))
    wanted = {
        (queue, offset)
        for queue in QUEUES
        for offset in range(5, 25)
        for row in [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "queueOffset": offset,
            }
        ]
        if all(test(row[column], value) for column, test, value in tests)
    }
    assert places(pushed) == wanted


def test_what_spark_has_to_check() -> None:
    pushed = PushedFilters(tags_are_free=True)
    assert pushed.take(IsNotNull(("queueId",)))
    for one in (
        IsNotNull(("tags",)),
        IsNull(("tags",)),
        EqualTo(("keys",), "k"),
        EqualTo(("properties", "a"), "k"),
        StringStartsWith(("topic",), "T"),
        In(("queueOffset",), (1, 2)),
        GreaterThan(("tags",), "A"),
    ):
        assert not pushed.take(one)
    assert len(places(pushed)) == 12 * 20


def test_tags() -> None:
    pushed = PushedFilters(tags_are_free=True)
    for value in ("", " A", "*", "A|B", "A || B", "\ufffd", None):
        assert not pushed.take(EqualTo(("tags",), value))
    assert not pushed.take(In(("tags",), ("A", None)))
    assert not pushed.take(In(("tags",), ()))
    assert pushed.tags is None
    assert pushed.take(In(("tags",), ("A", "B", "A")))
    assert pushed.tags == "A||B"
    assert not pushed.take(EqualTo(("tags",), "A"))  # one set of tags is all a broker takes
    assert not PushedFilters(tags_are_free=False).take(EqualTo(("tags",), "A"))


def test_store_times_only_narrow() -> None:
    time = datetime(2026, 1, 31, 12, 0, 0, 1500, UTC)
    floor = int(time.timestamp() * 1000)
    for one, since, before in (
        (GreaterThan, AtTime(floor), LATEST),
        (GreaterThanOrEqual, AtTime(floor), LATEST),
        (LessThan, EARLIEST, AtTime(floor + 1)),
        (LessThanOrEqual, EARLIEST, AtTime(floor + 1)),
        (EqualTo, AtTime(floor), AtTime(floor + 1)),
    ):
        pushed = PushedFilters(tags_are_free=True)
        assert not pushed.take(one(("storeTimestamp",), time))
        assert tuple(spec.default for spec in pushed.time_bounds()) == (since, before)
    narrowed = list(pushed.narrow(RANGES[:1], {QUEUES[0]: 9}, {QUEUES[0]: 11}))
    assert [(one.start, one.end) for one in narrowed] == [(9, 11)]
