"""The push consumer: a listener is called with messages of the queues that this member owns."""

from __future__ import annotations

import asyncio
import logging
import queue
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self

from rocketmq_fast._core import MessageExt
from rocketmq_fast.client.startable import Startable
from rocketmq_fast.consumer.async_listener import is_async_listener, running_loop
from rocketmq_fast.consumer.options import PushConsumerOptions, push_options
from rocketmq_fast.consumer.running import Listener, RunningConsumer
from rocketmq_fast.consumer.subscription import Sql, Subscriptions, check_filters, subscribe
from rocketmq_fast.errors import ClientStateError, ConfigError
from rocketmq_fast.model import MessageModel, MessageQueue
from rocketmq_fast.protocol.names import DEFAULT_CONSUMER_GROUP, retry_topic

logger = logging.getLogger(__name__)

_EXIT_SECONDS = 1.0
# A wait without a timeout holds signals back on some platforms.
_SLICE_SECONDS = 1.0

# What a handler may do while the main thread waits: put() is reentrant, Event.set() is not.
_Signals = queue.SimpleQueue[int | None]


class PushConsumer(Startable[PushConsumerOptions, RunningConsumer]):
    """Consumes the topics it subscribed, as a member of a consumer group.

    Options are Java's property names in snake_case (PushConsumerOptions lists them). Subscribe and
    register a listener, then `start`; or use it as a context manager, which starts and shuts down.
    The listener runs on worker threads, several at a time, with a list of messages and a context;
    an `async def` one runs on the event loop that was running at start, or on one of the consumer's
    own. It returns a ConsumeStatus. An exception, None or anything else means "later". All methods
    may be called from any thread. A consumer that was shut down can be started again.
    """

    _kind = "consumer"

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(group, push_options(options), DEFAULT_CONSUMER_GROUP)
        self._subscriptions = Subscriptions()
        self._listener: Listener | None = None
        self._orderly = False

    def _traits(self) -> tuple[str, ...]:
        return self._subscriptions.traits(self._names)

    # ------------------------------------------------------------------------------- set-up

    def subscribe(self, topic: str, expression: str | Sql | None = "*") -> None:
        """Want a topic, filtered by tags ("TagA || TagB") or Sql; replaces what was wanted before.

        Raises ConfigError. While the consumer runs it takes effect at once; then Sql is shown to a
        broker first, and nothing changes when that raises RocketMQError.
        """
        topic = self._names.wrap(topic)
        wanted = subscribe(topic, expression)
        running = self._running
        if running is not None:
            check_filters(running.instance, running.group, [wanted])
        self._subscriptions.put(wanted)
        if running is not None:
            running.on_subscribed(topic)

    def unsubscribe(self, topic: str) -> None:
        """Give the topic up: its queues are released after their progress was stored."""
        self._subscriptions.remove(self._names.wrap(topic))
        running = self._running
        if running is not None:
            running.instance.rebalance_soon()

    def register_listener(self, listener: Listener, *, orderly: bool = False) -> None:
        """Set the listener, before start.

        Concurrent: fn(messages, context) -> ConsumeStatus, called on several threads. Orderly:
        fn(messages, context) -> OrderlyStatus, not async, called with each queue's messages in
        order, never two calls for a queue at a time, in the whole group.
        """
        if not callable(listener):
            raise ConfigError(f"listener {listener!r} is not callable")
        if orderly and is_async_listener(listener):
            raise ConfigError("an orderly listener runs on threads; it cannot be async")
        with self._lock:
            if self._running is not None:
                raise ClientStateError("the listener cannot change while the consumer runs")
            self._listener = listener
            self._orderly = orderly

    # ----------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Join the group and begin to consume.

        Returns when the brokers know this member; queues follow (`wait_assigned`). A topic that
        does not exist yet is only logged. Raises ConfigError, ClientStateError, NoNameServer, or
        another RocketMQError when the name servers cannot be asked.
        """
        self._start(running_loop())

    def _start(self, asyncio_loop: asyncio.AbstractEventLoop | None) -> None:
        self._run_new(partial(self._new_running, asyncio_loop))

    def _new_running(self, asyncio_loop: asyncio.AbstractEventLoop | None) -> RunningConsumer:
        if self._listener is None:
            raise ConfigError(f"consumer of group {self._group!r} has no listener")
        group = self._names.wrap(self._group)
        retry = retry_topic(group)
        if self._options.message_model is MessageModel.BROADCASTING:
            if self._orderly:
                raise ConfigError("an orderly listener needs message_model CLUSTERING")
        elif retry not in self._subscriptions.table():
            self._subscriptions.put(subscribe(retry, "*"))
        if not self._subscriptions.table().keys() - {retry}:
            logger.warning(
                "consumer of group %s starts without a topic: call subscribe(), or it gets "
                "nothing but retries of the group",
                self._group,
            )
        return RunningConsumer(
            group,
            self._options,
            self._subscriptions,
            self._listener,
            orderly=self._orderly,
            asyncio_loop=asyncio_loop,
        )

    def shutdown(self, timeout: float | None = None) -> None:
        """Leave the group: no new calls, running ones finish, progress is stored. May be repeated.

        Waits for listeners up to `timeout` seconds; by default up to
        await_termination_millis_when_shutdown.
        """
        running = self._take_running()
        if running is not None:
            running.stop(timeout)

    def shutdown_at_exit(self) -> None:
        """As `shutdown`, waiting a moment only: the interpreter ends."""
        logger.warning("consumer of group %s was not shut down before exit", self._group)
        running, self._running = self._running, None
        if running is not None:
            running.stop(_EXIT_SECONDS, hurry=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._start, asyncio.get_running_loop())
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.shutdown)

    def run(self) -> None:
        """Start unless started, block until SIGINT or SIGTERM, then shut down. Main thread only.

        Another signal ends the wait for listeners: what they hold is delivered again.
        """
        if threading.current_thread() is not threading.main_thread():
            raise ClientStateError("run() handles signals, so it needs the main thread")
        signals: _Signals = queue.SimpleQueue()
        before = {
            number: signal.signal(number, lambda number, _: signals.put(number))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            try:
                if self._running is None:
                    self.start()
                _next(signals)
            finally:
                self._shutdown_heeding(signals)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _shutdown_heeding(self, signals: _Signals) -> None:
        """Shut down on another thread, while this one heeds further signals."""
        running = self._running
        if running is None:
            return
        with ThreadPoolExecutor(1, f"rocketmq-stop-{running.group}") as executor:
            stopped = executor.submit(self.shutdown)
            stopped.add_done_callback(lambda _: signals.put(None))
            try:
                number = signals.get(timeout=_SLICE_SECONDS)
            except queue.Empty:
                logger.warning(
                    "group %s: waiting up to %.0f s for running listener calls (%d); another "
                    "signal ends the wait",
                    self._group,
                    self._options.await_termination_millis_when_shutdown / 1000,
                    running.service.threads,
                )
                number = _next(signals)
            while number is not None:
                running.stop_waiting()
                number = _next(signals)
        stopped.result()

    # ------------------------------------------------------------------------------ running

    def wait_assigned(self, timeout: float = 10.0) -> bool:
        """Wait until this member owns a queue of a subscribed topic. Returns whether it does."""
        return self._require_running().wait_assigned(timeout)

    def assigned(self) -> list[MessageQueue]:
        """Queues this member owns, its retry queues included."""
        queues = self._require_running().assignment.queues()
        return sorted(self._names.unwrap_queue(queue.message_queue) for queue in queues)

    def pause(self, *queues: MessageQueue) -> None:
        """Stop pulling these queues, or everything. Cached messages are still consumed."""
        self._require_running().set_paused(self._names.wrap_queues(queues), True)

    def resume(self, *queues: MessageQueue) -> None:
        """Pull again what `pause` stopped."""
        self._require_running().set_paused(self._names.wrap_queues(queues), False)

    def send_message_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Have a message delivered again later. delay_level: -1 dead-letter, 0 broker's, 1..18.

        Raises RocketMQError when neither the broker nor the retry topic took it.
        """
        self._require_running().returns.send_back_message(message, delay_level)

    def update_consume_threads(
        self, *, consume_thread_min: int | None = None, consume_thread_max: int | None = None
    ) -> None:
        """Change how many threads call the listener, also while the consumer runs.

        Threads above a lowered maximum end after their running call. Raises ConfigError.
        """
        with self._lock:
            self._options = self._options.with_threads(consume_thread_min, consume_thread_max)
            if self._running is not None:
                self._running.resize(self._options)

    def lag(self) -> dict[MessageQueue, int]:
        """Messages behind the end of each owned queue; asks its broker for the end."""
        lags = self._require_running().lag()
        return {self._names.unwrap_queue(queue): lag for queue, lag in lags.items()}

    def stats(self) -> dict[str, Any]:
        """Counters and gauges of this consumer; no request is made."""
        return self._require_running().stats()


def _next(signals: _Signals) -> int | None:
    """The next signal, or None for the end of the shutdown."""
    while True:
        try:
            return signals.get(timeout=_SLICE_SECONDS)
        except queue.Empty:
            continue
