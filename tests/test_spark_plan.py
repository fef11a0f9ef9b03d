"""Offsets and plans of the data source, without Spark running."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
from tests.require import require

require("spark")  # before what imports pyspark

from rocketmq_fast.spark.offsets import (  # noqa: E402
    COMMITTED,
    EARLIEST,
    LATEST,
    AtTime,
    DataLossError,
    QueueRange,
    offsets_of_table,
    offsets_table,
    parse_offsets,
    parse_time,
    parse_times,
)
from rocketmq_fast.spark.options import ReadOptions  # noqa: E402
from rocketmq_fast.spark.planner import plan_partitions, resolve_ranges  # noqa: E402
from rocketmq_fast.spark.schema import COLUMNS, SCHEMA, check_schema, schema_of  # noqa: E402

BASE = {"namesrvAddr": "127.0.0.1:9876", "topic": "T"}


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def part(number: int, start: int, end: int) -> QueueRange:
    return QueueRange(queue(number), start, end, "127.0.0.1:10911")


# ------------------------------------------------------------------------------- offsets


def test_offsets_of_json() -> None:
    text = '{"T":{"broker-a":{"0":23,"1":-1,"2":-2,"4":-3}},"U":"latest","W":"group"}'
    spec = parse_offsets("startingOffsets", text, EARLIEST)
    assert spec.position(queue(0)) == 23
    assert spec.position(queue(1)) == LATEST
    assert spec.position(queue(2)) == EARLIEST
    assert spec.position(queue(3)) == EARLIEST
    assert spec.position(queue(4)) == COMMITTED
    assert spec.position(queue(0, "U")) == LATEST
    assert spec.position(queue(0, "V")) == EARLIEST
    assert spec.position(queue(0, "W")) == COMMITTED
    assert parse_offsets("endingOffsets", "{}", LATEST).position(queue(0)) == LATEST


def test_times() -> None:
    assert parse_time("t", " 1700000000000 ") == AtTime(1_700_000_000_000)
    assert parse_time("t", "2026-01-31T12:00:00Z") == parse_time("t", "2026-01-31T13:00:00+01:00")
    assert parse_time("t", "2026-01-31T12:00:00") == parse_time("t", "2026-01-31T12:00:00Z")
    assert parse_time("t", "1970-01-01T00:00:01.5Z") == AtTime(1500)
    assert parse_time("t", "-10m").at(1_000_000) == 400_000
    text = '{"T":{"broker-a":{"0":7,"1":"1970-01-01T00:00:01Z"}},"U":"-1s","V":9}'
    spec = parse_times("startingOffsetsByTimestamp", text, EARLIEST)
    assert spec.position(queue(0)) == AtTime(7)
    assert spec.position(queue(1)) == AtTime(1000)
    assert spec.position(queue(2)) == EARLIEST
    assert spec.position(queue(0, "U")) == AtTime(1000, before_now=True)
    assert spec.position(queue(0, "V")) == AtTime(9)
    for wrong in ("-10", "10m", "", "-1.5", "9" * 16, "2026-13-01"):
        with pytest.raises(ConfigError, match="'t' is"):
            parse_time("t", wrong)


def test_the_strongest_of_several_starts() -> None:
    given = BASE | {
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"T":5}',
        "startingTimestamp": "7",
        "endingOffsets": "latest",
        "endingOffsetsByTimestamp": '{"T":8}',
    }
    options = ReadOptions.of(given)
    assert options.starting_offsets.position(queue(0)) == AtTime(7)
    assert options.ending_offsets.position(queue(0)) == AtTime(8)
    del given["startingTimestamp"]
    assert ReadOptions.of(given).starting_offsets.position(queue(0)) == AtTime(5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("newest", "not earliest, latest, group or JSON"),
        ('{"T":"newest"}', "'T' has 'newest', not earliest, latest, group or JSON"),
        ("[1]", "object of topics"),
        ('{"T":7}', "not an object"),
        ('{"T":{"b":[0]}}', "not an object"),
        ('{"T":{"b":{"x":1}}}', "'x'"),
        ('{"T":{"b":{"0":true}}}', "not an integer"),
        ('{"T":{"b":{"0":1.5}}}', "not an integer"),
        ('{"T":{"b":{"0":-4}}}', "-4; it must be -3 to"),
        ('{"T":{"b":{"0":1,"0":2}}}', "twice"),
    ],
)
def test_wrong_offsets(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_offsets("startingOffsets", text, EARLIEST)


def test_json_of_offsets_depends_on_the_offsets_only() -> None:
    offsets = {queue(n, t): n * 7 for n in range(12) for t in ("T", "A")}
    shuffled = list(offsets.items())
    random.Random(1).shuffle(shuffled)
    text = json.dumps(offsets_table(offsets))
    assert json.dumps(offsets_table(dict(shuffled))) == text
    assert offsets_of_table(json.loads(text)) == offsets
    assert list(json.loads(text)) == ["A", "T"]
    for wrong in ({"T": 7}, {"T": {"b": {"x": 1}}}, {"T": {"b": {"0": None}}}):
        with pytest.raises(ConfigError, match="checkpoint"):
            offsets_of_table(wrong)


# -------------------------------------------------------------------------------- ranges

BOUNDS = {queue(0): (5, 100), queue(1): (0, 0), queue(2): (0, 10)}
LOWS = {one: low for one, (low, _) in BOUNDS.items()}
HIGHS = {one: high for one, (_, high) in BOUNDS.items()}
ADDRESSES = {"broker-a": "127.0.0.1:10911"}


def test_ranges_of_all_there_is() -> None:
    ranges = resolve_ranges(BOUNDS, ADDRESSES, LOWS, HIGHS, fail_on_data_loss=True)
    assert ranges == [part(0, 5, 100), part(2, 0, 10)]
    assert resolve_ranges(BOUNDS, ADDRESSES, HIGHS, HIGHS, fail_on_data_loss=True) == []
    assert resolve_ranges(BOUNDS, ADDRESSES, HIGHS, LOWS, fail_on_data_loss=True) == []


@pytest.mark.parametrize(
    ("start", "end", "cut"),
    [
        (0, 50, (5, 50)),
        (50, 200, (50, 100)),
        (200, 300, None),
        (0, 3, None),
    ],
)
def test_what_the_broker_does_not_have(start: int, end: int, cut: tuple[int, int] | None) -> None:
    bounds = {queue(0): BOUNDS[queue(0)]}
    places = {queue(0): start}, {queue(0): end}
    with pytest.raises(DataLossError, match=r"'T'.*queue 0.*\[5, 100\).*failOnDataLoss"):
        resolve_ranges(bounds, ADDRESSES, *places, fail_on_data_loss=True)
    found = resolve_ranges(bounds, ADDRESSES, *places, fail_on_data_loss=False)
    assert found == ([part(0, *cut)] if cut else [])


def test_queues_that_do_not_exist() -> None:
    spec = parse_offsets("startingOffsets", '{"T":{"broker-a":{"9":1}}}', EARLIEST)
    with pytest.raises(ConfigError, match=r"'startingOffsets'.*queue 9"):
        spec.check_queues(BOUNDS)


# --------------------------------------------------------------------------------- plans


def test_small_ranges_share_a_task() -> None:
    plan = plan_partitions([part(n, 0, 100) for n in range(64)], min_records=1000)
    assert [one.size for one in plan] == [1000] * 6 + [400]
    assert len(plan_partitions([part(n, 0, 100) for n in range(64)])) == 64
    assert plan_partitions([part(0, 3, 3)]) == []


def test_big_ranges_are_cut() -> None:
    plan = plan_partitions([part(0, 7, 1007), part(1, 0, 10)], max_records=300, min_records=50)
    assert [one.size for one in plan] == [250, 250, 250, 250, 10]
    plan = plan_partitions([part(0, 0, 1000)], min_partitions=7)
    assert len(plan) >= 7


@pytest.mark.parametrize("seed", range(200))
def test_a_plan_covers_every_offset_once_and_keeps_the_order(seed: int) -> None:
    source = random.Random(seed)
    ranges = [
        part(n, start, start + source.choice([0, 1, 30, 1000, 70_000]))
        for n, start in enumerate(source.choices(range(1000), k=source.randrange(12)))
    ]
    max_records = source.choice([None, 1000, 12_345])
    min_partitions = source.choice([None, 1, 5, 40])
    plan = plan_partitions(
        ranges,
        max_records=max_records,
        min_partitions=min_partitions,
        min_records=source.choice([0, 100, 10_000]),
    )
    pieces = [piece for one in plan for piece in one.ranges]
    assert all(piece.size > 0 for piece in pieces)
    if max_records is not None:
        assert all(one.size <= max_records for one in plan)
    total = sum(one.size for one in ranges)
    if min_partitions is not None and total >= min_partitions * 10:
        assert len(plan) >= min_partitions * 0.9
    for wanted in ranges:
        mine = [piece for piece in pieces if piece.queue == wanted.queue]
        assert [piece.start for piece in mine[1:]] == [piece.end for piece in mine[:-1]]
        if wanted.size:
            assert (mine[0].start, mine[-1].end) == (wanted.start, wanted.end)


# -------------------------------------------------------------------------------- schema


def test_schemas_of_users() -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    assert check_schema(SCHEMA) == COLUMNS
    assert check_schema(schema_of(["body", "topic"])) == ("body", "topic")
    not_null = StructType([StructField("queueOffset", LongType(), False)])
    assert check_schema(not_null) == ("queueOffset",)
    for field, message in [
        (StructField("queueOffset", StringType()), "bigint"),
        (StructField("bodies", StringType()), "did you mean 'body'"),
        (StructField("Body", StringType()), "spelled"),
        (StructField("tags", StringType(), False), "null"),
    ]:
        with pytest.raises(ConfigError, match=message):
            check_schema(StructType([field]))


# ------------------------------------------------------------------------- documentation


def test_the_page_lists_the_options_and_columns(repository: Path) -> None:
    from rocketmq_fast.spark import options

    page = (repository / "docs" / "spark.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    names = {row[0].removeprefix("| ") for row in rows}
    listed = {
        (name.partition(" (")[0], tuple(name.partition(" (")[2].rstrip(")").split(", ")))
        if "(" in name
        else (name, ())
        for name in names
    }
    assert set(options.READ_OPTIONS.items()) <= listed
    columns = {column for name in names for column in name.split(", ")}
    assert set(COLUMNS) <= columns
    defaults = {row[0].removeprefix("| ").partition(" (")[0]: row[1] for row in rows}
    chosen = ReadOptions.of(BASE)
    assert int(defaults["arrowBatchRows"]) == chosen.arrow_batch_rows
    assert int(defaults["minRecordsPerPartition"]) == chosen.min_records_per_partition
    assert int(defaults["pullBatchSize"]) == chosen.pull_batch_size
    assert int(defaults["pullPipeline"]) == chosen.pull_pipeline
    assert int(defaults["pullTimeoutMs"]) == chosen.pull_timeout * 1000
    assert defaults["group"].strip("`") == chosen.group


KAFKA_OPTIONS = """
    kafka.bootstrap.servers assign subscribe subscribePattern startingTimestamp
    startingOffsetsByTimestamp startingOffsets endingTimestamp endingOffsetsByTimestamp
    endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs fetchOffset.numRetries
    fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay
    minPartitions maxRecordsPerPartition groupIdPrefix kafka.group.id includeHeaders
    startingOffsetsByTimestampStrategy
""".split()


def test_the_page_for_users_of_kafka_lists_the_options_of_both(repository: Path) -> None:
    from rocketmq_fast.spark.options import READ_OPTIONS

    page = (repository / "docs" / "from-spark-kafka.md").read_text(encoding="utf-8")
    table = page.split("| Kafka's column")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    theirs = {name.strip() for row in rows[1:] for name in row[0].split(",")}
    ours = {name.strip() for row in rows[1:] for name in row[1].split(",")} - {""}
    assert theirs >= set(KAFKA_OPTIONS)
    assert ours <= {*READ_OPTIONS, *(name for names in READ_OPTIONS.values() for name in names)}
