"""What a program can see of, and forbid to, a producer; and the trace, which is such a hook."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketmq_fast._core import MessageExt
from rocketmq_fast.client.trace import TraceDispatcher, record
from rocketmq_fast.model import (
    LocalTransactionState,
    Message,
    MessageQueue,
    SendResult,
    SendStatus,
)
from rocketmq_fast.producer.outgoing import Outgoing
from rocketmq_fast.protocol import props

logger = logging.getLogger(__name__)

# Java's MessageType, in its order.
MESSAGE_TYPES = ("Normal_Msg", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg")
NORMAL, HALF, COMMIT, DELAYED = MESSAGE_TYPES
_DEFAULT_REGION = "DefaultRegion"


@dataclass(slots=True)
class SendContext:
    """One attempt to send. `messages` are those of a batch, else one.

    message_type: one of MESSAGE_TYPES.
    communication_mode: "SYNC", "ASYNC" or "ONEWAY". After the attempt either `send_result` or
    `exception` is set; neither for a one-way send. `data` is the hooks' own.
    """

    producer_group: str
    messages: Sequence[Message]
    message_queue: MessageQueue
    broker_addr: str
    communication_mode: str
    msg_id: str
    message_type: str = NORMAL
    send_result: SendResult | None = None
    exception: Exception | None = None
    data: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True)
class EndTransactionContext:
    """A decision that is about to be told to the broker.

    `message` is what was sent, or the half message that the broker asks about.
    """

    producer_group: str
    message: Message | MessageExt
    broker_addr: str
    msg_id: str
    transaction_id: str | None
    state: LocalTransactionState
    from_transaction_check: bool


class SendMessageHook:
    """Override what is wanted. Exceptions are logged; both may run on the client's I/O thread."""

    def before_send(self, context: SendContext) -> None:
        """Before each attempt."""

    def after_send(self, context: SendContext) -> None:
        """After each attempt, with its result or exception."""


# May raise to keep a message from being sent; the exception goes to the sender.
CheckForbiddenHook = Callable[[SendContext], object]
EndTransactionHook = Callable[[EndTransactionContext], object]


class SendHooks:
    """The hooks of one started producer. Any thread."""

    def __init__(
        self,
        group: str,
        hooks: Sequence[SendMessageHook],
        forbid: Sequence[CheckForbiddenHook],
    ) -> None:
        self._group = group
        self._hooks = hooks
        self._forbid = forbid

    def begin(self, out: Outgoing, queue: MessageQueue, address: str, mode: str) -> SendContext:
        """Before an attempt. Raises what a hook raises that forbids it."""
        kind = HALF if props.TRAN_MSG in out.properties else NORMAL
        if props.DELAY in out.properties:
            kind = DELAYED
        context = SendContext(self._group, out.messages, queue, address, mode, out.msg_id, kind)
        for forbid in self._forbid:
            forbid(context)
        for hook in self._hooks:
            try:
                hook.before_send(context)
            except Exception:
                logger.exception("%s failed before a send", type(hook).__name__)
        return context

    def end(self, context: SendContext, result: SendResult | None, error: Exception | None) -> None:
        """After an attempt."""
        context.send_result, context.exception = result, error
        for hook in self._hooks:
            try:
                hook.after_send(context)
            except Exception:
                logger.exception("%s failed after a send", type(hook).__name__)


class SendTrace(SendMessageHook):
    """Writes a record of every send that was answered."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def before_send(self, context: SendContext) -> None:
        """Note when it began."""
        context.data[self] = time.time_ns() // 1_000_000

    def after_send(self, context: SendContext) -> None:
        """Write the record, unless the broker wants no trace."""
        result, first = context.send_result, context.messages[0]
        if result is None or not result.trace_on or first.topic == self._dispatcher.topic:
            return
        began = context.data[self]
        tags, keys = first.tags, first.keys
        if len(context.messages) > 1:
            tags = keys = None  # a batch as a whole has none
        text = record(
            "Pub", began, result.region_id, context.producer_group, first.topic, result.msg_id,
            tags, keys, context.broker_addr, sum(len(m.body) for m in context.messages),
            time.time_ns() // 1_000_000 - began, MESSAGE_TYPES.index(context.message_type),
            result.offset_msg_id, result.status is SendStatus.SEND_OK,
        )  # fmt: skip
        self._dispatcher.append(text, result.msg_id, _text(keys))

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Write the record of a decision."""
        message = context.message
        region = _DEFAULT_REGION
        if isinstance(message, MessageExt):
            region = message.properties.get(props.MSG_REGION, region)
        text = record(
            "EndTransaction", time.time_ns() // 1_000_000, region, context.producer_group,
            message.topic, context.msg_id, message.tags, message.keys, context.broker_addr,
            MESSAGE_TYPES.index(COMMIT), context.transaction_id, context.state.name,
            context.from_transaction_check,
        )  # fmt: skip
        self._dispatcher.append(text, context.msg_id, _text(message.keys))


def _text(keys: object) -> str | None:
    return None if keys is None else str(keys)
