"""Which queue a message goes to."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rocketmq_fast._core import java_hash
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import Message, MessageQueue

# fn(writable queues, sorted by broker name and queue id; the message; the caller's argument).
QueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]

_INT_MAX = 2**31 - 1


def _java_hash_code(value: object) -> int:
    """hashCode() of a Java String, Integer or Long: the same in every process, as hash() is not."""
    if isinstance(value, str):
        return java_hash(value)
    if isinstance(value, int):
        if -_INT_MAX - 1 <= value <= _INT_MAX:
            return int(value)
        low = (value ^ ((value & 0xFFFFFFFFFFFFFFFF) >> 32)) & 0xFFFFFFFF
        return low - 2**32 if low > _INT_MAX else low
    raise ConfigError(
        f"select_by_hash needs arg as str or int, not {type(value).__name__}: "
        "the queue of a key must be the same in every process"
    )


def select_by_hash(queues: Sequence[MessageQueue], _: Message, arg: object) -> MessageQueue:
    """Same `arg`, same queue, while the queues stay; the queue that Java's selector takes.

    Raises ConfigError for an arg that is neither str nor int.
    """
    return queues[abs(_java_hash_code(arg)) % len(queues)]


def select_at_random(queues: Sequence[MessageQueue], *_: object) -> MessageQueue:
    """Any queue."""
    return random.choice(queues)


class RoundRobin:
    """Queues in turn; each thread has its own place in the round, as in the Java client."""

    def __init__(self) -> None:
        self._local = threading.local()

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue; with `avoid`, the next one of another broker if there is one."""
        local = self._local
        try:
            index: int = local.index
        except AttributeError:
            index = random.randrange(1 << 16)
        if avoid is not None:
            for _ in range(len(queues)):
                index += 1
                queue = queues[index % len(queues)]
                if queue.broker_name != avoid:
                    local.index = index
                    return queue
        local.index = index = index + 1
        return queues[index % len(queues)]
