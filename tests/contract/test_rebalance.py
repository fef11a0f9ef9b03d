"""Members come and go: every queue has one owner and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import threading

from rocketmq_fast import PushConsumer
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import Recorder, bodies, consuming, make, owned
from tests.history import History
from tests.proxy import Frame, encoded, json_body
from tests.waiting import wait_for


def wait_split(consumers: list[PushConsumer], topic: str, queues: int) -> list[set[int]]:
    """Wait until the queues are divided evenly and each has one owner."""

    def settled() -> list[set[int]] | None:
        parts = [owned(consumer, topic) for consumer in consumers]
        flat = [queue for part in parts for queue in part]
        fair = max(map(len, parts)) - min(map(len, parts)) <= 1
        return parts if fair and sorted(flat) == list(range(queues)) else None

    return wait_for(
        settled, lambda: f"one owner per queue: {[owned(c, topic) for c in consumers]}", 40
    )


def test_members_join_and_leave(broker: TestBroker) -> None:
    topic, group = broker.topic(6), broker.group()
    recorder = Recorder()

    def member() -> contextlib.AbstractContextManager[PushConsumer]:
        return consuming(
            broker.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=50
        )

    def wait_committed(count: int) -> None:
        """A new owner begins at what is committed, not at what the old one has in hand."""
        wait_for(
            lambda: broker.committed(group, topic) == dict.fromkeys(range(6), count), "the commits"
        )

    with member() as first:
        wait_split([first], topic, 6)
        with member() as second:
            wait_split([first, second], topic, 6)
            with member() as third:
                # Average, in the order of the client ids, as every member computes it.
                parts = wait_split([first, second, third], topic, 6)
                assert sorted(map(sorted, parts)) == [[0, 1], [2, 3], [4, 5]]
                assert len(broker.members(group)) == 3
                broker.send(topic, bodies(60, "three"), queues=range(6))
                recorder.wait(60)
                wait_committed(10)
            wait_split([first, second], topic, 6)
            broker.send(topic, bodies(60, "two"), queues=range(6))
            recorder.wait(120)
            wait_committed(20)
        wait_split([first], topic, 6)
        broker.send(topic, bodies(60, "one"), queues=range(6))
        recorder.wait(180)
    # Nothing was in flight when the queues changed hands, so nothing came twice.
    assert len(recorder.seen) == 180
    wait_committed(30)


def test_more_members_than_queues(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    recorder = Recorder()
    with (
        consuming(broker.namesrv_addr, group, topic, recorder) as first,
        consuming(broker.namesrv_addr, group, topic, recorder, assigned=False) as second,
    ):
        wait_split([first, second], topic, 1)
        broker.send(topic, bodies(20))
        recorder.wait(20)
        assert len(broker.members(group)) == 2
    assert len(recorder.seen) == 20


def test_nothing_is_lost_while_members_change_under_load(broker: TestBroker) -> None:
    topic, group = broker.topic(4), broker.group()
    history = History()
    recorder = Recorder(history.listener())
    stop = threading.Event()
    sent: list[bytes] = []

    def produce() -> None:
        number = 0
        while not stop.is_set():
            more = bodies(40, f"n{number}_")
            history.note_sent(broker.send(topic, more, queues=range(4)), more)
            sent.extend(more)
            number += 1

    producer = threading.Thread(target=produce)
    with contextlib.ExitStack() as stack:
        stack.enter_context(consuming(broker.namesrv_addr, group, topic, recorder))
        producer.start()
        stack.callback(producer.join)
        stack.callback(stop.set)
        for _ in range(3):
            with consuming(broker.namesrv_addr, group, topic, recorder):
                seen = len(recorder.seen)
                wait_for(lambda seen=seen: len(recorder.seen) > seen + 100, "traffic")
            seen = len(recorder.seen)
            wait_for(lambda seen=seen: len(recorder.seen) > seen + 100, "traffic")
        stop.set()
        producer.join()
        recorder.wait(len(sent))
    assert not history.lost()
    assert set(recorder.bodies) == set(sent)
    ends = {queue: broker.max_offset(topic, queue) for queue in range(4)}
    assert broker.committed(group, topic) == ends
    # A queue that changes hands may repeat what was in the old owner's hands: one pull and a bit.
    assert sum(history.duplicates().values()) <= 6 * 4 * 100


def test_member_that_vanishes_is_replaced(broker: TestBroker) -> None:
    """A member whose connection ends without a word: the broker tells the others."""
    topic, group = broker.topic(4), broker.group()
    recorder, dead = Recorder(), Recorder()
    with broker.proxied() as cluster:
        lost = make(cluster.namesrv_addr, group, topic, dead)
        lost.start()
        try:
            assert lost.wait_assigned(60.0)
            with consuming(broker.namesrv_addr, group, topic, recorder) as survivor:
                wait_split([lost, survivor], topic, 4)
                cluster.broker.refuse()
                wait_for(lambda: owned(survivor, topic) == {0, 1, 2, 3}, "all queues")
                broker.send(topic, bodies(40), queues=range(4))
                recorder.wait(40)
        finally:
            lost.shutdown()
    assert not dead.seen


def test_member_that_is_listed_twice_gets_one_part(embedded_broker: TestBroker) -> None:
    """A broker that was slow may know a connection of a member that is gone beside the present one.

    It lists the member twice then, for up to two minutes. A second part would be nobody's.
    """
    broker = embedded_broker
    topic, group = broker.topic(4), broker.group()

    def twice(frame: Frame) -> bytes | None:
        if frame.code != RequestCode.GET_CONSUMER_LIST_BY_GROUP or not frame.command.body:
            return None
        found = json_body(frame.command)["consumerIdList"]
        assert isinstance(found, list)
        frame.command.body = json.dumps({"consumerIdList": [*found, *found]}).encode()
        return encoded(frame.command)

    recorder = Recorder()
    with (
        broker.proxied() as first_way,
        broker.proxied() as second_way,
    ):
        first_way.broker.on_answer = second_way.broker.on_answer = twice
        with (
            consuming(first_way.namesrv_addr, group, topic, recorder) as first,
            consuming(second_way.namesrv_addr, group, topic, recorder) as second,
        ):
            wait_split([first, second], topic, 4)
