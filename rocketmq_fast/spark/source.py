"""The data source that `format("rocketmq")` means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.spark.options import ReadOptions
from rocketmq_fast.spark.schema import schema_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader


class RocketMQDataSource(DataSource):
    """Topics as a table. The options are described in the package's documentation.

    `select` does not spare the source any work: name the columns by the option `columns` or by
    `.schema(...)`, which both take any part of the source's columns.

    Spark makes one in a process for each step of a query: what one step needs is loaded there.
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
        """The columns that the options ask for. Raises ConfigError for any wrong option."""
        options = ReadOptions.of(self.options, streaming=None)
        return schema_of(options.columns, decode_body=options.decode_body)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Batch reader for a part of the columns."""
        from rocketmq_fast.spark.batch import PushingReader, RocketMQReader

        options = ReadOptions.of(self.options)
        return (PushingReader if options.push_filters else RocketMQReader)(schema, options)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Streaming reader for a part of the columns. Needs PySpark 4.2."""
        try:
            from rocketmq_fast.spark.stream import RocketMQStreamReader
        except ImportError as error:
            raise ConfigError(f"streaming reads need PySpark 4.2 or newer: {error}") from error
        return RocketMQStreamReader(schema, ReadOptions.of(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Batch writer of rows with these columns. Raises RocketMQError for what cannot work."""
        from rocketmq_fast.spark.writer import RocketMQWriter
        from rocketmq_fast.spark.writer_options import WriteOptions

        return RocketMQWriter(schema, WriteOptions.of(self.options), overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Streaming writer of rows with these columns. Raises RocketMQError as `writer`."""
        from rocketmq_fast.spark.writer import RocketMQStreamWriter
        from rocketmq_fast.spark.writer_options import WriteOptions

        options = WriteOptions.of(self.options)
        return RocketMQStreamWriter(schema, options, overwrite, check=not self._planned)
