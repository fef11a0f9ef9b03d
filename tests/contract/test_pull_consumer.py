"""The pull consumer on every broker: counts, seeks, commits, members that share."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pyarrow as pa
import pytest

from rocketmq_fast import ClientStateError, PullConsumer
from tests.apache import java
from tests.brokers import TestBroker
from tests.consuming import Recorder, bodies, consuming
from tests.pulling import FIRST, assigned, drain, no_thread_left, take
from tests.waiting import wait_for


def test_assigned_queues_give_everything_once_and_in_order(broker: TestBroker) -> None:
    topic, group = broker.topic(4), broker.group()
    sent = bodies(300)
    broker.send(topic, sent, queues=range(4))
    with no_thread_left(), assigned(broker.namesrv_addr, group, topic) as consumer:
        got = take(consumer, 300)
        later = bodies(20, "later")
        broker.send(topic, later, queues=range(4))
        got += take(consumer, 20)
        assert drain(consumer) == []
        assert Counter(message.body for message in got) == Counter(sent + later)
        for queue in consumer.assignment():
            own = [m.queue_offset for m in got if m.queue_id == queue.queue_id]
            assert own == list(range(80))
            assert consumer.position(queue) == 80
        assert set(consumer.lag().values()) == {0}
    assert broker.members(group) == []
    assert broker.committed(group, topic) == dict.fromkeys(range(4), 80)


def test_assignment_joins_no_group(broker: TestBroker) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(20), queues=range(2))
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder) as push:
        with assigned(broker.namesrv_addr, group, topic, auto_commit=False) as consumer:
            consumer.seek_to_begin()
            assert len(take(consumer, 20)) == 20
            assert len(broker.members(group)) == 1
            assert len([q for q in push.assigned() if q.topic == topic]) == 2
        recorder.wait(20)


def test_commit_is_seen_by_the_next_consumer_and_by_java(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    queue = broker.queue(topic)
    broker.send(topic, bodies(100))
    with assigned(broker.namesrv_addr, group, topic, auto_commit=False) as consumer:
        assert len(consumer.poll(10.0, 30)) == 30
        assert broker.committed(group, topic) in ({}, {0: 0})
        consumer.commit()
        assert broker.committed(group, topic) == {0: 30}
        assert consumer.committed(queue) == 30
        consumer.poll(10.0, 10)
    # Without auto_commit the end commits nothing.
    assert broker.committed(group, topic) == {0: 30}
    if broker.kind != "embedded":
        shown = java.offsets(broker.namesrv_addr, topic, group)
        assert 30 in [entry["committed"] for entry in shown["queues"].values()], shown
    with assigned(broker.namesrv_addr, group, topic, auto_commit=False) as consumer:
        assert [m.queue_offset for m in take(consumer, 70)] == list(range(30, 100))
        consumer.commit({queue: 77})
        assert broker.committed(group, topic) == {0: 77}


def test_seek_drops_what_was_fetched_and_asked_for(broker: TestBroker) -> None:
    topic = broker.topic(1)
    queue = broker.queue(topic)
    broker.send(topic, bodies(200))
    with assigned(broker.namesrv_addr, broker.group(), topic) as consumer:
        for offset in (150, 0, 199, 37, 120, 5) * 5:
            consumer.seek(queue, offset)
            assert consumer.position(queue) == offset
            messages = consumer.poll(10.0, 3)
            assert messages[0].queue_offset == offset
            first = messages[-1].queue_offset
            assert [m.queue_offset for m in messages] == list(range(offset, first + 1))
        consumer.seek_to_end(queue)
        assert consumer.poll(0.2) == []
        broker.send(topic, [b"new"])
        assert [m.body for m in take(consumer, 1)] == [b"new"]
        consumer.seek_to_begin(queue)
        assert [m.queue_offset for m in take(consumer, 201)] == list(range(201))


def test_seek_to_timestamp(broker: TestBroker) -> None:
    topic = broker.topic(1)
    queue = broker.queue(topic)
    broker.send(topic, bodies(10))
    with assigned(broker.namesrv_addr, broker.group(), topic) as consumer:
        seventh = take(consumer, 10)[7]
        consumer.seek_to_timestamp(queue, seventh.store_timestamp)
        first = consumer.poll(10.0, 1)[0]
        assert first.store_timestamp == seventh.store_timestamp
        moment = datetime.fromtimestamp(seventh.store_timestamp / 1000)
        assert consumer.offset_for_timestamp(queue, moment) == first.queue_offset
        assert consumer.offsets_for_timestamp([queue], moment) == {queue: first.queue_offset}
        assert consumer.begin_offsets([queue]) == {queue: 0}
        assert consumer.end_offsets([queue]) == {queue: 10}


def test_two_members_share_and_one_takes_over(broker: TestBroker) -> None:
    topic, group = broker.topic(4), broker.group()
    first = PullConsumer(group, namesrv_addr=broker.namesrv_addr, **FIRST)
    first.subscribe(topic)
    with first:
        assert first.wait_assigned(60.0)
        wait_for(lambda: len(first.assignment()) == 4, "all four queues")
        with PullConsumer(group, namesrv_addr=broker.namesrv_addr, **FIRST) as second:
            second.subscribe(topic)
            wait_for(lambda: len(first.assignment()) == 2, "the first to give up two")
            wait_for(lambda: len(second.assignment()) == 2, "the second to have two")
            assert not set(first.assignment()) & set(second.assignment())
            assert len(broker.members(group)) == 2
            sent = bodies(80)
            broker.send(topic, sent, queues=range(4))
            got = take(first, 40) + take(second, 40)
            assert Counter(m.body for m in got) == Counter(sent)
        wait_for(lambda: len(first.assignment()) == 4, "the first to take all over")
        more = bodies(8, "more")
        broker.send(topic, more, queues=range(4))
        assert Counter(m.body for m in take(first, 8)) == Counter(more)
    assert broker.committed(group, topic) == dict.fromkeys(range(4), 22)


def test_subscription_filters_by_tag(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(60), tags=["Aa", "BB", "C"])
    with PullConsumer(group, namesrv_addr=broker.namesrv_addr, **FIRST) as consumer:
        consumer.subscribe(topic, "Aa || C")
        got = take(consumer, 40)
        assert {m.tags for m in got} == {"Aa", "C"}
        with pytest.raises(ClientStateError, match="unsubscribe"):
            consumer.assign([broker.queue(topic)])
        consumer.unsubscribe()
        assert consumer.assignment() == []
        consumer.assign([broker.queue(topic)], "BB")
        consumer.seek_to_begin()
        assert {m.tags for m in take(consumer, 20)} == {"BB"}
        with pytest.raises(ClientStateError, match="unsubscribe"):
            consumer.subscribe(topic)


def test_arrow_is_what_poll_gives(broker: TestBroker) -> None:
    topic = broker.topic(2)
    broker.send(topic, bodies(150), queues=range(2), tags="T", properties={"KEYS": "k"})
    with assigned(broker.namesrv_addr, broker.group(), topic) as consumer:
        objects = take(consumer, 150)
        consumer.seek_to_begin()
        parts = []
        while sum(map(len, parts)) < 150:
            limit = 7 if len(parts) % 2 else None
            parts.append(consumer.poll_arrow(10.0, limit))
            assert limit is None or len(parts[-1]) <= limit
        table = pa.Table.from_batches([pa.record_batch(part) for part in parts])
        assert consumer.lag() == dict.fromkeys(consumer.assignment(), 0)
        consumer.seek_to_begin()
        some = pa.record_batch(consumer.poll_arrow(10.0, 5, ["body", "queueOffset"]))
    expected = {(m.queue_id, m.queue_offset): (m.body, m.tags, m.broker_name) for m in objects}
    found = {
        (row["queueId"], row["queueOffset"]): (row["body"], row["tags"], row["brokerName"])
        for row in table.select(
            ["queueId", "queueOffset", "body", "tags", "brokerName"]
        ).to_pylist()
    }
    assert found == expected
    assert table.num_rows == 150
    assert some.schema.names == ["body", "queueOffset"]
    assert some.num_rows == 5


def test_illegal_offset_goes_where_the_broker_says(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    queue = broker.queue(topic)
    broker.send(topic, bodies(20))
    with assigned(broker.namesrv_addr, group, topic) as consumer:
        consumer.seek(queue, 5000)
        assert consumer.poll(0.5) == []
        broker.send(topic, [b"next"])
        assert [m.body for m in take(consumer, 1)] == [b"next"]
        assert consumer.position(queue) == 21


def test_group_of_a_topic_that_appears_later(broker: TestBroker) -> None:
    group = broker.group()
    name = broker.name("late")
    with PullConsumer(
        group, namesrv_addr=broker.namesrv_addr, poll_name_server_interval=200, **FIRST
    ) as consumer:
        consumer.subscribe(name)
        assert consumer.poll(0.1) == []
        broker.cluster.create_topic(name, queues=1)
        assert consumer.wait_assigned(60.0)
        broker.send(name, [b"one"])
        assert [m.body for m in take(consumer, 1)] == [b"one"]
