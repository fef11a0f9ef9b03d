"""Who is connected: members of consumer groups, their subscriptions, producers."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketmq_fast._core import RemotingCommand, TagFilter
from rocketmq_fast._core.stored import CodeSet
from rocketmq_fast.embedded.requests import Refused, items_of
from rocketmq_fast.embedded.sql92 import SqlFilter
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_fast.embedded.config import BrokerConfig
    from rocketmq_fast.remoting.server import Peer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group reads of a topic, by tags or by `sql`. `codes` is None when all tags match."""

    topic: str
    expression: str
    expression_type: str
    version: int
    codes: CodeSet | None
    wire: dict[str, Any]
    sql: SqlFilter | None = None


def check_kind(kind: str | None, config: BrokerConfig) -> None:
    """Refuse a kind of expression that this broker does not filter by."""
    if kind and kind != "TAG" and not (kind == "SQL92" and config.enable_property_filter):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind}",
        )


def compile_filter(
    topic: str, expression: str | None, version: int, kind: str | None
) -> Subscription:
    """Return the subscription for an expression of a kind; refuses one that does not parse."""
    if not kind or kind == "TAG":
        return compile_subscription(topic, expression, version)
    try:
        sql = SqlFilter(expression or "")
    except ConfigError as error:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
    return Subscription(topic, sql.expression, kind, version, None, {}, sql)


def compile_subscription(topic: str, expression: str | None, version: int) -> Subscription:
    """Return the subscription for a tag expression; refuses one that does not parse."""
    try:
        tags = TagFilter(expression)
    except ConfigError as error:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
        ) from error
    text = "*" if tags.matches_all else expression or "*"
    codes = None if tags.matches_all else CodeSet(tags.codes)
    wire = {
        "classFilterMode": False,
        "codeSet": sorted(tags.codes),
        "expressionType": "TAG",
        "subString": text,
        "subVersion": version,
        "tagsSet": sorted(tags.tags),
        "topic": topic,
    }
    return Subscription(topic, text, "TAG", version, codes, wire)


def read_subscription(value: dict[str, Any]) -> Subscription:
    """Read the subscription of a heartbeat, which carries the hash codes. Raises Refused."""
    topic, expression = value.get("topic"), value.get("subString")
    kind = value.get("expressionType") or "TAG"
    try:
        version = int(value.get("subVersion") or 0)
        codes = None if expression in (None, "", "*") else CodeSet(value.get("codeSet") or ())
    except (TypeError, ValueError) as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"subscription of {topic!r}: {error}") from error
    if not isinstance(topic, str) or not isinstance(kind, str):
        raise Refused(ResponseCode.SYSTEM_ERROR, "a subscription names no topic")
    sql = None
    if kind == "SQL92":
        try:
            sql = SqlFilter(str(expression or ""))
        except ConfigError as error:
            log.warning("subscription of topic %s: %s", topic, error)
        codes = None
    return Subscription(topic, str(expression or "*"), kind, version, codes, value, sql)


@dataclass(slots=True)
class Member:
    """One connection of a group."""

    client_id: str
    language: str | None
    version: int
    last_seen: float

    def to_json(self, peer: Peer) -> dict[str, Any]:
        """Return the form of connection lists."""
        return {
            "clientAddr": peer.address,
            "clientId": self.client_id,
            "language": self.language or "JAVA",
            "version": self.version,
        }


@dataclass(slots=True)
class ConsumerGroup:
    """The connected members of a consumer group. The last heartbeat decides for all of them."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    notify: bool = True
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    members: dict[Peer, Member] = field(default_factory=dict)

    def find(self, client_id: str) -> Peer | None:
        """Return the connection of a member."""
        return next((p for p, m in self.members.items() if m.client_id == client_id), None)


class Membership:
    """Consumer groups and producer groups with their connections. A connection is a member."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Peer, Member]] = {}

    def heartbeat_consumer(
        self, peer: Peer, member: Member, value: dict[str, Any], *, notify: bool
    ) -> None:
        """Enter a member and its subscriptions; tells the group when something is new."""
        name = str(value.get("groupName") or "")
        subscriptions = [read_subscription(v) for v in items_of(value, "subscriptionDataSet")]
        group = self.consumers.get(name)
        if group is None:
            group = self.consumers[name] = ConsumerGroup(name)
        group.notify = notify
        group.consume_type = str(value.get("consumeType") or group.consume_type)
        group.message_model = str(value.get("messageModel") or group.message_model)
        group.consume_from_where = str(value.get("consumeFromWhere") or group.consume_from_where)
        changed = peer not in group.members
        group.members[peer] = member
        for subscription in subscriptions:
            old = group.subscriptions.get(subscription.topic)
            if old is None or subscription.version > old.version:
                changed = changed or old is None
                group.subscriptions[subscription.topic] = subscription
        for topic in group.subscriptions.keys() - {s.topic for s in subscriptions}:
            del group.subscriptions[topic]
            changed = True
        if changed:
            self._notify(group)

    def heartbeat_producer(self, peer: Peer, member: Member, name: str) -> None:
        """Enter a producer."""
        self.producers.setdefault(name, {})[peer] = member

    def _notify(self, group: ConsumerGroup) -> None:
        if not group.notify:
            return
        for peer in list(group.members):
            peer.notify(
                RemotingCommand(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name}
                )
            )

    def _leave(self, group: ConsumerGroup, peer: Peer, *, notify: bool = True) -> bool:
        if group.members.pop(peer, None) is None:
            return False
        if not group.members:
            self.consumers.pop(group.name, None)
        elif notify:
            self._notify(group)
        return True

    def unregister(
        self, peer: Peer, producer_group: str | None, consumer_group: str | None
    ) -> None:
        """Take a client out of the groups that it names."""
        if consumer_group is not None and consumer_group in self.consumers:
            self._leave(self.consumers[consumer_group], peer)
        if producer_group is not None:
            self._leave_producers(producer_group, peer)

    def _leave_producers(self, name: str, peer: Peer) -> None:
        members = self.producers.get(name)
        if members is not None:
            members.pop(peer, None)
            if not members:
                del self.producers[name]

    def disconnect(self, peer: Peer) -> None:
        """Take a closed connection out of all groups."""
        for group in list(self.consumers.values()):
            self._leave(group, peer)
        for name in list(self.producers):
            self._leave_producers(name, peer)

    def expire(self, seconds: float) -> None:
        """Drop and close the connections that sent no heartbeat for so long."""
        limit = time.monotonic() - seconds
        tables: Iterable[dict[Peer, Member]] = [
            *(group.members for group in self.consumers.values()), *self.producers.values(),
        ]  # fmt: skip
        for members in tables:
            for peer, member in members.items():
                if member.last_seen < limit and not peer.closed:
                    log.info("client %s sent no heartbeat for %.0f s", member.client_id, seconds)
                    peer.connection.close("no heartbeat")
