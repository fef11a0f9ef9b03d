"""From what the user chose to offsets: with the brokers' help, on the driver."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping

from rocketmq_fast.errors import ConfigError, MessageDecodeError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.spark.brokers import Brokers
from rocketmq_fast.spark.offsets import COMMITTED, EARLIEST, LATEST, AtTime, OffsetSpec, where
from rocketmq_fast.spark.options import ReadOptions

logger = logging.getLogger(__name__)

Bounds = Mapping[MessageQueue, tuple[int, int]]
# A message that is not there any more is older than all that are.
_DELETED = -1


def resolve_spec(
    brokers: Brokers,
    spec: OffsetSpec,
    bounds: Bounds,
    addresses: Mapping[str, str],
    options: ReadOptions,
    now: int,
) -> dict[MessageQueue, int]:
    """The offset of each queue that holds [min, max).

    Raises ConfigError for a queue that does not exist, or where the user wants an error for a queue
    without a committed offset or without a message after a time.
    """
    spec.check_queues(bounds.keys())
    positions = {queue: spec.position(queue) for queue in bounds}
    wanted = [queue for queue, position in positions.items() if position == COMMITTED]
    committed = brokers.committed(options.group, wanted, addresses) if wanted else {}
    times = {
        queue: position.at(now)
        for queue, position in positions.items()
        if isinstance(position, AtTime)
    }
    found = _offsets_at(brokers, times, bounds, addresses, options)
    for queue, position in positions.items():
        low, high = bounds[queue]
        if isinstance(position, AtTime):
            if (
                found[queue] == high
                and options.time_strategy == "error"
                and spec.option.startswith("starting")
            ):
                raise ConfigError(
                    f"option {spec.option!r}: {where(queue)} has no message stored at or after "
                    f"{times[queue]} ms; startingOffsetsByTimestampStrategy=latest reads on"
                )
        elif position == COMMITTED:
            found[queue] = _committed(queue, committed, low, high, options)
        elif position == EARLIEST:
            found[queue] = low
        else:
            found[queue] = high if position == LATEST else position
    return found


def moves(spec: OffsetSpec, now: int) -> bool:
    """Whether the same choice can mean another place when it is resolved again later."""
    return any(
        position in (LATEST, COMMITTED)
        if not isinstance(position, AtTime)
        else position.before_now or position.ms >= now
        for position in (spec.default, *spec.topics.values(), *spec.queues.values())
    )


def _committed(
    queue: MessageQueue,
    committed: Mapping[MessageQueue, int],
    low: int,
    high: int,
    options: ReadOptions,
) -> int:
    offset = committed.get(queue, -1)
    if offset >= 0:
        return offset
    if options.group_fallback == "error":
        raise ConfigError(
            f"group {options.group!r} has no committed offset in {where(queue)}; "
            "groupOffsetFallback=earliest or latest says where to start"
        )
    return low if options.group_fallback == "earliest" else high


def _offsets_at(
    brokers: Brokers,
    times: Mapping[MessageQueue, int],
    bounds: Bounds,
    addresses: Mapping[str, str],
    options: ReadOptions,
) -> dict[MessageQueue, int]:
    """The first offset stored at or after a time, of each queue; max where there is none.

    Brokers answer with a message near the time, so its neighbours are looked at. All queues are
    searched at once, a round of pulls of one message after another.
    """
    found: dict[MessageQueue, int] = {}
    near = brokers.near_time(times, addresses) if times else {}
    searches: dict[MessageQueue, Generator[int, int, int]] = {}
    probes: dict[MessageQueue, int] = {}
    for queue, guess in near.items():
        searches[queue] = first_at_or_after(*bounds[queue], guess, times[queue])
        _advance(queue, searches, probes, found, None)
    while probes:
        batches = brokers.peek(options.group, probes, addresses)
        for queue in list(probes):
            batch = batches.get(queue)
            if batch is None:
                stored = _DELETED
            elif len(batch) == 0:
                raise MessageDecodeError(
                    f"{where(queue)}, offset {probes[queue]}: the time of a corrupt message was "
                    f"asked for: {batch.errors[0][2] if batch.errors else 'empty answer'}"
                )
            else:
                stored = int(batch.store_timestamps[0])
            _advance(queue, searches, probes, found, stored)
    return found


def _advance(
    queue: MessageQueue,
    searches: Mapping[MessageQueue, Generator[int, int, int]],
    probes: dict[MessageQueue, int],
    found: dict[MessageQueue, int],
    stored: int | None,
) -> None:
    """One step of a queue's search: a further probe, or the end of it."""
    search = searches[queue]
    try:
        probes[queue] = next(search) if stored is None else search.send(stored)
    except StopIteration as end:
        probes.pop(queue, None)
        found[queue] = end.value


def first_at_or_after(low: int, high: int, guess: int, wanted: int) -> Generator[int, int, int]:
    """Search [low, high) for the first offset whose time is not before `wanted`; `high` for none.

    Yields offsets and is sent their times, which do not go down. Looks near the guess first, in
    steps that double until the place is passed, then between.
    """
    below, above = low, high  # the answer is in [below, above]
    probe = min(max(guess, low), high - 1)
    step = 1
    first: bool | None = None
    while below < above:
        after = (yield probe) >= wanted
        if after:
            above = probe
        else:
            below = probe + 1
        if first is None:
            first = after
        if after == first and step:
            probe = above - step if after else below + step - 1
            step *= 2
        else:
            step = 0
            probe = (below + above) // 2
        probe = min(max(probe, below), above - 1)
    return below
