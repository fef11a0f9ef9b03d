"""Arguments, tables and the counting of the command, without a broker."""

from __future__ import annotations

import argparse
import random
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketmq_fast import MessageExt, MessageQueue
from rocketmq_fast.cli import arguments
from rocketmq_fast.cli.broker import settings_of
from rocketmq_fast.cli.output import number, rate, table
from rocketmq_fast.cli.produce import generated_bodies
from rocketmq_fast.cli.tally import OffsetSet, Tally
from rocketmq_fast.embedded.config import BrokerConfig
from rocketmq_fast.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1_000", 1000), ("1,000,000", 1_000_000), ("10k", 10_000), ("2M", 2_000_000)],
)
def test_count(text: str, value: int) -> None:
    assert arguments.count(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "k", "ten", "1e6", "\u0661x"])
def test_count_refuses(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        arguments.count(text)


def test_size_is_binary_and_may_be_zero() -> None:
    assert arguments.size("0") == 0
    assert arguments.size("4k") == 4096
    assert arguments.size("1m") == 1 << 20


@pytest.mark.parametrize("text", ["first", "LAST", " last "])
def test_start_word(text: str) -> None:
    assert arguments.start(text) == text.strip().lower()


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T08:00:00+00:00",
        "2026-01-31 08:00:00Z",
        "1769846400000",
        "2026-01-31T09:00+01:00",
    ],
)
def test_start_time(text: str) -> None:
    assert arguments.start(text) == datetime(2026, 1, 31, 8, tzinfo=UTC)


def test_start_in_the_form_of_java_is_local_time() -> None:
    assert arguments.start("20260131080000") == datetime(2026, 1, 31, 8).astimezone()


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "17", "20261301000000", "12:00"])
def test_start_refuses(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not first, last or a time"):
        arguments.start(text)


def test_names_ports_seconds() -> None:
    assert arguments.names("TagA, TagB,") == ["TagA", "TagB"]
    assert arguments.port("0") == 0
    assert arguments.seconds("1.5") == 1.5
    for function, text in (
        (arguments.names, " , "),
        (arguments.port, "65536"),
        (arguments.port, "-1"),
        (arguments.seconds, "0"),
        (arguments.seconds, "nan"),
        (arguments.assignment, "x"),
    ):
        with pytest.raises(argparse.ArgumentTypeError):
            cast(Any, function)(text)


def test_settings_take_the_type_of_their_default() -> None:
    settings = settings_of(
        [("delay_levels", "1s 2s"), ("max_connections", "7"), ("flush_interval", "0.25"),
         ("auto_create_topic_enable", "FALSE")]
    )  # fmt: skip
    config = BrokerConfig(**settings)
    assert config.delay_levels == "1s 2s"
    assert config.max_connections == 7
    assert config.flush_interval == 0.25
    assert config.auto_create_topic_enable is False
    for name, value in (("nothing", "1"), ("max_connections", "x"), ("trace_on", "maybe")):
        with pytest.raises(ConfigError, match=name):
            settings_of([(name, value)])


def test_generated_bodies_are_distinct_and_of_the_size() -> None:
    for size in (0, 1, 12, 13, 100, 5000):
        bodies = list(generated_bodies(10, size))
        assert {len(body) for body in bodies} == {size}
        assert len(set(bodies)) == (10 if size else 1)
        assert all(body.isascii() for body in bodies)


def test_offset_set_against_a_set() -> None:
    source = random.Random(1)
    found, offsets = set(), OffsetSet()
    for base in (0, 65_530, 2**40, 2**62):
        for _ in range(500):
            offset = base + source.randrange(300)
            assert offsets.add(offset) is (offset not in found)
            found.add(offset)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (5, 9), (65_530, 65_536), (65_536, 200_003)])
def test_offset_set_keeps_a_run_when_a_gap_comes(start: int, end: int) -> None:
    offsets = OffsetSet()
    assert all(offsets.add(offset) for offset in range(start, end))
    assert not offsets.add(start)
    assert offsets.add(end + 10)
    known = {start, end - 1, (start + end) // 2, end + 10}
    assert not any(offsets.add(offset) for offset in known)
    assert offsets.add(end)
    assert start == 0 or offsets.add(start - 1)


def message(offset: int, body: bytes = b"ab") -> MessageExt:
    return cast(MessageExt, SimpleNamespace(queue_offset=offset, body=body))


def test_tally_stops_at_its_limit() -> None:
    tally = Tally(3)
    queue, other = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    assert tally.add(queue, [message(0)]) == 1
    assert tally.add(queue, [message(0)]) == 1
    assert tally.add(MessageQueue("T", "b", 0), [message(0)]) == 1  # equal, not the same object
    assert (tally.messages, tally.duplicates, tally.bytes) == (1, 2, 2)
    assert tally.add(other, [message(0), message(1), message(2)]) == 2
    assert tally.full.is_set()
    assert tally.add(other, [message(3)]) == 0
    assert (tally.messages, tally.duplicates, tally.bytes) == (3, 2, 6)
    assert tally.seconds > 0


def test_tally_counts_exactly_from_many_threads() -> None:
    tally = Tally(10_000)
    queues = [MessageQueue("T", "b", number) for number in range(4)]
    taken = [0] * 4

    def run(index: int) -> None:
        for offset in range(5_000):
            taken[index] += tally.add(queues[index], [message(offset)])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.messages == sum(taken) == 10_000
    assert tally.duplicates == 0


def test_numbers_and_tables() -> None:
    assert number(1234567) == "1,234,567"
    assert number(1234.5) == "1,234"
    assert number(0.123) == "0.12"
    assert rate(10, 0.0) == 0.0
    shown = table(("name", "count"), [["a", 1000], ["long", 7]])
    assert shown == "name  count\n----  -----\na     1,000\nlong      7"
    assert table(("name",), []) == "name\n----"
