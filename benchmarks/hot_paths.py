"""The hot paths side by side: native core, the Java client's classes, readable Python.

``python -m benchmarks.hot_paths`` interleaves the implementations: in each round each of them runs
once on the same bytes, and a ratio is the median of the ratios of the rounds. Writes
benchmarks/results/hot_paths.json and .md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import inputs, java_peers, measure, work
from benchmarks.inputs import BODY_SIZES, LARGE_PULL, PULL
from benchmarks.measure import middle, number, say, times
from benchmarks.work import MEMCPY, NATIVE, PYTHON, Work

JAVA = "java"
HELD = (1_000, 100_000, 1_000_000)
LABELS = {NATIVE: "native", JAVA: "Java", PYTHON: "Python", MEMCPY: "memcpy"}
ARROW_TEXT = (
    "Bytes of the pull body a second. memcpy copies the same bytes; Python is the reference "
    "decoder with pyarrow. *In turn* goes through 128 MiB of pull bodies, so that none is found "
    "in the cache."
)
CLOCK = "CPU time of the process, Java's garbage collector included"
HOT_TEXT = "Messages or frames a second, one thread; ratios are medians over interleaved rounds."
JavaRun = Callable[..., dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """What the native core has to reach: so many times another implementation."""

    against: str
    ratio: float


@dataclass(slots=True)
class Row:
    """One line of the report."""

    title: str
    size: str
    makers: dict[str, Callable[[], Work]]
    java: JavaRun | None = None
    answer: dict[str, int] = field(default_factory=dict)
    target: Target | None = None
    rates: dict[str, list[float]] = field(default_factory=dict)
    unit: str = ""

    def ratio(self, other: str) -> float | None:
        """Native over another, the median over the rounds."""
        if other not in self.rates:
            return None
        pairs = zip(self.rates[NATIVE], self.rates[other], strict=True)
        return middle([native / peer for native, peer in pairs])


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often; ``held`` are the sizes of the process queue."""

    rounds: int
    seconds: float
    java_warm: float
    java_rounds: int
    held: tuple[int, ...] = HELD
    queue_batches: int = 4096
    arrow_bytes: int = 128 << 20


def _implementations(make: Callable[[str], Work], *names: str) -> dict[str, Callable[[], Work]]:
    return {name: partial(make, name) for name in names or (NATIVE, PYTHON)}


def rows(folder: Path, effort: Effort) -> list[Row]:
    """All lines; the inputs of Java are written to ``folder``."""
    found: list[Row] = []
    for size in BODY_SIZES:
        stream = folder / f"frames-{size}"
        stream.write_bytes(inputs.answers(work.FRAMES, size))
        found.append(
            Row(
                "split and decode pull answers",
                f"{size} B",
                _implementations(partial(work.frame_decode, size=size)),
                partial(java_peers.frame_decode, stream),
                {"frames": work.FRAMES},
            )
        )
    for kind, serialize in enumerate(("JSON", "ROCKETMQ")):
        found.append(
            Row(
                f"encode a pull request, {serialize} header",
                "",
                _implementations(partial(work.frame_encode, serialize_type=kind)),
                partial(java_peers.frame_encode, serialize),
            )
        )
    for size in BODY_SIZES:
        found += _decode_rows(folder, size)
    for count, total in ((PULL, 0), (LARGE_PULL, 0), (LARGE_PULL, effort.arrow_bytes)):
        for size in BODY_SIZES:
            found += _arrow_rows(count, size, total)
    for held in effort.held:
        make = partial(work.process_queue, held=held, batches=effort.queue_batches)
        found.append(
            Row(
                f"process queue, put and remove 32, holding {held:,}",
                "",
                _implementations(make),
                partial(java_peers.process_queue, held),
                {"held": max(1, held // PULL) * PULL},
                Target(JAVA, 10.0),
            )
        )
    body = folder / "body-100"
    found.append(
        Row(
            "exact tag filter of one pull",
            "100 B",
            _implementations(partial(work.tag_filter, size=100)),
            partial(java_peers.tag_filter, body, inputs.WANTED_TAGS),
            {"messages": PULL, "kept": PULL // 2},
        )
    )
    return found


def _decode_rows(folder: Path, size: int) -> list[Row]:
    body = folder / f"body-{size}"
    body.write_bytes(inputs.pull_body(PULL, size))

    def line(title: str, variant: str, target: float | None, *, crc: bool = False) -> Row:
        return Row(
            title,
            f"{size} B",
            _implementations(partial(work.decode, size=size, variant=variant, crc=crc)),
            None if crc else partial(java_peers.decode, body, read=variant == "read"),
            {"messages": PULL, "bytes": len(inputs.pull_body(PULL, size))},
            Target(JAVA, target) if target is not None else None,
        )

    return [
        line("decode a pull body", "index", 10.0),
        line("decode a pull body to view objects", "views", 10.0),
        line("decode and read body, tags, keys, offset", "read", 1.0),
        line("decode a pull body, CRC checked", "index", None, crc=True),
        line("decode and read, CRC checked", "read", None, crc=True),
    ]


def _arrow_rows(count: int, size: int, total: int) -> list[Row]:
    bodies = max(1, total // len(inputs.pull_body(count, size)))
    make = partial(work.arrow, size=size, count=count, bodies=bodies)

    def line(title: str, columns: tuple[str, ...] | None, target: Target | None) -> Row:
        return Row(
            f"{title}, {count} messages" + (", in turn" if total else ""),
            f"{size} B",
            _implementations(partial(make, columns=columns), NATIVE, PYTHON, MEMCPY),
            target=target,
        )

    half = Target(MEMCPY, 0.5) if size == max(BODY_SIZES) else None
    return [
        line("decode to Arrow, all columns", None, half),
        line("decode to Arrow, body only", ("body",), None),
    ]


# ----------------------------------------------------------------------------------------- measure


def why_no_java() -> str | None:
    """What is missing for the Java rows; compiles their programs when nothing is."""
    if measure.java_version() is None:
        return "no java on PATH"
    try:
        java_peers.compile_peers()
    except Exception as error:  # noqa: BLE001 - whatever is wrong is the reason that the report names
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def _java_rate(row: Row, effort: Effort) -> float:
    assert row.java is not None
    result = row.java(
        warm=effort.java_warm,
        seconds=effort.seconds / effort.java_rounds,
        rounds=effort.java_rounds,
    )
    for name, value in row.answer.items():
        if name in result and result[name] != value:
            raise AssertionError(f"{row.title}: Java has {name} {result[name]}, not {value}")
    return float(result["median"])


def run(lines: list[Row], effort: Effort, *, java: bool) -> None:
    """Fill in the rates, round by round."""
    for position, row in enumerate(lines, 1):
        say(f"[{position}/{len(lines)}] {row.title} {row.size}")
        works = {name: make() for name, make in row.makers.items()}
        row.unit = next(iter(works.values())).unit
        for _ in range(effort.rounds):
            for name, piece in works.items():
                row.rates.setdefault(name, []).append(measure.rate(piece, effort.seconds))
            if java and row.java is not None:
                row.rates.setdefault(JAVA, []).append(_java_rate(row, effort))


def report(lines: list[Row], head: dict[str, Any], no_java: str | None) -> dict[str, Any]:
    """The result as JSON keeps it."""
    return {
        **head,
        "clock": CLOCK,
        "no_java": no_java,
        "rows": [
            {
                "title": row.title,
                "size": row.size,
                "unit": row.unit,
                "median": {name: middle(rates) for name, rates in row.rates.items()},
                "rates": row.rates,
                "ratio": {
                    name: ratio
                    for name in (JAVA, PYTHON, MEMCPY)
                    if (ratio := row.ratio(name)) is not None
                },
                "target": {"against": row.target.against, "ratio": row.target.ratio}
                if row.target
                else None,
            }
            for row in lines
        ],
    }


def _verdict(row: dict[str, Any]) -> str:
    target = row["target"]
    if target is None:
        return ""
    text = f">= {target['ratio']:g}x {LABELS[target['against']]}"
    reached = row["ratio"].get(target["against"])
    if reached is None:
        return text
    return f"{text}: {'reached' if reached >= target['ratio'] else 'MISSED'}"


def markdown(result: dict[str, Any]) -> str:
    """The report as a table."""
    body = [
        [
            row["title"],
            row["size"],
            *(number(row["median"].get(name)) for name in (NATIVE, JAVA, PYTHON)),
            times(row["ratio"].get(JAVA)),
            times(row["ratio"].get(PYTHON)),
            _verdict(row),
        ]
        for row in result["rows"]
        if row["unit"] != "bytes/s"
    ]
    head = ["path", "body", "native", "Java", "Python", "/ Java", "/ Python", "target"]
    arrow = [
        [
            row["title"],
            row["size"],
            *(number(row["median"].get(name), "B") for name in (NATIVE, MEMCPY, PYTHON)),
            times(row["ratio"].get(MEMCPY)),
            times(row["ratio"].get(PYTHON)),
            _verdict(row),
        ]
        for row in result["rows"]
        if row["unit"] == "bytes/s"
    ]
    arrow_head = ["path", "body", "native", "memcpy", "Python", "/ memcpy", "/ Python", "target"]
    parts = [
        f"{HOT_TEXT} The clock is {result['clock']}.",
        measure.table(head, body, left=2),
        ARROW_TEXT,
        measure.table(arrow_head, arrow, left=2),
        f"Measured on {measure.describe(result)}.",
    ]
    if result["no_java"] is not None:
        parts.append(f"No Java rows: {result['no_java']}.")
    return "\n\n".join(parts)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.hot_paths", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6, help="of one round of one of them")
    parser.add_argument("--java-warm", type=float, default=2.0, help="seconds before Java is timed")
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--only", default="", help="rows whose title contains this")
    measure.add_common(parser)
    return parser


def main(options: argparse.Namespace, words: list[str]) -> None:
    """Measure and write the report."""
    effort = Effort(options.rounds, options.seconds, options.java_warm, 1)
    head = measure.circumstances("benchmarks.hot_paths", words)
    no_java = "--no-java was given" if options.no_java else why_no_java()
    if no_java is not None:
        say(f"no Java rows: {no_java}")
    with tempfile.TemporaryDirectory(prefix="rocketmq-fast-bench-") as folder:
        lines = [row for row in rows(Path(folder), effort) if options.only in row.title]
        run(lines, effort, java=no_java is None)
    result = report(lines, head, no_java)
    text = markdown(result)
    measure.write_result("hot_paths", result, text, options.output)
    print(text)


if __name__ == "__main__":
    measure.run_main(main, arguments())
