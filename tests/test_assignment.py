"""What a round of rebalancing may do while its consumer stops."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.rebalance import Assignment
from rocketmq_fast.errors import RequestTimeout
from rocketmq_fast.model import MessageModel, MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


class Stopping:
    """An assignment that is closed while the broker grants a lock, or finds a start offset.

    Or whose connection to the broker ends meanwhile.
    """

    def __init__(self, moment: str) -> None:
        self.moment = moment
        self.calls: list[str] = []
        self.owned: list[AssignedQueue] = []
        options = SimpleNamespace(
            message_model=MessageModel.BROADCASTING,  # all queues, nobody is asked
            pull_threshold_for_queue=1, pull_threshold_for_topic=-1,
            pull_threshold_size_for_queue=1, pull_threshold_size_for_topic=-1,
        )  # fmt: skip
        route = SimpleNamespace(subscribe_queues=lambda topic: [QUEUE])
        self.again: list[float] = []
        instance = SimpleNamespace(route=lambda topic: route, rebalance_later=self.again.append)
        store = SimpleNamespace(remove=lambda queue: None, persist_now=lambda queues: None)
        listener = SimpleNamespace(on_assigned=self.owned.extend, on_changed=lambda: None)
        whole: Any = (instance, "G", options, store, self, None, listener, self)
        self.assignment = Assignment(*whole)

    def may_take(self, queue: MessageQueue) -> bool:
        self.calls.append("lock")
        self.asked_at = time.monotonic()
        if self.moment == "lock":
            self.assignment.close()
        return True

    def of(self, queue: MessageQueue) -> int:
        if self.moment == "disconnected":
            self.assignment.distrust_locks(QUEUE.broker_name)
        elif self.moment in ("start offset", "failure"):
            self.assignment.close()
        if self.moment == "failure":
            raise RequestTimeout("no answer")
        return 5

    def unlock(self, queue: MessageQueue) -> None:
        self.calls.append("unlock")


@pytest.mark.parametrize("moment", ["lock", "start offset", "failure"])
def test_a_lock_that_comes_too_late_is_given_back(moment: str) -> None:
    stopping = Stopping(moment)
    stopping.assignment.rebalance(["T"])
    assert stopping.calls == ["lock", "unlock"]
    assert stopping.assignment.queues() == stopping.owned == []


def test_no_lock_is_asked_for_after_the_end() -> None:
    stopping = Stopping("lock")
    stopping.assignment.close()
    stopping.assignment.clear()
    stopping.assignment.rebalance(["T"])
    assert stopping.calls == []


def test_a_lock_from_before_the_connection_ended_is_not_trusted() -> None:
    """The broker may have restarted, and given it to somebody else."""
    stopping = Stopping("disconnected")
    stopping.assignment.rebalance(["T"])
    assert stopping.assignment.queues() == stopping.owned == []
    assert stopping.again
    stopping.moment = "nothing"
    begun = time.monotonic()
    stopping.assignment.rebalance(["T"])
    (queue,) = stopping.owned
    assert queue.locked
    assert begun <= queue.locked_at <= stopping.asked_at
    stopping.assignment.distrust_locks("broker-b")
    assert queue.locked
    stopping.assignment.distrust_locks(QUEUE.broker_name)
    assert not queue.locked
    queue.confirm_lock(begun)  # an answer that was under way
    assert not queue.locked
    queue.confirm_lock(time.monotonic())
    assert queue.locked
