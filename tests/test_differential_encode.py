"""What producers write: the native encoder against the reference and its own reader."""

from __future__ import annotations

import random
import re
import threading
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_fast._core import encode
from rocketmq_fast._core.message import decode_messages
from rocketmq_fast.errors import MessageEncodeError
from tests.reference import encode as reference
from tests.reference import properties as reference_properties
from tests.reference.messages_factory import build_message

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=20)
properties = st.dictionaries(text, text, max_size=6)


@given(properties)
@settings(max_examples=200, deadline=None)
def test_property_strings_are_those_of_the_reference(table: dict[str, str]) -> None:
    encoded = encode.encode_properties(table)
    assert encoded.rstrip(b"\x02") == reference_properties.encode_properties(
        table, trailing=False
    ).rstrip(b"\x02")
    usable = {name: value for name, value in table.items() if name and value}
    assert encode.decode_properties(encoded) == usable
    assert reference_properties.decode_properties(encoded) == usable


@given(st.binary(max_size=60) | st.lists(st.sampled_from([b"\x01", b"\x02", b"a"])).map(b"".join))
@settings(max_examples=300, deadline=None)
def test_any_property_bytes_are_read_alike(data: bytes) -> None:
    assert encode.decode_properties(data) == reference_properties.decode_properties(data)


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=80), properties),
        max_size=6,
    )
)
@settings(max_examples=200, deadline=None)
def test_a_batch_body_is_read_by_the_reference(elements: list[Any]) -> None:
    data = encode.encode_batch(elements)
    assert list(reference.decode_batch(data)) == [
        (flag, body, {name: value for name, value in table.items() if name and value})
        for flag, body, table in elements
    ]


def test_a_batch_body_of_the_reference_becomes_an_inner_batch() -> None:
    source = random.Random(1)
    elements = [(n, source.randbytes(n), {"KEYS": f"k{n}"}) for n in range(20)]
    for data in (encode.encode_batch(elements), reference.encode_batch(elements)):
        batch = decode_messages(build_message(body=data, sys_flag=0xC0, queue_offset=100))
        assert [(m.flag, m.body, m.properties) for m in batch] == elements
        assert batch.queue_offsets.tolist() == list(range(100, 120))


def test_the_documented_batch_element_is_written() -> None:
    data = encode.encode_batch([(0, b"hi", {"A": "b"})])
    assert data[20:22] == b"hi"
    assert data[24:].rstrip(b"\x02") == b"A\x01b"
    assert int.from_bytes(data[:4], "big") == len(data)
    assert data[4:20] == bytes(12) + b"\x00\x00\x00\x02"


@pytest.mark.parametrize(
    "table",
    [{"a\x01": "b"}, {"a": "b\x02"}, {"a": 5}, {"a": None}, {5: "a"}, {"a": "\ud800"}],
    ids=repr,
)
def test_properties_that_cannot_be_written_are_refused(table: dict[Any, Any]) -> None:
    with pytest.raises(MessageEncodeError):
        encode.encode_properties(table)
    with pytest.raises(MessageEncodeError):
        encode.encode_batch([(0, b"", {}), (0, b"x", table)])


def test_properties_over_32767_bytes_are_refused_in_a_batch() -> None:
    most = 32767 - len("A\x01")
    data = encode.encode_batch([(0, b"", {"A": "x" * most})])
    assert [element.properties for element in reference.decode_batch(data)] == [{"A": "x" * most}]
    with pytest.raises(MessageEncodeError):
        encode.encode_batch([(0, b"", {"A": "x" * (most + 1)})])


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_checksums_are_those_of_zlib_without_the_top_bit(data: bytes) -> None:
    assert encode.crc32(data) == zlib.crc32(data) & 0x7FFFFFFF


def test_the_documented_checksums() -> None:
    assert encode.crc32(b"123456789") == 1274296614
    assert encode.crc32(b"hello-wire") == 768658287
    assert encode.crc32(b"") == 0
    assert encode.crc32(memoryview(bytes(range(256)) * 999)) == (
        zlib.crc32(bytes(range(256)) * 999) & 0x7FFFFFFF
    )


def test_unique_ids_differ_across_threads() -> None:
    generator = encode.UniqueIdGenerator(bytes([10, 1, 2, 3]))
    ids: list[str] = []

    def make() -> None:
        ids.extend([generator.create() for _ in range(5000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(ids)) == len(ids) == 20_000
    assert all(re.fullmatch("0A010203[0-9A-F]{24}", found) for found in ids)
    assert len({found[8:20] for found in ids}) == 1
