"""The data source that `format("rocketmq")` means."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from rocketmq_fast.spark.brokers import Brokers, cached_brokers, retrying
from rocketmq_fast.spark.options import ReadOptions
from rocketmq_fast.spark.planner import RangesPartition, plan_partitions, resolve_ranges
from rocketmq_fast.spark.reader import RangesReader
from rocketmq_fast.spark.schema import check_schema, schema_of
from rocketmq_fast.spark.writer import RocketMQStreamWriter, RocketMQWriter
from rocketmq_fast.spark.writer_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


class RocketMQDataSource(DataSource):
    """Topics as a table. The options are described in the package's documentation.

    `select` does not spare the source any work: name the columns by the option `columns` or by
    `.schema(...)`, which both take any part of the source's columns.
    """

    _planned = False

    def __getstate__(self) -> dict[str, object]:
        # Spark hands a copy to the process that commits: what was written must not fail there
        # because a name server is away.
        return self.__dict__ | {"_planned": True}

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return schema_of(ReadOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Batch reader for a part of the columns."""
        return RocketMQReader(schema, ReadOptions.of(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Batch writer of rows with these columns. Raises RocketMQError for what cannot work."""
        return RocketMQWriter(schema, WriteOptions.of(self.options), overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Streaming writer of rows with these columns. Raises RocketMQError as `writer`."""
        options = WriteOptions.of(self.options)
        return RocketMQStreamWriter(schema, options, overwrite, check=not self._planned)


class RocketMQReader(DataSourceReader):
    """Reads ranges of offsets that are fixed when the first action plans them."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = dataclasses.replace(options, columns=check_schema(schema))

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the brokers for what there is and cut it into tasks. On the driver."""
        options = self._options
        brokers = Brokers(options.namesrv_addr)
        try:
            return retrying(
                lambda: _plan(brokers, options), options.retries, options.retry_interval
            )
        finally:
            brokers.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task's ranges. On an executor."""
        if not isinstance(partition, RangesPartition):
            return  # Spark makes a partition of its own when there is nothing to read
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(self._schema, timezone="UTC")
        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        brokers = cached_brokers(self._options.namesrv_addr, fresh=again)
        for batch in RangesReader(brokers, partition.ranges, self._options.columns, self._options):
            table = pa.record_batch(batch)
            # A user's schema may say "not null", which changes the type and not the data.
            yield table if table.schema.equals(wanted) else _retyped(table, wanted)


def _retyped(table: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(table.columns, schema=wanted)


def _plan(brokers: Brokers, options: ReadOptions) -> list[Any]:
    queues, addresses = brokers.queues(options.topics)
    ranges = resolve_ranges(
        brokers.bounds(queues, addresses),
        addresses,
        options.starting_offsets,
        options.ending_offsets,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return list(
        plan_partitions(
            ranges,
            max_records=options.max_records_per_partition,
            min_partitions=options.min_partitions,
            min_records=options.min_records_per_partition,
        )
    )
