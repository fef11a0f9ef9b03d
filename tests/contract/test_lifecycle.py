"""Start, stop, and what can be changed in between."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter

import pytest

from rocketmq_fast import (
    ClientStateError,
    ConfigError,
    ConsumeStatus,
    MessageExt,
    MessageQueue,
    OrderlyStatus,
    PullConsumer,
    Sql,
)
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.errors import SubscriptionParseFailed
from tests.brokers import TestBroker
from tests.consuming import (
    SUCCESS,
    Recorder,
    assert_once,
    bodies,
    consuming,
    make,
    owned,
    releasing,
)
from tests.waiting import wait_for


def open_files() -> Counter[str]:
    """Kinds of open descriptors: sockets are what matters here."""
    kinds: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        kinds[target.split(":")[0] if ":" in target else "file"] += 1
    return kinds


def client_threads() -> set[str]:
    """Threads of clients; the embedded servers have theirs too."""
    return {
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("rocketmq") and not thread.name.startswith("rocketmq-embedded")
    }


def test_nothing_is_left_after_shutdown(broker: TestBroker) -> None:
    topic = broker.topic(2)
    broker.send(topic, bodies(20), queues=[0, 1])
    gc.collect()
    before, threads = open_files(), client_threads()
    for _ in range(3):
        recorder = Recorder()
        with consuming(broker.namesrv_addr, broker.group(), topic, recorder):
            recorder.wait(20)
            assert client_threads() > threads
    gc.collect()
    wait_for(
        lambda: client_threads() == threads,
        lambda: f"threads to end: {client_threads() - threads}",
    )
    # An embedded broker in this process notices a moment later that its client left.
    wait_for(
        lambda: open_files()["socket"] <= before["socket"],
        lambda: f"sockets to close: {open_files()} after {before}",
    )


def test_consumer_starts_again_after_shutdown(broker: TestBroker) -> None:
    topic, group = broker.topic(2), broker.group()
    recorder = Recorder()
    consumer = make(broker.namesrv_addr, group, topic, recorder)
    for number in range(3):
        consumer.start()
        with pytest.raises(ClientStateError):
            consumer.start()
        broker.send(topic, bodies(10, f"round{number}_"), queues=[0, 1])
        recorder.wait(10 * (number + 1))
        consumer.shutdown()
        consumer.shutdown()
        with pytest.raises(ClientStateError):
            consumer.stats()
    assert len(recorder.seen) == 30
    assert not broker.members(group)


def test_stop_waits_for_the_running_call(broker: TestBroker) -> None:
    """A clean stop: what is in a listener's hands is finished and stored."""
    topic, group = broker.topic(1), broker.group()
    entered, go = threading.Event(), threading.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        entered.set()
        assert go.wait(30.0)
        return SUCCESS

    recorder = Recorder(listen)
    broker.send(topic, bodies(100))
    consumer = make(
        broker.namesrv_addr, group, topic, recorder, consume_thread_min=1, consume_thread_max=1
    )
    consumer.start()
    with releasing(go):
        assert entered.wait(60.0)
        stopper = threading.Thread(target=consumer.shutdown)
        stopper.start()
        assert stopper.is_alive()
        go.set()
        stopper.join(30.0)
    first = recorder.bodies
    assert broker.committed(group, topic) == {0: len(first)}
    again = Recorder()
    with consuming(broker.namesrv_addr, group, topic, again):
        wait_for(lambda: len(first) + len(again.bodies) >= 100, "the rest")
    assert sorted(first + again.bodies) == sorted(bodies(100))


def test_stop_does_not_wait_for_ever(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    go = threading.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].body == b"m3":
            go.wait(60.0)
        return SUCCESS

    recorder = Recorder(listen)
    broker.send(topic, bodies(10))
    consumer = make(
        broker.namesrv_addr,
        group,
        topic,
        recorder,
        await_termination_millis_when_shutdown=200,
    )
    consumer.start()
    with releasing(go):
        recorder.wait(10)
        consumer.shutdown()
        # What was done is stored, what hangs is not.
        assert broker.committed(group, topic) == {0: 3}
    again = Recorder()
    with consuming(broker.namesrv_addr, group, topic, again):
        again.wait(7)
    assert_once(again, bodies(10)[3:])


def test_listener_may_stop_its_consumer(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    stopped = threading.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        consumer.shutdown()
        stopped.set()
        return SUCCESS

    broker.send(topic, [b"stop"])
    consumer = make(broker.namesrv_addr, group, topic, listen)
    consumer.start()
    assert stopped.wait(60.0)
    with pytest.raises(ClientStateError):
        consumer.stats()
    wait_for(lambda: not broker.members(group), "the member to leave")


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_what_is_done_before_a_listener_stops_its_consumer_stays_done(
    embedded_broker: TestBroker, orderly: bool
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    success = OrderlyStatus.SUCCESS if orderly else SUCCESS
    one_thread = {"consume_thread_min": 1, "consume_thread_max": 1, "orderly": orderly}
    stopped = threading.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> object:
        if messages[0].body == b"m20":
            consumer.shutdown()
            stopped.set()
        return success

    broker.send(topic, bodies(30))
    consumer = make(broker.namesrv_addr, group, topic, listen, **one_thread)
    consumer.start()
    assert stopped.wait(60.0)
    again = Recorder(lambda *_: success)
    with consuming(broker.namesrv_addr, group, topic, again, orderly=orderly):
        again.wait(10)
    assert_once(again, bodies(30)[20:])


def test_topics_come_and_go_while_running(broker: TestBroker) -> None:
    first, second, group = broker.topic(2), broker.topic(1), broker.group()
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, first, recorder) as consumer:
        broker.send(first, bodies(10, "first"), queues=[0, 1])
        recorder.wait(10)
        consumer.subscribe(second, "TagA")
        # The last one is wanted: one behind it, not passed yet, would be judged by the next filter.
        broker.send(second, bodies(10, "second"), tags=["TagB", "TagA"])
        recorder.wait(15)
        consumer.unsubscribe(first)
        wait_for(lambda: not owned(consumer, first), "the first topic's queues to go")
        # Its progress was stored at once, not with the next round of commits.
        assert broker.committed(group, first) == {0: 5, 1: 5}
        broker.send(first, [b"unheard"])
        consumer.subscribe(second, "TagB")
        broker.send(second, bodies(10, "third"), tags=["TagA", "TagB"])
        recorder.wait(20)
    wanted = bodies(10, "first") + bodies(10, "second")[1::2] + bodies(10, "third")[1::2]
    assert_once(recorder, wanted)


def test_pause_and_resume(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder) as consumer:
        wait_for(lambda: owned(consumer, topic) == {0, 1}, "both queues")
        quiet = broker.queue(topic, 1)
        consumer.pause(quiet)
        # A pull that is under way when the pause begins may still bring something: once.
        broker.send(topic, [b"wake0", b"wake1"], queues=[0, 1])
        recorder.wait(1)
        pulled = consumer.stats()["queues"][str(quiet)]["next_offset"]
        wait_for(lambda: b"wake0" in recorder.bodies, "the queue that is not paused")
        if pulled == 0:
            wait_for(
                lambda: consumer.stats()["queues"][str(quiet)]["next_offset"] <= 1, "a quiet queue"
            )
        broker.send(topic, bodies(20), queues=[0, 1])
        wait_for(lambda: set(recorder.bodies) >= set(bodies(20)[::2]), "the other queue's")
        assert not set(recorder.bodies) & set(bodies(20)[1::2]) or pulled == 0
        consumer.resume(quiet)
        recorder.wait(22)
        consumer.pause()
        consumer.resume()
        broker.send(topic, [b"last"])
        recorder.wait(23)
    assert len(recorder.seen) == 23


def test_numbers_about_the_consumer(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    go = threading.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].queue_offset == 10:
            assert go.wait(30.0)
        return SUCCESS

    broker.send(topic, bodies(20, size=50), queues=[0])
    recorder = Recorder(listen)
    consumer = make(
        broker.namesrv_addr, group, topic, recorder, consume_thread_min=1, consume_thread_max=1
    )
    with pytest.raises(ClientStateError):
        consumer.lag()
    consumer.start()
    with releasing(go):
        recorder.wait(11)
        queue = broker.queue(topic)
        stats = consumer.stats()
        assert stats["group"] == group
        assert broker.members(group) == [stats["client_id"]]
        assert stats["pulled"] == 20
        assert stats["threads"] == 1
        assert stats["queues"][str(queue)]["next_offset"] == 20
        assert 10 <= stats["queues"][str(queue)]["cached"] <= 20
        assert stats["cached_bytes"] == 50 * stats["cached_messages"]
        lag = consumer.lag()
        assert set(lag) >= {queue, MessageQueue(topic, broker.broker_name, 1)}
        assert 10 <= lag[queue] <= 20
        go.set()
        wait_for(lambda: consumer.lag()[queue] == 0, "no lag")
        assert consumer.stats()["cached_messages"] == 0
        assert consumer.stats()["failed"] == 0
    consumer.shutdown()


def test_sql_filter_on_properties(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    for value in range(6):
        broker.send(topic, [f"a{value}".encode()], properties={"a": str(value)})
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, {topic: Sql("a > 3 AND b IS NULL")}, recorder):
        recorder.wait(2)
        # The pull is parked now: what does not match must not end its wait.
        broker.send(topic, [b"low"], properties={"a": "1"})
        broker.send(topic, [b"late"], properties={"a": "7"})
        recorder.wait(3)
    assert_once(recorder, [b"a4", b"a5", b"late"])


def test_sql_filter_in_pulls(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    for value in range(6):
        broker.send(topic, [f"a{value}".encode()], properties={"a": str(value)})
    with PullConsumer(group, namesrv_addr=broker.namesrv_addr) as consumer:
        (queue,) = consumer.queues(topic)
        consumer.assign([queue], Sql("a BETWEEN 2 AND 3 OR a = '5'"))
        consumer.seek_to_begin(queue)
        found: list[bytes] = []

        def poll() -> bool:
            found.extend(message.body for message in consumer.poll(timeout=0.2))
            return len(found) >= 3

        wait_for(poll, lambda: found)
        assert found == [b"a2", b"a3", b"a5"]


def test_wrong_sql_is_refused(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    consumer = make(broker.namesrv_addr, group, {topic: Sql("a > ")}, Recorder())
    with pytest.raises(SubscriptionParseFailed):
        consumer.start()
    consumer.subscribe(topic, "*")
    with consumer, pytest.raises(SubscriptionParseFailed):
        consumer.subscribe(topic, Sql("a BETWEEN 1"))
    with PullConsumer(group, namesrv_addr=broker.namesrv_addr) as pull:
        queues = pull.queues(topic)
        with pytest.raises(SubscriptionParseFailed):
            pull.assign(queues, Sql("IN"))
        assert pull.assignment() == []


def test_wrong_calls_are_refused(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(1)
    consumer = make(broker.namesrv_addr, broker.group(), topic, Recorder())
    with pytest.raises(ConfigError, match="not callable"):
        consumer.register_listener("no function")  # type: ignore[arg-type]
    for name in ("", " ", "a b", "x" * 128):
        with pytest.raises(ConfigError):
            consumer.subscribe(name)
    with pytest.raises(ClientStateError):
        consumer.wait_assigned(0.0)
    with consumer, pytest.raises(ClientStateError):
        consumer.register_listener(Recorder())


def test_one_client_id_holds_a_group_once(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    recorder = Recorder()
    name = broker.name("client")
    with consuming(broker.namesrv_addr, group, topic, recorder, instance_name=name) as consumer:
        with pytest.raises(ConfigError, match=group):
            make(broker.namesrv_addr, group, topic, recorder, instance_name=name).start()
        # Another group shares the client, and its end leaves the first alone.
        other = Recorder()
        with consuming(
            broker.namesrv_addr, broker.group(), topic, other, instance_name=name
        ) as second:
            assert second.stats()["client_id"] == consumer.stats()["client_id"]
            broker.send(topic, bodies(10), queues=[0, 1])
            recorder.wait(10)
            other.wait(10)
        broker.send(topic, bodies(10, "more"), queues=[0, 1])
        recorder.wait(20)
    assert len(other.seen) == 10
