"""Transactional messages: kept back as half messages until their producer decides, or is asked."""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast._core.stored import ENTRY_BYTES, assemble_message, offset_ids
from rocketmq_fast.embedded.files import Snapshot, StoreError, load_json
from rocketmq_fast.embedded.requests import (
    Refused,
    answer,
    boolean,
    format_properties,
    int32,
    int64,
    parse_properties,
    text,
)
from rocketmq_fast.embedded.topics import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC
from rocketmq_fast.errors import MessageDecodeError
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.codes import MessageSysFlag, RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rocketmq_fast._core.stored import StoredMessage
    from rocketmq_fast.embedded.dispatch import Handlers
    from rocketmq_fast.embedded.state import BrokerState
    from rocketmq_fast.embedded.store import Appended
    from rocketmq_fast.remoting.server import Peer

log = logging.getLogger(__name__)

CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_COMMIT = int(MessageSysFlag.TRANSACTION_COMMIT)
# The value of a rollback is at the same time the mask of all transaction bits.
_ROLLBACK = int(MessageSysFlag.TRANSACTION_ROLLBACK)
_OP_TAG = "d"
_BURST = 256
_ENTRY = struct.Struct(">qiq")


@dataclass(slots=True)
class _Half:
    """A half message that nobody has decided on."""

    offset: int
    position: int
    op_mark: int  # what is said about it stands in the op queue from here on
    born_ms: int | None = None  # None: it was not read since the start
    patience_ms: int = 0
    earlier: list[int] = field(default_factory=list)  # offsets of its copies before the checks


class TransactionService:
    """Keeps half messages, serves END_TRANSACTION, and asks producers that stay silent.

    Queue 0 of the half topic holds the messages, queue 0 of the op topic the offsets of those that
    are done. What is open follows from both after a restart; transactionOffset.json only tells
    where to begin reading. A check stores the half message again, with its number of checks.
    """

    def __init__(self, state: BrokerState, path: Path) -> None:
        self._state = state
        self._store = state.store
        self._path = path
        self._open: dict[int, _Half] = {}  # in the order of offsets
        self._current: dict[int, int] = {}  # offset of an earlier copy: that of the last one
        self._asked = 0
        self._saved: tuple[int, int] | None = None
        self._recover()

    def handlers(self) -> Handlers:
        """Return what this part serves."""
        return {RequestCode.END_TRANSACTION: self.end}

    @property
    def open_count(self) -> int:
        """Half messages without a decision."""
        return len(self._open)

    # ------------------------------------------------------------------------- recovery

    def _recover(self) -> None:
        saved = load_json(self._path) or {}
        try:
            first, first_op = int(saved.get("half", 0)), int(saved.get("op", 0))
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{self._path}: {error}") from error
        done = set()
        for _, position in self._entries(OP_TOPIC, first_op):
            try:
                done.add(int(self._store.stored_at(position).body))
            except (StoreError, MessageDecodeError, ValueError) as error:
                log.warning("transaction record at %d is unreadable: %s", position, error)
        for offset, position in self._entries(HALF_TOPIC, first):
            if offset not in done:
                self._open[offset] = _Half(offset, position, first_op)
        if self._open:
            log.info("%d transactions are open", len(self._open))

    def _entries(self, topic: str, first: int) -> Iterator[tuple[int, int]]:
        """Return offsets and positions of queue 0 of a topic."""
        queue = self._store.find_queue(topic, 0)
        if queue is None:
            return
        offset = max(first, queue.min_offset)
        while offset < queue.max_offset:
            entries = queue.entries(offset, _BURST)
            for position, _, _ in _ENTRY.iter_unpack(entries):
                yield offset, position
                offset += 1
            if len(entries) < ENTRY_BYTES:
                return

    def take_snapshot(self) -> Snapshot | None:
        """Return where a later start has to begin to read, None when that is as before.

        It may reach the disk only after the messages.
        """
        oldest = next(iter(self._open.values()), None)
        if oldest is None:
            now = self._store.max_offset(HALF_TOPIC, 0), self._store.max_offset(OP_TOPIC, 0)
        else:
            now = oldest.offset, oldest.op_mark
        if now == (self._saved or (0, 0)):
            return None
        self._saved = now
        content = {"half": now[0], "op": now[1]}
        return Snapshot(self._path, content, durable=self._store.durable)

    # ------------------------------------------------------------------------ half, end

    def prepare(
        self, topic: str, queue_id: int, body: bytes | memoryview, table: dict[str, str], *,
        born_timestamp: int, born_host: bytes, sys_flag: int, flag: int, reconsume_times: int,
    ) -> Appended:  # fmt: skip
        """Store a half message. Raises StoreError, MessageDecodeError."""
        table[props.REAL_TOPIC] = topic
        table[props.REAL_QID] = str(queue_id)
        self._state.topics.ensure(HALF_TOPIC, 1)
        stored = self._store.put(
            HALF_TOPIC, 0, body, properties=format_properties(table), flag=flag,
            sys_flag=sys_flag & ~_ROLLBACK, born_timestamp=born_timestamp, born_host=born_host,
            reconsume_times=reconsume_times,
        )  # fmt: skip
        self._opened(stored)
        return stored

    def _opened(self, stored: Appended) -> _Half:
        half = _Half(stored.queue_offset, stored.position, self._store.max_offset(OP_TOPIC, 0))
        self._open[half.offset] = half
        return half

    def end(self, _: Peer, request: RemotingCommand) -> RemotingCommand | None:
        """Commit or roll back; a state that is unknown is left to a later check, unanswered."""
        fields = request.ext_fields
        group, decision = text(fields, "producerGroup"), int32(fields, "commitOrRollback")
        offset, position = int64(fields, "tranStateTableOffset"), int64(fields, "commitLogOffset")
        if request.remark or boolean(fields, "fromTransactionCheck"):
            log.info(
                "group %s ends transaction %s with %d: %s",
                group,
                fields.get("msgId"),
                decision,
                request.remark,
            )
        if decision not in (_COMMIT, _ROLLBACK):
            return None
        message, table = self._half_at(position)
        if table.get(props.PGROUP) != group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if message.queue_offset != offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        half = self._open.get(self._current.get(offset, offset))
        if half is None:
            # The Java broker would deliver the message again.
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"transaction {table.get('UNIQ_KEY')} of half offset {offset} has ended",
            )
        try:
            if decision == _COMMIT:
                self._deliver(message, table, position)
            self._done(half)
        except (StoreError, MessageDecodeError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"half offset {offset}: {error}") from error
        return answer(request)

    def _half_at(self, position: int) -> tuple[StoredMessage, dict[str, str]]:
        """Return the half message at a position, and its properties. Refuses without one."""
        try:
            message = self._store.stored_at(position)
        except (StoreError, MessageDecodeError) as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"
            ) from error
        if message.topic != HALF_TOPIC or message.position != position:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        return message, parse_properties(message.properties.decode("utf-8", "replace"))

    def _deliver(self, message: StoredMessage, table: dict[str, str], position: int) -> None:
        """Store a committed message in its real queue. Raises StoreError, MessageDecodeError."""
        topic = table[props.REAL_TOPIC]
        if topic not in self._state.topics:
            log.warning("transaction at %d: topic %r was deleted; it is dropped", position, topic)
            return
        self._store.put(
            topic, int(table[props.REAL_QID]), message.body,
            properties=message.properties, flag=message.flag,
            sys_flag=message.sys_flag & ~_ROLLBACK | _COMMIT,
            born_timestamp=message.born_timestamp, born_host=message.born_host,
            reconsume_times=message.reconsume_times, prepared_transaction_offset=position,
        )  # fmt: skip

    def _done(self, half: _Half) -> None:
        """Note that a half message is settled, in the op topic too. Raises StoreError."""
        self._record(half.offset)
        del self._open[half.offset]
        for offset in half.earlier:
            del self._current[offset]

    def _record(self, offset: int) -> None:
        self._state.topics.ensure(OP_TOPIC, 1)
        self._store.put(
            OP_TOPIC, 0, str(offset).encode(),
            properties=format_properties({props.TAGS: _OP_TAG}),
            born_timestamp=self._store.clock(), born_host=self._store.store_host,
        )  # fmt: skip

    # --------------------------------------------------------------------------- checks

    def start(self) -> None:
        """Check from now on. Loop thread."""
        self._state.loop.call_later(self._state.config.transaction_check_interval, self._tick)

    def _tick(self) -> None:
        try:
            self.check()
        finally:
            self.start()

    def check(self) -> None:
        """Ask the producers about every half message that is old enough."""
        for half in list(self._open.values()):
            try:
                self._check(half)
            except (StoreError, MessageDecodeError, Refused) as error:
                if half.position < self._store.log.start:
                    log.warning(
                        "half offset %d was deleted with its log before its transaction ended",
                        half.offset,
                    )
                    self._done(half)
                else:
                    log.warning("half offset %d was not checked: %s", half.offset, error)

    def _check(self, half: _Half) -> None:
        config, now = self._state.config, self._store.clock()
        if half.born_ms is not None and 0 <= now - half.born_ms < half.patience_ms:
            return
        message, table = self._half_at(half.position)
        half.born_ms, half.patience_ms = message.born_timestamp, self._patience_ms(table)
        age_ms = now - half.born_ms
        if 0 <= age_ms < half.patience_ms:
            return
        times = int(table.get(CHECK_TIMES, "0"))
        if times >= config.transaction_check_max or age_ms > config.file_reserved_time * 1000:
            log.error("transaction %s of group %s had no decision after %d checks: the message is "
                      "moved to %s", table.get(props.UNIQ_KEY), table.get(props.PGROUP), times,
                      CHECK_MAX_TOPIC)  # fmt: skip
            self._state.topics.ensure(CHECK_MAX_TOPIC, 1)
            self._put_copy(message, CHECK_MAX_TOPIC, table)
            self._done(half)
            return
        table[CHECK_TIMES] = str(times + 1)
        stored = self._put_copy(message, HALF_TOPIC, table)
        copy = self._opened(stored)
        copy.earlier = [*half.earlier, half.offset]
        self._record(half.offset)
        del self._open[half.offset]
        for offset in copy.earlier:
            self._current[offset] = copy.offset
        self._ask(message, table, stored)

    def _patience_ms(self, table: dict[str, str]) -> int:
        """Return how long a transaction may take before somebody asks."""
        try:
            return int(table[_IMMUNITY]) * 1000
        except (KeyError, ValueError):
            return round(self._state.config.transaction_time_out * 1000)

    def _put_copy(self, message: StoredMessage, topic: str, table: dict[str, str]) -> Appended:
        return self._store.put(
            topic, 0, message.body, properties=format_properties(table), flag=message.flag,
            sys_flag=message.sys_flag, born_timestamp=message.born_timestamp,
            born_host=message.born_host, reconsume_times=message.reconsume_times,
        )  # fmt: skip

    def _ask(self, message: StoredMessage, table: dict[str, str], stored: Appended) -> None:
        group = table.get(props.PGROUP, "")
        members = self._state.members.producers.get(group, {})
        peers = [peer for peer in members if not peer.closed]
        if not peers:
            log.warning(
                "no producer of group %s to ask about transaction %s",
                group,
                table.get(props.UNIQ_KEY),
            )
            return
        self._asked += 1
        record, _ = assemble_message(
            message.body,
            topic=table[props.REAL_TOPIC].encode(), properties=format_properties(table),
            born_host=message.born_host, store_host=self._store.store_host,
            queue_id=int(table[props.REAL_QID]), queue_offset=stored.queue_offset,
            position=stored.position, flag=message.flag, sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp, store_timestamp=self._store.clock(),
            reconsume_times=message.reconsume_times,
        )  # fmt: skip
        fields = {
            "tranStateTableOffset": str(stored.queue_offset),
            "commitLogOffset": str(stored.position),
            "offsetMsgId": offset_ids(self._store.store_host, stored.entries),
        }
        unique = table.get(props.UNIQ_KEY)
        if unique is not None:
            fields |= {"msgId": unique, "transactionId": unique}
        peers[self._asked % len(peers)].notify(
            RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, fields, record)
        )
