"""The producer's public face: options, life cycle, and the ways to send."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Self

from rocketmq_fast._core import MessageExt
from rocketmq_fast.client.instances import acquire_instance, release_instance, unique_instance_name
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.client.startable import Startable
from rocketmq_fast.client.trace import FLUSH_SECONDS, TraceDispatcher
from rocketmq_fast.errors import (
    ClientStateError,
    ConfigError,
    RocketMQError,
    TopicRouteNotFound,
)
from rocketmq_fast.model import Message, MessageQueue, SendResult
from rocketmq_fast.producer.compression import Compressor
from rocketmq_fast.producer.hooks import SendHooks, SendTrace
from rocketmq_fast.producer.options import ProducerOptions, producer_options
from rocketmq_fast.producer.outgoing import Outgoing, Packer
from rocketmq_fast.producer.request_reply import Requests
from rocketmq_fast.producer.routes import PublishRoutes
from rocketmq_fast.producer.selectors import QueueSelector
from rocketmq_fast.producer.sender import SendCallback, Sender
from rocketmq_fast.protocol.names import DEFAULT_PRODUCER_GROUP

logger = logging.getLogger(__name__)

Timeout = float | timedelta | None

# What shutdown waits longer than the send timeout: answers that time out are looked for in steps.
_SHUTDOWN_MARGIN_SECONDS = 1.0
_EXIT_SECONDS = 1.0


class Producer(Startable[ProducerOptions, "Running"]):
    """Sends messages, as a member of a producer group.

    Options are Java's property names in snake_case (ProducerOptions lists them). Use it as a
    context manager, or `start` and `shutdown`; a producer that was shut down can be started again.
    All methods may be called from any thread.

    A queue is chosen in turn unless one is given: `queue` names it, `selector` is called with the
    writable queues, the message and `arg` and returns it (`select_by_hash` keeps the messages of a
    key together). Timeouts of calls are seconds or a timedelta, send_msg_timeout when None; one
    timeout covers all attempts. Every send of a message gives it a new unique id
    (SendResult.msg_id). Unlike the Java client it sends empty bodies: 4.x brokers store them (a
    Java consumer gets null), 5.x brokers answer with code 1.

    Errors: ConfigError and MessageTooLarge for a message that can never be sent, SendError when
    every attempt failed (`causes` has each reason), BrokerError when the broker refused,
    TopicRouteNotFound and NoNameServer when nobody knows where to send to.
    """

    _kind = "producer"

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(group, self._checked_options(options), DEFAULT_PRODUCER_GROUP)
        self._packer = Packer(
            self._options.max_message_size,
            Compressor(
                self._options.compress_type,
                self._options.compress_level,
                self._options.compress_msg_body_over_howmuch,
            ),
            self._names,
        )

    @staticmethod
    def _checked_options(options: Mapping[str, Any]) -> ProducerOptions:
        return producer_options(options)

    def _new_running(self) -> Running:
        return Running(self._group, self._options)

    # ----------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Connect and announce the group.

        Raises ClientStateError when it runs already, ConfigError when the client id has a producer
        of this group, NoNameServer or another RocketMQError when the name servers cannot be asked.
        """
        self._run_new(self._new_running)

    def shutdown(self) -> None:
        """Wait for what is in flight (no longer than send_msg_timeout), then leave. Repeatable."""
        running = self._take_running()
        if running is not None:
            running.stop()

    def shutdown_at_exit(self) -> None:
        """As `shutdown`, waiting a moment only: the interpreter ends."""
        logger.warning("producer of group %s was not shut down before exit", self._group)
        running = self._take_running()
        if running is not None:
            running.stop(hurry=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # -------------------------------------------------------------------------------- sending

    def queues(self, topic: str) -> list[MessageQueue]:
        """Queues that `queue` may name, sorted. Raises TopicRouteNotFound, NoNameServer."""
        return self._require_running().queues(topic)

    def send(
        self,
        message: Message,
        *,
        timeout: Timeout = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: Any = None,
    ) -> SendResult:
        """Send and wait for the broker.

        Tries retry_times_when_send_failed other queues, of another broker where there is one,
        unless `queue` or `selector` fixes it. A status other than SEND_OK is a result, not an
        error: the message is stored on the master.
        """
        running = self._require_running()
        out = self._packer.pack(message)
        target = _target(running, message, queue, selector, arg)
        return running.sender.send(out, running.seconds(timeout), target)

    def send_async(
        self,
        message: Message,
        callback: SendCallback | None = None,
        *,
        timeout: Timeout = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: Any = None,
    ) -> Future[SendResult]:
        """Send without waiting; the future gets the SendResult or the error.

        `callback(result, error)`, one of them None, runs on the client's I/O thread: it must be
        short and must not wait for another send. Its exceptions are logged. A topic's first send
        looks its route up before it returns; with max_in_flight sends without an answer it blocks
        until some have one. Sent again only when there was no answer, not when the broker refused.
        Requests leave in the order of the calls, but a broker with several send threads may store
        them in another: for strict order use `send`, one after another. The future cannot be
        cancelled; for asyncio use asyncio.wrap_future.
        """
        running = self._require_running()
        out = self._packer.pack(message)
        target = _target(running, message, queue, selector, arg)
        return running.sender.send_async(out, running.seconds(timeout), target, callback)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: Any = None,
    ) -> None:
        """Send once and never learn whether it was stored."""
        running = self._require_running()
        out = self._packer.pack(message)
        target = _target(running, message, queue, selector, arg)
        running.sender.send_oneway(out, target)

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        timeout: Timeout = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send messages of one topic to one queue in one request, all or none of them stored.

        They may have no delay level and must agree in wait_store_msg_ok; they are not compressed.
        The result holds all ids and the offset of the first. Raises MessageTooLarge when the
        request would pass max_message_size: several requests are several results and may fail one
        by one, so cutting is the caller's decision: `for part in producer.split_batches(messages)`.
        """
        running = self._require_running()
        out = self._packer.pack_batch(messages)
        return running.sender.send(out, running.seconds(timeout), _checked(running, out, queue))

    def send_batch_async(
        self,
        messages: Iterable[Message],
        callback: SendCallback | None = None,
        *,
        timeout: Timeout = None,
        queue: MessageQueue | None = None,
    ) -> Future[SendResult]:
        """As send_batch, without waiting; see send_async."""
        running = self._require_running()
        out = self._packer.pack_batch(messages)
        return running.sender.send_async(
            out, running.seconds(timeout), _checked(running, out, queue), callback
        )

    def request(
        self,
        message: Message,
        timeout: Timeout = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: Any = None,
    ) -> MessageExt:
        """Send and wait for the reply of whoever consumes the message.

        The consumer answers with `create_reply_message`. One timeout, in seconds or a
        timedelta, covers the send and the wait; None is `send_msg_timeout`.
        Raises ReplyTimeout, and what `send_async` gives its future.
        """
        running = self._require_running()
        if running.instance.loop.in_loop:
            raise ClientStateError("a callback cannot wait for a reply: use request_async")
        future = self.request_async(
            message, timeout=timeout, queue=queue, selector=selector, arg=arg
        )
        return future.result()

    def request_async(
        self,
        message: Message,
        *,
        timeout: Timeout = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: Any = None,
    ) -> Future[MessageExt]:
        """As request, without waiting; callbacks of the future run on the client's I/O thread."""
        running = self._require_running()
        out = self._packer.pack(message)
        target = _target(running, message, queue, selector, arg)
        return running.requests.send(out, running.seconds(timeout), target)

    def split_batches(self, messages: Iterable[Message]) -> Iterator[list[Message]]:
        """Cut messages, in order, into lists that fit into one send_batch each.

        Raises MessageTooLarge for a message that does not even fit alone.
        """
        return self._packer.split(messages)


def _checked(running: Running, out: Outgoing, queue: MessageQueue | None) -> MessageQueue | None:
    if queue is None:
        return None
    target = running.options.names.wrap_queue(queue)
    if target.topic != out.topic:
        raise ConfigError(f"a message for topic {out.topic!r} cannot go to queue {queue}")
    return target


def _target(
    running: Running,
    message: Message,
    queue: MessageQueue | None,
    selector: QueueSelector | None,
    arg: object,
) -> MessageQueue | None:
    """The queue that the caller fixed, None for any."""
    if selector is None:
        if queue is None:
            return None
        chosen: object = queue
    elif queue is not None:
        raise ConfigError("queue and selector exclude each other")
    else:
        chosen = selector(running.queues(message.topic), message, arg)
    if not isinstance(chosen, MessageQueue) or chosen.topic != message.topic:
        raise ConfigError(f"{chosen!r} is no queue of topic {message.topic!r}")
    return running.options.names.wrap_queue(chosen)


class Running:
    """A started producer: everything that lives from start to shutdown."""

    def __init__(self, group: str, options: ProducerOptions) -> None:
        self.group = options.names.wrap(group)
        self.options = options
        self._template_found = False
        name = options.instance_name
        if name == "DEFAULT":
            name = unique_instance_name()
        self.instance = acquire_instance(options.client_id(name), options)
        self.routes = PublishRoutes(
            self.instance, options.default_topic_queue_nums, options.create_topic_key
        )
        known_as = options.names.unwrap(self.group)
        self.trace: TraceDispatcher | None = None
        self.trace_hook: SendTrace | None = None
        hooks = options.send_message_hooks
        if options.enable_msg_trace:
            self.trace = TraceDispatcher(
                self.instance, known_as, "PRODUCE", options.customized_trace_topic
            )
            self.trace_hook = SendTrace(self.trace)
            hooks = (*hooks, self.trace_hook)
        self.sender = Sender(
            self.instance,
            self.group,
            options,
            self.routes,
            SendHooks(known_as, hooks, options.check_forbidden_hooks)
            if hooks or options.check_forbidden_hooks
            else None,
        )
        self.requests = Requests(self.instance, self.sender)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Writable queues, by the names that the program knows."""
        names = self.options.names
        return names.unwrap_queues(self.routes.queues(names.wrap(topic)))

    def publish_topics(self) -> Iterable[str]:
        """Topics whose routes the instance shall keep fresh."""
        topics = self.routes.topics()
        return [*topics, self.options.create_topic_key] if self._template_found else topics

    @property
    def names(self) -> Namespace:
        """The namespace of the program's names."""
        return self.options.names

    def check_transaction(
        self, address: str, message: MessageExt, _fields: Mapping[str, str]
    ) -> None:
        """A broker asks how a transaction of the group ended."""
        logger.warning(
            "%s asks about transaction %s, but the producer of group %s has no transactions",
            address, message.msg_id, self.group,
        )  # fmt: skip

    def seconds(self, timeout: Timeout) -> float:
        """A timeout of a call."""
        if timeout is None:
            return self.options.send_timeout
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        if not seconds > 0:
            raise ConfigError(f"timeout is {timeout!r}; it must be over 0 seconds")
        return seconds

    def start(self) -> None:
        """Register, learn the brokers, announce the group."""
        try:
            self.instance.register_producer(self)
        except RocketMQError:
            release_instance(self.instance)
            raise
        try:
            # Also how the brokers become known before the first send.
            self.instance.update_route(self.options.create_topic_key)
            self._template_found = True
        except TopicRouteNotFound as error:
            # Brokers that do not create topics by themselves have no such topic.
            logger.info("%s", error)
        except BaseException:
            self.instance.unregister_producer(self.group)
            release_instance(self.instance)
            raise
        self.instance.heartbeat()
        if self.trace is not None:
            self.trace.start()

    def stop(self, *, hurry: bool = False) -> None:
        """Finish what is in flight, leave the group, give the instance up.

        In a `hurry` answers are waited for a moment only.
        """
        wait = self.options.send_timeout + _SHUTDOWN_MARGIN_SECONDS
        if hurry:
            wait = _EXIT_SECONDS
        elif self.instance.loop.in_loop:
            wait = 0.0  # a callback: waiting would keep the answers away
        self.requests.fail_open()
        self.sender.close(wait)
        if self.trace is not None:
            self.trace.stop(_EXIT_SECONDS if hurry else FLUSH_SECONDS)
        self.instance.unregister_producer(self.group, wait=not hurry)
        release_instance(self.instance)
        self.sender.fail_pending()
