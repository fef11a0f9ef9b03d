"""What a producer writes: batch elements, and the unwrapped form of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from .errors import MessageError
from .properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# totalSize 4, magic 4 (zero), bodyCRC 4 (zero), flag 4, bodyLength 4, body, propertiesLength 2
ELEMENT_HEAD = struct.Struct(">iiiii")
ELEMENT_MIN = ELEMENT_HEAD.size + 2


class Element(NamedTuple):
    """One message inside a batch body or an inner batch."""

    flag: int
    body: bytes
    properties: dict[str, str]


def encode_element(flag: int, body: bytes, properties: Mapping[str, str]) -> bytes:
    """One element of a batch body; its properties end with `\\x02`."""
    encoded = encode_properties(properties)
    size = ELEMENT_MIN + len(body) + len(encoded)
    head = ELEMENT_HEAD.pack(size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(encoded)) + encoded


def encode_batch(elements: Iterable[tuple[int, bytes, Mapping[str, str]]]) -> bytes:
    """The body of SEND_BATCH_MESSAGE."""
    return b"".join(encode_element(*element) for element in elements)


def decode_batch(data: bytes) -> Iterator[Element]:
    """Read a batch body one by one; raises MessageError at an element that is wrong."""
    position = 0
    while position < len(data):
        if len(data) - position < ELEMENT_MIN:
            raise MessageError("batch element is cut off", position)
        size, _magic, _crc, flag, body_size = ELEMENT_HEAD.unpack_from(data, position)
        if not ELEMENT_MIN <= size <= len(data) - position:
            raise MessageError(f"batch element size {size} is out of range", position)
        if not 0 <= body_size <= size - ELEMENT_MIN:
            raise MessageError(f"batch element body length {body_size} is out of range", position)
        start = position + ELEMENT_HEAD.size
        body = data[start : start + body_size]
        (properties_size,) = struct.unpack_from(">h", data, start + body_size)
        if properties_size != size - ELEMENT_MIN - body_size:
            raise MessageError("batch element properties do not fill the element", position)
        encoded = data[start + body_size + 2 : position + size]
        yield Element(flag, body, decode_properties(encoded))
        position += size
