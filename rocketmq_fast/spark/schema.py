"""Columns of the data source: the names and types that decode_arrow has, as Spark types."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketmq_fast.errors import ConfigError

_TYPES: dict[str, DataType] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "tags": StringType(),
    "keys": StringType(),
    "body": BinaryType(),
    "msgId": StringType(),
    "offsetMsgId": StringType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "sysFlag": IntegerType(),
    "flag": IntegerType(),
    "reconsumeTimes": IntegerType(),
    "storeSize": IntegerType(),
    "bodyCRC": IntegerType(),
    "commitLogOffset": LongType(),
    "preparedTransactionOffset": LongType(),
    "properties": MapType(StringType(), StringType()),
}
COLUMNS = tuple(_TYPES)

SCHEMA = StructType([StructField(name, kind) for name, kind in _TYPES.items()])


def column_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names with our capitals, given in any. Raises ConfigError for an unknown or repeated one."""
    by_lower = {name.lower(): name for name in COLUMNS}
    chosen = []
    for name in names:
        known = by_lower.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name.lower(), by_lower, 1, 0.0)[0]
            raise ConfigError(
                f"the rocketmq source has no column {name!r}; did you mean {by_lower[near]!r}?"
            )
        if known in chosen:
            raise ConfigError(f"column {known!r} is named twice")
        chosen.append(known)
    if not chosen:
        raise ConfigError("at least one column is needed")
    return tuple(chosen)


def schema_of(names: Iterable[str], *, decode_body: bool = False) -> StructType:
    """The Spark schema of some columns, in their order; the body as text if that is wanted."""
    return StructType([StructField(name, _type(name, decode_body)) for name in names])


def _type(name: str, decode_body: bool) -> DataType:
    return StringType() if decode_body and name == "body" else _TYPES[name]


def check_schema(schema: StructType, *, decode_body: bool = False) -> tuple[str, ...]:
    """Columns of a schema that the user gave: any subset of ours, in any order.

    Raises ConfigError for an unknown column or another type. A field may be declared not null only
    if the source never gives null for it.
    """
    names = tuple(field.name for field in schema.fields)
    if column_names(names) != names:
        raise ConfigError(
            f"columns of a schema are spelled as the source spells them: {', '.join(COLUMNS)}"
        )
    for field in schema.fields:
        wanted = _type(field.name, decode_body)
        if field.dataType != wanted:
            hint = "; option 'decodeBody' makes it text" if wanted == BinaryType() else ""
            raise ConfigError(
                f"column {field.name!r} is {wanted.simpleString()}, "
                f"the schema says {field.dataType.simpleString()}{hint}"
            )
        if not field.nullable and field.name in ("tags", "keys", "bornTimestamp", "storeTimestamp"):
            raise ConfigError(f"column {field.name!r} can be null, the schema says it cannot")
    return names
