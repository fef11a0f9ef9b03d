"""The tables and the plot of benchmarks.spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.measure import number, table

RAW, TRIVIAL, OURS, KAFKA = "raw puller", "trivial source", "rocketmq_fast", "Kafka's source"
CLIENTS = (RAW, TRIVIAL, OURS, KAFKA)
# Of 1 / (1/raw + 1/trivial), and of the batch rate for streams.
BOUND_TARGET = 0.8
STREAM_TARGET = 0.8
MIB = 2**20
_COLOURS = {RAW: "#b8b8b8", TRIVIAL: "#8fb98f", OURS: "#2f6db3", KAFKA: "#d98032"}


def _verdict(value: float, least: float, text: str) -> str:
    return f"{text}: {'reached' if value >= least else 'MISSED'}"


def _spread(values: list[float]) -> str:
    """How far apart the rounds are, as a part of the smallest."""
    return f"{max(values) / min(values) - 1:.0%}"


def batch_table(rows: list[dict[str, Any]]) -> str:
    """Rows a second of each client, and what they are to each other."""
    body = []
    for row in rows:
        kafka = times_of(row["ratio_to_kafka"])
        if row["raised"]:
            kafka = _verdict(row["ratio_to_kafka"], 1.0, f"{kafka}, > 1x")
        body.append(
            [
                f"{row['size']} B",
                row["columns"],
                *(number(row["median"][client]) for client in (RAW, TRIVIAL, OURS)),
                _spread(row["rates"][OURS]),
                f"{row['ratio_to_bound']:.0%}",
                _verdict(row["ratio_to_bound"], BOUND_TARGET, f">= {BOUND_TARGET:.0%}"),
                number(row["median"][KAFKA]),
                kafka,
            ]
        )
    head = ["body", "columns", RAW, TRIVIAL, OURS, "spread", "of the bound", "target", KAFKA]
    return table([*head, "/ Kafka"], body, left=2)


def times_of(value: float) -> str:
    """A ratio with two places."""
    return f"{value:.2f}x"


def stream_table(rows: list[dict[str, Any]]) -> str:
    """Streams beside batch reads."""
    return table(
        [
            *("source", "batch read", "micro-batches", "of batch", "target"),
            *("of the trivial source's", "with start and end"),
        ],
        [
            [
                row["source"],
                number(row["batch"]),
                number(row["triggers"]),
                f"{row['ratio']:.0%}",
                _verdict(row["ratio"], STREAM_TARGET, f">= {STREAM_TARGET:.0%}")
                if row["source"].startswith(OURS)
                else "",
                f"{row['ratio_to_trivial']:.0%}" if row["ratio_to_trivial"] else "",
                number(row["whole"]),
            ]
            for row in rows
        ],
    )


def _measured(part: dict[str, Any]) -> str:
    return f"Measured on {measure.describe(part)}."


def _batches(rows: list[dict[str, Any]]) -> str:
    limits = "limits of the broker raised" if rows[0]["raised"] else "a broker in its defaults"
    return (
        f"Batch reads of {rows[0]['messages']:,} messages in 4 queues into the noop sink, "
        f"`local[2]`, {limits}: rows a second with the planning in them, medians of "
        f"{len(rows[0]['rates'][OURS])} rounds.\n\n{batch_table(rows)}"
    )


def _streams(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    return (
        f"Streams with availableNow over {first['messages']:,} messages of 1024 B, at most "
        f"{first['a_trigger']:,} a trigger in two tasks, limits of the broker raised: rows a "
        f"second, medians of {len(first['runs']['batch'])} rounds.\n\n{stream_table(rows)}"
    )


def _memory(run: dict[str, Any]) -> str:
    return (
        f"The largest Python worker over {run['messages']:,} rows of all columns, 1024 B, limits "
        f"of the broker raised: after the first tenth {run['rss_low_mib']} to "
        f"{run['rss_high_mib']} MiB resident, {run['rss_growth_mib']:+} MiB from there to the end."
    )


def _latency(run: dict[str, Any]) -> str:
    return (
        f"From the call of send to the sink, a message every {run['period_seconds']:g} s, trigger "
        f"{run['trigger']}, {run['messages']:,} messages: median {run['median_ms']:.0f} ms, p99 "
        f"{run['p99_ms']:.0f} ms (least {run['least_ms']:.0f}, most {run['most_ms']:.0f}); a "
        f"micro-batch took {run['batch_ms']:.0f} ms. A message waits half a second for its trigger "
        "in the mean."
    )


_SECTIONS: dict[str, Callable[[Any], str]] = {
    "batch": _batches,
    "raised": _batches,
    "streams": _streams,
    "memory": _memory,
    "latency": _latency,
}


def markdown(result: dict[str, Any]) -> str:
    """The report."""
    text: list[str] = []
    for name, section in _SECTIONS.items():
        part = result["parts"].get(name)
        if part is not None:
            text += [section(part["found"]), _measured(part)]
    return "\n\n".join(text)


def summarized(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts that the summary tells of."""
    return [result["parts"][name] for name in ("batch", "raised") if name in result["parts"]]


def sentence(part: dict[str, Any]) -> str:
    """A part of batch reads in a few words, for the summary."""
    rows = [row for row in part["found"] if row["size"] == 1024]
    limits = "limits of the broker raised" if rows[0]["raised"] else "a broker in its defaults"
    texts = [
        f"{row['columns']} {number(row['median'][OURS])} ({row['ratio_to_bound']:.0%}, "
        f"{times_of(row['ratio_to_kafka'])})"
        for row in rows
    ]
    return (
        f"Rows a second of a Spark batch read, `local[2]`, 1 KiB bodies, {limits}, by columns (in "
        "brackets: part of 1 / (1/raw + 1/trivial), times Spark's own Kafka source): "
        f"{', '.join(texts)}."
    )


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars of the batch reads, and the memory of the long read."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    parts = result["parts"]
    batches = [name for name in ("batch", "raised") if name in parts]
    memory = "memory" in parts
    count = len(batches) + memory
    if count == 0:
        return
    figure, panels = pyplot.subplots(
        1, count, figsize=(4.6 * count, 3.6), squeeze=False, layout="constrained"
    )
    for panel, name in zip(panels[0], batches, strict=False):
        rows = parts[name]["found"]
        for position, client in enumerate(CLIENTS):
            places = [index + (position - 1.5) * 0.2 for index in range(len(rows))]
            heights = [row["median"][client] / 1000 for row in rows]
            bars = panel.bar(places, heights, 0.19, label=client, color=_COLOURS[client])
            panel.bar_label(bars, fmt="%.0f", fontsize=5)
        title = "limits raised" if name == "raised" else "default broker"
        panel.set_title(title, fontsize=10)
        labels = [f"{row['size']} B\n{row['columns']}" for row in rows]
        panel.set_xticks(range(len(rows)), labels, fontsize=7)
        panel.set_ylabel("thousand rows / s", fontsize=8)
    if batches:
        panels[0][0].legend(frameon=False, fontsize=7)
    if memory:
        panel = panels[0][-1]
        samples = parts["memory"]["found"]["samples"]
        panel.plot(
            [one["messages"] / 1e6 for one in samples],
            [one["rss_bytes"] / MIB for one in samples],
            color=_COLOURS[OURS],
            linewidth=1.2,
        )
        panel.set_ylim(bottom=0)
        panel.set_title("largest Python worker", fontsize=10)
        panel.set_xlabel("million rows", fontsize=8)
        panel.set_ylabel("resident MiB", fontsize=8)
    for panel in panels[0]:
        panel.tick_params(axis="y", labelsize=8)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
