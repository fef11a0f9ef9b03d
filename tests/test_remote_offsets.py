"""The order in which commits and pulls tell a broker the offsets of one queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.consumer.offsets import RemoteOffsetStore
from rocketmq_fast.consumer.pull_offsets import PullOffsetStore
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.codes import ResponseCode

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)
Answered = Callable[[RemotingCommand | Exception], None]


class SlowBroker:
    """An instance and its broker calls: commits leave when `on_commit` lets them, unanswered."""

    def __init__(self) -> None:
        self.brokers = self
        self.commits: list[tuple[MessageQueue, int]] = []
        self.answers: list[Answered] = []
        self.on_commit: Callable[[], None] = lambda: None

    def broker_address(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1:10911", 0

    def commit_offset_async(
        self, _address: str, _group: str, queue: MessageQueue, offset: int, answered: Answered
    ) -> None:
        self.on_commit()
        self.commits.append((queue, offset))
        self.answers.append(answered)

    def answer(self) -> None:
        """Confirm the commit that has waited longest."""
        self.answers.pop(0)(RemotingCommand(ResponseCode.SUCCESS))


def begun_store(broker: SlowBroker) -> RemoteOffsetStore:
    """A store whose topic has an offset at the broker, so that pulls may carry some."""
    store = RemoteOffsetStore(cast(ClientInstance, broker), "group")
    store.update(QUEUE, 1, increase_only=True)
    store.persist([QUEUE])
    broker.answer()
    assert store.carry(QUEUE) is None  # nothing new
    return store


def test_no_pull_overtakes_a_commit_that_is_about_to_leave() -> None:
    broker = SlowBroker()
    store = begun_store(broker)
    carried: list[int | None] = []

    def meanwhile() -> None:
        store.update(QUEUE, 3, increase_only=True)
        carried.append(store.carry(QUEUE))

    broker.on_commit = meanwhile
    store.update(QUEUE, 2, increase_only=True)
    store.persist([QUEUE])
    carried.append(store.carry(QUEUE))
    assert carried == [None, None]
    broker.answer()
    assert store.carry(QUEUE) == 3


def test_a_pull_that_left_before_a_commit_makes_it_doubtful() -> None:
    """Even where a pull without an offset came between: the earlier one may be carried out late."""
    broker = SlowBroker()
    store = begun_store(broker)
    store.update(QUEUE, 2, increase_only=True)
    assert store.carry(QUEUE) == 2
    store.update(QUEUE, 3, increase_only=True)
    store.persist([QUEUE])
    assert store.carry(QUEUE) is None
    broker.answer()
    assert store.carry(QUEUE) == 3


def test_the_second_queue_of_a_new_topic_tells_what_is_current_when_its_turn_comes() -> None:
    broker = SlowBroker()
    store = RemoteOffsetStore(cast(ClientInstance, broker), "group")
    store.update(QUEUE, 1, increase_only=True)
    store.update(OTHER, 1, increase_only=True)
    store.persist([QUEUE, OTHER])
    store.update(OTHER, 2, increase_only=True)
    assert broker.commits == [(QUEUE, 1)]
    broker.answer()
    broker.answer()
    assert broker.commits == [(QUEUE, 1), (OTHER, 2)]
    assert store.wait_landed(0)


def test_progress_behind_a_commit_under_way_is_sent_when_that_has_landed() -> None:
    """Once, however often it is asked for: at an exit nobody asks again."""
    broker = SlowBroker()
    store = begun_store(broker)
    for offset in (2, 3):
        store.update(QUEUE, offset, increase_only=True)
        store.persist([QUEUE])
        store.persist([QUEUE])
    assert broker.commits[1:] == [(QUEUE, 2)]
    broker.answer()
    broker.answer()
    store.persist([QUEUE])
    broker.answer()
    assert broker.commits[-1] == (QUEUE, 3)
    assert store.wait_landed(0)
    assert store.carry(QUEUE) is None


def test_a_caller_that_raises_on_its_answer_holds_nothing_up() -> None:
    broker = SlowBroker()
    store = PullOffsetStore(cast(ClientInstance, broker), "group")

    def fail(_error: Exception | None) -> None:
        raise RuntimeError("the event loop of the caller is closed")

    store.stage({QUEUE: 1})
    store.commit({QUEUE: 1}, fail)
    with pytest.raises(RuntimeError, match="closed"):
        broker.answer()
    assert store.wait_landed(0)
    ended: list[Exception | None] = []
    store.commit({QUEUE: 2}, ended.append)
    broker.answer()
    assert ended == [None]
