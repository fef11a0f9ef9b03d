"""Every example does what it says."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rocketmq_fast as rmq
from rocketmq_fast.embedded import Cluster
from tests.apache.settings import free_port
from tests.fix_spark import patiently
from tests.golden_data import GOLDEN
from tests.require import require
from tests.scripts import environment, finish, until
from tests.style import ROOT
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples"
# Example: test function below.
COVERED = {
    "arrow.py": "test_arrow",
    "asyncio_consumer.py": "test_asyncio_consumer",
    "batch_listener.py": "test_batch_listener",
    "consumer.py": "test_consumer",
    "decode_pull_body.py": "test_decode_pull_body",
    "embedded_test.py": "test_embedded_test",
    "from_java.py": "test_from_java",
    "ordered_producer.py": "test_ordered_producer",
    "producer.py": "test_producer",
    "producer_async.py": "test_producer_async",
    "prometheus.py": "test_prometheus",
    "pull.py": "test_pull",
    "request_reply.py": "test_request_reply",
    "retry.py": "test_retry",
    "spark_read.py": "test_spark_read",
    "spark_stream.py": "test_spark_stream",
    "spark.ipynb": "test_notebook",
    "spark_write.py": "test_spark_write",
    "tags.py": "test_tags",
    "transaction.py": "test_transaction",
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster per test: the examples share a topic and begin at its first message."""
    with Cluster(delay_levels="1s 1s 1s 1s 1s 1s") as running:
        yield running


def script(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *arguments]


def fill(cluster: Cluster, *bodies: str, tags: tuple[str | None, ...] = (None,)) -> None:
    with rmq.Producer("fill", namesrv_addr=cluster.namesrv_addr) as producer:
        for index, body in enumerate(bodies):
            producer.send(rmq.Message("TopicTest", body.encode(), tags=tags[index % len(tags)]))


def test_from_java(cluster: Cluster) -> None:
    there = environment(cluster.namesrv_addr)
    said = finish(script("from_java.py", "producer"), there)
    assert said.count("SEND_OK") == 10
    expected = ["consumer started", *(f"received Hello RocketMQ {i} " for i in range(10))]
    until(script("from_java.py", "consumer"), expected, there)


def test_every_example_is_run_and_listed() -> None:
    found = {path.name for suffix in ("py", "ipynb") for path in EXAMPLES.glob(f"*.{suffix}")}
    assert found == set(COVERED)
    assert all(name in globals() for name in COVERED.values())
    listed = re.findall(r"^\| \[([\w.]+)\]", (EXAMPLES / "README.md").read_text("utf-8"), re.M)
    assert set(listed) == found


@pytest.mark.parametrize(
    "name",
    ["arrow.py", "decode_pull_body.py", "from_java.py", "spark_stream.py", "transaction.py"],
)
def test_a_missing_argument_is_told(name: str) -> None:
    done = subprocess.run(
        script(name), env=environment(), capture_output=True, text=True, check=False, timeout=60.0
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {name}")
    assert "Traceback" not in done.stderr


def test_consumer(cluster: Cluster) -> None:
    fill(cluster, "one", "two")
    until(script("consumer.py"), ["None one", "None two"], environment(cluster.namesrv_addr))
    assert sum(max(0, cluster.committed("example", "TopicTest", n)) for n in range(4)) == 2


def test_prometheus(cluster: Cluster) -> None:
    fill(cluster, "one", "two")
    port = free_port()
    wanted = b'rocketmq_consumer_consumed_total{group="example",topic="TopicTest"} 2.0'

    def counted() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5.0) as page:
                return wanted in page.read()
        except OSError:  # it does not listen yet
            return False

    process = subprocess.Popen(
        script("prometheus.py", str(port)), env=environment(cluster.namesrv_addr)
    )
    try:
        wait_for(counted, "both messages to be counted", 60.0)
        process.terminate()
        assert process.wait(30.0) == 0
    finally:
        process.kill()
        process.wait(30.0)


def test_producer(cluster: Cluster) -> None:
    said = finish(script("producer.py"), environment(cluster.namesrv_addr))
    assert said.startswith("SEND_OK TopicTest@")
    assert cluster.message_count("TopicTest") == 1


def test_producer_async(cluster: Cluster) -> None:
    said = finish(script("producer_async.py"), environment(cluster.namesrv_addr))
    assert said.startswith("100 sent\n1000 messages to ")
    assert cluster.message_count("TopicTest") == 1100


def test_ordered_producer(cluster: Cluster) -> None:
    said = finish(script("ordered_producer.py"), environment(cluster.namesrv_addr))
    queues: dict[str, set[str]] = {}
    for order, _, _, _, queue_id in (line.split() for line in said.splitlines()):
        queues.setdefault(order, set()).add(queue_id)
    assert set(queues) == {"order-1", "order-2", "order-3"}
    assert all(len(ids) == 1 for ids in queues.values())


def test_transaction(tmp_path: Path) -> None:
    words = script("transaction.py", str(tmp_path / "orders.db"))
    expected = ["order-1 COMMIT_MESSAGE", "order-2 UNKNOW", "asked about order-2"]
    with Cluster(transaction_time_out=1.0, transaction_check_interval=0.5) as cluster:
        said = until(words, expected, environment(cluster.namesrv_addr))
        assert cluster.message_count("TopicTest") >= 1
    assert "asked about order-1" not in said
    assert said.endswith("stopped\n")


def test_request_reply(cluster: Cluster) -> None:
    fill(cluster, "no request")  # other examples leave such messages
    cluster.create_topic("ExampleRequests", queues=4)
    cluster.create_topic("ExampleUnanswered", queues=4)
    said = finish(script("request_reply.py"), environment(cluster.namesrv_addr))
    assert said == "HELLO\nnobody\n"


def test_batch_listener(cluster: Cluster) -> None:
    cluster.create_topic("TopicTest", queues=1)
    with rmq.Producer("fill", namesrv_addr=cluster.namesrv_addr) as producer:
        producer.send_batch([rmq.Message("TopicTest", b"x")] * 40)
    until(
        script("batch_listener.py"),
        ["32 messages, offsets 0 and up", "8 messages, offsets 32 and up"],
        environment(cluster.namesrv_addr),
    )


def test_tags(cluster: Cluster) -> None:
    fill(cluster, "one", "two", "three", "four", tags=("TagA", "TagB", "TagC"))
    expected = ["TagA one", "TagC three", "TagA four"]
    said = until(script("tags.py"), expected, environment(cluster.namesrv_addr))
    assert "TagB" not in said


def test_retry(cluster: Cluster) -> None:
    fill(cluster, "good", "bad one")
    expected = ["done good", *(f"failed bad one attempt {number}" for number in (1, 2, 3))]
    said = until(script("retry.py"), expected, environment(cluster.namesrv_addr))
    assert "attempt 4" not in said
    assert cluster.message_count("%DLQ%example_retry") == 1


def test_asyncio_consumer(cluster: Cluster) -> None:
    fill(cluster, "one", "two")
    expected = ["done one", "done two"]
    said = until(script("asyncio_consumer.py"), expected, environment(cluster.namesrv_addr))
    assert said.endswith("stopped\n")
    assert sum(max(0, cluster.committed("example_async", "TopicTest", n)) for n in range(4)) == 2


def test_pull(cluster: Cluster) -> None:
    fill(cluster, "one", "two", "three", "four", "five")
    said = finish(script("pull.py"), environment(cluster.namesrv_addr))
    assert {line.split()[-1] for line in said.splitlines()[:-1]} == {
        "one", "two", "three", "four", "five",
    }  # fmt: skip
    assert said.endswith("lag 0\n")
    assert sum(max(0, cluster.committed("example_pull", "TopicTest", n)) for n in range(4)) == 5


def test_embedded_test() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    said = finish([*words, str(EXAMPLES / "embedded_test.py")], environment())
    assert "2 passed" in said
    text = (EXAMPLES / "embedded_test.py").read_text("utf-8")
    assert "pytest -c /dev/null examples/embedded_test.py" in text


def test_decode_pull_body() -> None:
    path = GOLDEN / "stored_v4_9_4.bin"
    said = finish(script("decode_pull_body.py", str(path)), environment())
    count = len(rmq.decode_messages(path.read_bytes()))
    assert said.startswith(f"{count} messages, ")


def test_arrow() -> None:
    path = GOLDEN / "stored_v4_9_4.bin"
    said = finish(script("arrow.py", str(path)), environment())
    count = len(rmq.decode_messages(path.read_bytes()))
    assert f"{count} rows, 0 messages that could not be decoded" in said


@pytest.mark.slow
@pytest.mark.spark
def test_spark_read(cluster: Cluster) -> None:
    require("spark")
    fill(cluster, *(f"m{number}" for number in range(30)), tags=("TagA", "TagB", "TagC"))
    said = finish(script("spark_read.py"), environment(cluster.namesrv_addr))
    assert "30 messages" in said


@pytest.mark.spark
def test_spark_write(
    spark: SparkSession,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process, with the session that is there."""
    cluster.create_topic("TopicTest", queues=4)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
    runpy.run_path(str(EXAMPLES / "spark_write.py"))
    assert "1000 messages written" in capsys.readouterr().out
    assert cluster.message_count("TopicTest") == 1000


@pytest.mark.spark
def test_spark_stream(
    spark: SparkSession,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """In this process, with the session that is there."""
    fill(cluster, *(f"m{number}" for number in range(30)))
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
    monkeypatch.setattr(sys, "argv", ["spark_stream.py", str(tmp_path)])
    patiently(lambda: runpy.run_path(str(EXAMPLES / "spark_stream.py")))
    assert capsys.readouterr().out.endswith("not read yet: 0\n30 messages in the files\n")


@pytest.mark.spark
def test_notebook(
    spark: SparkSession,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its cells in their order, as one program."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
    cells = json.loads((EXAMPLES / "spark.ipynb").read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            program = compile("".join(cell["source"]), cell["id"], "exec")
            patiently(partial(exec, program, names))
    said = capsys.readouterr().out
    assert re.search(r"customer-3\s*\|\s*400\s*\|", said)
    assert "2000 messages read\n2000 messages in Parquet files\n" in said
