"""The least that a Python data source can do: it passes the same ready-made record batch again.

It bounds what Spark takes from any Python source with these columns. Workers import this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def _ready(path: str) -> pa.RecordBatch:
    """The batch of an Arrow file, mapped into memory."""
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(path)).get_batch(0)


class Rows(InputPartition):
    """So many rows."""

    def __init__(self, count: int) -> None:
        super().__init__(None)
        self.count = count


class TrivialReader(DataSourceReader):
    """Rows of a file with one record batch, which is repeated."""

    def __init__(self, path: str, count: int, tasks: int) -> None:
        self._path = path
        self._count = count
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Tasks of equal size."""
        ends = [self._count * number // self._tasks for number in range(self._tasks + 1)]
        return [Rows(end - start) for start, end in itertools.pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The same batch, until there are enough rows."""
        assert isinstance(partition, Rows)
        ready = _ready(self._path)
        for first in range(0, partition.count, ready.num_rows):
            yield ready.slice(0, min(ready.num_rows, partition.count - first))


class TrivialDataSource(DataSource):
    """Options: path of the Arrow file, rows, tasks."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "trivial"

    def schema(self) -> StructType:
        """That of the file."""
        return from_arrow_schema(_ready(self.options["path"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader."""
        options = self.options
        return TrivialReader(options["path"], int(options["rows"]), int(options["tasks"]))
