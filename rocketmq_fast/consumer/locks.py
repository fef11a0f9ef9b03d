"""Broker locks of orderly consumption: a queue is consumed by the client that holds its lock."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.errors import RocketMQError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import LockBatch

logger = logging.getLogger(__name__)

RENEW_SECONDS = 20.0


class QueueLocks:
    """Locks, renewals, unlocks, always at the master. All methods block; not on the event loop."""

    def __init__(
        self, instance: ClientInstance, group: str, on_lost: Callable[[AssignedQueue], None]
    ) -> None:
        self._instance = instance
        self._group = group
        self._on_lost = on_lost

    def _request(self, queues: Iterable[MessageQueue]) -> LockBatch:
        return LockBatch(self._group, self._instance.client_id, frozenset(queues))

    def lock(self, queue: MessageQueue) -> bool:
        """Take a queue's lock. False when another client holds it or the broker does not answer."""
        try:
            address = self._instance.master_of(queue)
            return queue in self._instance.brokers.lock_queues(address, self._request([queue]))
        except RocketMQError as error:
            logger.warning("lock of %s: %s", queue, error)
            return False

    def renew(self, queues: Iterable[AssignedQueue]) -> None:
        """Confirm the locks of owned queues, a request per broker; reports those that are lost.

        A broker that does not answer changes nothing: the lock runs out by itself.
        """
        by_broker: dict[str, list[AssignedQueue]] = defaultdict(list)
        for assigned in queues:
            by_broker[assigned.message_queue.broker_name].append(assigned)
        for name, group in by_broker.items():
            now = time.monotonic()  # before the request: the broker's clock starts no earlier
            try:
                address, _ = self._instance.broker_address(name, only_this=True)
                held = self._instance.brokers.lock_queues(
                    address, self._request(assigned.message_queue for assigned in group)
                )
            except RocketMQError as error:
                logger.warning("renewing locks at broker %s: %s", name, error)
                continue
            for assigned in group:
                if assigned.message_queue in held:
                    assigned.confirm_lock(now)
                else:
                    self._on_lost(assigned)

    def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back, a request per broker. Failures are logged: the locks expire."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        for name, group in by_broker.items():
            try:
                address, _ = self._instance.broker_address(name, only_this=True)
                self._instance.brokers.unlock_queues(address, self._request(group))
            except RocketMQError as error:
                logger.warning("unlocking at broker %s: %s", name, error)
