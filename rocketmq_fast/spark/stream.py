"""Streaming reads. Spark's checkpoint alone decides what is read; brokers are only asked.

Spark holds one reader per query in a process of the driver for the planning, and sends copies of
another one to the executors: what this module keeps between calls never reaches a task.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rocketmq_fast.errors import BrokerNotFound, RocketMQError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.spark.admission import records_of_bytes, share
from rocketmq_fast.spark.brokers import Brokers
from rocketmq_fast.spark.cluster_view import ClusterView
from rocketmq_fast.spark.offsets import now_ms, offsets_of_table, offsets_table, where
from rocketmq_fast.spark.options import ReadOptions
from rocketmq_fast.spark.planner import RangesPartition, report_loss, resolve_ranges, tasks_of
from rocketmq_fast.spark.positions import moves, resolve_spec
from rocketmq_fast.spark.tasks import options_for, read_task

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# For a limit in bytes: messages are looked at in so many queues, those with the most waiting.
_SAMPLED_QUEUES = 16
_SAMPLE = 32
_Offsets = dict[MessageQueue, int]


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches: each is a fixed set of offsets, read again in the same way after a failure."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options_for(schema, options)
        self._planner: StreamPlanner | None = None

    @property
    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(Brokers(self._options.connect), self._options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        """Where a new query starts."""
        return offsets_table(self._plan.initial_offsets())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits, which Spark hands back where its trigger respects them."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what there is now: the query ends there."""
        self._plan.stop_at_present()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself when there is nothing to do."""
        unlimited = isinstance(limit, ReadAllAvailable)
        ends = self._plan.next_offsets(offsets_of_table(start), unlimited=unlimited)
        return start if ends is None else offsets_table(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues, for the query's progress."""
        return offsets_table(self._plan.newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks of a micro-batch."""
        return self._plan.partitions(offsets_of_table(start), offsets_of_table(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task's ranges. On an executor."""
        return read_task(partition, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is complete."""
        self._plan.show_progress(offsets_of_table(end))

    def stop(self) -> None:
        """Close connections. Spark does not always call it."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None


class StreamPlanner:
    """Plans the micro-batches of one query. One thread."""

    def __init__(self, brokers: Brokers, options: ReadOptions) -> None:
        self._brokers = brokers
        self._options = options
        self._view = ClusterView(brokers, options)
        self._initial: _Offsets | None = None
        self._anchor_wanted = False
        self._until: _Offsets | None = None
        self._due_at = 0.0
        self._turn = 0
        self._sizes: dict[MessageQueue, float] = {}
        self.newest: _Offsets = {}
        self._shown: _Offsets = {}
        self._gone: set[MessageQueue] = set()
        self._worker = ThreadPoolExecutor(1, "rocketmq-spark-commit")
        self._showing: Future[None] | None = None

    def close(self) -> None:
        """End connections and threads."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._brokers.close()

    def initial_offsets(self) -> _Offsets:
        """Where a new query starts: the same for every call, Spark asks twice."""
        if self._initial is None:
            self._view.require_all()
            now = now_ms()
            spec = self._options.starting_offsets
            self._initial = resolve_spec(
                self._brokers, spec, self._view.bounds, self._view.addresses, self._options, now
            )
            self._anchor_wanted = moves(spec, now)
            self._note_newest()
        return dict(self._initial)

    def stop_at_present(self) -> None:
        """Take the present ends as the ends of the query."""
        self._view.require_all()
        self._until = {queue: high for queue, (_, high) in self._view.bounds.items()}
        self._note_newest()

    def next_offsets(self, start: _Offsets, *, unlimited: bool) -> _Offsets | None:
        """Ends of the next micro-batch; None when there is none."""
        self.show_progress(start)  # a batch whose end is a start is complete
        self._view.refresh()
        self._note_newest()
        if self._anchor_wanted and start == self._initial:
            # Spark does not keep where a query starts, only where batches end. An empty batch makes
            # the start durable, where asking for it again would give another one.
            self._anchor_wanted = False
            return dict(start)
        begins, highs = self._check(start)
        lags = {queue: max(0, high - begins[queue]) for queue, high in highs.items()}
        if not any(lags.values()):
            # What was lost may have moved a queue all the same.
            return begins if any(begins[queue] != start[queue] for queue in start) else None
        shares = lags
        if not unlimited:
            if self._wait_for_more(sum(lags.values())):
                return None
            limit = self._limit(lags, begins)
            if limit is not None:
                shares = share(lags, limit, self._turn)
                self._turn += 1
        self._due_at = time.monotonic() + self._options.max_trigger_delay
        ends = {queue: begins[queue] for queue in start}
        for queue, count in shares.items():
            if count:
                ends[queue] = begins[queue] + count
        return ends

    def partitions(self, start: _Offsets, end: _Offsets) -> list[RangesPartition]:
        """Tasks for [start, end) of each queue; a queue that is new since the start begins at 0."""
        ends = {queue: offset for queue, offset in end.items() if offset > start.get(queue, 0)}
        if not ends:
            return []
        self._view.refresh(force=self._is_stale(ends))
        absent = [queue for queue in ends if queue not in self._view.bounds]
        reasons = {queue: self._view.why_absent(queue) for queue in absent}
        bounds = {}
        for queue, offset in ends.items():
            known = self._view.bounds.get(queue)
            if known is not None:
                bounds[queue] = known
                continue
            away = reasons.get(queue)
            if away is not None:
                raise BrokerNotFound(
                    f"{where(queue)}: offsets [{start.get(queue, 0)}, {offset}) are wanted, but: "
                    f"{away}"
                )
            self._report_gone(queue, start.get(queue, 0))
        starts = {queue: start.get(queue, 0) for queue in bounds}
        ranges = resolve_ranges(
            bounds,
            self._view.addresses,
            starts,
            ends,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return tasks_of(ranges, self._options)

    def show_progress(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets for the group, if the user wants that. For eyes only: never read back."""
        if not self._options.commit_offsets:
            return
        if self._showing is not None and not self._showing.done():
            return  # the next call brings newer ones
        if not self._view.addresses:
            self._view.refresh()
        addresses = dict(self._view.addresses)
        new = {
            queue: at
            for queue, at in offsets.items()
            if self._shown.get(queue) != at and queue.broker_name in addresses
        }
        if not new:
            return
        self._showing = self._worker.submit(self._show, new, addresses)
        if self._until is not None:
            self._showing.result()  # the query may end right after

    def _show(self, offsets: _Offsets, addresses: dict[str, str]) -> None:
        try:
            errors = self._brokers.commit(self._options.group, offsets, addresses)
        except RocketMQError as error:
            errors = [error]
        if errors:
            logger.warning(
                "%d offsets of group %s were not stored: %s",
                len(errors),
                self._options.group,
                errors[0],
            )
        else:
            self._shown.update(offsets)

    def _note_newest(self) -> None:
        self.newest.update({queue: high for queue, (_, high) in self._view.bounds.items()})

    def _is_stale(self, ends: _Offsets) -> bool:
        known = self._view.bounds
        return any(queue not in known or known[queue][1] < end for queue, end in ends.items())

    def _check(self, start: _Offsets) -> tuple[_Offsets, _Offsets]:
        """Where queues go on, and how far they can be read. Raises DataLossError."""
        begins = dict(start)
        highs: _Offsets = {}
        for queue, begin in start.items():
            bounds = self._view.bounds.get(queue)
            if bounds is None:
                self._check_absent(queue, begin)
                continue
            low, high = bounds
            if begin < low:
                report_loss(
                    f"{where(queue)}: offset {begin} is wanted, the smallest is {low}",
                    self._options.fail_on_data_loss,
                )
                begins[queue] = low
            elif begin > high:
                report_loss(
                    f"{where(queue)}: offset {begin} is wanted, the queue ends at {high} "
                    "(was the topic made anew?)",
                    self._options.fail_on_data_loss,
                )
                begins[queue] = high
            highs[queue] = high
            self._gone.discard(queue)
        for queue, (_, high) in self._view.bounds.items():
            if queue not in start:
                begins[queue] = 0
                highs[queue] = high
        if self._until is not None:
            highs = {q: min(high, self._until[q]) for q, high in highs.items() if q in self._until}
        return begins, highs

    def _check_absent(self, queue: MessageQueue, begin: int) -> None:
        """A queue of the checkpoint that is not among those found now."""
        options = self._options
        if options.pattern is None and (
            queue.topic not in options.topics
            or (options.assigned is not None and queue not in options.assigned)
        ):
            return  # the user reads something else now; should it come back, it goes on here
        away = self._view.why_absent(queue)
        if away is None:
            self._report_gone(queue, begin)
        elif self._until is not None:
            raise BrokerNotFound(f"{where(queue)} cannot be read to its end: {away}")

    def _report_gone(self, queue: MessageQueue, begin: int) -> None:
        if queue not in self._gone:
            report_loss(
                f"{where(queue)}: offset {begin} is wanted, the queue is not in the route any more",
                self._options.fail_on_data_loss,
            )
            self._gone.add(queue)  # told once

    def _wait_for_more(self, waiting: int) -> bool:
        """Whether too little waits, and not for long enough."""
        least = self._options.min_offsets
        if least is None or self._until is not None:
            return False
        return waiting < least and time.monotonic() < self._due_at

    def _limit(self, lags: _Offsets, begins: _Offsets) -> int | None:
        options = self._options
        limits = [options.max_offsets] if options.max_offsets is not None else []
        if options.max_bytes is not None:
            self._look_at_sizes(lags, begins)
            limits.append(records_of_bytes(options.max_bytes, lags, self._sizes))
        return min(limits, default=None)

    def _look_at_sizes(self, lags: _Offsets, begins: _Offsets) -> None:
        """Note the mean size of the next messages of the queues where most wait."""
        most = sorted(lags, key=lambda queue: -lags[queue])[:_SAMPLED_QUEUES]
        offsets = {queue: begins[queue] for queue in most if lags[queue] > 0}
        try:
            batches = self._brokers.peek(
                self._options.group, offsets, self._view.addresses, _SAMPLE
            )
        except RocketMQError as error:
            logger.warning("sizes of messages are those of an earlier batch: %s", error)
            return
        self._sizes = {
            queue: float(batch.store_sizes.mean()) for queue, batch in batches.items() if len(batch)
        }
