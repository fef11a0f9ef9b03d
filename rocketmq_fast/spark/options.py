"""Options of a read: names, defaults and checks.

Names are case-insensitive, as Spark's are; the aliases are what other RocketMQ connectors, and
Spark's Kafka source, call the same thing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rocketmq_fast._core import TagFilter
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.names import DEFAULT_CONSUMER_GROUP
from rocketmq_fast.spark.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    OffsetSpec,
    Position,
    now_ms,
    parse_offsets,
    parse_queues,
    parse_time,
    parse_times,
)
from rocketmq_fast.spark.option_parser import CONNECTION_OPTIONS, ConnectOptions, OptionParser
from rocketmq_fast.spark.schema import COLUMNS, column_names

# Never random: each new name would leave a group behind in the broker's tables.
DEFAULT_GROUP = "SPARK_ROCKETMQ"

# Canonical name -> other names for it.
READ_OPTIONS: dict[str, tuple[str, ...]] = {
    **CONNECTION_OPTIONS,
    "topic": ("subscribe", "path", "paths"),
    "topicPattern": ("subscribePattern",),
    "assign": (),
    "tags": ("subExpression",),
    "expression": (),
    "expressionType": (),
    "group": (),
    "columns": (),
    "includeProperties": (),
    "decodeBody": (),
    "startingOffsets": (),
    "startingTimestamp": (),
    "startingOffsetsByTimestamp": (),
    "startingOffsetsByTimestampStrategy": (),
    "groupOffsetFallback": (),
    "endingOffsets": (),
    "endingTimestamp": (),
    "endingOffsetsByTimestamp": (),
    "failOnDataLoss": (),
    "onCorruptMessage": (),
    "maxRecordsPerPartition": (),
    "minPartitions": (),
    "minRecordsPerPartition": (),
    "maxOffsetsPerTrigger": ("maxRecordsPerTrigger",),
    "maxBytesPerTrigger": (),
    "minOffsetsPerTrigger": ("minRecordsPerTrigger",),
    "maxTriggerDelay": (),
    "latestOffsetIntervalMs": (),
    "routeRefreshMs": (),
    "commitOffsets": (),
    "pushFilters": (),
    "arrowBatchRows": (),
    "arrowBatchBytes": (),
    "pullBatchSize": (),
    "pullPipeline": (),
    "pullTimeoutMs": (),
    "fetchOffset.numRetries": (),
    "fetchOffset.retryIntervalMs": (),
}
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters")
_STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "latestOffsetIntervalMs",
    "routeRefreshMs",
    "commitOffsets",
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of a read. Times are seconds.

    Of `topics`, `pattern` and `assigned` one says what is read. `sql` is an expression that the
    broker filters by; else `tags` is one. `columns` are those of the option `columns`, or all but
    what `includeProperties` leaves out.
    """

    connect: ConnectOptions
    topics: tuple[str, ...]
    pattern: str | None
    assigned: frozenset[MessageQueue] | None
    tags: str
    sql: str | None
    group: str
    columns: tuple[str, ...]
    decode_body: bool
    starting_offsets: OffsetSpec
    ending_offsets: OffsetSpec
    time_strategy: str
    group_fallback: str
    fail_on_data_loss: bool
    on_corrupt: str
    max_records_per_partition: int | None
    min_partitions: int | None
    min_records_per_partition: int
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_trigger_delay: float
    latest_interval: float
    route_refresh: float
    commit_offsets: bool
    push_filters: bool
    arrow_batch_rows: int
    arrow_batch_bytes: int
    pull_batch_size: int
    pull_pipeline: int
    pull_timeout: float
    retries: int
    retry_interval: float

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool | None = False) -> ReadOptions:
        """Check what the user gave. Raises ConfigError that names the option.

        None for `streaming`: it is not known yet, so the options of both are let through.
        """
        return _read_options(OptionParser(options, READ_OPTIONS), streaming)


def _read_options(given: OptionParser, streaming: bool | None) -> ReadOptions:
    if streaming is not None:
        for name in _BATCH_ONLY if streaming else _STREAM_ONLY:
            if name in given:
                kind = "batch" if streaming else "streaming"
                raise ConfigError(f"option {given.spelled(name)!r} is for {kind} reads only")
    connect = given.connection()
    topics, pattern, assigned = _topics(given, connect.namespace)
    starting = _place(given, "starting", LATEST if streaming else EARLIEST, EARLIEST)
    ending = _place(given, "ending", LATEST, LATEST)
    if pattern is None:
        starting.check_topics(topics)
        ending.check_topics(topics)
    _check_times(starting.default, ending.default)
    max_offsets = given.optional_integer("maxOffsetsPerTrigger", 1)
    min_offsets = given.optional_integer("minOffsetsPerTrigger", 1)
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise ConfigError(
            f"option {given.spelled('minOffsetsPerTrigger')!r} is {min_offsets}, more than "
            f"{given.spelled('maxOffsetsPerTrigger')!r}, {max_offsets}"
        )
    if "maxTriggerDelay" in given and min_offsets is None:
        raise ConfigError("option 'maxTriggerDelay' needs 'minOffsetsPerTrigger'")
    commit_offsets = given.boolean("commitOffsets", False)
    if commit_offsets and "group" not in given:
        raise ConfigError("option 'commitOffsets' needs 'group', which shows the progress")
    tags, sql = _filter(given)
    on_corrupt = given.choice("onCorruptMessage", "fail", "skip", "raw")
    decode_body = given.boolean("decodeBody", False)
    if decode_body and on_corrupt == "raw":
        raise ConfigError(
            "option 'onCorruptMessage' is raw: stored bytes are no text; it needs 'decodeBody' to "
            "be false"
        )
    return ReadOptions(
        connect=connect,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        tags=tags,
        sql=sql,
        group=given.group("group", DEFAULT_GROUP, DEFAULT_CONSUMER_GROUP),
        columns=_columns(given),
        decode_body=decode_body,
        starting_offsets=starting,
        ending_offsets=ending,
        time_strategy=given.choice("startingOffsetsByTimestampStrategy", "latest", "error"),
        group_fallback=given.choice("groupOffsetFallback", "earliest", "latest", "error"),
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        on_corrupt=on_corrupt,
        max_records_per_partition=given.optional_integer("maxRecordsPerPartition", 1),
        min_partitions=given.optional_integer("minPartitions", 1),
        min_records_per_partition=given.integer("minRecordsPerPartition", 10_000, 0),
        max_offsets=max_offsets,
        max_bytes=given.size("maxBytesPerTrigger", 0) if "maxBytesPerTrigger" in given else None,
        min_offsets=min_offsets,
        max_trigger_delay=given.seconds("maxTriggerDelay", "15m"),
        latest_interval=given.integer("latestOffsetIntervalMs", 100, 0) / 1000,
        route_refresh=given.integer("routeRefreshMs", 30_000, 0) / 1000,
        commit_offsets=commit_offsets,
        push_filters=given.boolean("pushFilters", False),
        arrow_batch_rows=given.integer("arrowBatchRows", 10_000, 1),
        # Text has three bytes for one that is malformed, and 2 GiB at most.
        arrow_batch_bytes=given.size("arrowBatchBytes", 16 << 20, 1 << (28 if decode_body else 30)),
        pull_batch_size=given.integer("pullBatchSize", 32, 1, 1 << 16),
        pull_pipeline=given.integer("pullPipeline", 8, 1, 256),
        pull_timeout=given.integer("pullTimeoutMs", 20_000, 1, 2**31 - 1) / 1000,
        retries=given.integer("fetchOffset.numRetries", 3, 0, 1000),
        retry_interval=given.integer("fetchOffset.retryIntervalMs", 1_000, 0, 3_600_000) / 1000,
    )


def _check_times(start: Position, end: Position) -> None:
    now = now_ms()
    if isinstance(start, AtTime) and isinstance(end, AtTime) and start.at(now) > end.at(now):
        raise ConfigError("option 'startingTimestamp' is after 'endingTimestamp'")


def _topics(
    given: OptionParser, namespace: str | None
) -> tuple[tuple[str, ...], str | None, frozenset[MessageQueue] | None]:
    """Topics, pattern and queues; the topics are those of the queues where these are given."""
    ways = [name for name in ("topic", "topicPattern", "assign") if name in given]
    if len(ways) != 1:
        which = " and ".join(repr(given.spelled(name)) for name in ways) or "none"
        raise ConfigError(
            f"one of the options 'topic', 'topicPattern' and 'assign' is needed, {which} is set"
        )
    value = given.text(ways[0], "")
    if ways[0] == "topicPattern":
        try:
            re.compile(value)
        except re.error as error:
            raise ConfigError(
                f"option {given.spelled('topicPattern')!r} is {value!r}, not a regular expression: "
                f"{error}"
            ) from error
        if not value:
            raise ConfigError(f"option {given.spelled('topicPattern')!r} is blank")
        return (), value, None
    if ways[0] == "assign":
        queues = parse_queues("assign", value)
        named = sorted({queue.topic for queue in queues})
        return given.topics("assign", named, namespace), None, queues
    names = given.listed("topic") if given.spelled("topic") == "paths" else value.split(",")
    return given.topics("topic", names, namespace), None, None


def _place(given: OptionParser, end: str, default: int, left_out: int) -> OffsetSpec:
    """Where the range starts or ends; `left_out` is for queues that a JSON leaves out.

    A time for all is the strongest, then times, then offsets: as with Spark's Kafka source.
    """
    name = f"{end}Timestamp"
    if name in given:
        return OffsetSpec(name, parse_time(name, given.text(name, "")))
    name = f"{end}OffsetsByTimestamp"
    if name in given:
        return parse_times(name, given.text(name, ""), left_out)
    name = f"{end}Offsets"
    if name in given:
        return parse_offsets(name, given.text(name, ""), left_out)
    return OffsetSpec(name, default)


def _filter(given: OptionParser) -> tuple[str, str | None]:
    """Tags and the SQL92 expression, of which one is trivial."""
    kind = given.choice("expressionType", "tag", "sql92")
    if "expression" in given and "tags" in given:
        raise ConfigError(
            f"options 'expression' and {given.spelled('tags')!r} are two filters; give one of them"
        )
    if kind == "sql92":
        expression = given.text("expression", "")
        if not expression:
            raise ConfigError("option 'expressionType' is SQL92, but 'expression' is not set")
        return "*", expression
    name = "expression" if "expression" in given else "tags"
    value = given.text(name, "*")
    if "," in value and "||" not in value:
        value = "||".join(value.split(","))
    try:
        return TagFilter(value).expression, None
    except ConfigError as error:
        raise ConfigError(f"option {given.spelled(name)!r}: {error}") from error


def _columns(given: OptionParser) -> tuple[str, ...]:
    with_properties = given.boolean("includeProperties", True)
    value = given.optional("columns")
    if value is None:
        return COLUMNS if with_properties else COLUMNS[: COLUMNS.index("properties")]
    try:
        names = column_names(name.strip() for name in value.split(","))
    except ConfigError as error:
        raise ConfigError(f"option 'columns': {error}") from error
    if not with_properties and "properties" in names:
        raise ConfigError("option 'columns' names 'properties', 'includeProperties' is false")
    return names
