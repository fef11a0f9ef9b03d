"""Where a producer's topics can be written: queues and addresses out of the shared route table."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.errors import RocketMQError, TopicRouteNotFound
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import TopicRouteData

logger = logging.getLogger(__name__)


class PublishRoutes:
    """Writable queues by topic. Any thread; `queues`, `lookup` and `refresh` may block."""

    def __init__(
        self, instance: ClientInstance, default_topic_queue_nums: int, create_topic_key: str
    ) -> None:
        self._instance = instance
        self._default_queues = default_topic_queue_nums
        self._create_topic_key = create_topic_key
        self._table: dict[str, tuple[TopicRouteData, list[MessageQueue]]] = {}
        self._refreshing = threading.Lock()

    def topics(self) -> list[str]:
        """Topics that were looked up."""
        return list(self._table)

    def known(self, topic: str) -> Sequence[MessageQueue] | None:
        """Writable queues without asking anybody; None when the topic must be looked up."""
        entry = self._table.get(topic)
        if entry is None:
            return None
        route = self._instance.route(topic)
        if route is not None and entry[0] is not route:
            queues = route.publish_queues(topic)
            if not queues:
                return None
            self._table[topic] = entry = (route, queues)
        return entry[1]

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Writable queues, never none. Raises TopicRouteNotFound, NoNameServer, BodyError."""
        queues = self.known(topic)
        return self.lookup(topic) if queues is None else queues

    def lookup(self, topic: str) -> Sequence[MessageQueue]:
        """As `queues`, asking a name server in any case."""
        route = self._instance.update_route(
            topic, default_queues=self._default_queues, create_topic_key=self._create_topic_key
        )
        queues = route.publish_queues(topic)
        if not queues:
            raise TopicRouteNotFound(topic, f"the route of topic {topic!r} has no writable queue")
        self._table[topic] = (route, queues)
        return queues

    def address(self, queue: MessageQueue) -> str:
        """Address of the queue's master. Raises BrokerNotFound."""
        return self._instance.send_address(queue.broker_name)

    def refresh(self, topic: str) -> Sequence[MessageQueue] | None:
        """As `lookup`, but trouble is only logged: the old queues may still do."""
        try:
            return self.lookup(topic)
        except RocketMQError as error:
            logger.warning("route of topic %s was not refreshed: %s", topic, error)
            return None

    def refresh_soon(self, topic: str) -> None:
        """Refresh on a thread of its own, unless one does already. For the event loop's thread."""
        if self._refreshing.acquire(blocking=False):
            threading.Thread(
                target=self._refresh, args=(topic,), name=f"rocketmq-route-{topic}", daemon=True
            ).start()

    def _refresh(self, topic: str) -> None:
        try:
            self.refresh(topic)
        finally:
            self._refreshing.release()
