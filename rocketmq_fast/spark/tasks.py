"""What a task does: reads its ranges and gives record batches of the schema that Spark expects."""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.spark.brokers import kept_brokers
from rocketmq_fast.spark.options import ReadOptions
from rocketmq_fast.spark.planner import RangesPartition
from rocketmq_fast.spark.reader import RangesReader, RawMessage
from rocketmq_fast.spark.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa

# What the columns of a message that cannot be decoded hold; the others are null.
RAW_SYS_FLAG = -1


def options_for(schema: StructType, options: ReadOptions) -> ReadOptions:
    """The options of a read whose schema the user gave. Raises ConfigError."""
    columns = check_schema(schema, decode_body=options.decode_body)
    if options.on_corrupt == "raw":
        for field in schema.fields:
            if not field.nullable:
                raise ConfigError(
                    f"column {field.name!r} is declared not null, with onCorruptMessage=raw any "
                    "column can be null"
                )
    return dataclasses.replace(options, columns=columns)


def read_task(
    partition: InputPartition, schema: StructType, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Record batches of one task's ranges. On an executor."""
    if not isinstance(partition, RangesPartition):
        return  # Spark makes a partition of its own when there is nothing to read
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    context = TaskContext.get()
    if context is not None:
        _spare_modules()
    again = context is not None and context.attemptNumber() > 0
    brokers = kept_brokers.get(options.connect, fresh=again)
    for batch in RangesReader(brokers, partition.ranges, options.columns, options):
        if isinstance(batch, list):
            yield _raw_rows(batch, wanted)
            continue
        table = pa.record_batch(batch)
        # A user's schema may say "not null", which changes the type and not the data.
        if not table.schema.equals(wanted):
            columns = table.columns
            if options.decode_body and "body" in options.columns:
                place = options.columns.index("body")
                columns[place] = _as_text(columns[place])
            table = pa.RecordBatch.from_arrays(columns, schema=wanted)
        yield table


@functools.cache
def _spare_modules() -> None:
    """Hide what is loaded by now from garbage collection; once in a worker.

    Spark has a worker collect after each task, before it takes the next one. To look through the
    modules of pyspark, pyarrow and numpy takes about 15 ms of CPU time then.
    """
    gc.collect()
    gc.freeze()


def _as_text(bodies: pa.Array) -> pa.Array:
    """Binary as text; what is malformed is replaced, as it is in all text of the source."""
    import pyarrow as pa

    try:
        return bodies.cast(pa.string())  # looks at every byte, copies none
    except pa.ArrowInvalid:
        texts = [
            None if one is None else one.decode("utf-8", "replace") for one in bodies.to_pylist()
        ]
        return pa.array(texts, pa.string())


def _raw_rows(messages: list[RawMessage], wanted: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": message.queue.topic,
                "brokerName": message.queue.broker_name,
                "queueId": message.queue.queue_id,
                "queueOffset": message.offset,
                "body": message.stored,
                "sysFlag": RAW_SYS_FLAG,
            }
            for message in messages
        ],
        schema=wanted,
    )
