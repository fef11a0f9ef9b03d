"""The native message decoder and the reference agree, on right bytes and on wrong ones."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_fast import _core
from tests import golden_data
from tests.differential import mutations
from tests.reference import message as reference
from tests.reference.messages_factory import (
    build_blank,
    build_inner_batch,
    build_message,
    compress,
    random_message,
    random_pull_body,
)

FIELDS = (
    *("topic", "queue_id", "flag", "queue_offset", "commit_log_offset", "sys_flag"),
    *("born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times"),
    *("prepared_transaction_offset", "store_size", "body_crc", "body", "properties", "tags"),
    *("keys", "delay_time_level", "msg_id", "offset_msg_id"),
)


def fields_of(message: Any) -> tuple[Any, ...]:
    return tuple(getattr(message, name) for name in FIELDS)


def places_of(errors: Any) -> list[tuple[int, int | None]]:
    """Where the bad messages are; negative offsets are as good as none."""
    return [
        (position, None if offset is None or offset < 0 else offset)
        for position, offset, reason in errors
        if reason
    ]


def assert_same(data: bytes, **options: Any) -> reference.Decoded:
    expected = reference.decode_messages(data, **options)
    found = _core.decode_messages(data, **options)
    assert places_of(found.errors) == places_of(expected.errors), (data, found.errors)
    assert list(map(fields_of, found)) == list(map(fields_of, expected.messages)), data
    assert found.tag_codes.tolist() == [message.tag_code for message in expected.messages]
    assert found.body_sizes.tolist() == [len(message.body) for message in expected.messages]
    return expected


def messages_of(name: str) -> list[bytes]:
    data = golden_data.stored_bytes(name)
    found = []
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        found.append(data[position : position + size])
        position += size
    return found


def short_messages(largest: int, count: int) -> list[bytes]:
    """Recorded messages of each kind that are short enough to change every byte of."""
    found = []
    for name in golden_data.STORED:
        short = [data for data in messages_of(name) if len(data) <= largest]
        found += short[:: max(1, len(short) // count)][:count]
    return found


@pytest.mark.parametrize("name", golden_data.STORED)
@pytest.mark.parametrize("decompress", [True, False])
def test_recorded_messages_decode_alike(name: str, decompress: bool) -> None:
    decoded = assert_same(golden_data.stored_bytes(name), decompress=decompress, check_crc=True)
    assert decoded.messages


@pytest.mark.parametrize("seed", range(8))
def test_random_messages_decode_alike(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(30):
        data = random_pull_body(source, source.randint(1, 12))
        decoded = assert_same(data, check_crc=True)
        assert decoded.errors == []
        assert_same(data, decompress=False)


def test_every_prefix_of_a_message_decodes_alike() -> None:
    source = random.Random(5)
    messages = [*short_messages(260, 3), random_message(source), random_message(source)]
    for data in messages:
        for size in range(len(data)):
            assert_same(data[:size])
            if size >= 4:
                assert_same(size.to_bytes(4, "big") + data[4:size] + messages[0])


def test_a_message_with_one_wrong_byte_decodes_alike_and_its_neighbours_stay() -> None:
    source = random.Random(1)
    good = build_message(queue_offset=1)
    kinds = set()
    for data in short_messages(330, 4):
        for at in range(len(data)):
            for value in {0, 0xFF, data[at] ^ 1, data[at] ^ 0x80, source.randrange(256)}:
                changed = data[:at] + bytes([value]) + data[at + 1 :]
                decoded = assert_same(good + changed + good, check_crc=at % 2 == 0)
                assert decoded.messages[0].queue_offset == 1
                kinds.update(error.reason.split(" ")[0] for error in decoded.errors)
    assert {"message", "unknown", "body", "topic", "properties"} <= kinds


@pytest.mark.parametrize("seed", range(6))
def test_changed_pull_bodies_decode_alike(seed: int) -> None:
    source = random.Random(seed)
    broken = 0
    for _ in range(40):
        data = random_pull_body(source, source.randint(1, 4))
        for changed in mutations(data, source, 10):
            decoded = assert_same(changed, check_crc=source.random() < 0.5)
            broken += bool(decoded.errors)
    assert broken > 50


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_noise_decodes_alike(data: bytes) -> None:
    assert_same(data)


def test_a_blank_ends_the_messages_without_an_error() -> None:
    good = build_message()
    for blank in (build_blank(8), build_blank(200), build_blank(8)[:8]):
        decoded = assert_same(good + blank + good)
        assert len(decoded.messages) == 1
        assert decoded.errors == []


@pytest.mark.parametrize("kind", [0, 0x100, 0x200, 0x300, 0x400, 0x700])
@pytest.mark.parametrize("seed", [1, 2])
def test_changed_compressed_bodies_inflate_or_fail_alike(kind: int, seed: int) -> None:
    source = random.Random(seed * 1000 + kind)
    plain = b"".join(source.choices((b"abc", b"\x00" * 20, b"xyz0", b"\xff"), k=200))
    body = compress(plain, kind) if kind < 0x400 else plain
    for changed in [body, body + b"tail", body[:-1], b"", *mutations(body, source, 60)]:
        data = build_message(body=changed, sys_flag=kind | 1, queue_offset=9)
        good = build_message(queue_offset=10)
        expected = reference.decode_messages(data + good)
        found = _core.decode_messages(data + good)
        assert found[-1].queue_offset == 10
        assert places_of(found.errors) == places_of(expected.errors), (changed, expected.errors)
        assert [m.body for m in found] == [m.body for m in expected.messages]


def test_compressed_inner_batches_unwrap_alike() -> None:
    source = random.Random(4)
    for kind in (0, 0x100, 0x200, 0x300):
        whole = build_inner_batch([(1, b"one", {"TAGS": "a"}), (2, b"", {})], queue_offset=5)
        plain = reference.decode_messages(whole, decompress=True).messages
        assert [(m.queue_offset, m.body) for m in plain] == [(5, b"one"), (6, b"")]
        body = reference.decode_message(whole, 0, len(whole))[0].body
        for changed in [body, *mutations(body, source, 40)]:
            data = build_message(body=compress(changed, kind), sys_flag=kind | 0xC1, queue_offset=5)
            assert_same(data + build_message(queue_offset=99))
            assert_same(data + build_message(queue_offset=99), decompress=False)
