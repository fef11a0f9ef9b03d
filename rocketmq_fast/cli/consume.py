"""`rocketmq-fast consume`: a push consumer that prints, counts, or both."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rocketmq_fast import (
    ConsumeFromWhere,
    ConsumeStatus,
    MessageExt,
    MessageQueue,
    OrderlyContext,
    OrderlyStatus,
    PushConsumer,
)
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.cli import arguments
from rocketmq_fast.cli.output import Output, Progress, counted, number, only_errors, rate
from rocketmq_fast.cli.render import shown
from rocketmq_fast.cli.signals import Stop, stop_on_signals
from rocketmq_fast.cli.tally import Tally
from rocketmq_fast.errors import ConfigError

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
# A stop that takes longer is explained.
_SILENT_SECONDS = 1.0
# A call of this listener takes microseconds; only one that waits for the end can still be there.
_STOP_MILLIS = 500
# From the moment that the stop begins until the workers see it. If it takes longer, the next call
# finds the count complete and waits.
_STOPPING_SECONDS = 0.02


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = arguments.add_client_command(
        commands,
        "consume",
        run,
        common,
        help="consume a topic with a push consumer",
        description="Joins a group and prints what it is given, until --count distinct messages or "
        "Ctrl-C. Progress is committed, so that the next run goes on from there.",
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument(
        "--from",
        dest="start",
        type=arguments.start,
        default="last",
        metavar="first|last|TIME",
        help="where a group that has no offset yet begins (default last); on a young topic, whose "
        "first messages the broker still has in memory, at the first in any case, as in Java",
    )
    parser.add_argument(
        "--count", type=arguments.count, metavar="N", help="end at N distinct (queue, offset)"
    )
    parser.add_argument(
        "--tags",
        default="*",
        metavar="EXPR",
        help="tags that are wanted: 'TagA || TagB' (default all)",
    )
    parser.add_argument(
        "--orderly",
        action="store_true",
        help="take each queue's messages in order, under the broker's locks",
    )
    parser.add_argument(
        "--pull-batch",
        type=arguments.count,
        default=32,
        metavar="N",
        help="messages asked for in one pull (default 32)",
    )
    parser.add_argument(
        "--batch",
        type=arguments.count,
        default=1,
        metavar="N",
        help="messages handed to the listener at once (default 1)",
    )
    parser.add_argument(
        "--timeout",
        type=arguments.seconds,
        metavar="SECONDS",
        help="give up when --count is not reached by then",
    )
    parser.add_argument("--quiet", action="store_true", help="do not print the messages")


class Printer:
    """The listeners: prints messages and counts them, on one thread.

    The call that completes the count returns while the consumer stops, so that exactly what was
    counted is committed. A call that holds more than was wanted, or that could not print, waits
    until the consumer has stopped: its result is void then, and nothing of it is committed or sent
    back.
    """

    def __init__(self, output: Output, tally: Tally, *, quiet: bool) -> None:
        self.broken: OSError | None = None
        self.stopping = threading.Event()
        self.stopped = threading.Event()
        self._output = output
        self._tally = tally
        self._quiet = quiet

    def concurrent(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        """The concurrent listener."""
        taken = self._tally.add(context.message_queue, messages)
        if not self._quiet or taken < len(messages) or self._tally.is_full:
            self._finish(context.message_queue, messages, taken)
        return ConsumeStatus.CONSUME_SUCCESS

    def orderly(self, messages: list[MessageExt], context: OrderlyContext) -> OrderlyStatus:
        """The orderly listener."""
        taken = self._tally.add(context.message_queue, messages)
        self._finish(context.message_queue, messages, taken)
        return OrderlyStatus.SUCCESS

    def _finish(self, queue: MessageQueue, messages: list[MessageExt], taken: int) -> None:
        """Print what was taken; wait for the end when there is no more to be done."""
        if not self._quiet:
            try:
                for message in messages[:taken]:
                    self._output.line(shown(queue, message, as_json=self._output.as_json))
            except OSError as error:
                self.broken = error
        if self.broken is not None or taken < len(messages):
            self.stopped.wait()
        elif self._tally.is_full:
            self.stopping.wait()
            time.sleep(_STOPPING_SECONDS)


def _start_options(start: str | datetime) -> dict[str, Any]:
    if isinstance(start, datetime):
        return {
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
            "consume_timestamp": start,
        }
    if start == "first":
        return {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    return {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET}


def run(options: argparse.Namespace, output: Output) -> int:
    """Consume until the count, the timeout or a signal. The exit code says which."""
    if options.timeout is not None and options.count is None:
        raise ConfigError("--timeout needs --count: without a count there is nothing to wait for")
    tally = Tally(options.count)
    printer = Printer(output, tally, quiet=options.quiet)
    consumer = PushConsumer(
        options.group,
        namesrv_addr=arguments.namesrv(options),
        pull_batch_size=options.pull_batch,
        consume_message_batch_max_size=min(options.batch, options.count or options.batch),
        consume_thread_min=1,
        consume_thread_max=1,
        await_termination_millis_when_shutdown=_STOP_MILLIS,
        **_start_options(options.start),
    )
    consumer.subscribe(options.topic, options.tags)
    consumer.register_listener(
        printer.orderly if options.orderly else printer.concurrent, orderly=options.orderly
    )
    with stop_on_signals() as stop:
        # What a start meets on its way is in the error that it raises.
        with only_errors("rocketmq_fast.client"):
            consumer.start()
        try:
            with output.progress(f"consuming {options.topic}", options.count) as progress:
                in_time = _wait(options.timeout, output, tally, printer, progress, stop)
        finally:
            printer.stopping.set()
            # A call that waits for the end is meant to be there.
            with only_errors("rocketmq_fast.consumer"), _explained():
                consumer.shutdown()
            printer.stopped.set()
    if printer.broken is not None:
        raise printer.broken
    output.result(*_summary(tally))
    if tally.full.is_set() or (options.count is None and stop.signal_number is not None):
        return 0
    if not in_time:
        raise TimeoutError(
            f"{tally.messages:,} of {options.count:,} messages after {options.timeout:g} s"
        )
    return 128 + (stop.signal_number or signal.SIGINT)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Say what is waited for when the block takes long."""
    timer = threading.Timer(
        _SILENT_SECONDS,
        logger.warning,
        ("waiting for the brokers to store the progress; another signal ends the wait",),
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _wait(
    timeout: float | None,
    output: Output,
    tally: Tally,
    printer: Printer,
    progress: Progress,
    stop: Stop,
) -> bool:
    """Wait for the end. Returns False when the time ran out."""
    end = None if timeout is None else time.monotonic() + timeout
    while not (tally.full.is_set() or stop.wanted or printer.broken):
        tally.full.wait(_TICK_SECONDS)
        progress.update(tally.messages)
        try:
            output.flush()
        except OSError as error:
            printer.broken = error
        if end is not None and time.monotonic() > end and not tally.full.is_set():
            return False
    return True


def _summary(tally: Tally) -> tuple[dict[str, Any], str]:
    seconds = tally.seconds
    speed = rate(tally.messages, seconds)
    values = {
        "messages": tally.messages,
        "duplicates": tally.duplicates,
        "bytes": tally.bytes,
        "seconds": round(seconds, 6),
        "messages_per_second": round(speed, 1),
    }
    text = (
        f"{counted(tally.messages, 'message')} ({counted(tally.duplicates, 'duplicate')}, "
        f"{counted(tally.bytes, 'byte')}) "
        f"in {number(seconds)} s: {number(round(speed))} messages/s"
    )
    return values, text
