"""Orderly consumption: each queue's messages in offset order, never two calls at a time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from rocketmq_fast import ConsumeStatus, MessageExt, OrderlyContext, OrderlyStatus
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import bodies, consuming, dead_letters, make, owned, releasing
from tests.embedded_raw import lock_body
from tests.member import member
from tests.ordering import SUCCESS, SUSPEND, OrderLog, disorder, overlaps, written
from tests.proxy import Frame, ProxiedCluster
from tests.waiting import wait_for

DLQ, RETRY = "%DLQ%", "%RETRY%"
SOON: dict[str, Any] = {
    "suspend_current_queue_time_millis": 10,
    "persist_consumer_offset_interval": 50,
}


def steal(broker: TestBroker, owner: str, group: str, topic: str, queue: int = 0) -> None:
    """Give the owner's lock back behind its back, and lock the queue for somebody else."""

    def stolen() -> bool:
        for code, client in (
            (RequestCode.UNLOCK_BATCH_MQ, owner),
            (RequestCode.LOCK_BATCH_MQ, "thief"),
        ):
            body = lock_body(client, group, topic, broker.broker_name, queue)
            answer = broker.wire.invoke(broker.broker_addr, RemotingCommand(code, {}, body))
            assert answer.code == 0, answer.remark
        return b"queueId" in answer.body

    wait_for(stolen, "the thief to be faster than the owner's renewal")


def give_back(broker: TestBroker, group: str, topic: str, queue: int = 0) -> None:
    """The thief unlocks."""
    body = lock_body("thief", group, topic, broker.broker_name, queue)
    command = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, {}, body)
    assert broker.wire.invoke(broker.broker_addr, command).code == 0


# --------------------------------------------------------------------------- one member


def test_each_queue_comes_in_order_one_call_at_a_time(broker: TestBroker) -> None:
    topic, group = broker.topic(4), broker.group()
    broker.send(topic, bodies(400), queues=(0, 1, 2, 3))
    log = OrderLog()
    with consuming(
        broker.namesrv_addr,
        group,
        topic,
        log.listener(),
        orderly=True,
        consume_message_batch_max_size=7,
    ):
        wait_for(lambda: log.count() == 400, lambda: f"400 messages; {log.count()} came")
        broker.send(topic, bodies(40, "n"), queues=(0, 1, 2, 3))
        wait_for(lambda: log.count() == 440, lambda: f"440 messages; {log.count()} came")
    assert not disorder(log.calls, dict.fromkeys(range(4), 110))
    assert not overlaps(log.calls)
    assert max(len(call.offsets) for call in log.calls) == 7
    assert broker.committed(group, topic) == dict.fromkeys(range(4), 110)


def test_whatever_is_no_success_suspends_and_comes_again_first(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(21))
    failed: set[int] = set()

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        first = messages[0].queue_offset
        if first in failed:
            return SUCCESS
        failed.add(first)
        if first == 0:
            return SUSPEND
        if first == 3:
            raise ValueError("the listener's own trouble")
        if first == 6:
            return None
        if first == 9:
            return ConsumeStatus.CONSUME_SUCCESS  # of the other kind of listener
        if first == 12:
            return OrderlyStatus.ROLLBACK  # needs auto_commit=False
        if first == 15:
            raise SystemExit(3)
        context.suspend_current_queue_time_millis = 20
        return SUSPEND

    log = OrderLog()
    with consuming(
        broker.namesrv_addr,
        group,
        topic,
        log.listener(answer=answer),
        orderly=True,
        consume_message_batch_max_size=3,
        **SOON,
    ) as consumer:
        wait_for(lambda: log.count() == 21, lambda: f"21 messages; {log.calls}")
        assert consumer.stats()["failed"] == 21
    calls = log.of()
    assert not overlaps(calls)
    assert [call.offsets for call in calls[0::2]] == [call.offsets for call in calls[1::2]]
    assert all(set(call.times) == {0} for call in calls[0::2])
    assert all(set(call.times) == {1} for call in calls[1::2])
    assert log.successes() == list(range(21))
    assert broker.committed(group, topic) == {0: 21}
    for text in ("own trouble", "returned None", "CONSUME_SUCCESS", "ROLLBACK", "SystemExit"):
        assert text in caplog.text


def test_suspended_queue_holds_up_no_other(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(20), queues=(0, 1))
    well = threading.Event()

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        stuck = context.message_queue.queue_id == 0 and not well.is_set()
        return SUSPEND if stuck else SUCCESS

    log = OrderLog()
    with consuming(
        broker.namesrv_addr, group, topic, log.listener(answer=answer), orderly=True, **SOON
    ):
        wait_for(lambda: len(log.successes(1)) == 10, "the other queue")
        wait_for(lambda: len(log.of(0)) >= 3, "three tries of the suspended queue")
        assert {call.offsets for call in log.of(0)} == {(0,)}
        well.set()
        wait_for(lambda: log.count() == 20, "the suspended queue")
    assert not disorder(log.calls, {0: 10, 1: 10})


def test_without_auto_commit_only_commit_commits(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(10))

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        context.auto_commit = False
        return OrderlyStatus.COMMIT if messages[0].queue_offset == 4 else SUCCESS

    log = OrderLog()
    with consuming(
        broker.namesrv_addr, group, topic, log.listener(answer=answer), orderly=True, **SOON
    ):
        wait_for(lambda: log.count() == 10, "all messages")
    assert log.successes() == list(range(10))
    assert broker.committed(group, topic) == {0: 5}
    again = OrderLog()
    with consuming(broker.namesrv_addr, group, topic, again.listener(), orderly=True):
        wait_for(lambda: again.count() == 5, "what was not committed")
    assert again.successes() == list(range(5, 10))
    assert broker.committed(group, topic) == {0: 10}


def test_rollback_gives_everything_since_the_last_commit_again(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(8))
    rolled: list[int] = []

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        context.auto_commit = False
        offset = messages[0].queue_offset
        if offset == 5 and not rolled:
            rolled.append(offset)
            return OrderlyStatus.ROLLBACK
        if offset == 6 and len(rolled) == 1:
            rolled.append(offset)
            return SUSPEND  # only itself comes again
        return OrderlyStatus.COMMIT if offset in (1, 7) else SUCCESS

    log = OrderLog()
    with consuming(
        broker.namesrv_addr, group, topic, log.listener(answer=answer), orderly=True, **SOON
    ):
        wait_for(lambda: log.successes()[-1:] == [7], "all messages")
    came = [call.offsets[0] for call in log.of()]
    assert came == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 6, 7]
    assert broker.committed(group, topic) == {0: 8}


# -------------------------------------------------------------------------- dead letters


def test_message_that_never_succeeds_is_dead_and_the_queue_goes_on(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(5), tags="TagA", properties={"mine": "x"})

    def answer(messages: list[MessageExt], _: OrderlyContext) -> object:
        return SUSPEND if messages[0].body == b"m2" else SUCCESS

    log = OrderLog()
    with consuming(
        broker.namesrv_addr,
        group,
        topic,
        log.listener(answer=answer),
        orderly=True,
        max_reconsume_times=2,
        **SOON,
    ):
        wait_for(lambda: log.count() == 4, "the others")
        dead = dead_letters(broker, group, 1)
    assert [call.offsets[0] for call in log.of()] == [0, 1, 2, 2, 2, 3, 4]
    assert [call.times[0] for call in log.of() if call.offsets == (2,)] == [0, 1, 2]
    assert broker.committed(group, topic) == {0: 5}
    assert dead.bodies == [b"m2"]
    assert broker.max_offset(DLQ + group, 0) == 1
    letter = dead.seen[0]
    assert letter.properties["RETRY_TOPIC"] == topic
    assert (letter.tags, letter.properties["mine"]) == ("TagA", "x")
    # 4.9.4 would have kept it back by a level; 5.3.3 writes -1 by itself.
    assert int(letter.properties.get("DELAY", "0")) <= 0


def test_of_a_batch_only_the_exceeded_message_is_dead(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, [b"old"])
    cached: list[int] = []

    def answer(messages: list[MessageExt], _: OrderlyContext) -> object:
        if len(log.calls) == 0:
            # One failure of its own, then it shares its batch with a fresh message.
            broker.send(topic, [b"new"])
            wait_for(lambda: consumer.stats()["cached_messages"] == 2, "the second message")
            return SUSPEND
        cached.append(len(messages))
        return SUSPEND if len(log.calls) == 1 else SUCCESS

    log = OrderLog()
    with consuming(
        broker.namesrv_addr,
        group,
        topic,
        log.listener(answer=answer),
        orderly=True,
        max_reconsume_times=1,
        consume_message_batch_max_size=2,
        **SOON,
    ) as consumer:
        wait_for(lambda: log.count() == 1, lambda: f"the fresh message; {log.calls}")
        dead = dead_letters(broker, group, 1)
    assert [(call.offsets, call.times) for call in log.of()] == [
        ((0,), (0,)),
        ((0, 1), (1, 0)),
        ((1,), (1,)),
    ]
    assert dead.bodies == [b"old"]
    assert broker.max_offset(DLQ + group, 0) == 1
    assert broker.committed(group, topic) == {0: 2}


# --------------------------------------------------------------------------- rebalance


def test_members_join_and_leave_without_gap_overlap_or_duplicate(broker: TestBroker) -> None:
    topic, group = broker.topic(4), broker.group()
    log = OrderLog()
    sent = 0

    def more(count: int = 80) -> bool:
        nonlocal sent
        broker.send(topic, bodies(count, f"{sent}_"), queues=(0, 1, 2, 3))
        sent += count
        return False

    more()
    options: dict[str, Any] = {"orderly": True, "consume_message_batch_max_size": 3}
    with consuming(broker.namesrv_addr, group, topic, log.listener("A"), **options) as first:
        more()
        with consuming(broker.namesrv_addr, group, topic, log.listener("B"), **options) as second:
            more()
            wait_for(lambda: (len(owned(first, topic)), len(owned(second, topic))) == (2, 2),
                     "two queues each")  # fmt: skip
            with consuming(broker.namesrv_addr, group, topic, log.listener("C"), **options):
                more()
                wait_for(lambda: "C" in log.members() or more(4), "a message for the third")
            more()
        wait_for(lambda: len(owned(first, topic)) == 4, "all queues again")
        more()
        wait_for(lambda: log.count() == sent, lambda: f"{sent} messages; {log.count()} came")
    assert log.members() == {"A", "B", "C"}
    assert not overlaps(log.calls)
    assert not disorder(log.calls, dict.fromkeys(range(4), sent // 4))
    assert broker.committed(group, topic) == dict.fromkeys(range(4), sent // 4)


def test_queue_changes_hands_only_after_the_running_call(
    broker: TestBroker, proxied: ProxiedCluster
) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(20), queues=(0, 1))
    go, refused = threading.Event(), []

    def on_request(frame: Frame) -> None:
        if frame.code == RequestCode.LOCK_BATCH_MQ and topic.encode() in frame.command.body:
            refused.append(frame)

    entered: set[int] = set()

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        entered.add(context.message_queue.queue_id)
        go.wait(60)
        return SUCCESS

    log = OrderLog()
    second = make(proxied.namesrv_addr, group, topic, log.listener("B"), orderly=True)
    with (
        consuming(
            broker.namesrv_addr, group, topic, log.listener("A", answer), orderly=True
        ) as first,
        releasing(go),
    ):
        wait_for(lambda: entered == {0, 1}, "a call for each queue")
        proxied.broker.on_request = on_request
        second.start()
        wait_for(lambda: len(refused) >= 2, "two tries of the new member for the lock")
        assert not owned(second, topic)
        assert not log.calls
        go.set()
        wait_for(lambda: len(owned(second, topic)) == 1, "the queue's new owner")
        wait_for(lambda: len(owned(first, topic)) == 1, "the queue's old owner")
        wait_for(lambda: log.count() == 20, "all messages")
        second.shutdown()
    assert not overlaps(log.calls)
    assert not disorder(log.calls, {0: 10, 1: 10})


def test_queue_that_is_gained_is_consumed_without_waiting_for_a_renewal(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_fast.consumer.running.RENEW_SECONDS", 3600.0)
    topic, group = broker.topic(2), broker.group()
    log = OrderLog()
    with (
        consuming(broker.namesrv_addr, group, topic, log.listener("A"), orderly=True) as first,
        consuming(broker.namesrv_addr, group, topic, log.listener("B"), orderly=True) as second,
    ):
        wait_for(lambda: owned(first, topic) ^ owned(second, topic) == {0, 1}, "one queue each")
        broker.send(topic, bodies(2), queues=(0, 1))
        wait_for(lambda: log.members() == {"A", "B"}, "a message at each member")


def test_members_of_several_processes_keep_the_order(
    embedded_broker: TestBroker, tmp_path: Path
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(4), broker.group()
    sent = 0

    def more() -> bool:
        nonlocal sent
        broker.send(topic, bodies(40, f"{sent}_"), queues=(0, 1, 2, 3))
        sent += 40
        return False

    options: dict[str, Any] = {"orderly": True, "pause": 0.002}
    with (
        member(tmp_path, "A", broker.namesrv_addr, group, topic, **options) as first,
        member(tmp_path, "B", broker.namesrv_addr, group, topic, **options) as second,
    ):
        first.wait_ready()
        more()
        second.wait_ready()
        more()
        wait_for(lambda: second.lines("E") or more(), "the second member's first message")
        assert first.terminate() == 0, first.said()
        more()
        wait_for(
            lambda: sum(len(c.offsets) for c in written(tmp_path, "AB")) >= sent,
            lambda: f"{sent} messages; {second.said()}",
        )
        assert second.terminate() == 0, second.said()
    calls = written(tmp_path, "AB")
    assert all(call.good for call in calls)
    assert not overlaps(calls)
    assert not disorder(calls, dict.fromkeys(range(4), sent // 4))
    assert broker.committed(group, topic) == dict.fromkeys(range(4), sent // 4)


def test_killed_member_is_replaced_and_the_order_is_kept(
    short_locks: TestBroker, tmp_path: Path
) -> None:
    broker = short_locks
    topic, group = broker.topic(4), broker.group()
    broker.send(topic, bodies(2000), queues=(0, 1, 2, 3))
    options: dict[str, Any] = {"orderly": True, "persist_consumer_offset_interval": 200}
    where = (broker.namesrv_addr, group, topic)
    with (
        # So slow that it is killed long before it is through: all its queues have work left.
        member(tmp_path, "A", *where, pause=0.05, **options) as first,
        member(tmp_path, "B", *where, pause=0.001, **options) as second,
    ):
        first.wait_ready()
        second.wait_ready()
        wait_for(lambda: len(first.lines("E")) >= 20, first.said)
        wait_for(lambda: len(second.lines("E")) >= 20, second.said)
        first.kill()
        ends = dict.fromkeys(range(4), 500)

        def reached() -> dict[int, int]:
            calls = written(tmp_path, "B")
            return {q: max((c.offsets[-1] for c in calls if c.queue == q), default=-1) + 1
                    for q in range(4)}  # fmt: skip

        wait_for(lambda: reached() == ends, lambda: f"{reached()}; {second.said()}")
        assert second.terminate() == 0, second.said()
    calls = written(tmp_path, "AB")
    assert not overlaps(calls)
    assert not disorder(calls, ends, again=True)
    assert broker.committed(group, topic) == ends


# --------------------------------------------------------------------------- lost locks


def test_nothing_is_consumed_or_committed_while_somebody_else_has_the_lock(
    broker: TestBroker, proxied: ProxiedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_fast.consumer.running.RENEW_SECONDS", 0.1)
    topic, group = broker.topic(1), broker.group()
    entered, go, tries = threading.Event(), threading.Event(), []

    def on_request(frame: Frame) -> None:
        if frame.code == RequestCode.LOCK_BATCH_MQ and topic.encode() in frame.command.body:
            tries.append(frame)

    def answer(messages: list[MessageExt], _: OrderlyContext) -> object:
        if messages[0].queue_offset == 5:
            entered.set()
            go.wait(60)
        return SUCCESS

    proxied.broker.on_request = on_request
    log = OrderLog()
    with (
        consuming(
            proxied.namesrv_addr,
            group,
            topic,
            log.listener(answer=answer),
            orderly=True,
            persist_consumer_offset_interval=50,
        ) as consumer,
        releasing(go),
    ):
        broker.send(topic, bodies(10))
        assert entered.wait(60.0)
        wait_for(lambda: broker.committed(group, topic) == {0: 5}, "the commit of the first five")
        steal(broker, consumer.stats()["client_id"], group, topic)
        wait_for(lambda: not owned(consumer, topic), "the loss to be seen")
        go.set()
        wait_for(lambda: len(log.calls) == 6, "the end of the running call")
        known = len(tries)
        wait_for(lambda: len(tries) >= known + 2, "two more tries for the lock")
        # The call's result is void, and nothing new began.
        assert len(log.calls) == 6
        assert broker.committed(group, topic) == {0: 5}
        give_back(broker, group, topic)
        wait_for(lambda: log.count() == 10, lambda: f"the rest; {log.calls}")
    assert [call.offsets[0] for call in log.of()] == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    assert broker.committed(group, topic) == {0: 10}


def test_lock_is_confirmed_again_after_a_lost_connection(
    broker: TestBroker, proxied: ProxiedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What restarted may have given the lock away: not at the next renewal, but at once."""
    monkeypatch.setattr("rocketmq_fast.consumer.running.RENEW_SECONDS", 3600.0)
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(5))
    log = OrderLog()
    with consuming(
        proxied.namesrv_addr, group, topic, log.listener(), orderly=True, **SOON
    ) as consumer:
        wait_for(lambda: broker.committed(group, topic) == {0: 5}, "the first messages")
        steal(broker, consumer.stats()["client_id"], group, topic)
        proxied.broker.cut()
        wait_for(lambda: not owned(consumer, topic), "the loss to be seen")
        broker.send(topic, bodies(5, "n"))
        give_back(broker, group, topic)
        wait_for(lambda: log.count() == 10, lambda: f"the rest; {log.calls}")
    assert not disorder(log.calls, {0: 10})
    assert broker.committed(group, topic) == {0: 10}


def test_connection_that_ends_while_no_pull_is_out_is_noticed(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member whose queue is full asks for nothing; the other one has the retry topic."""
    monkeypatch.setattr("rocketmq_fast.consumer.running.RENEW_SECONDS", 3600.0)
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(2), broker.group()
    entered, go = threading.Event(), threading.Event()

    def hold(messages: list[MessageExt], context: OrderlyContext) -> object:
        entered.set()
        go.wait(60)
        return SUCCESS

    log = OrderLog()
    options: dict[str, Any] = {"orderly": True, "pull_threshold_for_queue": 1, **SOON}
    where = (group, topic)
    with (
        consuming(
            broker.namesrv_addr, *where, log.listener("A"), instance_name="A", **options
        ) as first,
        consuming(
            proxied.namesrv_addr, *where, log.listener("B", hold), instance_name="B", **options
        ) as second,
        releasing(go),
    ):
        wait_for(lambda: owned(first, topic) ^ owned(second, topic) == {0, 1}, "one queue each")
        (queue,) = owned(second, topic)
        assert not any(found.topic.startswith(RETRY) for found in second.assigned())
        broker.send(topic, bodies(5), queues=[queue])
        assert entered.wait(60)
        wait_for(lambda: second.stats()["flow_controlled"], "a full queue")
        steal(broker, second.stats()["client_id"], group, topic, queue)
        proxied.broker.cut()
        wait_for(lambda: not owned(second, topic), "the loss to be seen")
        go.set()
        give_back(broker, group, topic, queue)
        wait_for(lambda: log.count() == 5, lambda: f"the rest; {log.calls}")


def test_member_that_is_cut_off_in_a_call_keeps_its_queue(
    broker: TestBroker, proxied: ProxiedCluster
) -> None:
    """Its broker tells the others that it left, but the lock is its own: nobody else is called."""
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(5))
    entered, go, tries = threading.Event(), threading.Event(), list[Frame]()

    def hold(messages: list[MessageExt], context: OrderlyContext) -> object:
        entered.set()
        go.wait(60)
        return SUCCESS

    def on_request(frame: Frame) -> None:
        if frame.code == RequestCode.LOCK_BATCH_MQ and topic.encode() in frame.command.body:
            tries.append(frame)

    log = OrderLog()
    options: dict[str, Any] = {"orderly": True, **SOON}
    with (
        broker.proxied() as other,
        consuming(
            proxied.namesrv_addr, group, topic, log.listener("A", hold), instance_name="A",
            **options,
        ),
        releasing(go),
    ):  # fmt: skip
        assert entered.wait(60)
        other.broker.on_request = on_request
        second = make(
            other.namesrv_addr, group, topic, log.listener("B"), instance_name="B", **options
        )
        second.start()
        try:
            proxied.broker.refuse()
            wait_for(lambda: len(tries) >= 2, "two tries of the other member for the lock")
            assert not log.calls
            proxied.broker.listen()
            go.set()
            wait_for(lambda: log.count() == 5, lambda: f"all messages; {log.calls}")
        finally:
            second.shutdown()
    assert not overlaps(log.calls)
    assert not disorder(log.calls, {0: 5}, again=True)


def test_lock_that_is_not_confirmed_runs_out(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that answers no renewal: consuming stops before the broker may give the lock on."""
    monkeypatch.setattr("rocketmq_fast.consumer.running.RENEW_SECONDS", 0.1)
    monkeypatch.setattr("rocketmq_fast.consumer.assigned.LOCK_LIFE_SECONDS", 0.5)
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    deaf = threading.Event()

    def on_request(frame: Frame) -> list[bytes] | None:
        return [] if deaf.is_set() and frame.code == RequestCode.LOCK_BATCH_MQ else None

    embedded_proxied.broker.on_request = on_request
    log = OrderLog()
    with consuming(
        embedded_proxied.namesrv_addr, group, topic, log.listener(), orderly=True,
        mq_client_api_timeout=300,
    ) as consumer:  # fmt: skip
        broker.send(topic, bodies(5))
        wait_for(lambda: log.count() == 5, "the first messages")
        running = consumer._running
        assert running is not None
        (queue,) = [q for q in running.assignment.queues() if q.message_queue.topic == topic]
        deaf.set()
        wait_for(lambda: not queue.locked, "the lock to run out")
        broker.send(topic, bodies(5, "n"))
        wait_for(lambda: queue.process_queue.count > 0 or queue.last_pull, "the messages")
        assert log.count() == 5
        deaf.clear()
        wait_for(lambda: log.count() == 10, "the rest")
    assert not disorder(log.calls, {0: 10})


def test_topic_that_is_given_up_without_the_lock_leaves_the_progress_alone(
    embedded_broker: TestBroker,
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(5))
    log = OrderLog()
    with consuming(
        broker.namesrv_addr, group, topic, log.listener(), orderly=True,
        persist_consumer_offset_interval=60_000,
    ) as consumer:  # fmt: skip
        running = consumer._running
        assert running is not None
        (queue,) = [q for q in running.assignment.queues() if q.message_queue.topic == topic]
        wait_for(lambda: running.store.in_memory(queue.message_queue) == 5, "the progress")
        queue.distrust_lock()
        broker.commit(group, topic, 0, 7)  # as another member, which got the lock
        consumer.unsubscribe(topic)
        wait_for(lambda: not owned(consumer, topic), "the end of the topic")
        assert broker.committed(group, topic) == {0: 7}


def test_broker_restart_keeps_the_order(broker: TestBroker) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(100), queues=(0, 1))
    log = OrderLog()
    options: dict[str, Any] = {"orderly": True, "persist_consumer_offset_interval": 100}
    with (
        consuming(broker.namesrv_addr, group, topic, log.listener("A"), **options) as first,
        consuming(broker.namesrv_addr, group, topic, log.listener("B"), **options) as second,
    ):
        wait_for(lambda: log.count() == 100, "the first messages")
        wait_for(lambda: owned(first, topic) ^ owned(second, topic) == {0, 1}, "one queue each")
        broker.kill()
        broker.start()
        broker.send(topic, bodies(100, "n"), queues=(0, 1))
        wait_for(lambda: log.count() == 200, lambda: f"200 messages; {log.count()} came", 60)
        # A member that lost its queue while it consumed commits nothing; the new owner does.
        wait_for(lambda: broker.committed(group, topic) == {0: 100, 1: 100}, "the commits", 60)
    assert not overlaps(log.calls)
    assert not disorder(log.calls, {0: 100, 1: 100}, again=True)


def test_queue_that_never_runs_empty_lets_go_of_its_worker(
    embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_fast.consumer.orderly.CONTINUOUS_SECONDS", 0.001)
    broker = embedded_broker
    topic, group = broker.topic(8), broker.group()
    broker.send(topic, bodies(800), queues=range(8))
    log = OrderLog()
    with consuming(
        broker.namesrv_addr,
        group,
        topic,
        log.listener(),
        orderly=True,
        consume_thread_min=1,
        consume_thread_max=2,
    ):
        wait_for(lambda: log.count() == 800, "all messages")
    assert not overlaps(log.calls)
    assert not disorder(log.calls, dict.fromkeys(range(8), 100))
