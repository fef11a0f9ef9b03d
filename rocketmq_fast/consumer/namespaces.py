"""What a consumer in a namespace gives to its program: the names without the prefix."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rocketmq_fast._core import MessageExt, RemotingCommand
from rocketmq_fast._core.consume import ConsumeContext, OrderlyContext
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.client.records import plain_records
from rocketmq_fast.consumer.async_listener import is_async_listener


def plain_answer(answer: RemotingCommand, names: Namespace, check_crc: bool) -> RemotingCommand:
    """A pull answer as `plain_records` makes it."""
    body = plain_records(answer.body, names, check_crc)
    return RemotingCommand(answer.code, answer.ext_fields, body)


def plain_listener(listener: Callable[..., Any], names: Namespace) -> Callable[..., Any]:
    """A listener whose context tells the queue under the name that the program knows."""
    if not names:
        return listener
    if is_async_listener(listener):
        called: Callable[[list[MessageExt], ConsumeContext], Awaitable[object]] = listener

        async def awaited(messages: list[MessageExt], context: ConsumeContext) -> object:
            own = ConsumeContext(names.unwrap_queue(context.message_queue))
            try:
                return await called(messages, own)
            finally:
                _take_over(context, own)

        return awaited

    def call(messages: list[MessageExt], context: ConsumeContext | OrderlyContext) -> object:
        queue = names.unwrap_queue(context.message_queue)
        if isinstance(context, OrderlyContext):
            context.message_queue = queue
            return listener(messages, context)
        own = ConsumeContext(queue)
        try:
            return listener(messages, own)
        finally:
            _take_over(context, own)

    return call


def _take_over(context: ConsumeContext, own: ConsumeContext) -> None:
    """What the listener said, where the consume service looks."""
    context.ack_index = own.ack_index
    context.delay_level_when_next_consume = own.delay_level_when_next_consume
