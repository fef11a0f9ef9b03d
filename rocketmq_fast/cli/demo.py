"""`rocketmq-fast demo`: produce, consume, read and stream with Spark, and count what is there."""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import threading
import time
import zlib
from dataclasses import dataclass
from typing import Any

from rocketmq_fast import (
    ConsumeFromWhere,
    ConsumeStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SendResult,
)
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.cli import arguments, demo_spark
from rocketmq_fast.cli.child_cluster import ClusterProcess, TopicState
from rocketmq_fast.cli.demo_spark import SparkRead, SparkSteps
from rocketmq_fast.cli.output import Output, number, rate, table
from rocketmq_fast.cli.produce import generated_bodies
from rocketmq_fast.cli.tally import Tally
from rocketmq_fast.errors import RocketMQError

_TOPIC = "Demo"
_GROUP = "demo"
_BATCH_BYTES = 1 << 20
_BATCH = 100
_IN_FLIGHT = 8
_TICK_SECONDS = 0.05
# Long: a busy machine must make the demonstration slow, not wrong (a send that timed out is sent
# again, and may be stored twice).
_TIMEOUT_MILLIS = 60_000
# Without a message for so long, what is missing will not come any more.
_PATIENCE_SECONDS = 60.0
# A duplicate of the last messages would come within this time.
_SETTLE_SECONDS = 0.5


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "demo",
        parents=[common],
        help="show all of it: cluster, producer, consumer, Spark",
        description="Starts the embedded cluster, sends messages, consumes them with a push "
        "consumer, reads the topic with Spark, streams it into Parquet files, and compares counts "
        "and checksums.",
    )
    parser.add_argument(
        "--count",
        type=arguments.count,
        default=1_000_000,
        metavar="N",
        help="messages (default 1,000,000)",
    )
    parser.add_argument(
        "--size",
        type=arguments.size,
        default=1024,
        metavar="BYTES",
        help="size of a body (default 1024)",
    )
    parser.add_argument(
        "--queues", type=arguments.count, default=8, metavar="N", help="queues (default 8)"
    )
    parser.add_argument("--no-spark", action="store_true", help="leave Spark out")
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Step:
    """What a step counted. `checksum` is the sum of the CRC-32 of all bodies."""

    messages: int
    distinct: int
    bytes: int
    checksum: int
    seconds: float

    def values(self) -> dict[str, Any]:
        """For the JSON object."""
        return {
            "messages": self.messages,
            "distinct": self.distinct,
            "duplicates": self.messages - self.distinct,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(rate(self.messages, self.seconds), 1),
        }

    def row(self, name: str) -> list[object]:
        """For the table."""
        return [
            name,
            self.messages,
            self.distinct,
            self.messages - self.distinct,
            number(self.seconds),
            number(round(rate(self.messages, self.seconds))),
            number(round(rate(self.bytes, self.seconds) / 1e6)),
            f"{self.checksum:x}",
        ]


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the steps. Exit code 1 when something was lost."""
    # The clean-up of this process, and with it the child's, also after a polite kill.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ClusterProcess() as cluster:
        output.say(
            f"embedded cluster: process {cluster.pid}, name server {cluster.namesrv_addr}, "
            f"topic {_TOPIC} with {options.queues} queues"
        )
        cluster.create_topic(_TOPIC, options.queues)
        produced = _produce(cluster.namesrv_addr, options, output)
        output.say(_line("produced", produced))
        consumed = _consume(cluster.namesrv_addr, options.count, output)
        output.say(_line("consumed", consumed))
        state = cluster.state(_TOPIC, options.queues, _GROUP)
        output.say(f"broker:   {state.stored:,} stored, {state.committed:,} committed by {_GROUP}")
        skipped = "--no-spark" if options.no_spark else demo_spark.why_not()
        read = None
        if skipped is None:
            with output.progress("Spark") as progress:
                read = demo_spark.read(cluster.namesrv_addr, _TOPIC, options.count, progress)
            output.say(
                f"{_line('Spark', _step_of(read.batch))} (Spark {read.version}, "
                f"first query of a JVM that took {number(read.start_seconds)} s to start)"
            )
            output.say(
                f"{_line('stream', _step_of(read.stream))} (availableNow into Parquet, "
                f"{read.batches} micro-batches)"
            )
        else:
            output.say(f"Spark:    left out: {skipped}")
    return _report(options, output, produced, consumed, state, read, skipped)


def _line(name: str, step: Step) -> str:
    return (
        f"{name + ':':<9} {step.messages:,} messages in {number(step.seconds)} s: "
        f"{number(round(rate(step.messages, step.seconds)))} messages/s, "
        f"{number(round(rate(step.bytes, step.seconds) / 1e6))} MB/s"
    )


def _step_of(read: SparkRead) -> Step:
    return Step(read.rows, read.distinct, read.bytes, read.checksum, read.seconds)


# ---------------------------------------------------------------------------------- the steps


def _produce(namesrv_addr: str, options: argparse.Namespace, output: Output) -> Step:
    """Send all messages in batches, a few requests at a time."""
    batch = max(1, min(_BATCH, _BATCH_BYTES // (options.size + 200)))
    lock = threading.Lock()
    stored = 0
    errors: list[Exception] = []

    def taken(result: SendResult | None, error: Exception | None) -> None:
        nonlocal stored
        with lock:
            if error is not None:
                errors.append(error)
            elif result is not None:
                stored += result.msg_id.count(",") + 1

    bodies = generated_bodies(options.count, options.size)
    size = checksum = 0
    producer = Producer(
        "demo-producer",
        namesrv_addr=namesrv_addr,
        max_in_flight=_IN_FLIGHT,
        send_msg_timeout=_TIMEOUT_MILLIS,
        mq_client_api_timeout=_TIMEOUT_MILLIS,
    )
    with output.progress("producing", options.count) as progress:
        with producer:
            start = time.perf_counter()
            while not errors and (part := list(itertools.islice(bodies, batch))):
                size += sum(map(len, part))
                checksum += sum(map(zlib.crc32, part))
                producer.send_batch_async([Message(_TOPIC, body, "Demo") for body in part], taken)
                progress.update(stored)
        seconds = time.perf_counter() - start
    if errors:
        raise errors[0]
    return Step(stored, stored, size, checksum, seconds)


def _consume(namesrv_addr: str, count: int, output: Output) -> Step:
    """Consume until every message came, or none comes any more."""
    tally = Tally()
    lock = threading.Lock()
    checksum = 0

    def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        nonlocal checksum
        part = sum(zlib.crc32(message.body) for message in messages)
        with lock:
            checksum += part
        tally.add(context.message_queue, messages)
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(
        _GROUP,
        namesrv_addr=namesrv_addr,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        mq_client_api_timeout=_TIMEOUT_MILLIS,
    )
    consumer.subscribe(_TOPIC)
    consumer.register_listener(listener)
    with output.progress("consuming", count) as progress, consumer:
        seen, since = -1, time.monotonic()
        while tally.messages < count:
            time.sleep(_TICK_SECONDS)
            progress.update(tally.messages)
            if tally.messages != seen:
                seen, since = tally.messages, time.monotonic()
            elif time.monotonic() - since > _PATIENCE_SECONDS:
                break
        seconds = tally.seconds
        time.sleep(_SETTLE_SECONDS)
    return Step(tally.messages + tally.duplicates, tally.messages, tally.bytes, checksum, seconds)


# --------------------------------------------------------------------------------- the verdict


def _report(
    options: argparse.Namespace,
    output: Output,
    produced: Step,
    consumed: Step,
    state: TopicState,
    read: SparkSteps | None,
    skipped: str | None,
) -> int:
    steps = {"produced": produced, "consumed": consumed}
    if read is not None:
        steps["spark"] = _step_of(read.batch)
        steps["spark_stream"] = _step_of(read.stream)
    wrong = [
        f"{name}: {what} {value:,} instead of {expected:,}"
        for name, step in steps.items()
        for what, value, expected in (
            ("messages", step.messages, options.count),
            ("distinct messages", step.distinct, options.count),
            ("bytes", step.bytes, produced.bytes),
            ("checksum", step.checksum, produced.checksum),
        )
        if value != expected
    ]
    for what, value in (("stored", state.stored), ("committed", state.committed)):
        if value != options.count:
            wrong.append(f"broker: {what} {value:,} instead of {options.count:,}")
    values: dict[str, Any] = {
        "ok": not wrong,
        "messages": options.count,
        "lost": options.count - min(step.distinct for step in steps.values()),
        "size": options.size,
        "queues": options.queues,
        **{name: step.values() for name, step in steps.items()},
        "broker": {"stored": state.stored, "committed": state.committed},
    }
    if skipped is not None:
        values["spark"] = {"skipped": skipped}
    if wrong:
        values["wrong"] = wrong
    heads = ("step", "messages", "distinct", "duplicates", "seconds", "messages/s", "MB/s",
             "checksum")  # fmt: skip
    rows = [step.row(name) for name, step in steps.items()]
    same = "equal counts, bytes and checksums in every step" if not wrong else "; ".join(wrong)
    verdict = f"{'nothing was lost' if not wrong else 'NOT GOOD'}: {same}"
    output.result(values, f"\n{table(heads, rows)}\n\n{verdict}")
    if wrong:
        raise RocketMQError("; ".join(wrong))
    return 0
