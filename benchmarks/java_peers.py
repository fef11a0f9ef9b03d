"""The Java client's classes on the same bytes, and its push consumer, as dicts of numbers.

``python -m benchmarks.java_peers --body FILE --frames FILE`` prints a table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.apache.java import DRIVERS, compiled, run_java

SOURCES = (Path(__file__).resolve().parent / "java", DRIVERS)

# The JIT and the collector as a user has them; only the heap is bounded.
PEER_JVM = ("-Xms1g", "-Xmx2g")


def compile_peers() -> Path:
    """Compile now, so that no measured run does it."""
    return compiled(SOURCES)


def _peer(
    bench: str, warm: float, seconds: float, rounds: int, **options: object
) -> dict[str, Any]:
    words = {"bench": bench, "warm": warm, "round": seconds, "rounds": rounds, **options}
    timeout = 60.0 + 3 * (warm + seconds * rounds)
    return run_java("Peers", words, timeout, sources=SOURCES, jvm_options=PEER_JVM)


def decode(
    body: Path, *, read: bool = False, warm: float = 3.0, seconds: float = 1.0, rounds: int = 5
) -> dict[str, Any]:
    """``MessageDecoder.decodes`` over a pull body; ``read`` touches body, tags, keys, offset."""
    return _peer("decode", warm, seconds, rounds, input=body, read=read)


def tag_filter(
    body: Path, tags: str, *, warm: float = 3.0, seconds: float = 1.0, rounds: int = 5
) -> dict[str, Any]:
    """The exact tag filter that a Java pull applies to its decoded messages."""
    return _peer("filter", warm, seconds, rounds, input=body, tags=tags)


def frame_decode(
    frames: Path, *, header: bool = True, warm: float = 3.0, seconds: float = 1.0, rounds: int = 5
) -> dict[str, Any]:
    """``RemotingCommand.decode`` of pull responses; ``header`` also makes the typed header."""
    return _peer("frame_decode", warm, seconds, rounds, input=frames, header=header)


def frame_encode(
    serialize: str = "JSON", *, warm: float = 3.0, seconds: float = 1.0, rounds: int = 5
) -> dict[str, Any]:
    """Making and encoding a pull request with a JSON or ROCKETMQ header."""
    return _peer("frame_encode", warm, seconds, rounds, serialize=serialize)


def process_queue(
    held: int,
    *,
    batch: int = 32,
    warm: float = 3.0,
    seconds: float = 1.0,
    rounds: int = 5,
) -> dict[str, Any]:
    """``ProcessQueue`` put and remove in batches, with ``held`` messages in it."""
    return _peer("queue", warm, seconds, rounds, held=held, batch=batch)


def fill(
    namesrv: str, topic: str, count: int, size: int, *, timeout: float = 600.0, **options: object
) -> dict[str, Any]:
    """Load ``count`` messages of ``size`` bytes evenly into the queues of an existing topic."""
    words = {"namesrv": namesrv, "topic": topic, "count": count, "size": size, **options}
    result = run_java("Fill", words, timeout, sources=SOURCES, jvm_options=("-Xmx512m",))
    stored = sum(result["queues"].values())
    if stored < count:
        raise RuntimeError(f"topic {topic} holds {stored} of {count} messages")
    return result


def push_throughput(
    namesrv: str,
    topic: str,
    group: str,
    count: int,
    *,
    pull_batch: int | None = None,
    consume_batch: int | None = None,
    orderly: bool = False,
    idle: float = 0.0,
    timeout: int = 300,
) -> dict[str, Any]:
    """The Java push consumer over ``count`` waiting messages; None is the client's default.

    ``idle`` seconds without messages follow, whose CPU time is told.
    """
    words: dict[str, object] = {"namesrv": namesrv, "topic": topic, "group": group, "count": count}
    words |= {"orderly": orderly, "idle": idle}
    if pull_batch is not None:
        words["pullBatch"] = pull_batch
    if consume_batch is not None:
        words["consumeBatch"] = consume_batch
    result = run_java(
        "PushThroughput",
        {**words, "timeout": timeout},
        timeout + 60.0 + idle,
        sources=SOURCES,
        jvm_options=PEER_JVM,
    )
    if not result["complete"]:
        raise RuntimeError(f"the Java consumer got {result['messages']} of {count} messages")
    return result


def main() -> None:
    """Print the microbenchmarks of the Java classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body", type=Path, help="stored messages, as a pull body")
    parser.add_argument("--frames", type=Path, help="whole pull response frames")
    parser.add_argument("--tags", default="TagA", help="expression of the tag filter")
    parser.add_argument("--held", type=int, nargs="*", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    results: list[dict[str, Any]] = [process_queue(held) for held in options.held]
    results += [frame_encode("JSON"), frame_encode("ROCKETMQ")]
    if options.body is not None:
        results += [decode(options.body), decode(options.body, read=True)]
        results.append(tag_filter(options.body, options.tags))
    if options.frames is not None:
        results += [frame_decode(options.frames, header=header) for header in (False, True)]
    for result in results:
        if options.json:
            print(json.dumps(result))
        else:
            held = f", {result['held']:,} held" if "held" in result else ""
            name = f"{result['bench']}{held}"
            print(f"{name:45} {result['median']:>15,.0f} {result['unit']} (median)")


if __name__ == "__main__":
    main()
