"""Our producer with batches: `python -m benchmarks.batch_producer --namesrv A --topic T --count N`.

A few batches are on their way at a time; one that a busy broker refuses is sent again. The clock
runs from the first send to the last answer. Prints a JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import rocketmq_fast as rmq
from benchmarks.usage import used
from rocketmq_fast.errors import SystemBusy

if TYPE_CHECKING:
    from concurrent.futures import Future

_ON_THE_WAY = 8


def produce(namesrv: str, topic: str, count: int, *, size: int, batch: int) -> dict[str, object]:
    """Send ``count`` messages, each with a body of ``size`` bytes."""
    body = bytes(index & 0xFF for index in range(size))
    waiting: deque[tuple[list[rmq.Message], Future[Any]]] = deque()
    refused = 0
    with rmq.Producer("bench_producer", namesrv_addr=namesrv) as producer:
        producer.send_batch([rmq.Message(topic, body)])  # the route and the connection
        began = time.perf_counter()
        sent = 1
        while sent < count:
            messages = [rmq.Message(topic, body) for _ in range(min(batch, count - sent))]
            waiting.append((messages, producer.send_batch_async(messages)))
            sent += len(messages)
            while waiting and (len(waiting) >= _ON_THE_WAY or sent == count):
                messages, answer = waiting.popleft()
                try:
                    answer.result()
                except SystemBusy:
                    refused += 1
                    waiting.append((messages, producer.send_batch_async(messages)))
        seconds = time.perf_counter() - began
    return {
        "messages": sent,
        "complete": sent == count,
        "refused_batches": refused,
        "seconds": seconds,
        "messages_per_second": (sent - 1) / seconds,
        **used(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.batch_producer", description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    result = produce(
        options.namesrv, options.topic, options.count, size=options.size, batch=options.batch
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
