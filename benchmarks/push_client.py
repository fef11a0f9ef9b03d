"""Our push consumer over waiting messages: the counterpart of java/PushThroughput.java.

The listener reads body, tags and keys of each message, or only counts them. It is called on worker
threads, in order, or awaited on an event loop. The clock runs from the first to the last message.
``python -m benchmarks.push_client --namesrv A --topic T --count N`` prints a JSON object.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import uuid
from collections.abc import Callable
from typing import Self

import rocketmq_fast as rmq
from benchmarks.usage import rss_bytes, used

# How exactly the end is timed; a run takes a second or more.
_LOOK_SECONDS = 0.002

THREADED, ORDERLY, ASYNCIO = KINDS = ("threaded", "orderly", "asyncio")


Listener = Callable[[list[rmq.MessageExt], object], object]


class Tally:
    """What one thread's listener calls got."""

    __slots__ = ("bytes", "characters", "first", "messages")

    def __init__(self) -> None:
        self.first = time.perf_counter()
        self.messages = self.bytes = self.characters = 0


def _success(orderly: bool) -> object:
    return rmq.OrderlyStatus.SUCCESS if orderly else rmq.ConsumeStatus.CONSUME_SUCCESS


class Reader:
    """What a listener got: `listen` counts, and reads every message if `reads`.

    What the listener costs by itself is paid for every call, and with one message a call that is a
    good part of the time of a message: so it is a plain function, and each thread has a tally of
    its own, without a lock.
    """

    def __init__(self, count: int, *, reads: bool = True, orderly: bool = False) -> None:
        self.last = 0.0
        self._count = count
        self._local = threading.local()
        self._tallies: list[Tally] = []
        self.listen = self._reading(orderly) if reads else self._counting(orderly)

    def _reading(self, orderly: bool) -> Listener:
        local = self._local
        success = _success(orderly)

        def listen(messages: list[rmq.MessageExt], _context: object) -> object:
            try:
                tally = local.tally
            except AttributeError:
                tally = self.tally()
            length = text = 0
            for message in messages:
                tags = message.tags
                keys = message.keys
                length += len(message.body)
                if tags is not None:
                    text += len(tags)
                if keys is not None:
                    text += len(keys)
            tally.messages += len(messages)
            tally.bytes += length
            tally.characters += text
            return success

        return listen

    def _counting(self, orderly: bool) -> Listener:
        local = self._local
        success = _success(orderly)

        def listen(messages: list[rmq.MessageExt], _context: object) -> object:
            try:
                tally = local.tally
            except AttributeError:
                tally = self.tally()
            tally.messages += len(messages)
            return success

        return listen

    async def awaited(self, messages: list[rmq.MessageExt], context: object) -> object:
        """The same as a coroutine."""
        return self.listen(messages, context)

    def tally(self) -> Tally:
        """A new tally, the calling thread's from now on."""
        tally = self._local.tally = Tally()
        self._tallies.append(tally)
        return tally

    def total(self, what: str) -> int:
        """The sum over the threads of messages, bytes or characters."""
        return sum(getattr(tally, what) for tally in self._tallies.copy())

    @property
    def first(self) -> float:
        """When the first call began."""
        return min((tally.first for tally in self._tallies.copy()), default=time.perf_counter())

    @property
    def complete(self) -> bool:
        """Whether all messages came; `last` is when that was first seen."""
        if not self.last and self.total("messages") >= self._count:
            self.last = time.perf_counter()
        return bool(self.last)

    def wait(self, timeout: float) -> bool:
        """Wait until all messages came. Whether they did."""
        end = time.monotonic() + timeout
        while not self.complete and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        return self.complete

    def result(self) -> dict[str, object]:
        """What came, and how fast."""
        complete = self.complete
        seconds = (self.last if complete else time.perf_counter()) - self.first
        messages = self.total("messages")
        return {
            "messages": messages,
            "complete": complete,
            "bytes": self.total("bytes"),
            "characters": self.total("characters"),
            "seconds": seconds,
            "messages_per_second": messages / seconds,
        }


class Sampler:
    """Notes resident memory and progress at regular times, on a thread of its own."""

    def __init__(self, reader: Reader, period: float) -> None:
        self.samples: list[dict[str, float]] = []
        self._reader = reader
        self._period = period
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rss-sampler", daemon=True)

    def __enter__(self) -> Self:
        if self._period > 0:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._period > 0:
            self._thread.join()

    def _run(self) -> None:
        began = time.perf_counter()
        while not self._ended.wait(self._period):
            self.samples.append(
                {
                    "seconds": round(time.perf_counter() - began, 3),
                    "messages": self._reader.total("messages"),
                    "rss_bytes": rss_bytes(),
                }
            )


def consume(
    namesrv: str,
    topic: str,
    count: int,
    *,
    group: str,
    kind: str = THREADED,
    reads: bool = True,
    pull_batch: int | None = None,
    consume_batch: int | None = None,
    timeout: float = 300.0,
    sample_seconds: float = 0.0,
) -> dict[str, object]:
    """Consume ``count`` messages with a new group; None is the consumer's default."""
    options: dict[str, object] = {}
    if pull_batch is not None:
        options["pull_batch_size"] = pull_batch
    if consume_batch is not None:
        options["consume_message_batch_max_size"] = consume_batch
    orderly = kind == ORDERLY
    reader = Reader(count, reads=reads, orderly=orderly)
    consumer = rmq.PushConsumer(
        group,
        namesrv_addr=namesrv,
        consume_from_where=rmq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        **options,
    )
    consumer.subscribe(topic, "*")
    listener = reader.awaited if kind == ASYNCIO else reader.listen
    consumer.register_listener(listener, orderly=orderly)
    consumer.start()
    with Sampler(reader, sample_seconds) as sampler:
        reader.wait(timeout)
    usage = used()
    stats = consumer.stats()
    # As in the Java program: what comes too much would come now.
    time.sleep(0.2)
    consumer.shutdown()
    return {
        **reader.result(),
        "calls": sum(counts["calls"] for counts in stats["totals"].values()),
        "pulls": stats["pulls"],
        "flow_controlled": stats["flow_controlled"],
        "threads": stats["threads"],
        **usage,
        **({"samples": sampler.samples} if sample_seconds > 0 else {}),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.push_client", description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--group", default=f"push_{uuid.uuid4().hex[:12]}")
    parser.add_argument("--kind", choices=KINDS, default=THREADED, help="of listener")
    parser.add_argument("--reads", type=int, choices=(0, 1), default=1, help="0: only counts")
    parser.add_argument("--pull-batch", type=int)
    parser.add_argument("--consume-batch", type=int)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--sample-seconds", type=float, default=0.0, help="of resident memory")
    options = parser.parse_args()
    result = consume(
        options.namesrv,
        options.topic,
        options.count,
        group=options.group,
        kind=options.kind,
        reads=bool(options.reads),
        pull_batch=options.pull_batch,
        consume_batch=options.consume_batch,
        timeout=options.timeout,
        sample_seconds=options.sample_seconds,
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
