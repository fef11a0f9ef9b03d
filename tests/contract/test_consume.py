"""Delivery: everything once, to every group, by tags, in batches, from the wanted position."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from rocketmq_fast import MessageQueue, TagFilter
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from tests.brokers import TestBroker
from tests.consuming import Recorder, assert_once, bodies, consuming, make
from tests.proxy import Frame, ProxiedCluster, answer_with
from tests.waiting import wait_for


def test_every_message_of_every_queue_once(broker: TestBroker) -> None:
    topic, group = broker.topic(4), broker.group()
    before = bodies(200, "before")
    results = broker.send(topic, before, queues=range(4), tags="TagA", properties={"KEYS": "k"})
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder):
        recorder.wait(200)
        after = bodies(40, "after")
        broker.send(topic, after, queues=range(4))
        recorder.wait(240)
    assert_once(recorder, before + after)
    by_place = {(seen.queue, seen.offset): seen for seen in recorder.seen}
    for result, body in zip(results, before, strict=True):
        seen = by_place[result.message_queue, result.queue_offset]
        assert (seen.body, seen.topic, seen.tags) == (body, topic, "TagA")
        assert seen.msg_id == result.msg_id
        assert seen.message.offset_msg_id == result.offset_msg_id
        assert seen.message.keys == "k"
        assert seen.message.broker_name == broker.broker_name
        assert seen.message.reconsume_times == 0
    assert broker.committed(group, topic) == {0: 60, 1: 60, 2: 60, 3: 60}


def test_two_groups_get_everything_each(broker: TestBroker) -> None:
    topic = broker.topic(3)
    sent = bodies(90)
    broker.send(topic, sent, queues=range(3))
    one, other = Recorder(), Recorder()
    with (
        consuming(broker.namesrv_addr, broker.group(), topic, one),
        consuming(broker.namesrv_addr, broker.group(), topic, other),
    ):
        one.wait(90)
        other.wait(90)
    assert_once(one, sent)
    assert_once(other, sent)


def test_one_consumer_of_two_topics(broker: TestBroker) -> None:
    first, second = broker.topic(2), broker.topic(1)
    broker.send(first, bodies(10, "first"), queues=range(2))
    broker.send(second, bodies(10, "second"))
    recorder = Recorder()
    with consuming(broker.namesrv_addr, broker.group(), {first: "*", second: "*"}, recorder):
        recorder.wait(20)
    assert {seen.topic for seen in recorder.seen if seen.body.startswith(b"first")} == {first}
    assert {seen.topic for seen in recorder.seen if seen.body.startswith(b"second")} == {second}
    assert_once(recorder, bodies(10, "first") + bodies(10, "second"))


def test_tags_whose_hashes_collide_are_told_apart(broker: TestBroker) -> None:
    assert TagFilter("Aa").codes == TagFilter("BB").codes
    topic, group = broker.topic(2), broker.group()
    # The last message of each queue is a wanted one, so that the commit reaches the end at once.
    tags = ["BB", None, "AaX", "C", "Aa"]
    sent = bodies(100)
    broker.send(topic, sent, queues=[0, 1], tags=tags)
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, {topic: "Aa || C"}, recorder):
        recorder.wait(40)
    wanted = [body for index, body in enumerate(sent) if tags[index % 5] in ("Aa", "C")]
    assert_once(recorder, wanted)
    # The commit passes what the filter took out.
    assert broker.committed(group, topic) == {0: 50, 1: 50}


@pytest.mark.parametrize("size", [1, 7, 1024])
def test_batches_are_full_but_for_the_last(broker: TestBroker, size: int) -> None:
    topic = broker.topic(1)
    sent = bodies(100)
    broker.send(topic, sent)
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr, broker.group(), topic, recorder, consume_message_batch_max_size=size
    ):
        recorder.wait(100)
    assert_once(recorder, sent)
    # A broker hands out at most 32 messages a pull, and a batch never spans two pulls.
    assert max(recorder.batches) == min(size, 32)
    assert len(recorder.batches) >= 100 // min(size, 32)


def hide_offsets(cluster: ProxiedCluster) -> None:
    """Have the broker say that the group has no offset.

    Brokers answer 0 for a new group as long as the first message is in memory, so without this a
    group begins at the first message whatever it asked for.
    """

    def on_answer(frame: Frame) -> bytes | None:
        if frame.code == RequestCode.QUERY_CONSUMER_OFFSET:
            return answer_with(frame, ResponseCode.QUERY_NOT_FOUND)
        return None

    cluster.broker.on_answer = on_answer


def test_start_at_the_last_message(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic = broker.topic(2)
    broker.send(topic, bodies(20, "old"), queues=[0, 1])
    hide_offsets(proxied)
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr,
        broker.group(),
        topic,
        recorder,
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
    ) as consumer:
        wait_for(
            lambda: len([q for q in consumer.assigned() if q.topic == topic]) == 2, "both queues"
        )
        broker.send(topic, bodies(10, "new"), queues=[0, 1])
        recorder.wait(10)
    assert_once(recorder, bodies(10, "new"))


def test_start_at_the_first_message(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic = broker.topic(2)
    broker.send(topic, bodies(20), queues=[0, 1])
    hide_offsets(proxied)
    recorder = Recorder()
    with consuming(proxied.namesrv_addr, broker.group(), topic, recorder):
        recorder.wait(20)
    assert_once(recorder, bodies(20))


def test_start_at_a_time(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic = broker.topic(1)
    broker.send(topic, bodies(10, "old"))
    stored = broker.wire.calls.view_message(
        broker.broker_addr, int(broker.send(topic, [b"last old"])[0].offset_msg_id[-16:], 16)
    ).store_timestamp
    # The first second that lies behind the old messages, since consume_timestamp may have no ms.
    border = datetime.fromtimestamp(stored // 1000 + 1)
    wait_for(lambda: time.time() > border.timestamp() + 0.05, "the clock to pass a second")
    broker.send(topic, bodies(10, "new"))
    hide_offsets(proxied)
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr,
        broker.group(),
        topic,
        recorder,
        consume_from_where="CONSUME_FROM_TIMESTAMP",
        consume_timestamp=border,
    ):
        recorder.wait(10)
    # A broker looks for the nearest message, which may be the one just before.
    assert set(recorder.bodies) - {b"last old"} == set(bodies(10, "new"))
    by_text = make(
        broker.namesrv_addr,
        broker.group(),
        topic,
        recorder,
        consume_timestamp=border.strftime("%Y%m%d%H%M%S"),
    )
    assert by_text._options.consume_timestamp == int(border.timestamp() * 1000)


def test_a_group_goes_on_where_it_stopped(broker: TestBroker) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(50, "one"), queues=[0, 1])
    first = Recorder()
    with consuming(broker.namesrv_addr, group, topic, first):
        first.wait(50)
    broker.send(topic, bodies(50, "two"), queues=[0, 1])
    second = Recorder()
    with consuming(
        broker.namesrv_addr, group, topic, second, consume_from_where="CONSUME_FROM_LAST_OFFSET"
    ):
        second.wait(50)
    # A clean stop stored everything: nothing comes twice, and nothing is left out.
    assert_once(first, bodies(50, "one"))
    assert_once(second, bodies(50, "two"))


def test_topic_that_is_created_later(broker: TestBroker) -> None:
    topic = broker.name("later")
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr,
        broker.group(),
        topic,
        recorder,
        assigned=False,
        # A topic that is missing is looked for long before the next round.
        poll_name_server_interval=timedelta(minutes=10),
    ) as consumer:
        assert not consumer.wait_assigned(0.0)
        broker.cluster.create_topic(topic, queues=2)
        broker.send(topic, bodies(10), queues=[0, 1])
        recorder.wait(10)
        assert consumer.assigned()[-1] == MessageQueue(topic, broker.broker_name, 1)
    assert_once(recorder, bodies(10))


def test_queues_that_are_added_later(broker: TestBroker) -> None:
    topic = broker.topic(1)
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr,
        broker.group(),
        topic,
        recorder,
        poll_name_server_interval=200,
    ):
        broker.send(topic, bodies(5, "one"))
        recorder.wait(5)
        broker.cluster.create_topic(topic, queues=3)
        broker.send(topic, bodies(9, "three"), queues=[0, 1, 2])
        recorder.wait(14)
    assert_once(recorder, bodies(5, "one") + bodies(9, "three"))
