"""The committed offset: never past what is unfinished, never made up, repaired if need be."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from rocketmq_fast import Admin, ConsumeStatus, MessageExt, encode_frame
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.consumer import pull
from rocketmq_fast.errors import BrokerSystemError
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from tests.brokers import TestBroker
from tests.consuming import (
    SUCCESS,
    Recorder,
    assert_once,
    bodies,
    consuming,
    owned,
    releasing,
)
from tests.history import History
from tests.proxy import Frame, ProxiedCluster, answer_with
from tests.waiting import wait_for


def test_slow_message_holds_the_commit(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic, group = broker.topic(1), broker.group()
    release = threading.Event()
    history = History()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].body == b"m7":
            assert release.wait(60.0)
        return SUCCESS

    sent = bodies(50)
    history.note_sent(broker.send(topic, sent), sent)
    history.watch(proxied, group, broker.broker_name)
    recorder = Recorder(history.listener(listen))
    with (
        consuming(
            proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=50
        ),
        releasing(release),
    ):
        recorder.wait(50)
        wait_for(lambda: broker.committed(group, topic) == {0: 7}, "the commit of 7")
        more = bodies(10, "more")
        history.note_sent(broker.send(topic, more), more)
        recorder.wait(60)
        assert broker.committed(group, topic) == {0: 7}
        release.set()
        wait_for(lambda: broker.committed(group, topic) == {0: 60}, "the commit of 60")
    history.check()
    assert_once(recorder, sent + more)


def test_commit_that_another_member_set_back_is_told_again(
    broker: TestBroker, proxied: ProxiedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that was cut off for a while tells what it knew of a queue that it has lost."""
    monkeypatch.setattr("rocketmq_fast.consumer.offsets.CONFIRMED_SECONDS", 0.5)
    # No other pull follows, which could carry the offset.
    monkeypatch.setattr(pull, "SUSPEND_MILLIS", 600_000)
    monkeypatch.setattr(pull, "TIMEOUT_SECONDS", 600.0)
    topic, group = broker.topic(1), broker.group()
    options: dict[str, Any] = {
        "persist_consumer_offset_interval": 100,
        "heartbeat_broker_interval": 500,
        "pull_time_delay_millis_when_exception": 50,
    }
    late: list[int] = []

    def on_request(frame: Frame) -> list[bytes] | None:
        """Its pulls get lost: with a message it would go on where the other one is."""
        fields = frame.command.ext_fields
        if frame.code == RequestCode.UPDATE_CONSUMER_OFFSET and fields["topic"] == topic:
            late.append(int(fields["commitOffset"]))
        return [] if frame.code == RequestCode.PULL_MESSAGE else None

    first, second = Recorder(), Recorder()
    broker.send(topic, bodies(10))
    # Of two members the one with the smaller name has the queue.
    with consuming(proxied.namesrv_addr, group, topic, first, instance_name="B", **options) as cut:
        first.wait(10)
        wait_for(lambda: broker.committed(group, topic) == {0: 10}, "the first commit")
        proxied.broker.refuse()
        with consuming(broker.namesrv_addr, group, topic, second, instance_name="A", **options):
            broker.send(topic, bodies(10, "more"))
            second.wait(10)
            wait_for(lambda: broker.committed(group, topic) == {0: 20}, "the second commit")
            proxied.broker.on_request = on_request
            proxied.broker.listen()
            wait_for(lambda: 10 in late, "the late commit")
            wait_for(lambda: not owned(cut, topic), "the end of the queue")
            wait_for(lambda: broker.committed(group, topic) == {0: 20}, "the commit once more")
    assert_once(first, bodies(10))


def test_a_running_group_with_an_empty_queue_can_be_reset(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "SUSPEND_MILLIS", 1000)
    topic, group = broker.topic(3), broker.group()
    broker.send(topic, bodies(5), queues=[0])
    recorder = Recorder()
    with (
        consuming(
            broker.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=100
        ),
        Admin(namesrv_addr=broker.namesrv_addr) as admin,
    ):
        recorder.wait(5)

        def reset() -> bool:
            try:
                admin.reset_offsets(group, topic, offset="earliest")
            except BrokerSystemError:  # not every queue has an offset yet
                return False
            return True

        # Once the first long poll of the empty queues has ended.
        wait_for(reset, "the offsets of all queues", 60)
        broker.send(topic, [b"wakes it"], queues=[0])
        recorder.wait_deliveries(11)


def test_nothing_is_committed_that_did_not_change(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(2), broker.group()
    updates: list[tuple[str, str]] = []

    def on_request(frame: Frame) -> None:
        fields = frame.command.ext_fields
        if frame.code == RequestCode.UPDATE_CONSUMER_OFFSET and fields["topic"] == topic:
            updates.append((fields["queueId"], fields["commitOffset"]))

    proxied.broker.on_request = on_request
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=50
    ):
        broker.send(topic, bodies(10))
        wait_for(lambda: broker.committed(group, topic).get(0) == 10, "the commit of 10")
        counts = []
        for number in range(1, 5):
            broker.send(topic, [f"other{number}".encode()], queues=[1])
            wait_for(
                lambda number=number: broker.committed(group, topic).get(1) == number, "a commit"
            )
            counts.append(updates.count(("0", "10")))
        # Once confirmed, the first queue's offset is not sent again with the other's.
        assert counts[1] == counts[-1], counts


def test_offset_beyond_the_end_is_repaired(broker: TestBroker) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(10, "old"))
    broker.commit(group, topic, 0, 1000)
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder) as consumer:
        wait_for(
            lambda: (
                consumer.stats()["queues"].get(f"{broker.queue(topic)}", {}).get("next_offset")
                in range(11)
            ),
            "the queue to go on at an offset that exists",
        )
        broker.send(topic, bodies(10, "new"))
        wait_for(
            lambda: set(recorder.bodies) >= set(bodies(10, "new")),
            lambda: f"the new messages; {recorder.bodies} came",
        )
        assert owned(consumer, topic) == {0, 1}
    assert broker.committed(group, topic)[0] == 20


def moved(frame: Frame, offset: int) -> bytes:
    """The answer to a pull whose offset the broker does not have."""
    fields = {
        "nextBeginOffset": str(offset),
        "minOffset": str(offset),
        "maxOffset": str(offset + 100),
        "suggestWhichBrokerId": "0",
    }
    return encode_frame(
        RemotingCommand(ResponseCode.PULL_OFFSET_MOVED, fields, opaque=frame.command.opaque, flag=1)
    )


def test_offset_before_the_beginning_is_repaired(
    broker: TestBroker, proxied: ProxiedCluster
) -> None:
    topic, group = broker.topic(1), broker.group()

    def on_answer(frame: Frame) -> bytes | None:
        request = frame.request
        if request is None or frame.code != RequestCode.PULL_MESSAGE:
            return None
        fields = request.ext_fields
        if fields["topic"] == topic and int(fields["queueOffset"]) < 5:
            return moved(frame, 5)
        return None

    proxied.broker.on_answer = on_answer
    broker.send(topic, bodies(10))
    recorder = Recorder()
    with consuming(proxied.namesrv_addr, group, topic, recorder):
        recorder.wait(5)
        broker.send(topic, [b"new"])
        recorder.wait(6)
    assert_once(recorder, [*bodies(10)[5:], b"new"])
    assert broker.committed(group, topic) == {0: 11}


def test_messages_at_hand_survive_a_repair(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    """What was pulled and not consumed yet is not skipped when the broker deleted what follows."""
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(1), broker.group()
    release = threading.Event()
    jumped = threading.Event()
    history = History()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        assert release.wait(60.0)
        return SUCCESS

    def on_answer(frame: Frame) -> bytes | None:
        request = frame.request
        if request is None or frame.code != RequestCode.PULL_MESSAGE:
            return None
        fields = request.ext_fields
        if fields["topic"] == topic and 5 <= int(fields["queueOffset"]) < 8:
            jumped.set()
            return moved(frame, 8)
        return None

    sent = bodies(5)
    history.note_sent(broker.send(topic, sent), sent)
    broker.send(topic, bodies(3, "gone"))
    history.watch(proxied, group, broker.broker_name)
    proxied.broker.on_answer = on_answer
    recorder = Recorder(history.listener(listen))
    with consuming(
        proxied.namesrv_addr,
        group,
        topic,
        recorder,
        consume_thread_min=1,
        consume_thread_max=1,
        pull_batch_size=5,
        persist_consumer_offset_interval=50,
    ) as consumer:
        assert jumped.wait(30.0)
        wait_for(
            lambda: consumer.stats()["queues"][f"{broker.queue(topic)}"]["next_offset"] == 8,
            "the pull to go on at 8",
        )
        release.set()
        more = bodies(2, "more")
        history.note_sent(broker.send(topic, more), more)
        wait_for(lambda: broker.committed(group, topic) == {0: 10}, "the commit of 10")
    history.check()
    assert_once(recorder, sent + more)


@pytest.mark.parametrize("fault", ["code 1", "code 2", "code 16", "no field", "negative", "cut"])
def test_offset_that_cannot_be_read_is_never_committed(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster, fault: str
) -> None:
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(10))
    broker.commit(group, topic, 0, 4)
    asked = threading.Event()
    failing = True
    commits: list[int] = []

    def on_request(frame: Frame) -> None:
        fields = frame.command.ext_fields
        if fields.get("topic") != topic:
            return
        if frame.code == RequestCode.UPDATE_CONSUMER_OFFSET or (
            frame.code == RequestCode.PULL_MESSAGE and int(fields["sysFlag"]) & 1
        ):
            commits.append(int(fields["commitOffset"]))

    def on_answer(frame: Frame) -> bytes | list[bytes] | None:
        if not failing or frame.code != RequestCode.QUERY_CONSUMER_OFFSET:
            return None
        asked.set()
        if fault == "cut":
            proxied.broker.cut()
            return []
        if fault.startswith("code"):
            return answer_with(frame, int(fault.split()[1]))
        frame.command.ext_fields = {"offset": "-7"} if fault == "negative" else {}
        return encode_frame(frame.command)

    proxied.broker.on_request = on_request
    proxied.broker.on_answer = on_answer
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr,
        group,
        topic,
        recorder,
        assigned=False,
        persist_consumer_offset_interval=20,
    ) as consumer:
        assert asked.wait(60.0)
        assert not consumer.wait_assigned(0.3)
        failing = False
        recorder.wait(6)
    assert_once(recorder, bodies(10)[4:])
    # 4 is what the broker said in the end; nothing below it was ever sent.
    assert all(offset >= 4 for offset in commits), commits
    assert broker.committed(group, topic) == {0: 10}


def test_commits_of_a_busy_consumer_are_right(broker: TestBroker, proxied: ProxiedCluster) -> None:
    """Listeners of different speed on several threads; every commit is checked against them."""
    topic, group = broker.topic(3), broker.group()
    history = History()
    history.watch(proxied, group, broker.broker_name)
    sent = bodies(600)

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].queue_offset % 17 == 0:
            time.sleep(0.02)
        return SUCCESS

    recorder = Recorder(history.listener(listen))
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=5
    ):
        history.note_sent(broker.send(topic, sent, queues=range(3)), sent)
        recorder.wait(600)
    history.check()
    assert broker.committed(group, topic) == {0: 200, 1: 200, 2: 200}
