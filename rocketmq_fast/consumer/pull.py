"""The pull loop: one outstanding long poll per assigned queue, on the event loop's thread.

The pull after an answer with messages leaves before the messages are handed to the workers, so that
the broker never waits for a listener.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any, Protocol

from rocketmq_fast._core import MessageBatch, RemotingCommand
from rocketmq_fast._core.message import decode_command
from rocketmq_fast.client.broker_calls import pull_command
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.bad_messages import BadMessages
from rocketmq_fast.consumer.group_watch import GroupWatch
from rocketmq_fast.consumer.namespaces import plain_answer
from rocketmq_fast.consumer.outages import Outages
from rocketmq_fast.consumer.stats import ConsumerStats
from rocketmq_fast.consumer.subscription import Subscription
from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    ConnectError,
    ConnectionClosed,
    HeaderError,
    RemotingError,
    RocketMQError,
    SubscriptionNotExist,
    SubscriptionNotLatest,
)
from rocketmq_fast.protocol.codes import PullSysFlag, ResponseCode
from rocketmq_fast.protocol.names import RETRY_PREFIX, retry_topic

logger = logging.getLogger(__name__)

# Plain integers: an enum's operators cost microseconds in every pull.
_SUSPEND = int(PullSysFlag.SUSPEND)
_COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)

SUSPEND_MILLIS = 15_000
TIMEOUT_SECONDS = 30.0
FLOW_CONTROL_SECONDS = 0.05
PAUSED_SECONDS = 1.0
# A queue whose offset the broker keeps calling illegal is asked again at this pace.
ILLEGAL_AGAIN_SECONDS = 1.0
_MIB = 1 << 20
_MAX_OFFSET = 2**63 - 1
_FLOW_LOG_SECONDS = 30.0


class PullOptions(Protocol):
    """What the pull loop reads of its consumer's options."""

    @property
    def pull_batch_size(self) -> int:
        """Most messages of one pull."""

    @property
    def pull_interval(self) -> Any:
        """Milliseconds between an answer and the next pull."""

    @property
    def pull_time_delay_millis_when_exception(self) -> Any:
        """Milliseconds between a failed pull and the next."""

    @property
    def consume_concurrently_max_span(self) -> int:
        """Largest distance of the cached offsets of a queue."""

    @property
    def post_subscription_when_pull(self) -> bool:
        """Whether a pull carries the filter."""

    @property
    def check_crc(self) -> bool:
        """Whether bodies are checked."""

    @property
    def max_body(self) -> int:
        """Largest body after decompression."""

    @property
    def names(self) -> Namespace:
        """The consumer's namespace."""


class PullOwner(Protocol):
    """What the pull loop needs of its consumer. Called on the event loop's thread."""

    def subscription(self, topic: str) -> Subscription | None:
        """Current subscription of a topic."""

    def offset_to_commit(self, queue: AssignedQueue) -> int:
        """Offset in memory that a pull carries along, -1 for none."""

    def submit(self, queue: AssignedQueue, batch: MessageBatch, dispatch: bool) -> None:
        """Hand messages to the workers; `dispatch` when none is on the queue."""

    def on_illegal_offset(self, queue: AssignedQueue, offset: int) -> None:
        """The broker refused the queue's offset and named this one."""

    def on_unknown_subscription(self) -> None:
        """A broker does not know the subscription: it missed a heartbeat, or lost its memory."""

    @property
    def pulling(self) -> bool:
        """False while the consumer is paused as a whole."""

    @property
    def has_room(self) -> bool:
        """Whether all queues together are below the consumer's limits."""


class Puller:
    """Keeps every assigned queue pulling until it is dropped."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: PullOptions,
        owner: PullOwner,
        bad_messages: BadMessages,
        stats: ConsumerStats,
        *,
        orderly: bool,
    ) -> None:
        self._orderly = orderly
        self.errors = 0
        self.flow_controlled = 0
        self._stats = stats
        self._instance = instance
        self._loop = instance.loop
        self._group = group
        self._options = options
        self._names = options.names
        self._owner = owner
        self._bad_messages = bad_messages
        self._exception_delay = options.pull_time_delay_millis_when_exception / 1000
        self._interval = options.pull_interval / 1000
        self._retry_topic = retry_topic(group)
        self._flow_logged = -1e9
        self._outages = Outages(group, "pulls from")
        self._watch = GroupWatch(group)

    def start(self, queue: AssignedQueue) -> None:
        """Begin to pull. Any thread."""
        self._loop.call_soon(self._pull_safely, queue)

    def on_room(self, queue: AssignedQueue) -> None:
        """A flow-controlled queue may have room again. Any thread."""
        if queue.process_queue.count <= queue.count_limit:
            queue.waiting_for_room = False
            self._loop.call_soon(self._resume, queue)

    def _resume(self, queue: AssignedQueue) -> None:
        timer = queue.room_timer
        if timer is not None:  # else the timer was first
            timer.cancel()
            self._after_wait(queue)

    def _after_wait(self, queue: AssignedQueue) -> None:
        queue.room_timer = None
        queue.waiting_for_room = False
        self._pull_safely(queue)

    def _later(self, queue: AssignedQueue, delay: float) -> None:
        self._loop.call_later(delay, self._pull_safely, queue)

    def _pull_safely(self, queue: AssignedQueue) -> None:
        """Whatever goes wrong here must not end the queue's loop."""
        try:
            self._pull(queue)
        except Exception as error:
            if not isinstance(error, (BrokerNotFound, RemotingError)):
                logger.exception("pull of %s failed", queue.message_queue)
            else:
                self._outages.failed(queue.message_queue, error)
            self._later(queue, self._exception_delay)

    def _pull(self, queue: AssignedQueue) -> None:
        if queue.dropped:
            self._outages.forget(queue.message_queue)
            return
        queue.last_pull = time.monotonic()
        if queue.paused or queue.releasing or not self._owner.pulling:
            self._later(queue, PAUSED_SECONDS)
            return
        if self._orderly and not queue.locked:
            self._later(queue, self._exception_delay)
            return
        if self._is_full(queue) or not self._owner.has_room:
            self.flow_controlled += 1
            queue.room_timer = self._loop.call_later(FLOW_CONTROL_SECONDS, self._after_wait, queue)
            queue.waiting_for_room = True
            return
        subscription = self._owner.subscription(queue.message_queue.topic)
        if subscription is None:
            self._later(queue, self._exception_delay)
            return
        self._send(queue, subscription)

    def _is_full(self, queue: AssignedQueue) -> bool:
        messages = queue.process_queue
        reason = None
        if messages.count > queue.count_limit:
            reason = "messages"
        elif messages.size // _MIB > queue.size_limit_bytes // _MIB:
            reason = "bytes"
        elif not self._orderly and queue.span > self._options.consume_concurrently_max_span:
            reason = "span"
        if reason is None:
            return False
        if queue.last_pull - self._flow_logged > _FLOW_LOG_SECONDS and reason == "span":
            self._flow_logged = queue.last_pull
            logger.warning(
                "%s waits: the offsets from %d on span more than %d; the smallest is %s",
                queue.message_queue,
                messages.min_offset,
                self._options.consume_concurrently_max_span,
                "a message that could not be decoded" if queue.held_offset is not None else "slow",
            )
        return True

    def _send(self, queue: AssignedQueue, subscription: Subscription) -> None:
        target = queue.message_queue
        address, is_slave = self._instance.broker_address(target.broker_name, queue.broker_id)
        commit = self._owner.offset_to_commit(queue)
        flags = _SUSPEND
        if commit > 0 and not is_slave:
            flags |= _COMMIT_OFFSET
        data = subscription.data
        command = pull_command(
            self._group,
            target,
            queue.next_offset,
            self._options.pull_batch_size,
            flags,
            commit,
            SUSPEND_MILLIS,
            data.sub_version,
            data.expression_type,
            data.sub_string if self._options.post_subscription_when_pull else None,
        )
        on_answer = partial(self._on_answer, queue, is_slave)
        self._instance.remoting.invoke_async(address, command, TIMEOUT_SECONDS, on_answer)

    # ------------------------------------------------------------------------------ answers

    def _on_answer(
        self, queue: AssignedQueue, is_slave: bool, answer: RemotingCommand | Exception
    ) -> None:
        if queue.dropped:
            return
        try:
            if isinstance(answer, Exception):
                raise answer
            self._take(queue, answer, is_slave)
        except Exception as error:
            self.errors += 1
            if isinstance(error, (SubscriptionNotExist, SubscriptionNotLatest)):
                if isinstance(error, SubscriptionNotExist):
                    self._watch.unknown(queue.message_queue)
                self._owner.on_unknown_subscription()
            elif isinstance(error, (ConnectionClosed, ConnectError)):
                self._watch.away(queue.message_queue.broker_name)
            if not isinstance(error, RocketMQError):
                logger.exception("answer to a pull of %s", queue.message_queue)
            elif not queue.message_queue.topic.startswith(RETRY_PREFIX):
                self._outages.failed(queue.message_queue, error)
            self._later(queue, self._exception_delay)

    def _take(self, queue: AssignedQueue, answer: RemotingCommand, is_slave: bool) -> None:
        code = answer.code
        if code not in _PULL_CODES:
            raise BrokerError.of(code, answer.remark, queue.message_queue.broker_name)
        fields = answer.ext_fields
        try:
            next_offset = int(fields["nextBeginOffset"])
            min_offset = queue.min_offset = int(fields.get("minOffset", -1))
            queue.max_offset = int(fields.get("maxOffset", -1))
            queue.broker_id = int(fields.get("suggestWhichBrokerId", 0))
        except (KeyError, ValueError) as error:
            raise HeaderError(
                f"answer to a pull of {queue.message_queue}: field {error} is missing or no integer"
            ) from None
        if not 0 <= next_offset <= _MAX_OFFSET:
            raise HeaderError(
                f"answer to a pull of {queue.message_queue}: no offset is {next_offset}"
            )
        self._outages.succeeded(queue.message_queue)
        self._watch.known(queue.message_queue)
        if is_slave and _is_missing(queue, code, next_offset):
            self._wait_for_master(queue)
            return
        queue.waiting_for_master = False
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._owner.on_illegal_offset(queue, next_offset)
            return
        found = code == ResponseCode.SUCCESS
        batch = self._decode(queue, answer, min_offset) if found else None
        queue.next_offset = next_offset
        if batch is None or len(batch) == 0:
            if queue.process_queue.count == 0:
                queue.advance(next_offset)
            self._pull_safely(queue)
            return
        counters = self._stats.topic(queue.message_queue.topic)
        counters.pulls += 1
        counters.pulled += len(batch)
        counters.pull_seconds += time.monotonic() - queue.last_pull
        dispatch = queue.process_queue.put(batch)
        if self._interval > 0:
            self._later(queue, self._interval)
        else:
            self._pull_safely(queue)
        self._owner.submit(queue, batch, dispatch)

    def _wait_for_master(self, queue: AssignedQueue) -> None:
        """Stay where we are: a slave may have less than its master, at either end.

        To follow it back would consume again what is done, forward would skip what the master has.
        """
        if not queue.waiting_for_master:
            queue.waiting_for_master = True
            logger.warning(
                "the slave that answers for %s has [%d, %d) and not offset %d; waiting for the "
                "master, or for the slave to catch up",
                queue.message_queue,
                queue.min_offset,
                queue.max_offset,
                queue.next_offset,
            )
        queue.broker_id = 0
        self._later(queue, self._exception_delay)

    def _decode(
        self, queue: AssignedQueue, answer: RemotingCommand, min_offset: int
    ) -> MessageBatch:
        """The messages of an answer that are ours to consume."""
        if self._names:
            answer = plain_answer(answer, self._names, self._options.check_crc)
        batch = decode_command(answer, self._options.check_crc, self._options.max_body)
        if batch.errors:
            self._bad_messages.settle(queue, answer, batch)
        subscription = self._owner.subscription(queue.message_queue.topic)
        if subscription is not None and subscription.tag_filter is not None:
            wanted = subscription.tag_filter.filter(batch)
            if len(wanted) < len(batch):
                self._watch.filtered(batch, subscription)
            batch = wanted
        batch.broker_name = queue.message_queue.broker_name
        batch.min_offset = min_offset
        batch.max_offset = queue.max_offset
        batch.restore_topic = queue.message_queue.topic == self._retry_topic
        return batch


def _is_missing(queue: AssignedQueue, code: int, next_offset: int) -> bool:
    """Whether a slave's answer means that it does not have the offset that was asked for.

    Slaves say "retry at once" then, with no other offset: that would be a pull after the other for
    as long as the master is away.
    """
    if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        offset = queue.next_offset
        return next_offset <= offset or not queue.min_offset <= offset < queue.max_offset
    return code == ResponseCode.PULL_OFFSET_MOVED


_PULL_CODES = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)
