"""The Spark source beside what bounds it, and beside Spark's own Kafka source.

``python -m benchmarks.spark`` starts an Apache broker, a Kafka broker and a local session of two
cores, fills topics, and reads them into the noop sink, in turns round by round: the raw puller, a
source of ready-made record batches with the same columns, ours, and Kafka's. Then streams of
100,000 records a trigger, one long read with its memory, and the time from send to sink. Writes
benchmarks/results/spark.json, .md and .png; ``--parts`` measures some of it and keeps the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import java_peers, measure, spark_report, spark_session
from benchmarks.end_to_end import raise_limits
from benchmarks.kafka import KafkaServer, connector_jars
from benchmarks.measure import middle, number, say
from benchmarks.memory import flatness
from benchmarks.spark_latency import latencies
from benchmarks.spark_report import KAFKA, OURS, RAW, TRIVIAL
from benchmarks.spark_session import Watch
from tests.apache import ApacheCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = "4.9.4"
QUEUES = 4
SIZES = (1024, 100)
# What a default broker hands out at most, and what is asked for when it may be more.
PULL_BATCH = {False: 32, True: 256}
COLUMNS = {
    "body": "body",
    "like Kafka's": "keys,body,topic,queueId,queueOffset,storeTimestamp",
    "all": None,
}
READY_ROWS = 10_000
A_TRIGGER = 100_000
PARTS = ("batch", "raised", "streams", "memory", "latency")


@dataclass(frozen=True, slots=True)
class Place:
    """What the parts measure on."""

    spark: SparkSession
    cluster: ApacheCluster
    kafka: KafkaServer
    scratch: Path
    messages: int
    rounds: int


def topic_name(size: int) -> str:
    """The topic with bodies of ``size`` bytes, on both brokers."""
    return f"Spark{size}"


def our_options(place: Place, size: int, columns: str, raised: bool) -> dict[str, object]:
    """Options of a read of a topic from its start."""
    options: dict[str, object] = {
        "namesrvAddr": place.cluster.namesrv_addr,
        "topic": topic_name(size),
        "startingOffsets": "earliest",
    }
    chosen = COLUMNS[columns]
    if chosen is not None:
        options["columns"] = chosen
    if raised:
        options["pullBatchSize"] = PULL_BATCH[raised]
    return options


def kafka_options(place: Place, size: int) -> dict[str, object]:
    """The same for Kafka's source."""
    return {
        "kafka.bootstrap.servers": place.kafka.address,
        "subscribe": topic_name(size),
        "startingOffsets": "earliest",
    }


def raw_rate(place: Place, size: int, raised: bool) -> float:
    """Messages a second of the raw puller."""
    topic = topic_name(size)
    ends = [place.cluster.max_offset(topic, queue) for queue in range(QUEUES)]
    result = measure.run_python(
        "benchmarks.raw_puller",
        300,
        broker=place.cluster.broker_addr,
        topic=topic,
        ends=",".join(map(str, ends)),
        pull_batch=PULL_BATCH[raised],
    )
    return float(result["messages_per_second"])


def ready_file(place: Place, size: int, columns: str) -> Path:
    """An Arrow file with one batch of a topic's messages."""
    import pyarrow as pa

    from rocketmq_fast import decode_frame, decode_messages
    from rocketmq_fast._core import ArrowBuilder

    path = place.scratch / f"{size}-{columns.replace(' ', '_')}.arrow"
    if not path.exists():
        chosen = COLUMNS[columns]
        builder = ArrowBuilder(None if chosen is None else chosen.split(","))
        rows = min(READY_ROWS, place.messages // QUEUES)
        while builder.num_rows < rows:
            frame = place.cluster.pull_frame(topic_name(size), 0, builder.num_rows)
            answer = decode_frame(frame)
            builder.append(decode_messages(answer.body), place.cluster.broker_name)
        batch = pa.record_batch(builder.finish())
        with pa.ipc.new_file(path, batch.schema) as writer:
            writer.write_batch(batch)
    return path


# ---------------------------------------------------------------------------------- batch reads


def batch_rows(place: Place, raised: bool, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Reads of whole topics, with the broker's limits as they are or raised."""
    rows = []
    for size in sizes:
        chosen = [name for name in COLUMNS if size == max(sizes) or name != "like Kafka's"]
        for columns in chosen:  # not counted: compiles Spark's code, and checks the counts
            options = our_options(place, size, columns, raised)
            found = place.spark.read.format("rocketmq").options(**_words(options)).load().count()
            if found != place.messages:
                raise AssertionError(f"{found} of {place.messages} messages of {size} B")
            spark_session.read(place.spark, "trivial", _trivial(place, size, columns))
        spark_session.read(place.spark, "kafka", kafka_options(place, size))
        rounds = [_round(place, size, chosen, raised, turn) for turn in range(place.rounds)]
        rows += [_row(place, size, columns, raised, rounds) for columns in chosen]
    return rows


def _words(options: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


def _trivial(place: Place, size: int, columns: str) -> dict[str, object]:
    return {
        "path": ready_file(place, size, columns),
        "rows": place.messages,
        "tasks": QUEUES,
    }


def _round(
    place: Place, size: int, chosen: list[str], raised: bool, turn: int
) -> dict[tuple[str, str], dict[str, Any]]:
    """Every client once; in each round another one comes first."""
    jobs = [(RAW, ""), (KAFKA, "")]
    jobs += [(source, columns) for columns in chosen for source in (TRIVIAL, OURS)]
    place_of_first = turn * len(jobs) // place.rounds
    found = {}
    for client, columns in jobs[place_of_first:] + jobs[:place_of_first]:
        if client == RAW:
            result: dict[str, Any] = {"rate": raw_rate(place, size, raised)}
        else:
            source, options = _job(place, client, size, columns, raised)
            with Watch(_brokers(place)) as watch:
                seconds = spark_session.read(place.spark, source, options)
            result = {
                "rate": place.messages / seconds,
                "seconds": seconds,
                "worker_bytes": watch.peak,
                "cpu": watch.cpu,
            }
        found[client, columns] = result
        say(f"{size} B, round {turn + 1}: {client} {columns} {number(result['rate'])} rows/s")
    return found


def _job(
    place: Place, client: str, size: int, columns: str, raised: bool
) -> tuple[str, dict[str, object]]:
    """Format and options of a read."""
    if client == KAFKA:
        return "kafka", kafka_options(place, size)
    if client == TRIVIAL:
        return "trivial", _trivial(place, size, columns)
    return "rocketmq", our_options(place, size, columns, raised)


def _brokers(place: Place) -> dict[str, int]:
    return {
        "broker": next(
            pid
            for name, pid in place.cluster.pids.items()
            if name.startswith(place.cluster.broker_name)
        )
    }


def _row(
    place: Place,
    size: int,
    columns: str,
    raised: bool,
    rounds: list[dict[tuple[str, str], dict[str, Any]]],
) -> dict[str, Any]:
    keys = {RAW: "", KAFKA: "", TRIVIAL: columns, OURS: columns}
    runs = {client: [found[client, key] for found in rounds] for client, key in keys.items()}
    rates = {client: [run["rate"] for run in found] for client, found in runs.items()}
    bounds = [
        1 / (1 / raw + 1 / trivial) for raw, trivial in zip(rates[RAW], rates[TRIVIAL], strict=True)
    ]
    return {
        "size": size,
        "columns": columns,
        "raised": raised,
        "messages": place.messages,
        "rates": rates,
        "median": {client: middle(found) for client, found in rates.items()},
        "bound": middle(bounds),
        "ratio_to_bound": middle([a / b for a, b in zip(rates[OURS], bounds, strict=True)]),
        "ratio_to_kafka": middle([a / b for a, b in zip(rates[OURS], rates[KAFKA], strict=True)]),
        "worker_mib": middle([run["worker_bytes"] for run in runs[OURS]]) / 2**20,
        "runs": runs,
    }


# -------------------------------------------------------------------------------------- streams


def stream_rows(place: Place, raised: bool) -> list[dict[str, Any]]:
    """availableNow streams at 100,000 records a trigger beside the batch reads of the same."""
    size = max(SIZES)
    a_trigger = min(A_TRIGGER, max(1, place.messages // 5))
    sources = _streamed(place, size, raised, a_trigger)
    limit = {"maxOffsetsPerTrigger": a_trigger}
    found: dict[str, dict[str, list[Any]]] = {name: {"batch": [], "stream": []} for name in sources}
    for turn in range(place.rounds + 1):  # the first is not counted
        for name, (source, _, options) in sources.items():
            seconds = spark_session.read(place.spark, source, options)
            run = _stream(place, source, options | limit)
            if run["messages"] != place.messages:
                raise AssertionError(f"{name}: {run['messages']} of {place.messages} messages")
            if turn:
                found[name]["batch"].append(place.messages / seconds)
                found[name]["stream"].append(run)
            say(
                f"{name}: {number(place.messages / seconds)} rows/s, as a stream "
                f"{number(place.messages / run['seconds'])}, its micro-batches "
                f"{number(place.messages / run['batch_seconds'])}"
            )
    rows = []
    for name, (source, columns, _) in sources.items():
        least = found[f"{TRIVIAL}, {columns}"]["stream"] if source == "rocketmq" else None
        rows.append(_stream_row(place, name, found[name], a_trigger, least))
    return rows


def _streamed(
    place: Place, size: int, raised: bool, a_trigger: int
) -> dict[str, tuple[str, str, dict[str, object]]]:
    """By name: format, columns and options of what is read as a stream."""
    found: dict[str, tuple[str, str, dict[str, object]]] = {}
    for columns in COLUMNS:
        # A task for each core; by default there is one for each queue.
        options = our_options(place, size, columns, raised)
        fewer = options | {"minRecordsPerPartition": a_trigger // 2}
        least = _trivial(place, size, columns) | {"tasks": 2}
        found[f"{TRIVIAL}, {columns}"] = ("trivial", columns, least)
        found[f"{OURS}, {columns}"] = ("rocketmq", columns, fewer)
    default = our_options(place, size, "all", raised)
    found[f"{OURS}, all, 4 tasks a trigger"] = ("rocketmq", "all", default)
    found[KAFKA] = ("kafka", "", kafka_options(place, size))
    return found


def _stream(place: Place, source: str, options: dict[str, object]) -> dict[str, Any]:
    with Watch(_brokers(place)) as watch:
        checkpoint = place.scratch / uuid.uuid4().hex
        run = spark_session.stream(place.spark, source, options, checkpoint)
    return {**run, "cpu": watch.cpu}


def _stream_row(
    place: Place,
    name: str,
    runs: dict[str, list[Any]],
    a_trigger: int,
    least: list[Any] | None,
) -> dict[str, Any]:
    """`least`: the streams of the trivial source with the same columns."""
    streams = runs["stream"]
    pairs = list(zip(streams, runs["batch"], strict=True))
    rates = [place.messages / run["batch_seconds"] for run in streams]
    return {
        "source": name,
        "messages": place.messages,
        "a_trigger": a_trigger,
        "batch": middle(runs["batch"]),
        "whole": middle([place.messages / run["seconds"] for run in streams]),
        "triggers": middle(rates),
        "ratio": middle([place.messages / run["batch_seconds"] / rate for run, rate in pairs]),
        "ratio_to_trivial": (
            None
            if least is None
            else middle(
                [
                    one["batch_seconds"] / run["batch_seconds"]
                    for one, run in zip(least, streams, strict=True)
                ]
            )
        ),
        "runs": runs,
    }


# --------------------------------------------------------------------------------------- memory


def long_read(place: Place, rows: int, raised: bool) -> dict[str, Any]:
    """Rows of all columns, the topic several times over in one query; memory of the workers."""
    times = max(1, rows // place.messages)
    options = our_options(place, max(SIZES), "all", raised)
    frames = [
        place.spark.read.format("rocketmq").options(**_words(options)).load() for _ in range(times)
    ]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    with Watch(_brokers(place)) as watch:
        whole.write.format("noop").mode("overwrite").save()
    seconds = watch.samples[-1][0]
    # Rows by time: the reads go on evenly.
    samples = [
        {"messages": int(times * place.messages * at / seconds), "seconds": at, "rss_bytes": rss}
        for at, rss in watch.samples
    ]
    result = {
        "messages": times * place.messages,
        "seconds": seconds,
        "samples": samples[:: max(1, len(samples) // 400)],
        **flatness(samples, times * place.messages),
    }
    say(f"{result['messages']:,} rows: {result['rss_low_mib']} to {result['rss_high_mib']} MiB")
    return result


# ------------------------------------------------------------------------------------- the parts


@contextlib.contextmanager
def _place(options: argparse.Namespace) -> Iterator[Place]:
    java_peers.compile_peers()
    jars = connector_jars()
    with (
        tempfile.TemporaryDirectory(prefix="spark-bench-") as folder,
        ApacheCluster(VERSION, fast_start=False) as cluster,
        KafkaServer() as kafka,
        spark_session.session(jars, Path(folder)) as spark,
    ):
        small = "batch" in options.parts or "raised" in options.parts
        for size in SIZES if small else SIZES[:1]:
            topic = topic_name(size)
            cluster.create_topic(topic, QUEUES)
            java_peers.fill(cluster.namesrv_addr, topic, options.messages, size)
            if {"batch", "raised", "streams"} & set(options.parts):
                kafka.fill(topic, options.messages, size, QUEUES)
            say(f"{options.messages:,} messages of {size} B are there")
        yield Place(spark, cluster, kafka, Path(folder), options.messages, options.rounds)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The parts that were asked for."""
    found: dict[str, Any] = {}
    with _place(options) as place:
        if "batch" in options.parts:
            found["batch"] = batch_rows(place, False, SIZES)
        if "latency" in options.parts:
            found["latency"] = latencies(
                place.spark, place.cluster, place.scratch, options.latency_seconds
            )
        raise_limits(place.cluster)
        if "raised" in options.parts:
            found["raised"] = batch_rows(place, True, SIZES)
        if "streams" in options.parts:
            found["streams"] = stream_rows(place, True)
        if "memory" in options.parts:
            found["memory"] = long_read(place, options.long_rows, True)
    return found


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in each topic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long-rows", type=int, default=10_000_000, help="of the long read")
    parser.add_argument("--latency-seconds", type=float, default=60.0)
    parser.add_argument(
        "--parts",
        type=lambda text: text.split(","),
        default=list(PARTS),
        help=f"some of {','.join(PARTS)}; the results of the others are kept",
    )
    measure.add_common(parser)
    return parser


def main(options: argparse.Namespace, words: list[str]) -> None:
    """Measure and write the report."""
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        raise SystemExit(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
    head = measure.circumstances("benchmarks.spark", words)
    head["versions"] |= {"pyspark": measure.version_of("pyspark"), "kafka": "4.1.0"}
    before = measure.read_result("spark", options.output) or {}
    kept = {k: part for k, part in before.get("parts", {}).items() if k not in options.parts}
    spark_report.markdown({"parts": kept})  # what cannot be shown fails before the measuring
    found = {name: {**head, "found": what} for name, what in run(options).items()}
    result = {**head, "broker": VERSION, "parts": kept | found}
    text = spark_report.markdown(result)
    measure.write_result("spark", result, text, options.output)
    spark_report.plot(result, options.output / "spark.png")
    print(text)


if __name__ == "__main__":
    measure.run_main(main, arguments())
