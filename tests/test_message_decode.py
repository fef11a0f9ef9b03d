"""Stored messages: bad ones between good ones, caps, views and their lifetimes."""

from __future__ import annotations

import gc
import struct
import time
import tracemalloc
import zlib

import lz4.frame
import numpy as np
import pytest
import zstandard

from rocketmq_fast import _core
from tests.reference.encode import encode_batch
from tests.reference.messages_factory import (
    build_blank,
    build_inner_batch,
    build_message,
    compress,
)

KINDS = {"old zlib": 0, "LZ4": 0x100, "ZSTD": 0x200, "zlib": 0x300}


def offsets(batch: _core.MessageBatch) -> list[int]:
    return [message.queue_offset for message in batch]


def good(offset: int) -> bytes:
    return build_message(queue_offset=offset, body=b"good", properties={"TAGS": "t"})


def wrong(field: str) -> bytes:
    """A message of queue offset 50 with one thing wrong, its size still right."""
    if field == "magic":
        return build_message(queue_offset=50, magic=0x12345678)
    data = bytearray(
        build_message(queue_offset=50, topic="T", body=b"12345", properties={"a": "b"})
    )
    body, topic, properties = 84, 93, 95
    packed = {
        "negative body length": (body, struct.pack(">i", -1)),
        "body length beyond the message": (body, struct.pack(">i", 5000)),
        "largest body length": (body, struct.pack(">i", 0x7FFFFFFF)),
        "negative topic length": (topic, b"\xff"),
        "topic length beyond the message": (topic, b"\x7f"),
        "negative properties length": (properties, b"\xff\xff"),
        "properties length beyond the message": (properties, b"\x7f\xff"),
        "properties shorter than the rest": (properties, b"\x00\x01"),
        "body shorter than the rest": (body, struct.pack(">i", 4)),
    }
    at, value = packed[field]
    data[at : at + len(value)] = value
    return bytes(data)


WRONG = [
    "magic",
    "negative body length",
    "body length beyond the message",
    "largest body length",
    "negative topic length",
    "topic length beyond the message",
    "negative properties length",
    "properties length beyond the message",
    "properties shorter than the rest",
    "body shorter than the rest",
]


@pytest.mark.parametrize("field", WRONG)
def test_a_bad_message_is_named_and_its_neighbours_are_delivered(field: str) -> None:
    data = good(1) + wrong(field) + good(3) + wrong(field) + good(5)
    batch = _core.decode_messages(data)
    assert offsets(batch) == [1, 3, 5]
    assert all(message.body == b"good" for message in batch)
    first = len(good(1))
    second = first + len(wrong(field)) + len(good(3))
    assert [position for position, _, _ in batch.errors] == [first, second]
    for _, offset, reason in batch.errors:
        assert offset == (None if field == "magic" else 50)
        assert isinstance(reason, str)
        assert reason


@pytest.mark.parametrize("size", [0, -1, 7, 90, 1 << 30, -(1 << 31), 0x7FFFFFFF])
def test_a_wrong_size_costs_only_its_own_message(size: int) -> None:
    data = good(1) + struct.pack(">i", size) + good(2)[4:] + good(3)
    batch = _core.decode_messages(data)
    assert offsets(batch) == [1, 3]
    ((position, offset, reason),) = batch.errors
    assert (position, offset) == (len(good(1)), 2)
    assert str(size) in reason


@pytest.mark.parametrize("change", [-1, 1, 40])
def test_a_size_that_its_parts_contradict_costs_only_its_own_message(change: int) -> None:
    size = len(good(2)) + change
    data = good(1) + struct.pack(">i", size) + good(2)[4:] + good(3)
    batch = _core.decode_messages(data)
    assert offsets(batch) == [1, 3]
    assert [(position, offset) for position, offset, _ in batch.errors] == [(len(good(1)), 2)]


@pytest.mark.parametrize("size", [0, -1, 1 << 30])
def test_what_came_before_noise_is_kept(size: int) -> None:
    data = good(1) + good(2) + struct.pack(">i", size) + b"noise" * 40
    batch = _core.decode_messages(data)
    assert offsets(batch) == [1, 2]
    assert [position for position, _, _ in batch.errors] == [len(good(1)) + len(good(2))]


def test_a_cut_off_tail_is_an_error_at_its_start() -> None:
    data = good(1) + good(2)
    batch = _core.decode_messages(data[:-1])
    assert offsets(batch) == [1]
    assert [position for position, _, _ in batch.errors] == [len(good(1))]


def test_an_empty_body_holds_no_message() -> None:
    batch = _core.decode_messages(b"")
    assert (len(batch), batch.errors, list(batch)) == (0, [], [])
    assert batch.queue_offsets.shape == (0,)


def test_a_blank_is_the_end() -> None:
    batch = _core.decode_messages(good(1) + build_blank(64) + good(2))
    assert (offsets(batch), batch.errors) == ([1], [])


def test_a_wrong_checksum_is_an_error_only_when_asked_for() -> None:
    data = good(1) + build_message(queue_offset=2, body_crc=5) + good(3)
    assert offsets(_core.decode_messages(data)) == [1, 2, 3]
    batch = _core.decode_messages(data, check_crc=True)
    assert offsets(batch) == [1, 3]
    ((position, offset, reason),) = batch.errors
    assert (position, offset) == (len(good(1)), 2)
    assert "CRC" in reason


def test_the_checksum_is_that_of_the_stored_body() -> None:
    body = compress(b"x" * 1000, 0x300)
    data = build_message(body=body, sys_flag=0x301, body_crc=zlib.crc32(body) & 0x7FFFFFFF)
    batch = _core.decode_messages(data, check_crc=True)
    assert batch.errors == []
    assert batch[0].body == b"x" * 1000
    assert batch[0].body_crc == zlib.crc32(body) & 0x7FFFFFFF


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_compressed_bodies_are_inflated_or_left(kind: int) -> None:
    plain = b"0123456789" * 500
    body = compress(plain, kind)
    data = good(1) + build_message(body=body, sys_flag=kind | 1, queue_offset=2) + good(3)
    batch = _core.decode_messages(data)
    assert [message.body for message in batch] == [b"good", plain, b"good"]
    assert batch.body_sizes.tolist() == [4, len(plain), 4]
    left = _core.decode_messages(data, decompress=False)
    assert [message.body for message in left] == [b"good", body, b"good"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_empty_compressed_body_is_empty(kind: int) -> None:
    data = build_message(body=compress(b"", kind), sys_flag=kind | 1)
    batch = _core.decode_messages(data)
    assert batch.errors == []
    assert batch[0].body == b""


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("damage", ["cut", "noise", "first byte"])
def test_a_damaged_compressed_body_is_an_error_of_its_message(kind: int, damage: str) -> None:
    body = compress(bytes(range(256)) * 20, kind)
    damaged = {
        "cut": body[: len(body) // 2],
        "noise": b"this is not compressed at all",
        "first byte": bytes([body[0] ^ 0x55]) + body[1:],
    }[damage]
    data = good(1) + build_message(body=damaged, sys_flag=kind | 1, queue_offset=2) + good(3)
    batch = _core.decode_messages(data)
    assert offsets(batch) == [1, 3]
    ((position, offset, reason),) = batch.errors
    assert (position, offset) == (len(good(1)), 2)
    assert reason


@pytest.mark.parametrize("kind", [0x400, 0x500, 0x600, 0x700])
def test_an_unknown_compression_is_an_error_of_its_message(kind: int) -> None:
    data = build_message(body=b"abc", sys_flag=kind | 1, queue_offset=2) + good(3)
    batch = _core.decode_messages(data)
    assert offsets(batch) == [3]
    assert "compression" in batch.errors[0][2]
    assert offsets(_core.decode_messages(data, decompress=False)) == [2, 3]


def bomb(kind: int, size: int) -> bytes:
    """`size` zeros, as small as the codec makes them."""
    if kind in (0, 0x300):
        stream = zlib.compressobj(9)
        pieces = [stream.compress(bytes(1 << 20)) for _ in range(size >> 20)]
        return b"".join(pieces) + stream.flush()
    if kind == 0x100:
        return bytes(lz4.frame.compress(bytes(size), content_checksum=False, store_size=False))
    return zstandard.ZstdCompressor(level=19).compress(bytes(size))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_bomb_is_stopped_at_the_cap(kind: int) -> None:
    cap = 1 << 20
    body = bomb(kind, 256 << 20)
    data = good(1) + build_message(body=body, sys_flag=kind | 1, queue_offset=2) + good(3)
    tracemalloc.start()
    try:
        batch = _core.decode_messages(data, max_body=cap)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert offsets(batch) == [1, 3]
    assert str(cap) in batch.errors[0][2]
    assert peak < 80 << 20


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_body_of_exactly_the_cap_is_inflated(kind: int) -> None:
    plain = b"ab" * 50_000
    data = build_message(body=compress(plain, kind), sys_flag=kind | 1)
    assert _core.decode_messages(data, max_body=len(plain))[0].body == plain
    batch = _core.decode_messages(data, max_body=len(plain) - 1)
    assert len(batch) == 0
    assert len(batch.errors) == 1


def test_the_inflated_bodies_of_one_pull_have_a_cap_together() -> None:
    plain = bytes(100_000)
    one = build_message(body=compress(plain, 0x300), sys_flag=0x301)
    batch = _core.decode_messages(one * 10, max_body=len(plain))
    assert len(batch) == 4
    assert len(batch.errors) == 6


def test_an_inner_batch_is_unwrapped() -> None:
    elements = [(7, b"one", {"TAGS": "a"}), (8, b"", {}), (9, b"three", {"KEYS": "k"})]
    data = good(1) + build_inner_batch(
        elements,
        queue_offset=40,
        topic="B",
        queue_id=3,
        commit_log_offset=999,
        reconsume_times=4,
        prepared_transaction_offset=5,
        born_host=("::1", 5),
    )
    batch = _core.decode_messages(data + good(90))
    assert offsets(batch) == [1, 40, 41, 42, 90]
    inner = batch[1:4]
    assert [message.flag for message in inner] == [7, 8, 9]
    assert [message.body for message in inner] == [b"one", b"", b"three"]
    assert [message.tags for message in inner] == ["a", None, None]
    assert [message.keys for message in inner] == [None, None, "k"]
    for message in inner:
        assert (message.topic, message.queue_id, message.commit_log_offset) == ("B", 3, 999)
        assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)
        assert message.born_host == ("::1", 5)
        assert message.sys_flag == 0xD0


def test_an_inner_batch_without_both_flags_is_one_message() -> None:
    body = encode_batch([(1, b"x", {})])
    for flag in (0x40, 0x80):
        batch = _core.decode_messages(build_message(body=body, sys_flag=flag))
        assert [message.body for message in batch] == [body]


def test_an_empty_inner_batch_delivers_nothing() -> None:
    batch = _core.decode_messages(good(1) + build_inner_batch([]) + good(2))
    assert (offsets(batch), batch.errors) == ([1, 2], [])


def test_a_damaged_inner_batch_is_an_error_and_its_neighbours_stay() -> None:
    body = encode_batch([(1, b"x", {}), (2, b"y", {})])
    data = build_message(body=body[:-1], sys_flag=0xC0, queue_offset=10)
    batch = _core.decode_messages(good(1) + data + good(20))
    assert offsets(batch)[0] == 1
    assert offsets(batch)[-1] == 20
    ((position, offset, reason),) = batch.errors
    assert position == len(good(1))
    assert offset in (10, 11)
    assert "batch" in reason


@pytest.mark.parametrize(
    "bad",
    [
        build_message(queue_offset=-7, body_crc=5),
        build_message(queue_offset=-7, body=b"no zlib", sys_flag=0x301),
        build_message(queue_offset=-7, body=b"no batch at all, not one", sys_flag=0xC0),
    ],
    ids=["checksum", "compressed", "inner batch"],
)
def test_a_negative_offset_of_a_bad_message_counts_as_unknown(bad: bytes) -> None:
    batch = _core.decode_messages(bad, check_crc=True)
    ((_, offset, _),) = batch.errors
    assert offset is None


def test_bytes_that_are_not_utf8_are_replaced_and_cost_no_message() -> None:
    data = bytearray(build_message(topic="TXX", properties=b"K\xffEY\x01v\xc3\x02TAGS\x01\xff\x02"))
    at = data.index(b"TXX")
    data[at + 1 : at + 3] = b"\xff\xfe"
    (message,) = _core.decode_messages(bytes(data))
    assert message.topic == "T\ufffd\ufffd"
    assert message.properties == {"K\ufffdEY": "v\ufffd", "TAGS": "\ufffd"}
    assert message.tags == "\ufffd"


@pytest.mark.parametrize("trailing", [True, False])
def test_a_property_string_of_full_length_is_read(trailing: bool) -> None:
    value = "v" * (32767 - 4 - trailing)
    data = build_message(properties={"KEY": value}, trailing=trailing)
    assert _core.decode_messages(data)[0].properties == {"KEY": value}


def test_hosts_of_both_families_and_their_ids() -> None:
    data = build_message(
        born_host=("2001:db8::ff", 1),
        store_host=("10.1.2.3", 10911),
        commit_log_offset=0x5F669224,
    ) + build_message(born_host=("1.2.3.4", 65535), store_host=("fe80::1", 10911))
    first, second = _core.decode_messages(data)
    assert (first.born_host, first.store_host) == (("2001:db8::ff", 1), ("10.1.2.3", 10911))
    assert first.offset_msg_id == "0A01020300002A9F000000005F669224"
    assert (second.born_host, second.store_host) == (("1.2.3.4", 65535), ("fe80::1", 10911))
    assert second.offset_msg_id == "FE80000000000000000000000000000100002A9F0000000000000000"


def test_the_message_id_is_the_unique_key_where_there_is_one() -> None:
    with_key, without = _core.decode_messages(
        build_message(properties={"UNIQ_KEY": "ABC"}) + build_message()
    )
    assert with_key.msg_id == "ABC"
    assert without.msg_id == without.offset_msg_id == "7F00000100002A9F0000000000000000"


def test_a_long_topic_needs_the_second_version() -> None:
    topic = "x" * 300
    data = build_message(topic=topic, version=2)
    assert _core.decode_messages(data)[0].topic == topic


@pytest.mark.parametrize("level", ["abc", "", "1.5", "99999999999999999999"])
def test_a_damaged_delay_level_costs_no_message(level: str) -> None:
    (message,) = _core.decode_messages(build_message(properties={"DELAY": level}))
    assert isinstance(message.delay_time_level, int)


def test_messages_are_indexed_sliced_and_iterated() -> None:
    batch = _core.decode_messages(b"".join(good(n) for n in range(5)))
    assert len(batch) == 5
    assert batch[-1].queue_offset == 4
    assert [m.queue_offset for m in batch[1:4:2]] == [1, 3]
    assert offsets(batch) == list(range(5))
    for index in (5, -6):
        with pytest.raises(IndexError):
            batch[index]


def test_a_view_outlives_batch_and_buffer_name() -> None:
    data = bytearray(build_message(body=b"body " * 1000, properties={"TAGS": "t"}))
    batch = _core.decode_messages(data)
    message = batch[0]
    del batch
    gc.collect()
    assert message.body == b"body " * 1000
    with pytest.raises(BufferError):
        data.append(0)
    detached = message.detach()
    del message
    gc.collect()
    data.append(0)
    assert (detached.body, detached.tags) == (b"body " * 1000, "t")


def test_messages_are_read_only() -> None:
    (message,) = _core.decode_messages(good(1))
    for name in ("body", "queue_offset", "tags"):
        with pytest.raises(AttributeError):
            setattr(message, name, None)
    with pytest.raises(TypeError):
        _core.MessageExt()


def test_a_property_is_found_wherever_it_stands() -> None:
    # Of any length around it, in front, at the end, as a part of other names and values.
    for before in range(40):
        for behind in (0, 1, 7, 8, 15, 16, 30):
            text = b"x" * before + b"\x01KEY\x01KEY\x02KEY\x01" + b"v" * behind + b"\x02XKEY\x01no"
            (message,) = _core.decode_messages(build_message(properties=text))
            expected = message.properties.get("KEY")
            assert message.get_property("KEY") == expected
            assert (expected is None) is (behind == 0)
            assert message.get_property("XKEY") == "no"
            assert message.get_property("EY") is None
            text = b"K\x01" + b"v" * before + b"\x02" + b"n" * behind + b"\x01end"
            (message,) = _core.decode_messages(build_message(properties=text))
            assert message.get_property("K") == ("v" * before or None)
            assert message.get_property("n" * behind) == ("end" if behind else None)


def test_a_name_that_no_property_can_have_is_not_found() -> None:
    data = build_message(properties=b"a\x01b\x01c\x02d\x01e")
    (message,) = _core.decode_messages(data)
    assert message.properties == {"a": "b\x01c", "d": "e"}
    for name in ("", "a\x01b", "a\x01b\x01c\x02d", "\x02d"):
        assert message.get_property(name, 5) == 5


def test_retain_keeps_the_masked_messages() -> None:
    batch = _core.decode_messages(b"".join(good(n) for n in range(6)))
    kept = batch.retain(np.array([True, False, True, False, False, True]))
    del batch
    gc.collect()
    assert offsets(kept) == [0, 2, 5]
    with pytest.raises(ValueError, match="mask"):
        kept.retain(np.array([True]))


def test_thousands_of_bad_messages_are_all_reported_quickly() -> None:
    data = wrong("magic") * 20_000 + good(1)
    started = time.process_time()
    batch = _core.decode_messages(data)
    assert len(batch.errors) == 20_000
    assert offsets(batch) == [1]
    # Generous: a decoder that copies the rest at each error would take minutes.
    assert time.process_time() - started < 60


@pytest.mark.parametrize("size", [1, 100_000, 1_000_000])
def test_large_batches_decode_with_and_without_the_gil(size: int) -> None:
    one = build_message(body=bytes(1000), queue_offset=7)
    count = max(1, size // len(one))
    batch = _core.decode_messages(one * count)
    assert len(batch) == count
    assert (batch.queue_offsets == 7).all()
    assert batch.body_bytes == 1000 * count
