"""Other ways to consume, each beside its peer: in order, awaited, one by one, polled; many queues.

``python -m benchmarks.consumer_kinds`` starts an Apache broker and measures, in turns round by
round: the orderly push consumer beside Java's on 16 queues; an ``async def`` listener beside a
threaded one, and listener batch 1 beside 32; then consumers with 10, 100 and 1,000 queues and
nothing to do, beside Java's; at last, with the broker's limits raised, the pull consumers beside
the raw puller, and beside confluent-kafka-python on a Kafka broker. Every process and group is new,
and counts are checked. Writes benchmarks/results/consumer_kinds.json and .md.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks import java_peers, measure, poll_client, push_client
from benchmarks.end_to_end import JAVA, OURS, RAW, VERSION, raise_limits
from benchmarks.kafka import VERSION as KAFKA_VERSION
from benchmarks.kafka import KafkaServer
from benchmarks.measure import middle, number, say, times
from rocketmq_fast.errors import SystemBusy
from tests.apache import ApacheCluster
from tests.brokers import TestBroker, Wire

QUEUES = 16
RAISED_BATCH = 256
POLL_MESSAGES = 1024
POLL_SIZE = 1024
POLL = "poll"
KAFKA = "confluent-kafka-python consume"
MANY = (10, 100, 1000)
# CPU time of a queue without messages, at 1,000 of them against 100.
FLAT = 1.5
_BUSY_TRIES, _BUSY_SECONDS = 200, 0.02
_READ, _COUNT = "listener reads", "listener counts"

Run = Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Ratio:
    """What one client of a comparison shall reach, in parts of another's rate."""

    of: str
    to: str
    at_least: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Clients that read the same messages in turns."""

    title: str
    size: int
    runs: Mapping[str, Run]
    ratios: Sequence[Ratio]
    bytes_read: Mapping[str, bool] = field(default_factory=dict)  # where bodies are not read whole


def topic_name(size: int) -> str:
    """The topic with bodies of ``size`` bytes."""
    return f"Kinds{size}"


def _group() -> str:
    return f"kinds_{uuid.uuid4().hex[:12]}"


# --------------------------------------------------------------------------------- the clients


class Clients:
    """Clients over all messages of a topic, each from its start and in a process of its own."""

    def __init__(self, cluster: ApacheCluster, count: int, timeout: int) -> None:
        self._cluster = cluster
        self._count = count
        self._timeout = timeout

    def _ours(self, module: str, size: int, **options: str | int | None) -> Run:
        """A client of ours over the topic."""
        return lambda: measure.run_python(
            module,
            self._timeout + 60,
            namesrv=self._cluster.namesrv_addr,
            topic=topic_name(size),
            count=self._count,
            group=_group(),
            timeout=self._timeout,
            **options,
        )

    def push(self, size: int, kind: str, batch: int | None, *, reads: bool = True) -> Run:
        """Our push consumer; ``batch`` None is its default."""
        return self._ours(
            "benchmarks.push_client", size, kind=kind, reads=int(reads), consume_batch=batch
        )

    def java_orderly(self, size: int, batch: int | None) -> Run:
        """The Java orderly consumer."""
        return lambda: java_peers.push_throughput(
            self._cluster.namesrv_addr,
            topic_name(size),
            _group(),
            self._count,
            consume_batch=batch,
            orderly=True,
            timeout=self._timeout,
        )

    def raw(self, size: int, pull_batch: int) -> Run:
        """The raw puller."""
        topic = topic_name(size)
        return lambda: measure.run_python(
            "benchmarks.raw_puller",
            self._timeout + 30,
            broker=self._cluster.broker_addr,
            topic=topic,
            ends=",".join(str(self._cluster.max_offset(topic, queue)) for queue in range(QUEUES)),
            pull_batch=pull_batch,
        )

    def kafka(self, server: KafkaServer, size: int) -> Run:
        """confluent-kafka-python over as many messages of a Kafka broker."""
        return lambda: measure.run_python(
            "benchmarks.kafka_client",
            self._timeout + 30,
            bootstrap=server.address,
            topic=topic_name(size),
            count=self._count,
            timeout=self._timeout,
        )

    def poll(self, size: int, kind: str) -> Run:
        """A pull consumer of ours."""
        return self._ours(
            "benchmarks.poll_client",
            size,
            kind=kind,
            pull_batch=RAISED_BATCH,
            most=POLL_MESSAGES,
        )


def orderly(clients: Clients, size: int) -> list[Comparison]:
    """Ours beside Java's, in the defaults of both and with listener batch 32."""
    return [
        Comparison(
            f"orderly, {title}",
            size,
            {
                JAVA: clients.java_orderly(size, batch),
                OURS: clients.push(size, push_client.ORDERLY, batch),
            },
            [Ratio(OURS, JAVA, 1.0)],
        )
        for title, batch in (("defaults (listener batch 1)", None), ("listener batch 32", 32))
    ]


def listeners(clients: Clients, size: int) -> list[Comparison]:
    """The kinds of concurrent listeners."""
    threaded, one, awaited = "threads, batch 32", "threads, batch 1", "asyncio, batch 32"
    reading = {
        threaded: clients.push(size, push_client.THREADED, 32),
        one: clients.push(size, push_client.THREADED, 1),
        awaited: clients.push(size, push_client.ASYNCIO, 32),
    }
    counting = {
        threaded: clients.push(size, push_client.THREADED, 32, reads=False),
        one: clients.push(size, push_client.THREADED, 1, reads=False),
    }
    ratios = [Ratio(awaited, threaded, 0.7), Ratio(one, threaded, 0.8)]
    return [
        Comparison(_READ, size, reading, ratios),
        Comparison(_COUNT, size, counting, ratios[1:], dict.fromkeys(counting, False)),
    ]


def polls(clients: Clients, kafka: KafkaServer) -> Comparison:
    """The pull consumers beside the raw puller and Kafka's; the broker's limits are raised."""
    runs = {
        RAW: clients.raw(POLL_SIZE, RAISED_BATCH),
        KAFKA: clients.kafka(kafka, POLL_SIZE),
        POLL: clients.poll(POLL_SIZE, poll_client.POLL),
        "poll_arrow": clients.poll(POLL_SIZE, poll_client.ARROW),
        "AsyncPullConsumer": clients.poll(POLL_SIZE, poll_client.ASYNC),
    }
    title = f"pull consumers, limits raised, pull batch {RAISED_BATCH}"
    return Comparison(title, POLL_SIZE, runs, [Ratio(POLL, KAFKA, 1.0)], {RAW: False})


# ----------------------------------------------------------------------------------- measuring


def check(client: str, result: Mapping[str, Any], count: int, size: int | None) -> None:
    """Nothing was lost, and with a ``size`` bodies were read whole."""
    if result["messages"] < count:
        raise AssertionError(f"{client} got {result['messages']} of {count} messages")
    if size is not None and result["bytes"] != result["messages"] * size:
        raise AssertionError(f"{client} read {result['bytes']} bytes of bodies of {size} bytes")


def compare(comparison: Comparison, count: int, rounds: int) -> dict[str, Any]:
    """Run the clients in turns; a row of the report."""
    names = list(comparison.runs)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(rounds):
        # Whoever comes first meets the broker as the last one left it: take turns at that.
        place = turn % len(names)
        for name in names[place:] + names[:place]:
            result = comparison.runs[name]()
            whole = comparison.bytes_read.get(name, True)
            check(name, result, count, comparison.size if whole else None)
            results[name].append(result)
            rate = number(result["messages_per_second"])
            say(f"{comparison.title} {comparison.size} B round {turn + 1}: {name} {rate} msg/s")
    rates = {name: [run["messages_per_second"] for run in results[name]] for name in names}
    return {
        "title": comparison.title,
        "size": comparison.size,
        "messages": count,
        "rates": rates,
        "median": {name: middle(rates[name]) for name in names},
        "ratios": [
            {
                "of": wanted.of,
                "to": wanted.to,
                "at_least": wanted.at_least,
                "ratio": middle(
                    [a / b for a, b in zip(rates[wanted.of], rates[wanted.to], strict=True)]
                ),
            }
            for wanted in comparison.ratios
        ],
        "cpu_seconds": {
            name: round(middle([run["cpu_seconds"] for run in results[name]]), 2) for name in names
        },
    }


def _send_one(broker: TestBroker, topic: str, queue: int) -> None:
    """A busy broker has stored nothing, so the message can go again."""
    for left in reversed(range(_BUSY_TRIES)):
        try:
            broker.send(topic, [bytes(100)], queues=(queue,))
        except SystemBusy:
            if not left:
                raise
            time.sleep(_BUSY_SECONDS)
        else:
            return


def idle_row(cluster: ApacheCluster, queues: int, topics: int, idle: float) -> dict[str, Any]:
    """Ours and Java's consumer with so many queues in all, a message each, and then nothing."""
    names = [f"Many{queues}x{topics}i{index}" for index in range(topics)]
    each = queues // topics
    with contextlib.closing(Wire()) as wire:
        broker = TestBroker("apache_494", cluster, wire)
        for name in names:
            cluster.create_topic(name, each)
            for queue in range(each):
                _send_one(broker, name, queue)
    timeout = 120
    ours = measure.run_python(
        "benchmarks.many_queues",
        timeout + idle + 60,
        namesrv=cluster.namesrv_addr,
        topics=",".join(names),
        queues=queues,
        idle=idle,
        timeout=timeout,
    )
    check(OURS, ours, queues, 100)
    theirs = None
    if topics == 1:
        theirs = java_peers.push_throughput(
            cluster.namesrv_addr, names[0], _group(), queues, idle=idle, timeout=timeout
        )
        check(JAVA, theirs, queues, 100)
    say(f"{queues} queues of {topics} topics: {_cpu_ms(ours):.2f} ms CPU a second")
    return {"queues": queues, "topics": topics, "ours": ours, "java": theirs}


def run(
    sizes: Sequence[int], count: int, rounds: int, many: Sequence[int], idle: float, timeout: int
) -> dict[str, Any]:
    """Everything on one broker."""
    java_peers.compile_peers()
    with ApacheCluster(VERSION, fast_start=False) as cluster:
        clients = Clients(cluster, count, timeout)
        for size in sorted({*sizes, POLL_SIZE}):
            cluster.create_topic(topic_name(size), QUEUES)
            filled = java_peers.fill(cluster.namesrv_addr, topic_name(size), count, size)
            say(f"{count:,} messages of {size} B in {filled['seconds']:.0f} s")
        rows: list[dict[str, Any]] = []
        for make in (orderly, listeners):
            for size in sizes:
                # Not counted: it brings the topic into the page cache and the broker's JIT up.
                clients.raw(size, 32)()
                rows += [compare(each, count, rounds) for each in make(clients, size)]
        queue_rows = [idle_row(cluster, queues, 1, idle) for queues in many]
        queue_rows.append(idle_row(cluster, max(many), max(many) // 10, idle))
        raise_limits(cluster)
        with KafkaServer() as kafka:
            kafka.fill(topic_name(POLL_SIZE), count, POLL_SIZE, QUEUES)
            clients.raw(POLL_SIZE, RAISED_BATCH)()
            clients.kafka(kafka, POLL_SIZE)()
            pulled = compare(polls(clients, kafka), count, rounds)
    return {"rows": rows, "polls": pulled, "many": queue_rows}


# -------------------------------------------------------------------------------------- report


def _verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def rate_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each pair that is compared."""
    lines = [
        [
            row["title"],
            f"{row['size']} B",
            pair["to"],
            number(row["median"][pair["to"]]),
            pair["of"],
            number(row["median"][pair["of"]]),
            times(pair["ratio"]),
            f">= {pair['at_least']:g}x: {_verdict(pair['ratio'] >= pair['at_least'])}",
        ]
        for row in rows
        for pair in row["ratios"]
    ]
    head = ["set-up", "body", "peer", "msg/s", "measured", "msg/s", "ratio", "target"]
    return measure.table(head, lines, left=2)


def poll_table(row: Mapping[str, Any]) -> str:
    """The pull consumers."""
    raw = row["median"][RAW]
    (pair,) = row["ratios"]
    reached = _verdict(pair["ratio"] >= pair["at_least"])
    target = f"{times(pair['ratio'])} Kafka's, >= {pair['at_least']:g}x: {reached}"
    lines = [
        [
            name,
            number(rate),
            times(rate / raw),
            f"{row['cpu_seconds'][name]:.2f}",
            target if name == pair["of"] else "",
        ]
        for name, rate in row["median"].items()
    ]
    return measure.table(["client", "msg/s", "/ raw", "CPU s", "target"], lines)


def _cpu_ms(result: Mapping[str, Any]) -> float:
    """CPU ms per second of doing nothing."""
    return float(1000 * result["idle_cpu_seconds"] / result["idle_seconds"])


def many_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What queues cost while nothing comes."""

    def line(name: str, row: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
        cpu, queues = _cpu_ms(result), row["queues"]
        rounds = result.get("round_seconds")
        rss = result.get("rss_bytes", result["peak_rss_bytes"])
        assigned = result.get("assigned_seconds")
        return [
            name,
            f"{queues:,}",
            f"{row['topics']:,}",
            f"{cpu:.2f}",
            f"{1000 * cpu / queues:.1f}",
            "-" if assigned is None else f"{assigned:.2f}",
            f"{result['reached_seconds']:.2f}",
            "-" if rounds is None else f"{1000 * middle(rounds):.1f}",
            "-" if rounds is None else f"{1e6 * middle(rounds) / queues:.0f}",
            f"{result['process_threads']}",
            f"{rss / 2**20:.0f}",
        ]

    head = [
        "client",
        "queues",
        "topics",
        "idle CPU ms/s",
        "µs/s a queue",
        "assigned s",
        "all pulled s",
        "round ms",
        "round µs a queue",
        "threads",
        "RSS MiB",
    ]
    lines = [line(OURS, row, row["ours"]) for row in rows]
    lines += [line(JAVA, row, row["java"]) for row in rows if row["java"] is not None]
    return measure.table(head, lines)


def flatness(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether a queue among the most costs what a queue among a tenth of them does."""
    single = sorted((row for row in rows if row["topics"] == 1), key=lambda row: row["queues"])
    if len(single) < 2:
        return ""
    fewer, most = single[-2:]
    cpu = partial(_per_queue, key="idle_cpu_seconds")
    ratio = cpu(most) / cpu(fewer)
    return (
        f"A queue of {most['queues']:,} costs {times(ratio)} the idle CPU time of one of "
        f"{fewer['queues']:,}; target <= {FLAT:g}x: {_verdict(ratio <= FLAT)}."
    )


def _per_queue(row: Mapping[str, Any], key: str) -> float:
    return float(row["ours"][key] / row["ours"]["idle_seconds"] / row["queues"])


def markdown(result: dict[str, Any]) -> str:
    """The report."""
    rows = result["rows"]
    return "\n\n".join(
        [
            (
                f"Messages a second from the first to the last of {rows[0]['messages']:,} waiting "
                f"messages in {QUEUES} queues; Apache broker {VERSION} on the same machine; "
                "medians of interleaved rounds, ratios taken within a round."
            ),
            rate_table(rows),
            (
                f"Pull consumers over {result['polls']['messages']:,} messages of {POLL_SIZE} B, "
                f"limits of the broker raised, pull batch {RAISED_BATCH}, at most {POLL_MESSAGES} "
                f"a poll. confluent-kafka-python's consume(1000) reads as many such messages of as "
                f"many partitions, in turns with them, from Kafka {KAFKA_VERSION}."
            ),
            poll_table(result["polls"]),
            (
                "Push consumers in their defaults with many queues: each queue holds one message, "
                "and nothing comes afterwards. RSS is the peak for Java."
            ),
            many_table(result["many"]),
            flatness(result["many"]),
            f"Measured on {measure.describe(result)}.",
        ]
    )


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.consumer_kinds", description=__doc__)
    parser.add_argument("--sizes", default="100,1024", help="body sizes, joined by commas")
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queues", default=",".join(map(str, MANY)), help="of idle consumers")
    parser.add_argument("--idle", type=float, default=31.0, help="seconds, two long polls")
    parser.add_argument("--timeout", type=int, default=300, help="seconds of one client")
    measure.add_common(parser)
    return parser


def main(options: argparse.Namespace, words: list[str]) -> None:
    """Measure and write the report."""
    head = measure.circumstances("benchmarks.consumer_kinds", words)
    sizes = [int(size) for size in options.sizes.split(",")]
    many = [int(queues) for queues in options.queues.split(",")]
    found = run(sizes, options.messages, options.rounds, many, options.idle, options.timeout)
    result = {**head, "broker": VERSION, **found}
    text = markdown(result)
    measure.write_result("consumer_kinds", result, text, options.output)
    print(text)


if __name__ == "__main__":
    measure.run_main(main, arguments())
