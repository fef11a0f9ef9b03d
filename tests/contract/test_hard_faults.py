"""Faults of lines and machines: peers that vanish, stop or are slow; topics that change shape."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from rocketmq_fast.protocol.codes import RequestCode
from tests.apache import ApacheCluster
from tests.brokers import TestBroker, Wire
from tests.consuming import Recorder, assert_once, bodies, consuming, owned
from tests.history import History
from tests.proxy import Frame, ProxiedCluster
from tests.waiting import wait_for


@pytest.fixture
def short_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long polls of 1 s that are given up after 2 s: what half a minute does, sooner."""
    monkeypatch.setattr("rocketmq_fast.consumer.pull.SUSPEND_MILLIS", 1_000)
    monkeypatch.setattr("rocketmq_fast.consumer.pull.TIMEOUT_SECONDS", 2.0)


@pytest.mark.usefixtures("short_pulls")
def test_peer_that_vanishes_without_a_word(broker: TestBroker, proxied: ProxiedCluster) -> None:
    """Half-open connections: what is sent goes nowhere, and no end of the connection is seen."""
    topic, group = broker.topic(2), broker.group()
    history = History()
    history.watch(proxied, group, broker.broker_name)
    one, two = bodies(20, "one"), bodies(20, "two")
    history.note_sent(broker.send(topic, one, queues=(0, 1)), one)
    recorder = Recorder(history.listener())
    with consuming(
        proxied.namesrv_addr, group, topic, recorder,
        persist_consumer_offset_interval=50, mq_client_api_timeout=1_000,
    ) as consumer:  # fmt: skip
        recorder.wait(20)
        wait_for(lambda: broker.committed(group, topic) == {0: 10, 1: 10}, "the commits")
        proxied.broker.strand()
        # The broker's answers to the polls that are under way are swallowed too.
        history.note_sent(broker.send(topic, two, queues=(0, 1)), two)
        recorder.wait(40)
        assert consumer.stats()["pull_errors"] > 0
        wait_for(lambda: broker.committed(group, topic) == {0: 20, 1: 20}, "the last commits")
    history.check()
    assert_once(recorder, one + two)


@pytest.fixture(
    params=[
        pytest.param("apache_494", marks=pytest.mark.apache, id="4.9.4"),
        pytest.param("apache_533", marks=pytest.mark.apache, id="5.3.3"),
    ]
)
def paused(request: pytest.FixtureRequest, wire: Wire) -> Iterator[TestBroker]:
    """A real broker whose process may be stopped; it runs again after the test."""
    cluster: ApacheCluster = request.getfixturevalue(request.param)
    found = TestBroker(request.param, cluster, wire)
    found.for_test(request.node.originalname)
    yield found
    cluster.resume_broker()


@pytest.mark.usefixtures("short_pulls")
def test_broker_process_that_is_stopped_for_a_while(paused: TestBroker) -> None:
    """SIGSTOP and SIGCONT: requests time out, offsets stay where they are, all goes on alone."""
    broker, cluster = paused, paused.cluster
    assert isinstance(cluster, ApacheCluster)
    topic, group = broker.topic(1), broker.group()
    one, two = bodies(20, "one"), bodies(20, "two")
    history = History()
    with broker.proxied() as proxied:
        history.watch(proxied, group, broker.broker_name)
        history.note_sent(broker.send(topic, one), one)
        recorder = Recorder(history.listener())
        with consuming(
            proxied.namesrv_addr, group, topic, recorder,
            persist_consumer_offset_interval=50, mq_client_api_timeout=1_000,
        ) as consumer:  # fmt: skip
            recorder.wait(20)
            wait_for(lambda: broker.committed(group, topic) == {0: 20}, "the commit")
            cluster.pause_broker()
            wait_for(lambda: consumer.stats()["pull_errors"] >= 2, "pulls that time out")
            cluster.resume_broker()
            history.note_sent(broker.send(topic, two), two)
            recorder.wait(40)
            wait_for(lambda: broker.committed(group, topic) == {0: 40}, "the last commit")
    history.check()
    assert_once(recorder, one + two)


def test_slow_line(broker: TestBroker, proxied: ProxiedCluster) -> None:
    """Each frame takes its time and comes in pieces: nothing is asked twice, over one line."""
    topic, group = broker.topic(1), broker.group()
    sent = bodies(40, size=200)
    broker.send(topic, sent)
    pulls: list[str] = []

    def slowly(frame: Frame) -> Iterator[bytes]:
        for start in range(0, len(frame.raw), 2000):
            time.sleep(0.05)
            yield frame.raw[start : start + 2000]

    def on_request(frame: Frame) -> Sequence[bytes]:
        fields = frame.command.ext_fields
        if frame.code == RequestCode.PULL_MESSAGE and fields["topic"] == topic:
            pulls.append(fields["queueOffset"])
        return list(slowly(frame))

    proxied.broker.on_request = on_request
    proxied.broker.on_answer = lambda frame: list(slowly(frame))
    recorder = Recorder()
    with consuming(proxied.namesrv_addr, group, topic, recorder, pull_batch_size=10) as consumer:
        recorder.wait(40)
        assert consumer.stats()["pull_errors"] == 0
    assert_once(recorder, sent)
    assert len(set(pulls)) == len(pulls)
    assert proxied.broker.accepted == 1
    assert broker.committed(group, topic) == {0: 40}


def test_topic_that_changes_its_shape(broker: TestBroker) -> None:
    """Queues 4, 16, 2; readable, not readable, and again: what is there is consumed once."""
    topic, group = broker.topic(4), broker.group()
    recorder = Recorder()
    sent: list[bytes] = []

    def more(queues: int) -> None:
        new = bodies(queues, f"{len(sent)}_")
        broker.send(topic, new, queues=range(queues))
        sent.extend(new)

    with consuming(
        broker.namesrv_addr, group, topic, recorder, poll_name_server_interval=100
    ) as consumer:
        more(4)
        recorder.wait(4)
        broker.cluster.create_topic(topic, queues=16)
        more(16)
        recorder.wait(20)
        assert owned(consumer, topic) == set(range(16))
        broker.cluster.create_topic(topic, queues=2)
        wait_for(lambda: owned(consumer, topic) == {0, 1}, "two queues")
        more(2)
        recorder.wait(22)
        broker.cluster.create_topic(topic, queues=2, perm=4)  # to be read only
        wait_for(lambda: owned(consumer, topic) == {0, 1}, "two queues")
        broker.cluster.create_topic(topic, queues=2, perm=6)
        more(2)
        recorder.wait(24)
    assert_once(recorder, sent)
    ends = {queue: broker.max_offset(topic, queue) for queue in range(2)}
    stored = broker.committed(group, topic)
    assert {queue: stored[queue] for queue in (0, 1)} == ends
