"""Native assembly of stored messages: equal to Apache's bytes, strict about what it is given."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_fast._core import stored
from rocketmq_fast.errors import MessageDecodeError

GOLDEN = Path(__file__).parent / "golden"
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def records(name: str) -> list[tuple[bytes, dict[str, object]]]:
    data = (GOLDEN / f"{name}.bin").read_bytes()
    rows = [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines()]
    found = []
    at = 0
    for row in rows:
        size = int.from_bytes(data[at : at + 4], "big")
        found.append((data[at : at + size], row))
        at += size
    assert at == len(data)
    return found


def entry(data: bytes) -> tuple[int, int, int]:
    return struct.unpack(">qiq", data)


@pytest.mark.parametrize("name", ["stored_v4_9_4", "stored_v5_3_3"])
def test_reassembling_apache_records_gives_the_same_bytes(name: str) -> None:
    compared = 0
    for data, row in records(name):
        message = stored.read_stored(data, check_crc=True)
        assert message.queue_offset == row["queueOffset"]
        assert message.store_timestamp == row["storeTimestamp"]
        assert message.total_size == len(data)
        if data[7] != 0xA7:  # version 2 is read, never written
            continue
        again, index = stored.assemble_message(
            message.body,
            topic=message.topic_bytes,
            properties=message.properties,
            born_host=message.born_host,
            store_host=message.store_host,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            position=message.position,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            store_timestamp=message.store_timestamp,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
        assert again == data
        assert entry(index) == (message.position, len(data), row["tagsCode"])
        compared += 1
    assert compared > 100


def element(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def batch(body: bytes, more: bytes = b"", position: int = 0) -> tuple[bytes, bytes]:
    return stored.assemble_batch(
        body,
        topic=b"T",
        more_properties=more,
        born_host=HOST,
        store_host=HOST,
        queue_id=2,
        queue_offset=5,
        position=position,
        sys_flag=0,
        born_timestamp=1,
        store_timestamp=2,
    )


@given(
    st.lists(st.tuples(st.binary(max_size=80), st.sampled_from(["", "A", "标签"])), max_size=20),
    st.booleans(),
)
def test_batch_is_its_elements_one_by_one(items: list[tuple[bytes, str]], closed: bool) -> None:
    texts = [f"TAGS\x01{tag}".encode() if tag else b"" for _, tag in items]
    if closed:
        texts = [text + b"\x02" if text else text for text in texts]
    pairs = list(zip((body for body, _ in items), texts, strict=True))
    data, index = batch(b"".join(element(*pair) for pair in pairs), b"CLUSTER\x01c", 1000)
    at = 0
    for i, (body, text) in enumerate(pairs):
        message = stored.read_stored(data[at:], check_crc=True)
        joint = b"\x02" if text and not closed else b""
        assert message.properties == text + joint + b"CLUSTER\x01c"
        assert (message.body, message.queue_offset, message.position) == (body, 5 + i, 1000 + at)
        single, single_entry = stored.assemble_message(
            body,
            topic=b"T",
            properties=message.properties,
            born_host=HOST,
            store_host=HOST,
            queue_id=2,
            queue_offset=5 + i,
            position=1000 + at,
            flag=0,
            sys_flag=0,
            born_timestamp=1,
            store_timestamp=2,
        )
        assert data[at : at + len(single)] == single
        assert index[20 * i : 20 * i + 20] == single_entry
        at += len(single)
    assert at == len(data)


def test_every_cut_of_a_batch_is_refused_or_shorter() -> None:
    elements = [element(b"abc", b"TAGS\x01x"), element(b"", b""), element(b"d" * 40, b"k\x01v")]
    whole = b"".join(elements)
    ends = {0, len(elements[0]), len(elements[0]) + len(elements[1]), len(whole)}
    for cut in range(len(whole) + 1):
        if cut in ends:
            batch(whole[:cut])
        else:
            with pytest.raises(MessageDecodeError):
                batch(whole[:cut])


@pytest.mark.parametrize("at", [0, 16, 20 + 3])
@pytest.mark.parametrize("value", [0x80, 0x7F, 0xFF])
def test_wrong_lengths_in_a_batch_are_refused(at: int, value: int) -> None:
    data = bytearray(element(b"abc", b"TAGS\x01x"))
    data[at] = value
    with pytest.raises(MessageDecodeError) as caught:
        batch(bytes(data))
    assert caught.value.position == 0


def test_properties_over_the_limit_are_refused() -> None:
    with pytest.raises(MessageDecodeError, match="properties"):
        batch(element(b"", b"k\x01" + b"v" * 32760), b"CLUSTER\x01c")


def test_scan_stops_at_a_torn_or_damaged_record_and_keeps_what_is_before() -> None:
    data, index = batch(b"".join(element(b"x" * 50, b"TAGS\x01t") for _ in range(4)))
    size = len(data) // 4
    assert stored.scan_log(data, 0, True, b"S", []) == (
        len(data),
        [("T", 2, 5, index, 2)],
        None,
    )
    for cut in range(len(data)):
        consumed, runs, reason = stored.scan_log(data[:cut], 0, True, b"S", [])
        assert consumed == cut // size * size
        assert b"".join(run[3] for run in runs) == index[: 20 * (cut // size)]
        assert reason is None
    damaged = bytearray(data)
    damaged[3 * size - 40] ^= 1
    consumed, runs, reason = stored.scan_log(bytes(damaged), 0, True, b"S", [])
    assert consumed == 2 * size
    assert reason is not None
    assert "bodyCRC" in reason
    assert stored.scan_log(data, 8, True, b"S", [])[2] is not None


def test_scan_gives_delivery_times_for_the_schedule_topic() -> None:
    data, _ = batch(element(b"x", b"TAGS\x01t"))
    _, runs, _ = stored.scan_log(data, 0, True, b"T", [0, 0, 5000])
    assert entry(runs[0][3])[2] == 2 + 5000


def test_selection_follows_the_limits() -> None:
    entries = b"".join(struct.pack(">qiq", 100 * i, 100, i % 3) for i in range(30))

    def select(codes: list[int] | None, count: int = 32, size: int = 262144, disk: int = 0):
        wanted = None if codes is None else stored.CodeSet(codes)
        return stored.select_entries(entries, wanted, count, size, 8, 65536, disk)

    assert select(None) == (30, 30, 3000, [(0, 3000)])
    assert select(None, count=0) == (1, 1, 100, [(0, 100)])
    assert select(None, size=250) == (2, 2, 200, [(0, 200)])
    assert select(None, size=10)[1] == 1
    assert select(None, disk=10_000)[1] == 8
    assert select([1], count=2) == (5, 2, 200, [(100, 100), (400, 100)])
    assert select([7]) == (30, 0, 0, [])
    assert select([]) == (30, 0, 0, [])
    assert select([1, 2], count=3)[3] == [(100, 200), (400, 100)]
    with pytest.raises(ValueError, match="not negative"):
        select(None, count=-1)


def test_gather_refuses_runs_outside_the_piece() -> None:
    assert stored.gather(b"abcdef", 10, [(10, 2), (14, 2)]) == b"abef"
    for run in [(9, 2), (15, 2), (10, -1), (2**62, 2**62)]:
        with pytest.raises(ValueError, match="outside"):
            stored.gather(b"abcdef", 10, [run])


def test_find_key_matches_words_and_unique_ids() -> None:
    data, _ = batch(
        element(b"1", b"KEYS\x01a bb c")
        + element(b"2", b"UNIQ_KEY\x01ID\x02KEYS\x01bb")
        + element(b"3", b"KEYS\x01abb")
    )

    def find(key: bytes, topic: bytes = b"T", begin: int = 0, end: int = 10) -> int:
        consumed, found = stored.find_key(data, topic, key, begin, end)
        assert consumed == len(data)
        return len(found)

    assert [find(key) for key in (b"a", b"bb", b"c", b"ID", b"abb", b"b", b"")] == [
        1, 2, 1, 1, 1, 0, 0,
    ]  # fmt: skip
    assert find(b"bb", topic=b"U") == 0
    assert find(b"bb", begin=3) == 0
