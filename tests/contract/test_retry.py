"""Messages that a listener refuses: they come back, and end as dead letters."""

from __future__ import annotations

import logging
import sys

import pytest

from rocketmq_fast import ConsumeStatus, MessageExt, encode_frame
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from tests.brokers import TestBroker
from tests.consuming import LATER, SUCCESS, Recorder, bodies, consuming, dead_letters
from tests.proxy import Frame, ProxiedCluster, answer_with
from tests.waiting import wait_for

RETRY = "%RETRY%"
DLQ = "%DLQ%"


def refuse_first(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
    """Refuse what is new, take what comes again."""
    return LATER if any(message.reconsume_times == 0 for message in messages) else SUCCESS


def test_refused_message_comes_back_as_itself(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    results = broker.send(topic, bodies(5), tags="TagA", properties={"KEYS": "k1", "mine": "x"})
    recorder = Recorder(refuse_first)
    with consuming(
        broker.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=100
    ):
        recorder.wait_deliveries(10)
        # Sent back is taken care of: the commit does not wait for the retry.
        wait_for(lambda: broker.committed(group, topic) == {0: 5}, "the commit to pass")
    for body, result in zip(bodies(5), results, strict=True):
        first, second = recorder.of(body)
        assert (first.reconsume_times, second.reconsume_times) == (0, 1)
        assert first.queue.topic == topic
        assert second.queue.topic == RETRY + group
        # The listener is told the topic that the message was sent to.
        assert first.topic == second.topic == topic
        assert second.properties["RETRY_TOPIC"] == topic
        assert second.properties["mine"] == "x"
        assert (second.tags, second.message.keys) == ("TagA", "k1")
        assert first.msg_id == second.msg_id == result.msg_id
    assert broker.committed(group, RETRY + group) == {0: 5}


def test_message_that_never_succeeds_is_dead_after_its_retries(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, [b"poison", b"good"])

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].body == b"poison":
            raise ValueError("poison")
        return SUCCESS

    recorder = Recorder(listen)
    with consuming(broker.namesrv_addr, group, topic, recorder, max_reconsume_times=2):
        recorder.wait_deliveries(4)
        dead = dead_letters(broker, group, 1)
    assert [seen.reconsume_times for seen in recorder.of(b"poison")] == [0, 1, 2]
    assert len(recorder.of(b"good")) == 1
    assert caplog.text.count("retrying later") == 2
    assert caplog.text.count("moving to the dead letters") == 1
    assert caplog.text.count("went to the dead letters after 3 deliveries") == 1
    # One copy, and nothing else.
    assert dead.bodies == [b"poison"]
    assert broker.max_offset(DLQ + group, 0) == 1
    assert dead.seen[0].properties["RETRY_TOPIC"] == topic


def test_listener_may_ask_for_the_dead_letters_at_once(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(3))

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        context.delay_level_when_next_consume = -1
        return LATER if messages[0].body == b"m1" else SUCCESS

    recorder = Recorder(listen)
    with consuming(broker.namesrv_addr, group, topic, recorder):
        recorder.wait(3)
        assert dead_letters(broker, group, 1).bodies == [b"m1"]
    assert len(recorder.seen) == 3


def test_ack_index_splits_a_batch(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(4))

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        if messages[0].reconsume_times == 0:
            context.ack_index = 1
        return SUCCESS

    recorder = Recorder(listen)
    with consuming(
        broker.namesrv_addr, group, topic, recorder, consume_message_batch_max_size=4
    ) as consumer:
        recorder.wait_deliveries(6)
        assert consumer.stats()["failed"] == 2
    again = [seen.body for seen in recorder.seen if seen.reconsume_times == 1]
    assert sorted(again) == [b"m2", b"m3"]
    assert recorder.batches[0] == 4
    assert broker.committed(group, topic) == {0: 4}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda: 1 // 0, "division by zero"),
        (lambda: sys.exit(3), "SystemExit"),
        (lambda: None, "returned None"),
        (lambda: True, "returned True"),
        (lambda: "CONSUME_SUCCESS", "returned 'CONSUME_SUCCESS'"),
    ],
    ids=["error", "exit", "none", "true", "text"],
)
def test_whatever_is_no_success_means_later(
    embedded_broker: TestBroker, caplog: pytest.LogCaptureFixture, answer: object, text: str
) -> None:
    broker = embedded_broker
    assert callable(answer)
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, [b"one", b"two"])
    recorder = Recorder(
        lambda messages, _: answer() if messages[0].reconsume_times == 0 else SUCCESS
    )
    with (
        caplog.at_level(logging.ERROR, "rocketmq_fast"),
        consuming(broker.namesrv_addr, group, topic, recorder),
    ):
        recorder.wait_deliveries(4)
    assert [seen.reconsume_times for seen in recorder.of(b"one")] == [0, 1]
    assert [seen.reconsume_times for seen in recorder.of(b"two")] == [0, 1]
    assert broker.committed(group, topic) == {0: 2}
    # Which message it was, and why.
    assert text in caplog.text
    assert topic in caplog.text


def test_message_is_sent_back_by_hand(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, [b"by hand"])
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder) as consumer:
        (seen,) = recorder.wait_deliveries(1)
        consumer.send_message_back(seen.message, 1)
        _, second = recorder.wait_deliveries(2)
    assert (second.body, second.reconsume_times, second.topic) == (b"by hand", 1, topic)


def test_send_back_that_fails_becomes_a_send(broker: TestBroker, proxied: ProxiedCluster) -> None:
    """The broker refuses to copy the message itself: its body goes to the retry topic."""
    topic, group = broker.topic(1), broker.group()
    refused = []

    def on_answer(frame: Frame) -> bytes | None:
        if frame.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            refused.append(frame)
            return answer_with(frame, ResponseCode.SYSTEM_ERROR)
        return None

    def on_request(frame: Frame) -> bytes | None:
        # The real broker must not see it, or the message would come twice.
        if frame.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            frame.command.ext_fields["offset"] = str(1 << 40)
            return encode_frame(frame.command)
        return None

    proxied.broker.on_answer = on_answer
    proxied.broker.on_request = on_request
    broker.send(topic, [b"body"], tags="TagA", properties={"mine": "x"})
    recorder = Recorder(refuse_first)
    with consuming(
        proxied.namesrv_addr,
        group,
        topic,
        recorder,
        max_reconsume_times=7,
        persist_consumer_offset_interval=100,
    ):
        recorder.wait_deliveries(2)
        wait_for(lambda: broker.committed(group, topic) == {0: 1}, "the commit to pass")
    assert refused
    first, second = recorder.seen
    assert (second.topic, second.reconsume_times, second.body) == (topic, 1, b"body")
    assert (second.tags, second.properties["mine"]) == ("TagA", "x")
    assert second.msg_id == first.msg_id
    assert second.queue.topic == RETRY + group


def test_message_that_cannot_be_given_back_is_tried_here(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither way works: the commit stays below the message until a local retry succeeds."""
    broker, proxied = embedded_broker, embedded_proxied
    monkeypatch.setattr("rocketmq_fast.consumer.concurrent._LOCAL_RETRY_SECONDS", 0.3)
    topic, group = broker.topic(1), broker.group()
    codes = {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2}

    def on_request(frame: Frame) -> bytes | None:
        if frame.code not in codes:
            return None
        frame.command.code = 9999  # no broker knows this one
        return encode_frame(frame.command)

    proxied.broker.on_request = on_request
    broker.send(topic, bodies(6))
    committed: list[dict[int, int]] = []

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].body != b"m2":
            return SUCCESS
        committed.append(broker.committed(group, topic))
        return LATER if messages[0].reconsume_times < 2 else SUCCESS

    recorder = Recorder(listen)
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=50
    ):
        recorder.wait_deliveries(8)
    assert [seen.reconsume_times for seen in recorder.of(b"m2")] == [0, 1, 2]
    assert {seen.queue.topic for seen in recorder.of(b"m2")} == {topic}
    assert all(table.get(0, 0) <= 2 for table in committed), committed
    assert broker.committed(group, topic) == {0: 6}
