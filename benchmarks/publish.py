"""Puts the measured tables into the documents.

``python -m benchmarks.publish`` reads benchmarks/results/*.json, writes summary.md beside them and
replaces what stands between markers in README.md and docs/benchmarks.md::

    <!-- measured -->            the summary
    <!-- measured: hot_paths --> a whole report, by its file's name
    <!-- /measured -->           the end of either

``--check`` changes nothing and fails when a document is not up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks import (
    consumer_kinds,
    embedded,
    end_to_end,
    hot_paths,
    measure,
    memory,
    spark_report,
)
from benchmarks.measure import RESULTS, ROOT, number, table, times
from benchmarks.work import MEMCPY

DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
REPORTS = {
    "hot_paths": hot_paths.markdown,
    "end_to_end": end_to_end.markdown,
    "consumer_kinds": consumer_kinds.markdown,
    "memory": memory.markdown,
    "embedded": embedded.markdown,
    "spark": spark_report.markdown,
}
SUMMARY = "summary"
NOTHING = "Nothing was measured yet."
_BLOCK = re.compile(r"(<!-- measured(?:: (\w+))? -->\n).*?(<!-- /measured -->)", re.DOTALL)

# Rows of the summary: title in the report, size, name here.
_HOT = (
    ("decode a pull body to view objects", "1024 B", "decode a pull to message objects, 1 KiB"),
    ("decode and read body, tags, keys, offset", "1024 B", "... and read body, tags, keys, offset"),
    ("process queue, put and remove 32, holding 1,000", "", "process queue holding 1,000"),
    ("process queue, put and remove 32, holding 1,000,000", "", "process queue holding 1,000,000"),
)


def summary(results: dict[str, dict[str, Any]]) -> str:
    """The short table for the README."""
    rows = [
        [
            f"push consumer, {row['title']}, {row['size']} B",
            number(row["median"][end_to_end.OURS]),
            number(row["median"][end_to_end.JAVA]),
            times(row["ratio_to_java"]),
        ]
        for row in results.get("end_to_end", {}).get("rows", ())
    ]
    rows += [
        [
            f"push consumer, {row['title']}, {row['size']} B",
            number(row["median"][pair["of"]]),
            number(row["median"][pair["to"]]),
            times(pair["ratio"]),
        ]
        for row in results.get("consumer_kinds", {}).get("rows", ())
        for pair in row["ratios"]
        if pair["to"] == consumer_kinds.JAVA
    ]
    if "hot_paths" in results:
        found = {(row["title"], row["size"]): row for row in results["hot_paths"]["rows"]}
        for title, size, name in _HOT:
            hot = found.get((title, size))
            if hot is not None:
                rows.append(
                    [
                        name,
                        number(hot["median"]["native"]),
                        number(hot["median"].get("java")),
                        times(hot["ratio"].get("java")),
                    ]
                )
    parts = []
    if rows:
        head = ["messages a second", "rocketmq_fast", "Java client 4.9.4", "ratio"]
        parts.append(table(head, rows))
    parts += _sentences(results)
    if not parts:
        return NOTHING
    described = {
        measure.describe(result)
        for name, whole in results.items()
        for result in (spark_report.summarized(whole) if name == "spark" else [whole])
    }
    parts += [f"Measured on {text}." for text in sorted(described)]
    return "\n\n".join(parts)


def _sentences(results: dict[str, dict[str, Any]]) -> list[str]:
    parts = []
    if "hot_paths" in results:
        arrow = [
            row
            for row in results["hot_paths"]["rows"]
            if row["title"].endswith("in turn") and row["size"] == "1024 B"
        ]
        if arrow:
            texts = [
                f"{row['title'].removeprefix('decode to Arrow, ').split(',')[0]} "
                f"{number(row['median']['native'], 'B/s')} "
                f"({row['ratio'][MEMCPY]:.0%} of a copy of the same bytes)"
                for row in arrow
            ]
            parts.append(f"Decode to Arrow, 1 KiB bodies: {', '.join(texts)}.")
    if "memory" in results:
        memory_result = results["memory"]
        worst = max(row["ratio"] for row in memory_result["held"])
        text = f"Cached messages cost at most {worst:.2f} of their size on the wire."
        run = memory_result["long_run"]
        if run is not None:
            text += (
                f" Over {run['messages']:,} messages the consumer's memory stayed between "
                f"{run['rss_low_mib']} and {run['rss_high_mib']} MiB."
            )
        parts.append(text)
    if "embedded" in results:
        parts += embedded.sentences(results["embedded"])
    if "spark" in results:
        parts += map(spark_report.sentence, spark_report.summarized(results["spark"]))
    return parts


def read_results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The results that are there."""
    found = {name: measure.read_result(name, folder) for name in REPORTS}
    return {name: result for name, result in found.items() if result is not None}


def filled(text: str, results: dict[str, dict[str, Any]]) -> str:
    """A document with its blocks replaced."""

    def block(match: re.Match[str]) -> str:
        name = match[2]
        if name is None:
            content = summary(results)
        elif name not in REPORTS:
            raise ValueError(f"unknown report {name!r}; known: {', '.join(REPORTS)}")
        else:
            content = REPORTS[name](results[name]) if name in results else NOTHING
        return f"{match[1]}{content}\n{match[3]}"

    return _BLOCK.sub(block, text)


def stale(documents: tuple[Path, ...] = DOCUMENTS) -> list[Path]:
    """Documents that do not show the results."""
    results = read_results()
    return [
        path
        for path in documents
        if path.is_file() and filled(text := path.read_text(encoding="utf-8"), results) != text
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.publish", description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        wrong = stale()
        for path in wrong:
            print(f"{path.relative_to(ROOT)} is not up to date: python -m benchmarks.publish")
        sys.exit(1 if wrong else 0)
    results = read_results()
    text = summary(results)
    (RESULTS / f"{SUMMARY}.md").write_text(text + "\n", encoding="utf-8")
    for path in DOCUMENTS:
        if path.is_file():
            before = path.read_text(encoding="utf-8")
            after = filled(before, results)
            if after != before:
                path.write_text(after, encoding="utf-8")
                print(f"updated {path.relative_to(ROOT)}")
    print(text)


if __name__ == "__main__":
    main()
