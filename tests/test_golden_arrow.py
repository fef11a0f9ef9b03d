"""Recorded messages as Arrow columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rocketmq_fast import _core
from tests import golden_data

# Arrow column -> field of the recorded rows, for those that need no conversion.
PLAIN = {
    "topic": "topic",
    "queueId": "queueId",
    "queueOffset": "queueOffset",
    "tags": "tags",
    "keys": "keys",
    "msgId": "msgId",
    "flag": "flag",
    "commitLogOffset": "commitLogOffset",
    "reconsumeTimes": "reconsumeTimes",
    "preparedTransactionOffset": "preparedTransactionOffset",
}


def host(text: str) -> str:
    address, port = text.rsplit("|", 1)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def milliseconds(column: Any) -> list[int]:
    return [value // 1000 for value in column.cast(pa.int64()).to_pylist()]


@pytest.mark.parametrize("name", golden_data.STORED)
def test_recorded_messages_have_the_columns_that_java_read(name: str) -> None:
    data = golden_data.stored_bytes(name)
    rows = golden_data.rows(name)
    arrow = _core.decode_arrow(data, broker_name="broker-a", check_crc=True)
    assert arrow.errors == []
    assert len(arrow) == arrow.num_rows == len(rows) > 0
    batch = pa.record_batch(arrow)
    batch.validate(full=True)
    assert batch.num_rows == len(rows)
    for column, field in PLAIN.items():
        assert batch.column(column).to_pylist() == [row[field] for row in rows], column
    assert set(batch.column("brokerName").to_pylist()) == {"broker-a"}
    for column in ("bornTimestamp", "storeTimestamp"):
        assert milliseconds(batch.column(column)) == [row[column] for row in rows]
    for column in ("bornHost", "storeHost"):
        assert batch.column(column).to_pylist() == [host(row[column]) for row in rows]
    assert [len(body) for body in batch.column("body").to_pylist()] == [
        max(row["bodyLength"], 0) for row in rows
    ]
    assert [dict(entry) for entry in batch.column("properties").to_pylist()] == [
        row["properties"] for row in rows
    ]
    messages = _core.decode_messages(data)
    assert batch.column("body").to_pylist() == [message.body for message in messages]
    for column, attribute in (("sysFlag", "sys_flag"), ("storeSize", "store_size")):
        assert batch.column(column).to_pylist() == [getattr(m, attribute) for m in messages]
    assert batch.column("bodyCRC").to_pylist() == [message.body_crc for message in messages]
    assert batch.column("offsetMsgId").to_pylist() == [m.offset_msg_id for m in messages]
