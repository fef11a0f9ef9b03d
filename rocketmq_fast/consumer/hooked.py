"""Listener calls with hooks around them; the trace is such a hook."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from rocketmq_fast._core import MessageExt
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.sending import create_unique_id
from rocketmq_fast.client.trace import TraceDispatcher, record
from rocketmq_fast.consumer.async_listener import is_async_listener
from rocketmq_fast.consumer.hooks import RETURN_TYPES, ConsumeHookContext, ConsumeMessageHook
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.model import ConsumeStatus, MessageQueue, OrderlyStatus
from rocketmq_fast.protocol import props

logger = logging.getLogger(__name__)

_TOGETHER = 32
_SUCCESS = (ConsumeStatus.CONSUME_SUCCESS, OrderlyStatus.SUCCESS, OrderlyStatus.COMMIT)


def hooked_listener(
    listener: Callable[..., Any],
    hooks: Sequence[ConsumeMessageHook],
    group: str,
    timeout_seconds: float,
) -> Callable[..., Any]:
    """The listener with the hooks around it; the listener itself when there are none."""
    if not hooks:
        return listener
    calls = _Hooked(hooks, group, timeout_seconds)
    if is_async_listener(listener):
        called = listener

        async def awaited(messages: list[MessageExt], context: Any) -> object:
            hooked, began = calls.before(messages, context.message_queue)
            try:
                status = await called(messages, context)
            except BaseException as error:
                calls.after(hooked, began, None, error)
                raise
            calls.after(hooked, began, status, None)
            return status

        return awaited

    def call(messages: list[MessageExt], context: Any) -> object:
        hooked, began = calls.before(messages, context.message_queue)
        try:
            status = listener(messages, context)
        except BaseException as error:
            calls.after(hooked, began, None, error)
            raise
        calls.after(hooked, began, status, None)
        return status

    return call


class _Hooked:
    """Calls the hooks around a listener call."""

    def __init__(
        self, hooks: Sequence[ConsumeMessageHook], group: str, timeout_seconds: float
    ) -> None:
        self._hooks = hooks
        self._group = group
        self._timeout = timeout_seconds

    def before(
        self, messages: list[MessageExt], queue: MessageQueue
    ) -> tuple[ConsumeHookContext, float]:
        context = ConsumeHookContext(self._group, messages, queue)
        for hook in self._hooks:
            try:
                hook.before_consume(context)
            except Exception:
                logger.exception("%s failed before a listener call", type(hook).__name__)
        return context, time.monotonic()

    def after(
        self,
        context: ConsumeHookContext,
        began: float,
        status: object,
        error: BaseException | None,
    ) -> None:
        context.status, context.exception = status, error
        context.success = status in _SUCCESS
        context.return_type = self._return_type(context, time.monotonic() - began)
        for hook in self._hooks:
            try:
                hook.after_consume(context)
            except Exception:
                logger.exception("%s failed after a listener call", type(hook).__name__)

    def _return_type(self, context: ConsumeHookContext, seconds: float) -> str:
        if context.exception is not None:
            return "EXCEPTION"
        if context.status is None:
            return "RETURNNULL"
        if seconds >= self._timeout:
            return "TIME_OUT"
        return "SUCCESS" if context.success else "FAILED"


class ConsumerHooks:
    """The hooks of one started consumer, its trace among them."""

    def __init__(self, instance: ClientInstance, group: str, options: PushConsumerOptions) -> None:
        self._group = options.names.unwrap(group)
        self._timeout = options.consume_timeout_seconds
        self._hooks: Sequence[ConsumeMessageHook] = options.consume_message_hooks
        self._trace: TraceDispatcher | None = None
        if options.enable_msg_trace:
            self._trace = TraceDispatcher(
                instance, self._group, "CONSUME", options.customized_trace_topic
            )
            self._hooks = (*self._hooks, ConsumeTrace(self._trace))

    def around(self, listener: Callable[..., Any]) -> Callable[..., Any]:
        """The listener with the hooks around it; itself when there are none."""
        return hooked_listener(listener, self._hooks, self._group, self._timeout)

    def start(self) -> None:
        """Send trace records from now on."""
        if self._trace is not None:
            self._trace.start()

    def stop(self) -> None:
        """Send those that are left, within a few seconds."""
        if self._trace is not None:
            self._trace.stop()


class PollTrace:
    """The trace of a pull consumer: what a poll gives is told as a call that succeeded at once.

    Java tells of a message when it was fetched, whether it is ever given or not.
    """

    def __init__(self, instance: ClientInstance, group: str, topic: str | None) -> None:
        self._group = group
        self._dispatcher = TraceDispatcher(instance, group, "CONSUME", topic)
        self._trace = ConsumeTrace(self._dispatcher)
        self.start = self._dispatcher.start
        self.stop = self._dispatcher.stop

    def polled(self, messages: list[MessageExt], queue: MessageQueue) -> None:
        """A poll gave these."""
        context = ConsumeHookContext(
            self._group, messages, queue, success=True, return_type="SUCCESS"
        )
        self._trace.before_consume(context)
        self._trace.after_consume(context)


class ConsumeTrace(ConsumeMessageHook):
    """Writes two records of every message that a listener gets."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def _append(self, records: list[tuple[str, MessageExt]]) -> None:
        """Line records up, some together: there is room for a number of lines."""
        for start in range(0, len(records), _TOGETHER):
            some = records[start : start + _TOGETHER]
            words = [word for _, message in some for word in (message.msg_id, message.keys)]
            self._dispatcher.append("".join(text for text, _ in some), *words)

    def before_consume(self, context: ConsumeHookContext) -> None:
        """Write that the call begins."""
        request_id, began = create_unique_id(), time.time_ns() // 1_000_000
        records = []
        for message in context.messages:
            properties = message.properties
            if properties.get(props.TRACE_ON) == "false":
                continue
            text = record(
                "SubBefore", began, properties.get(props.MSG_REGION), context.consumer_group,
                request_id, message.msg_id, message.reconsume_times, message.keys,
            )  # fmt: skip
            records.append((text, message))
        self._append(records)
        context.data[self] = request_id, began, [message for _, message in records]

    def after_consume(self, context: ConsumeHookContext) -> None:
        """Write how it ended."""
        request_id, began, traced = context.data[self]
        now = time.time_ns() // 1_000_000
        records = []
        for message in traced:
            text = record(
                "SubAfter", request_id, message.msg_id,
                (now - began) // len(context.messages), context.success, message.keys,
                RETURN_TYPES.index(context.return_type), now, context.consumer_group,
            )  # fmt: skip
            records.append((text, message))
        self._append(records)
