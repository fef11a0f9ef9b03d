"""The pull consumer's own rules, on the embedded broker: what is committed when, pauses, limits."""

from __future__ import annotations

import threading

import pytest

import rocketmq_fast as rmq
from rocketmq_fast import BrokerError, ClientStateError, ConfigError, PullConsumer
from rocketmq_fast.errors import NoNameServer, TopicRouteNotFound
from tests.brokers import TestBroker
from tests.consuming import bodies
from tests.pulling import FIRST, assigned, drain, no_thread_left, take
from tests.waiting import wait_for


@pytest.fixture
def filled(embedded_broker: TestBroker) -> tuple[TestBroker, str, str]:
    """A broker, a topic of one queue with 100 messages, a new group."""
    topic = embedded_broker.topic(1)
    embedded_broker.send(topic, bodies(100))
    return embedded_broker, topic, embedded_broker.group()


Filled = tuple[TestBroker, str, str]


def test_auto_commit_covers_earlier_polls_only(filled: Filled) -> None:
    broker, topic, group = filled
    with assigned(broker.namesrv_addr, group, topic, auto_commit_interval_millis=20) as consumer:
        assert len(consumer.poll(5.0, 10)) == 10
        # The interval passes many times: what the last poll gave is still being worked on.
        with pytest.raises(AssertionError):
            wait_for(lambda: broker.committed(group, topic).get(0), "no commit", 0.3)
        assert len(consumer.poll(5.0, 10)) == 10
        wait_for(lambda: broker.committed(group, topic).get(0) == 10, "a commit of 10")
    assert broker.committed(group, topic) == {0: 20}


def test_after_an_exception_the_last_poll_is_not_committed(filled: Filled) -> None:
    broker, topic, group = filled

    def work() -> None:
        with assigned(broker.namesrv_addr, group, topic) as consumer:
            consumer.poll(5.0, 10)
            consumer.poll(5.0, 10)
            raise KeyError("work")

    with pytest.raises(KeyError):
        work()
    assert broker.committed(group, topic) == {0: 10}


def test_iteration_commits_what_was_asked_past(filled: Filled) -> None:
    broker, topic, group = filled

    def work() -> None:
        with assigned(broker.namesrv_addr, group, topic) as consumer:
            for number, message in enumerate(consumer):
                assert message.queue_offset == number
                if number == 41:
                    raise KeyError("work")

    with pytest.raises(KeyError):
        work()
    assert broker.committed(group, topic) == {0: 41}
    with assigned(broker.namesrv_addr, group, topic) as consumer:
        for message in consumer:
            assert message.queue_offset >= 41
            if message.queue_offset == 60:
                break
        # Nothing is lost between the ways to read.
        assert consumer.poll(5.0, 1)[0].queue_offset == 61
    assert broker.committed(group, topic) == {0: 62}


def test_iteration_ends_with_the_consumer(filled: Filled) -> None:
    broker, topic, group = filled
    seen = []
    with assigned(broker.namesrv_addr, group, topic) as consumer:
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 100:
                threading.Timer(0.05, consumer.shutdown).start()
    assert seen == bodies(100)


def test_poll_returns_when_the_consumer_ends(filled: Filled) -> None:
    broker, topic, group = filled
    with assigned(broker.namesrv_addr, group, topic) as consumer:
        take(consumer, 100)
        threading.Timer(0.05, consumer.shutdown).start()
        assert consumer.poll(60.0) == []
        with pytest.raises(ClientStateError, match="not started"):
            consumer.poll()
        consumer.shutdown()


def test_a_poll_gives_whole_batches_or_what_was_asked_for(filled: Filled) -> None:
    broker, topic, group = filled
    with assigned(broker.namesrv_addr, group, topic, pull_batch_size=10) as consumer:
        queue = broker.queue(topic)
        got = 0
        while got < 100:
            messages = consumer.poll(5.0)
            assert messages
            assert len(messages) % 10 == 0
            got += len(messages)
        consumer.seek(queue, 0)
        offsets = []
        while len(offsets) < 100:
            messages = consumer.poll(5.0, 7)
            assert 0 < len(messages) <= 7
            offsets += [m.queue_offset for m in messages]
            assert consumer.position(queue) == offsets[-1] + 1
        assert offsets == list(range(100))


def test_paused_queues_give_nothing_and_lose_nothing(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(100), queues=range(2))
    with assigned(broker.namesrv_addr, group, topic, pull_batch_size=5) as consumer:
        first, second = consumer.assignment()
        assert consumer.poll(5.0, 1)
        consumer.pause(first)
        rest = drain(consumer)
        assert {m.queue_id for m in rest} == {second.queue_id}
        consumer.resume(first)
        position = consumer.position(first)
        more = take(consumer, 50 - position)
        assert [m.queue_offset for m in more] == list(range(position, 50))
        assert {m.queue_id for m in more} == {first.queue_id}
        consumer.pause()
        broker.send(topic, bodies(2, "late"), queues=range(2))
        assert consumer.poll(0.2) == []
        consumer.resume()
        assert len(take(consumer, 2)) == 2


def test_seeks_never_show_an_answer_of_before(filled: Filled) -> None:
    """Seeks while pulls are under way, from another thread than the polls."""
    broker, topic, group = filled
    queue = broker.queue(topic)
    with assigned(broker.namesrv_addr, group, topic, pull_batch_size=3) as consumer:
        for round_ in range(200):
            target = (round_ * 37) % 100
            seeker = threading.Thread(target=consumer.seek, args=(queue, target))
            consumer.poll(0.0)
            seeker.start()
            consumer.poll(0.0, 2)
            seeker.join()
            # It happened for certain now: the very next message is the one.
            before = consumer.position(queue)
            messages = consumer.poll(5.0, 2) if before < 100 else []
            if messages:
                assert messages[0].queue_offset == before
            assert target <= before <= target + 2


def test_seek_backwards_commits_backwards(filled: Filled) -> None:
    broker, topic, group = filled
    queue = broker.queue(topic)
    with assigned(broker.namesrv_addr, group, topic, auto_commit=False) as consumer:
        take(consumer, 100)
        consumer.commit()
        assert consumer.committed(queue) == 100
        consumer.seek(queue, 40)
        assert consumer.committed(queue) == 100
        consumer.commit()
        assert consumer.committed(queue) == 40


@pytest.mark.parametrize(("policy", "goes_to"), [("earliest", 0), ("latest", 100)])
def test_illegal_offset_by_policy(filled: Filled, policy: str, goes_to: int) -> None:
    broker, topic, group = filled
    queue = broker.queue(topic)
    with assigned(broker.namesrv_addr, group, topic, on_illegal_offset=policy) as consumer:
        consumer.seek(queue, 999)
        consumer.poll(0.0)
        wait_for(lambda: consumer.position(queue) == goes_to, f"position {goes_to}")
        broker.send(topic, [b"end"])
        assert take(consumer, 101 - goes_to)[-1].body == b"end"


def test_illegal_offset_is_an_error_until_a_seek(filled: Filled) -> None:
    broker, topic, group = filled
    queue = broker.queue(topic)
    with assigned(broker.namesrv_addr, group, topic, on_illegal_offset="error") as consumer:
        consumer.seek(queue, 999)
        for _ in range(2):
            with pytest.raises(BrokerError, match="offset 999 of"):
                consumer.poll(10.0)
        consumer.seek(queue, 90)
        assert len(take(consumer, 10)) == 10


def test_fetching_ahead_stops_at_the_limits(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(4), broker.group()
    sent = bodies(400)
    broker.send(topic, sent, queues=range(4))
    limits = {"pull_threshold_for_all": 60, "pull_threshold_for_queue": 20, "pull_batch_size": 10}
    with assigned(broker.namesrv_addr, group, topic, **limits) as consumer:
        consumer.poll(0.0)
        wait_for(lambda: consumer.stats()["flow_controlled"] > 20, "flow control")
        # What is under way when the limit is reached, and the answer just taken, still arrive.
        assert consumer.stats()["cached_messages"] <= 60 + (4 + 1) * 10
        got = take(consumer, 400)
        assert sorted(m.body for m in got) == sorted(sent)
        assert consumer.stats()["cached_messages"] == 0
        assert consumer.stats()["cached_bytes"] == 0


def test_filtered_ends_are_committed(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(50), tags=["A", "B", "B", "B", "B"])
    with PullConsumer(group, namesrv_addr=broker.namesrv_addr, **FIRST) as consumer:
        consumer.subscribe(topic, "A")
        assert len(take(consumer, 10)) == 10
        queue = broker.queue(topic)
        wait_for(lambda: consumer.poll(0.1) == [] and consumer.position(queue) == 50, "the end")
    assert broker.committed(group, topic) == {0: 50}


def test_commit_raises_when_the_broker_does_not_answer(filled: Filled) -> None:
    broker, topic, group = filled
    with broker.proxied() as proxied:
        with assigned(proxied.namesrv_addr, group, topic, auto_commit=False) as consumer:
            take(consumer, 100)
            other = rmq.MessageQueue(topic, "nobody", 0)
            with pytest.raises(rmq.RocketMQError, match="nobody"):
                consumer.commit({other: 1})
            consumer.commit()
        assert broker.committed(group, topic) == {0: 100}


def test_reset_by_the_group_is_a_seek(filled: Filled) -> None:
    broker, topic, group = filled
    queue = broker.queue(topic)
    with PullConsumer(group, namesrv_addr=broker.namesrv_addr, **FIRST) as consumer:
        consumer.subscribe(topic)
        take(consumer, 100)
        consumer.running.reset_offsets(topic, {queue: 30})
        assert broker.committed(group, topic) == {0: 30}
        assert [m.queue_offset for m in take(consumer, 70)] == list(range(30, 100))


def test_bad_use_says_what_is_wrong(filled: Filled) -> None:
    broker, topic, group = filled
    queue = broker.queue(topic)
    consumer = PullConsumer(group, namesrv_addr=broker.namesrv_addr)
    with pytest.raises(ClientStateError, match="not started"):
        consumer.poll()
    with no_thread_left(), consumer:
        with pytest.raises(ClientStateError, match="started already"):
            consumer.start()
        with pytest.raises(ClientStateError, match=r"neither subscribe\(\) nor assign\(\)"):
            consumer.poll(0.0)
        with pytest.raises(ClientStateError, match="nothing to poll"):
            next(iter(consumer))
        with pytest.raises(ClientStateError, match="not assigned"):
            consumer.seek(queue, 1)
        with pytest.raises(ConfigError, match="no queues"):
            consumer.assign([])
        with pytest.raises(TopicRouteNotFound):
            consumer.queues("no_such_topic")
        consumer.assign([queue])
        assert consumer.assignment() == [queue]
        for bad in (-1, True, "5"):
            with pytest.raises(ConfigError, match="offset"):
                consumer.seek(queue, bad)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="max_messages"):
            consumer.poll(1.0, 0)
        with pytest.raises(ConfigError, match="timeout"):
            consumer.poll(-1.0)
        consumer.unsubscribe()
        with pytest.raises(ClientStateError, match="nothing to poll"):
            consumer.poll_arrow(0.0)
        consumer.subscribe("no_such_topic")  # may come to be
        assert consumer.poll(0.0) == []
    with pytest.raises(TypeError, match="auto_commit"):
        PullConsumer(group, namesrv_addr=broker.namesrv_addr, autocommit=True)
    with pytest.raises(ConfigError, match="on_illegal_offset"):
        PullConsumer(group, namesrv_addr=broker.namesrv_addr, on_illegal_offset="begin")
    with no_thread_left(), pytest.raises(NoNameServer):
        PullConsumer(group, namesrv_addr="127.0.0.1:1", mq_client_api_timeout=500).start()


def test_a_consumer_can_be_started_again(filled: Filled) -> None:
    broker, topic, group = filled
    consumer = PullConsumer(group, namesrv_addr=broker.namesrv_addr, **FIRST)
    consumer.subscribe(topic)
    with no_thread_left():
        with consumer:
            assert len(consumer.poll(10.0, 10)) == 10
        with consumer:
            assert consumer.poll(10.0, 10)[0].queue_offset == 10
    assert broker.committed(group, topic) == {0: 20}
