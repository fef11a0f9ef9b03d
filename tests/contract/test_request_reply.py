"""Request and reply: the reply comes to the client that asked, and only while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rocketmq_fast import (
    BrokerError,
    ClientStateError,
    ConfigError,
    ConsumeStatus,
    Message,
    MessageExt,
    Producer,
    ReplyTimeout,
    SendError,
    create_reply_message,
    select_by_hash,
)
from tests.apache.java import run_java
from tests.brokers import TestBroker
from tests.consuming import consuming
from tests.require import require
from tests.waiting import wait_for

SECONDS = 30.0
Answer = Callable[[MessageExt], bytes]


class Answerer:
    """A listener that answers every request."""

    def __init__(self, producer: Producer, answer: Answer | None = None) -> None:
        self._producer = producer
        self._answer = answer or (lambda message: b"re: " + message.body)
        self.requests: list[MessageExt] = []

    def __call__(self, messages: list[MessageExt], _: Any) -> ConsumeStatus:
        for message in messages:
            self.requests.append(message)
            self._producer.send(create_reply_message(message, self._answer(message)))
        return ConsumeStatus.CONSUME_SUCCESS


def producer_of(broker: TestBroker, **options: Any) -> Producer:
    return Producer(broker.group(), namesrv_addr=broker.namesrv_addr, **options)


def test_a_request_gets_its_reply(broker: TestBroker) -> None:
    topic = broker.topic()
    with producer_of(broker) as asking, producer_of(broker) as answering:
        answerer = Answerer(answering)
        with consuming(broker.namesrv_addr, broker.group(), topic, answerer):
            reply = asking.request(Message(topic, b"one", tags="A", keys="k"), SECONDS)
            assert reply.body == b"re: one"
            future = asking.request_async(Message(topic, b"two"), timeout=SECONDS)
            assert future.result(SECONDS).body == b"re: two"
            chosen = asking.request(
                Message(topic, b"three"), SECONDS, selector=select_by_hash, arg="key"
            )
            assert chosen.body == b"re: three"
    request = answerer.requests[0]
    assert (request.body, request.tags, request.keys) == (b"one", "A", "k")
    asked, told = request.properties, reply.properties
    assert asked["TTL"] == str(int(SECONDS * 1000))
    for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"):
        assert told[name] == asked[name]
    assert told["MSG_TYPE"] == "reply"
    assert int(told["ARRIVE_TIME"]) >= int(told["PUSH_REPLY_TIME"]) - 1000
    assert reply.topic == f"{asked['CLUSTER']}_REPLY_TOPIC"
    assert reply.born_host[0] == reply.store_host[0] == "127.0.0.1"
    assert reply.store_host[1] == int(broker.broker_addr.rpartition(":")[2])


def test_many_requests_at_once_get_their_own_replies(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic()
    with (
        producer_of(broker) as asking,
        producer_of(broker) as answering,
        consuming(broker.namesrv_addr, broker.group(), topic, Answerer(answering)),
    ):
        futures = {
            b"%d" % i: asking.request_async(Message(topic, b"%d" % i), timeout=SECONDS)
            for i in range(200)
        }
        for body, future in futures.items():
            assert future.result(SECONDS + 5).body == b"re: " + body


@pytest.mark.parametrize("codec", ["ZLIB", "LZ4", "ZSTD"])
def test_large_bodies_are_compressed_both_ways(broker: TestBroker, codec: str) -> None:
    topic, body = broker.topic(), b"x" * 100_000
    with (
        producer_of(broker, compress_type=codec) as asking,
        producer_of(broker, compress_type=codec) as answering,
        consuming(broker.namesrv_addr, broker.group(), topic, Answerer(answering)),
    ):
        assert asking.request(Message(topic, body), SECONDS).body == b"re: " + body


def test_no_reply_in_time_is_an_error_of_its_own(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic()
    with producer_of(broker) as asking:
        with pytest.raises(ReplyTimeout, match=topic):
            asking.request(Message(topic, b"nobody is there"), 0.7)
        with pytest.raises(ReplyTimeout):
            asking.request_async(Message(topic, b"x"), timeout=0.3).result(SECONDS)
        # The request itself was stored.
        wait_for(lambda: sum(broker.max_offset(topic, q) for q in range(4)) == 2, "two requests")


def test_a_late_reply_harms_nobody(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, late = broker.topic(), threading.Event()

    def answer(message: MessageExt) -> bytes:
        if message.body == b"slow":
            assert late.wait(SECONDS)
        return b"re: " + message.body

    with producer_of(broker) as asking, producer_of(broker) as answering:
        answerer = Answerer(answering, answer)
        with consuming(broker.namesrv_addr, broker.group(), topic, answerer):
            with pytest.raises(ReplyTimeout):
                asking.request(Message(topic, b"slow"), 1.0)
            late.set()
            assert asking.request(Message(topic, b"next"), SECONDS).body == b"re: next"


def test_a_reply_to_a_client_that_is_gone_fails(broker: TestBroker) -> None:
    topic, asked, gone = broker.topic(), threading.Event(), threading.Event()
    failures: list[Exception] = []

    with producer_of(broker) as answering:

        def listener(messages: list[MessageExt], _: Any) -> ConsumeStatus:
            asked.set()
            assert gone.wait(SECONDS)
            try:
                answering.send(create_reply_message(messages[0], b"too late"))
            except (SendError, BrokerError) as error:
                failures.append(error)
            return ConsumeStatus.CONSUME_SUCCESS

        with consuming(broker.namesrv_addr, broker.group(), topic, listener):
            with producer_of(broker) as asking:
                future = asking.request_async(Message(topic, b"x"), timeout=SECONDS)
                assert asked.wait(SECONDS)
            with pytest.raises(ClientStateError):
                future.result(SECONDS)
            gone.set()
            wait_for(lambda: failures, "the failure of the reply")


def test_an_ordinary_message_cannot_be_answered(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(1)
    seen: list[Exception] = []

    def listener(messages: list[MessageExt], _: Any) -> ConsumeStatus:
        try:
            create_reply_message(messages[0], b"x")
        except ConfigError as error:
            seen.append(error)
        return ConsumeStatus.CONSUME_SUCCESS

    broker.send(topic, [b"plain"])
    with consuming(broker.namesrv_addr, broker.group(), topic, listener):
        wait_for(lambda: seen, "the refusal")
    assert "CORRELATION_ID" in str(seen[0])


@pytest.mark.java
def test_java_answers(broker: TestBroker) -> None:
    require("java")
    topic = broker.topic()
    arguments = {
        "namesrv": broker.namesrv_addr, "topic": topic, "group": broker.group(), "count": 5,
        "mode": "answer",
    }  # fmt: skip
    with ThreadPoolExecutor(1) as pool, producer_of(broker) as asking:
        running = pool.submit(run_java, "RequestReply", arguments, 240.0)
        replies = [asking.request(Message(topic, b"ask-%d" % i), 60.0) for i in range(5)]
        assert running.result(240.0) == {"answered": 5}
    assert [reply.body for reply in replies] == [b"re: ask-%d" % i for i in range(5)]


@pytest.mark.java
def test_java_asks(broker: TestBroker) -> None:
    require("java")
    topic, group = broker.topic(), broker.group()
    with producer_of(broker) as answering:
        answerer = Answerer(answering)
        with consuming(broker.namesrv_addr, group, topic, answerer):
            said = run_java(
                "RequestReply",
                {"namesrv": broker.namesrv_addr, "topic": topic, "group": group, "count": 5,
                 "mode": "ask"},
                240.0,
            )  # fmt: skip
    assert [reply["body"] for reply in said["replies"]] == [f"re: ask-{i}" for i in range(5)]
    for reply, request in zip(said["replies"], answerer.requests, strict=True):
        wanted = request.properties["CORRELATION_ID"]
        assert reply["properties"]["CORRELATION_ID"] == wanted
