"""Stored messages, as the body of a pull response carries them.

| # | field | size |
|---|---|---|
| 1 | totalSize, of the whole message | 4 |
| 2 | magic, 0xDAA320A7 (v1) or 0xDAA320AB (v2) | 4 |
| 3 | bodyCRC, over the body as stored, top bit cleared | 4 |
| 4 | queueId | 4 |
| 5 | flag of the user | 4 |
| 6 | queueOffset | 8 |
| 7 | commitLogOffset | 8 |
| 8 | sysFlag | 4 |
| 9 | bornTimestamp | 8 |
| 10 | bornHost: address of 4 or 16 bytes, port of 4 | 8 or 20 |
| 11 | storeTimestamp | 8 |
| 12 | storeHost | 8 or 20 |
| 13 | reconsumeTimes | 4 |
| 14 | preparedTransactionOffset | 8 |
| 15 | bodyLength, body | 4 + n |
| 16 | topicLength (1 byte in v1, 2 in v2), topic | 1 or 2 + t |
| 17 | propertiesLength, properties | 2 + p |

A message that cannot be read becomes a `BadMessage` and the next one is looked for behind it: at
totalSize, or, if no message seems to start there, where the lengths inside say that it ends.
Where neither works, nothing behind can be found and that error is the last.
"""

from __future__ import annotations

import socket
import struct
import zlib
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import lz4.frame
import zstandard

from .encode import decode_batch
from .errors import MessageError
from .properties import decode_properties
from .tags import java_hash

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

COMPRESSED = 0x1
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_TYPE = 0x700
ZLIB_OLD, LZ4, ZSTD, ZLIB = 0x000, 0x100, 0x200, 0x300

MAX_BODY = 32 << 20
MIN_SIZE = 91

HEAD = struct.Struct(">iIiiiqqiq")
PREFIX = struct.Struct(">iI")
QUEUE_OFFSET = struct.Struct(">q")
QUEUE_OFFSET_AT = 20
BODY_LENGTH = struct.Struct(">i")
HOST_V4 = struct.Struct(">4sI")
HOST_V6 = struct.Struct(">16sI")
RECONSUME = struct.Struct(">iqi")
TIMESTAMP = struct.Struct(">q")
SHORT = struct.Struct(">h")
BYTE = struct.Struct(">b")

Host = tuple[str, int]


class BadMessage(NamedTuple):
    """A message that could not be read: where it starts, its queue offset if known, and why."""

    position: int
    queue_offset: int | None
    reason: str


@dataclass(slots=True)
class StoredMessage:
    """A message as a consumer sees it."""

    topic: str
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    store_size: int
    body_crc: int
    body: bytes
    properties: dict[str, str]

    @property
    def tags(self) -> str | None:
        """The tag, if any."""
        return self.properties.get("TAGS")

    @property
    def tag_code(self) -> int:
        """Java hash of the tag, 0 without one."""
        tags = self.tags
        return java_hash(tags) if tags is not None else 0

    @property
    def keys(self) -> str | None:
        """The keys as they were sent, separated by blanks."""
        return self.properties.get("KEYS")

    @property
    def delay_time_level(self) -> int:
        """The delay level, 0 without one."""
        try:
            return int(self.properties.get("DELAY", "0"))
        except ValueError:
            return 0

    @property
    def offset_msg_id(self) -> str:
        """Store host and commit log offset in upper-case hexadecimal."""
        address, port = self.store_host
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        packed = socket.inet_pton(family, address)
        return (packed + struct.pack(">Iq", port, self.commit_log_offset)).hex().upper()

    @property
    def msg_id(self) -> str:
        """UNIQ_KEY where the producer wrote one, else the offset id."""
        return self.properties.get("UNIQ_KEY") or self.offset_msg_id


@dataclass(slots=True)
class Decoded:
    """What a pull body held."""

    messages: list[StoredMessage] = field(default_factory=list)
    errors: list[BadMessage] = field(default_factory=list)


def decode_messages(
    data: bytes | bytearray | memoryview,
    *,
    decompress: bool = True,
    check_crc: bool = False,
    max_body: int = MAX_BODY,
) -> Decoded:
    """Read all messages of a pull body; a bad one never hides its neighbours."""
    data = bytes(data)
    found = Decoded()
    position = 0
    while position < len(data):
        rest = len(data) - position
        if rest < PREFIX.size:
            found.errors.append(BadMessage(position, None, "message is cut off"))
            break
        announced, magic = PREFIX.unpack_from(data, position)
        if magic == MAGIC_BLANK:
            break
        size = announced if MIN_SIZE <= announced <= rest else 0
        offset = None
        following: int | None = position + size if size else None
        try:
            if magic not in (MAGIC_V1, MAGIC_V2):
                raise MessageError(f"unknown magic {magic:#010x}", position)
            offset = _queue_offset(data, position)
            try:
                if not size:
                    raise MessageError(f"message size {announced} is out of range", position)
                message, end = decode_message(data, position, position + size)
                if end != position + size:
                    raise MessageError(f"message size {size} does not match its parts", position)
            except MessageError:
                following = _find_next(data, position, size)
                raise
            if check_crc and message.body_crc != stored_crc(message.body):
                raise MessageError("body CRC does not match", position)
            if message.sys_flag & COMPRESSED and decompress:
                message.body = inflate(message.body, message.sys_flag, max_body)
            unwrap = message.sys_flag & INNER_BATCH and message.sys_flag & NEED_UNWRAP
            if unwrap and (decompress or not message.sys_flag & COMPRESSED):
                _unwrap_inner_batch(message, position, found)
            else:
                found.messages.append(message)
        except MessageError as error:
            found.errors.append(BadMessage(position, offset, error.reason))
        if following is None:
            break
        position = following
    return found


def _queue_offset(data: bytes, position: int) -> int | None:
    if len(data) - position < QUEUE_OFFSET_AT + QUEUE_OFFSET.size:
        return None
    (offset,) = QUEUE_OFFSET.unpack_from(data, position + QUEUE_OFFSET_AT)
    return int(offset) if offset >= 0 else None


def _find_next(data: bytes, position: int, size: int) -> int | None:
    """Where the message behind a bad one starts, None if that cannot be told."""
    if size and _looks_like_message(data, position + size):
        return position + size
    try:
        _, end = decode_message(data, position, len(data))
    except MessageError:
        end = -1
    if end > 0 and _looks_like_message(data, end):
        return end
    return position + size if size else None


def _looks_like_message(data: bytes, position: int) -> bool:
    rest = len(data) - position
    if rest < PREFIX.size:
        return rest == 0
    size, magic = PREFIX.unpack_from(data, position)
    if magic == MAGIC_BLANK:
        return True
    return magic in (MAGIC_V1, MAGIC_V2) and MIN_SIZE <= size <= rest


def decode_message(data: bytes, position: int, end: int) -> tuple[StoredMessage, int]:
    """Read one message from `position`, at most to `end`, and where it stops; or MessageError."""
    if end - position < HEAD.size:
        raise MessageError("fixed fields are cut off", position)
    (size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born_timestamp) = (
        HEAD.unpack_from(data, position)
    )
    born = HOST_V6 if sys_flag & BORN_HOST_V6 else HOST_V4
    store = HOST_V6 if sys_flag & STORE_HOST_V6 else HOST_V4
    fixed = HEAD.size + born.size + TIMESTAMP.size + store.size + RECONSUME.size
    if fixed > end - position:
        raise MessageError("fixed fields are cut off", position)
    at = position + HEAD.size
    born_address, born_port = born.unpack_from(data, at)
    at += born.size
    (store_timestamp,) = TIMESTAMP.unpack_from(data, at)
    at += TIMESTAMP.size
    store_address, store_port = store.unpack_from(data, at)
    at += store.size
    reconsume_times, prepared, body_size = RECONSUME.unpack_from(data, at)
    at += RECONSUME.size
    if not 0 <= body_size <= end - at:
        raise MessageError(f"body length {body_size} is out of range", position)
    body = data[at : at + body_size]
    at += body_size
    topic, at = _short_bytes(data, at, end, BYTE if magic == MAGIC_V1 else SHORT, "topic")
    encoded, at = _short_bytes(data, at, end, SHORT, "properties")
    message = StoredMessage(
        topic=topic.decode("utf-8", "replace"),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        commit_log_offset=physical,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=(format_address(born_address), born_port),
        store_timestamp=store_timestamp,
        store_host=(format_address(store_address), store_port),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        store_size=size,
        body_crc=crc,
        body=body,
        properties=decode_properties(encoded),
    )
    return message, at


def _unwrap_inner_batch(outer: StoredMessage, position: int, found: Decoded) -> None:
    """Add the messages inside an inner batch, up to the first that is wrong.

    Flag, properties and body are the element's, the rest is the outer message's, except that Java
    leaves reconsumeTimes and preparedTransactionOffset at zero.
    """
    offset = outer.queue_offset
    try:
        for element in decode_batch(outer.body):
            message = replace(
                outer,
                flag=element.flag,
                queue_offset=offset,
                reconsume_times=0,
                prepared_transaction_offset=0,
                body=element.body,
                properties=element.properties,
            )
            found.messages.append(message)
            offset += 1
    except MessageError as error:
        found.errors.append(BadMessage(position, offset, f"inner batch: {error.reason}"))


def inflate(body: bytes, sys_flag: int, max_body: int) -> bytes:
    """Decompress a body, giving up as soon as it grows past `max_body` bytes."""
    kind = sys_flag & COMPRESSION_TYPE
    if not body and kind in (ZLIB_OLD, ZLIB, LZ4, ZSTD):
        return b""
    try:
        if kind in (ZLIB, ZLIB_OLD):
            plain = _inflate_zlib(body, max_body + 1)
        elif kind == LZ4:
            plain = _inflate_lz4(body, max_body + 1)
        elif kind == ZSTD:
            plain = _inflate_zstd(body, max_body + 1)
        else:
            raise MessageError(f"unknown compression type {kind:#x}")
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise MessageError(f"compressed body cannot be read: {error}") from error
    if len(plain) > max_body:
        raise MessageError(f"decompressed body is larger than {max_body} bytes")
    return plain


def _inflate_zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, limit)
    if len(plain) < limit and not stream.eof:
        raise EOFError("the stream ends too early")
    return plain


def _inflate_lz4(body: bytes, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = stream.decompress(body, max_length=limit)
    while len(plain) < limit and not stream.eof and not stream.needs_input:
        plain += stream.decompress(b"", max_length=limit - len(plain))
    if len(plain) < limit and not stream.eof:
        raise EOFError("the stream ends too early")
    return plain


def _inflate_zstd(body: bytes, limit: int) -> bytes:
    stream = zstandard.ZstdDecompressor().decompressobj()
    plain = bytearray()
    # Small pieces of input keep a bomb from growing far beyond the limit before it is seen.
    for start in range(0, len(body), 256):
        plain += stream.decompress(body[start : start + 256])
        if len(plain) >= limit or stream.eof:
            break
    if len(plain) < limit and not stream.eof:
        raise EOFError("the stream ends too early")
    return bytes(plain)


def stored_crc(body: bytes) -> int:
    """CRC-32 of a body as brokers store it: the top bit is cleared."""
    return zlib.crc32(body) & 0x7FFFFFFF


def format_address(packed: bytes) -> str:
    """Text of a packed IPv4 or IPv6 address."""
    if len(packed) == 4:
        return ".".join(map(str, packed))
    return socket.inet_ntop(socket.AF_INET6, packed)


def _short_bytes(
    data: bytes, at: int, end: int, width: struct.Struct, name: str
) -> tuple[bytes, int]:
    if end - at < width.size:
        raise MessageError(f"{name} length is cut off", at)
    (size,) = width.unpack_from(data, at)
    at += width.size
    if not 0 <= size <= end - at:
        raise MessageError(f"{name} length {size} is out of range", at)
    return data[at : at + size], at + size
