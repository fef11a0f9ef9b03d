"""Pulls: checks, lookup, long polling."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketmq_fast._core.stored import select_entries
from rocketmq_fast.embedded import store as lookup
from rocketmq_fast.embedded.dispatch import call
from rocketmq_fast.embedded.groups import group_or_refuse
from rocketmq_fast.embedded.members import Subscription, check_kind, compile_filter
from rocketmq_fast.embedded.requests import Malformed, Refused, answer, int32, int64, text
from rocketmq_fast.protocol.codes import Perm, PullSysFlag, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_fast._core import RemotingCommand
    from rocketmq_fast.embedded.groups import GroupConfig
    from rocketmq_fast.embedded.state import BrokerState
    from rocketmq_fast.embedded.store import Got
    from rocketmq_fast.remoting.server import Peer

# Arrivals are gathered for so long before parked pulls are woken, as 4.9.4's dispatcher does.
WAKE_DELAY = 0.001
CHECK_INTERVAL = 5.0
# Pulls that are held by a broker at a time; more are answered at once, as they find nothing.
MAX_HELD = 100_000
_READ = int(Perm.READ)
_COMMIT = int(PullSysFlag.COMMIT_OFFSET)
_SUSPEND = int(PullSysFlag.SUSPEND)
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)

_CODES = {
    lookup.FOUND: ResponseCode.SUCCESS,
    lookup.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    lookup.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    lookup.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    lookup.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    lookup.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    lookup.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(frozen=True, slots=True)
class Parked:
    """A pull that waits for messages."""

    peer: Peer
    request: RemotingCommand
    offset: int
    subscription: Subscription
    deadline: float


class PullService:
    """Serves requests 11 and 361, and holds those that find nothing."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._parked: dict[tuple[str, int], list[Parked]] = {}
        self._held = 0
        self._arrived: dict[tuple[str, int], list[bytes]] = {}
        self._waking = False
        state.store.on_append = self._on_append

    def start(self) -> None:
        """Begin to look after parked pulls."""
        self._state.loop.call_later(CHECK_INTERVAL, self._check)

    @property
    def parked_count(self) -> int:
        """How many pulls are held."""
        return self._held

    def pull(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a pull, or hold it and return None."""
        return self._pull(peer, request, first=True)

    def _pull(self, peer: Peer, request: RemotingCommand, *, first: bool) -> RemotingCommand | None:
        fields = request.ext_fields
        state = self._state
        topic, group_name = text(fields, "topic"), text(fields, "consumerGroup")
        queue_id, offset = int32(fields, "queueId"), int64(fields, "queueOffset")
        max_count, sys_flag = int32(fields, "maxMsgNums"), int32(fields, "sysFlag")
        self._check_access(topic, group_name, queue_id)
        subscription = self._subscription(fields, topic, group_name, sys_flag)
        if max_count < 0:
            raise Malformed(f"maxMsgNums is {max_count}")
        got = state.store.get(
            topic, queue_id, offset, max_count, subscription.codes, subscription.sql
        )
        if first and sys_flag & _COMMIT:
            commit = int64(fields, "commitOffset")
            if commit >= 0:
                state.offsets.commit(group_name, topic, queue_id, commit)
        code = _CODES.get(got.status)
        if code is None:  # the queue was never written
            code = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
        may_wait = first and sys_flag & _SUSPEND and self._held < MAX_HELD
        if code == ResponseCode.PULL_NOT_FOUND and may_wait:
            self._park(peer, request, topic, queue_id, offset, subscription)
            return None
        return self._answer(request, code, got, held=not first)

    @staticmethod
    def _answer(request: RemotingCommand, code: int, got: Got, *, held: bool) -> RemotingCommand:
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(got.next_offset),
            "minOffset": str(got.min_offset),
            "maxOffset": str(got.max_offset),
        }
        return answer(request, code, ext, got.body, got.status, json_header=held)

    def _check_access(self, topic: str, group_name: str, queue_id: int) -> GroupConfig:
        state = self._state
        if not state.config.broker_permission & _READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{state.config.broker_name}] pulling message is forbidden",
            )
        group = group_or_refuse(state.groups, group_name)
        if not group.consume_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}"
            )
        config = state.topics.get(topic)
        if config is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        if not config.readable:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden"
            )
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )
        return group

    def _subscription(
        self, fields: Mapping[str, str], topic: str, group_name: str, sys_flag: int
    ) -> Subscription:
        if sys_flag & _SUBSCRIPTION:
            kind = fields.get("expressionType")
            check_kind(kind, self._state.config)
            return compile_filter(topic, fields.get("subscription"), 0, kind)
        group = self._state.members.consumers.get(group_name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: {group_name}",
            )
        config = self._state.groups.peek(group_name)
        if (
            group.message_model == "BROADCASTING"
            and config is not None
            and not config.consume_broadcast_enable
        ):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group_name}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(topic)
        if subscription is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: {group_name}, {topic}",
            )
        wanted = int64(fields, "subVersion")
        if subscription.version < wanted:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: {group_name}, {topic}",
            )
        check_kind(subscription.expression_type, self._state.config)
        if subscription.expression_type == "SQL92" and subscription.sql is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        return subscription

    # -------------------------------------------------------------------- long polling

    def _park(
        self, peer: Peer, request: RemotingCommand, topic: str, queue_id: int, offset: int,
        subscription: Subscription,
    ) -> None:  # fmt: skip
        config = self._state.config
        wait_ms = int64(request.ext_fields, "suspendTimeoutMillis")
        if not config.long_polling_enable:
            wait_ms = config.short_polling_time_ms
        deadline = time.monotonic() + max(wait_ms, 0) / 1000
        parked = Parked(peer, request, offset, subscription, deadline)
        self._parked.setdefault((topic, queue_id), []).append(parked)
        self._held += 1

    def _on_append(self, topic: str, queue_id: int, _: int, entries: bytes) -> None:
        key = (topic, queue_id)
        if key not in self._parked:
            return
        self._arrived.setdefault(key, []).append(entries)
        if not self._waking:
            self._waking = True
            self._state.loop.call_later(WAKE_DELAY, self._wake)

    def _wake(self) -> None:
        self._waking = False
        arrived, self._arrived = self._arrived, {}
        for key, entries in arrived.items():
            self._look(key, b"".join(entries))

    def _check(self) -> None:
        """Re-examine everything that is held: pulls end here when their time is over."""
        for key in list(self._parked):
            self._look(key, None)
        self._state.loop.call_later(CHECK_INTERVAL, self._check)

    def _look(self, key: tuple[str, int], entries: bytes | None) -> None:
        """Answer the pulls of a queue that have something now, or have waited long enough."""
        parked = self._parked.pop(key, [])
        newest = self._state.store.max_offset(*key)
        now = time.monotonic()
        kept = []
        for one in parked:
            if one.peer.closed:
                continue

            def look(
                peer: Peer, request: RemotingCommand, one: Parked = one
            ) -> RemotingCommand | None:
                wanted = newest > one.offset and self._matches(entries, one.subscription)
                if wanted or now >= one.deadline:
                    return self._pull(peer, request, first=False)
                kept.append(one)
                return None

            # One that cannot be served, as its messages cannot be read, is told so; the others of
            # the queue are none the worse.
            response = call(look, one.peer, one.request, json_header=True)
            if response is not None:
                one.peer.reply(one.request, response)
        self._held -= len(parked) - len(kept)
        if kept:
            self._parked[key] = kept + self._parked.get(key, [])

    def _matches(self, entries: bytes | None, subscription: Subscription) -> bool:
        if entries is None:
            return True
        if subscription.sql is not None:
            return self._state.store.first_match(entries, subscription.sql)
        if subscription.codes is None:
            return True
        return select_entries(entries, subscription.codes, 1, 1, 1, 1, 0)[1] > 0

    def forget(self, peer: Peer) -> None:
        """Drop what a closed connection had parked."""
        for key, parked in list(self._parked.items()):
            kept = [one for one in parked if one.peer is not peer]
            self._held -= len(parked) - len(kept)
            if kept:
                self._parked[key] = kept
            else:
                del self._parked[key]
