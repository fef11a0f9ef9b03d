"""What a program can see of listener calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rocketmq_fast._core import MessageExt
from rocketmq_fast.model import MessageQueue

# Java's ConsumeReturnType, in its order.
RETURN_TYPES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")


@dataclass(slots=True)
class ConsumeHookContext:
    """One listener call. `data` is the hooks' own; the rest below is set after the call.

    return_type: one of RETURN_TYPES; TIME_OUT for a call that took longer than consume_timeout,
    whatever it returned.
    """

    consumer_group: str
    messages: list[MessageExt]
    message_queue: MessageQueue
    data: dict[Any, Any] = field(default_factory=dict)
    status: object = None
    success: bool = False
    return_type: str = ""
    exception: BaseException | None = None


class ConsumeMessageHook:
    """Override what is wanted. Called on the thread of the listener; exceptions are logged."""

    def before_consume(self, context: ConsumeHookContext) -> None:
        """Before each call of the listener."""

    def after_consume(self, context: ConsumeHookContext) -> None:
        """After each call, with what it returned or raised."""
