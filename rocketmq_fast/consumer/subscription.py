"""Subscriptions: a topic and what of it is wanted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rocketmq_fast._core import TagFilter
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.errors import BrokerError, BrokerSystemError, ConfigError, TopicRouteNotFound
from rocketmq_fast.protocol.bodies import SubscriptionData
from rocketmq_fast.protocol.names import RETRY_PREFIX, check_topic

logger = logging.getLogger(__name__)


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
    where there is nothing to filter again. `made_at` is monotonic seconds.
    """

    data: SubscriptionData
    tag_filter: TagFilter | None
    made_at: float = field(default_factory=time.monotonic)

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


def check_filters(
    instance: ClientInstance, group: str, subscriptions: Iterable[Subscription]
) -> None:
    """Ask a broker of each topic whether it can filter by an Sql expression; tags need no question.

    A topic that has no route yet is not asked for. Blocks. Raises SubscriptionParseFailed for an
    expression that is wrong, BrokerSystemError where the broker has such filters off.
    """
    for subscription in subscriptions:
        data = subscription.data
        if data.expression_type == "TAG":
            continue
        try:
            address = instance.any_broker_of(data.topic)
        except TopicRouteNotFound as error:
            logger.warning("%s; its filter was not checked", error)
            continue
        try:
            instance.brokers.check_subscription(address, instance.client_id, group, data)
        except BrokerSystemError as error:
            remark = (
                f"{error.remark}; filtering topic {data.topic!r} by {data.expression_type} "
                "needs enablePropertyFilter=true on the broker"
            )
            raise BrokerError.of(error.code, remark, address) from error


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

    @property
    def is_empty(self) -> bool:
        """Whether nothing is subscribed."""
        return not self._table

    def traits(self, names: Namespace) -> tuple[str, ...]:
        """For the repr of a consumer: the topics that its program subscribed."""
        topics = [name for name in self.table() if not name.startswith(RETRY_PREFIX)]
        return (f"topics={sorted(map(names.unwrap, topics))}",) if topics else ()

    def table(self) -> dict[str, Subscription]:
        """A copy."""
        with self._lock:
            return dict(self._table)
