"""Every benchmark runs, small and without a look at the clock; its answers are what is checked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import (
    consumer_kinds,
    end_to_end,
    hot_paths,
    inputs,
    many_queues,
    measure,
    memory,
    poll_client,
    publish,
    push_client,
    work,
)
from benchmarks import raw_puller as puller
from benchmarks.hot_paths import JAVA, Effort, Target
from benchmarks.measure import ROOT, number, times
from benchmarks.work import MEMCPY, NATIVE, PYTHON
from tests.apache import ApacheCluster, java, wire
from tests.brokers import TestBroker
from tests.consuming import bodies
from tests.reference import frame as reference_frame
from tests.reference import message as reference_message
from tests.require import require

SMALL = Effort(
    rounds=1,
    seconds=0.001,
    java_warm=0.01,
    java_rounds=1,
    held=(64,),
    queue_batches=4,
    arrow_bytes=1 << 20,
)


def test_every_benchmark_file_is_run() -> None:
    """The five hot paths have a file each, and the suite of the repository collects them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "benchmarks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = {path.name for path in (ROOT / "benchmarks").glob("bench_*.py")}
    collected = set(re.findall(r"(bench_\w+\.py)::", done.stdout))
    assert files == collected
    assert files == {
        f"bench_{name}.py" for name in ("frame", "decode", "arrow", "process_queue", "tag_filter")
    }


# ----------------------------------------------------------------------------------------- inputs


def test_inputs_are_the_same_every_time() -> None:
    first = inputs.pull_body(4, 100)
    inputs.pull_body.cache_clear()
    assert inputs.pull_body(4, 100) == first


def test_renumbered_bodies_have_the_offsets() -> None:
    maker = inputs.Renumbered(3, 50)
    maker.body(0)
    messages = reference_message.decode_messages(maker.body(70)).messages
    assert [message.queue_offset for message in messages] == [70, 71, 72]


def test_answers_are_frames() -> None:
    commands = reference_frame.FrameSplitter().feed(inputs.answers(2, 100))
    assert [command.opaque for command in commands] == [1, 2]
    assert [command.ext_fields["nextBeginOffset"] for command in commands] == ["32", "64"]
    assert commands[0].body == inputs.pull_body(32, 100)


@pytest.mark.apache
def test_inputs_look_like_a_real_broker(apache_494: ApacheCluster) -> None:
    """Same header fields, same properties in the same order, same size of all but names."""
    from benchmarks import java_peers

    topic = "BenchmarkInputs"
    apache_494.create_topic(topic, 1)
    java_peers.fill(apache_494.namesrv_addr, topic, 64, 100)
    real = reference_frame.decode_frame(apache_494.pull_frame(topic, 0, 0))
    made = reference_frame.decode_frame(inputs.frame(inputs.pull_body(32, 100), 32))
    assert set(made.ext_fields) == set(real.ext_fields)
    assert (made.remark, made.flag, made.language) == (real.remark, real.flag, real.language)
    ours = reference_message.decode_messages(made.body).messages
    theirs = reference_message.decode_messages(real.body).messages
    assert len(ours) == len(theirs) == 32
    for own, other in zip(ours, theirs, strict=True):
        assert list(own.properties) == list(other.properties)
        assert own.tags == other.tags
        assert len(own.properties["UNIQ_KEY"]) == len(other.properties["UNIQ_KEY"])
        assert own.store_size - len(own.topic) == other.store_size - len(other.topic)


# ------------------------------------------------------------------------------------------- work


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON])
def test_a_wrong_answer_is_noticed(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    piece = work.tag_filter(implementation, 100)
    piece.prepare()
    monkeypatch.setattr(work, "PULL", 31)
    with pytest.raises(AssertionError, match="messages that are wanted"):
        piece.prepare()


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON])
def test_the_process_queue_keeps_what_it_holds(implementation: str) -> None:
    piece = work.process_queue(implementation, 128, batches=6)
    for _ in range(4):  # fewer held than a round moves, so batches of the round leave in it
        piece.prepare()()


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON])
def test_rounds_of_work_that_goes_on_follow_each_other(implementation: str) -> None:
    piece = work.process_queue(implementation, 128, batches=6)
    for _ in range(3):
        assert measure.rate(piece, 0.001) > 0


def test_rates_count_units() -> None:
    calls: list[int] = []
    piece = work.Work("path", NATIVE, 0, "things/s", 5, lambda: partial(calls.append, 1))
    assert measure.rate(piece, 0.0001) > 0
    assert calls


# -------------------------------------------------------------------------------------- hot paths


def small_report(tmp_path: Path, *, with_java: bool) -> dict[str, Any]:
    lines = hot_paths.rows(tmp_path, SMALL)
    hot_paths.run(lines, SMALL, java=with_java)
    head = measure.circumstances("benchmarks.hot_paths", ["--rounds", "1"])
    return hot_paths.report(lines, head, None if with_java else "not wanted")


def test_hot_paths_without_java(tmp_path: Path) -> None:
    result = small_report(tmp_path, with_java=False)
    titles = " ".join(row["title"] for row in result["rows"])
    for path in ("split and decode", "encode", "view objects", "Arrow", "process queue", "filter"):
        assert path in titles
    assert all(NATIVE in row["rates"] and PYTHON in row["rates"] for row in result["rows"])
    assert all(MEMCPY in row["rates"] for row in result["rows"] if "Arrow" in row["title"])
    text = hot_paths.markdown(result)
    assert "No Java rows: not wanted" in text
    assert "python -m benchmarks.hot_paths --rounds 1" in text
    measure.write_result("hot_paths", result, text, tmp_path)
    assert measure.read_result("hot_paths", tmp_path) == json.loads(json.dumps(result))


@pytest.mark.java
@pytest.mark.slow
def test_hot_paths_beside_java(tmp_path: Path) -> None:
    require("java")
    result = small_report(tmp_path, with_java=True)
    with_java = [row for row in result["rows"] if JAVA in row["rates"]]
    assert len(with_java) >= 10
    wanted = [row for row in result["rows"] if row["target"] and row["target"]["against"] == JAVA]
    assert wanted
    assert all(row in with_java for row in wanted)


def test_missing_java_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "java_version", lambda: None)
    assert hot_paths.why_no_java() == "no java on PATH"


def test_verdicts() -> None:
    row = hot_paths.Row("t", "", {}, target=Target(JAVA, 10.0))
    row.rates = {NATIVE: [30.0, 100.0, 50.0], JAVA: [2.0, 5.0, 10.0]}
    assert row.ratio(JAVA) == 15.0
    assert row.ratio(PYTHON) is None
    head = measure.circumstances("m", [])
    assert "reached" in hot_paths.markdown(hot_paths.report([row], head, None))
    row.rates[JAVA] = [10.0, 20.0, 10.0]
    assert "MISSED" in hot_paths.markdown(hot_paths.report([row], head, None))


# ------------------------------------------------------------------------------------- end to end


@pytest.mark.apache
@pytest.mark.slow
def test_the_three_clients_read_the_same_messages(
    apache_494: ApacheCluster, tmp_path: Path
) -> None:
    from benchmarks import java_peers

    count, size = 1200, 100
    topic = end_to_end.topic_name(size)
    apache_494.create_topic(topic, end_to_end.QUEUES)
    java_peers.fill(apache_494.namesrv_addr, topic, count, size)
    runs = {
        client: end_to_end.run_client(client, apache_494, end_to_end.MODES[1], size, count, 60)
        for client in end_to_end.CLIENTS
    }
    assert {client: run["messages"] for client, run in runs.items()} == dict.fromkeys(
        end_to_end.CLIENTS, count
    )
    ours, theirs = runs[end_to_end.OURS], runs[end_to_end.JAVA]
    assert ours["bytes"] == theirs["bytes"] == count * size
    assert ours["characters"] == theirs["characters"]
    for run in runs.values():
        assert run["peak_rss_bytes"] > 1 << 20
        assert run["cpu_seconds"] > 0


@pytest.mark.apache
def test_the_raw_puller_reads_to_the_end_and_names_a_refusal(apache_494: ApacheCluster) -> None:
    from benchmarks import java_peers

    topic = "RawPuller"
    apache_494.create_topic(topic, 2)
    java_peers.fill(apache_494.namesrv_addr, topic, 300, 2000)
    ends = [apache_494.max_offset(topic, queue) for queue in range(2)]
    found = puller.pull(apache_494.broker_addr, topic, ends, 32)
    assert found["messages"] == 300
    assert found["complete"]
    assert isinstance(found["stored_bytes"], int)
    assert found["stored_bytes"] > 300 * 2000
    with pytest.raises(RuntimeError, match="code"):
        puller.pull(apache_494.broker_addr, "NoSuchTopic%", [5], 32)


@pytest.mark.apache
def test_limits_of_a_running_broker_are_raised(apache_494: ApacheCluster) -> None:
    before = wire.request(apache_494.broker_addr, 26).body.decode()
    kept = dict(re.findall(r"^(maxTransfer\w+)=(\d+)$", before, re.MULTILINE))
    assert kept["maxTransferCountOnMessageInMemory"] == "32"
    try:
        end_to_end.raise_limits(apache_494)
        after = wire.request(apache_494.broker_addr, 26).body.decode()
        assert "maxTransferCountOnMessageInMemory=2048" in after
    finally:
        text = "".join(f"{name}={value}\n" for name, value in kept.items())
        wire.request(apache_494.broker_addr, 25, body=text.encode())


def end_to_end_result() -> dict[str, Any]:
    runs = {"raw puller": 400_000.0, "Java": 100_000.0, "rocketmq_fast": 250_000.0}
    rows = [
        {
            "mode": mode.key,
            "title": mode.title,
            "size": size,
            "messages": 1000,
            "median": runs,
            "ratio_to_java": 2.5,
            "ratio_to_raw": 0.63,
            "peak_rss_mib": dict.fromkeys(runs, 33.0),
            "cpu_seconds": dict.fromkeys(runs, 1.0),
            "target": mode.targets.get(size),
        }
        for mode in end_to_end.MODES
        for size in (100, 1024)
    ]
    return {**measure.circumstances("benchmarks.end_to_end", []), "rows": rows}


def test_end_to_end_report(tmp_path: Path) -> None:
    text = end_to_end.markdown(end_to_end_result())
    assert "| defaults (listener batch 1) | 100 B | 400 k | 100 k | 250 k | 2.50x |" in text
    assert "reached" in text
    assert "MISSED" in text
    end_to_end.plot(end_to_end_result(), tmp_path / "plot.png")
    picture = (tmp_path / "plot.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 100_000


# --------------------------------------------------------------------------------- consumer kinds


def consumer_kinds_result() -> dict[str, Any]:
    def runs(rates: dict[str, float]) -> dict[str, consumer_kinds.Run]:
        def run(rate: float) -> consumer_kinds.Run:
            return lambda: {
                "messages": 10,
                "bytes": 1000,
                "messages_per_second": rate,
                "cpu_seconds": 0.5,
            }

        return {name: run(rate) for name, rate in rates.items()}

    ratio = consumer_kinds.Ratio("ours", "Java", 1.0)
    pair = consumer_kinds.Comparison(
        "orderly", 100, runs({"Java": 50_000.0, "ours": 75_000.0}), [ratio]
    )
    slow = consumer_kinds.Comparison("slow", 100, runs({"Java": 2.0, "ours": 1.0}), [ratio])
    polled = {
        "raw puller": 800_000.0,
        consumer_kinds.KAFKA: 320_000.0,
        "poll": 400_000.0,
        "poll_arrow": 600_000.0,
    }
    beside = consumer_kinds.Ratio("poll", consumer_kinds.KAFKA, 1.0)
    polls = consumer_kinds.Comparison("polls", 100, runs(polled), [beside])
    many = [
        {
            "queues": queues,
            "topics": 1,
            "ours": {
                "idle_cpu_seconds": cpu,
                "idle_seconds": 10.0,
                "assigned_seconds": 0.1,
                "reached_seconds": 0.2,
                "round_seconds": [0.002],
                "process_threads": 6,
                "rss_bytes": 50 << 20,
                "peak_rss_bytes": 51 << 20,
            },
            "java": None,
        }
        for queues, cpu in ((100, 0.02), (1000, 0.1))
    ]
    return {
        **measure.circumstances("benchmarks.consumer_kinds", []),
        "rows": [consumer_kinds.compare(each, 10, 3) for each in (pair, slow)],
        "polls": consumer_kinds.compare(polls, 10, 1),
        "many": many,
    }


def test_consumer_kinds_report() -> None:
    result = consumer_kinds_result()
    text = consumer_kinds.markdown(result)
    assert "| orderly | 100 B | Java | 50 k | ours | 75 k | 1.50x | >= 1x: reached |" in text
    assert "| 0.50x | >= 1x: MISSED |" in text
    assert "| poll | 400 k | 0.50x | 0.50 | 1.25x Kafka's, >= 1x: reached |" in text
    assert "| rocketmq_fast | 1,000 | 1 | 10.00 | 10.0 | 0.10 | 0.20 | 2.0 | 2 | 6 | 50 |" in text
    assert "A queue of 1,000 costs 0.50x the idle CPU time of one of 100" in text
    assert "orderly, 100 B | 75 k | 50 k | 1.50x" in publish.summary({"consumer_kinds": result})


def test_lost_and_cut_messages_end_a_comparison() -> None:
    with pytest.raises(AssertionError, match="9 of 10 messages"):
        consumer_kinds.check("ours", {"messages": 9, "bytes": 900}, 10, 100)
    with pytest.raises(AssertionError, match="999 bytes"):
        consumer_kinds.check("ours", {"messages": 10, "bytes": 999}, 10, 100)
    consumer_kinds.check("ours", {"messages": 10, "bytes": 0}, 10, None)


@pytest.mark.parametrize("kind", [*push_client.KINDS, *poll_client.KINDS])
def test_clients_of_every_kind_read_everything(embedded_broker: TestBroker, kind: str) -> None:
    topic, group = embedded_broker.topic(4), embedded_broker.group()
    embedded_broker.send(topic, bodies(400, size=100), queues=range(4))
    where = (embedded_broker.namesrv_addr, topic, 400)
    if kind in push_client.KINDS:
        found = push_client.consume(*where, group=group, kind=kind, consume_batch=32, timeout=30)
    else:
        found = poll_client.consume(
            *where, group=group, kind=kind, pull_batch=32, most=64, timeout=30
        )
    assert found["complete"]
    assert (found["messages"], found["bytes"]) == (400, 40_000)


def test_a_listener_that_only_counts_reads_nothing(embedded_broker: TestBroker) -> None:
    topic, group = embedded_broker.topic(1), embedded_broker.group()
    embedded_broker.send(topic, bodies(40, size=100))
    where = (embedded_broker.namesrv_addr, topic, 40)
    found = push_client.consume(*where, group=group, reads=False, timeout=30)
    assert (found["complete"], found["messages"], found["bytes"]) == (True, 40, 0)


def test_idle_queues_are_measured(embedded_broker: TestBroker) -> None:
    topics = [embedded_broker.topic(4) for _ in range(3)]
    for topic in topics:
        embedded_broker.send(topic, bodies(4, size=100), queues=range(4))
    found = many_queues.measure_queues(
        embedded_broker.namesrv_addr, topics, 12, group=embedded_broker.group(), idle=0, timeout=30
    )
    assert (found["complete"], found["messages"], found["bytes"]) == (True, 12, 1200)
    assert len(cast(list[float], found["round_seconds"])) == 5


# ----------------------------------------------------------------------------------------- memory


def test_held_messages_are_all_there() -> None:
    row = memory.hold(640, 100, 32)
    assert row["messages"] == 640
    assert row["wire_bytes"] > 640 * 300


@pytest.mark.slow
def test_cached_messages_cost_little_more_than_their_bytes() -> None:
    """A promise, so measured by the suite: 30,000 held cost at most 1.3 of their wire size."""
    row = measure.run_python("benchmarks.memory", 120, hold=30_000, size=1024, pull=32)
    assert row["ratio"] <= memory.HELD_LIMIT


def test_flatness() -> None:
    flat: list[dict[str, float]] = [{"messages": n, "rss_bytes": 40 << 20} for n in range(1000)]
    flat[:50] = [{"messages": n, "rss_bytes": n << 18} for n in range(50)]
    assert memory.flatness(flat, 1000)["flat"] is True
    grows: list[dict[str, float]] = [
        {"messages": n, "rss_bytes": (40 << 20) + n * 20_000} for n in range(1000)
    ]
    assert memory.flatness(grows, 1000)["flat"] is False
    assert memory.flatness([], 1000)["flat"] is None


def test_memory_report(tmp_path: Path) -> None:
    samples = [{"seconds": n / 2, "messages": n * 10, "rss_bytes": 40 << 20} for n in range(101)]
    result = {
        **measure.circumstances("benchmarks.memory", []),
        "held": [memory.hold(64, 100, 32)],
        "long_run": {
            "messages": 1000,
            "messages_per_second": 2e5,
            "samples": samples,
            **memory.flatness(samples, 1000),
        },
    }
    text = memory.markdown(result)
    assert "40.0 to 40.0 MiB" in text
    memory.plot(result, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size < 100_000


def test_the_sampler_notes_progress() -> None:
    reader = push_client.Reader(1)
    with push_client.Sampler(reader, 0.001) as sampler:
        while not sampler.samples:
            time.sleep(0.01)
    assert sampler.samples[0]["rss_bytes"] > 1 << 20


# ---------------------------------------------------------------------------------------- publish


def test_numbers_as_a_person_reads_them() -> None:
    assert [number(value) for value in (13_240_000, 340_400, 87.5, None)] == [
        "13.2 M", "340 k", "87.5", "-",
    ]  # fmt: skip
    assert [times(value) for value in (61.4, 7.24, 1.5, None)] == ["61x", "7.2x", "1.50x", "-"]


def test_documents_are_filled_between_markers() -> None:
    results = {"end_to_end": end_to_end_result()}
    before = "a\n<!-- measured -->\nold\n<!-- /measured -->\nb\n<!-- measured: end_to_end -->\n"
    before += "<!-- /measured -->\n<!-- measured: memory -->\n<!-- /measured -->\nc\n"
    after = publish.filled(before, results)
    assert "old" not in after
    assert publish.summary(results) in after
    assert end_to_end.markdown(results["end_to_end"]) in after
    assert publish.NOTHING in after
    assert publish.filled(after, results) == after
    with pytest.raises(ValueError, match="unknown report"):
        publish.filled("<!-- measured: nonsense -->\n<!-- /measured -->", results)


def test_documents_show_the_results() -> None:
    assert not publish.stale(), "python -m benchmarks.publish"


def test_results_carry_machine_versions_and_command() -> None:
    for name, result in publish.read_results().items():
        assert result["machine"]["cpu"], name
        assert result["versions"]["python"], name
        assert result["command"].startswith(f"python -m benchmarks.{name}"), name


def test_java_programs_compile() -> None:
    require("java")
    from benchmarks import java_peers

    classes = java.compiled(java_peers.SOURCES)
    assert (classes / "Peers.class").is_file()
