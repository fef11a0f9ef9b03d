"""Arrow columns against the messages of the reference: any projection, right and wrong bytes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rocketmq_fast import _core
from rocketmq_fast._core.columns import COLUMNS
from tests.differential import mutations
from tests.reference import message as reference
from tests.reference.messages_factory import build_message, random_pull_body
from tests.test_differential_messages import places_of


def host(value: tuple[str, int]) -> str:
    return f"[{value[0]}]:{value[1]}" if ":" in value[0] else f"{value[0]}:{value[1]}"


def micros(value: int) -> int | None:
    return value * 1000 if abs(value) <= ((1 << 63) - 1) // 1000 else None


def row_of(message: reference.StoredMessage) -> dict[str, Any]:
    """A message in the form of the columns; timestamps as numbers."""
    return {
        "topic": message.topic,
        "brokerName": "b",
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "tags": message.tags,
        "keys": message.keys,
        "body": message.body,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "bornTimestamp": micros(message.born_timestamp),
        "storeTimestamp": micros(message.store_timestamp),
        "bornHost": host(message.born_host),
        "storeHost": host(message.store_host),
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "storeSize": message.store_size,
        "bodyCRC": message.body_crc,
        "commitLogOffset": message.commit_log_offset,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
    }


def rows_of(arrow: _core.ArrowBatch) -> list[dict[str, Any]]:
    batch = pa.record_batch(arrow)
    batch.validate(full=True)
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            assert column.type == pa.timestamp("us", "UTC")
            columns[name] = column.cast(pa.int64()).to_pylist()
        elif pa.types.is_map(column.type):
            entries = column.to_pylist()
            assert all(len(dict(entry)) == len(entry) for entry in entries)
            columns[name] = [dict(entry) for entry in entries]
        else:
            columns[name] = column.to_pylist()
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def assert_same(data: bytes, columns: list[str] | None = None) -> None:
    expected = reference.decode_messages(data)
    found = _core.decode_arrow(data, columns=columns, broker_name="b")
    assert places_of(found.errors) == places_of(expected.errors)
    wanted = [row_of(message) for message in expected.messages]
    if columns is not None:
        wanted = [{name: row[name] for name in columns} for row in wanted]
    assert rows_of(found) == wanted


@pytest.mark.parametrize("seed", range(4))
def test_random_messages_give_the_columns_of_the_reference(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(40):
        assert_same(random_pull_body(source, source.randint(1, 40)))


def test_any_projection_in_any_order_gives_those_columns() -> None:
    source = random.Random(9)
    data = random_pull_body(source, 30)
    for name in COLUMNS:
        assert_same(data, [name])
    for _ in range(40):
        assert_same(data, source.sample(COLUMNS, source.randint(2, len(COLUMNS))))


@pytest.mark.parametrize("seed", range(3))
def test_changed_pull_bodies_give_the_columns_of_the_reference(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(40):
        data = random_pull_body(source, source.randint(1, 4))
        for changed in mutations(data, source, 8):
            assert_same(changed)


def test_an_unknown_or_repeated_column_is_refused() -> None:
    for columns in (["nothing"], ["body", "body"]):
        with pytest.raises(ValueError, match="column"):
            _core.decode_arrow(b"", columns=columns)


def test_no_messages_make_an_empty_batch_with_all_columns() -> None:
    batch = pa.record_batch(_core.decode_arrow(b""))
    assert batch.num_rows == 0
    assert tuple(batch.schema.names) == COLUMNS


def test_a_builder_takes_ranges_and_masks_of_many_batches() -> None:
    builder = _core.ArrowBuilder(["queueOffset", "body"])
    wanted = []
    for first in range(0, 500, 50):
        batch = _core.decode_messages(
            b"".join(
                build_message(queue_offset=n, body=str(n).encode())
                for n in range(first, first + 50)
            )
        )
        mask = np.arange(50) % 3 == 0
        appended = builder.append(batch, "b", first + 5, first + 20, mask)
        chosen = [n for n in range(first + 5, first + 20) if (n - first) % 3 == 0]
        assert appended == len(chosen)
        wanted += chosen
    assert builder.num_rows == len(wanted)
    arrow = builder.finish()
    assert builder.num_rows == 0
    found = pa.record_batch(arrow)
    assert found.column("queueOffset").to_pylist() == wanted
    assert found.column("body").to_pylist() == [str(n).encode() for n in wanted]
    # Exported once more, and after the builder went on.
    builder.append(batch, "b")
    assert pa.record_batch(arrow).equals(found)
    assert pa.record_batch(builder.finish()).num_rows == 50


def test_columns_outlive_everything_they_came_from() -> None:
    data = bytearray(build_message(body=b"x" * 5000, properties={"TAGS": "t"}) * 50)
    arrow = _core.decode_arrow(data)
    data.clear()
    batch = pa.record_batch(arrow)
    del arrow
    bodies = batch.column("body")
    del batch
    assert bodies.to_pylist() == [b"x" * 5000] * 50
