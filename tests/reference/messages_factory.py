"""Builds stored messages for tests, right ones and wrong ones."""

from __future__ import annotations

import ipaddress
import random
import struct
import zlib
from typing import TYPE_CHECKING

import lz4.frame
import zstandard

from .encode import encode_batch
from .message import (
    BORN_HOST_V6,
    COMPRESSED,
    INNER_BATCH,
    LZ4,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    NEED_UNWRAP,
    STORE_HOST_V6,
    ZLIB,
    ZLIB_OLD,
    ZSTD,
    Host,
    stored_crc,
)
from .properties import encode_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEXT = "abcXYZ019-_|% .éßé你好☃🚀🌍"


def build_message(
    *,
    topic: str = "TopicTest",
    body: bytes = b"hello",
    properties: Mapping[str, str] | bytes | None = None,
    queue_id: int = 0,
    flag: int = 0,
    queue_offset: int = 0,
    commit_log_offset: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 1_700_000_000_000,
    born_host: Host = ("127.0.0.1", 55296),
    store_timestamp: int = 1_700_000_000_010,
    store_host: Host = ("127.0.0.1", 10911),
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    body_crc: int | None = None,
    magic: int | None = None,
    version: int = 1,
    trailing: bool = True,
) -> bytes:
    """One stored message; `body` is written as it is, host flags follow from the addresses."""
    born, born_flag = _host(born_host, BORN_HOST_V6)
    store, store_flag = _host(store_host, STORE_HOST_V6)
    encoded = (
        properties
        if isinstance(properties, bytes)
        else encode_properties(properties or {}, trailing=trailing)
    )
    name = topic.encode()
    tail = (
        struct.pack(">q", born_timestamp)
        + born
        + struct.pack(">q", store_timestamp)
        + store
        + struct.pack(">iqi", reconsume_times, prepared_transaction_offset, len(body))
        + body
        + struct.pack(">B" if version == 1 else ">H", len(name))
        + name
        + struct.pack(">H", len(encoded))
        + encoded
    )
    if magic is None:
        magic = MAGIC_V1 if version == 1 else MAGIC_V2
    return (
        struct.pack(
            ">iIiiiqqi",
            40 + len(tail),
            magic,
            stored_crc(body) if body_crc is None else body_crc,
            queue_id,
            flag,
            queue_offset,
            commit_log_offset,
            sys_flag | born_flag | store_flag,
        )
        + tail
    )


def build_blank(size: int) -> bytes:
    """The filler at the end of a commit log file, `size` bytes long."""
    return struct.pack(">iI", size, MAGIC_BLANK) + bytes(size - 8)


def build_inner_batch(
    elements: Sequence[tuple[int, bytes, Mapping[str, str]]], **fields: object
) -> bytes:
    """A message that holds the messages of a batch queue."""
    sys_flag = fields.pop("sys_flag", 0)
    assert isinstance(sys_flag, int)
    return build_message(
        body=encode_batch(elements),
        sys_flag=sys_flag | INNER_BATCH | NEED_UNWRAP,
        **fields,  # type: ignore[arg-type]
    )


def compress(body: bytes, kind: int) -> bytes:
    """A body as a producer with this compression type writes it."""
    if kind in (ZLIB, ZLIB_OLD):
        return zlib.compress(body, 5)
    if kind == LZ4:
        return bytes(lz4.frame.compress(body))
    if kind == ZSTD:
        return zstandard.ZstdCompressor().compress(body)
    raise ValueError(f"unknown compression type {kind:#x}")


def random_text(source: random.Random, most: int) -> str:
    """Text with characters of one to four bytes."""
    return "".join(source.choices(TEXT, k=source.randint(0, most)))


def random_properties(source: random.Random) -> dict[str, str]:
    """Properties as producers write them, empty values included."""
    count = source.randint(0, 4)
    properties = {random_text(source, 8): random_text(source, 20) for _ in range(count)}
    for name in ("TAGS", "KEYS", "UNIQ_KEY"):
        if source.random() < 0.6:
            properties[name] = random_text(source, 12)
    if source.random() < 0.3:
        properties["DELAY"] = str(source.randint(1, 18))
    return properties


def random_message(source: random.Random, queue_offset: int | None = None) -> bytes:
    """One stored message of any kind that a broker may send."""
    body = source.randbytes(source.choice((0, 1, 5, 100, 300)))
    sys_flag = source.choice((0, 0, 2, 4, 8, 12))
    if source.random() < 0.3:
        kind = source.choice((ZLIB_OLD, LZ4, ZSTD, ZLIB))
        body = compress(body * source.randint(1, 20), kind)
        sys_flag |= kind | COMPRESSED
    elif source.random() < 0.15:
        elements = [
            (index, source.randbytes(source.randint(0, 40)), random_properties(source))
            for index in range(source.randint(0, 4))
        ]
        body = encode_batch(elements)
        sys_flag |= INNER_BATCH | NEED_UNWRAP
    version = source.choice((1, 1, 2))
    topic = "T" + random_text(source, 10)
    if version == 2 and source.random() < 0.3:
        topic += "x" * 150
    return build_message(
        topic=topic,
        body=body,
        properties=random_properties(source),
        queue_id=source.randint(0, 64),
        flag=source.randint(-(1 << 31), (1 << 31) - 1),
        queue_offset=source.getrandbits(62) if queue_offset is None else queue_offset,
        commit_log_offset=source.getrandbits(62),
        sys_flag=sys_flag,
        born_timestamp=source.getrandbits(41),
        born_host=_random_host(source),
        store_timestamp=source.getrandbits(41),
        store_host=_random_host(source),
        reconsume_times=source.randint(0, 16),
        prepared_transaction_offset=source.getrandbits(40),
        version=version,
        trailing=source.random() < 0.5,
    )


def random_pull_body(source: random.Random, count: int) -> bytes:
    """Several stored messages, one after another."""
    first = source.getrandbits(40)
    return b"".join(random_message(source, first + index * 10) for index in range(count))


def benchmark_body(count: int, body_size: int, *, seed: int = 7) -> bytes:
    """A pull body of plain messages with a tag, a key and a unique id, as brokers send most."""
    source = random.Random(seed)
    return b"".join(
        build_message(
            topic="BenchmarkTest",
            body=source.randbytes(body_size),
            properties={
                "KEYS": f"key-{index}",
                "UNIQ_KEY": f"7F000001{source.getrandbits(96):024X}",
                "CLUSTER": "DefaultCluster",
                "TAGS": f"Tag{'ABCD'[index % 4]}",
            },
            queue_id=index % 4,
            queue_offset=index,
            commit_log_offset=index * (body_size + 200),
            trailing=False,
        )
        for index in range(count)
    )


def _host(host: Host, flag: int) -> tuple[bytes, int]:
    address = ipaddress.ip_address(host[0])
    packed = address.packed + struct.pack(">i", host[1])
    return packed, flag if address.version == 6 else 0


def _random_host(source: random.Random) -> Host:
    if source.random() < 0.3:
        return str(ipaddress.IPv6Address(source.getrandbits(128))), source.randint(0, 65535)
    return str(ipaddress.IPv4Address(source.getrandbits(32))), source.randint(0, 65535)
