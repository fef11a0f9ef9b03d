"""What a producer does when brokers refuse, vanish or stay silent: scripted brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_fast import Message, MessageQueue, Producer, SendError, SendStatus
from rocketmq_fast._core import decode_properties
from rocketmq_fast.errors import (
    BrokerError,
    BrokerSystemError,
    ConnectError,
    ConnectionClosed,
    MessageIllegal,
    RequestTimeout,
    SystemBusy,
    TopicNotExist,
)
from rocketmq_fast.producer.in_flight import InFlight
from rocketmq_fast.producer.selectors import RoundRobin
from tests.scripted_cluster import ScriptedCluster, close, ignore

WAIT = 30.0
MESSAGE = Message("T", b"body")


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as running:
        yield running


def started(cluster: ScriptedCluster, **options: Any) -> Producer:
    return Producer("PG", namesrv_addr=cluster.namesrv_addr, **options)


def script(cluster: ScriptedCluster, *steps: Any) -> None:
    """The same steps for every broker."""
    for broker in cluster.brokers.values():
        broker.steps.extend(steps)


def brokers_of(cluster: ScriptedCluster) -> list[str]:
    return [name for name, _ in cluster.sends]


def test_the_request_has_the_fields_of_the_java_client(cluster: ScriptedCluster) -> None:
    options = {"default_topic_queue_nums": 3, "create_topic_key": "TBW102"}
    with started(cluster, **options) as producer:
        result = producer.send(Message("T", b"x", tags="A", flag=3, delay_time_level=2))
        producer.send_batch([MESSAGE, MESSAGE], queue=result.message_queue)
    (_, single), (_, batch) = sorted(cluster.sends, key=lambda item: item[1].code)
    fields = dict(single.ext_fields)
    assert single.code == 310
    assert decode_properties(fields.pop("i").encode()) == {
        "TAGS": "A", "DELAY": "2", "WAIT": "true", "UNIQ_KEY": result.msg_id,
    }  # fmt: skip
    assert fields.pop("g").isdigit()
    assert fields == {
        "a": "PG", "b": "T", "c": "TBW102", "d": "3", "e": str(result.message_queue.queue_id),
        "f": "0", "h": "3", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    assert batch.code == 320
    assert (batch.ext_fields["m"], batch.ext_fields["i"]) == ("true", "WAIT\x01true")
    assert any(b"PG" in h.body for b in cluster.brokers.values() for h in b.heartbeats)


@pytest.mark.parametrize("code", [1, 14, 16, 17, 204, 205])
def test_a_retried_answer_leads_to_another_broker(cluster: ScriptedCluster, code: int) -> None:
    with started(cluster) as producer:
        for broker in cluster.brokers.values():
            broker.steps.append(code)
            assert producer.send(MESSAGE).status is SendStatus.SEND_OK
            broker.steps.clear()
    for request, again in zip(cluster.sends[:-1], cluster.sends[1:], strict=True):
        assert request[1].body == again[1].body


def test_the_same_message_is_sent_again(cluster: ScriptedCluster) -> None:
    script(cluster, 1)
    with started(cluster) as producer:
        result = producer.send(MESSAGE)
    assert sorted(brokers_of(cluster)) in (["a", "a", "b"], ["a", "b", "b"])
    ids = {decode_properties(r.ext_fields["i"].encode())["UNIQ_KEY"] for _, r in cluster.sends}
    assert ids == {result.msg_id}


def test_all_attempts_fail(cluster: ScriptedCluster) -> None:
    script(cluster, 1, 1, 1)
    with started(cluster) as producer, pytest.raises(SendError) as error:
        producer.send(MESSAGE)
    assert "for topic 'T' was not sent in 3 attempts" in str(error.value)
    assert [type(cause) for cause in error.value.causes] == [BrokerSystemError] * 3
    assert error.value.__cause__ is error.value.causes[-1]
    assert error.value.retriable
    assert len(cluster.sends) == 3


@pytest.mark.parametrize(
    ("code", "kind"), [(13, MessageIllegal), (2, SystemBusy), (999, BrokerError)]
)
def test_other_answers_are_raised_at_once(
    cluster: ScriptedCluster, code: int, kind: type[Exception]
) -> None:
    script(cluster, code)
    with started(cluster) as producer, pytest.raises(kind, match=f"code {code}.*as scripted"):
        producer.send(MESSAGE)
    assert len(cluster.sends) == 1


def test_the_user_can_add_codes(cluster: ScriptedCluster) -> None:
    script(cluster, 2)
    with started(cluster, retry_response_codes={2}) as producer:
        producer.send(MESSAGE)
        script(cluster, 1)
        with pytest.raises(BrokerSystemError):
            producer.send(MESSAGE)


def test_the_number_of_attempts(cluster: ScriptedCluster) -> None:
    script(cluster, *[1] * 10)
    for retries, text in ((4, "5 attempts"), (0, "1 attempt:")):
        with (
            started(cluster, retry_times_when_send_failed=retries) as producer,
            pytest.raises(SendError, match=text),
        ):
            producer.send(MESSAGE)
    assert len(cluster.sends) == 6


def test_a_chosen_queue_is_the_only_one(cluster: ScriptedCluster) -> None:
    script(cluster, 1, close)
    with started(cluster) as producer:
        queue = producer.queues("T")[0]
        with pytest.raises(BrokerSystemError):
            producer.send(MESSAGE, queue=queue)
        with pytest.raises(SendError, match="1 attempt:") as error:
            producer.send(MESSAGE, selector=lambda queues, *_: queues[0])
    assert isinstance(error.value.causes[0], ConnectionClosed)
    assert brokers_of(cluster) == [queue.broker_name] * 2


def test_a_closed_connection_leads_to_another_attempt(cluster: ScriptedCluster) -> None:
    script(cluster, close)
    with started(cluster) as producer:
        assert producer.send(MESSAGE).status is SendStatus.SEND_OK
        script(cluster, close)
        assert producer.send_async(MESSAGE).result(WAIT).status is SendStatus.SEND_OK
        script(cluster, close, close, close)
        with pytest.raises(SendError) as error:
            producer.send_async(MESSAGE).result(WAIT)
    assert {type(c) for c in error.value.causes} == {ConnectionClosed}
    assert len(error.value.causes) == 3


def test_async_does_not_retry_what_a_broker_refused(cluster: ScriptedCluster) -> None:
    script(cluster, 1)
    with started(cluster) as producer:
        seen: list[Any] = []
        with pytest.raises(BrokerSystemError):
            producer.send_async(MESSAGE, lambda *args: seen.append(args)).result(WAIT)
    assert [(r, type(e)) for r, e in seen] == [(None, BrokerSystemError)]
    assert len(cluster.sends) == 1


def test_a_silent_broker_uses_up_the_timeout(cluster: ScriptedCluster) -> None:
    script(cluster, *[ignore] * 6)
    with started(cluster, send_msg_timeout=300) as producer:
        for _ in range(2):
            with pytest.raises(SendError) as error:
                producer.send(MESSAGE)
            assert isinstance(error.value.causes[0], RequestTimeout)
            with pytest.raises(SendError) as error:
                producer.send_async(MESSAGE, timeout=0.25).result(WAIT)
            assert isinstance(error.value.causes[0], RequestTimeout)
    # One timeout for all attempts: no second request was sent.
    assert len(cluster.sends) == 4


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_stored_but_not_everywhere_is_a_result(
    cluster: ScriptedCluster, code: int, status: SendStatus
) -> None:
    script(cluster, code)
    with started(cluster) as producer:
        assert producer.send(MESSAGE).status is status
    assert len(cluster.sends) == 1


def test_another_broker_when_not_stored_everywhere(cluster: ScriptedCluster) -> None:
    script(cluster, 11)
    with started(cluster, retry_another_broker_when_not_store_ok=True) as producer:
        assert producer.send(MESSAGE).status is SendStatus.SEND_OK
        assert len(cluster.sends) == 3
        script(cluster, 11, 11, 11)
        assert producer.send(MESSAGE).status is SendStatus.SLAVE_NOT_AVAILABLE
        # Stored once is stored, whatever the attempts after that say.
        for broker in cluster.brokers.values():
            broker.steps.clear()
        script(cluster, 11)
        cluster.brokers["a"].steps.extend([1, 1])
        cluster.brokers["b"].steps.extend([1, 1])
        assert producer.send(MESSAGE).status is SendStatus.SLAVE_NOT_AVAILABLE


def test_a_missing_topic_has_its_route_refreshed(cluster: ScriptedCluster) -> None:
    cluster.topics["T"] = ["a"]
    with started(cluster) as producer:
        producer.send(MESSAGE)
        cluster.topics["T"] = ["b"]
        cluster.brokers["a"].steps.append(17)
        assert producer.send(MESSAGE).message_queue.broker_name == "b"
        cluster.brokers["b"].steps.append(17)
        with pytest.raises(TopicNotExist):
            producer.send(MESSAGE, queue=MessageQueue("T", "b", 0))


def test_a_broker_that_went_away_is_left_out(cluster: ScriptedCluster) -> None:
    cluster.topics["T"] = ["a"]
    with started(cluster) as producer:
        producer.send(MESSAGE)
        cluster.stop_brokers("a")
        cluster.topics["T"] = ["b"]
        assert producer.send(MESSAGE).message_queue.broker_name == "b"


def test_a_queue_of_an_unknown_broker_is_looked_up(cluster: ScriptedCluster) -> None:
    cluster.topics["TBW102"] = ["a"]
    cluster.topics["U"] = ["b"]
    with started(cluster) as producer:
        queue = MessageQueue("U", "b", 1)
        assert producer.send(Message("U", b"1"), queue=queue).message_queue == queue
        queue = MessageQueue("U", "nowhere", 1)
        with pytest.raises(SendError, match="nowhere"):
            producer.send(Message("U", b"1"), queue=queue)
        with pytest.raises(SendError, match="nowhere"):
            producer.send_async(Message("U", b"1"), queue=queue).result(WAIT)


def test_nobody_listens(cluster: ScriptedCluster) -> None:
    with started(cluster) as producer:
        producer.queues("T")
        cluster.stop_brokers("a", "b")
        with pytest.raises(SendError) as error:
            producer.send(MESSAGE)
        assert any(isinstance(cause, ConnectError) for cause in error.value.causes)
        with pytest.raises(SendError):
            producer.send_async(MESSAGE).result(WAIT)
        producer.send_oneway(MESSAGE)  # nobody learns


def test_the_route_of_a_new_topic_is_that_of_the_template(cluster: ScriptedCluster) -> None:
    cluster.topics["Template"] = ["b"]
    with started(cluster, create_topic_key="Template", default_topic_queue_nums=1) as producer:
        assert producer.queues("New") == [MessageQueue("New", "b", 0)]
        producer.send(Message("New", b"1"))
    (request,) = cluster.brokers["b"].sends
    assert (request.ext_fields["c"], request.ext_fields["d"]) == ("Template", "1")


def test_oneway_is_sent_once_and_has_its_flag(cluster: ScriptedCluster) -> None:
    with started(cluster) as producer:
        queue = producer.queues("T")[0]
        producer.send_oneway(MESSAGE, queue=queue)
        producer.send(MESSAGE, queue=queue)
    first, second = cluster.brokers[queue.broker_name].sends
    assert (first.is_oneway, second.is_oneway) == (True, False)


# ------------------------------------------------------------------------------ units of it


def test_turns_avoid_a_broker_if_they_can() -> None:
    queues = [MessageQueue("T", name, i) for name in "ab" for i in range(3)]
    turn = RoundRobin()
    assert {turn.choose(queues, "a").broker_name for _ in range(20)} == {"b"}
    assert {turn.choose(queues[:3], "a").broker_name for _ in range(20)} == {"a"}
    assert {turn.choose(queues) for _ in range(6)} == set(queues)


def test_in_flight_counts_and_blocks() -> None:
    gate = InFlight(4, 1000)
    gate.acquire(5000, wait=True)  # alone it may be larger than the limit
    gate.release(5000)
    for _ in range(4):
        gate.acquire(10, wait=True)
    gate.acquire(10, wait=False)  # the event loop's thread must not wait
    assert gate.count == 5
    entered = threading.Event()

    def enter() -> None:
        gate.acquire(900, wait=True)
        entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    for _ in range(5):
        assert not entered.is_set()
        gate.release(10)
    assert entered.wait(WAIT)
    thread.join(WAIT)
    assert gate.count == 1
    assert not gate.wait_empty(0.01)
    gate.release(900)
    assert gate.wait_empty(WAIT)
