"""Bugs planted into orderly consumption are caught by the checker of histories.

As test_planted_concurrent.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_fast import MessageExt, MessageQueue, OrderlyContext, OrderlyStatus
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.broker_calls import BrokerCalls
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.order import Order
from rocketmq_fast.consumer.orderly import ConsumeOrderlyService
from rocketmq_fast.consumer.rebalance import Assignment
from rocketmq_fast.consumer.returns import Returns
from rocketmq_fast.protocol.bodies import LockBatch
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import bodies, consuming, make, owned, releasing
from tests.contract.test_orderly import give_back, steal
from tests.history import History
from tests.ordering import SUCCESS, SUSPEND, Call
from tests.planted import Plant, seen_by, stage, verdict
from tests.waiting import wait_for
from tests.witness import Witness, orderly_listener

SOON: dict[str, Any] = {
    "persist_consumer_offset_interval": 1,
    "suspend_current_queue_time_millis": 10,
    "orderly": True,
}


# ---------------------------------------------------------------------------- one member


def skip_what_failed(patch: pytest.MonkeyPatch) -> None:
    def wrong(
        self: ConsumeOrderlyService, queue: AssignedQueue, taken: Any, context: OrderlyContext
    ) -> None:
        queue.on_removed(queue.process_queue.commit())

    patch.setattr(ConsumeOrderlyService, "_suspend", wrong)


def try_again_behind_others(patch: pytest.MonkeyPatch) -> None:
    """What failed comes again in a while, and the queue goes on meanwhile."""

    def wrong(
        self: ConsumeOrderlyService, queue: AssignedQueue, taken: Any, context: OrderlyContext
    ) -> None:
        offsets = [message.queue_offset for message in taken]
        self._loop.call_later(0.05, queue.process_queue.make_consume_again, offsets)

    patch.setattr(ConsumeOrderlyService, "_suspend", wrong)


def commit_past_what_is_suspended(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeOrderlyService._suspend

    def wrong(
        self: ConsumeOrderlyService, queue: AssignedQueue, taken: Any, context: OrderlyContext
    ) -> float | None:
        wait = right(self, queue, taken, context)
        queue.on_removed(taken[-1].queue_offset + 1)
        return wait

    patch.setattr(ConsumeOrderlyService, "_suspend", wrong)


def commit_what_came(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeOrderlyService.submit

    def wrong(
        self: ConsumeOrderlyService, queue: AssignedQueue, batch: Any, dispatch: bool
    ) -> None:
        queue.on_removed(int(batch.queue_offsets[-1]) + 1)
        right(self, queue, batch, dispatch)

    patch.setattr(ConsumeOrderlyService, "submit", wrong)


def take_an_exception_for_success(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeOrderlyService._settle

    def wrong(
        self: ConsumeOrderlyService, queue: Any, taken: Any, context: OrderlyContext,
        status: object, error: BaseException | None, *rest: Any,
    ) -> float | None:  # fmt: skip
        if error is None:
            return right(self, queue, taken, context, status, error, *rest)
        queue.on_removed(queue.process_queue.commit())
        return None

    patch.setattr(ConsumeOrderlyService, "_settle", wrong)


class Forgetful(dict[MessageQueue, AssignedQueue]):
    """Knows of no queue that a worker is on it."""

    def get(self, *_: object) -> None:  # type: ignore[override]
        return None

    def __delitem__(self, queue: MessageQueue) -> None:
        self.pop(queue, None)


def let_two_workers_in(patch: pytest.MonkeyPatch) -> None:
    def wrong(
        self: ConsumeOrderlyService, queue: AssignedQueue, batch: Any, dispatch: bool
    ) -> None:
        self._busy = Forgetful()
        self._line_up(queue)
        self._line_up(queue)

    patch.setattr(ConsumeOrderlyService, "submit", wrong)


ONE: dict[str, tuple[Plant | None, str]] = {
    "none": (None, ""),
    "skipped": (skip_what_failed, "was due"),
    "behind": (try_again_behind_others, "was due"),
    "suspended": (commit_past_what_is_suspended, "passed unfinished"),
    "came": (commit_what_came, "passed unfinished"),
    "exception": (take_an_exception_for_success, "passed unfinished"),
    "two workers": (let_two_workers_in, "two calls at a time"),
}


@pytest.mark.parametrize("name", ONE)
def test_one_member(
    name: str, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty messages; one is suspended at first, for another the listener fails."""
    plant, text = ONE[name]
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 30)
    refused: set[bytes] = set()

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        body = messages[0].body
        if body == b"m20" and name == "two workers":
            count = len(history.deliveries)
            wait_for(lambda: len(history.deliveries) > count, "the call beside this one")
        if body == b"m4" and (name == "came" or (name == "suspended" and refused)):
            # Held until the wrong commit went out.
            wait_for(lambda: history.commits and history.commits[-1][2] > 4, "a wrong commit")
        if body in (b"m4", b"m10", b"m15") and body not in refused:
            refused.add(body)
            if body == b"m15":
                raise ValueError("the listener fails on purpose")
            return SUSPEND
        return SUCCESS

    def end() -> bool:
        return broker.committed(group, topic).get(0, 0) >= 30

    with consuming(
        broker.namesrv_addr, group, topic, orderly_listener(history.note, "A", answer),
        rpc_hooks=seen_by(broker, history), consume_thread_min=2, consume_thread_max=2, **SOON,
    ):  # fmt: skip
        wait_for(end, "the commit of the end")
    verdict(plant, history, text)


# --------------------------------------------------------------------- commit and rollback


def _instead(
    patch: pytest.MonkeyPatch, wanted: OrderlyStatus, do: Callable[[AssignedQueue], None]
) -> None:
    right = ConsumeOrderlyService._settle

    def wrong(
        self: ConsumeOrderlyService, queue: Any, taken: Any, context: OrderlyContext,
        status: object, *rest: Any,
    ) -> float | None:  # fmt: skip
        if status is not wanted:
            return right(self, queue, taken, context, status, *rest)
        do(queue)
        return None

    patch.setattr(ConsumeOrderlyService, "_settle", wrong)


def forget_what_is_rolled_back(patch: pytest.MonkeyPatch) -> None:
    _instead(patch, OrderlyStatus.ROLLBACK, lambda queue: queue.process_queue.commit() and None)


def commit_what_is_rolled_back(patch: pytest.MonkeyPatch) -> None:
    _instead(
        patch,
        OrderlyStatus.ROLLBACK,
        lambda queue: queue.on_removed(queue.process_queue.commit()),
    )


def commit_every_success(patch: pytest.MonkeyPatch) -> None:
    _instead(
        patch,
        OrderlyStatus.SUCCESS,
        lambda queue: queue.on_removed(queue.process_queue.commit()),
    )


@pytest.mark.parametrize(
    "plant",
    [None, forget_what_is_rolled_back, commit_what_is_rolled_back, commit_every_success],
)
def test_commit_and_rollback(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener commits every fifth time, and rolls back once before."""
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 10)
    rolled_back: list[int] = []

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        context.auto_commit = False
        offset = messages[0].queue_offset
        if offset == 1 and plant is commit_every_success:
            wait_for(lambda: history.commits, "a wrong commit")
        if offset == 3 and not rolled_back:
            rolled_back.append(offset)
            return OrderlyStatus.ROLLBACK
        return OrderlyStatus.COMMIT if offset % 5 == 4 else SUCCESS

    with consuming(
        broker.namesrv_addr, group, topic, orderly_listener(history.note, "A", answer),
        rpc_hooks=seen_by(broker, history), **SOON,
    ):  # fmt: skip
        wait_for(lambda: broker.committed(group, topic) == {0: 10}, "the commit of the end")
    verdict(plant, history, "passed unfinished")


def bury_without_a_grave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Returns, "bury", lambda *_: None)


@pytest.mark.parametrize("plant", [None, bury_without_a_grave])
def test_dead_letter(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 6)

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        return SUSPEND if messages[0].body == b"m3" else SUCCESS

    with consuming(
        broker.namesrv_addr, group, topic, orderly_listener(history.note, "A", answer),
        rpc_hooks=seen_by(broker, history), max_reconsume_times=1, **SOON,
    ):  # fmt: skip
        wait_for(lambda: broker.committed(group, topic) == {0: 6}, "the commit of the end")
    verdict(plant, history, "passed unfinished [3]")


# --------------------------------------------------------------------------------- locks


def ask_for_no_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Order, "may_take", lambda *_: True)


def believe_to_have_every_lock(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: BrokerCalls, address: str, request: LockBatch) -> frozenset[MessageQueue]:
        return request.queues

    patch.setattr(BrokerCalls, "lock_queues", wrong)


def give_up_before_the_call_has_ended(patch: pytest.MonkeyPatch) -> None:
    def wrong(
        self: ConsumeOrderlyService, queue: AssignedQueue, then: Callable[[AssignedQueue], None]
    ) -> None:
        then(queue)

    patch.setattr(ConsumeOrderlyService, "release", wrong)


class Refusals(Witness):
    """Also counts how often the member asked for a lock of the topic and did not get it."""

    def __init__(self, member: str, history: History, broker: TestBroker, topic: str) -> None:
        super().__init__(member, history.note, {broker.broker_addr: broker.broker_name})
        self._topic = f'"{topic}"'.encode()
        self.count = 0

    def after_response(
        self, address: str, request: RemotingCommand, response: RemotingCommand | Exception
    ) -> None:
        super().after_response(address, request, response)
        if request.code == RequestCode.LOCK_BATCH_MQ and not isinstance(response, Exception):
            self.count += self._topic in request.body and self._topic not in response.body


@pytest.mark.parametrize(
    "plant",
    [None, ask_for_no_lock, believe_to_have_every_lock, give_up_before_the_call_has_ended],
)
def test_handover(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue is to go to a second member while a call runs at the first."""
    monkeypatch.setattr("rocketmq_fast.consumer.order.LOCK_AGAIN_SECONDS", 0.05)
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 20, queues=2)
    go, entered, other = threading.Event(), set[int](), threading.Event()

    def hold(messages: list[MessageExt], context: OrderlyContext) -> object:
        entered.add(context.message_queue.queue_id)
        go.wait(60.0)
        return SUCCESS

    def answer(messages: list[MessageExt], context: OrderlyContext) -> object:
        other.set()
        return SUCCESS

    hook = Refusals("B", history, broker, topic)
    where = (broker.namesrv_addr, group, topic)
    second = make(
        *where, orderly_listener(history.note, "B", answer), instance_name="B", rpc_hooks=hook,
        **SOON,
    )  # fmt: skip
    with (
        consuming(
            *where, orderly_listener(history.note, "A", hold), instance_name="A",
            rpc_hooks=seen_by(broker, history), **SOON,
        ),
        releasing(go),
    ):  # fmt: skip
        wait_for(lambda: entered == {0, 1}, "a call for each queue")
        second.start()
        try:
            if plant is None:
                wait_for(lambda: hook.count >= 2, "two tries for the lock")
            else:
                wait_for(other.is_set, "a call at the second member")
            go.set()
            wait_for(lambda: not history.unacked(), "all messages")
        finally:
            second.shutdown()
    verdict(plant, history, "two calls at a time")


def ignore_the_loss_of_a_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Order, "_lose", lambda *_: None)


def go_on_with_what_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Assignment, "lose", lambda self, assigned: self._forget(assigned))


@pytest.mark.parametrize("plant", [None, ignore_the_loss_of_a_lock, go_on_with_what_is_lost])
def test_lost_lock(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else gets the lock of an idle queue, and its next message."""
    monkeypatch.setattr("rocketmq_fast.consumer.running.RENEW_SECONDS", 0.05)
    monkeypatch.setattr("rocketmq_fast.consumer.order.LOCK_AGAIN_SECONDS", 0.05)
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 5)
    more = bodies(5, "more")
    hook = Refusals("A", history, broker, topic)
    with consuming(
        broker.namesrv_addr, group, topic, orderly_listener(history.note, "A"),
        rpc_hooks=hook, **SOON,
    ) as consumer:  # fmt: skip
        wait_for(lambda: broker.committed(group, topic) == {0: 5}, "the commit of the first five")
        steal(broker, consumer.stats()["client_id"], group, topic)
        wait_for(lambda: hook.count >= 2, "two tries for the lock")
        begun = time.monotonic_ns()
        history.note_sent(broker.send(topic, more), more)
        if plant is None:
            refused = hook.count
            wait_for(lambda: hook.count >= refused + 2, "two more tries")
        else:
            wait_for(lambda: len(history.deliveries) > 5, "a call without the lock")
        thief = Call("thief", 0, (5,), (0,), begun, time.monotonic_ns(), False)
        history.note_call(broker.queue(topic), thief)
        give_back(broker, group, topic)
        wait_for(lambda: not history.unacked(), "the rest")
    verdict(plant, history, "two calls at a time")


def store_without_the_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Assignment, "_may_store", lambda *_: True)


@pytest.mark.parametrize("plant", [None, store_without_the_lock])
def test_progress_without_the_lock(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic is given up when its lock is not certain any more: somebody else may be ahead."""
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 5)
    queue = broker.queue(topic)
    with consuming(
        broker.namesrv_addr, group, topic, orderly_listener(history.note, "A"),
        rpc_hooks=seen_by(broker, history),
        **SOON | {"persist_consumer_offset_interval": 60_000},
    ) as consumer:  # fmt: skip
        running = consumer._running
        assert running is not None
        assigned = running.assignment.get(queue)
        assert assigned is not None
        wait_for(lambda: running.store.in_memory(queue) == 5, "the progress")
        assigned.distrust_lock()
        history.note_steady({queue: "thief"})
        history.note_commit(queue, 5, "thief")
        consumer.unsubscribe(topic)
        wait_for(lambda: not owned(consumer, topic), "the end of the topic")
    verdict(plant, history, "but thief has it")
