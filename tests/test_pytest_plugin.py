"""The fixtures for users' tests, in a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.style import ROOT

SAMPLE = """
import os
import sys

import pytest

pytestmark = pytest.mark.rocketmq(queues=3, delay_levels="1s 1s")
seen = []


def test_unused():
    assert "rocketmq_fast" not in sys.modules


def test_one(rocketmq_cluster, rocketmq_topic):
    assert os.environ["NAMESRV_ADDR"] == rocketmq_cluster.namesrv_addr
    assert rocketmq_cluster.config.delay_levels == "1s 1s"
    seen.append((rocketmq_cluster.namesrv_addr, rocketmq_topic))


@pytest.mark.rocketmq(queues=1)
@pytest.mark.parametrize("name", ["a b/c", "%$"])
def test_two(rocketmq_cluster, rocketmq_topic, name):
    import rocketmq_fast as rmq

    with rmq.Producer("P") as producer:
        results = [producer.send(rmq.Message(rocketmq_topic, b"x")) for _ in range(3)]
    assert {result.message_queue.queue_id for result in results} == {0}
    assert rocketmq_cluster.config.delay_levels == "1s 1s"
    assert rocketmq_cluster.message_count(rocketmq_topic) == 3
    seen.append((rocketmq_cluster.namesrv_addr, rocketmq_topic))


def test_isolated():
    assert "NAMESRV_ADDR" not in os.environ
    assert len({topic for _, topic in seen}) == 3


@pytest.mark.rocketmq(colour="red")
def test_unknown_setting(rocketmq_cluster):
    raise AssertionError("not reached")
"""


def test_the_fixtures(tmp_path: Path) -> None:
    sample = tmp_path / "test_sample.py"
    sample.write_text(SAMPLE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider",
         "-p", "no:hypothesispytest", str(sample)],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "5 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "unknown option 'colour'" in done.stdout
    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "--fixtures", "--markers", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "@pytest.mark.rocketmq(queues=4, **settings)" in shown.stdout
    assert (ROOT / "pytest_rocketmq_fast" / "py.typed").is_file()
