"""The reference itself is right only if it reads what the Java classes wrote."""

from __future__ import annotations

import pytest

from tests import golden_data
from tests.reference import frame, message, process_queue, tags
from tests.reference.encode import decode_batch, encode_batch
from tests.reference.messages_factory import build_message
from tests.reference.properties import decode_properties, encode_properties


@pytest.mark.parametrize("name", golden_data.STORED)
def test_reference_reads_stored_messages_as_java_did(name: str) -> None:
    decoded = message.decode_messages(golden_data.stored_bytes(name), check_crc=True)
    rows = golden_data.rows(name)
    assert decoded.errors == []
    assert len(decoded.messages) == len(rows) > 0
    for found, row in zip(decoded.messages, rows, strict=True):
        assert golden_data.differences(golden_data.as_row(found, found.tag_code), row) == {}


@pytest.mark.parametrize("name", golden_data.FRAMES)
def test_reference_reads_and_writes_recorded_frames(name: str) -> None:
    frames = golden_data.frames(name)
    assert frames
    for row, data in frames:
        command = frame.decode_frame(data)
        assert command.code == row["code"]
        assert command.serialize_type == {"JSON": 0, "ROCKETMQ": 1}[row["serialize"]]
        assert command.flag == {"request": 0, "response": 1, "oneway": 2}[row["kind"]]
        assert frame.decode_frame(frame.encode_frame(command)) == command


@pytest.mark.parametrize("name", golden_data.TAG_HASHES)
def test_reference_hashes_tags_as_java_did(name: str) -> None:
    rows = golden_data.rows(name)
    assert rows
    assert [tags.java_hash(row["tag"]) for row in rows] == [row["hash"] for row in rows]


def test_reference_builds_the_message_a_broker_stored() -> None:
    data = bytes.fromhex(
        "000000c5daa320a72dd0cb6f00000000000000000000000000000000000000005f66922400000000000001a1"
        "fa1566507f0000010000d800000001a1fa15665a7f00000100002a9f0000000000000000000000000000000a"
        "68656c6c6f2d776972650b57504661637450726f626500554b455953016b31206b3202554e49515f4b455901"
        "374630303030303130304130313842344141433230303030303030303030303102434c555354455201446566"
        "61756c74436c757374657202544147530154616741"
    )
    found = message.decode_messages(data, check_crc=True).messages[0]
    assert (found.topic, found.body, found.tags, found.keys) == (
        "WPFactProbe",
        b"hello-wire",
        "TagA",
        "k1 k2",
    )
    assert found.offset_msg_id == "7F00000100002A9F000000005F669224"
    assert data == build_message(
        topic=found.topic,
        body=found.body,
        properties=found.properties,
        commit_log_offset=found.commit_log_offset,
        born_timestamp=found.born_timestamp,
        born_host=found.born_host,
        store_timestamp=found.store_timestamp,
        store_host=found.store_host,
        trailing=False,
    )


def test_reference_writes_a_batch_element_as_java_does() -> None:
    data = bytes.fromhex("0000001b000000000000000000000000000000026869 0003 410162")
    # Java ends the properties of an element with 02 since 5.x; both are read.
    assert list(decode_batch(data)) == [(0, b"hi", {"A": "b"})]
    assert encode_batch([(0, b"hi", {"A": "b"})]).hex() == (
        "0000001c00000000000000000000000000000002" + "6869" + "0004" + "41016202"
    )


def test_reference_properties_follow_the_rules_of_java() -> None:
    assert decode_properties(b"a\x01b\x02a\x01c") == {"a": "c"}
    assert decode_properties(b"a\x01b\x01c\x02") == {"a": "b\x01c"}
    assert decode_properties(b"\x01b\x02a\x01\x02ab\x02\x02x\x01y") == {"x": "y"}
    assert encode_properties({"a": "b", "c": "d"}) == b"a\x01b\x02c\x01d\x02"
    assert encode_properties({"a": "b", "c": "d"}, trailing=False) == b"a\x01b\x02c\x01d"
    assert encode_properties({}) == b""


class Held:
    def __init__(self, offset: int) -> None:
        self.queue_offset = offset
        self.body = b"12345"


def held(*offsets: int) -> list[Held]:
    return [Held(offset) for offset in offsets]


def offsets(messages: object) -> list[int]:
    return [message.queue_offset for message in messages]  # type: ignore[attr-defined]


def test_reference_queue_gives_the_recorded_minimum_offsets() -> None:
    queue = process_queue.ProcessQueue()
    assert queue.put(held(10, 11, 12)) is True
    assert (queue.count, queue.size, queue.span) == (3, 15, 2)
    assert queue.put(held(13)) is False
    assert queue.remove([11]) == 10
    assert queue.remove([10]) == 12
    assert queue.remove([12, 13]) == 14
    assert queue.remove([13]) == -1


def test_reference_queue_takes_commits_and_rolls_back_as_recorded() -> None:
    queue = process_queue.ProcessQueue()
    queue.put(held(5, 6, 7))
    assert offsets(queue.take(2)) == [5, 6]
    assert (queue.span, queue.count) == (0, 3)
    assert (queue.commit(), queue.count) == (7, 1)
    assert offsets(queue.take(2)) == [7]
    queue.make_consume_again([7])
    assert (queue.min_offset, queue.max_offset) == (7, 7)
    assert offsets(queue.take(1)) == [7]
    queue.rollback()
    assert queue.min_offset == 7
    queue.take(1)
    assert queue.commit() == 8
    assert queue.take(1) == []
    assert queue.put(held(9)) is True
    assert queue.commit() == -1
    assert (queue.put(held(9)), queue.count, queue.size) == (False, 1, 5)
