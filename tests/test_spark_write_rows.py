"""Rows of a write: what may be given, the requests they become, and how these are sent."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.errors import BrokerSystemError, ConfigError, MessageIllegal, RequestTimeout
from rocketmq_fast.model import Message, MessageQueue, SendResult, SendStatus
from rocketmq_fast.producer.compression import Compressor
from rocketmq_fast.producer.outgoing import Outgoing, Packer
from rocketmq_fast.producer.selectors import select_by_hash
from tests.reference.encode import decode_batch
from tests.require import require
from tests.style import ROOT

require("spark")  # before what imports pyspark and pyarrow

import pyarrow as pa  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from rocketmq_fast.spark.source import RocketMQDataSource  # noqa: E402
from rocketmq_fast.spark.writer import SentMessages, aborted, summary  # noqa: E402
from rocketmq_fast.spark.writer_flow import SendFlow, pause  # noqa: E402
from rocketmq_fast.spark.writer_options import (  # noqa: E402
    WRITE_COLUMNS,
    WRITE_OPTIONS,
    WriteOptions,
    check_columns,
)
from rocketmq_fast.spark.writer_rows import Request, RowError, RowsEncoder, UniqueIds  # noqa: E402

TEXTS = pa.map_(pa.string(), pa.string())
QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


# ------------------------------------------------------------------------- options, columns


def write_options(**given: str) -> WriteOptions:
    return WriteOptions.of({"namesrvAddr": "127.0.0.1:9876", "topic": "T", **given})


def test_defaults_and_aliases() -> None:
    options = write_options()
    assert options.topic == "T"
    assert options.group == "SPARK_ROCKETMQ_PRODUCER"
    assert options.batch_bytes == 1 << 20
    assert not options.single
    saved = WriteOptions.of({"nameserver": "h:1", "PATH": "Saved", "checkpointlocation": "/tmp"})  # noqa: S108
    assert saved.topic == "Saved"
    assert saved.producer().send_msg_timeout == 20_000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tag": "x"}, "a write to rocketmq has no option 'tag'; did you mean"),
        ({"topic": "bad topic"}, "option 'topic': topic 'bad topic' holds characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "belongs to the broker"),
        ({"producerGroup": "DEFAULT_PRODUCER"}, "option 'producerGroup': "),
        ({"batchBytes": "5m"}, "option 'batchBytes' is 5242880; it must be at most 4194304"),
        ({"sendMode": "both"}, "not one of batch, single"),
        ({"namesrvAddr": "nonsense"}, "nonsense"),
        ({"secretKey": "s"}, "'accessKey' and 'secretKey' are needed both"),
    ],
)
def test_wrong_options(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write_options(**given)
    assert said in str(caught.value)


def schema(columns: str) -> StructType:
    """A schema of "name type, name type"; StructType.fromDDL would need a JVM."""
    kinds = {
        "string": StringType(), "binary": BinaryType(), "int": IntegerType(), "long": LongType(),
        "strings": ArrayType(StringType()), "ints": ArrayType(IntegerType()),
        "texts": MapType(StringType(), StringType(), False),
        "numbers": MapType(StringType(), IntegerType()),
    }  # fmt: skip
    fields = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in fields])


def test_columns_ignore_case_and_order() -> None:
    wide = schema(
        "TAGS string, Body string, keys strings, properties texts, "
        "delaylevel int, flag int, brokerName string, queueid int, topic string"
    )
    places = check_columns(wide, write_options())
    assert places["tags"] == 0
    assert places["body"] == 1
    assert places["delayLevel"] == 4
    assert places["topic"] == 8


@pytest.mark.parametrize(
    ("ddl", "given", "said"),
    [
        ("tags string", {}, "column 'body' is missing"),
        ("body int", {}, "column 'body' must be binary or string, it is int; cast it"),
        ("body binary, tag string", {}, "no column 'tag'; did you mean 'tags'?"),
        ("body binary, queueOffset long", {}, "select only what is to be written"),
        ("body binary, Body string", {}, "column 'body' is there twice"),
        ("body binary, keys ints", {}, "string or array<string>, it is array<int>"),
        ("body binary, properties numbers", {}, "map<string,string>"),
        ("body binary, delayLevel long", {}, "must be int, it is bigint"),
        ("body binary, queueId int", {}, "'brokerName' and 'queueId' name a queue together"),
        (
            "body binary, queueId int, brokerName string, shardingKey string", {},
            "both choose the queue",
        ),
    ],
)  # fmt: skip
def test_wrong_columns(ddl: str, given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(schema(ddl), write_options(**given))
    assert said in str(caught.value)


def test_a_topic_is_needed() -> None:
    options = WriteOptions.of({"namesrvAddr": "127.0.0.1:9876"})
    assert check_columns(schema("body binary, topic string"), options) == {"body": 0, "topic": 1}
    with pytest.raises(ConfigError, match="where to"):
        check_columns(schema("body binary"), options)


def test_overwriting_is_refused_before_anybody_is_asked() -> None:
    source = RocketMQDataSource({"namesrvAddr": "127.0.0.1:1", "topic": "T"})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(ConfigError, match="cannot be overwritten"):
            make(schema("body binary"), True)


def test_an_unreachable_name_server_is_told_on_the_driver() -> None:
    options = {"namesrvAddr": "127.0.0.1:1", "topic": "T", "retries": "0"}
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        RocketMQDataSource(options).writer(schema("body binary"), False)


@pytest.mark.parametrize("name", ["options", "columns"])
def test_the_page_has_all(name: str) -> None:
    text = (ROOT / "docs" / "spark-write.md").read_text("utf-8")
    section = re.search(rf"^## {name.title()}$(.*?)^## ", text, re.M | re.S)
    assert section is not None
    cells = re.findall(r"^\| ([^|]+?) \|", section[1], re.M)
    named = {word for cell in cells for word in re.findall(r"\w+", cell)} - {"option", "column"}
    aliases = {alias for names in WRITE_OPTIONS.values() for alias in names}
    assert named == ({*WRITE_OPTIONS, *aliases} if name == "options" else set(WRITE_COLUMNS))


# ------------------------------------------------------------------------------------- rows


def encoder(batch: pa.RecordBatch, **changed: Any) -> RowsEncoder:
    settings: dict[str, Any] = {
        "topic": "T", "single": False, "batch_bytes": 1 << 20, "drop_reserved": False,
    } | changed  # fmt: skip
    namespace = Namespace(settings.pop("namespace", None))
    queues = settings.pop("queues", lambda topic: QUEUES)
    places = {name: place for place, name in enumerate(batch.schema.names)}
    packer = Packer(4 << 20, Compressor("ZLIB", None, 4096), namespace)
    return RowsEncoder(places, packer, queues, namespace, **settings)


def requests(batch: pa.RecordBatch, **changed: Any) -> list[Request]:
    return list(encoder(batch, **changed).requests(batch))


def refused(batch: pa.RecordBatch, **changed: Any) -> str:
    with pytest.raises(RowError) as caught:
        requests(batch, **changed)
    return str(caught.value)


def without_id(properties: dict[str, str]) -> dict[str, str]:
    assert len(properties["UNIQ_KEY"]) == 32
    return {name: value for name, value in properties.items() if name != "UNIQ_KEY"}


def rows_of(request: Request) -> list[tuple[int, bytes, dict[str, str]]]:
    """Flag, body and properties of the messages of a batch, read by another decoder."""
    assert request.out.batch
    found = [(one.flag, one.body, one.properties) for one in decode_batch(request.out.body)]
    assert len(found) == request.rows
    return found


def test_every_column_reaches_the_message() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([b"one", b"", "drei ✓".encode(), b"4"], pa.binary()),
            "tags": ["TagA", None, "Grün", None],
            "keys": [["k1", "k2"], [], None, ["k4"]],
            "properties": pa.array(
                [[("a", "1"), ("schlüssel", "wert ✓")], None, [], [("z", "26")]], TEXTS
            ),
            "flag": pa.array([7, None, -1, 0], pa.int32()),
        }
    )
    (request,) = requests(batch)
    assert request.queue is None
    assert request.out.topic == "T"
    assert request.out.properties == {"WAIT": "true"}
    found = rows_of(request)
    ids = {properties["UNIQ_KEY"] for _, _, properties in found}
    assert len(ids) == 4
    expected = [
        Message("T", b"one", "TagA", "k1 k2", {"a": "1", "schlüssel": "wert ✓"}, flag=7),
        Message("T", b"", None, ""),
        Message("T", "drei ✓".encode(), "Grün", flag=-1),
        Message("T", b"4", keys="k4", properties={"z": "26"}),
    ]
    for (flag, body, properties), message in zip(found, expected, strict=True):
        assert (flag, body) == (message.flag, message.body)
        wanted = {name: text for name, text in message.wire_properties().items() if text}
        assert without_id(properties) == wanted


@pytest.mark.parametrize("large", [False, True], ids=["narrow", "large"])
def test_types_that_spark_may_hand_over(large: bool) -> None:
    text, raw = (pa.large_string(), pa.large_binary()) if large else (pa.string(), pa.binary())
    keys = pa.large_list(text) if large else pa.list_(text)
    batch = pa.record_batch(
        [
            pa.array(["ä", "b"], text),
            pa.array(["x", None], text),
            pa.array([["k"], None], keys),
            pa.array([[("n", "v")], None], pa.map_(text, text)),
        ],
        names=["body", "tags", "keys", "properties"],
    )
    (request,) = requests(batch)
    assert [body for _, body, _ in rows_of(request)] == ["ä".encode(), b"b"]
    assert without_id(rows_of(request)[0][2]) == {
        "n": "v", "KEYS": "k", "TAGS": "x", "WAIT": "true",
    }  # fmt: skip
    binary = pa.record_batch([pa.array([b"\xff\x00"], raw)], names=["body"])
    assert rows_of(requests(binary)[0])[0][1] == b"\xff\x00"


def test_slices_and_null_rows_with_entries() -> None:
    whole = pa.MapArray.from_arrays(
        pa.array([0, 1, 2, 4, 5], pa.int32()), pa.array(list("abcde")), pa.array(list("12345"))
    )
    mask = pa.array([False, True, False, False])
    maps = pa.MapArray.from_arrays(whole.offsets, whole.keys, whole.items, mask=mask)
    batch = pa.record_batch(
        {"body": pa.array([b"0", b"1", b"2", b"3"]), "properties": maps, "tags": list("wxyz")}
    )
    expected: list[dict[str, str]] = [{"a": "1"}, {}, {"c": "3", "d": "4"}, {"e": "5"}]
    for start, end in ((0, 4), (1, 3), (2, 4), (3, 3)):
        part = batch.slice(start, end - start)
        found = [row for request in requests(part) for row in rows_of(request)]
        assert [body for _, body, _ in found] == [b"%d" % n for n in range(start, end)]
        for (_, _, properties), own, tag in zip(
            found, expected[start:end], "wxyz"[start:end], strict=True
        ):
            assert without_id(properties) == {**own, "TAGS": tag, "WAIT": "true"}


def test_batches_are_cut_by_what_a_broker_stores() -> None:
    batch = pa.record_batch({"body": pa.array([b"x" * 100] * 1000)})
    found = requests(batch, batch_bytes=65536)
    assert sum(request.rows for request in found) == 1000
    assert len(found) > 1
    for request in found:
        # 91 bytes a stored message, with topic and properties, must stay below the limit.
        assert len(request.out.body) + request.rows * (91 - 22) <= 65536


def test_what_cannot_be_in_a_batch_goes_alone_and_in_its_place() -> None:
    bodies = [b"a", b"b" * 9000, b"c", b"d", b"e"]
    batch = pa.record_batch(
        {
            "body": pa.array(bodies),
            "delayLevel": pa.array([0, None, 0, 3, None], pa.int32()),
            "tags": ["t"] * 5,
            "properties": pa.array([[("p", "q")]] * 5, TEXTS),
        }
    )
    found = requests(batch, batch_bytes=4096)
    assert [request.out.batch for request in found] == [True, False, True, False, True]
    big, delayed = found[1].out, found[3].out
    assert big.sys_flag & 1  # compressed
    assert delayed.properties["DELAY"] == "3"
    assert delayed.body == b"d"
    assert without_id(big.properties) == {"p": "q", "TAGS": "t", "WAIT": "true"}
    assert all(not request.out.batch for request in requests(batch.slice(0, 1), single=True))


def test_same_key_same_queue_in_order() -> None:
    keys = [None if n % 10 == 0 else f"order-{n % 7}" for n in range(400)]
    batch = pa.record_batch(
        {"body": pa.array([str(n).encode() for n in range(400)]), "shardingKey": keys}
    )
    seen: dict[str, list[int]] = {}
    for request in requests(batch, batch_bytes=4096):
        for _, body, _ in rows_of(request):
            key = keys[int(body)]
            if key is None:
                assert request.queue is None
                continue
            assert request.queue == select_by_hash(QUEUES, Message("T"), key)
            seen.setdefault(key, []).append(int(body))
    assert {key: sorted(numbers) for key, numbers in seen.items()} == seen
    assert sum(map(len, seen.values())) == 360


def test_queue_and_topic_by_column() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([b"0", b"1", b"2", b"3"]),
            "topic": ["A", "B", "A", "A"],
            "brokerName": ["b", "b", None, "b"],
            "queueId": pa.array([1, 0, None, 1], pa.int32()),
        }
    )

    def queues(topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "b", number) for number in range(2)]

    found = {
        (request.out.topic, request.queue and request.queue.queue_id): [
            body for _, body, _ in rows_of(request)
        ]
        for request in requests(batch, topic=None, queues=queues)
    }
    assert found == {("A", 1): [b"0", b"3"], ("B", 0): [b"1"], ("A", None): [b"2"]}
    assert {request.out.topic for request in requests(batch, queues=queues, topic="A")} == {"A"}
    text = refused(batch, topic=None, queues=lambda topic: queues(topic)[:1])
    assert "row 0, column 'queueId': A@b:1 is no queue that can be written" in text
    half = pa.record_batch(
        {
            "body": pa.array([b"0"]),
            "brokerName": pa.array([None], pa.string()),
            "queueId": pa.array([0], pa.int32()),
        }
    )
    assert "row 0, column 'brokerName': it is null" in refused(half)


def test_namespace_is_on_the_wire() -> None:
    batch = pa.record_batch({"body": pa.array([b"0"])})
    (request,) = requests(batch, namespace="shop")
    assert request.out.topic == "shop%T"
    assert request.out.properties["INSTANCE_ID"] == "shop"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": pa.array([b"a", None])}, "row 1, column 'body': a message needs a body"),
        ({"topic": ["T", None]}, "row 1, column 'topic': it is null"),
        ({"topic": ["T", "no good"]}, "row 1, column 'topic': topic 'no good' holds characters"),
        ({"tags": ["a", "b\x01"]}, "row 1, column 'tags': it holds U+0001 or U+0002"),
        ({"keys": [["a"], ["b", None]]}, "row 1, column 'keys': an element is null"),
        ({"delayLevel": pa.array([0, -1], pa.int32())}, "row 1, column 'delayLevel'"),
        (
            {"properties": pa.array([None, [("a", None)]], TEXTS)},
            "row 1, column 'properties': property 'a': its value is null",
        ),
        (
            {"properties": pa.array([[("a", "b")], [("a", "b"), (" ", "c")]], TEXTS)},
            "row 1, column 'properties': property ' ': its name is blank",
        ),
        (
            {"properties": pa.array([[], [("a", "b\x02")]], TEXTS)},
            "row 1, column 'properties': property 'a': its value holds U+0001",
        ),
        (
            {"properties": pa.array([[], [("TAGS", "b")]], TEXTS)},
            "property 'TAGS': RocketMQ uses it itself: leave it out, or set reservedProperties",
        ),
        (
            {"properties": pa.array([[], [("a", "b" * 40_000)]], TEXTS)},
            "row 1, column 'properties': they take more than 32767 bytes",
        ),
        (
            {"tags": pa.array([b"ok", b"\xff"]).view(pa.string())},
            "row 1, column 'tags': it is not UTF-8",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_rows_that_cannot_be_messages(columns: dict[str, Any], said: str) -> None:
    batch = pa.record_batch({"body": pa.array([b"1", b"2"])} | columns)
    assert said in refused(batch, topic=None if "topic" in columns else "T")


def test_rows_are_counted_over_the_whole_task() -> None:
    good = pa.record_batch({"body": pa.array([b"1", b"2"])})
    bad = pa.record_batch({"body": pa.array([b"1", None])})
    one = encoder(good)
    for _ in range(3):
        assert len(list(one.requests(good))) == 1
    with pytest.raises(RowError, match="row 7, column 'body'"):
        list(one.requests(bad))


def test_reserved_properties_may_be_dropped() -> None:
    entries = [[("TAGS", "old"), ("mine", "1"), ("UNIQ_KEY", "x")], [("WAIT", "")]]
    properties = pa.array(entries, TEXTS)
    batch = pa.record_batch({"body": pa.array([b"1", b"2"]), "properties": properties})
    for single in (False, True):
        found = requests(batch, drop_reserved=True, single=single)
        tables = (
            [request.out.properties for request in found]
            if single
            else [properties for _, _, properties in rows_of(found[0])]
        )
        assert [without_id(table) for table in tables] == [
            {"mine": "1", "WAIT": "true"}, {"WAIT": "true"},
        ]  # fmt: skip


def test_ids_are_unique_and_hold_the_time() -> None:
    ids = UniqueIds()
    found = [text for count in (1, 70_000, 3) for text in ids.take(count).to_pylist()]
    assert len(set(found)) == 70_004
    assert all(len(text) == 32 for text in found)
    assert found == sorted(found)
    other = UniqueIds().take(5).to_pylist()
    assert not set(other) & set(found)


# ------------------------------------------------------------------------------------- flow


def stored(queue: MessageQueue) -> SendResult:
    return SendResult(SendStatus.SEND_OK, "", "", queue, 0)


class Broker:
    """Takes requests; the test answers when it likes, or `answer` does at once."""

    def __init__(self, answer: Callable[[Outgoing, int], Exception | None] | None = None) -> None:
        self.answer = answer
        self.sent: list[tuple[Outgoing, MessageQueue]] = []
        self.waiting: list[tuple[MessageQueue, Any]] = []
        self.changed = threading.Condition()

    def send(self, out: Outgoing, queue: MessageQueue, done: Any) -> None:
        with self.changed:
            self.sent.append((out, queue))
            self.waiting.append((queue, done))
            self.changed.notify_all()
        if self.answer is not None:
            self.reply(self.answer(out, len(self.sent)))

    def reply(self, error: Exception | None = None) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.waiting, 30.0)
            queue, done = self.waiting.pop(0)
        done(None if error else stored(queue), error)

    def flow(self, **changed: Any) -> SendFlow:
        settings: dict[str, Any] = {"max_in_flight": 2, "retries": 3, "retry_interval": 0.0}
        return SendFlow(self.send, lambda topic: QUEUES, **settings | changed)


def request(body: str, queue: MessageQueue | None = None, rows: int = 1) -> Request:
    return Request(Outgoing("T", body.encode(), {}, "", batch=True), rows, queue)


def test_all_is_counted_by_queue() -> None:
    broker = Broker(lambda out, number: None)
    flow = broker.flow()
    for number in range(8):
        flow.put(request("x", rows=number))
    flow.put(request("y", QUEUES[1], rows=100))
    flow.finish()
    assert flow.messages == 128
    assert flow.sent[QUEUES[1]] >= 100
    assert set(flow.sent) == set(QUEUES)
    assert flow.bytes == 9


def test_a_fixed_queue_has_one_request_in_flight() -> None:
    broker = Broker()
    flow = broker.flow(max_in_flight=10)
    for body in "abc":
        flow.put(request(body, QUEUES[0]))
    flow.put(request("z", QUEUES[1]))
    assert [out.body for out, _ in broker.sent] == [b"a", b"z"]
    thread = threading.Thread(target=flow.finish)
    thread.start()
    broker.reply(RequestTimeout("lost"))  # a is sent again before b
    for _ in range(4):
        broker.reply()
    thread.join(30.0)
    assert not thread.is_alive()
    to_first = [out.body for out, queue in broker.sent if queue == QUEUES[0]]
    assert to_first == [b"a", b"a", b"b", b"c"]


def test_room_is_waited_for() -> None:
    broker = Broker()
    flow = broker.flow(max_in_flight=2)
    flow.put(request("a"))
    flow.put(request("b"))
    third = threading.Thread(target=flow.put, args=(request("c"),))
    third.start()
    assert len(broker.sent) == 2
    broker.reply()
    third.join(30.0)
    assert not third.is_alive()
    assert [out.body for out, _ in broker.sent] == [b"a", b"b", b"c"]


def test_a_failure_that_can_pass_is_tried_again() -> None:
    broker = Broker(lambda out, number: BrokerSystemError(1, "busy") if number < 4 else None)
    flow = broker.flow()
    flow.put(request("a", rows=5))
    flow.finish()
    assert flow.messages == 5
    assert len(broker.sent) == 4


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(BrokerSystemError(1, "busy"), 4), (MessageIllegal(13, "too long"), 1)],
    ids=["often", "hopeless"],
)
def test_a_failure_ends_the_task(error: Exception, attempts: int) -> None:
    broker = Broker(lambda out, number: error if out.body == b"bad" else None)
    flow = broker.flow()
    flow.put(request("good", rows=2))
    with pytest.raises(type(error)):
        flow.put(request("bad"))
    with pytest.raises(type(error)):
        flow.put(request("more"))
    flow.settle(30.0)
    assert sum(out.body == b"bad" for out, _ in broker.sent) == attempts
    assert flow.messages == 2


def test_pauses_grow() -> None:
    assert [pause(1.0, n) for n in range(1, 7)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert [pause(30.0, n) for n in (1, 100)] == [30.0, 30.0]
    assert pause(0.0, 100) == 0.0


def test_another_broker_is_tried() -> None:
    queues = [MessageQueue("T", name, 0) for name in ("a", "b")]
    broker = Broker(lambda out, number: RequestTimeout("gone") if number == 1 else None)
    flow = SendFlow(
        broker.send, lambda topic: queues, max_in_flight=1, retries=1, retry_interval=0.0
    )
    flow.put(request("x"))
    flow.finish()
    assert len({queue for _, queue in broker.sent}) == 2


# --------------------------------------------------------------------------- commit messages


def test_what_was_sent_is_told() -> None:
    messages = [
        SentMessages(0, {QUEUES[0]: 3, QUEUES[1]: 4}, 700),
        SentMessages(1, {QUEUES[0]: 10}, 1000),
    ]
    text = "17 messages, 1700 bytes (T@broker-a:0 13, T@broker-a:1 4)"
    assert summary(messages) == text
    assert summary([]) == "0 messages, 0 bytes"
    told = aborted([*messages, None])
    assert told.startswith(f"2 of 3 tasks had finished; what they sent stays: {text}")
