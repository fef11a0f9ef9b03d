"""Whole consumers side by side on one Apache broker and the same messages.

``python -m benchmarks.end_to_end`` fills a topic for each body size, then runs, round by round, the
raw puller, the Java push consumer and ours, each in a process and a group of its own. First in
the defaults of both consumers (listener batch 1, pull batch 32) on a default broker, then with
listener batches of 32, then with the broker's limits raised and pull batch 256. Writes
benchmarks/results/end_to_end.json, .md and .png.
"""

from __future__ import annotations

import argparse
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import java_peers, measure
from benchmarks.measure import middle, number, say, times
from tests.apache import ApacheCluster, wire
from tests.apache.settings import RAISED_LIMITS

VERSION = "4.9.4"
QUEUES = 4
RAW, JAVA, OURS = "raw puller", "Java", "rocketmq_fast"
CLIENTS = (RAW, JAVA, OURS)
_UPDATE_BROKER_CONFIG = 25


@dataclass(frozen=True, slots=True)
class Mode:
    """How consumers and broker are set up; None is the consumer's own default."""

    key: str
    title: str
    pull_batch: int | None
    consume_batch: int | None
    raised: bool
    targets: dict[int, float]


MODES = (
    Mode("defaults", "defaults (listener batch 1)", None, None, False, {100: 2.0, 1024: 2.0}),
    Mode("batches", "listener batch 32", None, 32, False, {100: 2.0, 1024: 2.0}),
    Mode("raised", "limits raised, pull batch 256", 256, 32, True, {100: 4.0, 1024: 3.5}),
)
DEFAULT_PULL_BATCH = 32


def topic_name(size: int) -> str:
    """The topic with bodies of ``size`` bytes."""
    return f"Bench{size}"


def raise_limits(cluster: ApacheCluster) -> None:
    """Let the running broker hand out as much as clients ask for."""
    text = "".join(f"{name}={value}\n" for name, value in RAISED_LIMITS.items())
    answer = wire.request(cluster.broker_addr, _UPDATE_BROKER_CONFIG, body=text.encode())
    if answer.code != wire.SUCCESS:
        raise RuntimeError(f"the broker refused its configuration: {answer.code} {answer.remark}")


def run_client(
    client: str, cluster: ApacheCluster, mode: Mode, size: int, count: int, timeout: int
) -> dict[str, Any]:
    """One client over all messages of a topic, from its start."""
    topic = topic_name(size)
    group = f"bench_{uuid.uuid4().hex[:12]}"
    if client == RAW:
        ends = [cluster.max_offset(topic, queue) for queue in range(QUEUES)]
        result = measure.run_python(
            "benchmarks.raw_puller",
            timeout + 30,
            broker=cluster.broker_addr,
            topic=topic,
            ends=",".join(map(str, ends)),
            pull_batch=mode.pull_batch or DEFAULT_PULL_BATCH,
        )
    elif client == JAVA:
        result = java_peers.push_throughput(
            cluster.namesrv_addr,
            topic,
            group,
            count,
            pull_batch=mode.pull_batch,
            consume_batch=mode.consume_batch,
            timeout=timeout,
        )
    else:
        result = measure.run_python(
            "benchmarks.push_client",
            timeout + 60,
            namesrv=cluster.namesrv_addr,
            topic=topic,
            count=count,
            group=group,
            pull_batch=mode.pull_batch,
            consume_batch=mode.consume_batch,
            timeout=timeout,
        )
    _check(client, result, size, count)
    return result


def _check(client: str, result: dict[str, Any], size: int, count: int) -> None:
    """Nothing was lost, and bodies were read whole."""
    if result["messages"] < count:
        raise AssertionError(f"{client} got {result['messages']} of {count} messages")
    if client != RAW and result["bytes"] != result["messages"] * size:
        raise AssertionError(f"{client} read {result['bytes']} bytes of bodies of {size} bytes")


def run(sizes: list[int], count: int, rounds: int, *, timeout: int = 300) -> list[dict[str, Any]]:
    """All modes and sizes on one broker; the rows of the report."""
    java_peers.compile_peers()
    rows = []
    with ApacheCluster(VERSION, fast_start=False) as cluster:
        for size in sizes:
            cluster.create_topic(topic_name(size), QUEUES)
            filled = java_peers.fill(cluster.namesrv_addr, topic_name(size), count, size)
            say(f"{count:,} messages of {size} B in {filled['seconds']:.0f} s")
        raised = False
        for mode in MODES:
            if mode.raised and not raised:
                raise_limits(cluster)
                raised = True
            for size in sizes:
                # Not counted: it brings the topic into the page cache and the broker's JIT up.
                run_client(RAW, cluster, mode, size, count, timeout)
                rows.append(_measure(cluster, mode, size, count, rounds, timeout))
    return rows


def _measure(
    cluster: ApacheCluster, mode: Mode, size: int, count: int, rounds: int, timeout: int
) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {client: [] for client in CLIENTS}
    for turn in range(rounds):
        # Whoever comes first meets the broker as the last one left it: take turns at that.
        order = CLIENTS[turn % len(CLIENTS) :] + CLIENTS[: turn % len(CLIENTS)]
        for client in order:
            result = run_client(client, cluster, mode, size, count, timeout)
            runs[client].append(result)
            say(
                f"{mode.key} {size} B round {turn + 1}: {client} "
                f"{number(result['messages_per_second'])} msg/s"
            )
    rates = {client: [run["messages_per_second"] for run in runs[client]] for client in CLIENTS}
    return {
        "mode": mode.key,
        "title": mode.title,
        "size": size,
        "messages": count,
        "rates": rates,
        "median": {client: middle(rates[client]) for client in CLIENTS},
        "ratio_to_java": middle(
            [ours / java for ours, java in zip(rates[OURS], rates[JAVA], strict=True)]
        ),
        "ratio_to_raw": middle(
            [ours / raw for ours, raw in zip(rates[OURS], rates[RAW], strict=True)]
        ),
        "peak_rss_mib": {
            client: round(middle([run["peak_rss_bytes"] for run in runs[client]]) / 2**20, 1)
            for client in CLIENTS
        },
        "cpu_seconds": {
            client: round(middle([run["cpu_seconds"] for run in runs[client]]), 2)
            for client in CLIENTS
        },
        "target": mode.targets.get(size),
        "runs": runs,
    }


# ----------------------------------------------------------------------------------------- reports


def _verdict(row: dict[str, Any]) -> str:
    target = row["target"]
    if target is None:
        return ""
    return f">= {target:g}x: {'reached' if row['ratio_to_java'] >= target else 'MISSED'}"


def rate_table(rows: list[dict[str, Any]]) -> str:
    """Messages a second, and the ratios."""
    return measure.table(
        ["consumer set-up", "body", *CLIENTS, "/ Java", "/ raw", "target"],
        [
            [
                row["title"],
                f"{row['size']} B",
                *(number(row["median"][client]) for client in CLIENTS),
                times(row["ratio_to_java"]),
                times(row["ratio_to_raw"]),
                _verdict(row),
            ]
            for row in rows
        ],
        left=2,
    )


def usage_table(rows: list[dict[str, Any]]) -> str:
    """Peak memory and CPU time of each client."""
    return measure.table(
        [
            "consumer set-up",
            "body",
            *(f"{client}, peak MiB" for client in CLIENTS),
            *(f"{client}, CPU s" for client in CLIENTS),
        ],
        [
            [
                row["title"],
                f"{row['size']} B",
                *(f"{row['peak_rss_mib'][client]:.0f}" for client in CLIENTS),
                *(f"{row['cpu_seconds'][client]:.1f}" for client in CLIENTS),
            ]
            for row in rows
        ],
        left=2,
    )


def markdown(result: dict[str, Any]) -> str:
    """The report."""
    rows = result["rows"]
    return "\n\n".join(
        [
            (
                f"Messages a second from the first to the last of {rows[0]['messages']:,} waiting "
                f"messages in {QUEUES} queues; Apache broker {VERSION} on the same machine; "
                "listeners read body, tags and keys; medians of interleaved rounds."
            ),
            rate_table(rows),
            "Peak resident memory, and CPU time from the start of the process to the last message.",
            usage_table(rows),
            f"Measured on {measure.describe(result)}.",
        ]
    )


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars: one panel a body size, one group a set-up."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = result["rows"]
    sizes = sorted({row["size"] for row in rows})
    colours = {RAW: "#b8b8b8", JAVA: "#d98032", OURS: "#2f6db3"}
    figure, panels = pyplot.subplots(
        1, len(sizes), figsize=(4.6 * len(sizes), 3.6), squeeze=False, layout="constrained"
    )
    for panel, size in zip(panels[0], sizes, strict=True):
        chosen = [row for row in rows if row["size"] == size]
        for position, client in enumerate(CLIENTS):
            places = [index + (position - 1) * 0.27 for index in range(len(chosen))]
            heights = [row["median"][client] / 1000 for row in chosen]
            bars = panel.bar(places, heights, 0.25, label=client, color=colours[client])
            panel.bar_label(bars, fmt="%.0f", fontsize=7)
        panel.set_title(f"{size} B bodies", fontsize=10)
        panel.set_xticks(
            range(len(chosen)),
            [row["title"].replace(" (", "\n(").replace(", ", ",\n") for row in chosen],
            fontsize=8,
        )
        panel.set_ylabel("thousand messages / s", fontsize=8)
        panel.tick_params(axis="y", labelsize=8)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"Apache broker {VERSION}, one machine", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.end_to_end", description=__doc__)
    parser.add_argument("--sizes", default="100,1024", help="body sizes, joined by commas")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    measure.add_common(parser)
    return parser


def main(options: argparse.Namespace, words: list[str]) -> None:
    """Measure and write the report."""
    head = measure.circumstances("benchmarks.end_to_end", words)
    sizes = [int(size) for size in options.sizes.split(",")]
    rows = run(sizes, options.messages, options.rounds)
    result = {**head, "broker": VERSION, "queues": QUEUES, "rows": rows}
    text = markdown(result)
    measure.write_result("end_to_end", result, text, options.output)
    plot(result, options.output / "end_to_end.png")
    print(text)


if __name__ == "__main__":
    measure.run_main(main, arguments())
