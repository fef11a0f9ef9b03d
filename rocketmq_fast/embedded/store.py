"""The message store: commit log, queue indexes, checkpoint and recovery."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketmq_fast._core import decode_properties
from rocketmq_fast._core.stored import (
    ENTRY_BYTES,
    CodeSet,
    StoredMessage,
    assemble_batch,
    assemble_message,
    gather,
    read_stored,
    scan_log,
    select_entries,
)
from rocketmq_fast.embedded.commit_log import CommitLog, Unsynced
from rocketmq_fast.embedded.config import BrokerConfig, parse_delay_levels
from rocketmq_fast.embedded.consume_queue import ConsumeQueue
from rocketmq_fast.embedded.files import (
    StoreError,
    StoreLock,
    directory_of,
    load_json,
    make_directory,
    save_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rocketmq_fast.embedded.sql92 import SqlFilter

log = logging.getLogger(__name__)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_SCAN_BYTES = 8 << 20
_SPAN_BYTES = 1 << 20
_MAX_UNSYNCED = 128
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_MARKED = CodeSet([1])

FOUND = "FOUND"
NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


def now_ms() -> int:
    """Wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a message, or the first of a batch, was stored."""

    queue_offset: int
    position: int
    entries: bytes


@dataclass(frozen=True, slots=True)
class Got:
    """Outcome of a lookup for a pull."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    count: int = 0
    body: bytes = b""


class MessageStore:
    """All messages of a broker. Owned by one thread, which does every append and read.

    `on_append` is told (topic, queue id, new max offset, entries) after each append.
    """

    def __init__(
        self,
        root: Path,
        config: BrokerConfig,
        *,
        store_host: bytes,
        clock: Callable[[], int] = now_ms,
        durable: bool = True,
    ) -> None:
        self.root = make_directory(root)
        self.config = config
        self.store_host = store_host
        self.clock = clock
        self.durable = durable
        self.on_append: Callable[[str, int, int, bytes], None] | None = None
        self.delays = parse_delay_levels(config.delay_levels)
        self._lock = StoreLock(root / "lock")
        try:
            self.log = CommitLog(root / "commitlog", config.mapped_file_size_commit_log)
        except BaseException:
            self._lock.release()
            raise
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}
        self._unsaved: set[ConsumeQueue] = set()
        self._checkpoint_dirty = False
        self._last_store_ms = 0
        self._memory_window = config.memory_window
        self.messages_put = 0
        self.bytes_put = 0
        self.messages_got = 0

    # ------------------------------------------------------------------------- recovery

    def recover(self, topic_exists: Callable[[str], bool]) -> None:
        """Load the indexes and rebuild what was not saved; cut a torn record off the log.

        Messages of topics that do not exist any more stay unindexed. Raises StoreError.
        """
        position = self.log.start
        try:
            saved = load_json(self.root / "checkpoint")
        except StoreError as error:
            log.warning("store %s: %s", self.root, error)
            saved = None
        if saved is not None and self._load_queues(saved, topic_exists):
            position = max(int(saved["position"]), self.log.start)
        elif self.log.end > self.log.start:
            log.info("store %s: rebuilding all indexes", self.root)
            self._clear_queues()
        if not self._scan(position, topic_exists):
            log.warning("store %s: index and checkpoint disagree, rebuilding", self.root)
            self._clear_queues()
            self._scan(self.log.start, topic_exists)
        if self.log.start > 0:
            self._raise_min_offsets()

    def _load_queues(self, saved: dict[str, Any], topic_exists: Callable[[str], bool]) -> bool:
        try:
            if int(saved["position"]) > self.log.end:
                return False
            for topic, queues in saved["queues"].items():
                if not topic_exists(topic):
                    continue
                for queue_id, (low, high) in queues.items():
                    queue = self._new_queue(topic, int(queue_id), int(low), int(high))
                    if not queue.is_complete():
                        return False
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("store %s: checkpoint is damaged: %r", self.root, error)
            return False
        return True

    def _clear_queues(self) -> None:
        self._queues.clear()
        self._unsaved.clear()
        shutil.rmtree(self.root / "consumequeue", ignore_errors=True)

    def _scan(self, position: int, topic_exists: Callable[[str], bool]) -> bool:
        """Index the log from a position on; False when records are missing before it."""
        partial = position > self.log.start
        size = _SCAN_BYTES
        schedule = SCHEDULE_TOPIC.encode()
        delays = list(self.delays)
        while position < self.log.end:
            data = self.log.read(position, size)
            consumed, runs, reason = scan_log(data, position, True, schedule, delays)
            for topic, queue_id, first, entries, stored_ms in runs:
                self._last_store_ms = max(self._last_store_ms, stored_ms)
                if not topic_exists(topic):
                    continue
                queue = self._queue(topic, queue_id)
                if first != queue.max_offset:
                    if partial and first > queue.max_offset:
                        return False
                    # The topic was deleted and created again, or retention took the beginning.
                    queue.reset(first)
                queue.append(entries)
                self._unsaved.add(queue)
            position += consumed
            if consumed:
                size = _SCAN_BYTES
            if reason is None and not consumed and len(data) == size:
                size *= 4  # one record is longer than the piece
                continue
            if reason is not None or not consumed:
                log.warning(
                    "store %s: cutting %d bytes off the log at %d: %s",
                    self.root, self.log.end - position, position, reason or "torn record",
                )  # fmt: skip
                self.log.truncate(position)
        self._checkpoint_dirty = True
        return True

    def _raise_min_offsets(self) -> None:
        """Let every queue begin at its first message that is still in the log."""
        for queue in self.queues():
            low, high = queue.min_offset, queue.max_offset
            while low < high:
                middle = (low + high) // 2
                position = _INT64.unpack_from(queue.entries(middle, 1))[0]
                if position < self.log.start:
                    low = middle + 1
                else:
                    high = middle
            if low > queue.min_offset:
                queue.raise_min(low)
                self._checkpoint_dirty = True

    # -------------------------------------------------------------------------- queues

    def _new_queue(self, topic: str, queue_id: int, low: int = 0, high: int = 0) -> ConsumeQueue:
        directory = directory_of(self.root / "consumequeue", topic) / str(queue_id)
        queue = ConsumeQueue(topic, queue_id, directory, low, high)
        self._queues.setdefault(topic, {})[queue_id] = queue
        return queue

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues.get(topic, {}).get(queue_id)
        return queue if queue is not None else self._new_queue(topic, queue_id)

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the index of a queue that was ever written, or None."""
        return self._queues.get(topic, {}).get(queue_id)

    def queues(self) -> Iterator[ConsumeQueue]:
        """Return all indexes."""
        for queues in self._queues.values():
            yield from queues.values()

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of a queue; 0 when it was never written."""
        queue = self.find_queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue; 0 when it was never written."""
        queue = self.find_queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def delete_topic(self, topic: str) -> None:
        """Forget the messages of a topic; a topic of that name starts at 0 again."""
        for queue in self._queues.pop(topic, {}).values():
            self._unsaved.discard(queue)
        shutil.rmtree(directory_of(self.root / "consumequeue", topic), ignore_errors=True)
        self._checkpoint_dirty = True
        # Recovery must not index the old messages again.
        self.checkpoint().write()

    # -------------------------------------------------------------------------- writes

    def _store_time(self) -> int:
        """Return the time for the next record; it never goes back, as time searches rely on it."""
        self._last_store_ms = max(self._last_store_ms, self.clock())
        return self._last_store_ms

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        *,
        properties: bytes,
        born_timestamp: int,
        born_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        delay_level: int = 0,
    ) -> Appended:
        """Store one message. Raises StoreError, MessageDecodeError for fields that are too long."""
        queue = self._queue(topic, queue_id)
        stored_ms = self._store_time()
        record, entry = assemble_message(
            body,
            topic=topic.encode(),
            properties=properties,
            born_host=born_host,
            store_host=self.store_host,
            queue_id=queue_id,
            queue_offset=queue.max_offset,
            position=self.log.end,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            store_timestamp=stored_ms,
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
            tags_code=stored_ms + self.delays[delay_level - 1] if delay_level > 0 else None,
        )
        return self._append(queue, record, entry)

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        batch: bytes | memoryview,
        *,
        properties: bytes,
        born_timestamp: int,
        born_host: bytes,
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> Appended:
        """Store the elements of a batch body, all or none. Raises as put()."""
        queue = self._queue(topic, queue_id)
        records, entries = assemble_batch(
            batch,
            topic=topic.encode(),
            more_properties=properties,
            born_host=born_host,
            store_host=self.store_host,
            queue_id=queue_id,
            queue_offset=queue.max_offset,
            position=self.log.end,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            store_timestamp=self._store_time(),
            reconsume_times=reconsume_times,
        )
        return self._append(queue, records, entries)

    def _append(self, queue: ConsumeQueue, records: bytes, entries: bytes) -> Appended:
        position, offset = self.log.end, queue.max_offset
        self.log.append(records)
        queue.append(entries)
        self._unsaved.add(queue)
        count = len(entries) // ENTRY_BYTES
        self.messages_put += count
        self.bytes_put += len(records)
        if self.on_append is not None:
            self.on_append(queue.topic, queue.queue_id, queue.max_offset, entries)
        return Appended(offset, position, entries)

    # --------------------------------------------------------------------------- reads

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        codes: CodeSet | None,
        sql: SqlFilter | None = None,
    ) -> Got:
        """Look up messages for a pull, with the limits of the 4.9.4 broker."""
        queue = self.find_queue(topic, queue_id)
        if queue is None:
            return Got(NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return Got(NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return Got(OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return Got(OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return Got(OFFSET_OVERFLOW_BADLY, high, low, high)
        config = self.config
        limit = min(max_count, config.max_transfer_count_on_message_in_memory)
        scan = limit + 1
        if codes is not None or sql is not None:
            scan = max(config.max_filter_message_size, 20 * max_count) // ENTRY_BYTES
        entries = queue.entries(offset, max(scan, 1))
        if sql is not None:
            entries, codes = self._marked(entries, sql, limit), _MARKED
        scanned, count, size, runs = select_entries(
            entries,
            codes,
            limit,
            config.max_transfer_bytes_on_message_in_memory,
            config.max_transfer_count_on_message_in_disk,
            config.max_transfer_bytes_on_message_in_disk,
            self.log.end - self._memory_window,
        )
        if count == 0:
            return Got(NO_MATCHED_MESSAGE, offset + scanned, low, high)
        if runs[0][0] < self.log.start:
            return Got(MESSAGE_WAS_REMOVING, offset + scanned, low, high)
        self.messages_got += count
        return Got(FOUND, offset + scanned, low, high, count, self._read_runs(runs, size))

    def _marked(self, entries: bytes, sql: SqlFilter, limit: int) -> bytes:
        """Index entries up to the `limit`-th that matches, with 1 or 0 for the code of the tag."""
        found = bytearray()
        matches = 0
        for at in range(0, len(entries), ENTRY_BYTES):
            wanted = self._wants(entries, at, sql)
            matches += wanted
            found += entries[at : at + ENTRY_BYTES - 8] + _INT64.pack(wanted)
            if matches == limit:
                break
        return bytes(found)

    def _wants(self, entries: bytes, at: int, sql: SqlFilter) -> bool:
        position = _INT64.unpack_from(entries, at)[0]
        if position < self.log.start:
            return True  # it is gone, which the pull tells
        return sql.matches(decode_properties(self.stored_at(position).properties))

    def first_match(self, entries: bytes, sql: SqlFilter) -> bool:
        """Whether a message of these index entries matches."""
        return any(self._wants(entries, at, sql) for at in range(0, len(entries), ENTRY_BYTES))

    def _read_runs(self, runs: list[tuple[int, int]], size: int) -> bytes:
        """Read runs of the log as one piece: a wide read is cheaper than many small ones."""
        first = runs[0][0]
        if len(runs) == 1:
            return self.log.read_all(first, size)
        last = runs[-1][0] + runs[-1][1]
        if last - first <= max(_SPAN_BYTES, 4 * size) and last <= self.log.segment_end(first):
            return gather(self.log.read(first, last - first), first, runs)
        return b"".join([self.log.read_all(position, length) for position, length in runs])

    def message_at(self, position: int) -> bytes:
        """Return the record at a position. Raises StoreError when there is none."""
        head = self.log.read(position, 4)
        size = _INT32.unpack(head)[0] if len(head) == 4 else 0
        if not 0 < size <= self.log.end - position:
            raise StoreError(f"no message at position {position}")
        return self.log.read(position, size)

    def stored_at(self, position: int) -> StoredMessage:
        """Return the fields of the record at a position.

        Raises StoreError, MessageDecodeError when there is none.
        """
        return read_stored(self.message_at(position))

    def store_time(self, queue: ConsumeQueue, offset: int) -> int:
        """Return when a message of a queue was stored, -1 when it cannot be read."""
        position = _INT64.unpack_from(queue.entries(offset, 1))[0]
        try:
            head = self.log.read(position, 76)
        except StoreError:
            return -1
        born_host = 20 if _INT32.unpack_from(head, 36)[0] & 0x10 else 8
        return int(_INT64.unpack_from(head, 48 + born_host)[0])

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset stored nearest to a time, as the 4.9.4 broker's bisection finds it."""
        queue = self.find_queue(topic, queue_id)
        if queue is None or queue.max_offset == queue.min_offset:
            return 0
        low, high = queue.min_offset, queue.max_offset - 1
        before = after = before_ms = after_ms = -1
        while low <= high:
            middle = (low + high) // 2
            stored = self.store_time(queue, middle)
            if stored == timestamp:
                return middle
            if stored > timestamp:
                high = middle - 1
                after, after_ms = middle, stored
            else:
                low = middle + 1
                before, before_ms = middle, stored
        if before == -1 or (after != -1 and timestamp - before_ms > after_ms - timestamp):
            return after
        return before

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Tell whether a message counts as being in memory; so does one that is not there."""
        queue = self.find_queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return True
        position = int(_INT64.unpack_from(queue.entries(offset, 1))[0])
        return self.log.end - position <= self._memory_window

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids of the queues of a topic that were ever written."""
        return list(self._queues.get(topic, ()))

    def position_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return where in the log a message is; the end for one that is not there."""
        queue = self.find_queue(topic, queue_id)
        if queue is None or queue.min_offset == queue.max_offset:
            return self.log.end
        offset = min(max(offset, queue.min_offset), queue.max_offset - 1)
        return int(_INT64.unpack_from(queue.entries(offset, 1))[0])

    # ---------------------------------------------------------------------- durability

    def take_unsynced(self) -> Unsynced:
        """Return the part of the log to be made durable; its sync() may run on any thread."""
        return self.log.take_dirty()

    def checkpoint(self) -> Checkpoint:
        """Save the indexes and return what makes this state the one that a start begins with.

        Raises OSError.
        """
        unsynced = self.log.take_dirty()
        keep = unsynced.fds if self.durable else None
        try:
            for queue in list(self._unsaved):
                queue.save(keep)
                self._unsaved.discard(queue)
                self._checkpoint_dirty = True
                if len(unsynced.fds) > _MAX_UNSYNCED:
                    unsynced.sync()
        except OSError:
            unsynced.close()
            raise
        content = None
        if self._checkpoint_dirty:
            queues: dict[str, dict[int, list[int]]] = {}
            for queue in self.queues():
                bounds = [queue.min_offset, queue.max_offset]
                queues.setdefault(queue.topic, {})[queue.queue_id] = bounds
            content = {"position": self.log.end, "queues": queues}
            self._checkpoint_dirty = False
        return Checkpoint(self.root / "checkpoint", content, unsynced, self.durable)

    def expire(self) -> None:
        """Delete the segments that are too old, and the oldest of a log that is too large."""
        config = self.config
        oldest = self.clock() / 1000 - config.file_reserved_time
        keep = self.log.start
        starts = self.log.segment_starts()
        for start, following in itertools.pairwise(starts):
            too_large = config.max_log_bytes and self.log.end - start > config.max_log_bytes
            if not too_large and self.log.modified(start) > oldest:
                break
            keep = following
        if keep > self.log.start:
            log.info("store %s: deleting the log before %d", self.root, keep)
            self.log.delete_before(keep)
            self._raise_min_offsets()

    def close(self) -> None:
        """Make everything durable and release the directory."""
        try:
            self.checkpoint().write()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without saving, as a killed process would leave the store."""
        self.log.close()
        self._lock.release()


class Checkpoint:
    """A state of the store to be made durable, on any thread."""

    def __init__(
        self, path: Path, content: dict[str, Any] | None, unsynced: Unsynced, durable: bool
    ) -> None:
        self._path = path
        self._content = content
        self._unsynced = unsynced
        self._durable = durable

    def write(self) -> None:
        """Sync the files, then write the checkpoint. Raises OSError."""
        if self._durable:
            self._unsynced.sync()
        else:
            self._unsynced.close()
        if self._content is not None:
            save_json(self._path, self._content, durable=self._durable)


def directory_size(path: Path) -> int:
    """Return the bytes in all files below a directory."""
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(path)
        for name in names
    )
