"""`rocketmq-fast produce`: messages from arguments, from a file, or generated."""

from __future__ import annotations

import argparse
import base64
import itertools
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from rocketmq_fast import Message, MessageQueue, Producer, SendResult, SendStatus
from rocketmq_fast.cli import arguments
from rocketmq_fast.cli.output import Output, counted, number, only_errors, rate
from rocketmq_fast.cli.signals import stop_on_signals
from rocketmq_fast.errors import ConfigError, RocketMQError, SendError

_GROUP = "rocketmq-fast-produce"
_DEFAULT_SIZE = 1024
# Generated and file messages travel together: up to so many, and up to so many bytes.
_BATCH = 100
_BATCH_BYTES = 1 << 20
# Requests under way at a time: enough to keep a broker busy, too few to make it refuse.
_IN_FLIGHT = 8
_NUMBER_DIGITS = 12
# Longer than a program's default: nobody waits for a single message here, and one that was sent
# again after a timeout may be stored twice.
_SEND_MILLIS = 15_000
_LEVELS = "1: 1s, 2: 5s, 3: 10s, 4: 30s, 5 to 14: 1m to 10m, 15: 20m, 16: 30m, 17: 1h, 18: 2h"


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = arguments.add_client_command(
        commands,
        "produce",
        run,
        common,
        help="send messages to a topic",
        description="Sends the given bodies, or the lines of a file, or --count generated bodies.",
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("body", nargs="*", metavar="BODY", help="bodies, a message each")
    parser.add_argument("--file", metavar="FILE", help="a message per line; - reads standard input")
    parser.add_argument("--count", type=arguments.count, metavar="N", help="generate N messages")
    parser.add_argument(
        "--size",
        type=arguments.size,
        metavar="BYTES",
        help=f"size of a generated body (default {_DEFAULT_SIZE})",
    )
    parser.add_argument(
        "--tags",
        type=arguments.names,
        default=[],
        metavar="TAG,TAG",
        help="tags that the messages get in turn",
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", help="give every message this key, or several with blanks between")
    keys.add_argument(
        "--keys", metavar="PREFIX", help="give each message a key of its own: PREFIX-0, PREFIX-1"
    )
    parser.add_argument(
        "--property",
        type=arguments.user_property,
        action="append",
        default=[],
        dest="properties",
        metavar="NAME=VALUE",
        help="give every message this property; may be repeated",
    )
    parser.add_argument(
        "--delay",
        type=arguments.count,
        default=0,
        metavar="LEVEL",
        help=f"deliver later, by the brokers' delay level; by default they are {_LEVELS}",
    )
    parser.add_argument(
        "--queue",
        type=arguments.queue,
        metavar="BROKER:ID",
        help="send to this queue only (default: all in turn)",
    )
    parser.add_argument(
        "--batch",
        type=arguments.count,
        metavar="N",
        help=f"messages in one request (default 1 for arguments and with --delay, else up to "
        f"{_BATCH})",
    )


def generated_bodies(count: int, size: int) -> Iterator[bytes]:
    """Distinct bodies of a size: a number, then text that does not compress much."""
    filler = base64.b64encode(random.Random(size).randbytes(size))[: max(0, size - _NUMBER_DIGITS)]
    for index in range(count):
        yield (b"%0*d" % (_NUMBER_DIGITS, index))[-size:] + filler if size else b""


def _lines(path: str) -> Iterator[bytes]:
    if path == "-":
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
        return
    with open(path, "rb") as file:
        for line in file:
            yield line.rstrip(b"\r\n")


def _bodies(options: argparse.Namespace) -> tuple[Iterator[bytes], int | None, int]:
    """Bodies, how many there are when that is known, and messages per request."""
    sources = [options.body != [], options.file is not None, options.count is not None]
    if sum(sources) != 1:
        raise ConfigError("give bodies as arguments, or --file, or --count: one of them")
    if options.size is not None and options.count is None:
        raise ConfigError("--size belongs to --count")
    if options.delay:
        if options.batch is not None and options.batch > 1:
            raise ConfigError("--delay and --batch exclude each other: batches take no delay level")
        options.batch = 1
    if options.body:
        encoded = [text.encode("utf-8", "surrogateescape") for text in options.body]
        return iter(encoded), len(encoded), options.batch or 1
    if options.file is not None:
        return _lines(options.file), None, options.batch or _BATCH
    size = _DEFAULT_SIZE if options.size is None else options.size
    # Small counts go one by one, so that all queues get some; batches stay below a MiB.
    batch = max(1, min(_BATCH, options.count // 100, _BATCH_BYTES // (size + 200)))
    return generated_bodies(options.count, size), options.count, options.batch or batch


class _Sent:
    """What became of the requests. The callbacks run on the producer's I/O thread."""

    def __init__(self, *, listed: bool) -> None:
        self._listed = listed
        self._results: list[SendResult | None] = []
        self.messages = 0
        self.bytes = 0
        self.failed = 0
        self.not_ok = 0
        self.errors: list[Exception] = []
        self._lock = threading.Lock()

    def callback(self, count: int, size: int) -> Any:
        """A callback for a request of so many messages and bytes."""
        place = len(self._results)
        if self._listed:
            self._results.append(None)

        def done(result: SendResult | None, error: Exception | None) -> None:
            with self._lock:
                if self._listed:
                    self._results[place] = result
                if error is not None or result is None:
                    self.failed += count
                    self.errors.append(error or SendError("no result", []))
                    return
                self.messages += count
                self.bytes += size
                if result.status is not SendStatus.SEND_OK:
                    self.not_ok += count

        return done

    def results(self) -> list[SendResult]:
        """What was stored, in the order of the requests, where it is to be listed."""
        return [result for result in self._results if result is not None]


def run(options: argparse.Namespace, output: Output) -> int:
    """Send everything. Exit code 1 when something was not stored."""
    bodies, total, batch = _bodies(options)
    tags = itertools.cycle(options.tags or [None])
    sent = _Sent(listed=options.body != [] and batch == 1)
    queue = options.queue and MessageQueue(options.topic, *options.queue)
    properties = dict(options.properties)
    Message(options.topic, properties=properties)  # what is wrong with them is said before a start
    producer = Producer(
        _GROUP,
        namesrv_addr=arguments.namesrv(options),
        max_in_flight=_IN_FLIGHT,
        send_msg_timeout=_SEND_MILLIS,
    )
    index = 0
    start = time.perf_counter()
    with stop_on_signals() as stop, output.progress(f"to {options.topic}", total) as progress:
        with only_errors("rocketmq_fast.client"), producer:
            start = time.perf_counter()
            while not (stop.wanted or sent.errors):
                messages = []
                for body in itertools.islice(bodies, batch):
                    keys = f"{options.keys}-{index}" if options.keys is not None else options.key
                    messages.append(
                        Message(
                            options.topic, body, next(tags), keys, properties,
                            delay_time_level=options.delay,
                        )
                    )  # fmt: skip
                    index += 1
                if not messages:
                    break
                done = sent.callback(len(messages), sum(len(m.body) for m in messages))
                if len(messages) == 1:
                    producer.send_async(messages[0], done, queue=queue)
                else:
                    producer.send_batch_async(messages, done, queue=queue)
                progress.update(sent.messages)
        seconds = time.perf_counter() - start
    _report(sent, seconds, output)
    if sent.errors:
        error = sent.errors[0]
        raise RocketMQError(f"{sent.failed:,} messages were not stored: {error}") from error
    return 128 + stop.signal_number if stop.signal_number is not None else 0


def _report(sent: _Sent, seconds: float, output: Output) -> None:
    speed = rate(sent.messages, seconds)
    values: dict[str, Any] = {
        "messages": sent.messages,
        "failed": sent.failed,
        "stored_with_warning": sent.not_ok,
        "bytes": sent.bytes,
        "seconds": round(seconds, 6),
        "messages_per_second": round(speed, 1),
    }
    stored = sent.results()
    if stored:
        values["stored"] = [
            {
                "broker_name": result.message_queue.broker_name,
                "queue_id": result.message_queue.queue_id,
                "queue_offset": result.queue_offset,
                "msg_id": result.msg_id,
            }
            for result in stored
        ]
    if not output.as_json:
        for result in stored:
            output.line(f"{result.message_queue} {result.queue_offset} {result.msg_id}")
    text = (
        f"{counted(sent.messages, 'message')} ({counted(sent.bytes, 'byte')}) "
        f"in {number(seconds)} s: {number(round(speed))} messages/s"
    )
    if sent.not_ok:
        text += f"; {sent.not_ok:,} stored, but not flushed or replicated in time"
    output.result(values, text)
