"""Options and columns of a write: what may be given, checked on the driver before any task."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.producer.options import ProducerOptions, producer_options
from rocketmq_fast.protocol.names import (
    DEFAULT_PRODUCER_GROUP,
    NOT_SENDABLE_TOPICS,
    check_topic,
)
from rocketmq_fast.spark.option_parser import CONNECTION_OPTIONS, ConnectOptions, OptionParser

# Never random, for the same reason as the group of reads.
DEFAULT_GROUP = "SPARK_ROCKETMQ_PRODUCER"

# Canonical name -> other names for it.
WRITE_OPTIONS: dict[str, tuple[str, ...]] = CONNECTION_OPTIONS | {
    "topic": ("path",),
    "producerGroup": ("group",),
    "sendMode": (),
    "batchBytes": (),
    "maxInFlight": (),
    "sendTimeoutMs": (),
    "retries": (),
    "retryIntervalMs": (),
    "compressOver": (),
    "reservedProperties": (),
}
# A streaming write gets it too; it is Spark's.
_CHECKPOINT = "checkpointlocation"
# What an Apache broker takes in one request by default, as it counts: with the bytes that each
# message gets when it is stored.
MAX_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options of a write. Times are seconds."""

    connection: ConnectOptions
    topic: str | None
    group: str
    single: bool
    batch_bytes: int
    max_in_flight: int
    send_timeout: float
    retries: int
    retry_interval: float
    compress_over: int
    drop_reserved: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Check what the user gave. Raises ConfigError that names the option."""
        given = {name: text for name, text in options.items() if name.lower() != _CHECKPOINT}
        parser = OptionParser(given, WRITE_OPTIONS, "a write to rocketmq")
        connection = parser.connection()
        topic = parser.optional("topic")
        if topic is not None:
            try:
                check_write_topic(Namespace(connection.namespace).wrap(topic))
            except ConfigError as error:
                raise ConfigError(f"option {parser.spelled('topic')!r}: {error}") from error
        return cls(
            connection=connection,
            topic=topic,
            group=parser.group("producerGroup", DEFAULT_GROUP, DEFAULT_PRODUCER_GROUP),
            single=parser.choice("sendMode", "batch", "single") == "single",
            batch_bytes=parser.size("batchBytes", 1 << 20, MAX_BATCH_BYTES),
            max_in_flight=parser.integer("maxInFlight", 8, 1, 1000),
            send_timeout=parser.integer("sendTimeoutMs", 20_000, 1, 2**31 - 1) / 1000,
            retries=parser.integer("retries", 6, 0, 100),
            retry_interval=parser.integer("retryIntervalMs", 1_000, 0, 3_600_000) / 1000,
            compress_over=parser.size("compressOver", 4096, 2**31 - 1),
            drop_reserved=parser.choice("reservedProperties", "fail", "drop") == "drop",
        )

    def producer(self) -> ProducerOptions:
        """Options of the producer. Attempts are the writer's business, so it makes none itself."""
        connection: dict[str, Any] = {
            field.name: getattr(self.connection, field.name)
            for field in dataclasses.fields(self.connection)
        }
        connection["namesrv_addr"] = list(self.connection.namesrv_addr)
        milliseconds = round(self.send_timeout * 1000)
        return producer_options(
            connection
            | {
                "send_msg_timeout": milliseconds,
                "mq_client_api_timeout": milliseconds,
                "retry_times_when_send_async_failed": 0,
                "compress_msg_body_over_howmuch": self.compress_over,
            }
        )


def check_write_topic(topic: str) -> None:
    """Raise ConfigError unless messages can be sent to a topic of the name on the wire."""
    check_topic(topic)
    if topic in NOT_SENDABLE_TOPICS:
        raise ConfigError(f"topic {topic!r} belongs to the broker; it takes no messages")


_TYPES: dict[str, tuple[DataType, ...]] = {
    "body": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "tags": (StringType(),),
    "keys": (StringType(), ArrayType(StringType())),
    "properties": (MapType(StringType(), StringType()),),
    "shardingKey": (StringType(),),
    "delayLevel": (IntegerType(),),
    "flag": (IntegerType(),),
    "brokerName": (StringType(),),
    "queueId": (IntegerType(),),
}
WRITE_COLUMNS = tuple(_TYPES)


def check_columns(schema: StructType, options: WriteOptions) -> dict[str, int]:
    """Where each column of ours stands in the rows; names ignore case. Raises ConfigError."""
    by_lower = {name.lower(): name for name in WRITE_COLUMNS}
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = by_lower.get(field.name.lower())
        if name is None:
            near = difflib.get_close_matches(field.name.lower(), by_lower, 1, 0.0)[0]
            raise ConfigError(
                f"a write to rocketmq has no column {field.name!r}; did you mean "
                f"{by_lower[near]!r}? select only what is to be written: {', '.join(WRITE_COLUMNS)}"
            )
        if name in places:
            raise ConfigError(f"column {name!r} is there twice")
        if not any(_same(field.dataType, kind) for kind in _TYPES[name]):
            wanted = " or ".join(kind.simpleString() for kind in _TYPES[name])
            raise ConfigError(
                f"column {field.name!r} must be {wanted}, it is {field.dataType.simpleString()}; "
                "cast it"
            )
        places[name] = place
    if "body" not in places:
        raise ConfigError("column 'body' is missing; it is the message: binary or string")
    if "topic" not in places and options.topic is None:
        raise ConfigError("where to? set option 'topic' or add a column 'topic'")
    if ("brokerName" in places) != ("queueId" in places):
        raise ConfigError("columns 'brokerName' and 'queueId' name a queue together; one is there")
    if "queueId" in places and "shardingKey" in places:
        raise ConfigError("columns 'queueId' and 'shardingKey' both choose the queue; give one")
    return places


def _same(given: DataType, wanted: DataType) -> bool:
    """Whether the types are alike but for what may be null."""
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _same(given.elementType, wanted.elementType)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _same(given.keyType, wanted.keyType) and _same(given.valueType, wanted.valueType)
    # Strings of any collation, and varchar.
    return isinstance(given, type(wanted))
