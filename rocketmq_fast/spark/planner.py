"""From offsets to tasks: ranges are split where they are big and packed where they are small.

A task of a Python data source costs about 65 ms of CPU even when it reads nothing, so a task per
queue is too much for topics with many small queues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql.datasource import InputPartition

from rocketmq_fast.model import MessageQueue
from rocketmq_fast.spark.offsets import QueueRange, lost
from rocketmq_fast.spark.options import ReadOptions

logger = logging.getLogger(__name__)


class RangesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    @property
    def size(self) -> int:
        """Number of offsets."""
        return sum(part.size for part in self.ranges)

    def __repr__(self) -> str:
        return f"RangesPartition({', '.join(map(str, self.ranges))})"


def resolve_ranges(
    bounds: Mapping[MessageQueue, tuple[int, int]],
    addresses: Mapping[str, str],
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    *,
    fail_on_data_loss: bool,
) -> list[QueueRange]:
    """The range [start, end) of each queue that holds [min, max); empty ones are left out.

    Raises DataLossError for offsets that the broker does not have, unless these shall only be cut.
    """
    ranges = []
    for queue in sorted(bounds):
        low, high = bounds[queue]
        wanted = QueueRange(queue, starts[queue], ends[queue], addresses[queue.broker_name])
        start, end = wanted.start, wanted.end
        if start < low or start > high or end > high or (end < low and end != start):
            report_loss(f"{wanted}: the broker has [{low}, {high})", fail_on_data_loss)
            start, end = min(max(start, low), high), min(end, high)
        if start < end:
            ranges.append(replace(wanted, start=start, end=end))
    return ranges


def report_loss(text: str, fail_on_data_loss: bool) -> None:
    """Raise DataLossError, or warn."""
    if fail_on_data_loss:
        raise lost(text)
    logger.warning("%s; reading what is there", text)


def tasks_of(ranges: Iterable[QueueRange], options: ReadOptions) -> list[RangesPartition]:
    """The tasks that read these ranges, as many and as large as the options want them."""
    return plan_partitions(
        ranges,
        max_records=options.max_records_per_partition,
        min_partitions=options.min_partitions,
        min_records=options.min_records_per_partition,
    )


def plan_partitions(
    ranges: Iterable[QueueRange],
    *,
    max_records: int | None = None,
    min_partitions: int | None = None,
    min_records: int = 0,
) -> list[RangesPartition]:
    """Cut ranges into pieces of at most `max_records`, and into more of them when there would be
    fewer than `min_partitions`; then gather pieces until a task has `min_records`, never more than
    the cut. The order of offsets of a queue is kept inside a task.
    """
    wanted = [part for part in ranges if part.size > 0]
    total = sum(part.size for part in wanted)
    limit = total if max_records is None else max_records
    if min_partitions is not None:
        limit = min(limit, max(1, total // min_partitions))
    partitions: list[RangesPartition] = []
    open_pieces: list[QueueRange] = []
    open_size = 0
    for piece in (piece for part in wanted for piece in _cut(part, limit)):
        if open_pieces and (open_size >= min_records or open_size + piece.size > limit):
            partitions.append(RangesPartition(open_pieces))
            open_pieces, open_size = [], 0
        open_pieces.append(piece)
        open_size += piece.size
    if open_pieces:
        partitions.append(RangesPartition(open_pieces))
    return partitions


def _cut(part: QueueRange, limit: int) -> Iterable[QueueRange]:
    """Pieces of equal size, give or take one, none larger than the limit."""
    count = -(-part.size // limit)
    for number in range(count):
        start = part.start + part.size * number // count
        end = part.start + part.size * (number + 1) // count
        yield replace(part, start=start, end=end)
