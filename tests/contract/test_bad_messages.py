"""A message whose bytes are damaged on the way: the others are delivered, the policy decides."""

from __future__ import annotations

import pytest

from rocketmq_fast import ConfigError, PushConsumer
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import Recorder, assert_once, bodies, consuming, make
from tests.proxy import Frame, ProxiedCluster
from tests.waiting import wait_for

BAD = b"m5".ljust(64, b".")


def damage(cluster: ProxiedCluster, kind: str) -> list[int]:
    """Damage the bad message in every pull answer; the list grows with each."""
    found: list[int] = []

    def on_answer(frame: Frame) -> bytes | None:
        if frame.code != RequestCode.PULL_MESSAGE or BAD not in frame.raw:
            return None
        found.append(1)
        raw = bytearray(frame.raw)
        body = raw.index(BAD)
        # Before the body: 84 bytes of fixed fields with IPv4 hosts, and the body's length.
        start = body - 88
        if kind == "body":
            raw[body + 10] ^= 0xFF
        elif kind == "size":
            raw[start : start + 4] = (0).to_bytes(4, "big")
        elif kind == "body length":
            raw[body - 4 : body] = (2**31 - 1).to_bytes(4, "big")
        else:
            raise ValueError(kind)
        return bytes(raw)

    cluster.broker.on_answer = on_answer
    return found


@pytest.mark.parametrize("kind", ["body", "size", "body length"])
def test_held_message_keeps_the_commit_below_it(
    broker: TestBroker, proxied: ProxiedCluster, kind: str
) -> None:
    topic, group = broker.topic(1), broker.group()
    sent = bodies(20, size=64)
    broker.send(topic, sent)
    damaged = damage(proxied, kind)
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=20
    ) as consumer:
        recorder.wait(19)
        wait_for(lambda: broker.committed(group, topic) == {0: 5}, "the commit of 5")
        broker.send(topic, [b"more"])
        recorder.wait(20)
        assert consumer.stats()["undecodable"] == 1
    assert damaged
    assert BAD not in recorder.bodies
    assert broker.committed(group, topic) == {0: 5}
    # Whoever comes next, with a sound connection, gets it.
    again = Recorder()
    with consuming(broker.namesrv_addr, group, topic, again):
        again.wait(16)
    assert_once(again, [*sent[5:], b"more"])
    assert broker.committed(group, topic) == {0: 21}


def test_skipped_message_counts_as_consumed(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic, group = broker.topic(1), broker.group()
    sent = bodies(20, size=64)
    broker.send(topic, sent)
    assert not damage(proxied, "body")
    recorder = Recorder()
    with consuming(proxied.namesrv_addr, group, topic, recorder, on_bad_message="skip") as consumer:
        recorder.wait(19)
        assert consumer.stats()["undecodable"] == 1
    assert_once(recorder, [body for body in sent if body != BAD])
    assert broker.committed(group, topic) == {0: 20}


def test_dead_letter_has_the_bytes_of_the_broker(
    broker: TestBroker, proxied: ProxiedCluster
) -> None:
    topic, group = broker.topic(1), broker.group()
    sent = bodies(20, size=64)
    broker.send(topic, sent)
    damage(proxied, "body")
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr,
        group,
        topic,
        recorder,
        on_bad_message="dead_letter",
        persist_consumer_offset_interval=20,
    ):
        recorder.wait(19)
        dead = Recorder()
        with consuming(
            broker.namesrv_addr,
            broker.group(),
            f"%DLQ%{group}",
            dead,
            assigned=False,
            poll_name_server_interval=200,
        ):
            dead.wait(1)
        broker.send(topic, [b"more"])
        wait_for(lambda: broker.committed(group, topic) == {0: 21}, "the commit to pass")
    # The broker's own copy, which is sound.
    assert dead.bodies == [BAD]
    assert BAD not in recorder.bodies


def test_everything_damaged_is_held_too(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    """A pull with nothing but damaged messages: the commit must not pass them at the end."""
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, [BAD])
    damage(proxied, "body")
    recorder = Recorder()
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=20
    ) as consumer:
        wait_for(lambda: consumer.stats()["undecodable"] == 1, "the damaged message")
        broker.send(topic, [b"good"])
        recorder.wait(1)
    assert broker.committed(group, topic).get(0, 0) == 0
    again = Recorder()
    with consuming(broker.namesrv_addr, group, topic, again):
        again.wait(2)


def test_unchecked_crc_delivers_what_came(broker: TestBroker, proxied: ProxiedCluster) -> None:
    topic = broker.topic(1)
    broker.send(topic, [BAD])
    damage(proxied, "body")
    recorder = Recorder()
    with consuming(proxied.namesrv_addr, broker.group(), topic, recorder, check_crc=False):
        (seen,) = recorder.wait(1)
    assert seen.body != BAD
    assert len(seen.body) == len(BAD)


def test_policy_is_one_of_three() -> None:
    consumer = make("127.0.0.1:1", "group", "topic", Recorder(), on_bad_message="skip")
    assert isinstance(consumer, PushConsumer)
    with pytest.raises(ConfigError, match="hold, skip, dead_letter"):
        make("127.0.0.1:1", "group", "topic", Recorder(), on_bad_message="ignore")
