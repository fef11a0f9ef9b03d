"""What a round of rebalancing may do while its consumer stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rocketmq_fast.consumer.rebalance import Assignment
from rocketmq_fast.errors import RequestTimeout
from rocketmq_fast.model import MessageModel, MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


class Stopping:
    """An assignment that is closed while the broker grants a lock, or finds a start offset."""

    def __init__(self, moment: str) -> None:
        self.moment = moment
        self.calls: list[str] = []
        options = SimpleNamespace(
            message_model=MessageModel.BROADCASTING,  # all queues, nobody is asked
            pull_threshold_for_queue=1, pull_threshold_for_topic=-1,
            pull_threshold_size_for_queue=1, pull_threshold_size_for_topic=-1,
        )  # fmt: skip
        route = SimpleNamespace(subscribe_queues=lambda topic: [QUEUE])
        instance = SimpleNamespace(route=lambda topic: route, rebalance_later=lambda delay: None)
        store = SimpleNamespace(remove=lambda queue: None, persist_now=lambda queues: None)
        listener = SimpleNamespace(on_assigned=self.calls.append, on_changed=lambda: None)
        whole: Any = (instance, "G", options, store, self, None, listener, self)
        self.assignment = Assignment(*whole)

    def may_take(self, queue: MessageQueue) -> bool:
        self.calls.append("lock")
        if self.moment == "lock":
            self.assignment.close()
        return True

    def of(self, queue: MessageQueue) -> int:
        if self.moment != "lock":
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
    assert stopping.assignment.queues() == []


def test_no_lock_is_asked_for_after_the_end() -> None:
    stopping = Stopping("lock")
    stopping.assignment.close()
    stopping.assignment.clear()
    stopping.assignment.rebalance(["T"])
    assert stopping.calls == []
