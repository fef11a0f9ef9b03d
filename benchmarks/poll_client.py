"""Our pull consumers over waiting messages: polled, polled into Arrow columns, and awaited.

``poll`` and ``async`` read body, tags and keys of each message as benchmarks/push_client.py does;
``arrow`` has the body column made, whose rows and bytes are counted. The clock runs from the first
to the last message. ``python -m benchmarks.poll_client --namesrv A --topic T --count N`` prints a
JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid

import pyarrow as pa
import pyarrow.compute as pc

import rocketmq_fast as rmq
from benchmarks.push_client import Reader
from benchmarks.usage import used

POLL, ARROW, ASYNC = KINDS = ("poll", "arrow", "async")
_WAIT_SECONDS = 1.0


class _Clock:
    """Ends the loop when everything came or the time is over."""

    def __init__(self, count: int, timeout: float) -> None:
        self.reader = Reader(count)
        self._end = time.monotonic() + timeout

    @property
    def going(self) -> bool:
        return not self.reader.complete and time.monotonic() < self._end


def _poll(consumer: rmq.PullConsumer, clock: _Clock, most: int) -> None:
    while clock.going:
        messages = consumer.poll(_WAIT_SECONDS, most)
        if messages:
            clock.reader.listen(messages, None)


def _poll_arrow(consumer: rmq.PullConsumer, clock: _Clock, most: int) -> None:
    tally = None
    while clock.going:
        batch = consumer.poll_arrow(_WAIT_SECONDS, most)
        if len(batch):
            if tally is None:
                tally = clock.reader.tally()
            body = pa.record_batch(batch).column("body")
            tally.messages += len(body)
            tally.bytes += pc.sum(pc.binary_length(body)).as_py()


async def _poll_async(
    group: str, topic: str, clock: _Clock, most: int, options: dict[str, object]
) -> None:
    async with rmq.AsyncPullConsumer(group, **options) as consumer:
        await consumer.subscribe(topic)
        while clock.going:
            messages = await consumer.poll(_WAIT_SECONDS, most)
            if messages:
                clock.reader.listen(messages, None)


def consume(
    namesrv: str,
    topic: str,
    count: int,
    *,
    group: str,
    kind: str,
    pull_batch: int,
    most: int,
    timeout: float,
) -> dict[str, object]:
    """Consume ``count`` messages with a new group, at most ``most`` a poll."""
    clock = _Clock(count, timeout)
    options: dict[str, object] = {
        "namesrv_addr": namesrv,
        "consume_from_where": "CONSUME_FROM_FIRST_OFFSET",
        "pull_batch_size": pull_batch,
    }
    if kind == ASYNC:
        asyncio.run(_poll_async(group, topic, clock, most, options))
    else:
        with rmq.PullConsumer(group, **options) as consumer:
            consumer.subscribe(topic)
            (_poll if kind == POLL else _poll_arrow)(consumer, clock, most)
    return {**clock.reader.result(), **used()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.poll_client", description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--group", default=f"poll_{uuid.uuid4().hex[:12]}")
    parser.add_argument("--kind", choices=KINDS, default=POLL)
    parser.add_argument("--pull-batch", type=int, default=256)
    parser.add_argument("--most", type=int, default=1024, help="messages of a poll")
    parser.add_argument("--timeout", type=float, default=300.0)
    options = parser.parse_args()
    print(json.dumps(consume(**vars(options))))


if __name__ == "__main__":
    main()
