"""Makes the seeds of the fuzz entries from the recorded vectors; `python -m tests.fuzz_corpus`."""

from __future__ import annotations

import random
from pathlib import Path

from tests import golden_data
from tests.c_build import CORPUS, fuzz_targets
from tests.reference import frame
from tests.reference.encode import encode_batch
from tests.reference.message import decode_messages
from tests.reference.messages_factory import build_blank, build_message, random_properties

MAX_TOTAL = 300_000


def _frames(short: int) -> list[bytes]:
    """One recorded frame per request code, direction and header form."""
    kinds: dict[tuple[object, ...], bytes] = {}
    for name in golden_data.FRAMES:
        for row, data in sorted(golden_data.frames(name), key=lambda pair: -len(pair[1])):
            kinds[row["requestCode"], row["kind"], data[4]] = data
    return [data for data in kinds.values() if len(data) <= short]


def _stored(name: str, largest: int, count: int) -> list[bytes]:
    data = golden_data.stored_bytes(name)
    found = []
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        if size <= largest:
            found.append(data[position : position + size])
        position += size
    return found[:: max(1, len(found) // count)][:count]


def _messages() -> list[bytes]:
    return [
        *_stored("stored_v4_9_4", 400, 10),
        *_stored("stored_v5_3_3", 400, 10),
        *_stored("inner_batch_v5_3_3", 1200, 6),
    ]


def _properties() -> list[bytes]:
    source = random.Random(2)
    strings = [b"", b"A\x01b", b"A\x01b\x02", b"a\x01\x02\x01b\x02\x02a\x01\x01\x02"]
    for data in _messages()[:12]:
        for message in decode_messages(data, decompress=False).messages[:1]:
            strings.append(
                "\x02".join(f"{n}\x01{v}" for n, v in message.properties.items()).encode()
            )
    strings.extend(
        "\x02".join(f"{n}\x01{v}" for n, v in random_properties(source).items()).encode()
        for _ in range(6)
    )
    return strings


def _batches() -> list[bytes]:
    source = random.Random(3)
    return [
        encode_batch(
            (index, source.randbytes(index * 7), random_properties(source))
            for index in range(count)
        )
        for count in (1, 2, 5)
    ]


def seeds() -> dict[str, list[bytes]]:
    """Inputs by fuzz entry."""
    frames = _frames(600)
    json = [data for data in frames if data[4] == frame.JSON]
    compact = [data for data in frames if data[4] == frame.ROCKETMQ]
    messages = _messages()
    source = random.Random(1)
    runs = [b"\x01" + b"".join(source.sample(messages, 4)) for _ in range(4)]
    return {
        "splitter": [*frames[:30:3], b"".join(frames[1:8]), b"".join(frames[-5:]) + b"\xff" * 5],
        "header_json": [_header(data) for data in json],
        "header_compact": [_header(data) for data in compact],
        "properties": _properties(),
        "messages": [
            *(b"\x01" + data for data in messages),
            *runs,
            b"\x00" + build_message() + build_blank(40) + build_message(),
        ],
        "stored": [*messages[:16:2], *_batches(), b"".join(_index(i) for i in range(8))],
        "batch": [*_batches()],
        "columns": [
            *(
                bytes([index, 255 - index, index * 37 % 256, 0x5A]) + data
                for index, data in enumerate(messages)
            ),
            *(b"\xff\xff\xff\x00" + data[1:] for data in runs),
        ],
        "queue": [source.randbytes(size) for size in (8, 40, 100, 400, 1500)]
        + [bytes(range(256)), b"\x00\x01\x02\x03" * 40, b"\x10\x20\x30\x40\x50" * 30],
    }


def _header(data: bytes) -> bytes:
    size = int.from_bytes(data[5:8], "big")
    return data[8 : 8 + size]


def _index(number: int) -> bytes:
    return (
        (number * 200).to_bytes(8, "big")
        + (200).to_bytes(4, "big")
        + (number % 3).to_bytes(8, "big")
    )


def write(folder: Path) -> int:
    """Write the seeds of the entries that exist; the number of bytes."""
    total = 0
    known = fuzz_targets()
    for target, inputs in seeds().items():
        if target not in known:
            continue
        (folder / target).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(inputs):
            (folder / target / f"seed-{number:03}").write_bytes(data)
            total += len(data)
    return total


if __name__ == "__main__":
    print(f"{write(CORPUS)} bytes below {CORPUS}")
