"""Which queues this consumer owns: the table of assigned queues and the rounds that change it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.consumer.assigned import AssignedQueue, FlowListener
from rocketmq_fast.consumer.offsets import OffsetStore
from rocketmq_fast.consumer.strategies import utf16_order
from rocketmq_fast.errors import BrokerError, RocketMQError, TopicRouteNotFound
from rocketmq_fast.model import ConsumeFromWhere, MessageModel, MessageQueue
from rocketmq_fast.protocol.names import RETRY_PREFIX

logger = logging.getLogger(__name__)

# A queue that did not pull for so long is given up and taken again.
PULL_IDLE_SECONDS = 120.0
# How soon a queue is tried again whose start offset could not be read.
_AGAIN_SECONDS = 1.0
# How late, at most, a round is repeated in which a broker could not be asked.
_AGAIN_MOST = 20.0
_MIB = 1 << 20
# What 4.x and 5.x brokers remark with code 1.
_UNKNOWN_GROUP = "no consumer for this group"
# So many rounds in a row a broker may not know the group without a warning.
_EARLY_ROUNDS = 3


def _is_unknown_group(error: RocketMQError) -> bool:
    """Whether a broker says that it has no member of the group."""
    return isinstance(error, BrokerError) and _UNKNOWN_GROUP in (error.remark or "")


class AssignmentListener(Protocol):
    """Told about changes. Rebalance thread."""

    def on_assigned(self, queues: list[AssignedQueue]) -> None:
        """Queues that were gained; they do not pull yet."""

    def settle_progress(self) -> None:
        """Note all acknowledgements in the offset store, gathered ones too. Any thread."""

    def on_changed(self) -> None:
        """The set of owned queues is another one now."""


class OrderKeeper(Protocol):
    """Locks of orderly consumption, and the end of running listener calls. None for concurrent."""

    def may_take(self, queue: MessageQueue) -> bool:
        """Lock a queue at its broker; False when it cannot be ours now. Blocks."""

    def release(self, queue: AssignedQueue, then: Callable[[AssignedQueue], None]) -> None:
        """Call `then` once no listener call runs for the queue."""

    def cancel_release(self, queue: AssignedQueue) -> bool:
        """Keep a queue after all. False when it is too late."""

    def unlock(self, queue: MessageQueue) -> None:
        """Give the lock back."""


class StartOptions(Protocol):
    """What StartOffsets reads of the consumer's options."""

    @property
    def consume_from_where(self) -> Any:
        """Where a group without a stored offset starts."""

    @property
    def consume_timestamp(self) -> Any:
        """Milliseconds, for CONSUME_FROM_TIMESTAMP."""


class AssignmentOptions(Protocol):
    """What an Assignment reads of the consumer's options. Sizes are MiB; -1 is no limit."""

    @property
    def message_model(self) -> Any:
        """Whether members share the queues."""

    @property
    def allocate_message_queue_strategy(self) -> Any:
        """Which queues of a topic are whose."""

    @property
    def pull_threshold_for_queue(self) -> int:
        """Messages cached of one queue."""

    @property
    def pull_threshold_for_topic(self) -> int:
        """Messages cached of one topic."""

    @property
    def pull_threshold_size_for_queue(self) -> int:
        """Size cached of one queue."""

    @property
    def pull_threshold_size_for_topic(self) -> int:
        """Size cached of one topic."""


class StartOffsets:
    """Where a queue that was just gained begins."""

    def __init__(self, instance: ClientInstance, store: OffsetStore, options: StartOptions) -> None:
        self._instance = instance
        self._store = store
        self._options = options

    def of(self, queue: MessageQueue) -> int:
        """Stored offset, or what consume_from_where says when none is stored.

        Raises RocketMQError when a broker cannot be asked: then the queue is not taken now.
        """
        stored = self._store.read(queue)
        if stored is not None:
            return stored
        where = self._options.consume_from_where
        brokers = self._instance.brokers
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        address = self._instance.master_of(queue)
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            if is_retry:
                return brokers.max_offset(address, queue)
            return brokers.search_offset(address, queue, self._options.consume_timestamp)
        if where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET and not is_retry:
            return brokers.max_offset(address, queue)
        # The first offset still there: 0 may have expired, and asking for it costs a detour.
        return max(0, brokers.min_offset(address, queue))


class Assignment:
    """The owned queues. Rounds run on the rebalance thread; look-ups from any thread."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: AssignmentOptions,
        store: OffsetStore,
        start_offsets: StartOffsets,
        flow: FlowListener,
        listener: AssignmentListener,
        order: OrderKeeper | None,
        queue_type: type[AssignedQueue] = AssignedQueue,
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._store = store
        self._start_offsets = start_offsets
        self._flow = flow
        self._listener = listener
        self._order = order
        self._queue_type = queue_type
        self._lock = threading.Lock()
        self._table: dict[MessageQueue, AssignedQueue] = {}
        self._distrusted_at: dict[str, float] = {}  # by broker
        self._closed = False
        self._failures = 0

    def queues(self) -> list[AssignedQueue]:
        """All owned queues."""
        with self._lock:
            return list(self._table.values())

    def get(self, queue: MessageQueue) -> AssignedQueue | None:
        """One owned queue."""
        return self._table.get(queue)

    # -------------------------------------------------------------------------------- rounds

    def rebalance(self, topics: Iterable[str]) -> None:
        """One round over all subscribed topics."""
        wanted = set(topics)
        changed = failed = False
        held: dict[str, list[MessageQueue]] = {}
        for assigned in self.queues():
            held.setdefault(assigned.message_queue.topic, []).append(assigned.message_queue)
        for topic in sorted(wanted):
            try:
                changed |= self._rebalance_topic(topic, held.get(topic, ()))
            except TopicRouteNotFound as error:
                if not topic.startswith(RETRY_PREFIX):
                    logger.warning("rebalance of %s: %s", self._group, error)
            except RocketMQError as error:
                # Brokers need a moment to know a member that has just told them of itself.
                early = self._failures < _EARLY_ROUNDS and _is_unknown_group(error)
                level = logging.DEBUG if early else logging.WARNING
                logger.log(level, "rebalance of %s for topic %s: %s", self._group, topic, error)
                failed = True
        if failed:
            delay = min(_AGAIN_SECONDS * 2**self._failures, _AGAIN_MOST)
            if self._instance.rejoin_later(delay):
                self._failures = min(self._failures + 1, 10)
        else:
            self._failures = 0
        unwanted = [q for q in self.queues() if q.message_queue.topic not in wanted]
        # At once: a store that writes a file would otherwise write it for each of them.
        storable = [assigned.message_queue for assigned in unwanted if self._may_store(assigned)]
        self._store.persist_now(storable)
        for assigned in unwanted:
            self._give_up(assigned)
            changed = True
        if changed:
            self._share_limits(self.queues())
            self._listener.on_changed()

    def assign(self, wanted: Iterable[MessageQueue]) -> None:
        """Own exactly these queues, without a round; for a consumer that is told its queues.

        Raises RocketMQError, with nothing changed, when a start offset cannot be had.
        """
        queues = set(wanted)
        starts = {q: self._start_offsets.of(q) for q in sorted(queues) if q not in self._table}
        for assigned in self.queues():
            if assigned.message_queue not in queues:
                self._give_up(assigned)
        gained = [self._queue_type(q, at, self._store, self._flow) for q, at in starts.items()]
        with self._lock:
            if self._closed:
                return
            self._table.update({assigned.message_queue: assigned for assigned in gained})
        self._share_limits(self.queues())
        self._listener.on_assigned(gained)

    def _rebalance_topic(self, topic: str, held: Sequence[MessageQueue]) -> bool:
        """One topic's part of a round; `held` are its queues that were ours before it."""
        route = self._instance.route(topic)
        if route is None:
            return False
        queues = sorted(route.subscribe_queues(topic))
        if not queues:
            return False
        if self._options.message_model is MessageModel.BROADCASTING:
            return self._apply(held, set(queues))
        address = self._instance.any_broker_of(topic)
        # A broker that was slow may list a member twice, with a connection that is gone beside the
        # present one; the second part would be nobody's for as long as two minutes.
        members = set(self._instance.brokers.consumer_ids(address, self._group))
        mine = self._allocate(topic, queues, sorted(members, key=utf16_order))
        if mine is None:
            return False
        return self._apply(held, mine)

    def _allocate(
        self, topic: str, queues: list[MessageQueue], members: list[str]
    ) -> set[MessageQueue] | None:
        """What the strategy gives us; None to leave things as they are."""
        cid = self._instance.client_id
        try:
            mine = set(
                self._options.allocate_message_queue_strategy(self._group, cid, queues, members)
            )
        except Exception:
            logger.exception("strategy failed for topic %s; its queues stay as they are", topic)
            return None
        if cid not in members:
            logger.info("%s is not among the %d members of %s yet", cid, len(members), self._group)
        return mine

    def _apply(self, held: Sequence[MessageQueue], mine: set[MessageQueue]) -> bool:
        changed = False
        now = time.monotonic()
        for queue in held:
            assigned = self._table.get(queue)
            if assigned is None:
                continue  # its lock was lost meanwhile
            if queue not in mine:
                self._give_up(assigned)
                changed = True
            elif assigned.releasing:
                if self._order is not None:
                    self._order.cancel_release(assigned)
            elif now - assigned.last_pull > PULL_IDLE_SECONDS:
                logger.error("%s did not pull for %.0f s; taking it anew", queue, PULL_IDLE_SECONDS)
                self._give_up(assigned)
                changed = True
        gained = []
        for queue in sorted(mine):
            if queue not in self._table:
                assigned_now = self._take(queue)
                if assigned_now is not None:
                    gained.append(assigned_now)
        if gained:
            owned = [self._table.get(queue) for queue in mine]
            self._share_limits([assigned for assigned in owned if assigned is not None])
            self._listener.on_assigned(gained)
        return changed or bool(gained)

    def _take(self, queue: MessageQueue) -> AssignedQueue | None:
        if self._closed:
            return None
        locked_at = time.monotonic()  # before the request: the broker's clock starts no earlier
        if self._order is not None and not self._order.may_take(queue):
            logger.info("%s is not taken yet, its lock is not to be had", queue)
            return None
        self._store.remove(queue)
        try:
            start = self._start_offsets.of(queue)
        except RocketMQError as error:
            logger.warning("%s is not taken yet, its start offset is unknown: %s", queue, error)
            if self._closed:
                self._give_lock_back(queue)
            self._instance.rebalance_later(_AGAIN_SECONDS)
            return None
        assigned = self._queue_type(queue, start, self._store, self._flow)
        if self._order is not None:
            assigned.confirm_lock(locked_at)
        with self._lock:
            closed = self._closed
            is_distrusted = locked_at <= self._distrusted_at.get(queue.broker_name, locked_at - 1.0)
            if not closed and not is_distrusted:
                self._table[queue] = assigned
        if closed:
            self._give_lock_back(queue)
            return None
        if is_distrusted:
            logger.info("%s is not taken yet, its lock is in doubt", queue)
            self._instance.rebalance_later(_AGAIN_SECONDS)
            return None
        logger.info("%s is ours, from offset %d", queue, start)
        return assigned

    def _give_lock_back(self, queue: MessageQueue) -> None:
        """Unlock a queue whose lock came when those of the owned queues were given back already.

        Nobody else could consume it until the lock runs out.
        """
        if self._order is not None:
            self._order.unlock(queue)

    def _give_up(self, assigned: AssignedQueue) -> None:
        """Let go of a queue. Orderly: the running call ends first, while the lock is ours."""
        if self._order is None:
            self._let_go(assigned)
        elif not assigned.releasing:
            self._order.release(assigned, self._let_go)

    def _let_go(self, assigned: AssignedQueue) -> None:
        """Void the assignment, after its progress was stored: the next owner starts from there."""
        queue = assigned.message_queue
        self._listener.settle_progress()
        storable = self._may_store(assigned)
        assigned.dropped = True
        if storable:
            self._store.persist_now([queue])
        self._store.remove(queue)
        self._forget(assigned)
        if self._order is not None:
            self._order.unlock(queue)
        logger.info("%s is not ours any more", queue)

    def _may_store(self, assigned: AssignedQueue) -> bool:
        """Whether the queue's progress is ours to store.

        Without a confirmed lock another member may be ahead of us, and would be set back.
        """
        return self._order is None or assigned.locked

    def storable(self) -> list[MessageQueue]:
        """The owned queues whose progress is ours to store."""
        return [queue.message_queue for queue in self.queues() if self._may_store(queue)]

    def _forget(self, assigned: AssignedQueue) -> None:
        with self._lock:
            if self._table.get(assigned.message_queue) is assigned:
                del self._table[assigned.message_queue]

    def distrust_locks(self, broker_name: str) -> None:
        """Consume nothing of a broker before it has confirmed the locks anew. Any thread."""
        with self._lock:
            self._distrusted_at[broker_name] = time.monotonic()
            for assigned in self._table.values():
                if assigned.message_queue.broker_name == broker_name:
                    assigned.distrust_lock()

    def lose(self, assigned: AssignedQueue) -> None:
        """Void an assignment whose lock another client has; its progress is not ours to store."""
        assigned.dropped = True
        self._store.remove(assigned.message_queue)
        self._forget(assigned)
        logger.warning("the lock of %s is lost", assigned.message_queue)

    def replace(self, assigned: AssignedQueue, offset: int) -> AssignedQueue | None:
        """Start a queue anew at another offset. What is under way for the old object is void.

        None when the queue was given up meanwhile.
        """
        queue = assigned.message_queue
        with self._lock:
            if self._table.get(queue) is not assigned or self._closed:
                return None
            assigned.dropped = True
            fresh = self._queue_type(queue, offset, self._store, self._flow)
            fresh.count_limit = assigned.count_limit
            fresh.size_limit_bytes = assigned.size_limit_bytes
            fresh.broker_id = assigned.broker_id
            fresh.paused = assigned.paused
            fresh.confirm_lock(assigned.locked_at)
            fresh.last_illegal = assigned.last_illegal
            self._table[queue] = fresh
        self._store.update(queue, offset, increase_only=False)
        return fresh

    def _share_limits(self, queues: Sequence[AssignedQueue]) -> None:
        """Divide per-topic limits over the queues of each topic: all of them that are ours."""
        options = self._options
        per_topic: dict[str, int] = {}
        for assigned in queues:
            topic = assigned.message_queue.topic
            per_topic[topic] = per_topic.get(topic, 0) + 1
        for assigned in queues:
            share = per_topic[assigned.message_queue.topic]
            count = options.pull_threshold_for_queue
            size = options.pull_threshold_size_for_queue
            if options.pull_threshold_for_topic != -1:
                count = max(1, options.pull_threshold_for_topic // share)
            if options.pull_threshold_size_for_topic != -1:
                size = max(1, options.pull_threshold_size_for_topic // share)
            assigned.count_limit = count
            assigned.size_limit_bytes = size * _MIB

    # ----------------------------------------------------------------------------- lifecycle

    def close(self) -> list[AssignedQueue]:
        """Take no queue any more. Returns the ones that are owned; they stay until `clear`."""
        with self._lock:
            self._closed = True
            return list(self._table.values())

    def clear(self) -> None:
        """Drop every queue."""
        with self._lock:
            for assigned in self._table.values():
                assigned.dropped = True
            self._table.clear()
