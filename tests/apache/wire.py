"""A blocking request of the remoting protocol, independent of the code under test.

One connection per request, JSON header: enough to see whether a server is up, to read its routes
and to create topics. Layout of a frame: length(4) type(1) header length(3) header body, where the
length counts everything after itself.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass

PULL_MESSAGE = 11
UPDATE_AND_CREATE_TOPIC = 17
GET_BROKER_RUNTIME_INFO = 28
GET_MAX_OFFSET = 30
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
SUCCESS = 0

_PROTOCOL_VERSION = 401
_FRAME_LIMIT = 16 * 1024 * 1024


class WireError(Exception):
    """The peer answered with bytes that are no frame of the protocol."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: response code, ext fields, remark and body."""

    code: int
    ext_fields: dict[str, str]
    remark: str | None
    body: bytes


def address(text: str) -> tuple[str, int]:
    """``host:port`` as a pair."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def request(
    target: str,
    code: int,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
    timeout: float = 3.0,
) -> Answer:
    """Send one request to ``host:port`` and wait for its answer.

    Raises OSError (TimeoutError included) when the peer is not there and WireError on bad bytes.
    """
    return parse(exchange(target, code, ext_fields, body, timeout))


def exchange(
    target: str,
    code: int,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
    timeout: float = 3.0,
) -> bytes:
    """As ``request``, but gives the answer's whole frame, length prefix included."""
    header = {
        "code": code,
        "language": "OTHER",
        "version": _PROTOCOL_VERSION,
        "opaque": 1,
        "flag": 0,
        "extFields": ext_fields or {},
    }
    encoded = json.dumps(header).encode()
    frame = struct.pack(">iI", 4 + len(encoded) + len(body), len(encoded)) + encoded + body
    with socket.create_connection(address(target), timeout=timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(frame)
        prefix = _receive(connection, 4)
        (length,) = struct.unpack(">i", prefix)
        if not 4 <= length <= _FRAME_LIMIT:
            raise WireError(f"{target}: frame length {length}")
        return prefix + _receive(connection, length)


def parse(frame: bytes) -> Answer:
    """A whole frame with a JSON header as its parts."""
    mark = int.from_bytes(frame[4:8], "big")
    size = mark & 0xFFFFFF
    if mark >> 24 != 0 or size > len(frame) - 8:
        raise WireError(f"header type {mark >> 24}, size {size} in a frame of {len(frame)}")
    answer = json.loads(frame[8 : 8 + size])
    return Answer(
        code=int(answer["code"]),
        ext_fields=dict(answer.get("extFields") or {}),
        remark=answer.get("remark"),
        body=frame[8 + size :],
    )


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError(f"closed after {len(received)} of {size} bytes")
        received += chunk
    return bytes(received)
