"""Bodies made smaller before they are sent, in the framings that Java and Go clients read."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable

import lz4.frame
import zstandard

from rocketmq_fast.client.options import check_range
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.protocol.codes import MessageSysFlag

DEFAULT_LEVEL = 5

_local = threading.local()


def _zlib(body: bytes, level: int) -> bytes:
    return zlib.compress(body, level)


def _lz4(body: bytes, level: int) -> bytes:
    # Java's reader knows independent blocks only. Below 3 the library has one fast method; Java's
    # writer has no other, so the level 5 that is meant for zlib must not choose the slow one here.
    compressed: bytes = lz4.frame.compress(body, compression_level=level, block_linked=False)
    return compressed


def _zstd(body: bytes, level: int) -> bytes:
    # A compressor must not be used by two threads at once.
    key = getattr(_local, "zstd", None)
    if key is None or key[0] != level:
        key = _local.zstd = (level, zstandard.ZstdCompressor(level=level))
    compressed: bytes = key[1].compress(body)
    return compressed


Codec = Callable[[bytes, int], bytes]

# Name: (bits of sysFlag, function, lowest and highest level, default).
_CODECS: dict[str, tuple[int, Codec, int, int, int]] = {
    "ZLIB": (MessageSysFlag.COMPRESSION_ZLIB, _zlib, 0, 9, DEFAULT_LEVEL),
    "LZ4": (MessageSysFlag.COMPRESSION_LZ4, _lz4, 0, 16, 0),
    "ZSTD": (MessageSysFlag.COMPRESSION_ZSTD, _zstd, 1, 22, DEFAULT_LEVEL),
}


def codec_of(name: object) -> tuple[int, Codec, int, int, int]:
    """Entry of a codec. Raises ConfigError."""
    codec = _CODECS.get(name) if isinstance(name, str) else None
    if codec is None:
        raise ConfigError(f"compress_type is {name!r}; it must be one of {', '.join(_CODECS)}")
    return codec


def check_level(name: str, level: int | None) -> int:
    """The level to use. Raises ConfigError."""
    _, _, low, high, default = codec_of(name)
    return default if level is None else check_range("compress_level", level, low, high)


class Compressor:
    """Compresses bodies from a size on. Any thread."""

    def __init__(self, name: str, level: int | None, threshold: int) -> None:
        bits, self._codec, _, _, _ = codec_of(name)
        self._level = check_level(name, level)
        self._threshold = threshold
        self._sys_flag = int(MessageSysFlag.COMPRESSED | bits)

    def compress(self, body: bytes) -> tuple[bytes, int]:
        """(bytes to send, bits of sysFlag).

        A body that does not get smaller is sent as it is; Java would send the larger form.
        """
        if len(body) < self._threshold or not body:
            return body, 0
        compressed = self._codec(body, self._level)
        if len(compressed) >= len(body):
            return body, 0
        return compressed, self._sys_flag
