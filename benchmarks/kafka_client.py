"""confluent-kafka-python over waiting messages: the peer of our pull consumer.

``consume()`` with its defaults; key and value of each message are read. The clock runs from the
first to the last message. ``python -m benchmarks.kafka_client --bootstrap A --topic T --count N``
prints a JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
import uuid

from confluent_kafka import Consumer

from benchmarks.usage import used

_WAIT_SECONDS = 1.0


def consume(
    bootstrap: str, topic: str, count: int, *, group: str, most: int, timeout: float
) -> dict[str, object]:
    """Consume ``count`` messages with a new group, at most ``most`` a call."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    end = time.monotonic() + timeout
    messages = length = 0
    first: float | None = None
    while messages < count and time.monotonic() < end:
        got = consumer.consume(most, _WAIT_SECONDS)
        if got and first is None:
            first = time.perf_counter()
        for message in got:
            error = message.error()
            if error is not None:
                raise RuntimeError(f"Kafka: {error}")
            key = message.key()
            length += len(message.value()) + (0 if key is None else len(key))
        messages += len(got)
    last = time.perf_counter()
    result = used()
    consumer.close()
    seconds = 0.0 if first is None else last - first
    return {
        "messages": messages,
        "complete": messages >= count,
        "bytes": length,
        "seconds": seconds,
        "messages_per_second": messages / seconds if seconds else 0.0,
        **result,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.kafka_client", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--group", default=f"kafka_{uuid.uuid4().hex[:12]}")
    parser.add_argument("--most", type=int, default=1000, help="messages of a call")
    parser.add_argument("--timeout", type=float, default=300.0)
    print(json.dumps(consume(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
