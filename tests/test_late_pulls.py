"""What a broker has been told may not be what it has: late pulls set it back, a crash loses it."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from rocketmq_fast import (
    ConsumeStatus,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
)
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.protocol.codes import PullSysFlag, RequestCode
from rocketmq_fast.remoting import client
from tests.brokers import TestBroker
from tests.consuming import SUCCESS, Recorder, bodies, consuming, make, releasing
from tests.proxy import Frame, ProxiedCluster
from tests.waiting import wait_for


class Case:
    """A group that read on from 5 and notes what its pulls and commits tell the broker."""

    def __init__(self, broker: TestBroker, proxied: ProxiedCluster) -> None:
        self.broker = broker
        self.topic, self.group = broker.topic(1), broker.group()
        self.queue = broker.queue(self.topic)
        self.carried: list[int] = []
        self.committed: list[int] = []
        self.late: int | None = None  # a pull brings this behind the next commit
        self.go = threading.Event()  # the listener keeps the message at 15 until then
        self.recorder = Recorder(self._listen)
        broker.send(self.topic, bodies(5))
        broker.commit(self.group, self.topic, 0, 5)
        proxied.broker.on_request = self._on_request
        proxied.broker.on_answer = self._on_answer
        # Nothing is committed unless a test asks for it.
        self.consumer = consuming(
            proxied.namesrv_addr,
            self.group,
            self.topic,
            self.recorder,
            persist_consumer_offset_interval=60_000,
        )

    def _listen(self, messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].queue_offset == 15:
            assert self.go.wait(60.0)
        return SUCCESS

    def _on_request(self, frame: Frame) -> None:
        fields = frame.command.ext_fields
        if fields.get("topic") != self.topic:
            return
        if frame.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.committed.append(int(fields["commitOffset"]))
        elif frame.code == RequestCode.PULL_MESSAGE:
            flagged = int(fields["sysFlag"]) & PullSysFlag.COMMIT_OFFSET
            self.carried.append(int(fields["commitOffset"]) if flagged else -1)

    def _on_answer(self, frame: Frame) -> None:
        if frame.code == RequestCode.UPDATE_CONSUMER_OFFSET and self.late is not None:
            late, self.late = self.late, None
            self.broker.commit(self.group, self.topic, 0, late)

    def stored(self) -> int | None:
        """What the broker has."""
        return self.broker.committed(self.group, self.topic).get(0)

    def consume_to_16(self) -> None:
        """Everything is done, nothing is committed, and the pull under way has told of 15."""
        with releasing(self.go):
            self.broker.send(self.topic, bodies(10, "first"))
            self.recorder.wait(10)
            self.broker.send(self.topic, [b"kept"])
            wait_for(lambda: self.carried[-1] == 15, lambda: f"a pull with 15: {self.carried}")


def test_pull_tells_only_what_is_new(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    case = Case(embedded_broker, embedded_proxied)
    with case.consumer:
        case.consume_to_16()
        assert case.committed == []
        assert 5 not in case.carried  # the broker said so itself
        assert case.carried[-1] == case.stored() == 15
    assert case.stored() == 16


def test_last_commit_survives_a_late_pull(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    case = Case(embedded_broker, embedded_proxied)
    with case.consumer:
        case.consume_to_16()
        case.late = 15
    assert case.committed == [16, 16]
    assert case.stored() == 16


def test_commit_that_a_late_pull_set_back_is_told_again(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    case = Case(embedded_broker, embedded_proxied)
    with case.consumer as consumer:
        case.consume_to_16()
        running = consumer._running
        assert running is not None
        wait_for(lambda: running.store.in_memory(case.queue) == 16, "the last acknowledgement")
        case.late = 15
        running.persist_offsets()
        wait_for(lambda: case.committed == [16] and case.stored() == 15, "the late pull")
        case.broker.send(case.topic, [b"wakes the pull"])
        wait_for(lambda: case.stored() in (16, 17), "the next pull")
        assert case.committed == [16]


def test_broker_that_lost_its_offsets_is_told_again(tmp_path: Path) -> None:
    recorder = Recorder()
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("T", queues=1)
        with (
            Producer("p", namesrv_addr=cluster.namesrv_addr) as producer,
            consuming(
                cluster.namesrv_addr, "g", "T", recorder, persist_consumer_offset_interval=50
            ),
        ):
            producer.send(Message("T", b"the only one"))
            wait_for(lambda: cluster.committed("g", "T", 0) == 1, "the commit")
            cluster.kill()  # before the offsets were saved
            cluster.start()
            assert cluster.committed("g", "T", 0) == -1
            wait_for(lambda: cluster.committed("g", "T", 0) == 1, "the commit again")
    assert recorder.bodies == [b"the only one"]


@pytest.mark.parametrize("kind", ["push", "pull"])
def test_the_last_commit_connects_anew(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is back has it, although it could not be reached a moment ago."""
    with Cluster(tmp_path) as cluster, contextlib.ExitStack() as stack:
        cluster.create_topic("T", queues=1)
        with Producer("p", namesrv_addr=cluster.namesrv_addr) as producer:
            for body in bodies(3):
                producer.send(Message("T", body))
        consumer: PushConsumer | PullConsumer
        if kind == "push":
            recorder = Recorder()
            consumer = make(
                cluster.namesrv_addr,
                "g",
                "T",
                recorder,
                persist_consumer_offset_interval=60_000,
                pull_time_delay_millis_when_exception=10,
            )
            consumer.start()
            stack.callback(consumer.shutdown)
            recorder.wait(3)
        else:
            consumer = PullConsumer(
                "g",
                namesrv_addr=cluster.namesrv_addr,
                consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                auto_commit=False,
                pull_time_delay_millis_when_exception=10,
            )
            consumer.subscribe("T")
            consumer.start()
            stack.callback(consumer.shutdown)
            got = 0
            while got < 3:
                got += len(consumer.poll(60.0))
        monkeypatch.setattr(client, "_CONNECT_BACKOFF_SECONDS", 3600.0)
        cluster.stop_broker()
        wait_for(lambda: consumer.stats()["pull_errors"] > 2, "a failure to connect")
        cluster.start_broker()
        if kind == "pull":
            consumer.commit()
        else:
            consumer.shutdown()
        assert cluster.committed("g", "T", 0) == 3
