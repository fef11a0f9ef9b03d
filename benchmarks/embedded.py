"""The embedded broker beside Apache's: batched sends, a push consumer, restart and memory.

Both brokers have their default limits and take the same clients in turn. The embedded one runs in a
process of its own, on a store that is then started again: after a stop, after kill -9, and without
the checkpoint that a start begins with. With --connections it has that many idle clients, at its
name server and at its broker; --messages 0 measures only this, and keeps the other results.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.embedded_connections import (
    BROKER,
    NAME_SERVER,
    measure_connections,
    raise_file_limit,
)
from benchmarks.measure import middle, number, say, table, times
from rocketmq_fast import Admin
from tests.apache import ApacheCluster

VERSION = "4.9.4"
EMBEDDED, APACHE = "embedded", "Apache 4.9.4"
DIRECTIONS = ("send, batches of 64", "push consumer, listener batch 32")
QUEUES = 4
TOPIC = "Bench"
_PATIENCE = 300.0


class EmbeddedProcess:
    """The embedded servers in a process of their own, on a store."""

    def __init__(self, store: Path) -> None:
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rocketmq_fast", "broker", "--namesrv-port", "0",
             "--broker-port", "0", "--store", str(store), "--json"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.start_seconds = time.perf_counter() - began
        if not line:
            raise RuntimeError(f"the broker did not start: code {self._process.wait(60)}")
        ready = json.loads(line)
        self.pid = self._process.pid
        self.namesrv_addr = str(ready["namesrv_addr"])
        self.broker_addr = str(ready["broker_addr"])

    def rss_mib(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def end(self, number: int) -> None:
        """Send a signal and wait for the end."""
        self._process.send_signal(number)
        self._process.communicate(timeout=60)


def _rounds(namesrv: str, count: int, size: int, rounds: int) -> dict[str, list[float]]:
    """Rates of both directions in each round."""
    rates: dict[str, list[float]] = {name: [] for name in DIRECTIONS}
    for index in range(rounds):
        topic = f"{TOPIC}{index}"
        sent = measure.run_python(
            "benchmarks.batch_producer", _PATIENCE, namesrv=namesrv, topic=topic, count=count,
            size=size,
        )  # fmt: skip
        got = measure.run_python(
            "benchmarks.push_client", _PATIENCE, namesrv=namesrv, topic=topic, count=count,
            group=f"bench_{uuid.uuid4().hex[:12]}", consume_batch=32,
        )  # fmt: skip
        for name, result in zip(DIRECTIONS, (sent, got), strict=True):
            rates[name].append(result["messages_per_second"])
        say(f"{sent['messages_per_second']:,.0f} sent, {got['messages_per_second']:,.0f} consumed")
    return rates


def _create(namesrv: str, rounds: int) -> None:
    with Admin(namesrv_addr=namesrv) as admin:
        for index in range(rounds):
            admin.create_topic(f"{TOPIC}{index}", QUEUES)


def _restarts(store: Path, process: EmbeddedProcess) -> dict[str, float]:
    """Seconds until the line that says ready, the interpreter's start included."""

    def forget() -> None:
        for path in store.glob("checkpoint*"):
            path.unlink()

    def nothing() -> None:
        pass

    ways: tuple[tuple[str, int, Callable[[], None]], ...] = (
        ("after a stop", signal.SIGTERM, nothing),
        ("after kill -9", signal.SIGKILL, nothing),
        ("without its checkpoint", signal.SIGKILL, forget),
    )
    seconds = {}
    for name, end, then in ways:
        process.end(end)
        then()
        process = EmbeddedProcess(store)
        seconds[name] = process.start_seconds
        say(f"started {name} in {process.start_seconds:.2f} s")
    process.end(signal.SIGTERM)
    return seconds


def _idle_clients(server: str, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rocketmq-bench-") as folder:
        process = EmbeddedProcess(Path(folder))
        try:
            return measure_connections(process, server, count)
        finally:
            process.end(signal.SIGTERM)


def run(count: int, size: int, rounds: int) -> dict[str, Any]:
    """Measure both brokers."""
    with tempfile.TemporaryDirectory(prefix="rocketmq-bench-") as folder:
        store = Path(folder)
        process = EmbeddedProcess(store)
        empty = process.rss_mib()
        _create(process.namesrv_addr, rounds)
        rates = {EMBEDDED: _rounds(process.namesrv_addr, count, size, rounds)}
        rss = process.rss_mib()
        log = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
        restarts = _restarts(store, process)
    with ApacheCluster(VERSION, fast_start=False) as apache:
        for index in range(rounds):
            apache.create_topic(f"{TOPIC}{index}", QUEUES)
        rates[APACHE] = _rounds(apache.namesrv_addr, count, size, rounds)
    return {
        "messages": count, "size": size, "rounds": rounds, "rates": rates,
        "store_mib": log / 2**20, "rss_empty_mib": empty, "rss_mib": rss, "restarts": restarts,
    }  # fmt: skip


def _idle_markdown(result: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['connections']:,} at the {row['server']}",
            f"{row['connect_seconds']:.1f} s",
            f"{row['kib_connected']:.1f} KiB",
            f"{row['kib_served']:.1f} KiB",
            f"{row['answer_ms']:.2f} ms",
            f"{row['idle_cpu']:.1%}",
        ]
        for row in result["rows"]
    ]
    head = ["idle clients", "connected in", "memory each", "once served", "an answer", "CPU"]
    return f"{table(head, rows)}\n\nMeasured on {measure.describe(result)}."


def markdown(result: dict[str, Any]) -> str:
    """The report."""
    parts = [_throughput_markdown(result)] if "rates" in result else []
    if "idle" in result:
        parts.append(_idle_markdown(result["idle"]))
    return "\n\n".join(parts)


def sentences(result: dict[str, Any]) -> list[str]:
    """What the summary says."""
    parts = []
    if "rates" in result:
        rates = result["rates"]
        texts = [
            f"{name} {number(middle(rates[EMBEDDED][name]))} "
            f"({times(middle(rates[EMBEDDED][name]) / middle(rates[APACHE][name]))})"
            for name in DIRECTIONS
        ]
        parts.append(
            f"Messages a second of {result['size']} B through the embedded broker, in brackets "
            f"beside {APACHE}: {'; '.join(texts)}."
        )
    idle = [
        f"{row['connections']:,} at the {row['server']} {row['kib_served']:.0f} KiB each"
        for row in result.get("idle", {}).get("rows", ())
    ]
    if idle:
        parts.append(f"Idle clients cost the embedded servers: {', '.join(idle)}.")
    return parts


def _throughput_markdown(result: dict[str, Any]) -> str:
    rates = result["rates"]
    rows = []
    for name in DIRECTIONS:
        ours, theirs = middle(rates[EMBEDDED][name]), middle(rates[APACHE][name])
        rows.append([name, number(ours), number(theirs), times(ours / theirs)])
    restarts = ", ".join(f"{name} {value:.1f} s" for name, value in result["restarts"].items())
    return "\n\n".join(
        (
            table(["messages a second", EMBEDDED, APACHE, "ratio"], rows),
            (
                f"{result['messages']:,} messages of {result['size']} B, the median of "
                f"{result['rounds']} rounds, the same clients of ours at both brokers."
            ),
            (
                f"Start of a store of {result['store_mib']:,.0f} MiB, until it serves: {restarts}. "
                f"Memory of the embedded broker: {result['rss_empty_mib']:.0f} MiB empty, "
                f"{result['rss_mib']:.0f} MiB with that store."
            ),
            f"Measured on {measure.describe(result)}.",
        )
    )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.embedded", description=__doc__)
    parser.add_argument("--messages", type=int, default=400_000, help="a round; 0: none")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=0, help="idle clients at each server")
    measure.add_common(parser)
    return parser


def main(options: argparse.Namespace, words: list[str]) -> None:
    """Measure and write the report."""
    head = measure.circumstances("benchmarks.embedded", words)
    result = measure.read_result("embedded", options.output) or head
    if options.connections:
        raise_file_limit(options.connections)
        rows = [_idle_clients(server, options.connections) for server in (NAME_SERVER, BROKER)]
        result["idle"] = {**head, "rows": rows}
    if options.messages:
        kept = {"idle": result["idle"]} if "idle" in result else {}
        result = {**head, **run(options.messages, options.size, options.rounds), **kept}
    text = markdown(result)
    measure.write_result("embedded", result, text, options.output)
    print(text)


if __name__ == "__main__":
    measure.run_main(main, arguments())
