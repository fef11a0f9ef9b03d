"""Questions about messages and queues: offsets, single messages, keys, statistics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rocketmq_fast._core.stored import find_key
from rocketmq_fast.embedded.files import StoreError
from rocketmq_fast.embedded.requests import (
    Refused,
    answer,
    dump,
    dump_queue_keys,
    int32,
    int64,
    text,
)
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_fast._core import RemotingCommand
    from rocketmq_fast.embedded.dispatch import Handlers
    from rocketmq_fast.embedded.state import BrokerState
    from rocketmq_fast.embedded.topics import TopicConfig
    from rocketmq_fast.remoting.server import Peer

_SCAN_BYTES = 4 << 20
_MAX_RESULTS = 64
_MAX_RESULT_BYTES = 12 << 20


class QueryService:
    """Serves reads that are no pulls."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> Handlers:
        """Return what this part serves."""
        return {
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.consume_time_span,
        }

    # ------------------------------------------------------------------------- offsets

    @staticmethod
    def _queue_of(request: RemotingCommand) -> tuple[str, int]:
        return text(request.ext_fields, "topic"), int32(request.ext_fields, "queueId")

    def max_offset(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return the next offset of a queue."""
        offset = self._state.store.max_offset(*self._queue_of(request))
        return answer(request, ResponseCode.SUCCESS, {"offset": str(offset)})

    def min_offset(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return the first offset of a queue."""
        offset = self._state.store.min_offset(*self._queue_of(request))
        return answer(request, ResponseCode.SUCCESS, {"offset": str(offset)})

    def search_offset(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return the offset stored nearest to a time."""
        timestamp = int64(request.ext_fields, "timestamp")
        offset = self._state.store.offset_by_time(*self._queue_of(request), timestamp)
        return answer(request, ResponseCode.SUCCESS, {"offset": str(offset)})

    def earliest(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return when the first message of a queue was stored."""
        queue = self._state.store.find_queue(*self._queue_of(request))
        stored = -1
        if queue is not None and queue.min_offset < queue.max_offset:
            stored = self._state.store.store_time(queue, queue.min_offset)
        return answer(request, ResponseCode.SUCCESS, {"timestamp": str(stored)})

    # ------------------------------------------------------------------------ messages

    def view(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return the message at a position of the log."""
        position = int64(request.ext_fields, "offset")
        try:
            body = self._state.store.message_at(position)
        except StoreError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}"
            ) from error
        return answer(request, ResponseCode.SUCCESS, None, body, json_header=True)

    def query(self, peer: Peer, request: RemotingCommand) -> None:
        """Find messages by key or unique key; the log is read piece by piece between requests."""
        fields = request.ext_fields
        unique = fields.get("_UNIQUE_KEY_QUERY") == "true"
        limit = self._state.config.default_query_max_num if unique else int32(fields, "maxNum")
        search = KeySearch(
            self._state, text(fields, "topic"), text(fields, "key"),
            max(1, min(limit, _MAX_RESULTS)),
            int64(fields, "beginTimestamp"), int64(fields, "endTimestamp"),
        )  # fmt: skip
        self._search_on(peer, request, search)

    def _search_on(self, peer: Peer, request: RemotingCommand, search: KeySearch) -> None:
        if peer.closed:
            return
        try:
            if search.step():
                self._state.loop.call_soon(self._search_on, peer, request, search)
                return
            bodies = search.messages()
        except StoreError as error:
            peer.reply(request, answer(request, ResponseCode.SYSTEM_ERROR, remark=str(error)))
            return
        ext = {
            "indexLastUpdateTimestamp": str(self._state.store.clock()),
            "indexLastUpdatePhyoffset": str(self._state.store.log.end),
        }
        if bodies:
            response = answer(
                request, ResponseCode.SUCCESS, ext, b"".join(bodies), json_header=True
            )
        else:
            response = answer(
                request, ResponseCode.QUERY_NOT_FOUND, ext,
                remark="can not find message, maybe time range not correct",
            )  # fmt: skip
        peer.reply(request, response)

    # ---------------------------------------------------------------------- statistics

    def _topic(self, name: str) -> TopicConfig:
        config = self._state.topics.get(name)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return config

    def topic_stats(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return the bounds of all queues of a topic."""
        state = self._state
        config = self._topic(text(request.ext_fields, "topic"))
        rows = []
        for queue_id in range(config.write_queue_nums):
            low = state.store.min_offset(config.name, queue_id)
            high = state.store.max_offset(config.name, queue_id)
            queue = state.store.find_queue(config.name, queue_id)
            updated = 0
            if queue is not None and high > low:
                updated = state.store.store_time(queue, high - 1)
            value = {"lastUpdateTimestamp": updated, "maxOffset": high, "minOffset": low}
            rows.append((config.name, state.config.broker_name, queue_id, value))
        body = f'{{"offsetTable":{dump_queue_keys(rows)}}}'
        return answer(request, ResponseCode.SUCCESS, None, body.encode())

    def _progress(self, group: str, topics: list[str]) -> Iterator[tuple[str, str, int, object]]:
        state = self._state
        online = state.members.consumers.get(group)
        for topic in topics:
            config = state.topics.get(topic)
            if config is None:
                continue
            if online is not None and topic not in online.subscriptions:
                continue
            for queue_id in range(config.read_queue_nums):
                offset = max(state.offsets.query(group, topic, queue_id), 0)
                last = 0
                queue = state.store.find_queue(topic, queue_id)
                if queue is not None and queue.min_offset < offset <= queue.max_offset:
                    last = max(state.store.store_time(queue, offset - 1), 0)
                value = {
                    "brokerOffset": state.store.max_offset(topic, queue_id),
                    "consumerOffset": offset,
                    "lastTimestamp": last,
                }
                yield topic, state.config.broker_name, queue_id, value

    def consume_stats(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return how far a group is in the queues that it has offsets for."""
        group = text(request.ext_fields, "consumerGroup")
        topic = request.ext_fields.get("topic")
        topics = [topic] if topic else self._state.offsets.topics_of(group)
        table = dump_queue_keys(self._progress(group, topics))
        body = f'{{"consumeTps":0.0,"offsetTable":{table}}}'
        return answer(request, ResponseCode.SUCCESS, None, body.encode())

    def broker_consume_stats(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return how far all groups are."""
        state = self._state
        parts = []
        total = 0
        for group in state.groups.all():
            stats = []
            for topic in state.offsets.topics_of(group.name):
                rows = list(self._progress(group.name, [topic]))
                if not rows:
                    continue
                values: list[Any] = [row[3] for row in rows]
                total += sum(v["brokerOffset"] - v["consumerOffset"] for v in values)
                stats.append(f'{{"consumeTps":0.0,"offsetTable":{dump_queue_keys(rows)}}}')
            if stats:
                parts.append(f"{{{dump(group.name).decode()}:[{','.join(stats)}]}}")
        body = (
            f'{{"brokerAddr":{dump(state.address).decode()},'
            f'"consumeStatsList":[{",".join(parts)}],"totalDiff":{total}}}'
        )
        return answer(request, ResponseCode.SUCCESS, None, body.encode())

    def groups_of_topic(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """List the groups that read a topic, connected or with offsets."""
        topic = text(request.ext_fields, "topic")
        online = [
            group.name
            for group in self._state.members.consumers.values()
            if topic in group.subscriptions
        ]
        names = sorted({*online, *self._state.offsets.groups_of(topic)})
        return answer(request, ResponseCode.SUCCESS, None, dump({"groupList": names}))

    def consume_time_span(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return, per queue, the times of its messages and of the group's progress."""
        state = self._state
        config = self._topic(text(request.ext_fields, "topic"))
        group = text(request.ext_fields, "group")
        spans = []
        for queue_id in range(config.write_queue_nums):
            queue = state.store.find_queue(config.name, queue_id)
            oldest = newest = consumed = -1
            behind = 0
            if queue is not None and queue.min_offset < queue.max_offset:
                oldest = state.store.store_time(queue, queue.min_offset)
                newest = state.store.store_time(queue, queue.max_offset - 1)
                offset = state.offsets.query(group, config.name, queue_id)
                consumed = oldest if offset <= 0 else -1
                if queue.min_offset < offset <= queue.max_offset:
                    consumed = state.store.store_time(queue, offset - 1)
                if offset < queue.max_offset:
                    first_left = max(offset, queue.min_offset)
                    behind = state.store.clock() - state.store.store_time(queue, first_left)
            span: dict[str, Any] = {
                "delayTime": behind,
                "messageQueue": {
                    "brokerName": state.config.broker_name,
                    "queueId": queue_id,
                    "topic": config.name,
                },
            }
            for name, stamp in (("min", oldest), ("max", newest), ("consume", consumed)):
                span[f"{name}TimeStamp"] = stamp
                span[f"{name}TimeStampStr"] = _readable(stamp)
            spans.append(span)
        return answer(request, ResponseCode.SUCCESS, None, dump({"consumeTimeSpanSet": spans}))


def _readable(stamp_ms: int) -> str:
    """Return a time as Java's tools print it, in local time."""
    moment = time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(stamp_ms // 1000))
    return f"{moment}:{stamp_ms % 1000:03d}"


class KeySearch:
    """A search through the log for the newest messages of a topic with a key."""

    def __init__(
        self, state: BrokerState, topic: str, key: str, limit: int, begin_ms: int, end_ms: int
    ) -> None:
        self._store = state.store
        self._topic = topic.encode()
        self._key = key.encode()
        self._limit = limit
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._position = self._first_position(topic, begin_ms)
        self._size = _SCAN_BYTES
        self._found: list[tuple[int, int]] = []

    def _first_position(self, topic: str, begin_ms: int) -> int:
        """Return where in the log the first message of the topic after a time may be."""
        store = self._store
        positions = []
        for queue_id in store.queue_ids(topic):
            offset = store.offset_by_time(topic, queue_id, begin_ms)
            positions.append(store.position_of(topic, queue_id, max(offset - 1, 0)))
        return max(min(positions, default=store.log.end), store.log.start)

    def step(self) -> bool:
        """Look at the next piece; False when there is none. Raises StoreError."""
        if self._position >= self._store.log.end:
            return False
        data = self._store.log.read(self._position, self._size)
        consumed, hits = find_key(data, self._topic, self._key, self._begin_ms, self._end_ms)
        self._found = (self._found + hits)[-self._limit :]
        if consumed:
            self._position += consumed
            self._size = _SCAN_BYTES
        elif len(data) < self._size:
            return False
        else:
            self._size *= 4  # one record is longer than the piece
        return True

    def messages(self) -> list[bytes]:
        """Return what was found, the newest first, as far as it fits into one answer."""
        bodies: list[bytes] = []
        total = 0
        for position, size in reversed(self._found):
            total += size
            if bodies and total > _MAX_RESULT_BYTES:
                break
            bodies.append(self._store.log.read(position, size))
        return bodies
