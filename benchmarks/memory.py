"""What cached messages cost, and whether a long run keeps its memory.

``python -m benchmarks.memory`` holds 100,000 messages in a process queue, as they come out of the
frame splitter, and compares the growth of resident memory with the bytes of the frames; then it
consumes 10,000,000 messages of 100 B with the push consumer and samples resident memory. Writes
benchmarks/results/memory.json, .md and .png.
"""

from __future__ import annotations

import argparse
import gc
import json
from pathlib import Path
from typing import Any

from benchmarks import inputs, java_peers, measure
from benchmarks.measure import number, say
from benchmarks.usage import rss_bytes
from rocketmq_fast._core import FrameSplitter, ProcessQueue
from rocketmq_fast._core.message import decode_command
from tests.apache import ApacheCluster

VERSION = "4.9.4"
TOPIC = "LongRun"
QUEUES = 4
HELD_LIMIT = 1.3
# Of the samples, those of the first part belong to the start: threads, buffers, the allocator.
START_PART = 0.1
FLAT_MIB = 8.0
HELD_TEXT = (
    "Growth of resident memory while messages wait in a process queue, against the bytes of the "
    "frames that brought them."
)
_MAX_BODY = 32 << 20
MIB = 2**20


# -------------------------------------------------------------------------------- cached messages


def hold(count: int, size: int, pull: int) -> dict[str, Any]:
    """Fill a process queue as a consumer does; growth of memory against bytes on the wire.

    Answers arrive as from a socket: as much as there is room for at a time.
    """
    maker = inputs.Renumbered(pull, size)
    queue = ProcessQueue()
    splitter = FrameSplitter()
    # Everything that is made once is made here.
    _receive(splitter, queue, inputs.frame(maker.body(0), pull))
    queue.clear()
    gc.collect()
    before = rss_bytes()
    wire = 0
    for first in range(0, count, pull):
        frame = inputs.frame(maker.body(first), first + pull)
        wire += len(frame)
        _receive(splitter, queue, frame)
    grown = rss_bytes() - before
    held = -(-count // pull) * pull
    if queue.count != held or queue.size != held * size:
        raise AssertionError(f"the queue holds {queue.count} messages, {queue.size} bytes")
    return {
        "size": size,
        "pull": pull,
        "messages": held,
        "wire_bytes": wire,
        "rss_growth_bytes": grown,
        "ratio": grown / wire,
        "limit": HELD_LIMIT,
    }


def _receive(splitter: FrameSplitter, queue: ProcessQueue, data: bytes) -> None:
    at = 0
    while at < len(data):
        room = splitter.get_buffer()
        piece = data[at : at + len(room)]
        room[: len(piece)] = piece
        at += len(piece)
        room.release()
        for command in splitter.commit(len(piece)):
            queue.put(decode_command(command, True, _MAX_BODY))


def held_rows(count: int) -> list[dict[str, Any]]:
    """Each in a process of its own: memory that one leaves behind would serve the next."""
    rows = []
    for size in inputs.BODY_SIZES:
        for pull in (inputs.PULL, 256):
            row = measure.run_python("benchmarks.memory", 120, hold=count, size=size, pull=pull)
            say(f"{count:,} held, {size} B, pulls of {pull}: {row['ratio']:.2f} of the wire size")
            rows.append(row)
    return rows


# ------------------------------------------------------------------------------------ the long run


def long_run(count: int, period: float, *, fast_start: bool = False) -> dict[str, Any]:
    """Consume ``count`` messages of 100 B from an Apache broker and sample resident memory."""
    java_peers.compile_peers()
    with ApacheCluster(VERSION, fast_start=fast_start) as cluster:
        cluster.create_topic(TOPIC, QUEUES)
        filled = java_peers.fill(cluster.namesrv_addr, TOPIC, count, 100, timeout=900.0)
        say(f"{count:,} messages of 100 B in {filled['seconds']:.0f} s")
        result = measure.run_python(
            "benchmarks.push_client",
            960,
            namesrv=cluster.namesrv_addr,
            topic=TOPIC,
            count=count,
            timeout=900,
            sample_seconds=period,
        )
    return {**result, **flatness(result["samples"], count)}


def flatness(samples: list[dict[str, float]], count: int) -> dict[str, Any]:
    """Lowest and highest memory after the start, and what it grew by from there to the end."""
    later = [one["rss_bytes"] for one in samples if one["messages"] >= count * START_PART]
    if not later:
        return {"rss_low_mib": None, "rss_high_mib": None, "rss_growth_mib": None, "flat": None}
    tenth = max(1, len(later) // 10)
    growth = (sum(later[-tenth:]) - sum(later[:tenth])) / tenth / MIB
    return {
        "rss_low_mib": round(min(later) / MIB, 1),
        "rss_high_mib": round(max(later) / MIB, 1),
        "rss_growth_mib": round(growth, 2),
        "flat": growth <= FLAT_MIB,
    }


# ----------------------------------------------------------------------------------------- reports


def held_table(rows: list[dict[str, Any]]) -> str:
    """What held messages cost."""
    return measure.table(
        ["messages held", "body", "pulls of", "frames MiB", "memory MiB", "ratio", "target"],
        [
            [
                f"{row['messages']:,}",
                f"{row['size']} B",
                str(row["pull"]),
                f"{row['wire_bytes'] / MIB:.1f}",
                f"{row['rss_growth_bytes'] / MIB:.1f}",
                f"{row['ratio']:.2f}",
                f"<= {row['limit']}: {'reached' if row['ratio'] <= row['limit'] else 'MISSED'}",
            ]
            for row in rows
        ],
        left=1,
    )


def long_table(run: dict[str, Any]) -> str:
    """Memory along the run."""
    samples = run["samples"]
    rows = []
    for part in range(11):
        wanted = run["messages"] * part / 10
        at = min(samples, key=lambda one: abs(one["messages"] - wanted), default=None)
        if at is not None:
            rows.append(
                [
                    f"{at['messages']:,}",
                    f"{at['seconds']:.1f}",
                    f"{at['rss_bytes'] / MIB:.1f}",
                ]
            )
    return measure.table(["messages so far", "seconds", "resident MiB"], rows, left=0)


def markdown(result: dict[str, Any]) -> str:
    """The report."""
    parts = [HELD_TEXT, held_table(result["held"])]
    run = result["long_run"]
    if run is not None:
        text = (
            f"Resident memory of a push consumer in its defaults over {run['messages']:,} messages "
            f"of 100 B ({number(run['messages_per_second'])} msg/s): after the first tenth "
            f"{run['rss_low_mib']} to {run['rss_high_mib']} MiB, {run['rss_growth_mib']:+} MiB "
            "from there to the end."
        )
        parts += [text, long_table(run)]
    parts.append(f"Measured on {measure.describe(result)}.")
    return "\n\n".join(parts)


def plot(result: dict[str, Any], path: Path) -> None:
    """Resident memory over the messages of the long run."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    samples = result["long_run"]["samples"]
    figure, panel = pyplot.subplots(figsize=(5.6, 2.8), layout="constrained")
    panel.plot(
        [one["messages"] / 1e6 for one in samples],
        [one["rss_bytes"] / MIB for one in samples],
        color="#2f6db3",
        linewidth=1.2,
    )
    panel.set_ylim(bottom=0)
    panel.set_xlabel("million messages consumed", fontsize=8)
    panel.set_ylabel("resident MiB", fontsize=8)
    panel.tick_params(labelsize=8)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.add_argument("--held", type=int, default=100_000, help="messages in the process queue")
    parser.add_argument("--messages", type=int, default=10_000_000, help="0: no long run")
    parser.add_argument("--sample-seconds", type=float, default=0.5)
    parser.add_argument("--hold", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--pull", type=int, help=argparse.SUPPRESS)
    measure.add_common(parser)
    return parser


def main(options: argparse.Namespace, words: list[str]) -> None:
    """Measure and write the report; with --hold, be the process that is measured."""
    if options.hold is not None:
        print(json.dumps({**hold(options.hold, options.size, options.pull), "complete": True}))
        return
    head = measure.circumstances("benchmarks.memory", words)
    held = held_rows(options.held)
    run = long_run(options.messages, options.sample_seconds) if options.messages else None
    result = {**head, "held": held, "broker": VERSION, "long_run": run}
    text = markdown(result)
    measure.write_result("memory", result, text, options.output)
    if run is not None:
        plot(result, options.output / "memory.png")
    print(text)


if __name__ == "__main__":
    measure.run_main(main, arguments())
