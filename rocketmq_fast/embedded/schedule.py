"""Delivery of delayed messages."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from rocketmq_fast._core.stored import ENTRY_BYTES
from rocketmq_fast.embedded.files import Snapshot, StoreError, load_json
from rocketmq_fast.embedded.requests import parse_properties
from rocketmq_fast.embedded.store import SCHEDULE_TOPIC
from rocketmq_fast.errors import MessageDecodeError
from rocketmq_fast.protocol import props

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketmq_fast.embedded.scope import LoopScope
    from rocketmq_fast.embedded.store import MessageStore

log = logging.getLogger(__name__)

FIRST_DELAY = 1.0
INTERVAL = 0.1
_BURST = 256
_ENTRY = struct.Struct(">qiq")


class ScheduleService:
    """Moves messages of the schedule topic to their real queues when their time has come.

    Queue n - 1 of the schedule topic holds level n. Progress is kept in delayOffset.json; after a
    crash, messages delivered since it was saved are delivered again.
    """

    def __init__(
        self, store: MessageStore, path: Path, topic_exists: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._path = path
        self._topic_exists = topic_exists
        self._offsets: dict[int, int] = {}
        self._dirty = False
        self._loop: LoopScope | None = None
        saved = load_json(path) or {}
        try:
            for level, offset in (saved.get("offsetTable") or {}).items():
                self._offsets[int(level)] = int(offset)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{path}: {error}") from error
        for level, offset in self._offsets.items():
            low = store.min_offset(SCHEDULE_TOPIC, level - 1)
            high = store.max_offset(SCHEDULE_TOPIC, level - 1)
            self._offsets[level] = min(max(offset, low), high)

    @property
    def offsets(self) -> dict[int, int]:
        """Next offset to deliver by level."""
        return dict(self._offsets)

    def start(self, loop: LoopScope) -> None:
        """Deliver from now on, on the loop."""
        self._loop = loop
        loop.call_later(FIRST_DELAY, self._tick)

    def _tick(self) -> None:
        more = self.deliver()
        if self._loop is not None:
            self._loop.call_later(0.0 if more else INTERVAL, self._tick)

    def deliver(self) -> bool:
        """Deliver what is due; True when a burst ended before everything due was delivered."""
        more = False
        for level in range(1, len(self._store.delays) + 1):
            more = self._deliver_level(level) or more
        return more

    def _deliver_level(self, level: int) -> bool:
        queue = self._store.find_queue(SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return False
        offset = max(self._offsets.get(level, 0), queue.min_offset)
        if offset >= queue.max_offset:
            return False
        entries = queue.entries(offset, _BURST)
        now = self._store.clock()
        done = 0
        for position, _, due in _ENTRY.iter_unpack(entries):
            # A clock that was set back must not hold a message longer than its delay.
            if min(due, now + self._store.delays[level - 1]) > now:
                break
            try:
                self._restore(position)
            except StoreError as error:
                # A full disk: the message stays where it is and is tried again.
                log.warning("delay level %d, offset %d: %s", level, offset + done, error)
                break
            done += 1
        if done:
            self._offsets[level] = offset + done
            self._dirty = True
        return done == _BURST or done == len(entries) // ENTRY_BYTES < queue.max_offset - offset

    def _restore(self, position: int) -> None:
        """Store a delayed message again, in its real queue. Raises StoreError."""
        try:
            message = self._store.stored_at(position)
        except MessageDecodeError as error:
            log.warning("delayed message at %d is lost: %s", position, error)
            return
        table = parse_properties(message.properties.decode("utf-8", "replace"))
        topic, queue_id = table.get(props.REAL_TOPIC, ""), table.get(props.REAL_QID, "")
        if not queue_id.isdigit() or not self._topic_exists(topic):
            log.warning("delayed message at %d: topic %r does not exist", position, topic)
            return
        self._store.put(
            topic, int(queue_id), message.body, properties=message.properties,
            flag=message.flag, sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp, born_host=message.born_host,
            reconsume_times=message.reconsume_times,
        )  # fmt: skip

    def take_snapshot(self) -> Snapshot | None:
        """Return the progress to be saved, None when there was none.

        It may reach the disk only after the messages that were delivered.
        """
        if not self._dirty:
            return None
        self._dirty = False
        content = {"offsetTable": self.offsets}
        return Snapshot(self._path, content, durable=self._store.durable)
