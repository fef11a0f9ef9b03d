"""Writing of batches and streams: what runs on the driver, and the task around encoder and flow."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rocketmq_fast.errors import ConfigError, RocketMQError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.producer.compression import Compressor
from rocketmq_fast.producer.outgoing import Packer
from rocketmq_fast.producer.producer import Running
from rocketmq_fast.spark.brokers import naming_options, retrying
from rocketmq_fast.spark.kept import Kept
from rocketmq_fast.spark.writer_options import WriteOptions, check_columns

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class WriteError(RocketMQError):
    """A task could not write all its rows; names the partition and how many messages are stored."""


class SentMessages(WriterCommitMessage):
    """What a task has stored: messages by queue, and bytes of the requests."""

    def __init__(self, partition: int, sent: Mapping[MessageQueue, int], size: int) -> None:
        self.partition = partition
        self.sent = dict(sent)
        self.bytes = size

    @property
    def messages(self) -> int:
        """Messages of all queues."""
        return sum(self.sent.values())

    def __repr__(self) -> str:
        return f"SentMessages(partition={self.partition}, messages={self.messages})"


class RocketMQWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame, at least once each."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        self._task = WriteTask(schema, options, overwrite)
        self._task.check_cluster()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows of a partition; every one is acknowledged when this returns."""
        return self._task.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell what was sent. On the driver."""
        logger.info("written: %s", summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell what may be there: nothing takes messages back. On the driver."""
        logger.warning("write failed: %s", aborted(messages))


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch, at least once each."""

    def __init__(
        self, schema: StructType, options: WriteOptions, overwrite: bool, *, check: bool
    ) -> None:
        self._task = WriteTask(schema, options, overwrite)
        if check:
            self._task.check_cluster()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows of a partition; every one is acknowledged when this returns."""
        return self._task.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what was sent. On the driver."""
        logger.info("batch %d written: %s", batchId, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what may be there: nothing takes messages back. On the driver."""
        logger.warning("write of batch %d failed: %s", batchId, aborted(messages))


class WriteTask:
    """What both writers do; made on the driver, run on executors."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                "a topic cannot be overwritten: messages are only appended, "
                'use mode("append") or outputMode("append")'
            )
        self._options = options
        self._places = check_columns(schema, options)
        options.producer()  # what the client's classes refuse is told now

    def check_cluster(self) -> None:
        """Ask for the topic's route before any task runs. Raises RocketMQError."""
        options = self._options

        def ask() -> None:
            running = Running(options.group, options.producer())
            running.start()
            try:
                if options.topic is not None:
                    running.queues(options.topic)
            finally:
                running.stop()

        with naming_options("topic"):
            retrying(ask, options.retries, options.retry_interval)

    def run(self, batches: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send everything. Raises WriteError."""
        # pyarrow is needed on executors only.
        from rocketmq_fast.spark.writer_flow import SendFlow
        from rocketmq_fast.spark.writer_rows import RowsEncoder

        options = self._options
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        again = context is not None and context.attemptNumber() > 0
        producer = options.producer()
        running = kept_producers.get(options, fresh=again)
        sender, names = running.sender, producer.names
        packer = Packer(
            producer.max_message_size,
            Compressor(producer.compress_type, producer.compress_level, options.compress_over),
            names,
        )
        encoder = RowsEncoder(
            self._places,
            packer,
            lambda topic: list(running.routes.queues(topic)),
            names,
            topic=options.topic,
            single=options.single,
            batch_bytes=options.batch_bytes,
            drop_reserved=options.drop_reserved,
        )
        flow = SendFlow(
            lambda out, queue, done: _drop(
                sender.send_async(out, options.send_timeout, queue, done)
            ),
            running.routes.queues,
            max_in_flight=options.max_in_flight,
            retries=options.retries,
            retry_interval=options.retry_interval,
        )
        try:
            for batch in batches:
                for request in encoder.requests(batch):
                    flow.put(request)
            flow.finish()
        except RocketMQError as error:
            flow.settle(options.send_timeout)
            raise WriteError(
                f"partition {partition}: {error}; {flow.messages} messages of it are stored "
                "already and come again if it is repeated"
            ) from error
        except BaseException:
            flow.settle(options.send_timeout)
            raise
        for status, count in flow.not_ok.items():
            logger.warning("%d messages are stored on the master only: %s", count, status.value)
        return SentMessages(partition, flow.sent, flow.bytes)


def _drop(_: object) -> None:
    """The future of a send is not needed: its callback tells."""


def summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Counts by topic and queue, for people."""
    sent: Counter[MessageQueue] = Counter()
    size = 0
    for message in messages:
        if isinstance(message, SentMessages):
            sent.update(message.sent)
            size += message.bytes
    queues = ", ".join(f"{queue} {count}" for queue, count in sorted(sent.items()))
    return f"{sent.total()} messages, {size} bytes" + (f" ({queues})" if queues else "")


def aborted(messages: Sequence[WriterCommitMessage | None]) -> str:
    """What stays in the topics after a failure, for people."""
    done = sum(isinstance(message, SentMessages) for message in messages)
    return (
        f"{done} of {len(messages)} tasks had finished; what they sent stays: {summary(messages)}; "
        "the others may have sent messages too, which come again if the write is repeated"
    )


def _started(options: WriteOptions) -> Running:
    """A producer that runs. Raises RocketMQError when it cannot start."""
    running = Running(options.group, options.producer())
    retrying(running.start, options.retries, options.retry_interval)
    return running


kept_producers: Kept[WriteOptions, Running] = Kept(_started, Running.stop)
