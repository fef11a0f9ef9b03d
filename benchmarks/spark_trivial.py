"""The least that a Python data source can do: it passes the same ready-made record batch again.

It bounds what Spark takes from any Python source with these columns. Workers import this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
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


def _cut(count: int, tasks: int) -> Sequence[InputPartition]:
    """Tasks of equal size."""
    ends = [count * number // tasks for number in range(tasks + 1)]
    return [Rows(end - start) for start, end in itertools.pairwise(ends)]


def _rows(path: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The same batch, until there are enough rows."""
    assert isinstance(partition, Rows)
    ready = _ready(path)
    for first in range(0, partition.count, ready.num_rows):
        yield ready.slice(0, min(ready.num_rows, partition.count - first))


class TrivialReader(DataSourceReader):
    """Rows of a file with one record batch, which is repeated."""

    def __init__(self, path: str, count: int, tasks: int) -> None:
        self._path = path
        self._count = count
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Tasks of equal size."""
        return _cut(self._count, self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return _rows(self._path, partition)


class TrivialStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same as micro-batches of equal size; an offset is a number of rows."""

    def __init__(self, path: str, count: int, tasks: int, a_trigger: int) -> None:
        self._path = path
        self._count = count
        self._tasks = tasks
        self._a_trigger = a_trigger

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name, as those below
        """The first row."""
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The size of a micro-batch."""
        return ReadMaxRows(self._a_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end is known."""

    def latestOffset(  # noqa: N802
        self, start: dict[str, int], _limit: ReadLimit
    ) -> dict[str, int]:
        """The end of the next micro-batch."""
        return {"rows": min(start["rows"] + self._a_trigger, self._count)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Tasks of equal size."""
        return _cut(end["rows"] - start["rows"], self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return _rows(self._path, partition)


class TrivialDataSource(DataSource):
    """Options: path of the Arrow file, rows, tasks; maxOffsetsPerTrigger for streams."""

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

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream."""
        options = self.options
        return TrivialStreamReader(
            options["path"],
            int(options["rows"]),
            int(options["tasks"]),
            int(options["maxOffsetsPerTrigger"]),
        )
