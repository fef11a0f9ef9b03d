"""Batch reads: ranges that are fixed when the first action plans them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.spark.brokers import Brokers, naming_options, retrying
from rocketmq_fast.spark.filters import PushedFilters
from rocketmq_fast.spark.offsets import QueueRange, now_ms, where
from rocketmq_fast.spark.options import ReadOptions
from rocketmq_fast.spark.planner import resolve_ranges, tasks_of
from rocketmq_fast.spark.positions import resolve_spec
from rocketmq_fast.spark.tasks import options_for, read_task

if TYPE_CHECKING:
    import pyarrow as pa


class RocketMQReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options_for(schema, options)
        self._pushed: PushedFilters | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the brokers for what there is and cut it into tasks. On the driver."""
        options = self._options
        brokers = Brokers(options.connect)
        try:
            ranges = retrying(
                lambda: _ranges(brokers, options, self._pushed),
                options.retries,
                options.retry_interval,
            )
        finally:
            brokers.close()
        return tasks_of(ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task's ranges. On an executor."""
        return read_task(partition, self._schema, self._options)


class PushingReader(RocketMQReader):
    """A reader that takes filters over from Spark; a class of its own, because the method alone
    makes Spark 4.3 refuse every read while its conf for pushing filters is off.
    """

    def pushFilters(  # noqa: N802 - Spark's name
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Take what narrows the ranges; give back what Spark has to check."""
        self._pushed = PushedFilters(self._options.sql is None and self._options.tags == "*")
        rest = [one for one in filters if not self._pushed.take(one)]
        if self._pushed.tags is not None:
            self._options = dataclasses.replace(self._options, tags=self._pushed.tags)
        return rest


def chosen_topics(brokers: Brokers, options: ReadOptions) -> Sequence[str]:
    """The topics that the options name, or that the pattern matches now."""
    return options.topics if options.pattern is None else brokers.topics_like(options.pattern)


def chosen_queues(
    brokers: Brokers, options: ReadOptions
) -> tuple[list[MessageQueue], dict[str, str]]:
    """The queues to read, and the brokers' addresses.

    Raises ConfigError, TopicRouteNotFound, NoNameServer, which name the option.
    """
    with naming_options("topic" if options.assigned is None else "assign"):
        topics = chosen_topics(brokers, options)
        if not topics:
            raise ConfigError(
                f"option 'topicPattern' is {options.pattern!r}: no topic has such a name"
            )
        queues, addresses = brokers.queues(topics)
    if options.assigned is not None:
        unknown = sorted(options.assigned.difference(queues))
        if unknown:
            raise ConfigError(f"option 'assign' names {where(unknown[0])}, not in the route")
        queues = [queue for queue in queues if queue in options.assigned]
    if options.sql is not None:
        for topic in topics:
            names = {queue.broker_name for queue in queues if queue.topic == topic}
            brokers.check_sql(
                topic, options.group, options.sql, [addresses[name] for name in sorted(names)]
            )
    return queues, addresses


def _ranges(
    brokers: Brokers, options: ReadOptions, pushed: PushedFilters | None
) -> list[QueueRange]:
    queues, addresses = chosen_queues(brokers, options)
    bounds = brokers.bounds(queues, addresses)
    now = now_ms()
    starts = resolve_spec(brokers, options.starting_offsets, bounds, addresses, options, now)
    ends = resolve_spec(brokers, options.ending_offsets, bounds, addresses, options, now)
    _check_order(starts, ends, options)
    ranges = resolve_ranges(
        bounds, addresses, starts, ends, fail_on_data_loss=options.fail_on_data_loss
    )
    if pushed is None:
        return ranges
    times = [
        resolve_spec(brokers, spec, bounds, addresses, options, now)
        for spec in pushed.time_bounds()
    ]
    return list(pushed.narrow(ranges, *times))


def _check_order(
    starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], options: ReadOptions
) -> None:
    for queue, start in starts.items():
        if (
            start > ends[queue]
            and queue in options.starting_offsets.queues
            and queue in options.ending_offsets.queues
        ):
            raise ConfigError(
                f"option {options.starting_offsets.option!r} is behind "
                f"{options.ending_offsets.option!r}: {where(queue)}, {start} to {ends[queue]}"
            )
