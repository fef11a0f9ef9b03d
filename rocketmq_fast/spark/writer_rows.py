"""From rows of Arrow columns to requests: whole columns at a time, no Python object for a row.

The elements of a batch body are put together by Arrow's own kernels: a column of heads, the bodies
and a column of property strings are joined into one buffer, of which each request is a slice. Only
what cannot be part of a batch (a delay level, a message larger than a batch) is made one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.client.sending import create_unique_id
from rocketmq_fast.errors import ConfigError, RocketMQError
from rocketmq_fast.model import RESERVED_PROPERTIES, Message, MessageQueue
from rocketmq_fast.producer.outgoing import Outgoing, Packer
from rocketmq_fast.producer.selectors import select_by_hash
from rocketmq_fast.spark.writer_options import check_write_topic

# Before and between body and properties of an element: 4 x 4 bytes, body length, and 2 more.
_HEAD = np.dtype(
    {
        "names": ["total", "flag", "body"],
        "formats": [">i4", ">i4", ">i4"],
        "offsets": [0, 12, 16],
        "itemsize": 20,
    }
)
_HEAD_BYTES = 20
_MAX_PROPERTIES = 32767
# What a broker adds to an element when it stores it, beside the topic's name: a head of 91 bytes
# instead of 22, two addresses of IPv6, and the properties of the request.
_STORED_EXTRA = 128
# Offsets of the joined column are 32 bits wide.
_MAX_INPUT_BYTES = 512 << 20
_HEX = np.frombuffer("".join(f"{n:02X}" for n in range(256)).encode(), np.uint8).reshape(256, 2)
_HOUR_OF_IDS = 3_600_000 << 16
_NAME_END, _END = "\x01", "\x02"

# fn(topic on the wire): its writable queues, sorted.
Queues = Callable[[str], Sequence[MessageQueue]]


class RowError(RocketMQError):
    """A row that cannot be a message; names the column and the row."""


@dataclass(slots=True, eq=False)
class Request:
    """What is sent at once. `queue`: where to, and in order; None for any queue."""

    out: Outgoing
    rows: int
    queue: MessageQueue | None = None


class UniqueIds:
    """Ids of messages, many at a time; no two tasks share the random part."""

    def __init__(self) -> None:
        self._prefix = b""
        self._next = 0

    def take(self, count: int) -> pa.Array:
        """Ids as a binary column: 32 hex digits, of time and counter as Java's are."""
        sample = bytes.fromhex(create_unique_id())
        now = int.from_bytes(sample[10:14], "big") << 16
        if not self._prefix or self._next - now > _HOUR_OF_IDS:
            # The clock of ids starts anew every month.
            self._prefix = sample[:6] + os.urandom(4)
            self._next = now
        first = max(self._next, now)
        self._next = first + count
        raw = np.empty((count, 16), np.uint8)
        raw[:, :10] = np.frombuffer(self._prefix, np.uint8)
        numbers = np.arange(first, first + count, dtype=">u8")
        raw[:, 10:] = numbers.view(np.uint8).reshape(count, 8)[:, 2:]
        return _fixed(_HEX[raw].reshape(count, 32))


def _fixed(table: np.ndarray[Any, Any]) -> pa.Array:
    """A binary column of rows that have one length."""
    count = table.shape[0]
    width = table.nbytes // count
    kind = pa.binary(width)
    array = pa.FixedSizeBinaryArray.from_buffers(kind, count, [None, pa.py_buffer(table)])
    return array.cast(pa.binary())


class RowsEncoder:
    """Makes the requests of a task. Raises RowError, and what `queues` raises."""

    def __init__(
        self,
        places: Mapping[str, int],
        packer: Packer,
        queues: Queues,
        names: Namespace,
        *,
        topic: str | None,
        single: bool,
        batch_bytes: int,
        drop_reserved: bool,
    ) -> None:
        self._places = places
        self._packer = packer
        self._queues_of = queues
        self._names = names
        self._topic = topic
        self._single = single
        self._batch_bytes = batch_bytes
        self._drop_reserved = drop_reserved
        self._ids = UniqueIds()
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        self._row = 0  # of the task, of the first row of the batch

    def requests(self, batch: pa.RecordBatch) -> Iterator[Request]:
        """The requests of a record batch; those of a queue in the order of the rows."""
        if batch.nbytes > _MAX_INPUT_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from self.requests(batch.slice(0, half))
            yield from self.requests(batch.slice(half))
            return
        if batch.num_rows:
            yield from _Rows(self, batch).requests()
        self._row += batch.num_rows

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Queues of a topic; asked for once, so that a key stays where it is during the task."""
        found = self._queues.get(topic)
        if found is None:
            found = self._queues[topic] = self._queues_of(topic)
        return found


class _Rows:
    """A record batch on its way to requests."""

    def __init__(self, encoder: RowsEncoder, batch: pa.RecordBatch) -> None:
        self._encoder = encoder
        self._count: int = batch.num_rows
        self._first = encoder._row
        self._columns = {name: batch.column(place) for name, place in encoder._places.items()}

    # -------------------------------------------------------------------------- columns

    def _refuse(self, wrong: Any, column: str, why: str) -> None:
        """Raise for the first row where `wrong`, a boolean column, is true."""
        place = pc.index(wrong, True).as_py()
        if place >= 0:
            raise self._error(place, column, why)

    def _error(self, place: int, column: str, why: str) -> RowError:
        return RowError(f"row {self._first + place}, column {column!r}: {why}")

    def _text(self, name: str) -> pa.Array | None:
        """A column of text as binary, without the separators of properties; None if there is none.

        A column in which all is null is none either.
        """
        column = self._columns.get(name)
        if column is None or column.null_count == self._count:
            return None
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            column = self._joined(name, column)
        column = column.cast(pa.string())
        self._check_utf8(name, column)
        for mark in (_NAME_END, _END):
            self._refuse(pc.match_substring(column, mark), name, "it holds U+0001 or U+0002")
        return column.cast(pa.binary())

    def _joined(self, name: str, column: pa.Array) -> pa.Array:
        """A list of keys as one text."""
        joined = pc.binary_join(column.cast(pa.list_(pa.string())), " ")
        lost = pc.and_(pc.is_valid(column), pc.is_null(joined))
        self._refuse(lost, name, "an element is null")
        return joined

    def _check_utf8(self, name: str, column: pa.Array) -> None:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raw = column.cast(pa.binary())
            for place in range(self._count):
                try:
                    (raw[place].as_py() or b"").decode()
                except UnicodeDecodeError as reason:
                    raise self._error(place, name, f"it is not UTF-8: {reason.reason}") from error
            raise

    def _numbers(self, name: str, default: int) -> np.ndarray[Any, Any] | None:
        column = self._columns.get(name)
        if column is None or column.null_count == self._count:
            return None
        numbers: np.ndarray[Any, Any] = pc.fill_null(column, default).to_numpy(zero_copy_only=False)
        return numbers

    def _body(self) -> pa.Array:
        column = self._columns["body"]
        if column.null_count:
            self._refuse(pc.is_null(column), "body", "a message needs a body; it is null")
        return column.cast(pa.binary())

    def _properties(self, ids: pa.Array) -> pa.Array:
        """The property string of each row, as Message.wire_properties has them."""
        parts = []
        own = self._own_properties()
        if own is not None:
            parts.append(own)
        for column, name in (("keys", "KEYS"), ("tags", "TAGS")):
            text = self._text(column)
            if text is not None:
                parts.append(_join(f"{name}{_NAME_END}".encode(), text))
        wait = f"WAIT{_NAME_END}true{_END}UNIQ_KEY{_NAME_END}"
        parts.append(_join(wait.encode(), ids))
        properties = pc.binary_join_element_wise(
            *parts, pa.scalar(_END.encode()), null_handling="skip"
        )
        too_long = pc.greater(pc.binary_length(properties), _MAX_PROPERTIES)
        self._refuse(too_long, "properties", f"they take more than {_MAX_PROPERTIES} bytes")
        return properties

    def _own_properties(self) -> pa.Array | None:
        """The properties of the user; null in rows without any."""
        column = self._columns.get("properties")
        if column is None or column.null_count == self._count:
            return None
        ends = column.offsets.to_numpy()
        first, last = int(ends[0]), int(ends[-1])
        names = column.keys.slice(first, last - first).cast(pa.string())
        values = column.items.slice(first, last - first).cast(pa.string())
        lengths = np.diff(ends)
        if column.null_count:
            # A row that is null may have entries all the same.
            lengths_of_rows = lengths
            lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
            if lengths.sum() != len(names):
                keep = pa.array(np.repeat(lengths == lengths_of_rows, lengths_of_rows))
                names, values = names.filter(keep), values.filter(keep)
        rows = np.repeat(np.arange(self._count), lengths)
        reserved = pc.is_in(names, pa.array(sorted(RESERVED_PROPERTIES)))
        if self._encoder._drop_reserved:
            keep = pc.invert(reserved)
            names, values = names.filter(keep), values.filter(keep)
            rows = rows[keep.to_numpy(zero_copy_only=False)]
        else:
            self._refuse_entry(
                reserved, rows, names,
                "RocketMQ uses it itself: leave it out, or set reservedProperties to drop",
            )  # fmt: skip
        self._refuse_entry(pc.is_null(values), rows, names, "its value is null")
        for text, what in ((names, "name"), (values, "value")):
            self._check_entry_utf8(text, rows, what)
            blank = pc.equal(pc.utf8_trim_whitespace(text), "")
            self._refuse_entry(blank, rows, names, f"its {what} is blank")
            for mark in (_NAME_END, _END):
                wrong = pc.match_substring(text, mark)
                self._refuse_entry(wrong, rows, names, f"its {what} holds U+0001 or U+0002")
        entries = pc.binary_join_element_wise(
            names.cast(pa.binary()), values.cast(pa.binary()), pa.scalar(_NAME_END.encode())
        )
        counts = np.bincount(rows, minlength=self._count)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), entries)
        joined = pc.binary_join(lists, pa.scalar(_END.encode()))
        return pc.if_else(pa.array(counts > 0), joined, pa.scalar(None, pa.binary()))

    def _refuse_entry(
        self, wrong: Any, rows: np.ndarray[Any, Any], names: pa.Array, why: str
    ) -> None:
        place = pc.index(wrong, True).as_py()
        if place >= 0:
            name = names[place].as_py()
            raise self._error(int(rows[place]), "properties", f"property {name!r}: {why}")

    def _check_entry_utf8(self, text: pa.Array, rows: np.ndarray[Any, Any], what: str) -> None:
        try:
            text.validate(full=True)
        except pa.ArrowInvalid as error:
            raw = text.cast(pa.binary())
            for place in range(len(raw)):
                try:
                    raw[place].as_py().decode()
                except UnicodeDecodeError as reason:
                    raise self._error(
                        int(rows[place]), "properties", f"a {what} is not UTF-8: {reason.reason}"
                    ) from error
            raise

    def _elements(self) -> pa.Array:
        """The element of each row, ready for the body of a batch."""
        body = self._body()
        properties = self._properties(self._encoder._ids.take(self._count))
        heads = np.zeros(self._count, _HEAD)
        body_bytes = pc.binary_length(body).to_numpy(zero_copy_only=False)
        property_bytes = pc.binary_length(properties).to_numpy(zero_copy_only=False)
        heads["total"] = body_bytes + property_bytes + (_HEAD_BYTES + 2)
        heads["body"] = body_bytes
        flags = self._numbers("flag", 0)
        if flags is not None:
            heads["flag"] = flags
        lengths = property_bytes.astype(">i2")
        return pc.binary_join_element_wise(
            _fixed(heads), body, _fixed(lengths), properties, pa.scalar(b"")
        )

    # -------------------------------------------------------------------------- targets

    def _topics(self) -> tuple[list[str], np.ndarray[Any, Any]]:
        """Topics on the wire, and the number of each row's."""
        encoder = self._encoder
        if encoder._topic is not None:  # the option wins over the column
            return [encoder._names.wrap(encoder._topic)], np.zeros(self._count, np.int64)
        column = self._columns["topic"]
        if column.null_count:
            why = "it is null, and option 'topic' is not set"
            self._refuse(pc.is_null(column), "topic", why)
        codes, values = _codes(column)
        topics = []
        for code, value in enumerate(values):
            topic = encoder._names.wrap(value)
            try:
                check_write_topic(topic)
            except ConfigError as error:
                raise self._error(int(np.argmax(codes == code)), "topic", str(error)) from error
            topics.append(topic)
        return topics, codes

    def _targets(self) -> tuple[list[tuple[str, MessageQueue | None]], np.ndarray[Any, Any]]:
        """Where to: topic and queue, and the number of each row's."""
        topics, codes = self._topics()
        parts: list[tuple[np.ndarray[Any, Any], list[Any]]] = [(codes, topics)]
        key = self._columns.get("shardingKey")
        if key is not None:
            parts.append(_codes(key))
        elif "queueId" in self._columns:
            parts += [_codes(self._columns["brokerName"]), _codes(self._columns["queueId"])]
        combined = np.zeros(self._count, np.int64)
        for numbers, values in parts:
            # Null is a value of its own, numbered behind the others.
            combined = combined * (len(values) + 1) + np.where(numbers < 0, len(values), numbers)
        kinds, firsts, back = np.unique(combined, return_index=True, return_inverse=True)
        found: dict[tuple[str, MessageQueue | None], int] = {}
        numbers_of_kinds = np.empty(len(kinds), np.int64)
        for kind, place in enumerate(firsts):
            values_there: list[Any] = [
                None if numbers[place] < 0 else values[numbers[place]] for numbers, values in parts
            ]
            target = self._target(int(place), *values_there)
            numbers_of_kinds[kind] = found.setdefault(target, len(found))
        return list(found), numbers_of_kinds[back.reshape(-1)]

    def _target(self, place: int, topic: str, *where: Any) -> tuple[str, MessageQueue | None]:
        if not where or all(value is None for value in where):
            return topic, None
        queues = self._encoder.queues(topic)
        if len(where) == 1:
            return topic, select_by_hash(queues, Message(topic), where[0])
        broker, queue_id = where
        if broker is None or queue_id is None:
            column = "brokerName" if broker is None else "queueId"
            raise self._error(place, column, "it is null, the other half of the queue is not")
        queue = MessageQueue(topic, broker, queue_id)
        if queue not in queues:
            raise self._error(place, "queueId", f"{queue} is no queue that can be written")
        return topic, queue

    # ------------------------------------------------------------------------- requests

    def requests(self) -> Iterator[Request]:
        """Cut the rows into requests."""
        encoder = self._encoder
        targets, of_row = self._targets()
        elements = self._elements()
        sizes = pc.binary_length(elements).to_numpy(zero_copy_only=False).astype(np.int64)
        alone = np.full(self._count, encoder._single)
        delays = self._numbers("delayLevel", 0)
        if delays is not None:
            self._refuse(pa.array(delays < 0), "delayLevel", "it is less than 0")
            alone |= delays != 0
        order = None
        if len(targets) > 1:
            order = np.argsort(of_row, kind="stable")
            elements = elements.take(pa.array(order))
            sizes, alone, of_row = sizes[order], alone[order], of_row[order]
        ends = np.searchsorted(of_row, np.arange(len(targets)), side="right")
        data = memoryview(elements.buffers()[2]) if len(elements) else memoryview(b"")
        starts = np.frombuffer(elements.buffers()[1], np.int32)[elements.offset :]
        begin = 0
        for (topic, queue), end in zip(targets, ends.tolist(), strict=True):
            stored = sizes[begin:end] + (_STORED_EXTRA + len(topic))
            yield from self._group(
                topic, queue, begin, stored, alone[begin:end], order, data, starts
            )
            begin = end

    def _group(
        self,
        topic: str,
        queue: MessageQueue | None,
        begin: int,
        stored: np.ndarray[Any, Any],
        alone: np.ndarray[Any, Any],
        order: np.ndarray[Any, Any] | None,
        data: memoryview,
        starts: np.ndarray[Any, Any],
    ) -> Iterator[Request]:
        """The requests for one target."""
        limit = self._encoder._batch_bytes
        alone = alone | (stored > limit)
        # A run of a batch ends before the next row that goes alone.
        barriers = np.flatnonzero(alone)
        total = np.concatenate([[0], np.cumsum(stored)])
        place, count = 0, len(stored)
        while place < count:
            if alone[place]:
                row = begin + place if order is None else int(order[begin + place])
                yield Request(self._message(topic, row), 1, queue)
                place += 1
                continue
            barrier = np.searchsorted(barriers, place)
            until = int(barriers[barrier]) if barrier < len(barriers) else count
            fits = int(np.searchsorted(total, total[place] + limit, side="right")) - 1
            until = min(until, fits)
            body = bytes(data[starts[begin + place] : starts[begin + until]])
            properties = {"WAIT": "true"}
            if self._encoder._names.name:
                properties["INSTANCE_ID"] = self._encoder._names.name
            out = Outgoing(topic, body, properties, "", batch=True)
            yield Request(out, until - place, queue)
            place = until

    def _message(self, topic: str, row: int) -> Outgoing:
        """A row that is sent by itself."""
        values = {name: column[row].as_py() for name, column in self._columns.items()}
        body = values["body"]
        properties = dict(values.get("properties") or {})
        if self._encoder._drop_reserved:
            properties = {n: v for n, v in properties.items() if n not in RESERVED_PROPERTIES}
        try:
            message = Message(
                topic,
                body.encode() if isinstance(body, str) else body,
                tags=values.get("tags"),
                keys=values.get("keys"),
                properties=properties,
                flag=values.get("flag") or 0,
                delay_time_level=values.get("delayLevel") or 0,
            )
            return self._encoder._packer.pack(message)
        except ConfigError as error:
            raise self._error(row, "body", str(error)) from error


def _codes(column: pa.Array) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """The different values of a column, and the number of each row's; -1 for null."""
    encoded = column.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def _join(head: bytes, column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(head), column, pa.scalar(b""))
