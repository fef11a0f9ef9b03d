"""Which queues each member of a group gets. Results equal Java's, so that mixed groups agree.

A strategy is called with (group, own client id, queues, client ids), both lists sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue

AllocateStrategy = Callable[
    [str, str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]
]


def _own_index(cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]) -> int | None:
    """Own place among the members; None when not a member (yet): nothing is ours then."""
    if not cid:
        raise ConfigError("the own client id is empty")
    if not queues:
        raise ConfigError("there are no queues to allocate")
    if not cids:
        raise ConfigError("there are no members to allocate to")
    return list(cids).index(cid) if cid in cids else None


def allocate_average(
    _group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
) -> list[MessageQueue]:
    """AVG: neighbouring queues, the first members get one more when it does not divide."""
    index = _own_index(cid, queues, cids)
    if index is None:
        return []
    quotient, rest = divmod(len(queues), len(cids))
    size = 1 if len(queues) <= len(cids) else quotient + (1 if index < rest else 0)
    start = index * size if rest > 0 and index < rest else index * size + rest
    return list(queues[start : start + size])


def allocate_average_by_circle(
    _group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: queues dealt out one by one."""
    index = _own_index(cid, queues, cids)
    return [] if index is None else list(queues[index :: len(cids)])


STRATEGIES: dict[str, AllocateStrategy] = {
    "AVG": allocate_average,
    "AVG_BY_CIRCLE": allocate_average_by_circle,
}


def utf16_order(text: str) -> bytes:
    """Sort key of Java's String.compareTo: UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def strategy_of(value: object) -> AllocateStrategy:
    """The strategy of a Java name or a callable. Raises ConfigError."""
    if callable(value):
        return value
    strategy = STRATEGIES.get(value) if isinstance(value, str) else None
    if strategy is None:
        raise ConfigError(
            f"allocate_message_queue_strategy {value!r} is neither callable nor one of "
            f"{', '.join(sorted(STRATEGIES))}"
        )
    return strategy
