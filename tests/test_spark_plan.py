"""Options, offsets and plans of the data source, without Spark running."""

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
    DataLossError,
    OffsetSpec,
    QueueRange,
    offsets_json,
    parse_offsets,
)
from rocketmq_fast.spark.options import ReadOptions  # noqa: E402
from rocketmq_fast.spark.planner import plan_partitions, resolve_ranges  # noqa: E402
from rocketmq_fast.spark.schema import COLUMNS, SCHEMA, check_schema, schema_of  # noqa: E402

BASE = {"namesrvAddr": "127.0.0.1:9876", "topic": "T"}


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def part(number: int, start: int, end: int) -> QueueRange:
    return QueueRange(queue(number), start, end, "127.0.0.1:10911")


# ------------------------------------------------------------------------------- options


def test_defaults() -> None:
    options = ReadOptions.of(BASE)
    assert options.namesrv_addr == ("127.0.0.1:9876",)
    assert options.topics == ("T",)
    assert options.tags == "*"
    assert options.columns == COLUMNS
    assert options.starting_offsets.default == "earliest"
    assert options.ending_offsets.default == "latest"
    assert options.fail_on_data_loss
    assert (options.arrow_batch_rows, options.arrow_batch_bytes) == (10_000, 16 << 20)
    assert (options.pull_batch_size, options.pull_pipeline, options.pull_timeout) == (32, 8, 20.0)


def test_names_ignore_case_and_have_aliases() -> None:
    options = ReadOptions.of(
        {"nameserver": "a:1;b:2,c:3", "SUBSCRIBE": "T, U,T", "subexpression": "A,B"}
    )
    assert options.namesrv_addr == ("a:1", "b:2", "c:3")
    assert options.topics == ("T", "U")
    assert options.tags == "A||B"
    assert ReadOptions.of({"namesrvaddr": "a:1", "path": "T"}).topics == ("T",)
    assert ReadOptions.of({"namesrvaddr": "a:1", "paths": '["T","U"]'}).topics == ("T", "U")


def test_environment_names_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "x:1")
    assert ReadOptions.of({"topic": "T"}).namesrv_addr == ("x:1",)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="namesrvAddr"):
        ReadOptions.of({"topic": "T"})


def test_columns() -> None:
    assert ReadOptions.of(BASE | {"columns": "BODY, queueid"}).columns == ("body", "queueId")
    assert ReadOptions.of(BASE | {"includeProperties": "false"}).columns == COLUMNS[:-1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"arrowbatchrow": "1"}, "did you mean 'arrowBatchRows'"),
        ({"subscribe": "U"}, "mean the same"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"pullBatchSize": "0"}, "at least 1"),
        ({"pullBatchSize": "1e3"}, "not an integer"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
        ({"arrowBatchBytes": "16q"}, "not a size"),
        ({"arrowBatchBytes": "2g"}, "at most"),
        ({"columns": "bdoy"}, "did you mean 'body'"),
        ({"columns": "body,BODY"}, "twice"),
        ({"columns": "properties", "includeProperties": "false"}, "includeProperties"),
        ({"group": "not a group"}, "group"),
        ({"tags": "||"}, "separators"),
        ({"onCorruptMessage": "ignore"}, "fail, skip"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"topic": "T,a b"}, "a b"),
        ({"topic": ""}, "blank"),
    ],
)
def test_wrong_options(more: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReadOptions.of(BASE | more)


def test_sizes_have_units() -> None:
    for text, size in {"16m": 16 << 20, "64 KB": 64 << 10, "1g": 1 << 30, "77": 77}.items():
        assert ReadOptions.of(BASE | {"arrowBatchBytes": text}).arrow_batch_bytes == size


# ------------------------------------------------------------------------------- offsets


def test_offsets_of_json() -> None:
    text = '{"T":{"broker-a":{"0":23,"1":-1,"2":-2}},"U":"latest"}'
    spec = parse_offsets("startingOffsets", text, ["T", "U", "V"])
    assert spec.resolve(queue(0), 5, 100) == 23
    assert spec.resolve(queue(1), 5, 100) == 100
    assert spec.resolve(queue(2), 5, 100) == 5
    assert spec.resolve(queue(3), 5, 100) == 5
    assert spec.resolve(queue(0, "U"), 5, 100) == 100
    assert spec.resolve(queue(0, "V"), 5, 100) == 5
    assert parse_offsets("endingOffsets", "{}", ["T"]).resolve(queue(0), 5, 100) == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("newest", "not earliest, latest or JSON"),
        ("[1]", "object of topics"),
        ('{"X":{}}', "'X'"),
        ('{"T":7}', "not an object"),
        ('{"T":{"b":[0]}}', "not an object"),
        ('{"T":{"b":{"x":1}}}', "'x'"),
        ('{"T":{"b":{"0":true}}}', "not an integer"),
        ('{"T":{"b":{"0":1.5}}}', "not an integer"),
        ('{"T":{"b":{"0":-3}}}', "least"),
        ('{"T":{"b":{"0":1,"0":2}}}', "twice"),
    ],
)
def test_wrong_offsets(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_offsets("startingOffsets", text, ["T"])


def test_json_of_offsets_depends_on_the_offsets_only() -> None:
    offsets = {queue(n, t): n * 7 for n in range(12) for t in ("T", "A")}
    shuffled = list(offsets.items())
    random.Random(1).shuffle(shuffled)
    text = offsets_json(offsets)
    assert offsets_json(dict(shuffled)) == text
    assert parse_offsets("startingOffsets", text, ["T", "A"]).queues == offsets
    assert list(json.loads(text)) == ["A", "T"]


# -------------------------------------------------------------------------------- ranges

EARLIEST, LATEST = OffsetSpec("earliest"), OffsetSpec("latest")
BOUNDS = {queue(0): (5, 100), queue(1): (0, 0), queue(2): (0, 10)}
ADDRESSES = {"broker-a": "127.0.0.1:10911"}


def test_ranges_of_all_there_is() -> None:
    ranges = resolve_ranges(BOUNDS, ADDRESSES, EARLIEST, LATEST, fail_on_data_loss=True)
    assert ranges == [part(0, 5, 100), part(2, 0, 10)]
    assert resolve_ranges(BOUNDS, ADDRESSES, LATEST, LATEST, fail_on_data_loss=True) == []


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
    specs = [OffsetSpec("earliest", {}, {queue(0): n}) for n in (start, end)]
    bounds = {queue(0): BOUNDS[queue(0)]}
    with pytest.raises(DataLossError, match=r"'T'.*queue 0.*\[5, 100\).*failOnDataLoss"):
        resolve_ranges(bounds, ADDRESSES, *specs, fail_on_data_loss=True)
    found = resolve_ranges(bounds, ADDRESSES, *specs, fail_on_data_loss=False)
    assert found == ([part(0, *cut)] if cut else [])


def test_queues_that_do_not_exist() -> None:
    spec = OffsetSpec("earliest", {}, {queue(9): 1})
    with pytest.raises(ConfigError, match="queue 9"):
        resolve_ranges(BOUNDS, ADDRESSES, spec, LATEST, fail_on_data_loss=False)
    backwards = OffsetSpec("latest", {}, {queue(0): 10}), OffsetSpec("latest", {}, {queue(0): 9})
    with pytest.raises(ConfigError, match="behind"):
        resolve_ranges(BOUNDS, ADDRESSES, *backwards, fail_on_data_loss=True)


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
    assert set(options._READ_OPTIONS.items()) <= listed
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
