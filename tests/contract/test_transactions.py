"""Transactional messages: commit, rollback, and the broker's questions about silent ones."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_fast import (
    ConfigError,
    LocalTransactionState,
    Message,
    MessageExt,
    SendStatus,
    TransactionProducer,
    TransactionSendResult,
)
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.protocol.codes import RequestCode
from tests.apache import QUICK_CHECKS
from tests.apache.java import consume, run_java
from tests.brokers import TestBroker, Wire
from tests.consuming import Recorder, consuming
from tests.fix_cluster import BROKERS
from tests.require import require
from tests.waiting import wait_for

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW
CHECK_MAX = int(QUICK_CHECKS["transactionCheckMax"])


@pytest.fixture(scope="module")
def checking() -> Iterator[Cluster]:
    """An embedded cluster that checks as soon as the Apache clusters of fix_apache."""
    with Cluster(
        transaction_time_out=int(QUICK_CHECKS["transactionTimeOut"]) / 1000,
        transaction_check_interval=int(QUICK_CHECKS["transactionCheckInterval"]) / 1000,
        transaction_check_max=CHECK_MAX,
    ) as cluster:
        yield cluster


@pytest.fixture(
    params=[
        pytest.param(kind, marks=[] if kind == "embedded" else pytest.mark.apache)
        for kind in BROKERS
    ],
)
def broker(request: pytest.FixtureRequest, wire: Wire) -> TestBroker:
    """Brokers that check after a second."""
    found = "checking" if request.param == "embedded" else request.param
    made = TestBroker(request.param, request.getfixturevalue(found), wire)
    made.for_test(request.node.originalname)
    return made


class Local:
    """The local side: what `execute` and `check` are to say, and what they were asked."""

    def __init__(self, execute: Any = COMMIT, check: Any = UNKNOW) -> None:
        self._answers = {"execute": execute, "check": check}
        self._lock = threading.Lock()
        self.executed: list[tuple[Message, Any]] = []
        self.checked: list[MessageExt] = []
        self.threads: set[str] = set()

    def _say(self, what: str, message: Any) -> Any:
        answer = self._answers[what]
        answer = answer(message) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def execute(self, message: Message, arg: Any) -> Any:
        with self._lock:
            self.executed.append((message, arg))
        return self._say("execute", message)

    def check(self, message: MessageExt) -> Any:
        with self._lock:
            self.checked.append(message)
            self.threads.add(threading.current_thread().name)
        return self._say("check", message)

    def wait_checked(self, count: int = 1) -> list[MessageExt]:
        wait_for(
            lambda: len(self.checked) >= count,
            lambda: f"{count} checks; {len(self.checked)} came",
            60.0,
        )
        return list(self.checked)


@contextlib.contextmanager
def producing(
    broker: TestBroker, local: Local, group: str | None = None, **options: Any
) -> Iterator[TransactionProducer]:
    with TransactionProducer(
        group or broker.group(),
        execute=local.execute,
        check=local.check,
        namesrv_addr=broker.namesrv_addr,
        **options,
    ) as producer:
        yield producer


def _visible(broker: TestBroker, topic: str) -> int:
    return sum(broker.max_offset(topic, queue) for queue in range(4))


def _send(
    producer: TransactionProducer, topic: str, body: bytes = b"body", **fields: Any
) -> TransactionSendResult:
    result = producer.send_in_transaction(Message(topic, body, **fields), arg="arg")
    assert result.status is SendStatus.SEND_OK
    return result


def test_what_is_committed_is_delivered(broker: TestBroker) -> None:
    topic, local, got = broker.topic(), Local(COMMIT), Recorder()
    body = b"x" * 5000  # compressed on the way
    with (
        producing(broker, local) as producer,
        consuming(broker.namesrv_addr, broker.group(), topic, got),
    ):
        result = _send(producer, topic, body, tags="A", keys="k1", properties={"mine": "1"})
        assert result.local_transaction_state is COMMIT
        (seen,) = got.wait(1)
    message, arg = local.executed[0]
    assert arg == "arg"
    assert message.transaction_id == result.msg_id == result.transaction_id == seen.msg_id
    assert (seen.body, seen.tags, seen.topic) == (body, "A", topic)
    properties = seen.properties
    assert (properties["KEYS"], properties["mine"], properties["TRAN_MSG"]) == ("k1", "1", "true")
    assert properties["PGROUP"] == producer.group
    assert seen.message.prepared_transaction_offset == int(result.offset_msg_id[-16:], 16)
    assert seen.message.sys_flag & 0xC == 0x8
    assert not local.checked


def test_what_is_rolled_back_is_never_delivered(broker: TestBroker) -> None:
    topic, got = broker.topic(1), Recorder()
    states = {b"no": ROLLBACK, b"yes": COMMIT}
    local = Local(lambda message: states[message.body])
    with (
        producing(broker, local) as producer,
        consuming(broker.namesrv_addr, broker.group(), topic, got),
    ):
        assert _send(producer, topic, b"no").local_transaction_state is ROLLBACK
        _send(producer, topic, b"yes")
        got.wait(1)
        # A second transaction is checked, so the first one would have been.
        silent = Local(UNKNOW, COMMIT)
        with producing(broker, silent) as other:
            _send(other, topic, b"late")
            silent.wait_checked()
            got.wait(2)
    assert got.bodies == [b"yes", b"late"]
    assert not local.checked


@pytest.mark.parametrize(
    "undecided", [UNKNOW, None, "COMMIT_MESSAGE", ValueError("no database")], ids=repr
)
def test_what_is_undecided_is_asked_about(
    broker: TestBroker, undecided: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic, got = broker.topic(), Recorder()
    local = Local(undecided, COMMIT)
    with (
        producing(broker, local) as producer,
        consuming(broker.namesrv_addr, broker.group(), topic, got),
        caplog.at_level(logging.INFO),
    ):
        result = _send(producer, topic, b"z" * 4500, tags="A")
        assert result.local_transaction_state is UNKNOW
        assert _visible(broker, topic) == 0
        (seen,) = got.wait(1, 60.0)
    asked = local.checked[0]
    assert asked.msg_id == seen.msg_id == result.msg_id
    assert (asked.topic, asked.body, asked.tags) == (topic, b"z" * 4500, "A")
    assert int(asked.properties["TRANSACTION_CHECK_TIMES"]) == 1
    assert {name.startswith("rocketmq-check-") for name in local.threads} == {True}
    logged = [record for record in caplog.records if "its state is UNKNOW" in record.message]
    assert bool(logged) == (undecided is not UNKNOW)
    assert all(record.levelno == logging.ERROR for record in logged)


def test_a_check_may_roll_back_and_may_not_know(broker: TestBroker) -> None:
    topic, got = broker.topic(1), Recorder()
    states: dict[bytes, list[Any]] = {
        b"dropped": [ROLLBACK],
        b"slow": [UNKNOW, RuntimeError("not yet"), COMMIT],
    }
    local = Local(UNKNOW, lambda message: states[message.body].pop(0))
    with (
        producing(broker, local) as producer,
        consuming(broker.namesrv_addr, broker.group(), topic, got),
    ):
        _send(producer, topic, b"dropped")
        _send(producer, topic, b"slow")
        got.wait(1, 60.0)
    assert got.bodies == [b"slow"]
    assert [message.body for message in local.checked].count(b"dropped") == 1
    slow = [message for message in local.checked if message.body == b"slow"]
    assert [message.properties["TRANSACTION_CHECK_TIMES"] for message in slow] == ["1", "2", "3"]


def test_another_member_of_the_group_answers(broker: TestBroker) -> None:
    topic, group, got = broker.topic(), broker.group(), Recorder()
    first, second = Local(UNKNOW, COMMIT), Local(UNKNOW, COMMIT)
    with consuming(broker.namesrv_addr, broker.group(), topic, got):
        with producing(broker, first, group) as producer:
            sent = _send(producer, topic).msg_id
        with producing(broker, second, group):
            second.wait_checked()
            assert got.wait(1)[0].msg_id == sent
    assert not first.checked


def test_what_nobody_decides_on_is_put_aside(broker: TestBroker) -> None:
    topic, local = broker.topic(), Local(UNKNOW)
    aside = "TRANS_CHECK_MAX_TIME_TOPIC"
    got = Recorder()
    with producing(broker, local) as producer:
        sent = _send(producer, topic, b"hopeless").msg_id
        local.wait_checked(CHECK_MAX)
        wait_for(lambda: broker.max_offset(aside, 0) > 0, "a message in the topic", 60.0)
    with consuming(broker.namesrv_addr, broker.group(), aside, got):
        wait_for(lambda: got.of(b"hopeless"), "the message in the topic of the undecided", 60.0)
    (seen,) = got.of(b"hopeless")
    assert seen.msg_id == sent
    assert seen.properties["REAL_TOPIC"] == topic
    assert _visible(broker, topic) == 0
    assert len(local.checked) == CHECK_MAX


def test_open_transactions_outlive_the_broker(broker: TestBroker) -> None:
    topic, group, got = broker.topic(), broker.group(), Recorder()
    with producing(broker, Local(UNKNOW), group) as producer:
        sent = {_send(producer, topic, b"open%d" % i).msg_id for i in range(5)}
    with producing(broker, Local(ROLLBACK)) as producer:
        _send(producer, topic, b"dropped")
    wait_for(lambda: _visible(broker, "RMQ_SYS_TRANS_OP_HALF_TOPIC") > 0, "the rollback's record")
    broker.kill()
    broker.start()
    local = Local(UNKNOW, COMMIT)
    with (
        producing(broker, local, group, instance_name=broker.name("p")),
        consuming(broker.namesrv_addr, broker.group(), topic, got),
    ):
        got.wait(5, 90.0)
    assert {seen.msg_id for seen in got.seen} == sent
    assert _visible(broker, topic) == 5


def test_a_transaction_takes_no_delay(broker: TestBroker) -> None:
    topic, local = broker.topic(), Local()
    with (
        producing(broker, local) as producer,
        pytest.raises(ConfigError, match="delay level 3"),
    ):
        producer.send_in_transaction(Message(topic, b"x", delay_time_level=3))
    assert not local.executed


def test_a_plain_producer_of_the_group_leaves_the_question_open(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    from rocketmq_fast import Producer

    topic, group, got = broker.topic(), broker.group(), Recorder()
    with producing(broker, Local(UNKNOW), group) as producer:
        _send(producer, topic)
    with Producer(group, namesrv_addr=broker.namesrv_addr), caplog.at_level(logging.WARNING):
        asked: Callable[[], bool] = lambda: "has no transactions" in caplog.text  # noqa: E731
        wait_for(asked, "a warning about the question", 60.0)
    with (
        producing(broker, Local(UNKNOW, COMMIT), group),
        consuming(broker.namesrv_addr, broker.group(), topic, got),
    ):
        got.wait(1, 60.0)


@pytest.mark.java
def test_the_java_producer_agrees(broker: TestBroker) -> None:
    require("java")
    topic, group, got = broker.topic(), broker.group(), Recorder()
    said = run_java(
        "Transact",
        {"namesrv": broker.namesrv_addr, "topic": topic, "group": group, "count": 3},
        240.0,
    )
    assert said["states"] == {"COMMIT_MESSAGE": 3, "ROLLBACK_MESSAGE": 3, "UNKNOW": 6}
    kinds = ("asked-commit", "asked-rollback")
    # A broker that had no answer within its interval asks again.
    assert set(said["checks"]) == {f"{kind}-{i}" for kind in kinds for i in range(3)}
    assert set(said["topics"].values()) == {topic}
    with consuming(broker.namesrv_addr, broker.group(), topic, got):
        got.wait(6)
    wanted = [f"{kind}-{i}".encode() for kind in ("commit", "asked-commit") for i in range(3)]
    assert sorted(got.bodies) == sorted(wanted)


@pytest.mark.java
def test_the_java_consumer_reads_what_was_committed(broker: TestBroker, tmp_path: Path) -> None:
    require("java")
    topic, dump = broker.topic(), tmp_path / "dump"
    local = Local(lambda message: COMMIT if message.body == b"yes" else ROLLBACK)
    with producing(broker, local) as producer:
        sent = {_send(producer, topic, b"yes", tags="A").msg_id for _ in range(5)}
        _send(producer, topic, b"no")
        said = consume(
            broker.namesrv_addr, topic, broker.group(), 5, output=str(dump), **{"from": "first"}
        )
    assert (said["messages"], said["duplicates"]) == (5, 0)
    lines = [json.loads(line) for line in dump.read_text().splitlines()]
    assert {line["msgId"] for line in lines} == sent
    assert {(line["tags"], line["sysFlag"], line["topic"]) for line in lines} == {("A", 8, topic)}


def test_decisions_that_do_not_fit_are_refused(broker: TestBroker) -> None:
    topic, local = broker.topic(), Local(UNKNOW)

    def end(**changed: str) -> int:
        fields = {
            "producerGroup": producer.group,
            "tranStateTableOffset": str(sent.queue_offset),
            "commitLogOffset": str(int(sent.offset_msg_id[-16:], 16)),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": sent.msg_id,
            **changed,
        }
        command = RemotingCommand(RequestCode.END_TRANSACTION, fields)
        return broker.wire.invoke(broker.broker_addr, command).code

    with producing(broker, local) as producer:
        sent = _send(producer, topic)
        assert end(producerGroup=broker.group()) == 1
        assert end(tranStateTableOffset=str(sent.queue_offset + 1)) == 1
        assert end(commitLogOffset=str(int(sent.offset_msg_id[-16:], 16) + (1 << 30))) == 1
        assert _visible(broker, topic) == 0
        assert end() == 0
        wait_for(lambda: _visible(broker, topic) == 1, "the message")


def test_a_namespace_does_not_show(broker: TestBroker) -> None:
    topic, group, got = broker.name("t"), broker.group(), Recorder()
    broker.cluster.create_topic(f"space%{topic}", queues=4)
    local = Local(UNKNOW, COMMIT)
    with producing(broker, local, group, namespace="space") as producer:
        _send(producer, topic, b"x" * 5000)
        asked = local.wait_checked()[0]
        assert (asked.topic, asked.body) == (topic, b"x" * 5000)
        assert producer.group == group
        assert asked.properties["PGROUP"] == f"space%{group}"
        with consuming(broker.namesrv_addr, broker.group(), topic, got, namespace="space"):
            assert got.wait(1)[0].topic == topic
