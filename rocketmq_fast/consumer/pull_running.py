"""A started pull consumer: everything that lives from start to shutdown."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import cast

from rocketmq_fast._core import MessageBatch, MessageExt
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.instances import acquire_instance, release_instance, unique_instance_name
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.bad_messages import BadMessages
from rocketmq_fast.consumer.fetched import Fetched, Piece, PullQueue
from rocketmq_fast.consumer.hooked import PollTrace
from rocketmq_fast.consumer.inspection import running_info_body
from rocketmq_fast.consumer.offsets import HURRY_SECONDS
from rocketmq_fast.consumer.pull import ILLEGAL_AGAIN_SECONDS, Puller
from rocketmq_fast.consumer.pull_offsets import PullOffsetStore
from rocketmq_fast.consumer.pull_options import PullConsumerOptions
from rocketmq_fast.consumer.rebalance import Assignment, StartOffsets
from rocketmq_fast.consumer.stats import SAMPLE_SECONDS, ConsumerStats
from rocketmq_fast.consumer.subscription import (
    Sql,
    Subscription,
    Subscriptions,
    check_filters,
    subscribe,
)
from rocketmq_fast.errors import (
    BrokerError,
    ClientStateError,
    ConfigError,
    RocketMQError,
    TopicRouteNotFound,
)
from rocketmq_fast.model import ConsumeFromWhere, MessageModel, MessageQueue
from rocketmq_fast.protocol.bodies import ConsumerData
from rocketmq_fast.protocol.codes import ResponseCode

logger = logging.getLogger(__name__)


class RunningPull:
    """The parts that a push consumer has too, with Fetched in the place of workers."""

    def __init__(
        self, group: str, options: PullConsumerOptions, subscriptions: Subscriptions
    ) -> None:
        self.group = group
        self.options = options
        self.fetched = Fetched()
        self.pulling = True
        self.started_at = time.time()
        self._subscriptions = subscriptions
        name = options.instance_name
        if name == "DEFAULT":
            name = unique_instance_name()
        self.instance: ClientInstance = acquire_instance(options.client_id(name), options)
        self.store = PullOffsetStore(self.instance, group)
        self.counters = ConsumerStats()
        self.bad_messages = BadMessages(options.on_bad_message, lambda *_: None)
        self.puller = Puller(
            self.instance, group, options, self, self.bad_messages, self.counters, orderly=False
        )
        self.assignment = Assignment(
            self.instance,
            group,
            options,
            self.store,
            StartOffsets(self.instance, self.store, options),
            self.puller,
            self,
            None,
            PullQueue,
        )
        self._trace: PollTrace | None = None
        if options.enable_msg_trace:
            name = options.names.unwrap(group)
            self._trace = PollTrace(self.instance, name, options.customized_trace_topic)
        self._announced: dict[str, Subscription] = {}
        self._assigned_by_user: dict[str, Subscription] | None = None
        self._idle: list[PullQueue] = []  # assigned by the user, to be pulled from the first poll
        self._assigned = threading.Condition()
        self._stopped = False

    # ---------------------------------------------------------------- member of the instance

    @property
    def subscribes(self) -> bool:
        """Whether this is a member of the group, and not told its queues by the user."""
        return self._assigned_by_user is None

    def subscribed_topics(self) -> Iterable[str]:
        """Topics whose routes are needed."""
        table = self._assigned_by_user
        return list(self._subscriptions.table() if table is None else table)

    def subscription(self, topic: str) -> Subscription | None:
        """Subscription of a topic, as the brokers were told last."""
        table = self._assigned_by_user
        return (self._announced if table is None else table).get(topic)

    def consumer_data(self) -> ConsumerData | None:
        """Part of the heartbeat; None without a subscription, so that no queue is given to us."""
        subscriptions = list(self._subscriptions.table().values())
        if not subscriptions or not self.subscribes:
            return None
        return ConsumerData(
            self.group,
            "CONSUME_ACTIVELY",
            MessageModel.CLUSTERING.value,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET.value,
            tuple(item.data for item in subscriptions),
            self.options.unit_mode,
        )

    def announce(self) -> None:
        """Tell the brokers the subscriptions, then pull by them."""
        table = self._subscriptions.table()
        self.instance.heartbeat()
        self._announced = table

    def rebalance(self) -> None:
        """One round. Rebalance thread."""
        if self.subscribes and not self._stopped:
            self.assignment.rebalance(self.subscribed_topics())

    def persist_offsets(self) -> None:
        """Nothing: the commit interval is the consumer's own."""

    def _auto_commit(self) -> None:
        """Send what polls have staged. Event loop."""
        if self._stopped:
            return
        self.store.persist([queue.message_queue for queue in self.assignment.queues()])
        interval = self.options.auto_commit_interval_millis / 1000
        self.instance.loop.call_later(interval, self._auto_commit)

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets, on the broker's request."""
        done = {}
        for queue, offset in sorted(offsets.items()):
            if queue.topic != topic or offset < 0 or self.assignment.get(queue) is None:
                continue
            logger.warning("%s is reset to %d", queue, offset)
            self.seek(queue, offset)
            done[queue] = offset
        self.store.stage(done)
        self.store.persist_now(done)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Positions."""
        return {
            queue.message_queue: queue.position
            for queue in self.queues()
            if not topic or queue.message_queue.topic == topic
        }

    def running_info(self, *, stacks: bool) -> bytes:
        """Body of answer 307."""
        return running_info_body(
            options=self.options,
            name_servers=self.instance.name_servers.addresses,
            group=self.group,
            orderly=False,
            started_at=self.started_at,
            queues={queue: queue.position for queue in self.queues()},
            subscriptions=list(self._subscriptions.table().values()),
            status=self.counters.rates(),
            with_stacks=stacks,
            active=True,
        )

    def plain_records(self, body: bytes) -> bytes:
        """As they are: nothing is consumed directly."""
        return body

    def consume_directly(self, message: MessageExt) -> dict[str, object]:
        """There is no listener. Raises ClientStateError, which is the answer."""
        raise ClientStateError(f"{self.group!r} is a pull consumer; it has no listener")

    # ------------------------------------------------------------- owner of the pull loop

    @property
    def has_room(self) -> bool:
        """Whether all queues together are below the limits."""
        fetched = self.fetched
        return (
            fetched.count <= self.options.pull_threshold_for_all
            and fetched.size <= self.options.size_for_all_bytes
        )

    def offset_to_commit(self, queue: AssignedQueue) -> int:
        """Pulls carry no commit: one that waits at the broker would bring it late."""
        return -1

    def submit(self, queue: AssignedQueue, batch: MessageBatch, dispatch: bool) -> None:
        """Messages for `poll`. Event loop."""
        self.fetched.put(cast(PullQueue, queue), batch)

    def on_unknown_subscription(self) -> None:
        """Repeat the heartbeat soon. Event loop."""
        self.instance.heartbeat_soon()

    def on_disconnected(self, broker_name: str) -> None:
        """A broker that was killed forgets the latest commits, which no pull of ours repeats."""
        self.store.doubt(broker_name)

    def on_illegal_offset(self, queue: AssignedQueue, offset: int) -> None:
        """Apply on_illegal_offset. Event loop."""
        owned = cast(PullQueue, queue)
        target = owned.message_queue
        policy = self.options.on_illegal_offset
        text = (
            f"offset {owned.next_offset} of {target} is illegal, "
            f"the broker has [{owned.min_offset}, {owned.max_offset})"
        )
        if policy == "error":
            code = ResponseCode.PULL_OFFSET_MOVED
            self.fetched.fail(owned, BrokerError.of(code, text, target.broker_name))
            return
        if policy == "earliest" and owned.min_offset >= 0:
            offset = owned.min_offset
        elif policy == "latest" and owned.max_offset >= 0:
            offset = owned.max_offset
        logger.warning("%s; going on at %d", text, offset)
        now = time.monotonic()
        again = now - owned.last_illegal < ILLEGAL_AGAIN_SECONDS
        if offset >= owned.next_offset:
            self.fetched.skip_to(owned, offset)
        else:
            fresh = self._replace(owned, offset)  # the broker lost what was fetched from there on
            if fresh is None:
                return
            owned = fresh
        owned.last_illegal = now
        delay = ILLEGAL_AGAIN_SECONDS if again else 0.0
        self.instance.loop.call_later(delay, self.puller.start, owned)

    # -------------------------------------------------------------------- changes of queues

    def on_assigned(self, queues: list[AssignedQueue]) -> None:
        """Gained queues begin to pull, the user's own ones with the next poll: a seek may come."""
        owned = [cast(PullQueue, queue) for queue in queues]
        for queue in owned:
            queue.fetched = self.fetched
        if self.subscribes:
            for queue in owned:
                self._start(queue)
        else:
            self._idle += owned
        with self._assigned:
            self._assigned.notify_all()

    def settle_progress(self) -> None:
        """Nothing is gathered: positions are noted as messages are handed out."""

    def on_changed(self) -> None:
        """Forget what was fetched of lost queues; brokers learn the subscriptions anew."""
        self.fetched.forget_dropped()
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

    def assign(self, queues: Iterable[MessageQueue], expression: str | Sql | None) -> None:
        """Own exactly these queues. Raises RocketMQError when one's start cannot be found out."""
        wanted = set(queues)
        before = self._assigned_by_user
        table = {queue.topic: subscribe(queue.topic, expression) for queue in wanted}
        for topic in sorted(table):
            self.instance.update_route(topic)
        check_filters(self.instance, self.group, table.values())
        self._assigned_by_user = table
        try:
            self.assignment.assign(wanted)
        except RocketMQError:
            self._assigned_by_user = before
            raise
        self.fetched.forget_dropped()
        self._idle = [queue for queue in self._idle if not queue.dropped]

    def unassign(self) -> None:
        """Own nothing, and let the user choose again between subscribe and assign."""
        if self._assigned_by_user is not None:
            self.assignment.assign(())
            self._assigned_by_user = None
        else:
            self.assignment.rebalance(())
        self.fetched.forget_dropped()

    def _start(self, queue: PullQueue) -> None:
        queue.started = True
        self.puller.start(queue)

    def start_idle(self) -> None:
        """Begin to pull what the user assigned."""
        idle, self._idle = self._idle, []
        for queue in idle:
            if not queue.dropped:
                self._start(queue)

    def _replace(self, queue: PullQueue, offset: int) -> PullQueue | None:
        """A new object at another offset; answers to the old one are void."""
        fresh = cast(PullQueue | None, self.assignment.replace(queue, offset))
        if fresh is None:
            return None
        fresh.fetched = self.fetched
        fresh.started = queue.started
        self.fetched.forget_dropped()
        self.fetched.moved(fresh)
        return fresh

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset. Raises ClientStateError for a queue that is not assigned."""
        fresh = self._replace(self.owned(queue), offset)
        if fresh is None:
            raise ClientStateError(f"{queue} was given up just now")
        if fresh.started:
            self.puller.start(fresh)
        else:
            self._idle.append(fresh)

    def queues(self) -> list[PullQueue]:
        """The owned queues."""
        return [cast(PullQueue, queue) for queue in self.assignment.queues()]

    def owned(self, queue: MessageQueue) -> PullQueue:
        """An owned queue. Raises ClientStateError when it is not assigned."""
        found = self.assignment.get(queue)
        if found is None:
            raise ClientStateError(f"{queue} is not assigned to this consumer")
        return cast(PullQueue, found)

    def wait_assigned(self, timeout: float) -> bool:
        """Wait for a queue."""
        with self._assigned:
            return self._assigned.wait_for(lambda: bool(self.assignment.queues()), timeout)

    # ---------------------------------------------------------------------------------- polls

    def begin_poll(self) -> None:
        """Stage what earlier polls gave.

        Raises ClientStateError when there can never be anything to give, or why a queue does not go
        on.
        """
        if self._assigned_by_user is None and self._subscriptions.is_empty:
            raise ClientStateError(
                f"pull consumer of group {self.group!r} has nothing to poll: neither subscribe() "
                "nor assign() was called, or unsubscribe() since"
            )
        if self._idle:
            self.start_idle()
        if self.options.auto_commit:
            self.stage()
        failure = self.fetched.failure
        if failure is not None:
            raise failure

    def stage(self) -> None:
        """Let everything that was handed out be committed."""
        offsets = self.fetched.staged()
        if offsets:
            self.store.stage(offsets)

    def take(self, limit: int, *, whole: bool) -> list[Piece]:
        """Hand out messages, and pull again what waited for room."""
        had_room = self.has_room
        pieces = self.fetched.take(limit, whole=whole)
        for queue, batch, start, stop in pieces:
            queue.process_queue.remove_batch(batch, start, stop)
            queue.last_consume = time.monotonic()
            if self._trace is not None:
                self._trace.polled(batch[start:stop], queue.message_queue)
            if queue.waiting_for_room:
                self.puller.on_room(queue)
        if not had_room and self.has_room:
            for queue in self.queues():
                if queue.waiting_for_room:
                    self.puller.on_room(queue)
        return pieces

    def to_commit(self) -> dict[MessageQueue, int]:
        """Everything that was handed out and is not known to be stored."""
        self.stage()
        return self.store.unconfirmed([queue.message_queue for queue in self.queues()])

    # ----------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Register, find the routes, announce the member if it subscribes."""
        try:
            self.instance.register_consumer(self)
        except RocketMQError:
            release_instance(self.instance)
            raise
        try:
            topics = self.subscribed_topics()
            if not topics:
                self.instance.name_servers.cluster(self.options.api_timeout)  # is one there?
            for topic in topics:
                try:
                    self.instance.update_route(topic)
                except TopicRouteNotFound as error:
                    logger.warning("%s; the consumer looks for it until it exists", error)
            check_filters(self.instance, self.group, self._subscriptions.table().values())
        except RocketMQError:
            self.instance.unregister_consumer(self.group)
            release_instance(self.instance)
            raise
        self.instance.loop.call_later(SAMPLE_SECONDS, self._sample)
        if self.options.auto_commit:
            interval = self.options.auto_commit_interval_millis / 1000
            self.instance.loop.call_later(interval, self._auto_commit)
        if self._trace is not None:
            self._trace.start()
        if self.subscribed_topics():
            self.announce()
            self.instance.rebalance_soon()

    def _sample(self) -> None:
        self.counters.sample()
        if not self._stopped:
            self.instance.loop.call_later(SAMPLE_SECONDS, self._sample)

    def stop(self, *, commit_last: bool, hurry: bool = False) -> None:
        """Store progress, leave the group, end.

        `commit_last`: what the last poll gave counts as consumed. In a `hurry`, the answers to all
        commits together are waited for a moment, others not.
        """
        self.pulling = False
        self._stopped = True
        names = [queue.message_queue for queue in self.assignment.close()]
        if self.options.auto_commit:
            if commit_last:
                self.stage()
            if hurry:
                self.store.persist(names)
                self.store.wait_landed(HURRY_SECONDS)
            else:
                try:
                    self.store.commit_now(self.store.unconfirmed(names))
                except RocketMQError as error:
                    logger.warning("last commit of group %s: %s", self.group, error)
        self.instance.unregister_consumer(self.group, wait=not hurry)
        self.assignment.clear()
        self.fetched.close()
        if self._trace is not None:
            self._trace.stop()
        release_instance(self.instance)


def check_offset(queue: MessageQueue, offset: object) -> int:
    """Raises ConfigError for what is no offset."""
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ConfigError(f"offset {offset!r} of {queue} is not an integer of 0 or more")
    return offset
