"""Subscriptions: a topic and what of it is wanted."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from rocketmq_fast._core import TagFilter
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.protocol.bodies import SubscriptionData
from rocketmq_fast.protocol.names import check_topic


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 filter expression, for brokers with enablePropertyFilter=true."""

    expression: str

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str) or not self.expression.strip():
            raise ConfigError("an SQL92 expression must not be blank")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the broker is told, and the exact filter that the client applies again.

    Brokers filter by hash, so messages with a colliding tag come through; `tag_filter` is None
    where there is nothing to filter again.
    """

    data: SubscriptionData
    tag_filter: TagFilter | None

    def renewed(self) -> Subscription:
        """The same with a new version, so that brokers notice that it was announced again."""
        version = max(_now_ms(), self.data.sub_version + 1)
        return replace(self, data=replace(self.data, sub_version=version))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def subscribe(topic: str, expression: str | Sql | None) -> Subscription:
    """A subscription by tags ("*", "TagA || TagB") or Sql. Raises ConfigError."""
    check_topic(topic)
    if isinstance(expression, Sql):
        data = SubscriptionData(
            topic, expression.expression, sub_version=_now_ms(), expression_type="SQL92"
        )
        return Subscription(data, None)
    tags = TagFilter(expression)
    data = SubscriptionData(topic, tags.expression, tags.tags, tags.codes, _now_ms())
    return Subscription(data, None if tags.matches_all else tags)


class Subscriptions:
    """All subscriptions of a consumer, by topic. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: dict[str, Subscription] = {}

    def put(self, subscription: Subscription) -> None:
        """Add a subscription, or replace the one of its topic."""
        with self._lock:
            self._table[subscription.data.topic] = subscription

    def remove(self, topic: str) -> None:
        """Forget a topic."""
        with self._lock:
            self._table.pop(topic, None)

    def renew(self) -> None:
        """Give every subscription a new version."""
        with self._lock:
            for topic, subscription in self._table.items():
                self._table[topic] = subscription.renewed()

    def table(self) -> dict[str, Subscription]:
        """A copy."""
        with self._lock:
            return dict(self._table)
