"""decode_arrow and ArrowBuilder against the views of the same messages."""

from __future__ import annotations

import datetime
import gc
import random
import sys
from typing import Any

import numpy as np
import pytest

from rocketmq_fast._core import ArrowBatch, ArrowBuilder, decode_arrow, decode_messages
from rocketmq_fast._core.columns import COLUMNS
from rocketmq_fast.errors import ConfigError
from tests.golden_data import STORED, stored_bytes
from tests.reference.messages_factory import (
    benchmark_body,
    build_message,
    random_pull_body,
)
from tests.require import require

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INT64_MAX = (1 << 63) - 1


def host_text(host: tuple[str, int]) -> str:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def timestamp(milliseconds: int) -> int | None:
    return milliseconds * 1000 if abs(milliseconds) <= INT64_MAX // 1000 else None


def row_of(message: Any, broker_name: str | None) -> dict[str, Any]:
    """The row that a view stands for; timestamps as microseconds."""
    return {
        "topic": message.topic,
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "tags": message.tags,
        "keys": message.keys,
        "body": message.body,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "bornTimestamp": timestamp(message.born_timestamp),
        "storeTimestamp": timestamp(message.store_timestamp),
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "storeSize": message.store_size,
        "bodyCRC": message.body_crc,
        "commitLogOffset": message.commit_log_offset,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
    }


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """The rows that pyarrow reads out of a batch, in the form of row_of."""
    require("spark")
    import pyarrow as pa

    table = pa.record_batch(batch)
    table.validate(full=True)
    columns = {}
    for field in table.schema:
        column = table.column(field.name)
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        columns[field.name] = column.to_pylist()
        if pa.types.is_map(field.type):
            columns[field.name] = [as_dict(entries) for entries in columns[field.name]]
    return [
        {name: values[row] for name, values in columns.items()} for row in range(table.num_rows)
    ]


def as_dict(entries: list[tuple[str, str]]) -> dict[str, str]:
    table = dict(entries)
    assert len(table) == len(entries), "a name stands twice in a map"
    return table


def assert_equal_to_views(buffer: bytes, broker_name: str | None = "broker-a") -> None:
    views = decode_messages(buffer)
    batch = decode_arrow(buffer, broker_name=broker_name)
    assert len(batch) == batch.num_rows == len(views)
    assert batch.errors == views.errors
    assert rows_of(batch) == [row_of(message, broker_name) for message in views]


@pytest.mark.parametrize("name", STORED)
def test_golden_messages(name: str) -> None:
    assert_equal_to_views(stored_bytes(name))
    assert_equal_to_views(stored_bytes(name), None)


@pytest.mark.parametrize("seed", range(40))
def test_random_messages(seed: int) -> None:
    source = random.Random(seed)
    assert_equal_to_views(random_pull_body(source, source.choice([1, 7, 16, 17, 40, 300])))


@pytest.mark.parametrize("seed", range(60))
def test_mutated_messages(seed: int) -> None:
    source = random.Random(1000 + seed)
    buffer = bytearray(random_pull_body(source, 12))
    for _ in range(source.choice([1, 5, 60])):
        buffer[source.randrange(len(buffer))] = source.randrange(256)
    assert_equal_to_views(bytes(buffer))


@pytest.mark.parametrize("column", COLUMNS)
def test_each_column_alone(column: str) -> None:
    buffer = stored_bytes(STORED[0]) + random_pull_body(random.Random(7), 50)
    whole = rows_of(decode_arrow(buffer, broker_name="b"))
    alone = rows_of(decode_arrow(buffer, broker_name="b", columns=[column]))
    assert alone == [{column: row[column]} for row in whole]


def test_any_projection_in_any_order() -> None:
    source = random.Random(3)
    buffer = random_pull_body(source, 30)
    whole = rows_of(decode_arrow(buffer))
    for _ in range(30):
        names = source.sample(COLUMNS, source.randint(0, len(COLUMNS)))
        part = rows_of(decode_arrow(buffer, columns=names))
        assert [list(row) for row in part] == [names] * len(whole)
        assert part == [{name: row[name] for name in names} for row in whole]


def test_schema_is_the_one_that_spark_wants() -> None:
    require("spark")
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from rocketmq_fast.spark.schema import SCHEMA

    found = pa.schema(decode_arrow(b""))
    assert found.equals(to_arrow_schema(SCHEMA, timezone="UTC"), check_metadata=True)
    assert tuple(found.names) == COLUMNS
    assert all(field.nullable for field in found)


def test_empty_buffer() -> None:
    require("spark")
    import pyarrow as pa

    batch = decode_arrow(b"")
    assert len(batch) == 0
    assert batch.errors == []
    table = pa.record_batch(batch)
    table.validate(full=True)
    assert table.num_rows == 0
    assert table.column("body").to_pylist() == []


def test_validity_only_where_something_is_null() -> None:
    require("spark")
    import pyarrow as pa

    buffer = build_message(properties={"TAGS": "A"}) + build_message()
    table = pa.record_batch(decode_arrow(buffer, broker_name="b"))
    with_bitmap = {
        name for name in table.schema.names if table.column(name).buffers()[0] is not None
    }
    assert with_bitmap == {"tags", "keys"}
    assert table.column("tags").to_pylist() == ["A", None]


def test_time_that_microseconds_cannot_tell_is_null() -> None:
    buffer = build_message(born_timestamp=INT64_MAX // 1000 + 1, store_timestamp=5)
    buffer += build_message(born_timestamp=-(INT64_MAX // 1000) - 2, store_timestamp=-5)
    rows = rows_of(decode_arrow(buffer, columns=["bornTimestamp", "storeTimestamp"]))
    assert rows == [
        {"bornTimestamp": None, "storeTimestamp": 5000},
        {"bornTimestamp": None, "storeTimestamp": -5000},
    ]


def test_malformed_text_is_replaced() -> None:
    properties = b"TAGS\x01a\xff\x02KEYS\x01\xe4\xbd\x02"
    properties += b"\xf0\x9f\x98\x01v\xed\xa0\x80\x02UNIQ_KEY\x01\xc3"
    buffer = build_message(properties=properties) * 3
    row = rows_of(decode_arrow(buffer))[2]
    assert row["tags"] == "a�"
    assert row["keys"] == "�"
    assert row["msgId"] == "�"
    assert row["properties"]["�"] == "v���"
    assert_equal_to_views(buffer)
    assert_equal_to_views(build_message().replace(b"TopicTest", b"Topic\xffest"))


def test_names_that_repeat_keep_the_last_value() -> None:
    few = b"a\x011\x02b\x012\x02a\x013\x02"
    many = b"".join(b"n%d\x01%d\x02" % (n % 100, n) for n in range(1000))
    equal_once_valid = b"k\xff\x01first\x02k\xfe\x01second\x02"
    buffer = b"".join(build_message(properties=text) for text in (few, many, equal_once_valid))
    assert_equal_to_views(buffer)
    rows = rows_of(decode_arrow(buffer, columns=["properties"]))
    assert rows[0]["properties"] == {"a": "3", "b": "2"}
    assert rows[1]["properties"]["n7"] == "907"
    assert rows[2]["properties"] == {"k�": "second"}


def test_one_bad_message_stands_in_errors() -> None:
    good = build_message(queue_offset=1)
    bad = bytearray(build_message(queue_offset=2))
    bad[4:8] = b"\0\0\0\1"
    batch = decode_arrow(good + bytes(bad) + good)
    assert len(batch) == 2
    assert [(position, offset) for position, offset, _ in batch.errors] == [(len(good), None)]
    wrong_crc = build_message(body_crc=1, queue_offset=9)
    assert decode_arrow(wrong_crc, check_crc=True).errors[0][1] == 9
    assert len(decode_arrow(wrong_crc)) == 1


def test_restored_topic() -> None:
    buffer = build_message(topic="%RETRY%g", properties={"RETRY_TOPIC": "Orders"})
    buffer += build_message(topic="%RETRY%g")
    batch = decode_messages(buffer)
    builder = ArrowBuilder(["topic"])
    builder.append(batch)
    batch.restore_topic = True
    builder.append(batch)
    topics = [row["topic"] for row in rows_of(builder.finish())]
    assert topics == ["%RETRY%g", "%RETRY%g", "Orders", "%RETRY%g"]


def test_builder_takes_ranges_and_masks_of_many_batches() -> None:
    source = random.Random(5)
    builder = ArrowBuilder(["queueOffset", "body", "brokerName", "tags"])
    expected = []
    for number in range(30):
        batch = decode_messages(
            b"".join(
                build_message(
                    queue_offset=number * 100 + n,
                    body=source.randbytes(source.randrange(300)),
                    properties={"TAGS": "A"} if source.random() < 0.9 else {},
                )
                for n in range(source.choice([1, 32, 400]))
            )
        )
        batch.broker_name = "own"
        start, end = number * 100 + source.randrange(8), number * 100 + source.randrange(450)
        mask = np.array([source.random() < 0.7 for _ in range(len(batch))])
        name = source.choice([None, "given"])
        appended = builder.append(batch, name, start, end, mask)
        chosen = [
            message
            for message, wanted in zip(batch, mask, strict=True)
            if wanted and start <= message.queue_offset < end
        ]
        assert appended == len(chosen)
        expected += [(m.queue_offset, m.body, name or "own", m.tags) for m in chosen]
        assert builder.num_rows == len(expected)
    size = builder.nbytes
    done = builder.finish()
    assert done.nbytes == size
    assert builder.num_rows == 0
    assert [tuple(row.values()) for row in rows_of(done)] == expected
    assert len(builder.finish()) == 0


def test_builder_collects_errors_and_starts_anew() -> None:
    builder = ArrowBuilder()
    bad = bytearray(build_message())
    bad[4] ^= 1
    builder.append(decode_messages(build_message() + bytes(bad)))
    builder.append(decode_messages(build_message()))
    first, second = builder.finish(), builder.finish()
    assert (len(first), len(first.errors)) == (2, 1)
    assert (len(second), second.errors) == (0, [])


def test_a_batch_can_be_handed_over_again() -> None:
    require("spark")
    import pyarrow as pa

    batch = decode_arrow(random_pull_body(random.Random(1), 20), broker_name="b")
    first, second = pa.record_batch(batch), pa.record_batch(batch)
    assert first.equals(second)
    del batch, first
    gc.collect()
    second.validate(full=True)
    assert pa.schema(decode_arrow(b"", columns=["body"])).names == ["body"]


def test_capsules_that_nobody_takes_are_released() -> None:
    """Memory stays flat over many batches that are dropped in every state."""
    require("spark")
    import pyarrow as pa

    buffer = benchmark_body(2000, 1024)

    def one_round() -> None:
        batch = decode_arrow(buffer)
        batch.__arrow_c_schema__()
        batch.__arrow_c_array__()
        taken = pa.record_batch(batch)
        column = taken.column("body")
        del taken, batch
        assert len(column) == 2000

    for _ in range(10):
        one_round()
    before = _resident_bytes()
    for _ in range(60):
        one_round()
    assert _resident_bytes() - before < 20 << 20


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def test_wrong_arguments() -> None:
    with pytest.raises(ConfigError, match="queueOffset"):
        decode_arrow(b"", columns=["queueOfset"])
    with pytest.raises(ConfigError, match="twice"):
        ArrowBuilder(["body", "body"])
    with pytest.raises(TypeError):
        ArrowBatch()
    with pytest.raises(ValueError, match="mask of length 2"):
        ArrowBuilder().append(decode_messages(b""), mask=np.array([True, False]))
    with pytest.raises(TypeError):
        ArrowBuilder().append(None)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        ArrowBuilder().append(decode_messages(build_message()), "\ud800")
    empty = ArrowBatch.__new__(ArrowBatch)
    assert len(empty) == 0
    assert empty.__arrow_c_array__()


def test_nothing_of_the_buffer_is_kept() -> None:
    buffer = bytearray(random_pull_body(random.Random(2), 10))
    batch = decode_arrow(buffer)
    before = rows_of(batch)
    count = sys.getrefcount(buffer)
    buffer.clear()  # raises if a view is still there
    assert rows_of(batch) == before
    assert sys.getrefcount(buffer) == count
