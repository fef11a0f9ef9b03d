"""Inflating of message bodies by the well-kept libraries, with a hard cap on what comes out."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import lz4.frame
import zstandard

from rocketmq_fast.errors import MessageDecodeError

# Compression type bits of sysFlag (0x700). 0 is what producers before 4.9 set for zlib.
_ZLIB_OLD, _LZ4, _ZSTD, _ZLIB = 0x000, 0x100, 0x200, 0x300

# A zstd block of 4 bytes can stand for 128 KiB, so this much input makes at most 16 MiB at a time.
_ZSTD_PIECE_BYTES = 512
# Java's encoder stays below 8 MiB at its highest level; a frame that wants more memory is refused.
_ZSTD_MAX_WINDOW_BYTES = 1 << 25
_STEP_BYTES = 1 << 16


def _over(cap: int) -> MessageDecodeError:
    return MessageDecodeError(f"inflated body is over the cap of {cap} bytes")


def _inflate_zlib(data: memoryview, cap: int) -> bytes:
    stream = zlib.decompressobj()
    body = stream.decompress(data, cap + 1)
    if len(body) > cap:
        raise _over(cap)
    if not stream.eof:
        raise MessageDecodeError("zlib body ends too early")
    return body


def _inflate_lz4(data: memoryview, cap: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    step = max(_STEP_BYTES, 4 * len(data))
    parts = [stream.decompress(data, max_length=step)]
    size = len(parts[0])
    while not stream.eof and not stream.needs_input:
        if size > cap:
            raise _over(cap)
        parts.append(stream.decompress(b"", max_length=step))
        size += len(parts[-1])
    if size > cap:
        raise _over(cap)
    if not stream.eof:
        raise MessageDecodeError("LZ4 body ends too early")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _inflate_zstd(data: memoryview, cap: int) -> bytes:
    context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    stream = context.decompressobj()
    parts = []
    size = 0
    for start in range(0, len(data), _ZSTD_PIECE_BYTES):
        if stream.eof:
            break
        parts.append(stream.decompress(data[start : start + _ZSTD_PIECE_BYTES]))
        size += len(parts[-1])
        if size > cap:
            raise _over(cap)
    if not stream.eof:
        raise MessageDecodeError("ZSTD body ends too early")
    return parts[0] if len(parts) == 1 else b"".join(parts)


_CODECS: dict[int, tuple[str, Callable[[memoryview, int], bytes]]] = {
    _ZLIB_OLD: ("zlib", _inflate_zlib),
    _ZLIB: ("zlib", _inflate_zlib),
    _LZ4: ("LZ4", _inflate_lz4),
    _ZSTD: ("ZSTD", _inflate_zstd),
}


def inflate(compression: int, data: memoryview, cap: int) -> bytes:
    """Inflate a body of the compression type that sysFlag & 0x700 names.

    Raises MessageDecodeError for an unknown type, a damaged or truncated stream, and as soon as the
    output passes `cap` bytes.
    """
    codec = _CODECS.get(compression)
    if codec is None:
        raise MessageDecodeError(f"unknown compression type 0x{compression:03x}")
    if len(data) == 0:
        return b""
    name, function = codec
    try:
        return function(data, cap)
    except (zlib.error, RuntimeError, zstandard.ZstdError, EOFError) as error:
        raise MessageDecodeError(f"{name} body is damaged: {error}") from error
