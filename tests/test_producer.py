"""The producer against the embedded cluster: what is sent arrives as it was meant."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from itertools import pairwise
from typing import Any

import pytest

import rocketmq_fast as rmq
from rocketmq_fast import Message, MessageExt, MessageQueue, Producer, SendStatus
from rocketmq_fast._core import decode_messages
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.errors import (
    ClientStateError,
    ConfigError,
    MessageEncodeError,
    MessageTooLarge,
    NoNameServer,
    RocketMQError,
    TopicRouteNotFound,
)
from rocketmq_fast.protocol.codes import COMPRESSION_TYPE_MASK
from tests.embedded_raw import Raw, pull_fields

WAIT = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(delay_levels="1s 1s") as running:
        yield running


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[Producer]:
    with Producer("PG", namesrv_addr=cluster.namesrv_addr) as running:
        yield running


def stored(cluster: Cluster, topic: str, queues: int = 4) -> list[MessageExt]:
    """All messages of a topic, queue by queue."""
    found: list[MessageExt] = []
    with Raw(cluster.broker_addr) as raw:
        for queue in range(queues):
            offset = 0
            while True:
                answer = raw.call(11, pull_fields(topic, queue, offset))
                if answer.code != 0:
                    break
                found += decode_messages(answer.body, check_crc=True)
                offset = int(answer.ext_fields["nextBeginOffset"])
    return found


def test_a_message_arrives_with_all_its_parts(cluster: Cluster, producer: Producer) -> None:
    message = Message(
        "Parts", b"\x00body\xff", tags="TagA", keys=["k1", "k2"],
        properties={"grüße": "né 中文 🚀"}, flag=7,
    )  # fmt: skip
    result = producer.send(message)
    assert result.status is SendStatus.SEND_OK
    (found,) = stored(cluster, "Parts")
    assert (found.topic, found.body, found.flag) == ("Parts", b"\x00body\xff", 7)
    assert (found.tags, found.keys) == ("TagA", "k1 k2")
    assert found.properties["grüße"] == "né 中文 🚀"
    assert found.properties["UNIQ_KEY"] == result.msg_id == found.msg_id
    assert found.offset_msg_id == result.offset_msg_id
    assert result.message_queue == MessageQueue("Parts", cluster.broker_name, found.queue_id)
    assert found.queue_offset == result.queue_offset == 0
    assert "UNIQ_KEY" not in message.properties  # the user's object stays as it was


def test_an_empty_body_is_allowed(cluster: Cluster, producer: Producer) -> None:
    producer.send(Message("Empty"))
    producer.send_batch([Message("Empty"), Message("Empty", tags="T")])
    assert [m.body for m in stored(cluster, "Empty")] == [b""] * 3


def test_every_send_has_an_id_of_its_own(producer: Producer) -> None:
    message = Message("Ids", b"same")
    ids = {producer.send(message).msg_id for _ in range(50)}
    ids |= {i for _ in range(5) for i in producer.send_batch([message] * 10).msg_id.split(",")}
    assert len(ids) == 100
    assert {len(i) for i in ids} == {32}


def test_queues_are_taken_in_turn(producer: Producer) -> None:
    queues = [producer.send(Message("Turn", b"x")).message_queue.queue_id for _ in range(8)]
    assert sorted(queues) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert queues[:4] == queues[4:]


def test_a_batch_is_stored_in_order_in_one_queue(cluster: Cluster, producer: Producer) -> None:
    messages = [
        Message("Batch", b"%d" % i, tags=f"T{i}", keys=f"k{i}", flag=i, properties={"n": str(i)})
        for i in range(50)
    ]
    result = producer.send_batch(iter(messages))
    found = stored(cluster, "Batch")
    assert [m.body for m in found] == [b"%d" % i for i in range(50)]
    assert [(m.tags, m.keys, m.flag) for m in found] == [(f"T{i}", f"k{i}", i) for i in range(50)]
    assert [m.msg_id for m in found] == result.msg_id.split(",")
    assert [m.offset_msg_id for m in found] == result.offset_msg_id.split(",")
    assert {m.queue_id for m in found} == {result.message_queue.queue_id}
    assert result.queue_offset == 0
    again = producer.send_batch(messages, queue=result.message_queue)
    assert (again.message_queue, again.queue_offset) == (result.message_queue, 50)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "no message"),
        ([Message("A", b"1"), Message("B", b"1")], "topics 'A' and 'B'"),
        ([Message("A", b"1", delay_time_level=1)], "delay level"),
        ([Message("%RETRY%G", b"1")], "retry topic"),
        ([Message("A", b"1"), Message("A", b"1", wait_store_msg_ok=False)], "wait_store_msg_ok"),
        ([Message("SCHEDULE_TOPIC_XXXX", b"1")], "belongs to the broker"),
    ],
)
def test_a_batch_that_cannot_be(producer: Producer, messages: list[Message], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        producer.send_batch(messages)


def test_a_batch_over_the_limit_is_refused_and_can_be_cut(cluster: Cluster) -> None:
    messages = [Message("Cut", bytes([i]) * (i * 7), tags="A") for i in range(100)]
    with Producer("PG", namesrv_addr=cluster.namesrv_addr, max_message_size=2000) as producer:
        text = r"batch of 100 messages .*'Cut'.* is 2000; cut it with split_batches"
        with pytest.raises(MessageTooLarge, match=text):
            producer.send_batch(messages)
        parts = list(producer.split_batches(messages))
        assert [m for part in parts for m in part] == messages
        assert 20 < len(parts) < 60
        queue = producer.queues("Cut")[0]
        for part in parts:
            producer.send_batch(part, queue=queue)
        # As few as can be: no part has room for the first message of the next.
        for part, after in pairwise(parts):
            with pytest.raises(MessageTooLarge):
                producer.send_batch([*part, after[0]], queue=queue)
        with pytest.raises(MessageTooLarge, match="part of a batch"):
            list(producer.split_batches([Message("Cut", b"x" * 2000)]))
    assert [m.body for m in stored(cluster, "Cut")] == [m.body for m in messages]


def test_a_body_over_the_limit_is_refused(cluster: Cluster) -> None:
    with Producer("PG", namesrv_addr=cluster.namesrv_addr, max_message_size=100) as producer:
        assert producer.send(Message("Limit", b"x" * 100)).status is SendStatus.SEND_OK
        with pytest.raises(MessageTooLarge, match=r"101 bytes; max_message_size is 100"):
            producer.send(Message("Limit", b"x" * 101))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message("bad topic!", b"1"), ConfigError),
        (Message("", b"1"), ConfigError),
        (Message("OFFSET_MOVED_EVENT", b"1"), ConfigError),
        (Message("T" * 128, b"1"), ConfigError),
        (Message("Surrogate", b"1", tags="\ud800"), MessageEncodeError),
    ],
)
def test_a_message_that_cannot_be(
    producer: Producer, message: Message, error: type[Exception]
) -> None:
    with pytest.raises(error):
        producer.send(message)
    with pytest.raises(error):
        producer.send_oneway(message)
    if error is ConfigError:
        with pytest.raises(error):
            producer.send_async(message)
    else:
        with pytest.raises(error):
            producer.send_async(message).result(WAIT)
    assert producer.send(Message("Fine", b"1")).status is SendStatus.SEND_OK


@pytest.mark.parametrize(("name", "bits"), [("ZLIB", 0x300), ("LZ4", 0x100), ("ZSTD", 0x200)])
@pytest.mark.parametrize("level", [None, 1, 9])
def test_large_bodies_are_compressed(
    cluster: Cluster, name: str, bits: int, level: int | None
) -> None:
    body = b"0123456789" * 1000
    options = {"compress_type": name, "compress_level": level}
    topic = f"Large-{name}-{level}"
    with Producer("PG", namesrv_addr=cluster.namesrv_addr, **options) as producer:
        queue = producer.queues(topic)[0]
        producer.send(Message(topic, body), queue=queue)
        producer.send(Message(topic, body[:4095]), queue=queue)
        producer.send(Message(topic, body[:4096]), queue=queue)
        producer.send_batch([Message(topic, body)], queue=queue)
    found = stored(cluster, topic)
    assert [m.body for m in found] == [body, body[:4095], body[:4096], body]
    assert [bool(m.store_size < 1000) for m in found] == [True, False, True, False]
    assert [m.sys_flag & COMPRESSION_TYPE_MASK for m in found] == [bits, 0, bits, 0]


def test_a_body_that_does_not_shrink_stays(cluster: Cluster) -> None:
    body = os.urandom(5000)
    with Producer(
        "PG", namesrv_addr=cluster.namesrv_addr, compress_msg_body_over_howmuch=0
    ) as producer:
        producer.send(Message("Dense", body))
        producer.send(Message("Dense", b""))
    found = stored(cluster, "Dense")
    assert sorted(m.body for m in found) == sorted([body, b""])
    assert {m.sys_flag for m in found} == {0}


def test_delayed_messages_arrive_later(cluster: Cluster, producer: Producer) -> None:
    producer.send(Message("Later", b"late", delay_time_level=1))
    arrived = threading.Event()
    bodies: list[bytes] = []

    def listener(messages: list[MessageExt], _: Any) -> rmq.ConsumeStatus:
        bodies.extend(m.body for m in messages)
        assert messages[0].delay_time_level == 1
        arrived.set()
        return rmq.ConsumeStatus.CONSUME_SUCCESS

    consumer = rmq.PushConsumer(
        "LaterGroup", namesrv_addr=cluster.namesrv_addr,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )  # fmt: skip
    consumer.subscribe("Later")
    consumer.register_listener(listener)
    with consumer:
        assert arrived.wait(WAIT)
    assert bodies == [b"late"]


# ------------------------------------------------------------------------- queue and selector


def test_queue_and_selector_decide(cluster: Cluster, producer: Producer) -> None:
    queues = producer.queues("Chosen")
    assert [q.queue_id for q in queues] == [0, 1, 2, 3]
    message = Message("Chosen", b"1")
    assert producer.send(message, queue=queues[2]).message_queue == queues[2]
    assert producer.send_async(message, queue=queues[3]).result(WAIT).message_queue == queues[3]
    seen: list[tuple[Sequence[MessageQueue], Message, object]] = []

    def selector(found: Sequence[MessageQueue], sent: Message, arg: Any) -> MessageQueue:
        seen.append((list(found), sent, arg))
        return found[1]

    result = producer.send(message, selector=selector, arg="order 7")
    assert result.message_queue == queues[1]
    assert seen == [(queues, message, "order 7")]
    producer.send_oneway(message, selector=rmq.select_at_random)
    with pytest.raises(ConfigError, match="exclude"):
        producer.send(message, queue=queues[0], selector=selector)
    with pytest.raises(ConfigError, match="no queue of topic 'Chosen'"):
        producer.send(message, queue=MessageQueue("Other", cluster.broker_name, 0))
    with pytest.raises(ConfigError, match="None is no queue"):
        producer.send(message, selector=lambda *_: None)  # type: ignore[arg-type]


def test_select_by_hash_takes_java_s_queue() -> None:
    queues = [MessageQueue("T", "b", i) for i in range(7)]
    message = Message("T")

    def chosen(arg: object) -> int:
        return rmq.select_by_hash(queues, message, arg).queue_id

    # String.hashCode(): "TagA" 2598919, "中文" 646394, "polygenelubricants" -2147483648.
    assert chosen("TagA") == 2598919 % 7
    assert chosen("中文") == 646394 % 7
    assert chosen("polygenelubricants") == 2147483648 % 7
    assert chosen(12) == 12 % 7
    assert chosen(-12) == 12 % 7
    # Long.hashCode(): the halves, exclusive or.
    assert chosen(2**32 + 5) == (1 ^ 5) % 7
    assert chosen(2**31) == 2**31 % 7
    with pytest.raises(ConfigError, match="str or int"):
        chosen(1.5)


def test_ordered_sends_keep_their_order(cluster: Cluster, producer: Producer) -> None:
    futures = [
        producer.send_async(
            Message("Ordered", b"%d" % i), selector=rmq.select_by_hash, arg=f"key{i % 5}"
        )
        for i in range(2000)
    ]
    wait(futures, WAIT)
    found = stored(cluster, "Ordered")
    assert len(found) == 2000
    last: dict[int, int] = {}
    for message in found:
        key = int(message.body) % 5
        assert last.get(key, -1) < int(message.body)
        last[key] = int(message.body)


# ------------------------------------------------------------------------------ async, one-way


def test_async_sends_end_in_their_futures_and_callbacks(
    cluster: Cluster, producer: Producer
) -> None:
    calls: list[tuple[Any, Any]] = []
    futures = [
        producer.send_async(Message("Async", b"%d" % i), lambda r, e: calls.append((r, e)))
        for i in range(500)
    ]
    results = [future.result(WAIT) for future in futures]
    assert {r.status for r in results} == {SendStatus.SEND_OK}
    assert [c[0] for c in calls] != []
    assert {c[0].msg_id for c in calls} == {r.msg_id for r in results}
    assert all(c[1] is None for c in calls)
    assert sorted(int(m.body) for m in stored(cluster, "Async")) == list(range(500))
    batch = producer.send_batch_async([Message("Async", b"b")] * 3).result(WAIT)
    assert len(batch.msg_id.split(",")) == 3


def test_a_callback_may_raise_and_may_send(
    cluster: Cluster, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("in the callback")

    with caplog.at_level(logging.ERROR):
        assert producer.send_async(Message("Chain", b"0"), broken).result(WAIT)
    assert "callback of a send to topic Chain failed" in caplog.text
    chained: Future[rmq.SendResult] = Future()

    def again(topic: str, left: int) -> None:
        def callback(result: Any, error: Any) -> None:
            if error is not None:
                chained.set_exception(error)
            elif left == 0:
                chained.set_result(result)
            else:
                again(f"Chain{left}", left - 1)  # a topic whose route nobody asked for yet

        producer.send_async(Message(topic, b"x"), callback)

    again("Chain", 3)
    assert chained.result(WAIT).message_queue.topic == "Chain1"
    blocked: Future[rmq.SendResult] = Future()

    def blocks(*_: object) -> None:
        try:
            blocked.set_result(producer.send(Message("Chain", b"1")))
        except RocketMQError as error:
            blocked.set_exception(error)

    producer.send_async(Message("Chain", b"2"), blocks)
    with pytest.raises(ClientStateError, match="never return"):
        blocked.result(WAIT)


def test_async_blocks_while_too_much_is_in_flight(cluster: Cluster) -> None:
    most = 0
    with Producer("PG", namesrv_addr=cluster.namesrv_addr, max_in_flight=16) as producer:
        running = producer._require_running()
        futures = []
        for i in range(1000):
            futures.append(producer.send_async(Message("Bounded", b"%d" % i)))
            most = max(most, running.sender.in_flight.count)
        done, _ = wait(futures, WAIT)
        assert len(done) == 1000
        assert running.sender.in_flight.count == 0
    assert 1 <= most <= 16


def test_oneway_arrives(cluster: Cluster, producer: Producer) -> None:
    for i in range(200):
        producer.send_oneway(Message("Oneway", b"%d" % i))
    # The connection keeps the order: an answered request says that all before it were stored.
    producer.send(Message("Oneway", b"end"))
    assert cluster.message_count("Oneway") == 201


def test_threads_share_a_producer(cluster: Cluster, producer: Producer) -> None:
    barrier = threading.Barrier(6)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            barrier.wait(WAIT)
            futures = []
            for i in range(100):
                body = b"%d" % (number * 1000 + i)
                if number % 3 == 0:
                    producer.send(Message("Threads", body))
                elif number % 3 == 1:
                    futures.append(producer.send_async(Message("Threads", body)))
                else:
                    producer.send_batch([Message("Threads", body)])
            for future in futures:
                future.result(WAIT)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert not failures
    expected = sorted(n * 1000 + i for n in range(6) for i in range(100))
    assert sorted(int(m.body) for m in stored(cluster, "Threads")) == expected


# ---------------------------------------------------------------------------------- life cycle


def test_a_producer_that_is_not_started_says_so(cluster: Cluster) -> None:
    producer = Producer("PG", namesrv_addr=cluster.namesrv_addr)
    for call in (producer.send, producer.send_async, producer.send_oneway):
        with pytest.raises(ClientStateError, match="'PG' is not started"):
            call(Message("T", b"1"))
    producer.shutdown()


def test_start_stop_and_restart(cluster: Cluster) -> None:
    before = threading.active_count()
    producer = Producer("Again", namesrv_addr=cluster.namesrv_addr)
    for _ in range(3):
        with producer:
            with pytest.raises(ClientStateError, match="started already"):
                producer.start()
            assert producer.send(Message("Again", b"1")).status is SendStatus.SEND_OK
        producer.shutdown()
    assert threading.active_count() == before
    assert cluster.message_count("Again") == 3


def test_a_group_is_known_to_the_broker_while_the_producer_runs(cluster: Cluster) -> None:
    with Raw(cluster.broker_addr) as raw:
        with Producer("Seen", namesrv_addr=cluster.namesrv_addr):
            assert raw.call(204, {"producerGroup": "Seen"}).code == 0
        assert raw.call(204, {"producerGroup": "Seen"}).code != 0


def test_two_producers_of_one_client_id(cluster: Cluster) -> None:
    options = {"namesrv_addr": cluster.namesrv_addr, "instance_name": "shared"}
    with Producer("One", **options) as one:
        with pytest.raises(ConfigError, match="'One' has a producer"):
            Producer("One", **options).start()
        with Producer("Two", **options) as two:
            assert one._require_running().instance is two._require_running().instance
            two.send(Message("Shared", b"1"))
        one.send(Message("Shared", b"1"))
    assert cluster.message_count("Shared") == 2


def test_shutdown_waits_for_what_is_in_flight(cluster: Cluster) -> None:
    with Producer("PG", namesrv_addr=cluster.namesrv_addr) as producer:
        futures = [producer.send_async(Message("Waits", b"1")) for _ in range(500)]
    assert all(future.done() for future in futures)
    assert {future.result(0).status for future in futures} == {SendStatus.SEND_OK}


def test_no_name_server_is_an_error_at_start() -> None:
    before = threading.active_count()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(NoNameServer):
            Producer("PG", namesrv_addr=f"127.0.0.1:{port}").start()
    assert threading.active_count() <= before + 1  # the connect that is given up


def test_a_topic_nobody_may_create() -> None:
    with (
        Cluster(auto_create_topic_enable=False) as cluster,
        Producer("PG", namesrv_addr=cluster.namesrv_addr) as producer,
    ):
        with pytest.raises(TopicRouteNotFound, match="'Absent'"):
            producer.send(Message("Absent", b"1"))
        with pytest.raises(TopicRouteNotFound):
            producer.send_async(Message("Absent", b"1")).result(WAIT)
        with pytest.raises(TopicRouteNotFound):
            producer.send_oneway(Message("Absent", b"1"))
        cluster.create_topic("Absent", 3)
        results = [producer.send(Message("Absent", b"1")) for _ in range(6)]
        assert {r.message_queue.queue_id for r in results} == {0, 1, 2}


def test_a_created_topic_gets_the_queues_that_were_asked_for(cluster: Cluster) -> None:
    with Producer("PG", namesrv_addr=cluster.namesrv_addr, default_topic_queue_nums=2) as producer:
        queues = {producer.send(Message("Two", b"1")).message_queue.queue_id for _ in range(8)}
        assert queues == {0, 1}


def test_every_send_ends_when_the_cluster_is_killed() -> None:
    with (
        Cluster() as cluster,
        Producer("PG", namesrv_addr=cluster.namesrv_addr, send_msg_timeout=2000) as producer,
    ):
        producer.send(Message("Kill", b"0"))
        futures = []
        for i in range(3000):
            futures.append(producer.send_async(Message("Kill", b"%d" % i)))
            if i == 1000:
                cluster.kill()
        done, left = wait(futures, WAIT)
        assert not left
        errors = [future.exception() for future in done]
        assert all(error is None or isinstance(error, RocketMQError) for error in errors)
        assert any(error is not None for error in errors)
        with pytest.raises(RocketMQError):
            producer.send(Message("Kill", b"0"))
        cluster.start()
        # The first attempts may still meet the connect that just failed.
        for _ in range(100):
            try:
                assert producer.send(Message("Kill", b"0")).status is SendStatus.SEND_OK
            except RocketMQError:
                threading.Event().wait(0.1)
            else:
                break
        else:
            pytest.fail("sends did not work again after the restart")


# ------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"compress_tipe": "LZ4"}, TypeError, "did you mean 'compress_type'"),
        ({"compress_type": "GZIP"}, ConfigError, "ZLIB, LZ4, ZSTD"),
        ({"compress_level": 10}, ConfigError, "0 to 9"),
        ({"compress_type": "ZSTD", "compress_level": 0}, ConfigError, "1 to 22"),
        ({"send_msg_timeout": 0}, ConfigError, "send_msg_timeout is 0"),
        ({"max_in_flight": 0}, ConfigError, "max_in_flight is 0"),
        ({"retry_times_when_send_failed": -1}, ConfigError, "retry_times_when_send_failed"),
        ({"retry_response_codes": 5}, ConfigError, "retry_response_codes"),
        ({"create_topic_key": "no good"}, ConfigError, "create_topic_key|'no good'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Producer("PG", namesrv_addr="127.0.0.1:1", **options)


def test_groups_are_checked() -> None:
    for group in ("", "DEFAULT_PRODUCER", "a b", "g" * 256):
        with pytest.raises(ConfigError):
            Producer(group, namesrv_addr="127.0.0.1:1")


def test_timeouts_are_checked(producer: Producer) -> None:
    for timeout in (0, -1.0):
        with pytest.raises(ConfigError, match="timeout"):
            producer.send(Message("T", b"1"), timeout=timeout)
