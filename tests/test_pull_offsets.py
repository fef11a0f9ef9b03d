"""The commits of a pull consumer: one at a time for each queue, in the order of the calls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from rocketmq_fast import MessageQueue, RequestTimeout
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.consumer.pull_offsets import PullOffsetStore

QUEUE, OTHER = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
DONE = RemotingCommand(0)


class Broker:
    """Keeps what was sent until the test answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[MessageQueue, int, Callable[[Any], None]]] = []

    def commit_offset_async(
        self, _: str, __: str, queue: MessageQueue, offset: int, done: Callable[[Any], None]
    ) -> None:
        self.sent.append((queue, offset, done))

    def offsets(self) -> list[int]:
        return [offset for _, offset, _ in self.sent]

    def answer(self, answer: RemotingCommand | Exception = DONE) -> None:
        self.sent.pop(0)[2](answer)


def store_at(broker: Broker) -> PullOffsetStore:
    instance = SimpleNamespace(brokers=broker, broker_address=lambda _: ("a:1", False))
    return PullOffsetStore(cast(ClientInstance, instance), "g")


def commit(store: PullOffsetStore, queue: MessageQueue, offset: int, ends: list[object]) -> None:
    store.stage({queue: offset})
    store.commit({queue: offset}, ends.append)


def test_a_commit_waits_for_the_one_of_its_queue_that_is_under_way() -> None:
    broker = Broker()
    store = store_at(broker)
    ends: list[object] = []
    commit(store, QUEUE, 7, ends)
    commit(store, QUEUE, 5, ends)  # back, as after a seek
    commit(store, QUEUE, 6, ends)
    commit(store, OTHER, 1, ends)
    assert broker.offsets() == [7, 1]
    assert not store.wait_landed(0.0)
    broker.answer()
    assert broker.offsets() == [1, 5]
    broker.answer()
    broker.answer(RequestTimeout("no answer"))  # is no reason to send nothing more
    assert broker.offsets() == [6]
    broker.answer()
    assert [type(end) for end in ends] == [type(None), type(None), RequestTimeout, type(None)]
    assert store.wait_landed(0.0)
    commit(store, QUEUE, 8, ends)
    assert broker.offsets() == [8]


def test_the_last_of_two_commits_is_what_counts_as_stored() -> None:
    broker = Broker()
    store = store_at(broker)
    ends: list[object] = []
    commit(store, QUEUE, 7, ends)
    commit(store, QUEUE, 5, ends)
    broker.answer()
    assert store.unconfirmed([QUEUE]) == {QUEUE: 5}
    broker.answer()
    assert store.unconfirmed([QUEUE]) == {}
