"""What faults do to the bytes of answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from rocketmq_fast.embedded.requests import dump
from rocketmq_fast.protocol import fastjson
from rocketmq_fast.protocol.codes import MessageSysFlag

if TYPE_CHECKING:
    import random

_INT32 = struct.Struct(">i")
_SYS_FLAG_AT, _BODY_LENGTH_AT, _CRC_AT = 36, 84, 8
_MORE_OF_V6 = 12
_V6 = (int(MessageSysFlag.BORN_HOST_V6), int(MessageSysFlag.STORE_HOST_V6))


def damaged_frame(frame: bytes, at: int | None, chance: random.Random) -> bytes:
    """Return a frame with one byte changed, the last one when it is shorter than `at`."""
    data = bytearray(frame)
    place = chance.randrange(len(data)) if at is None else min(at, len(data) - 1)
    data[place] ^= 0xFF
    return bytes(data)


def damaged_message(body: bytes, chance: random.Random) -> bytes:
    """Return stored messages of which one does not fit its CRC any more; nothing stays nothing."""
    starts = []
    position = 0
    while position + _BODY_LENGTH_AT < len(body):
        starts.append(position)
        position += max(_INT32.unpack_from(body, position)[0], 1)
    if not starts:
        return body
    data = bytearray(body)
    start = chance.choice(starts)
    flags = _INT32.unpack_from(body, start + _SYS_FLAG_AT)[0]
    length_at = start + _BODY_LENGTH_AT + _MORE_OF_V6 * sum(1 for bit in _V6 if flags & bit)
    length = _INT32.unpack_from(body, length_at)[0]
    place = length_at + 4 + chance.randrange(length) if length else start + _CRC_AT
    data[place] ^= 0xFF
    return bytes(data)


def other_route(body: bytes, *, address: str | None, queues: int | None, perm: int | None) -> bytes:
    """Return a route with other addresses of all brokers, or other queues."""
    if not body:
        return body  # there is none to change
    route = fastjson.loads(body)
    if address is not None:
        for broker in route["brokerDatas"]:
            broker["brokerAddrs"] = dict.fromkeys(map(str, broker["brokerAddrs"]), address)
    for data in route["queueDatas"]:
        if queues is not None:
            data["readQueueNums"] = data["writeQueueNums"] = queues
        if perm is not None:
            data["perm"] = perm
    return dump(route)
