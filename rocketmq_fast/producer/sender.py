"""One send from its first attempt to its result: attempts, other brokers, one shared timeout."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.sending import send_command, send_result
from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    ClientStateError,
    CodecError,
    HookError,
    MessageEncodeError,
    RemotingError,
    RequestTimeout,
    RocketMQError,
    SendError,
    TooMuchRequests,
)
from rocketmq_fast.model import MessageQueue, SendResult, SendStatus
from rocketmq_fast.producer.hooks import SendContext, SendHooks
from rocketmq_fast.producer.in_flight import InFlight
from rocketmq_fast.producer.latency import AvoidFaults, FaultTable
from rocketmq_fast.producer.options import ProducerOptions
from rocketmq_fast.producer.outgoing import Outgoing
from rocketmq_fast.producer.routes import PublishRoutes
from rocketmq_fast.producer.selectors import RoundRobin

logger = logging.getLogger(__name__)

# fn(result, error): exactly one of them is None.
SendCallback = Callable[[SendResult | None, Exception | None], object]

# One-way requests wait here rather than fill the memory when the broker reads slower than we send.
_ONEWAY_UNSENT_BYTES = 16 << 20
_ONEWAY_POLL_SECONDS = 0.001
# Of this client's making: they say nothing about the broker.
_NEVER_LEFT = (HookError, MessageEncodeError)


def _failed(out: Outgoing, causes: list[Exception]) -> SendError:
    times = "1 attempt" if len(causes) == 1 else f"{len(causes)} attempts"
    texts = "; ".join(str(cause) for cause in causes)
    error = SendError(f"a message for topic {out.topic!r} was not sent in {times}: {texts}", causes)
    error.__cause__ = causes[-1]
    return error


class Sender:
    """Sends for one started producer. Any thread."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ProducerOptions,
        routes: PublishRoutes,
        hooks: SendHooks | None = None,
    ) -> None:
        self.instance = instance
        self.hooks = hooks
        self.options = options
        self.routes = routes
        self.faults: FaultTable | None = None
        self.turn = RoundRobin()
        if options.send_latency_fault_enable:
            self.faults = FaultTable(options.latency_max, options.not_available_duration)
            self.turn = AvoidFaults(self.faults)
        self.in_flight = InFlight(options.max_in_flight, options.max_in_flight_bytes)
        self.closing = False
        self.names = options.names
        self._group = group
        self._pending: set[_AsyncSend] = set()

    def command(self, out: Outgoing, queue: MessageQueue) -> RemotingCommand:
        """The request for a queue. Raises MessageEncodeError."""
        command = send_command(
            self._group,
            queue,
            out.body,
            out.properties,
            flag=out.flag,
            sys_flag=out.sys_flag,
            batch=out.batch,
            default_topic_queue_nums=self.options.default_topic_queue_nums,
            create_topic_key=self.options.create_topic_key,
        )
        if self.options.unit_mode:
            command.ext_fields["k"] = "true"
        return command

    def note(self, queue: MessageQueue, began: float, error: Exception | None) -> None:
        """Remember how an attempt ended, where that is wanted."""
        if self.faults is None or isinstance(error, _NEVER_LEFT):
            return
        failed = error is not None
        if isinstance(error, BrokerError):
            # What a broker holds against the message alone does not speak against the broker.
            failed = error.retriable or error.refresh_route
        latency = (time.monotonic() - began) * 1000
        self.faults.record(queue.broker_name, latency, failed=failed)

    # ---------------------------------------------------------------------------------- waiting

    def send(self, out: Outgoing, timeout: float, queue: MessageQueue | None) -> SendResult:
        """Send and wait; without a queue, again to others after a failure.

        Raises SendError, BrokerError for an answer that another attempt would not change, or what
        the look-up of the route raises.
        """
        options = self.options
        deadline = time.monotonic() + timeout
        queues = self.find(out.topic, queue)
        attempts = 1 if queue is not None else 1 + options.retry_times_when_send_failed
        causes: list[Exception] = []
        stored: SendResult | None = None
        target: MessageQueue | None = None
        for attempt in range(attempts):
            last = attempt + 1 == attempts
            target = queue or self.turn.choose(queues, target.broker_name if target else None)
            began = time.monotonic()
            left = deadline - began
            if left <= 0:
                causes.append(RequestTimeout(f"the timeout of {timeout:.3f} s is over"))
                break
            try:
                stored = self._once(out, target, left)
            except BrokerError as error:
                self.note(target, began, error)
                if queue is not None or error.code not in options.retry_response_codes:
                    raise
                failure: RocketMQError = error
            except (RemotingError, BrokerNotFound) as error:
                self.note(target, began, error)
                failure = error
            except CodecError as error:
                self.note(target, began, error)
                raise
            else:
                self.note(target, began, None)
                if stored.status is SendStatus.SEND_OK or last:
                    return stored
                if not options.retry_another_broker_when_not_store_ok:
                    return stored
                continue
            causes.append(failure)
            logger.info("sending to %s, attempt %d: %s", target, attempt + 1, failure)
            if failure.refresh_route and not last:
                queues = self.routes.refresh(out.topic) or queues
        if stored is not None:
            return stored
        raise _failed(out, causes)

    def _once(self, out: Outgoing, target: MessageQueue, timeout: float) -> SendResult:
        """One attempt, with the hooks around it."""
        address = self.routes.address(target)
        queue = self.names.unwrap_queue(target)
        hooks, invoke = self.hooks, self.instance.remoting.invoke
        if hooks is None:
            answer = invoke(address, self.command(out, target), timeout)
            return send_result(answer, queue, out.msg_id)
        context = hooks.begin(out, queue, address, "SYNC")
        try:
            answer = invoke(address, self.command(out, target), timeout)
            result = send_result(answer, queue, out.msg_id)
        except Exception as error:
            hooks.end(context, None, error)
            raise
        hooks.end(context, result, None)
        return result

    def find(self, topic: str, fixed: MessageQueue | None) -> Sequence[MessageQueue]:
        """Queues of the topic, or the given one, after its broker's address is known."""
        if fixed is None:
            return self.routes.queues(topic)
        try:
            self.routes.address(fixed)
        except BrokerNotFound:
            self.routes.lookup(topic)
        return (fixed,)

    # ---------------------------------------------------------------------------------- one-way

    def send_oneway(self, out: Outgoing, queue: MessageQueue | None) -> None:
        """Send without an answer, once.

        Raises TooMuchRequests when the broker does not read for send_msg_timeout, BrokerNotFound,
        or what the look-up of the route raises.
        """
        queues = self.find(out.topic, queue)
        target = queue or self.turn.choose(queues)
        address = self.routes.address(target)
        if self.hooks is None:
            self._oneway(address, self.command(out, target))
            return
        context = self.hooks.begin(out, self.names.unwrap_queue(target), address, "ONEWAY")
        try:
            self._oneway(address, self.command(out, target))
        except Exception as error:
            self.hooks.end(context, None, error)
            raise
        self.hooks.end(context, None, None)

    def _oneway(self, address: str, command: RemotingCommand) -> None:
        """Send, after the broker has read what was sent before."""
        channel = self.instance.remoting.channel(address)
        if channel.unsent_bytes > _ONEWAY_UNSENT_BYTES and not self.instance.loop.in_loop:
            deadline = time.monotonic() + self.options.send_timeout
            while channel.unsent_bytes > _ONEWAY_UNSENT_BYTES:
                if time.monotonic() > deadline:
                    raise TooMuchRequests(
                        f"{channel.unsent_bytes} bytes wait for {address} to read", address
                    )
                time.sleep(_ONEWAY_POLL_SECONDS)
        self.instance.remoting.invoke_oneway(address, command)

    # ------------------------------------------------------------------------------------ async

    def send_async(
        self,
        out: Outgoing,
        timeout: float,
        queue: MessageQueue | None,
        callback: SendCallback | None,
    ) -> Future[SendResult]:
        """Send; the future gets the result. Blocks while too much is in flight."""
        in_loop = self.instance.loop.in_loop
        self.in_flight.acquire(len(out.body), wait=not in_loop)
        send = _AsyncSend(self, out, timeout, queue, callback)
        self._pending.add(send)
        if self.closing:
            send.fail(ClientStateError("the producer was shut down"))
        elif in_loop and self.routes.known(out.topic) is None:
            # A callback sends to a new topic: the look-up must not hold the loop.
            threading.Thread(
                target=send.start, name=f"rocketmq-send-{out.topic}", daemon=True
            ).start()
        else:
            send.start()
        return send.future

    def ended(self, send: _AsyncSend) -> bool:
        """Whether the caller is the one that completes the send; true once."""
        try:
            self._pending.remove(send)
        except KeyError:
            return False
        self.in_flight.release(len(send.out.body))
        return True

    def close(self, timeout: float) -> None:
        """Refuse new sends and wait for those in flight, which then fail."""
        self.closing = True
        if not self.in_flight.wait_empty(timeout):
            logger.warning("%d messages had no answer when the producer ended", len(self._pending))

    def fail_pending(self) -> None:
        """After the connections ended: no future stays open."""
        for send in list(self._pending):
            send.fail(ClientStateError("the producer was shut down"))


class _AsyncSend:
    """A send without a thread of its own: driven by the caller first, then by the event loop."""

    __slots__ = (
        "_attempts_left", "_began", "_callback", "_causes", "_context", "_deadline", "_fixed",
        "_sender", "_target", "future", "out",
    )  # fmt: skip
    _target: MessageQueue  # set by start
    _began: float  # set by each attempt

    def __init__(
        self,
        sender: Sender,
        out: Outgoing,
        timeout: float,
        queue: MessageQueue | None,
        callback: SendCallback | None,
    ) -> None:
        self.out = out
        self.future: Future[SendResult] = Future()
        self.future.set_running_or_notify_cancel()
        self._sender = sender
        self._callback = callback
        self._deadline = time.monotonic() + timeout
        self._fixed = queue
        self._attempts_left = 1 + sender.options.retry_times_when_send_async_failed
        self._causes: list[Exception] | None = None
        self._context: SendContext | None = None

    def start(self) -> None:
        """Look the route up if need be and send. Not on the loop's thread unless it is known."""
        sender = self._sender
        try:
            queues = sender.find(self.out.topic, self._fixed)
        except Exception as error:  # noqa: BLE001 - the future is where every failure belongs
            self.fail(error)
            return
        self._target = self._fixed or sender.turn.choose(queues)
        self._attempt()

    def _attempt(self) -> None:
        sender = self._sender
        target = self._target
        self._attempts_left -= 1
        self._began = time.monotonic()
        left = self._deadline - self._began
        if left <= 0:
            self._attempts_left = 0
            self._again(RequestTimeout("the timeout of the send is over"))
            return
        try:
            address = sender.routes.address(target)
            if sender.hooks is not None:
                queue = sender.names.unwrap_queue(target)
                self._context = sender.hooks.begin(self.out, queue, address, "ASYNC")
            command = sender.command(self.out, target)
            sender.instance.remoting.invoke_async_soon(address, command, left, self._on_answer)
        except (RemotingError, BrokerNotFound) as error:
            sender.note(target, self._began, error)
            self._again(error)
        except Exception as error:  # noqa: BLE001 - as in start
            self.fail(error)

    def _on_answer(self, answer: RemotingCommand | Exception) -> None:
        """Loop thread."""
        sender, target = self._sender, self._target
        if isinstance(answer, Exception):
            sender.note(target, self._began, answer)
            if isinstance(answer, RemotingError):
                self._again(answer)
            else:
                self.fail(answer)
            return
        try:
            result = send_result(answer, sender.names.unwrap_queue(target), self.out.msg_id)
        except (BrokerError, CodecError) as error:
            sender.note(target, self._began, error)
            self.fail(error)
            return
        sender.note(target, self._began, None)
        self._attempted(result, None)
        self._end(result, None)

    def _attempted(self, result: SendResult | None, error: Exception | None) -> None:
        """Tell the hooks, once an attempt."""
        context, self._context = self._context, None
        if context is not None and self._sender.hooks is not None:
            self._sender.hooks.end(context, result, error)

    def _again(self, error: RocketMQError) -> None:
        """After a failure to get an answer: another attempt, or the end."""
        sender = self._sender
        self._attempted(None, error)
        if self._causes is None:
            self._causes = []
        self._causes.append(error)
        if self._attempts_left <= 0 or sender.closing or self._deadline <= time.monotonic():
            self.fail(_failed(self.out, self._causes))
            return
        if error.refresh_route:
            sender.routes.refresh_soon(self.out.topic)
        queues = sender.routes.known(self.out.topic)
        if self._fixed is None and queues:
            self._target = sender.turn.choose(queues, self._target.broker_name)
        logger.info("sending to %s again: %s", self._target, error)
        self._attempt()

    def fail(self, error: Exception) -> None:
        """End with an error. Does nothing after the end."""
        self._attempted(None, error)
        self._end(None, error)

    def _end(self, result: SendResult | None, error: Exception | None) -> None:
        if not self._sender.ended(self):
            return
        if self._callback is not None:
            try:
                self._callback(result, error)
            except Exception:
                logger.exception("callback of a send to topic %s failed", self.out.topic)
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)  # type: ignore[arg-type]
