"""A started push consumer: everything that lives from start to shutdown."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

from rocketmq_fast._core import MessageBatch, MessageExt
from rocketmq_fast._core.consume import ConsumeContext, OrderlyContext
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.instances import acquire_instance, release_instance, unique_instance_name
from rocketmq_fast.client.records import plain_records
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.async_listener import (
    AsyncConsumeService,
    AsyncListener,
    is_async_listener,
)
from rocketmq_fast.consumer.bad_messages import BadMessages
from rocketmq_fast.consumer.concurrent import ConcurrentListener, ConsumeConcurrentlyService
from rocketmq_fast.consumer.hooked import ConsumerHooks
from rocketmq_fast.consumer.inspection import direct_result, running_info_body
from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore
from rocketmq_fast.consumer.locks import RENEW_SECONDS
from rocketmq_fast.consumer.namespaces import plain_listener
from rocketmq_fast.consumer.offsets import HURRY_SECONDS, OffsetStore, RemoteOffsetStore
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.order import LOCK_AGAIN_SECONDS, Order
from rocketmq_fast.consumer.orderly import ConsumeOrderlyService, OrderlyListener
from rocketmq_fast.consumer.pull import ILLEGAL_AGAIN_SECONDS, Puller
from rocketmq_fast.consumer.rebalance import Assignment, StartOffsets
from rocketmq_fast.consumer.returns import Returns
from rocketmq_fast.consumer.stats import SAMPLE_SECONDS, ConsumerStats
from rocketmq_fast.consumer.subscription import Subscription, Subscriptions, check_filters
from rocketmq_fast.errors import (
    RocketMQError,
    TopicRouteNotFound,
)
from rocketmq_fast.model import MessageModel, MessageQueue
from rocketmq_fast.protocol.bodies import ConsumerData
from rocketmq_fast.protocol.names import (
    retry_topic,
)

logger = logging.getLogger(__name__)

Listener = ConcurrentListener | OrderlyListener | AsyncListener

_EXPIRY_SCAN_MAX_SECONDS = 60.0
# A new group's retry topic is looked for so often, first after this time and then after twice that.
_RETRY_TOPIC_SEARCHES = 6
_RETRY_TOPIC_SECONDS = 0.2


class RunningConsumer:
    """A started consumer: everything that lives from start to shutdown."""

    def __init__(
        self,
        group: str,
        options: PushConsumerOptions,
        subscriptions: Subscriptions,
        listener: Listener,
        *,
        orderly: bool,
        asyncio_loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.group = group
        self.options = options
        self._subscriptions = subscriptions
        self._names = options.names
        self._listener = cast(Listener, plain_listener(listener, self._names))
        self.pulling = True
        self.has_room = True  # queues and topics have limits, a push consumer has none
        self.started_at = time.time()
        name = self.options.instance_name
        self.broadcasting = self.options.message_model is MessageModel.BROADCASTING
        if name == "DEFAULT" and not self.broadcasting:
            name = unique_instance_name()  # broadcasting: the offset file's path holds the name
        self.instance: ClientInstance = acquire_instance(self.options.client_id(name), self.options)
        self._hooks = ConsumerHooks(self.instance, group, options)
        hooked = self._hooks.around(listener)
        listener = cast(Listener, plain_listener(hooked, self._names))
        try:
            store = self._make_store()
        except RocketMQError:
            release_instance(self.instance)
            raise
        self.store = store
        self.returns = Returns(self.instance, group, options)
        self.bad_messages = BadMessages(options.on_bad_message, self.returns.dead_letter_soon)
        self.counters = ConsumerStats()
        self.puller = Puller(
            self.instance,
            group,
            self.options,
            self,
            self.bad_messages,
            self.counters,
            orderly=orderly,
        )
        self.order = self._make_order(cast(OrderlyListener, listener)) if orderly else None
        self.assignment = Assignment(
            self.instance,
            group,
            self.options,
            store,
            StartOffsets(self.instance, store, self.options),
            self.puller,
            self,
            self.order,
        )
        self.service: ConsumeConcurrentlyService | ConsumeOrderlyService = (
            self._make_service(listener, asyncio_loop) if self.order is None else self.order.service
        )
        self._assigned = threading.Condition()
        self._announcing = threading.Lock()
        self._announced: dict[str, Subscription] = {}
        self._ended = threading.Event()
        self._house_wanted = threading.Event()
        self._house_keeper = threading.Thread(
            target=self._keep_house, name=f"rocketmq-house-{group}", daemon=True
        )
        self._stopped = False
        self._retry_searches = 0

    def _make_order(self, listener: OrderlyListener) -> Order:
        return Order(
            self.instance,
            self.group,
            self.options,
            listener,
            self.returns.bury,
            self.counters,
            lambda queue: self.assignment.lose(queue),
        )

    def _make_service(
        self, listener: Listener, asyncio_loop: asyncio.AbstractEventLoop | None
    ) -> ConsumeConcurrentlyService:
        """Worker threads, or coroutines for an `async def` listener."""
        options, loop, send_back = self.options, self.instance.loop, self.returns.send_back
        if is_async_listener(listener):
            return AsyncConsumeService(
                self.group, options, listener, loop, send_back, self.counters, asyncio_loop
            )
        called = cast(ConcurrentListener, listener)
        return ConsumeConcurrentlyService(
            self.group, options, called, loop, send_back, self.counters
        )

    def _make_store(self) -> OffsetStore:
        """The user's offset store, or the one of the message model. Raises OffsetFileError."""
        if self.options.offset_store is not None:
            store: OffsetStore = self.options.offset_store
            return store
        if not self.broadcasting:
            return RemoteOffsetStore(self.instance, self.group)
        local = LocalFileOffsetStore(
            self.instance.client_id, self.group, self.options.local_offset_store_dir
        )
        local.load()
        return local

    # ---------------------------------------------------------------- member of the instance

    def subscribed_topics(self) -> Iterable[str]:
        """Topics, the retry topic included."""
        return list(self._subscriptions.table())

    def subscription(self, topic: str) -> Subscription | None:
        """Subscription of a topic, as the brokers were told last."""
        return self._announced.get(topic)

    def announce(self) -> None:
        """Tell the brokers the subscriptions, then pull by them.

        In this order: a broker refuses a pull that is newer than what it was told (code 25). One
        thread at a time: the last to finish must be the one with the latest table.
        """
        with self._announcing:
            table = self._subscriptions.table()
            self.instance.heartbeat()
            self._announced = table

    def consumer_data(self) -> ConsumerData:
        """Part of the heartbeat."""
        subscriptions = list(self._subscriptions.table().values())
        return ConsumerData(
            self.group,
            "CONSUME_PASSIVELY",
            self.options.message_model.value,
            self.options.consume_from_where.value,
            tuple(item.data for item in subscriptions),
            self.options.unit_mode,
        )

    def rebalance(self) -> None:
        """One round. Rebalance thread."""
        if self.pulling and not self._stopped:
            self.assignment.rebalance(self.subscribed_topics())
            self._find_retry_topic()

    def _find_retry_topic(self) -> None:
        """Look for the route that the first heartbeat of a new group brings into being.

        Brokers register it within moments; the next refresh of the routes may be half a minute
        away, and with it everything that the listener refused.
        """
        topic = retry_topic(self.group)
        if self.instance.route(topic) is not None:
            return
        try:
            self.instance.update_route(topic)
        except RocketMQError as error:
            logger.debug("route of topic %s: %s", topic, error)
            if self._retry_searches < _RETRY_TOPIC_SEARCHES:
                delay = _RETRY_TOPIC_SECONDS * 2**self._retry_searches
                self._retry_searches += 1
                self.instance.loop.call_later(delay, self.instance.rebalance_soon)
        else:
            self.instance.rebalance_soon()

    def persist_offsets(self) -> None:
        """Begin to store progress. Event loop."""
        self.settle_progress()
        self.store.persist(self.assignment.storable())

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets.

        Calls and pulls that are under way are void: each queue gets a new object, so nothing of
        the old one can undo the reset.
        """
        for queue, offset in sorted(offsets.items()):
            assigned = self.assignment.get(queue)
            if assigned is None or queue.topic != topic:
                continue
            if offset < 0:
                logger.error("reset of %s to %d is refused", queue, offset)
                continue
            fresh = self.assignment.replace(assigned, offset)
            if fresh is None:
                continue
            logger.warning("%s is reset from %d to %d", queue, assigned.next_offset, offset)
            self.store.persist_now([queue])
            self.puller.start(fresh)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Progress in memory."""
        self.settle_progress()
        queues = [queue.message_queue for queue in self.assignment.queues()]
        return {
            queue: offset
            for queue in queues
            if (not topic or queue.topic == topic)
            and (offset := self.store.in_memory(queue)) is not None
        }

    def running_info(self, *, stacks: bool) -> bytes:
        """Body of answer 307."""
        self.settle_progress()
        queues = self.assignment.queues()
        return running_info_body(
            options=self.options,
            name_servers=self.instance.name_servers.addresses,
            group=self.group,
            orderly=self.order is not None,
            started_at=self.started_at,
            queues={queue: self.store.in_memory(queue.message_queue) for queue in queues},
            subscriptions=list(self._subscriptions.table().values()),
            status=self.counters.rates(),
            with_stacks=stacks,
            threads=self.options.consume_thread_min,
        )

    def plain_records(self, body: bytes) -> bytes:
        """Stored messages without the namespace."""
        return plain_records(body, self._names, check_crc=False) if self._names else body

    def consume_directly(self, message: MessageExt) -> dict[str, object]:
        """Call the listener with one message, outside of queues, offsets, locks and hooks."""
        queue = MessageQueue(message.topic, message.broker_name or "", message.queue_id)
        context = OrderlyContext(queue) if self.order is not None else ConsumeContext(queue)
        status, error = None, None
        begun = time.monotonic()
        try:
            if isinstance(self.service, AsyncConsumeService):
                listener = cast(AsyncListener, self._listener)
                status = self.service.call_once(listener, message, cast(ConsumeContext, context))
            else:
                status = self._listener([message], cast(Any, context))
        except BaseException as raised:  # noqa: BLE001  it is the answer
            error = raised
        return direct_result(
            orderly=self.order is not None,
            auto_commit=context.auto_commit if isinstance(context, OrderlyContext) else True,
            status=status,
            error=error,
            seconds=time.monotonic() - begun,
        )

    # -------------------------------------------------------------------- changes of queues

    def on_assigned(self, queues: list[AssignedQueue]) -> None:
        """Gained queues begin to pull. Rebalance thread."""
        for queue in queues:
            self.puller.start(queue)
        with self._assigned:
            self._assigned.notify_all()

    def settle_progress(self) -> None:
        """Take over what workers have gathered. Any thread."""
        self.service.flush()

    def on_changed(self) -> None:
        """Brokers learn the subscriptions anew, as Java's client has them do."""
        self._subscriptions.renew()
        self.announce()

    def on_subscribed(self, topic: str) -> None:
        """A subscription was added or replaced while running."""
        try:
            self.instance.update_route(topic)
        except RocketMQError as error:
            logger.warning("route of topic %s: %s", topic, error)
        self.announce()
        self.instance.rebalance_soon()

    def on_unknown_subscription(self) -> None:
        """Repeat the heartbeat soon. Event loop."""
        self.instance.heartbeat_soon()

    def on_disconnected(self, broker_name: str) -> None:
        """A broker that is gone may have forgotten commits and locks. Event loop."""
        if isinstance(self.store, RemoteOffsetStore):
            self.store.doubt(broker_name)
        if self.order is not None:
            self.assignment.distrust_locks(broker_name)
            self._house_wanted.set()

    def on_illegal_offset(self, queue: AssignedQueue, offset: int) -> None:
        """Go on at the offset that the broker named, at once. Event loop.

        Forward: the broker deleted what lies between. What was pulled before stays at hand, and the
        commit goes on from there. Backward: the broker lost its end, or was told to reset the
        group; then what is under way is void, and the commit goes back too.
        """
        target = queue.message_queue
        logger.warning(
            "offset %d of %s is illegal; going on at %d", queue.next_offset, target, offset
        )
        again = time.monotonic() - queue.last_illegal < ILLEGAL_AGAIN_SECONDS
        if offset > queue.next_offset:
            queue.next_offset = offset
            if queue.process_queue.count == 0:
                queue.advance(offset)
        else:
            fresh = self.assignment.replace(queue, offset)
            if fresh is None:
                return
            queue = fresh
        queue.last_illegal = time.monotonic()
        self.store.persist([target])
        if again:
            self.instance.loop.call_later(ILLEGAL_AGAIN_SECONDS, self.puller.start, queue)
        else:
            self.puller.start(queue)

    def offset_to_commit(self, queue: AssignedQueue) -> int:
        """Progress that a pull carries along, -1 for none."""
        if self.broadcasting:
            return -1
        store, target = self.store, queue.message_queue
        if isinstance(store, RemoteOffsetStore):
            offset = store.carry(target)
        else:
            offset = store.in_memory(target)
        return -1 if offset is None else offset

    def submit(self, queue: AssignedQueue, batch: MessageBatch, dispatch: bool) -> None:
        """Messages for the workers. Event loop."""
        self.service.submit(queue, batch, dispatch)

    def _sample(self) -> None:
        self.counters.sample()
        if not self._stopped:
            self.instance.loop.call_later(SAMPLE_SECONDS, self._sample)

    def _keep_house(self) -> None:
        """What a consumer does now and then and blocks: renew locks, or give back expired messages.

        On a thread of its own: it asks brokers.
        """
        service = self.service
        if isinstance(service, ConsumeConcurrentlyService):
            period = min(self.options.consume_timeout_seconds, _EXPIRY_SCAN_MAX_SECONDS)
        else:
            period = RENEW_SECONDS
        wait = period
        while True:
            self._house_wanted.wait(wait)
            self._house_wanted.clear()
            if self._ended.is_set():
                return
            wait = period
            try:
                if self.broadcasting:
                    continue  # nobody reads what would be given back
                if isinstance(service, ConsumeConcurrentlyService):
                    service.give_back_expired(self.assignment.queues())
                elif self.order is not None:
                    queues = self.assignment.queues()
                    self.order.locks.renew(queues)
                    if any(not queue.locked and not queue.dropped for queue in queues):
                        wait = min(period, LOCK_AGAIN_SECONDS)
            except Exception:
                logger.exception("periodic work of group %s failed", self.group)

    # ----------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Register, find the routes, announce the member, wake the rebalance."""
        try:
            self.instance.register_consumer(self)
        except RocketMQError:
            self._release()
            raise
        try:
            for topic in self.subscribed_topics():
                try:
                    self.instance.update_route(topic)
                except TopicRouteNotFound as error:
                    if topic != retry_topic(self.group):
                        logger.warning("%s; the consumer looks for it until it exists", error)
            check_filters(self.instance, self.group, self._subscriptions.table().values())
        except RocketMQError:
            self.instance.unregister_consumer(self.group)
            self._release()
            raise
        self._house_keeper.start()
        self._hooks.start()
        self.instance.loop.call_later(SAMPLE_SECONDS, self._sample)
        self.announce()
        self.instance.rebalance_soon()

    def stop(self, timeout: float | None = None, *, hurry: bool = False) -> None:
        """Stop pulling, finish the running calls, store progress, leave the group.

        In a `hurry`, the answers to all commits together are waited for a moment, others not.
        """
        self.pulling = False
        self._stopped = True
        self._ended.set()
        self._house_wanted.set()
        queues = self.assignment.close()
        if timeout is None:
            timeout = self.options.await_termination_millis_when_shutdown / 1000
        begun = time.monotonic()
        if not self.service.stop(timeout):
            logger.warning(
                "listeners of group %s still run after %.1f s; what they hold is delivered again",
                self.group,
                time.monotonic() - begun,
            )
        self.settle_progress()  # of a worker that is still in a call, this very one perhaps
        storable = self.assignment.storable()
        if hurry:
            self.store.persist(storable)
            if isinstance(self.store, RemoteOffsetStore):
                self.store.wait_landed(HURRY_SECONDS)
        else:
            self.store.persist_now(storable)
        self.assignment.clear()  # from here on nothing more is noted
        if self.order is not None:
            # Before the others hear that this member left, and ask for its locks.
            self.order.locks.unlock(queue.message_queue for queue in queues)
        self.instance.unregister_consumer(self.group, wait=not hurry)
        if self._house_keeper is not threading.current_thread():
            self._house_keeper.join(5.0)
        self._release()

    def stop_waiting(self) -> None:
        """Have `stop` wait no longer for listener calls. Any thread, but no signal handler."""
        self.service.stop_waiting()

    def _release(self) -> None:
        """Give up what the constructor took."""
        if isinstance(self.store, LocalFileOffsetStore):
            self.store.close()
        self._hooks.stop()
        release_instance(self.instance)

    # --------------------------------------------------------------------------------- views

    def wait_assigned(self, timeout: float) -> bool:
        """Wait for a queue of a topic that the user subscribed."""
        own = retry_topic(self.group)

        def has_queue() -> bool:
            return any(q.message_queue.topic != own for q in self.assignment.queues())

        with self._assigned:
            return self._assigned.wait_for(has_queue, timeout)

    def resize(self, options: PushConsumerOptions) -> None:
        """Take over the numbers of threads."""
        self.options = options
        self.service.resize(options.consume_thread_min, options.consume_thread_max)

    def set_paused(self, queues: Iterable[MessageQueue], paused: bool) -> None:
        """Pause or resume queues, or everything when none is named."""
        wanted = set(queues)
        if not wanted:
            self.pulling = not paused
        for assigned in self.assignment.queues():
            if not wanted or assigned.message_queue in wanted:
                assigned.paused = paused
        if not paused:
            self.instance.rebalance_soon()

    def lag(self) -> dict[MessageQueue, int]:
        """End of each queue minus the offset noted in memory, or the next one to be pulled."""
        self.settle_progress()
        lags = {}
        for assigned in self.assignment.queues():
            queue = assigned.message_queue
            end = self.instance.brokers.max_offset(self.instance.master_of(queue), queue)
            offset = self.store.in_memory(queue)
            lags[queue] = max(0, end - (assigned.next_offset if offset is None else offset))
        return lags

    def stats(self) -> dict[str, Any]:
        """See PushConsumer.stats."""
        queues = self.assignment.queues()
        now = time.monotonic()
        topics = self.counters.totals()
        return {
            "group": self._names.unwrap(self.group),
            "client_id": self.instance.client_id,
            "consumed": sum(counters.succeeded for counters in topics.values()),
            "failed": sum(counters.failed for counters in topics.values()),
            "undecodable": self.bad_messages.count,
            "pulls": sum(counters.pulls for counters in topics.values()),
            "pulled": sum(counters.pulled for counters in topics.values()),
            "pull_errors": self.puller.errors,
            "flow_controlled": self.puller.flow_controlled,
            "topics": {
                self._names.unwrap(topic): rates for topic, rates in self.counters.rates().items()
            },
            "totals": {
                self._names.unwrap(topic): counters.figures() for topic, counters in topics.items()
            },
            "cached_messages": sum(queue.process_queue.count for queue in queues),
            "cached_bytes": sum(queue.process_queue.size for queue in queues),
            "backlog": self.service.backlog,
            "threads": self.service.threads,
            "listener_seconds": self.service.call_seconds,
            "queues": {
                str(self._names.unwrap_queue(queue.message_queue)): {
                    "next_offset": queue.next_offset,
                    "max_offset": queue.max_offset,
                    "cached": queue.process_queue.count,
                    "last_pull_age_seconds": round(now - queue.last_pull, 3),
                }
                for queue in queues
            },
        }
