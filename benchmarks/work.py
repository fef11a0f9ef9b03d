"""The measured pieces of work: each hot path, in each implementation, with its answer checked.

A Work makes its data in ``prepare`` and does ``units`` units of work in each call of what that
returns. The pytest benchmarks and ``benchmarks.hot_paths`` time the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from operator import attrgetter
from typing import Any

import pyarrow as pa

from benchmarks import inputs
from benchmarks.inputs import PULL
from rocketmq_fast import _core
from tests.reference import frame as reference_frame
from tests.reference import message as reference_message
from tests.reference import process_queue as reference_queue
from tests.reference import tags as reference_tags

NATIVE = "native"
PYTHON = "python"
MEMCPY = "memcpy"

Step = Callable[[], object]
FRAMES = 8
READ = attrgetter("body", "tags", "keys", "queue_offset")


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work. ``repeatable``: what prepare returns may be called again."""

    path: str
    implementation: str
    size: int
    unit: str
    units: int
    prepare: Callable[[], Step]
    repeatable: bool = True

    @property
    def name(self) -> str:
        """Path, size and implementation, as an identifier of pytest."""
        return f"{self.path}-{self.size}-{self.implementation}".replace(" ", "_")


def _same(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise AssertionError(f"{what}: the answer differs from the reference's")


# ------------------------------------------------------------------------------------------ frames


def frame_decode(implementation: str, size: int) -> Work:
    """Split a stream of pull answers, read the headers and from each the next offset."""
    stream = inputs.answers(FRAMES, size)
    splitter: Any = (
        _core.FrameSplitter() if implementation == NATIVE else reference_frame.FrameSplitter()
    )

    def run() -> int:
        total = 0
        for command in splitter.feed(stream):
            total += int(command.ext_fields["nextBeginOffset"])
        return total

    def prepare() -> Step:
        bodies = [bytes(command.body) for command in splitter.feed(stream)]
        _same(bodies, [inputs.pull_body(PULL, size)] * FRAMES, "frame decode")
        _same(run(), PULL * FRAMES * (FRAMES + 1) // 2, "next offsets")
        return run

    return Work("frame decode", implementation, size, "frames/s", FRAMES, prepare)


def frame_encode(implementation: str, serialize_type: int) -> Work:
    """Make and encode a pull request; ``size`` tells the header: 0 JSON, 1 ROCKETMQ."""
    fields = inputs.PULL_FIELDS

    def native() -> bytes:
        return _core.encode_frame(
            _core.RemotingCommand(11, fields, opaque=77, serialize_type=serialize_type)
        )

    def python() -> bytes:
        return reference_frame.encode_frame(
            reference_frame.Command(
                11, "PYTHON", 401, 77, 0, None, fields, serialize_type=serialize_type
            )
        )

    def prepare() -> Step:
        run = native if implementation == NATIVE else python
        command = reference_frame.decode_frame(run())
        _same((command.code, command.opaque), (11, 77), "frame encode")
        _same(command.ext_fields, fields, "fields of an encoded frame")
        return run

    name = "frame encode ROCKETMQ" if serialize_type else "frame encode JSON"
    return Work(name, implementation, 0, "frames/s", 1, prepare)


# ---------------------------------------------------------------------------------------- messages


def _read_all(messages: Any) -> int:
    """Touch body, tags, keys and queue offset of each message."""
    total = 0
    for message in messages:
        body = message.body
        tags = message.tags
        keys = message.keys
        total += len(body) + len(tags) + len(keys) + message.queue_offset
    return total


def decode(implementation: str, size: int, variant: str = "index", *, crc: bool = False) -> Work:
    """Decode the body of one default pull.

    index: the messages are known; views: one object each; read: body, tags, keys and queue offset
    of each are read. The reference and Java make whole objects at once.
    """
    body = inputs.pull_body(PULL, size)
    expected = reference_message.decode_messages(body, check_crc=crc).messages

    def native_index() -> object:
        return _core.decode_messages(body, check_crc=crc)

    def native_views() -> object:
        return _core.decode_messages(body, check_crc=crc).to_list()

    def native_read() -> object:
        return _read_all(_core.decode_messages(body, check_crc=crc).to_list())

    def python_index() -> object:
        return reference_message.decode_messages(body, check_crc=crc)

    def python_read() -> object:
        return _read_all(reference_message.decode_messages(body, check_crc=crc).messages)

    if implementation == NATIVE:
        run = {"index": native_index, "views": native_views, "read": native_read}[variant]
    else:
        run = {"index": python_index, "views": python_index, "read": python_read}[variant]

    def prepare() -> Step:
        if implementation == NATIVE:
            batch = _core.decode_messages(body, check_crc=crc)
            _same(batch.errors, [], "decode")
            _same([READ(one) for one in batch], [READ(one) for one in expected], "decode")
        if variant == "read":
            _same(run(), _read_all(expected), "decode and read")
        return run

    name = {"index": "decode", "views": "decode to views", "read": "decode and read"}[variant]
    return Work(
        name + (" with CRC" if crc else ""), implementation, size, "messages/s", PULL, prepare
    )


# ------------------------------------------------------------------------------------------- Arrow

_PYTHON_COLUMNS: dict[str, str] = {
    "topic": "topic",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "tags": "tags",
    "keys": "keys",
    "body": "body",
    "msgId": "msg_id",
    "offsetMsgId": "offset_msg_id",
    "bornTimestamp": "born_timestamp",
    "storeTimestamp": "store_timestamp",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "reconsumeTimes": "reconsume_times",
    "storeSize": "store_size",
    "bodyCRC": "body_crc",
    "commitLogOffset": "commit_log_offset",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "properties": "properties",
}


def arrow(
    implementation: str,
    size: int,
    columns: tuple[str, ...] | None = None,
    *,
    count: int = PULL,
    bodies: int = 1,
) -> Work:
    """Decode a pull body to Arrow columns, all or some.

    memcpy copies the same bytes: the least that any decoder to columns has to do. Python decodes
    with the reference and has pyarrow build the columns. With several ``bodies`` (all alike, in
    memory of their own) one call after the other takes the next.
    """
    body = inputs.pull_body(count, size)
    sources = cycle([bytes(bytearray(body)) for _ in range(bodies)])
    copies = bodies if implementation == MEMCPY else 0
    targets = cycle([memoryview(bytearray(len(body))) for _ in range(copies)])
    names = tuple(_PYTHON_COLUMNS) if columns is None else columns

    def native() -> object:
        return _core.decode_arrow(next(sources), columns=columns, broker_name="broker-a")

    def python() -> object:
        messages = reference_message.decode_messages(body).messages
        return pa.record_batch(
            {
                name: pa.array(
                    [
                        list(value.items()) if isinstance(value, dict) else value
                        for value in map(attrgetter(_PYTHON_COLUMNS[name]), messages)
                    ],
                    pa.map_(pa.string(), pa.string()) if name == "properties" else None,
                )
                for name in names
            }
        )

    def memcpy() -> memoryview:
        target = next(targets)
        target[:] = next(sources)
        return target

    def prepare() -> Step:
        if implementation == MEMCPY:
            _same(memcpy(), memoryview(body), "memcpy")
            return memcpy
        run = native if implementation == NATIVE else python
        found: Any = run()
        batch = pa.record_batch(found)
        expected = reference_message.decode_messages(body).messages
        _same(batch.num_rows, count, "rows")
        for name, attribute in (("body", "body"), ("queueOffset", "queue_offset")):
            if name in batch.schema.names:
                values = [getattr(message, attribute) for message in expected]
                _same(batch.column(name).to_pylist(), values, f"column {name}")
        _same(set(names) <= set(batch.schema.names), True, "columns")
        return run

    what = "all columns" if columns is None else " and ".join(columns)
    path = f"decode to Arrow, {what}" + (f", {count} messages" if count != PULL else "")
    if bodies > 1:
        path += ", in turn"
    return Work(path, implementation, size, "bytes/s", len(body), prepare)


# ----------------------------------------------------------------------------------- process queue


@dataclass(frozen=True, slots=True)
class Held:
    """The least that the reference's queue needs of a message."""

    queue_offset: int
    body: bytes


def process_queue(implementation: str, held: int, *, batches: int = 1024) -> Work:
    """Put a batch of 32 at the end and remove the oldest 32, while ``held`` messages wait.

    One call does it ``batches`` times. Its batches are decoded before the clock starts, as the
    messages of the Java run are.
    """
    native = implementation == NATIVE
    maker = inputs.Renumbered(PULL, 100)
    waiting = max(1, held // PULL)
    queue: Any = _core.ProcessQueue() if native else reference_queue.ProcessQueue()
    ring: list[Any] = []
    state = {"next": 0}

    def batch() -> Any:
        first = state["next"]
        state["next"] += PULL
        if native:
            return _core.decode_messages(maker.body(first))
        return [Held(first + index, b"") for index in range(PULL)]

    def prepare() -> Step:
        while len(ring) < waiting:
            one = batch()
            queue.put(one)
            ring.append(one)
        fresh = [batch() for _ in range(batches)]
        everything = ring + fresh
        old = everything[:batches]
        ring[:] = everything[batches:]
        expected = old[-1][-1].queue_offset + 1

        def run_native() -> None:
            put, remove = queue.put, queue.remove_batch
            for new, oldest in zip(fresh, old, strict=True):
                put(new)
                first_left = remove(oldest)
            if first_left != expected:
                raise AssertionError(f"the queue starts at {first_left}, not at {expected}")

        def run_python() -> None:
            for new, oldest in zip(fresh, old, strict=True):
                queue.put(new)
                first_left = queue.remove([message.queue_offset for message in oldest])
            if first_left != expected:
                raise AssertionError(f"the queue starts at {first_left}, not at {expected}")

        if native:
            queue.check()
        _same(queue.count, waiting * PULL, "messages in the queue")
        return run_native if native else run_python

    return Work("process queue", implementation, held, "messages/s", batches * PULL, prepare, False)


# -------------------------------------------------------------------------------------- tag filter


def tag_filter(implementation: str, size: int) -> Work:
    """The messages of a decoded pull that a subscription wants, exactly, as consumers get them."""
    body = inputs.pull_body(PULL, size)
    messages = reference_message.decode_messages(body).messages
    reference = reference_tags.TagFilter(inputs.WANTED_TAGS)
    wanted = [message for message in messages if reference.matches(message.tags)]
    batch = _core.decode_messages(body)
    native_filter = _core.TagFilter(inputs.WANTED_TAGS)

    def native() -> _core.MessageBatch:
        return native_filter.filter(batch)

    def python() -> list[reference_message.StoredMessage]:
        return [message for message in messages if reference.matches(message.tags)]

    def prepare() -> Step:
        run = native if implementation == NATIVE else python
        _same([one.queue_offset for one in run()], [one.queue_offset for one in wanted], "filter")
        _same(len(wanted), PULL // 2, "messages that are wanted")
        return run

    return Work("tag filter", implementation, size, "messages/s", PULL, prepare)
