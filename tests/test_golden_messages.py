"""Stored messages of real brokers, field by field, through the native decoder."""

from __future__ import annotations

import pytest

from rocketmq_fast import _core
from tests import golden_data

STORED = golden_data.STORED


@pytest.mark.parametrize("name", STORED)
def test_recorded_messages_have_the_fields_that_java_read(name: str) -> None:
    batch = _core.decode_messages(golden_data.stored_bytes(name), check_crc=True)
    rows = golden_data.rows(name)
    assert batch.errors == []
    assert len(batch) == len(rows) > 0
    codes = batch.tag_codes
    for index, row in enumerate(rows):
        found = golden_data.as_row(batch[index], int(codes[index]))
        assert golden_data.differences(found, row) == {}, index


@pytest.mark.parametrize("name", STORED)
def test_columns_of_recorded_messages_hold_the_same_numbers(name: str) -> None:
    batch = _core.decode_messages(golden_data.stored_bytes(name))
    rows = golden_data.rows(name)
    columns = {
        "queueId": batch.queue_ids,
        "flag": batch.flags,
        "queueOffset": batch.queue_offsets,
        "commitLogOffset": batch.commit_log_offsets,
        "bornTimestamp": batch.born_timestamps,
        "storeTimestamp": batch.store_timestamps,
        "reconsumeTimes": batch.reconsume_times,
        "tagsCode": batch.tag_codes,
    }
    for field, column in columns.items():
        assert column.dtype.name == "int64"
        assert column.tolist() == [row[field] for row in rows], field
    assert batch.body_sizes.tolist() == [max(row["bodyLength"], 0) for row in rows]
    assert batch.body_bytes == sum(max(row["bodyLength"], 0) for row in rows)
    assert batch.sys_flags.tolist() == [message.sys_flag for message in batch]
    assert batch.store_sizes.tolist() == [message.store_size for message in batch]


@pytest.mark.parametrize("name", STORED)
def test_detached_recorded_messages_are_the_same(name: str) -> None:
    data = golden_data.stored_bytes(name)
    rows = golden_data.rows(name)
    batch = _core.decode_messages(data)
    codes = batch.tag_codes.tolist()
    detached = [message.detach() for message in batch]
    del batch
    for message, code, row in zip(detached, codes, rows, strict=True):
        assert golden_data.differences(golden_data.as_row(message, code), row) == {}


@pytest.mark.parametrize("name", STORED)
def test_recorded_messages_decode_the_same_from_any_buffer(name: str) -> None:
    data = golden_data.stored_bytes(name)
    expected = [golden_data.as_row(message, 0) for message in _core.decode_messages(data)]
    for buffer in (bytearray(data), memoryview(b"x" + data)[1:]):
        batch = _core.decode_messages(buffer)
        assert [golden_data.as_row(message, 0) for message in batch] == expected


def test_the_documented_messages_are_read() -> None:
    v5 = bytes.fromhex(
        "000000f7daa320a72dd0cb6f0000000000000000000000000000000000000000000000000000000000"
        "0001a1fa1727f37f0000010000cf8e000001a1fa1728237f00000100002aa900000000000000000000"
        "00000000000a68656c6c6f2d776972650b57504661637450726f626500874d53475f524547494f4e01"
        "44656661756c74526567696f6e02554e49515f4b455901374630303030303130304130313842344141"
        "433230303030303030303030303102434c55535445520144656661756c74436c757374657202544147"
        "530154616741024b455953016b31206b32025741495401747275650254524143455f4f4e0174727565"
        "02"
    )
    (message,) = _core.decode_messages(v5, check_crc=True)
    assert message.topic == "WPFactProbe"
    assert message.body == b"hello-wire"
    assert message.body_crc == 768658287
    assert message.store_host == ("127.0.0.1", 10921)
    assert message.properties == {
        "MSG_REGION": "DefaultRegion",
        "UNIQ_KEY": "7F00000100A018B4AAC2000000000001",
        "CLUSTER": "DefaultCluster",
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "WAIT": "true",
        "TRACE_ON": "true",
    }
