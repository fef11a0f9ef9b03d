"""Options of the data source: names, defaults and checks.

Names are case-insensitive, as Spark's are; the aliases are what other RocketMQ connectors, and
Spark's Kafka source, call the same thing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rocketmq_fast._core import TagFilter
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.protocol.names import check_group, check_topic
from rocketmq_fast.spark.offsets import EARLIEST, LATEST, OffsetSpec, parse_offsets
from rocketmq_fast.spark.option_parser import OptionParser
from rocketmq_fast.spark.schema import COLUMNS, column_names

# Never random: each new name would leave a group behind in the broker's tables.
DEFAULT_GROUP = "SPARK_ROCKETMQ"
_RESERVED_GROUP = "DEFAULT_CONSUMER"

# Canonical name -> other names for it.
_READ_OPTIONS: dict[str, tuple[str, ...]] = {
    "namesrvAddr": ("nameServer", "nameServerAddress"),
    "topic": ("subscribe", "path", "paths"),
    "tags": ("subExpression",),
    "group": (),
    "columns": (),
    "includeProperties": (),
    "startingOffsets": (),
    "endingOffsets": (),
    "failOnDataLoss": (),
    "onCorruptMessage": (),
    "maxRecordsPerPartition": (),
    "minPartitions": (),
    "minRecordsPerPartition": (),
    "arrowBatchRows": (),
    "arrowBatchBytes": (),
    "pullBatchSize": (),
    "pullPipeline": (),
    "pullTimeoutMs": (),
    "fetchOffset.numRetries": (),
    "fetchOffset.retryIntervalMs": (),
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of a read. Times are seconds.

    `columns` are those of the option `columns`, or all but what `includeProperties` leaves out.
    """

    namesrv_addr: tuple[str, ...]
    topics: tuple[str, ...]
    tags: str
    group: str
    columns: tuple[str, ...]
    starting_offsets: OffsetSpec
    ending_offsets: OffsetSpec
    fail_on_data_loss: bool
    skip_corrupt: bool
    max_records_per_partition: int | None
    min_partitions: int | None
    min_records_per_partition: int
    arrow_batch_rows: int
    arrow_batch_bytes: int
    pull_batch_size: int
    pull_pipeline: int
    pull_timeout: float
    retries: int
    retry_interval: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Check what the user gave. Raises ConfigError that names the option."""
        return _ReadParser(options, _READ_OPTIONS).read_options()


class _ReadParser(OptionParser):
    """Options of a read."""

    def read_options(self) -> ReadOptions:
        topics = self._topics()
        starting = parse_offsets("startingOffsets", self.text("startingOffsets", EARLIEST), topics)
        ending = parse_offsets("endingOffsets", self.text("endingOffsets", LATEST), topics)
        if ending.default == EARLIEST:
            raise ConfigError("option 'endingOffsets' cannot be 'earliest'")
        group = self.text("group", DEFAULT_GROUP)
        check_group(group, _RESERVED_GROUP)
        return ReadOptions(
            namesrv_addr=self.connection().namesrv_addr,
            topics=topics,
            tags=self._tags(),
            group=group,
            columns=self._columns(),
            starting_offsets=starting,
            ending_offsets=ending,
            fail_on_data_loss=self.boolean("failOnDataLoss", True),
            skip_corrupt=self.choice("onCorruptMessage", "fail", "skip") == "skip",
            max_records_per_partition=self.optional_integer("maxRecordsPerPartition", 1),
            min_partitions=self.optional_integer("minPartitions", 1),
            min_records_per_partition=self.integer("minRecordsPerPartition", 10_000, 0),
            arrow_batch_rows=self.integer("arrowBatchRows", 10_000, 1),
            arrow_batch_bytes=self.size("arrowBatchBytes", 16 << 20, 1 << 30),
            pull_batch_size=self.integer("pullBatchSize", 32, 1, 1 << 16),
            pull_pipeline=self.integer("pullPipeline", 8, 1, 256),
            pull_timeout=self.integer("pullTimeoutMs", 20_000, 1) / 1000,
            retries=self.integer("fetchOffset.numRetries", 3, 0),
            retry_interval=self.integer("fetchOffset.retryIntervalMs", 1_000, 0) / 1000,
        )

    def _topics(self) -> tuple[str, ...]:
        value = self._given.get("topic")
        if value is None:
            raise ConfigError("option 'topic' is not set")
        if self._spelled["topic"] == "paths":  # load(["A", "B"])
            names = [str(name) for name in json.loads(value)]
        else:
            names = value.split(",")
        topics = []
        for name in (name.strip() for name in names):
            check_topic(name)
            if name not in topics:
                topics.append(name)
        return tuple(topics)

    def _tags(self) -> str:
        value = self.text("tags", "*")
        if "," in value and "||" not in value:
            value = "||".join(value.split(","))
        return TagFilter(value).expression

    def _columns(self) -> tuple[str, ...]:
        with_properties = self.boolean("includeProperties", True)
        value = self._given.get("columns")
        if value is None:
            return COLUMNS if with_properties else COLUMNS[: COLUMNS.index("properties")]
        names = column_names(name.strip() for name in value.split(","))
        if not with_properties and "properties" in names:
            raise ConfigError("option 'columns' names 'properties', 'includeProperties' is false")
        return names
