"""What the comparisons of the native core with the reference share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any


def command_fields(command: Any) -> dict[str, Any]:
    """Everything that a command, native or of the reference, carries."""
    return {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "ext_fields": dict(command.ext_fields),
        "body": bytes(command.body),
        "serialize_type": command.serialize_type,
    }


def outcome(call: Callable[[], Any], *errors: type[Exception]) -> tuple[str, Any]:
    """What a call gave: ("value", ...) or (name of the error class, None)."""
    try:
        return ("value", call())
    except errors as error:
        return (type(error).__name__, None)


def mutations(data: bytes, source: random.Random, count: int) -> Iterator[bytes]:
    """Changed copies: bits, bytes, integers that break lengths, pieces cut, doubled and put in."""
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(source.choice((1, 1, 1, 2, 4))):
            _mutate(changed, source)
        yield bytes(changed)


def _mutate(data: bytearray, source: random.Random) -> None:
    at = source.randint(0, len(data))
    kind = source.randrange(7)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << source.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = source.choice((0, 1, 2, 0x7F, 0x80, 0xFF, source.randrange(256)))
    elif kind == 2:
        width = source.choice((1, 2, 4, 8))
        value = source.choice((0, 1, -1, 127, 128, 32767, 1 << 31, len(data), len(data) - at))
        data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(8, "big")[-width:]
    elif kind == 3:
        del data[at : at + source.randint(1, 8)]
    elif kind == 4:
        data[at:at] = source.randbytes(source.randint(1, 8))
    elif kind == 5:
        end = min(len(data), at + source.randint(1, 32))
        data[at:at] = data[at:end]
    else:
        del data[at:]
