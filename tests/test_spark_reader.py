"""The reader of a task against a scripted broker: short, late, wrong and missing answers."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.errors import (
    BrokerError,
    ConfigError,
    ConnectionClosed,
    HeaderError,
    MessageDecodeError,
    RequestTimeout,
    TopicNotExist,
)
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.codes import ResponseCode
from rocketmq_fast.remoting.loop import EventLoop
from tests.reference.messages_factory import build_message
from tests.require import require

require("spark")  # before what imports pyspark

from rocketmq_fast.spark import tasks  # noqa: E402
from rocketmq_fast.spark.brokers import kept_brokers  # noqa: E402
from rocketmq_fast.spark.offsets import DataLossError, QueueRange  # noqa: E402
from rocketmq_fast.spark.options import ReadOptions  # noqa: E402
from rocketmq_fast.spark.planner import RangesPartition  # noqa: E402
from rocketmq_fast.spark.reader import RangesReader, RawMessage  # noqa: E402
from rocketmq_fast.spark.schema import SCHEMA  # noqa: E402

ADDRESS = "127.0.0.1:1"
TAGS = ("Aa", "BB", "C")


class ScriptedBroker:
    """Answers pulls out of a table, on the loop's thread, late and in any order."""

    def __init__(self, loop: EventLoop, seed: int = 0) -> None:
        self.loop = loop
        self.client = self
        self.names = Namespace(None)
        self.source = random.Random(seed)
        self.low: dict[int, int] = {}
        self.high: dict[int, int] = {}
        self.gone: set[tuple[int, int]] = set()
        self.damaged: set[tuple[int, int]] = set()
        self.most = 32
        self.error_rate = 0.0
        self.pulls = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.script: list[RemotingCommand | Exception] = []

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout: float, callback: Any
    ) -> None:
        assert address == ADDRESS
        self.pulls += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

        def reply() -> None:
            self.in_flight -= 1
            callback(self._answer(dict(command.ext_fields)))

        self.loop.call_later(self.source.random() * 0.003, reply)

    def _answer(self, fields: dict[str, str]) -> RemotingCommand | Exception:
        if self.script:
            return self.script.pop(0)
        if self.source.random() < self.error_rate:
            return self.source.choice(
                [
                    RequestTimeout("late", ADDRESS),
                    ConnectionClosed("cut", ADDRESS),
                    RemotingCommand(ResponseCode.SYSTEM_BUSY, remark="busy"),
                ]
            )
        queue, offset = int(fields["queueId"]), int(fields["queueOffset"])
        low, high = self.low.get(queue, 0), self.high[queue]
        if offset > high:
            return self.answer(ResponseCode.PULL_OFFSET_MOVED, high, low, high)
        if offset < low:
            return self.answer(ResponseCode.PULL_OFFSET_MOVED, low, low, high)
        if offset == high:
            return self.answer(ResponseCode.PULL_NOT_FOUND, offset, low, high)
        most = self.source.randint(1, self.most)
        most = min(most, int(fields["maxMsgNums"]))
        wanted = fields["subscription"]
        codes = {"Aa": ("Aa", "BB"), "C": ("C",), "*": TAGS}[wanted]
        messages: list[bytes] = []
        scanned = 0
        while offset < high and len(messages) < most and scanned < 100:
            if tag_of(offset) in codes and (queue, offset) not in self.gone:
                messages.append(stored(queue, offset, damaged=(queue, offset) in self.damaged))
            offset += 1
            scanned += 1
        code = ResponseCode.SUCCESS if messages else ResponseCode.PULL_RETRY_IMMEDIATELY
        return self.answer(code, offset, low, high, b"".join(messages))

    @staticmethod
    def answer(code: int, begin: int, low: int, high: int, body: bytes = b"") -> RemotingCommand:
        fields = {
            "nextBeginOffset": str(begin),
            "minOffset": str(low),
            "maxOffset": str(high),
            "suggestWhichBrokerId": "0",
        }
        return RemotingCommand(code, fields, body, remark="STATUS")


def tag_of(offset: int) -> str:
    return TAGS[offset // 7 % 3]


def stored(queue: int, offset: int, *, damaged: bool = False) -> bytes:
    return build_message(
        topic="T",
        body=f"{queue}/{offset}".encode(),
        queue_id=queue,
        queue_offset=offset,
        properties={"TAGS": tag_of(offset)},
        body_crc=1 if damaged else None,
    )


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop("scripted-broker")
    loop.start()
    yield loop
    loop.stop()


def options(**more: str) -> ReadOptions:
    base = {"namesrvAddr": ADDRESS, "topic": "T", "fetchOffset.retryIntervalMs": "1"}
    return ReadOptions.of(base | {name.replace("_", "."): value for name, value in more.items()})


def part(queue: int, start: int, end: int) -> QueueRange:
    return QueueRange(MessageQueue("T", "broker-a", queue), start, end, ADDRESS)


def read(
    broker: ScriptedBroker, ranges: list[QueueRange], chosen: ReadOptions
) -> list[tuple[int, int, bytes]]:
    import pyarrow as pa

    rows: list[tuple[int, int, bytes]] = []
    columns = ("queueId", "queueOffset", "body")
    for batch in RangesReader(broker, ranges, columns, chosen):  # type: ignore[arg-type]
        assert len(batch) > 0
        if isinstance(batch, list):
            rows += [(raw.queue.queue_id, raw.offset or 0, raw.stored) for raw in batch]
            continue
        table = pa.record_batch(batch)
        rows += zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return rows


def expected(ranges: list[QueueRange], tags: tuple[str, ...] = TAGS) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one in ranges:
        wanted = [offset for offset in range(one.start, one.end) if tag_of(offset) in tags]
        found.setdefault(one.queue.queue_id, []).extend(wanted)
    return {queue: offsets for queue, offsets in found.items() if offsets}


def by_queue(rows: list[tuple[int, int, bytes]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for queue, offset, body in rows:
        assert body == f"{queue}/{offset}".encode()
        found.setdefault(queue, []).append(offset)
    return found


@pytest.mark.parametrize("seed", range(25))
def test_each_offset_once_and_in_order(loop: EventLoop, seed: int) -> None:
    source = random.Random(seed)
    broker = ScriptedBroker(loop, seed)
    broker.most = source.choice([1, 8, 32, 500])
    broker.error_rate = source.choice([0.0, 0.1])
    ranges = []
    for queue in range(source.choice([1, 3, 20])):
        start = source.randrange(500)
        size = source.choice([1, 31, 32, 33, 400])
        ranges.append(part(queue, start, start + size))
        broker.low[queue] = source.randint(0, start)
        broker.high[queue] = start + size + source.choice([0, 1, 100])
    chosen = options(
        tags=source.choice(["*", "Aa", "C"]),
        pullBatchSize=source.choice(["1", "32", "200"]),
        pullPipeline=source.choice(["1", "3", "8"]),
        arrowBatchRows=source.choice(["1", "50", "10000"]),
        fetchOffset_numRetries="50",
    )
    tags = TAGS if chosen.tags == "*" else (chosen.tags,)
    assert by_queue(read(broker, ranges, chosen)) == expected(ranges, tags)
    assert broker.most_in_flight <= min(64, len(ranges) * chosen.pull_pipeline)
    assert broker.in_flight == 0


def test_nothing_to_read(loop: EventLoop) -> None:
    assert read(ScriptedBroker(loop), [], options()) == []


def test_batches_wait_for_the_task(loop: EventLoop) -> None:
    """With two finished batches in the line no further pull leaves."""
    broker = ScriptedBroker(loop)
    broker.high[0] = 100_000
    ranges = [part(0, 0, 100_000)]
    reader = RangesReader(broker, ranges, ("body",), options(arrowBatchRows="100"))  # type: ignore[arg-type]
    batches = iter(reader)
    taken = len(next(batches))
    quiet = 0
    while quiet < 20:  # until nothing moves any more
        before = broker.pulls
        settled = threading.Event()
        loop.call_later(0.01, settled.set)
        assert settled.wait(30)
        quiet = quiet + 1 if broker.pulls == before and broker.in_flight == 0 else 0
    assert broker.pulls < 60
    batches.close()  # type: ignore[attr-defined]
    assert taken >= 100
    pulls = broker.pulls
    settled = threading.Event()
    loop.call_later(0.05, settled.set)
    assert settled.wait(30)
    assert broker.pulls == pulls


def test_first_batch_is_small(loop: EventLoop) -> None:
    broker = ScriptedBroker(loop)
    broker.high[0] = 30_000
    reader = RangesReader(broker, [part(0, 0, 30_000)], ("queueOffset",), options())  # type: ignore[arg-type]
    sizes = [len(batch) for batch in reader]
    assert sizes[0] < 1100
    assert max(sizes) >= 10_000
    assert sum(sizes) == 30_000


# ------------------------------------------------------------------------------ trouble


def test_messages_that_were_deleted(loop: EventLoop) -> None:
    broker = ScriptedBroker(loop)
    broker.low[0], broker.high[0] = 70, 200
    with pytest.raises(DataLossError, match=r"'T'.*queue 0 at .*\[70, 200\).*failOnDataLoss"):
        read(broker, [part(0, 0, 200)], options())
    rows = read(broker, [part(0, 0, 200)], options(failOnDataLoss="false"))
    assert by_queue(rows) == {0: list(range(70, 200))}


def test_queue_that_became_shorter(loop: EventLoop) -> None:
    broker = ScriptedBroker(loop)
    broker.high[0] = 50
    chosen = options(fetchOffset_numRetries="1")
    with pytest.raises(DataLossError, match="queue 0"):
        read(broker, [part(0, 0, 200)], chosen)
    rows = read(broker, [part(0, 0, 200)], dataclasses.replace(chosen, fail_on_data_loss=False))
    assert by_queue(rows) == {0: list(range(50))}


def test_topic_that_is_deleted_in_mid_task(loop: EventLoop) -> None:
    broker = ScriptedBroker(loop)
    broker.high[0] = 10
    gone = RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark="topic[T] not exist")
    chosen = options(fetchOffset_numRetries="2")
    broker.script = [gone] * 3
    lost = r"'T'.*queue 0 at .*offset 0: the topic is not there any more; set failOnDataLoss"
    with pytest.raises(DataLossError, match=lost) as caught:
        read(broker, [part(0, 0, 10)], chosen)
    assert isinstance(caught.value.__cause__, TopicNotExist)
    broker.script = [gone] * 3
    assert (
        read(broker, [part(0, 0, 10)], dataclasses.replace(chosen, fail_on_data_loss=False)) == []
    )
    broker.script = [gone] * 2  # a broker that has just been restarted
    assert by_queue(read(broker, [part(0, 0, 10)], chosen)) == {0: list(range(10))}


def test_modules_of_a_worker_are_not_collected_after_each_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once in a process, and in Spark's workers only."""
    frozen: list[str] = []
    monkeypatch.setattr(tasks.gc, "freeze", lambda: frozen.append("frozen"))
    tasks._spare_modules.cache_clear()
    nothing = RangesPartition([])
    try:
        assert list(tasks.read_task(nothing, SCHEMA, options())) == []
        assert frozen == []
        context = SimpleNamespace(attemptNumber=lambda: 0)
        monkeypatch.setattr(tasks.TaskContext, "get", lambda: context)
        for _ in range(2):
            assert list(tasks.read_task(nothing, SCHEMA, options())) == []
        assert frozen == ["frozen"]
    finally:
        tasks._spare_modules.cache_clear()
        kept_brokers.clear()


def test_gap_between_offsets(loop: EventLoop) -> None:
    broker = ScriptedBroker(loop)
    broker.high[0] = 100
    broker.gone = {(0, 41), (0, 42)}
    with pytest.raises(DataLossError, match=r"queue 0 at .*offset"):
        read(broker, [part(0, 0, 100)], options())
    rows = read(broker, [part(0, 0, 100)], options(failOnDataLoss="false"))
    assert by_queue(rows) == {0: [n for n in range(100) if n not in (41, 42)]}


def test_corrupt_message(loop: EventLoop) -> None:
    broker = ScriptedBroker(loop)
    broker.high[3] = 100
    broker.damaged = {(3, 17)}
    with pytest.raises(MessageDecodeError, match=r"queue 3 at .*offset 17.*CRC.*onCorruptMessage"):
        read(broker, [part(3, 0, 100)], options())
    rows = read(broker, [part(3, 0, 100)], options(onCorruptMessage="skip"))
    assert by_queue(rows) == {3: [n for n in range(100) if n != 17]}


@pytest.mark.parametrize("tags", ["*", "C"])
def test_corrupt_messages_as_they_are_stored(loop: EventLoop, tags: str) -> None:
    broker = ScriptedBroker(loop)
    broker.high[3] = 100
    # The last but one is beyond the range, the others are at its ends and between.
    broker.damaged = {(3, n) for n in (10, 17, 18, 35, 59, 60)}
    rows = read(broker, [part(3, 10, 60)], options(onCorruptMessage="raw", tags=tags))
    wanted = [n for n in range(10, 60) if tags == "*" or tag_of(n) == tags]
    assert [offset for _, offset, _ in rows] == wanted
    for _, offset, body in rows:
        damaged = (3, offset) in broker.damaged
        assert body == (stored(3, offset, damaged=True) if damaged else b"3/%d" % offset)


def test_rows_of_corrupt_messages() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from rocketmq_fast.spark.schema import SCHEMA, schema_of
    from rocketmq_fast.spark.tasks import _raw_rows, options_for

    raw = RawMessage(MessageQueue("T", "broker-a", 3), 17, b"stored")
    (row,) = _raw_rows([raw], to_arrow_schema(SCHEMA, timezone="UTC")).to_pylist()
    known = {name: value for name, value in row.items() if value is not None}
    assert known == {
        "topic": "T",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 17,
        "body": b"stored",
        "sysFlag": -1,
    }
    not_null = schema_of(["body", "msgId"])
    not_null.fields[1].nullable = False
    assert options_for(not_null, options()).columns == ("body", "msgId")
    with pytest.raises(ConfigError, match="'msgId' is declared not null"):
        options_for(not_null, options(onCorruptMessage="raw"))


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (RemotingCommand(ResponseCode.NO_PERMISSION), BrokerError, "queue 0 at .*offset 0"),
        (RemotingCommand(ResponseCode.SUCCESS), HeaderError, "nextBeginOffset"),
        (RequestTimeout("late", ADDRESS), RequestTimeout, "queue 0 at .*offset 0.*late"),
        (ConnectionClosed("cut", ADDRESS), ConnectionClosed, "queue 0 at .*offset 0.*cut"),
    ],
)
def test_errors_name_the_place(
    loop: EventLoop, answer: RemotingCommand | Exception, error: type[Exception], text: str
) -> None:
    broker = ScriptedBroker(loop)
    broker.high[0] = 10
    broker.script = [answer] * 3
    with pytest.raises(error, match=text):
        read(broker, [part(0, 0, 10)], options(fetchOffset_numRetries="2"))


def test_trouble_that_passes(loop: EventLoop) -> None:
    broker = ScriptedBroker(loop)
    broker.high[0] = 10
    broker.script = [
        RequestTimeout("late", ADDRESS),
        RemotingCommand(ResponseCode.SYSTEM_ERROR, remark="busy"),
        broker.answer(ResponseCode.PULL_NOT_FOUND, 0, 0, 10),
    ]
    assert by_queue(read(broker, [part(0, 0, 10)], options())) == {0: list(range(10))}
