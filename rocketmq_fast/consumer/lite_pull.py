"""The pull consumer: the program asks for messages, and says where to read and what is done."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Self

from rocketmq_fast._core import ArrowBatch, ArrowBuilder, MessageExt
from rocketmq_fast.client.startable import Startable
from rocketmq_fast.consumer.fetched import Piece
from rocketmq_fast.consumer.pull_options import PullConsumerOptions, pull_options
from rocketmq_fast.consumer.pull_running import RunningPull, check_offset
from rocketmq_fast.consumer.subscription import Sql, Subscriptions, check_filters, subscribe
from rocketmq_fast.errors import ClientStateError, ConfigError, TopicRouteNotFound
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.names import DEFAULT_CONSUMER_GROUP

logger = logging.getLogger(__name__)

# Up to so many messages, whole fetched batches are put together to one answer.
POLL_MESSAGES = 1024
ARROW_MESSAGES = 65_536
# How long iteration waits at a time; it ends with the consumer, not with the queue.
_ITERATION_SECONDS = 1.0


class PullConsumer(Startable[PullConsumerOptions, RunningPull]):
    """Reads queues as the program asks.

    Options are Java's property names in snake_case (PullConsumerOptions lists them). Start it, or
    use it as a context manager; then `assign` queues, or `subscribe` topics to share them with the
    other members of the group. Between polls, messages are fetched ahead.

    Everything that `poll` returned counts as consumed with the next poll, with `commit`, and with
    an orderly end; auto_commit then tells the brokers each auto_commit_interval_millis. All methods
    may be called from any thread.
    """

    _kind = "pull consumer"

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(group, pull_options(options), DEFAULT_CONSUMER_GROUP)
        self._subscriptions = Subscriptions()

    def _traits(self) -> tuple[str, ...]:
        return self._subscriptions.traits(self._names)

    # ----------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Connect, and join the group if topics are subscribed.

        Raises ClientStateError, NoNameServer, or another RocketMQError when the name servers cannot
        be asked.
        """
        group = self._names.wrap(self._group)
        self._run_new(lambda: RunningPull(group, self._options, self._subscriptions))

    def shutdown(self) -> None:
        """Commit for the last time if auto_commit is on, leave the group, end. May be repeated."""
        self._stop(commit_last=True)

    close = shutdown

    def _stop(self, *, commit_last: bool, hurry: bool = False) -> None:
        running = self._take_running()
        if running is not None:
            running.stop(commit_last=commit_last, hurry=hurry)

    def shutdown_at_exit(self) -> None:
        """As `shutdown`, waiting a moment only: the interpreter ends."""
        logger.warning("pull consumer of group %s was not shut down before exit", self._group)
        self._stop(commit_last=False, hurry=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an exception nobody knows whether the last poll's messages were dealt with.
        self._stop(commit_last=kind is None)

    @property
    def running(self) -> RunningPull:
        """The started part. Raises ClientStateError before start and after shutdown."""
        return self._require_running()

    def is_running(self, running: RunningPull) -> bool:
        """Whether that start was not followed by a shutdown."""
        return self._running is running

    # -------------------------------------------------------------------------------- queues

    def queues(self, topic: str) -> list[MessageQueue]:
        """Queues of a topic that can be read. Raises TopicRouteNotFound when there is none."""
        topic = self._names.wrap(topic)
        queues = sorted(self.running.instance.update_route(topic).subscribe_queues(topic))
        if not queues:
            raise TopicRouteNotFound(topic, f"topic {topic!r} has no queue to read")
        return self._names.unwrap_queues(queues)

    def subscribe(self, topic: str, expression: str | Sql | None = "*") -> None:
        """Want a topic, filtered by tags ("TagA || TagB") or Sql, its queues shared in the group.

        Raises ClientStateError when queues are assigned. Takes effect at once when started; then
        Sql is shown to a broker first, and nothing changes when that raises RocketMQError.
        """
        running = self._running
        if running is not None and not running.subscribes:
            raise ClientStateError("queues are assigned; unsubscribe() before subscribe")
        topic = self._names.wrap(topic)
        wanted = subscribe(topic, expression)
        if running is not None:
            check_filters(running.instance, running.group, [wanted])
        self._subscriptions.put(wanted)
        if running is not None:
            running.on_subscribed(topic)

    def assign(self, queues: Iterable[MessageQueue], expression: str | Sql | None = "*") -> None:
        """Read exactly these queues, whatever other consumers do.

        A queue that is new begins where the group has committed, else by consume_from_where.
        Replaces what was assigned before. Raises ClientStateError when topics are subscribed, and
        RocketMQError when a broker cannot be asked.
        """
        wanted = self._names.wrap_queues(queues)
        if not wanted:
            raise ConfigError("no queues to assign; unsubscribe() gives all of them up")
        if self._subscriptions.table():
            raise ClientStateError("topics are subscribed; unsubscribe() before assign")
        self.running.assign(wanted, expression)

    def unsubscribe(self, topic: str | None = None) -> None:
        """Give up a topic, or everything that was subscribed or assigned."""
        running = self._running
        if topic is not None:
            self._subscriptions.remove(self._names.wrap(topic))
            if running is not None:
                running.instance.rebalance_soon()
            return
        for name in self._subscriptions.table():
            self._subscriptions.remove(name)
        if running is not None:
            running.unassign()

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        names = self._names
        return sorted(names.unwrap_queue(queue.message_queue) for queue in self.running.queues())

    def wait_assigned(self, timeout: float = 10.0) -> bool:
        """Wait until there is a queue to read. Returns whether there is."""
        return self.running.wait_assigned(timeout)

    # ------------------------------------------------------------------------------ position

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Have the next poll go on at `offset`; what was fetched or asked for before is dropped.

        An offset that the broker does not have is treated as on_illegal_offset says. Raises
        ClientStateError when the queue is not assigned, ConfigError for a bad offset.
        """
        self.running.seek(self._names.wrap_queue(queue), check_offset(queue, offset))

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the first message there is, of all assigned queues when none is named."""
        for queue, offset in self.begin_offsets(queues or self.assignment()).items():
            self.seek(queue, offset)

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go behind the last message, of all assigned queues when none is named."""
        for queue, offset in self.end_offsets(queues or self.assignment()).items():
            self.seek(queue, offset)

    def seek_to_timestamp(self, queue: MessageQueue, timestamp: datetime | int) -> None:
        """Go to the first message stored at or after a datetime, or milliseconds."""
        self.seek(queue, self.offset_for_timestamp(queue, timestamp))

    def position(self, queue: MessageQueue) -> int:
        """Offset of the next message that `poll` gives of a queue."""
        return self.running.owned(self._names.wrap_queue(queue)).position

    def pause(self, *queues: MessageQueue) -> None:
        """Give and fetch nothing of these queues, or of all assigned ones."""
        self._set_paused(queues, True)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with what `pause` stopped, where it stopped."""
        self._set_paused(queues, False)

    def _set_paused(self, queues: tuple[MessageQueue, ...], paused: bool) -> None:
        running = self.running
        wanted = self._names.wrap_queues(queues)
        owned = [running.owned(queue) for queue in wanted] if wanted else running.queues()
        running.fetched.set_paused(owned, paused)

    # --------------------------------------------------------------------------------- polls

    def poll(self, timeout: float = 1.0, max_messages: int | None = None) -> list[MessageExt]:
        """Messages of any of the queues, in order within each; an empty list after `timeout` s.

        Without `max_messages` these are whole fetched batches. Raises ClientStateError when topics
        are neither subscribed nor queues assigned, and what the brokers said when a queue cannot go
        on.
        """
        return messages_of(self._poll(timeout, max_messages, POLL_MESSAGES))

    def poll_arrow(
        self,
        timeout: float = 1.0,
        max_messages: int | None = None,
        columns: Iterable[str] | None = None,
    ) -> ArrowBatch:
        """As `poll`, in Arrow columns: no Python object is made for a message.

        `columns` are names of the columns wanted, None for all. Raises ConfigError for an unknown
        one.
        """
        builder = ArrowBuilder(columns)
        return in_columns(builder, self._poll(timeout, max_messages, ARROW_MESSAGES))

    def _poll(self, timeout: float, max_messages: int | None, most: int) -> list[Piece]:
        limit = poll_limit(max_messages, most)
        if timeout < 0:
            raise ConfigError(f"timeout is {timeout}; it must be 0 or more seconds")
        running = self.running
        running.begin_poll()
        whole = max_messages is None
        pieces = running.take(limit, whole=whole)
        if pieces or timeout == 0:
            return pieces
        deadline = time.monotonic() + timeout
        while not pieces and not running.fetched.closed and running.fetched.wait(deadline):
            failure = running.fetched.failure
            if failure is not None:
                raise failure
            pieces = running.take(limit, whole=whole)
        return pieces

    def __iter__(self) -> Iterator[MessageExt]:
        """Messages one by one, until the consumer is shut down.

        A message counts as consumed when the next one is asked for.
        """
        running = self.running
        while self._running is running:
            try:
                messages = self.poll(_ITERATION_SECONDS, 1)
            except ClientStateError:
                if self._running is running:
                    raise
                return  # shut down by another thread
            yield from messages

    # ------------------------------------------------------------------------------- commits

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store progress, and wait until the brokers have it.

        Without `offsets` this is everything that polls gave of the queues that are still assigned.
        Raises RocketMQError when an offset was not stored.
        """
        running = self.running
        wanted = self.wire_offsets(offsets)
        find_brokers(running, wanted or ())
        running.store.commit_now(commit_offsets(running, wanted))

    def wire_offsets(
        self, offsets: Mapping[MessageQueue, int] | None
    ) -> Mapping[MessageQueue, int] | None:
        """Offsets by the names that queues have on the wire, in a namespace."""
        if offsets is None:
            return None
        return {self._names.wrap_queue(queue): offset for queue, offset in offsets.items()}

    def committed(self, queue: MessageQueue) -> int | None:
        """What the broker has for the group, None when it has nothing."""
        running, target = self.running, self._names.wrap_queue(queue)
        address = running.instance.master_of(target)
        return running.instance.brokers.consumer_offset(address, running.group, target)

    # ------------------------------------------------------------------------------- offsets

    def begin_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """First offset of each queue."""
        instance = self.running.instance
        return {
            queue: max(0, instance.brokers.min_offset(instance.master_of(target), target))
            for queue in queues
            for target in [self._names.wrap_queue(queue)]
        }

    def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Offset of the next message to be stored in each queue."""
        instance = self.running.instance
        return {
            queue: instance.brokers.max_offset(instance.master_of(target), target)
            for queue in queues
            for target in [self._names.wrap_queue(queue)]
        }

    def offset_for_timestamp(self, queue: MessageQueue, timestamp: datetime | int) -> int:
        """Offset of a message near a store time: a datetime, or milliseconds."""
        instance, target = self.running.instance, self._names.wrap_queue(queue)
        return instance.brokers.search_offset(
            instance.master_of(target), target, timestamp_ms(timestamp)
        )

    def offsets_for_timestamp(
        self, queues: Iterable[MessageQueue], timestamp: datetime | int
    ) -> dict[MessageQueue, int]:
        """As offset_for_timestamp, for several queues."""
        return {queue: self.offset_for_timestamp(queue, timestamp) for queue in queues}

    def lag(self) -> dict[MessageQueue, int]:
        """Messages between the position and the end of each assigned queue."""
        ends = self.end_offsets(self.assignment())
        known = self.running.offsets("")
        positions = {self._names.unwrap_queue(queue): at for queue, at in known.items()}
        return {queue: max(0, end - positions.get(queue, end)) for queue, end in ends.items()}

    def stats(self) -> dict[str, Any]:
        """Counters and gauges; no request is made."""
        running = self.running
        return {
            "group": self._group,
            "client_id": running.instance.client_id,
            "pull_errors": running.puller.errors,
            "flow_controlled": running.puller.flow_controlled,
            "undecodable": running.bad_messages.count,
            "cached_messages": running.fetched.count,
            "cached_bytes": running.fetched.size,
            "topics": {
                self._names.unwrap(topic): rates
                for topic, rates in running.counters.rates().items()
            },
            "totals": {
                self._names.unwrap(topic): counters.figures()
                for topic, counters in running.counters.totals().items()
            },
            "queues": {
                str(self._names.unwrap_queue(queue.message_queue)): {
                    "position": queue.position,
                    "next_offset": queue.next_offset,
                    "max_offset": queue.max_offset,
                    "cached": queue.process_queue.count,
                    "paused": queue.paused,
                }
                for queue in running.queues()
            },
        }


def poll_limit(max_messages: int | None, most: int) -> int:
    """Messages that one poll may give. Raises ConfigError."""
    if max_messages is None:
        return most
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise ConfigError(f"max_messages is {max_messages!r}; it must be 1 or more, or None")
    return max_messages


def messages_of(pieces: list[Piece]) -> list[MessageExt]:
    """Messages that were taken, as objects."""
    if len(pieces) == 1:
        _, batch, start, stop = pieces[0]
        return batch[start:stop]
    messages: list[MessageExt] = []
    for _, batch, start, stop in pieces:
        messages += batch[start:stop]
    return messages


def in_columns(builder: ArrowBuilder, pieces: list[Piece]) -> ArrowBatch:
    """Messages that were taken, as Arrow."""
    for _, batch, start, stop in pieces:
        if stop - start == len(batch):
            builder.append(batch)
        else:
            first, last = batch[start].queue_offset, batch[stop - 1].queue_offset
            builder.append(batch, None, first, last + 1)
    return builder.finish()


def find_brokers(running: RunningPull, queues: Iterable[MessageQueue]) -> None:
    """Have the routes of queues that need not be assigned. Blocks; raises RocketMQError."""
    for queue in queues:
        running.instance.master_of(queue)


def commit_offsets(
    running: RunningPull, offsets: Mapping[MessageQueue, int] | None
) -> Mapping[MessageQueue, int]:
    """What a commit has to send. Raises ConfigError for a bad offset."""
    if offsets is None:
        return running.to_commit()
    given = {queue: check_offset(queue, offset) for queue, offset in offsets.items()}
    running.store.stage(given)
    return given


def timestamp_ms(timestamp: datetime | int) -> int:
    """Milliseconds since the epoch."""
    if isinstance(timestamp, datetime):
        return int(timestamp.timestamp() * 1000)
    return timestamp
