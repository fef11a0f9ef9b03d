"""Request and reply: a message is answered by whoever consumes it, to the client that asked."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from concurrent.futures import Future

from rocketmq_fast._core import MessageExt
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.errors import ClientStateError, ConfigError, ReplyTimeout, RocketMQError
from rocketmq_fast.model import Message, MessageQueue, SendResult
from rocketmq_fast.producer.outgoing import Outgoing
from rocketmq_fast.producer.sender import Sender
from rocketmq_fast.protocol import props
from rocketmq_fast.remoting.loop import Timer

logger = logging.getLogger(__name__)


def create_reply_message(request: MessageExt, body: bytes) -> Message:
    """The reply to a message that came from `Producer.request`; any producer may send it.

    The broker hands it to the client that asked, while that still waits. Raises ConfigError for a
    message that is no request.
    """
    properties = request.properties
    needed = (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.CLUSTER)
    missing = [name for name in needed if name not in properties]
    if missing:
        raise ConfigError(
            f"message {request.msg_id} of topic {request.topic!r} is no request: "
            f"it lacks {', '.join(missing)}"
        )
    reply = Message(f"{properties['CLUSTER']}_REPLY_TOPIC", body)
    reply.system_properties = {props.MSG_TYPE: "reply"} | {
        name: properties[name]
        for name in (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL)
        if name in properties
    }
    return reply


class Requests:
    """The requests of one started producer that wait for their replies. Any thread."""

    def __init__(self, instance: ClientInstance, sender: Sender) -> None:
        self._instance = instance
        self._sender = sender
        self._lock = threading.Lock()
        self._open: set[_Request] = set()
        self._announced: set[str] = set()  # topics whose brokers know this client

    def send(self, out: Outgoing, timeout: float, queue: MessageQueue | None) -> Future[MessageExt]:
        """Send a request; the future gets the reply, or the reason why there is none."""
        deadline = time.monotonic() + timeout
        request = _Request(self, out.topic, timeout)
        out.properties[props.CORRELATION_ID] = request.correlation_id
        out.properties[props.REPLY_TO_CLIENT] = self._instance.client_id
        out.properties[props.TTL] = str(round(timeout * 1000))
        with self._lock:
            self._open.add(request)
        self._instance.pushed.expect(request.correlation_id, request.on_reply)
        request.timer = self._instance.loop.call_later(timeout, request.on_time)
        try:
            self._announce(out.topic)
        except RocketMQError as error:
            request.fail(error)
            return request.future
        left = deadline - time.monotonic()
        if left > 0:
            self._sender.send_async(out, left, queue, request.on_sent)
        else:
            request.on_time()
        return request.future

    def _announce(self, topic: str) -> None:
        """A broker pushes replies to producers it knows: tell those that a new topic brings."""
        if topic in self._announced or self._instance.loop.in_loop:
            return
        self._sender.routes.queues(topic)
        self._instance.heartbeat()
        self._announced.add(topic)

    def close(self, request: _Request) -> bool:
        """Whether the caller is the one that ends the request; true once."""
        with self._lock:
            if request not in self._open:
                return False
            self._open.remove(request)
        self._instance.pushed.forget(request.correlation_id)
        if request.timer is not None:
            request.timer.cancel()
        return True

    def fail_open(self) -> None:
        """The producer ends: so do its requests."""
        with self._lock:
            requests = list(self._open)
        for request in requests:
            request.fail(ClientStateError("the producer was shut down"))


class _Request:
    """One request: ended by its reply, by an error of the send, or by its time."""

    __slots__ = ("_owner", "_sent", "_timeout", "_topic", "correlation_id", "future", "timer")

    def __init__(self, owner: Requests, topic: str, timeout: float) -> None:
        self._owner = owner
        self._topic = topic
        self._timeout = timeout
        self._sent = False
        self.timer: Timer | None = None
        self.correlation_id = str(uuid.uuid4())
        self.future: Future[MessageExt] = Future()
        self.future.set_running_or_notify_cancel()

    def on_sent(self, _: SendResult | None, error: Exception | None) -> None:
        """The broker has the request, or it will never have it."""
        if error is not None:
            self.fail(error)
            return
        self._sent = True

    def on_reply(self, message: MessageExt) -> None:
        """Event loop."""
        if self._owner.close(self):
            self.future.set_result(message)

    def on_time(self) -> None:
        """Event loop."""
        where = "" if self._sent else "; the broker has not confirmed the request either"
        self.fail(
            ReplyTimeout(
                f"no reply to request {self.correlation_id} for topic {self._topic!r} within "
                f"{self._timeout:.3f} s{where}"
            )
        )

    def fail(self, error: Exception) -> None:
        """End without a reply. Does nothing after the end."""
        if self._owner.close(self):
            self.future.set_exception(error)
