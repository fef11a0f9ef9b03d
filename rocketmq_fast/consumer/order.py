"""What keeps order: a queue's lock at its broker, and the end of the listener call that runs."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.locks import QueueLocks
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.orderly import ConsumeOrderlyService, DeadLetter, OrderlyListener
from rocketmq_fast.consumer.stats import ConsumerStats
from rocketmq_fast.model import MessageQueue

# How soon a queue is tried again whose lock the previous owner has not given back yet.
LOCK_AGAIN_SECONDS = 1.0


class Order:
    """The orderly side of a running consumer: its service and its locks."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: PushConsumerOptions,
        listener: OrderlyListener,
        bury: DeadLetter,
        counters: ConsumerStats,
        on_lost: Callable[[AssignedQueue], None],
    ) -> None:
        self._instance = instance
        self._on_lost = on_lost
        self.locks = QueueLocks(instance, group, self._lose)
        self.service = ConsumeOrderlyService(
            group, options, listener, instance.loop, bury, counters
        )
        self.release = self.service.release
        self.cancel_release = self.service.cancel_release

    def may_take(self, queue: MessageQueue) -> bool:
        """Lock a queue, unless a listener call of an earlier assignment still runs for it."""
        if not self.service.is_busy(queue) and self.locks.lock(queue):
            return True
        self._instance.rebalance_later(LOCK_AGAIN_SECONDS)
        return False

    def unlock(self, queue: MessageQueue) -> None:
        """Give the lock back."""
        self.locks.unlock([queue])

    def _lose(self, queue: AssignedQueue) -> None:
        self._on_lost(queue)
        self._instance.rebalance_soon()
