"""What the benchmarks work on: pull answers as Apache 4.9.4 sends them, made from a fixed seed.

The topic was filled by the Java producer: every message has a tag out of four, a key, a unique id
and the properties that client and broker add. tests/test_benchmarks.py compares them with a real
broker's.
"""

from __future__ import annotations

import random
import struct
from functools import cache

from tests.reference.messages_factory import build_message

SEED = 20_494
TOPIC = "BenchmarkTopic"
TAGS = ("TagA", "TagB", "TagC", "TagD")
# Expression of the filter benchmark: every other message.
WANTED_TAGS = "TagA || TagC"
BODY_SIZES = (100, 1024)
# What a default broker hands out at most, and a large answer of one with raised limits.
PULL = 32
LARGE_PULL = 1024

# Stored offsets stand behind size, magic, CRC, queue id and flag.
QUEUE_OFFSET_AT = 20
_OFFSETS = struct.Struct(">qq")

HEADER = (
    '{{"code":0,"extFields":{{"suggestWhichBrokerId":"0","nextBeginOffset":"{next}",'
    '"maxOffset":"1000000","minOffset":"0"}},"flag":1,"language":"JAVA","opaque":{opaque},'
    '"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":401}}'
)

# A pull request as the push consumers send it.
PULL_FIELDS = {
    "consumerGroup": "benchmark_group",
    "topic": TOPIC,
    "queueId": "3",
    "queueOffset": "1000000",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "commitOffset": "1000000",
    "suspendTimeoutMillis": "15000",
    "subscription": "TagA || TagB",
    "subVersion": "1700000000000",
    "expressionType": "TAG",
}


def _properties(source: random.Random, index: int) -> bytes:
    pairs = (
        ("KEYS", f"key-{index}"),
        ("UNIQ_KEY", f"FD{source.getrandbits(216):054X}"),
        ("WAIT", "true"),
        ("TAGS", TAGS[index % len(TAGS)]),
        ("CLUSTER", "DefaultCluster"),
        ("WAIT", "true"),
    )
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()


@cache
def pull_body(count: int, size: int, first: int = 0) -> bytes:
    """``count`` stored messages with bodies of ``size`` bytes, offsets from ``first``."""
    source = random.Random(SEED)
    return b"".join(
        build_message(
            topic=TOPIC,
            body=source.randbytes(size),
            properties=_properties(source, first + index),
            queue_id=1,
            queue_offset=first + index,
            commit_log_offset=(first + index) * (size + 230),
        )
        for index in range(count)
    )


def frame(body: bytes, next_offset: int, opaque: int = 1) -> bytes:
    """The whole answer to a pull."""
    header = HEADER.format(next=next_offset, opaque=opaque).encode()
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


@cache
def answers(count: int, size: int) -> bytes:
    """``count`` answers of one pull each, as they come from a socket."""
    body = pull_body(PULL, size)
    return b"".join(frame(body, PULL * (number + 1), number + 1) for number in range(count))


class Renumbered:
    """Pull bodies alike but for their queue offsets, made fast."""

    def __init__(self, count: int, size: int) -> None:
        body = pull_body(count, size)
        self.count = count
        self._body = bytearray(body)
        self._places: list[int] = []
        at = 0
        while at < len(body):
            self._places.append(at + QUEUE_OFFSET_AT)
            at += int.from_bytes(body[at : at + 4], "big")
        self._step = len(body) // count

    def body(self, first: int) -> bytes:
        """The body whose messages have the offsets from ``first``."""
        data = self._body
        for number, place in enumerate(self._places, first):
            _OFFSETS.pack_into(data, place, number, number * self._step)
        return bytes(data)
