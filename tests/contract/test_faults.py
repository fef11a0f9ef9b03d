"""Servers that die, freeze, or are not there: consuming goes on by itself and nothing is lost."""

from __future__ import annotations

import threading
import time

import pytest

from rocketmq_fast import ConsumeStatus, MessageExt, RocketMQError
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.errors import NoNameServer, RequestCodeNotSupported
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import SUCCESS, Recorder, assert_once, bodies, consuming, make, releasing
from tests.history import History
from tests.proxy import Cut, Frame, ProxiedCluster
from tests.waiting import wait_for


def test_broker_killed_in_mid_consume(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic, group = broker.topic(2), broker.group()
    history = History()
    history.watch(proxied, group, broker.broker_name)
    gate = threading.Semaphore(100)
    opened = threading.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if not opened.is_set():
            while not gate.acquire(timeout=0.05):
                if opened.is_set():
                    break
        return SUCCESS

    before = bodies(300, "before")
    history.note_sent(broker.send(topic, before, queues=[0, 1]), before)
    recorder = Recorder(history.listener(listen))
    with (
        consuming(
            proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=100
        ) as consumer,
        releasing(opened),
    ):
        recorder.wait(100)
        broker.kill()
        try:
            proxied.broker.cut()  # what the death of the process does to its connections
            proxied.namesrv.cut()
            opened.set()
            wait_for(lambda: consumer.stats()["pull_errors"] > 0, "pulls that fail")
        finally:
            broker.start()
        after = bodies(50, "after")
        history.note_sent(broker.send(topic, after, queues=[0, 1]), after)
        recorder.wait(350, 60)
        wait_for(lambda: broker.committed(group, topic) == {0: 175, 1: 175}, "the commit")
    # The consumer itself lived on: it knows what it has, and asks for nothing twice.
    history.check()
    assert_once(recorder, before + after)


def test_connections_cut_again_and_again(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic, group = broker.topic(3), broker.group()
    history = History()
    history.watch(proxied, group, broker.broker_name)
    sent = bodies(300)
    recorder = Recorder(history.listener())
    with consuming(
        proxied.namesrv_addr,
        group,
        topic,
        recorder,
        pull_batch_size=8,
        pull_time_delay_millis_when_exception=10,
        persist_consumer_offset_interval=20,
    ):
        for start in range(0, 300, 60):
            part = sent[start : start + 60]
            history.note_sent(broker.send(topic, part, queues=range(3)), part)
            recorder.wait(start + 20)
            proxied.broker.cut()
        recorder.wait(300)
    history.check()


def test_answers_cut_in_the_middle(broker: TestBroker, proxied: ProxiedCluster) -> None:
    """Every pull answer is cut somewhere else: what was not whole is pulled again."""
    topic, group = broker.topic(1), broker.group()
    sent = bodies(40, size=100)
    broker.send(topic, sent)
    cuts = iter([0, 1, 3, 4, 5, 8, 9, 60, 200, 700, -1])

    def on_answer(frame: Frame) -> None:
        if frame.code == RequestCode.PULL_MESSAGE and len(frame.raw) > 1000:
            place = next(cuts, None)
            if place is not None:
                raise Cut(frame.raw[:place])

    proxied.broker.on_answer = on_answer
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, pull_time_delay_millis_when_exception=10
    ):
        recorder.wait(40, 60)
    assert next(cuts, None) is None
    assert_once(recorder, sent)
    assert broker.committed(group, topic) == {0: 40}


def test_answers_that_come_byte_by_byte(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic = broker.topic(1)
    sent = bodies(20)

    def on_answer(frame: Frame) -> list[bytes] | None:
        if frame.code != RequestCode.PULL_MESSAGE:
            return None
        return [frame.raw[i : i + 1] for i in range(len(frame.raw))]

    proxied.broker.on_answer = on_answer
    broker.send(topic, sent)
    recorder = Recorder()
    with consuming(proxied.namesrv_addr, broker.group(), topic, recorder):
        recorder.wait(20)
    assert_once(recorder, sent)


def test_frozen_broker_changes_nothing(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic, group = broker.topic(1), broker.group()
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=50
    ):
        broker.send(topic, bodies(10, "one"))
        recorder.wait(10)
        proxied.broker.freeze()
        broker.send(topic, bodies(10, "two"))
        time.sleep(0.5)  # nothing can be waited for: nothing happens
        assert_once(recorder, bodies(10, "one"))
        proxied.broker.thaw()
        recorder.wait(20)
    assert_once(recorder, bodies(10, "one") + bodies(10, "two"))
    assert broker.committed(group, topic) == {0: 20}


def test_no_name_server_is_a_clear_error(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    broker, proxied = embedded_broker, embedded_proxied
    proxied.namesrv.refuse()
    topic = broker.topic(1)
    recorder = Recorder()
    consumer = make(proxied.namesrv_addr, broker.group(), topic, recorder)
    with pytest.raises(NoNameServer, match=proxied.namesrv_addr):
        consumer.start()
    consumer.shutdown()  # nothing to stop, and no error
    # The same consumer works once there is one.
    proxied.namesrv.listen()
    broker.send(topic, [b"x"])
    consumer.start()
    try:
        recorder.wait(1)
    finally:
        consumer.shutdown()


def test_a_brokers_port_is_no_name_server(broker: TestBroker) -> None:
    consumer = make(broker.broker_addr, broker.group(), "any", Recorder())
    with pytest.raises(RequestCodeNotSupported, match="is that a broker") as caught:
        consumer.start()
    assert broker.broker_addr in str(caught.value)


def test_silent_name_server_is_an_error_in_time(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    broker, proxied = embedded_broker, embedded_proxied
    proxied.namesrv.freeze()
    consumer = make(
        proxied.namesrv_addr, broker.group(), broker.topic(1), Recorder(), mq_client_api_timeout=300
    )
    with pytest.raises(RocketMQError, match=r"no answer from .* within 0\.3"):
        consumer.start()


def test_second_name_server_is_asked(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    broker, proxied = embedded_broker, embedded_proxied
    proxied.namesrv.refuse()
    topic = broker.topic(1)
    broker.send(topic, [b"x"])
    recorder = Recorder()
    addresses = f"{proxied.namesrv_addr};{broker.namesrv_addr}"
    with consuming(addresses, broker.group(), topic, recorder):
        recorder.wait(1)


def test_name_server_gone_later_is_not_missed(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic, group = broker.topic(2), broker.group()
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, poll_name_server_interval=100
    ) as consumer:
        broker.send(topic, bodies(10, "one"), queues=[0, 1])
        recorder.wait(10)
        proxied.namesrv.refuse()
        broker.send(topic, bodies(10, "two"), queues=[0, 1])
        recorder.wait(20)
        # A round of rebalancing with the name server away gives nothing up.
        consumer.resume()
        proxied.broker.cut()
        broker.send(topic, bodies(10, "three"), queues=[0, 1])
        recorder.wait(30)
        proxied.namesrv.listen()
    assert broker.committed(group, topic) == {0: 15, 1: 15}


def test_broker_that_comes_later(broker: TestBroker, proxied: ProxiedCluster) -> None:
    proxied.broker.refuse()
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(10), queues=[0, 1])
    if not isinstance(broker.cluster, Cluster):
        broker.cluster.create_group(group)
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr,
        group,
        topic,
        recorder,
        assigned=False,
        heartbeat_broker_interval=600_000,
        poll_name_server_interval=600_000,
    ) as consumer:
        # Longer than what the start itself repeats.
        assert not consumer.wait_assigned(2.5)
        proxied.broker.listen()
        # Not at the next heartbeat.
        recorder.wait(10)
    assert_once(recorder, bodies(10))
