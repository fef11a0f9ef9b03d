"""The command as a user runs it: processes, exit codes, standard output and standard error."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from rocketmq_fast import Admin, MessageQueue, __version__, decode_messages
from rocketmq_fast.cli import main
from rocketmq_fast.cli.messages import details
from rocketmq_fast.cli.render import shown
from rocketmq_fast.cli.signals import stop_on_signals
from rocketmq_fast.embedded import Cluster
from tests.proxy import ProxiedCluster
from tests.reference.messages_factory import build_message
from tests.require import require

COMMAND = [sys.executable, "-m", "rocketmq_fast"]
SECONDS = 400.0


def environment(**more: str) -> dict[str, str]:
    values = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    return values | more


def run(
    *words: str, cluster: Cluster | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which spares the start of an interpreter."""
    logger = logging.getLogger("rocketmq_fast")
    before = logger.handlers[:], logger.level
    out, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        os.environ.pop("NAMESRV_ADDR", None)
        if cluster is not None:
            os.environ["NAMESRV_ADDR"] = cluster.namesrv_addr
        try:
            code: Any = main(words)
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            logger.handlers[:], level = before
            logger.setLevel(level)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def spawn(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=SECONDS,
        env=environment(),
    )  # fmt: skip


def result(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    """The JSON object on the last line."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def error(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line of an error."""
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(lines) == 1, done.stderr
    return lines[0]


@contextlib.contextmanager
def started(*words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs; killed at the end if it still does."""
    process = subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(**more),
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=SECONDS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


# ---------------------------------------------------------------------------- without a broker


def test_version_and_help() -> None:
    assert spawn("--version").stdout == f"rocketmq-fast {__version__}\n"
    shown = spawn("--help").stdout
    for command in ("demo", "broker", "produce", "consume", "topics", "groups", "lag",
                    "offsets", "view", "dlq"):  # fmt: skip
        assert command in shown
        assert run(command, "--help").returncode == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "COMMAND"),
        (["fly"], "invalid choice"),
        (["consume", "--topic", "T"], "--group"),
        (["consume", "--topic", "T", "--group", "g"], "--namesrv"),
        (["consume", "--topic", "T", "--group", "g", "--namesrv", "nowhere"], "nowhere"),
        (["consume", "--topic", "T", "--group", "g", "--count", "0"], "--count"),
        (["consume", "--topic", "T", "--group", "g", "--from", "noon"], "first, last or a time"),
        (
            ["consume", "--topic", "T", "--group", "g", "--namesrv", "h:1", "--pull-batch", "9999"],
            "pull_batch_size",
        ),
        (
            ["consume", "--topic", "T", "--group", "g", "--namesrv", "h:1", "--timeout", "1"],
            "--timeout needs --count",
        ),
        (["consume", "--topic", "a b", "--group", "g", "--namesrv", "h:1"], "a b"),
        (["produce", "--topic", "T", "--namesrv", "h:1"], "one of them"),
        (["produce", "--topic", "T", "--namesrv", "h:1", "x", "--count", "1"], "one of them"),
        (["produce", "--topic", "T", "--namesrv", "h:1", "x", "--size", "1"], "--size"),
        (
            ["produce", "--topic", "T", "--namesrv", "h:1", "x", "--delay", "2", "--batch", "9"],
            "exclude each other",
        ),
        (["produce", "--topic", "T", "--namesrv", "h:1", "x", "--delay", "0"], "not over 0"),
        (["produce", "--topic", "T", "--namesrv", "h:1", "x", "--property", "=b"], "NAME=VALUE"),
        (["produce", "--topic", "T", "--namesrv", "h:1", "x", "--property", "KEYS=b"], "KEYS"),
        (["produce", "--topic", "T", "x", "--key", "a", "--keys", "b"], "--key"),
        (["broker", "--namesrv-port", "70000"], "port"),
        (["broker", "--host", "0.0.0.0"], "--allow-remote"),  # noqa: S104 - it is refused
        (["broker", "--set", "colour=red"], "colour"),
        (["offsets", "--group", "g", "--topic", "T", "--reset", "noon"], "or an offset"),
        (["offsets", "--group", "g", "--topic", "T", "--queue", "b:x"], "BROKER:QUEUE_ID"),
        (
            ["offsets", "--group", "g", "--topic", "T", "--queue", "b:0", "--namesrv", "h:1"],
            "--queue belongs to --reset",
        ),
        (["view", "--namesrv", "h:1"], "either MSGID or --key"),
        (["view", "--key", "k", "--namesrv", "h:1"], "--topic"),
        (["dlq", "resend", "--group", "g", "--namesrv", "h:1"], "either MSGIDs or --all"),
    ],
)
def test_wrong_options_exit_2_with_one_line(words: list[str], part: str) -> None:
    assert part in error(run(*words), 2)


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "--topic", "T", "--group", "g"],
        ["produce", "--topic", "T", "x"],
        ["topics"],
        ["groups"],
        ["lag", "--group", "g"],
        ["offsets", "--group", "g", "--topic", "T"],
        ["view", "7F0000010000000000000000000000000000"[:32]],
        ["dlq", "list", "--group", "g"],
    ],
)
def test_nobody_there_exits_1_with_one_line(words: list[str]) -> None:
    done = run(*words, "--namesrv", "127.0.0.1:1")
    assert "127.0.0.1:1" in error(done, 1)
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_debug_shows_the_traceback() -> None:
    done = spawn("--debug", "produce", "--topic", "T", "x", "--namesrv", "127.0.0.1:1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_missing_file_is_named(cluster: Cluster) -> None:
    done = run("produce", "--topic", "T", "--file", "/nowhere/at/all", cluster=cluster)
    assert "/nowhere/at/all" in error(done, 1)


# ------------------------------------------------------------------------------------- broker


def test_broker_says_one_line_and_ends_on_sigterm(tmp_path: Any) -> None:
    store = tmp_path / "store"
    words = ("broker", "--namesrv-port", "0", "--broker-port", "0", "--store", str(store))
    with started(*words) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready: name server 127.0.0.1:")
        assert str(store) in line
        address = line.split("name server ")[1].split(",")[0]
        sent = run("produce", "--topic", "Kept", "one", "two", "--namesrv", address)
        assert sent.returncode == 0, sent.stderr
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, rest, errors) == (0, "", "")
    with started(*words, "--json") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["pid"] == process.pid
        got = run("consume", "--topic", "Kept", "--group", "g", "--from", "first", "--count", "2",
                  "--namesrv", ready["namesrv_addr"], "--json", "--quiet")  # fmt: skip
        assert result(got)["messages"] == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


def test_broker_on_a_taken_port_says_which(cluster: Cluster) -> None:
    port = cluster.namesrv_addr.rpartition(":")[2]
    assert port in error(run("broker", "--namesrv-port", port, "--broker-port", "0"), 1)


# -------------------------------------------------------------------------- produce and consume


def test_produce_and_consume(cluster: Cluster) -> None:
    sent = result(run("produce", "--topic", "Words", "--tags", "A,B", "--keys", "k", "--json",
                      "one", "zwei ü", "three", cluster=cluster))  # fmt: skip
    assert (sent["messages"], sent["failed"], sent["bytes"]) == (3, 0, 15)
    done = run("consume", "--topic", "Words", "--group", "g", "--from", "first", "--count", "3",
               "--json", cluster=cluster)  # fmt: skip
    found = result(done)
    assert (found["messages"], found["duplicates"], found["bytes"]) == (3, 0, 15)
    lines = [json.loads(line) for line in done.stdout.splitlines()[:-1]]
    assert {(m["body"], m["tags"], m["keys"]) for m in lines} == {
        ("one", "A", "k-0"), ("zwei ü", "B", "k-1"), ("three", "A", "k-2"),
    }  # fmt: skip


def test_produce_gives_messages_what_was_asked_for(cluster: Cluster) -> None:
    made = run("topics", "--create", "Given", "--queues", "2", cluster=cluster)
    assert made.returncode == 0
    name = cluster.broker_name
    sent = run("produce", "--topic", "Given", "--key", "order-1 late", "--queue", f"{name}:1",
               "--property", "colour=dark red", "--property", "a-b=c=d", "one", "two",
               cluster=cluster)  # fmt: skip
    lines = [line.split() for line in sent.stdout.splitlines()]
    place = f"Given@{name}:1"
    assert [words[:2] for words in lines] == [[place, "0"], [place, "1"], ["2", "messages"]]
    (found,) = result(run("view", "--topic", "Given", lines[1][2], "--json",
                          cluster=cluster))["messages"]  # fmt: skip
    assert (found["queue_offset"], found["keys"], found["body"]) == (1, "order-1 late", "two")
    assert found["properties"]["colour"] == "dark red"
    assert found["properties"]["a-b"] == "c=d"


def test_produce_with_a_delay_sends_one_by_one(cluster: Cluster, tmp_path: Any) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n")
    sent = result(run("produce", "--topic", "Delayed", "--delay", "1", "--file", str(path),
                      "--json", cluster=cluster))  # fmt: skip
    assert sent["messages"] == 2
    assert "stored" not in sent  # of arguments only: files can be long
    done = run("consume", "--topic", "Delayed", "--group", "g", "--from", "first", "--count", "2",
               "--timeout", "60", "--json", cluster=cluster)  # fmt: skip
    assert result(done)["messages"] == 2


def test_consume_prints_a_line_per_message(cluster: Cluster) -> None:
    sent = run("produce", "--topic", "Lines", "plain", "\x1b[2Jred", cluster=cluster)
    assert sent.returncode == 0
    done = run("consume", "--topic", "Lines", "--group", "g", "--from", "first", "--count", "2",
               cluster=cluster)  # fmt: skip
    assert done.returncode == 0
    assert "plain" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\\x1b[2Jred" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("2 messages (0 duplicates, ")
    assert "consuming" not in done.stderr  # no progress where standard error is no terminal


def test_produce_reads_files_and_standard_input(cluster: Cluster, tmp_path: Any) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"first\r\nsecond\n\nlast")
    assert result(run("produce", "--topic", "File", "--file", str(path), "--json",
                      cluster=cluster))["messages"] == 4  # fmt: skip
    assert result(run("produce", "--topic", "File", "--file", "-", "--json", cluster=cluster,
                      stdin="a\nb\n"))["messages"] == 2  # fmt: skip
    assert cluster.message_count("File") == 6


def test_count_is_exact_and_the_next_run_goes_on(cluster: Cluster) -> None:
    made = run("produce", "--topic", "Exact", "--count", "5k", "--size", "50", cluster=cluster)
    assert made.returncode == 0, made.stderr
    words = ("consume", "--topic", "Exact", "--group", "g", "--from", "first", "--quiet", "--json")
    counts = ("7", "3,993", "1k")
    found = [result(run(*words, "--count", count, cluster=cluster)) for count in counts]
    assert [one["messages"] for one in found] == [7, 3993, 1000]
    assert sum(one["duplicates"] for one in found) == 0
    assert sum(cluster.committed("g", "Exact", number) for number in range(4)) == 5000
    late = run(*words, "--count", "1", "--timeout", "1", cluster=cluster)
    assert "0 of 1 messages" in error(late, 1)
    assert result(late, 1)["messages"] == 0


def test_orderly_prints_each_queue_in_order(cluster: Cluster) -> None:
    made = run("produce", "--topic", "Orderly", "--count", "2k", "--size", "20", cluster=cluster)
    assert made.returncode == 0, made.stderr
    words = ("consume", "--topic", "Orderly", "--group", "g", "--from", "first", "--orderly",
             "--json")  # fmt: skip
    seen: dict[int, list[int]] = {}
    for count in ("300", "1700"):
        done = run(*words, "--count", count, cluster=cluster)
        found = result(done)
        assert (found["messages"], found["duplicates"]) == (int(count), 0)
        for line in done.stdout.splitlines()[:-1]:
            message = json.loads(line)
            seen.setdefault(message["queue_id"], []).append(message["queue_offset"])
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())
    assert sum(map(len, seen.values())) == 2000


def test_batches_lose_nothing_between_runs(cluster: Cluster) -> None:
    assert run("produce", "--topic", "Batch", "--count", "2k", "--size", "10",
               cluster=cluster).returncode == 0  # fmt: skip
    words = ("consume", "--topic", "Batch", "--group", "g", "--from", "first", "--quiet", "--json",
             "--batch", "32", "--pull-batch", "64")  # fmt: skip
    first = result(run(*words, "--count", "1001", cluster=cluster))
    assert (first["messages"], first["bytes"]) == (1001, 10_010)
    committed = sum(max(0, cluster.committed("g", "Batch", number)) for number in range(4))
    assert committed <= 1001
    rest = result(run(*words, "--count", str(2000 - committed), cluster=cluster))
    assert rest["messages"] == 2000 - committed


def test_tags(cluster: Cluster) -> None:
    assert run("produce", "--topic", "Tags", "--count", "300", "--tags", "A,B,C",
               cluster=cluster).returncode == 0  # fmt: skip
    done = run("consume", "--topic", "Tags", "--group", "g", "--from", "first", "--tags", "A || C",
               "--count", "200", "--json", cluster=cluster)  # fmt: skip
    assert result(done)["messages"] == 200
    tags = {json.loads(line)["tags"] for line in done.stdout.splitlines()[:-1]}
    assert tags == {"A", "C"}


def test_interrupt_ends_consume_with_a_summary(cluster: Cluster) -> None:
    assert run("produce", "--topic", "Stop", "x", cluster=cluster).returncode == 0
    for more, code in (([], 0), (["--count", "5"], 130)):
        words = ("consume", "--topic", "Stop", "--group", f"g{code}", "--from", "first", "--json")
        with started(*words, *more, NAMESRV_ADDR=cluster.namesrv_addr) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["body"] == "x"
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=SECONDS)
            assert process.returncode == code, errors
            assert json.loads(rest)["messages"] == 1
            assert "Traceback" not in errors


def test_the_second_signal_is_not_caught() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as stop:
        assert not stop.wanted
        signal.raise_signal(signal.SIGINT)
        stop.wait()
        assert stop.signal_number == signal.SIGINT
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_stop_that_waits_for_a_broker_says_so(cluster: Cluster) -> None:
    assert run("produce", "--topic", "Frozen", "x", cluster=cluster).returncode == 0
    words = ("consume", "--topic", "Frozen", "--group", "frozen", "--from", "first")
    with (
        ProxiedCluster(cluster.namesrv_addr, cluster.broker_addr) as proxied,
        started(*words, NAMESRV_ADDR=proxied.namesrv_addr) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert "x" in process.stdout.readline()
        proxied.broker.freeze()
        process.send_signal(signal.SIGINT)
        assert "another signal ends the wait" in process.stderr.readline()
        proxied.broker.thaw()
        assert process.wait(SECONDS) == 0


def test_a_reader_that_goes_away_ends_consume_and_loses_nothing(cluster: Cluster) -> None:
    assert run("produce", "--topic", "Pipe", "--count", "3k", "--size", "200",
               cluster=cluster).returncode == 0  # fmt: skip
    words = ("consume", "--topic", "Pipe", "--group", "g", "--from", "first")
    with started(*words, NAMESRV_ADDR=cluster.namesrv_addr) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(SECONDS) == 1
        assert "Traceback" not in process.stderr.read()
    committed = sum(max(0, cluster.committed("g", "Pipe", number)) for number in range(4))
    assert committed < 3000
    rest = run(*words, "--count", str(3000 - committed), "--quiet", "--json", cluster=cluster)
    assert result(rest)["messages"] == 3000 - committed


@pytest.mark.parametrize("with_rich", [True, False])
def test_progress_is_drawn_on_a_terminal_only(
    cluster: Cluster, tmp_path: Any, with_rich: bool
) -> None:
    topic = f"Draw{with_rich}"
    more = {} if with_rich else {"PYTHONPATH": str(tmp_path)}
    if not with_rich:
        # A finder that hides rich, as if it were not installed.
        (tmp_path / "sitecustomize.py").write_text(
            "import importlib.util as u\n"
            "find = u.find_spec\n"
            "u.find_spec = lambda name, *a: None if name == 'rich' else find(name, *a)\n",
            encoding="utf-8",
        )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "produce", "--topic", topic, "--count", "20k", "--json"],
        stdout=subprocess.PIPE, stderr=theirs, text=True,
        env=environment(NAMESRV_ADDR=cluster.namesrv_addr, TERM="xterm", **more),
    )  # fmt: skip
    os.close(theirs)
    drawn = b""
    end = time.monotonic() + SECONDS
    with contextlib.suppress(OSError):  # the terminal is gone once the process ended
        while time.monotonic() < end and (
            select.select([ours], [], [], 0.1)[0] or process.poll() is None
        ):
            if select.select([ours], [], [], 0.1)[0]:
                drawn += os.read(ours, 65536)
    os.close(ours)
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, drawn
    assert json.loads(out)["messages"] == 20_000
    assert b"to " + topic.encode() in drawn
    assert (b"\x1b[K" in drawn) or with_rich


# -------------------------------------------------------------------------------------- demo


def checked_demo(done: subprocess.CompletedProcess[str], count: int) -> dict[str, Any]:
    found = result(done)
    assert found["ok"]
    assert found["lost"] == 0
    for step in ("produced", "consumed"):
        assert found[step]["messages"] == found[step]["distinct"] == count
    assert found["produced"]["checksum"] == found["consumed"]["checksum"]
    assert found["broker"] == {"stored": count, "committed": count}
    return found


def test_demo_without_spark() -> None:
    done = spawn("demo", "--count", "20k", "--size", "100", "--no-spark", "--json")
    found = checked_demo(done, 20_000)
    assert found["spark"] == {"skipped": "--no-spark"}
    shown = spawn("demo", "--count", "1k", "--size", "0", "--no-spark")
    assert shown.returncode == 0
    assert "nothing was lost" in shown.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_demo_with_spark() -> None:
    require("spark")
    found = checked_demo(spawn("demo", "--count", "30k", "--size", "100", "--json"), 30_000)
    for step in ("spark", "spark_stream"):
        assert found[step]["messages"] == found[step]["distinct"] == 30_000
        assert found[step]["checksum"] == found["produced"]["checksum"]


def test_demo_leaves_nothing_behind_when_interrupted(tmp_path: Any) -> None:
    with started("demo", "--count", "5m", "--no-spark", TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        child = int(line.split("process ")[1].split(",")[0])
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 130
        assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


# --------------------------------------------------------------------------- topics, groups, lag


def test_topics_groups_and_lag(cluster: Cluster) -> None:
    made = result(run("topics", "--create", "Asked", "--queues", "3", "--json", cluster=cluster))
    assert made == {"created": "Asked", "queues": 3}
    assert run("produce", "--topic", "Asked", "--count", "30", cluster=cluster).returncode == 0
    listed = result(run("topics", "--json", cluster=cluster))["topics"]
    asked = next(row for row in listed if row["topic"] == "Asked")
    assert asked == {"topic": "Asked", "queues": 3, "messages": 30, "brokers": ["broker-a"]}
    assert not [row for row in listed if row["topic"].startswith(("%RETRY%", "TBW"))]
    assert len(result(run("topics", "--all", "--json", cluster=cluster))["topics"]) > len(listed)

    assert run("consume", "--topic", "Asked", "--group", "asking", "--from", "first", "--count",
               "10", "--quiet", cluster=cluster).returncode == 0  # fmt: skip
    found = result(run("lag", "--group", "asking", "--topic", "Asked", "--json", cluster=cluster))
    assert found["lag"] == 20
    assert sum(row["committed"] for row in found["queues"]) == 10
    assert sum(row["max_offset"] for row in found["queues"]) == 30
    groups = result(run("groups", "--json", cluster=cluster))["groups"]
    asking = next(row for row in groups if row["group"] == "asking")
    assert (asking["members"], asking["lag"]) == (0, 20)
    assert "Asked" in asking["topics"]

    for words, part in (
        (("topics",), "Asked"),
        (("groups",), "asking"),
        (("lag", "--group", "asking"), "asking is 20 messages behind"),
        (("lag", "--group", "nobody"), "group nobody has no offsets"),
    ):
        done = run(*words, cluster=cluster)
        assert done.returncode == 0, done.stderr
        assert part in done.stdout
    assert "--queues" in error(run("topics", "--queues", "3", cluster=cluster), 2)


def queues_of(cluster: Cluster, topic: str) -> int:
    listed = result(run("topics", "--json", cluster=cluster))["topics"]
    (found,) = (row["queues"] for row in listed if row["topic"] == topic)
    return int(found)


def test_a_topic_that_is_there_is_changed_on_demand_only(cluster: Cluster) -> None:
    def create(*more: str, topic: str = "Kept4") -> subprocess.CompletedProcess[str]:
        return run("topics", "--create", topic, *more, cluster=cluster)

    assert create("--queues", "4").stdout == "topic Kept4 has 4 queues on each master\n"
    for wanted in ("2", "6"):
        said = error(create("--queues", wanted), 2)
        assert f"has 4 queues on broker-a, not {wanted}" in said
        assert "--update" in said
        assert queues_of(cluster, "Kept4") == 4
    assert create("--queues", "4").stdout == "topic Kept4 has 4 queues on each master\n"
    assert create("--queues", "4", "--update").returncode == 0
    assert create().stdout == "topic Kept4 stays with 4 queues on broker-a\n"
    same = result(create("--queues", "4", "--json"))
    assert same == {"unchanged": "Kept4", "queues": 4}
    assert queues_of(cluster, "Kept4") == 4

    less = create("--queues", "2", "--update")
    assert less.stdout == "topic Kept4 changed from 4 to 2 queues on each master\n"
    assert queues_of(cluster, "Kept4") == 2
    more = result(create("--queues", "5", "--update", "--json"))
    numbers = {"read_queues": 2, "write_queues": 2}
    assert more == {"updated": "Kept4", "queues": 5, "before": {"broker-a": numbers}}
    assert queues_of(cluster, "Kept4") == 5

    fresh = result(create("--json", topic="Default8"))
    assert fresh == {"created": "Default8", "queues": 8}
    single = create("--queues", "1", "--update", topic="Single")
    assert single.stdout == "topic Single has 1 queue on each master\n"
    for words in (("--update",), ("--create", "Kept4", "--update")):
        assert "--update belongs to" in error(run("topics", *words, cluster=cluster), 2)


def test_an_update_keeps_the_permission_and_names_uneven_queues(cluster: Cluster) -> None:
    with Admin(namesrv_addr=cluster.namesrv_addr) as admin:
        admin.create_topic("Uneven", read_queues=4, write_queues=2, perm=4)
        words = ("topics", "--create", "Uneven", "--queues", "4")
        said = error(run(*words, cluster=cluster), 2)
        assert "has 4 read and 2 write queues on broker-a, not 4" in said
        done = run(*words, "--update", cluster=cluster)
        assert "changed from 4 read and 2 write to 4 queues" in done.stdout
        (data,) = admin.route("Uneven").queue_datas
    assert (data.read_queue_nums, data.write_queue_nums, data.perm) == (4, 4, 4)


def test_what_is_not_found_is_said_in_plain_words(cluster: Cluster) -> None:
    sent = run("produce", "--topic", "Single1", "x", "--keys", "k", cluster=cluster)
    assert sent.stdout.splitlines()[-1].startswith("1 message (1 byte) ")
    nothing = error(run("view", "--key", "none", "--topic", "Single1", cluster=cluster), 1)
    assert nothing == "rocketmq-fast: error: no message of topic 'Single1' has key 'none'"
    unique = "7F00000100000000000000000000AAAA"
    said = error(run("view", unique, cluster=cluster), 1)
    assert said.endswith("is of no broker here; a unique id needs the topic")
    assert "names" not in said
    absent = error(run("view", unique, "--topic", "Single1", cluster=cluster), 1)
    assert absent == f"rocketmq-fast: error: no message of topic 'Single1' has id '{unique}'"

    words = ("--group", "typo", "--topic", "Single1")
    first = run("offsets", *words, "--reset", "first", cluster=cluster)
    assert "note: group typo had no offsets here\n" in first.stdout
    again = run("offsets", *words, "--reset", "first", cluster=cluster)
    assert "note" not in again.stdout
    assert "typo is 1 message behind\n" in run("lag", *words, cluster=cluster).stdout


def test_a_message_does_not_steer_the_terminal() -> None:
    properties = dict.fromkeys(("TAGS", "KEYS", "UNIQ_KEY", "na\x1bme"), "a\x1b[2J\nb")
    (message,) = decode_messages(build_message(properties=properties, body=b"\x1b[2J"))
    line = shown(MessageQueue("T", "b", 0), message, as_json=False)
    assert f"  {message.topic}@?:{message.queue_id} {message.queue_offset}\n" in details(message)
    assert line.isprintable()
    assert "a\\x1b[2J\\nb" in line
    assert all(part.isprintable() for part in details(message).split("\n"))
