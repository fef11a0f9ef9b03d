"""How much of what waits a micro-batch takes."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_fast.model import MessageQueue


def share(lags: Mapping[MessageQueue, int], limit: int, turn: int) -> dict[MessageQueue, int]:
    """Split `limit` messages, at least 1, over queues in proportion to what waits in them.

    Never more than the limit, exactly it where more waits. Each queue with messages gets one or
    more; where the limit is too small for that, others get theirs with the next `turn`.
    """
    waiting = {queue: lags[queue] for queue in sorted(lags) if lags[queue] > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    queues = list(waiting)
    if limit <= len(queues):
        first = turn * limit
        return {queues[(first + number) % len(queues)]: 1 for number in range(limit)}
    # One each, and of the rest what the lag says: exact, as integers.
    spare, weight = limit - len(queues), total - len(queues)
    shares = {queue: 1 + spare * (lag - 1) // weight for queue, lag in waiting.items()}
    left = limit - sum(shares.values())
    by_fraction = sorted(queues, key=lambda queue: -(spare * (waiting[queue] - 1) % weight))
    for queue in by_fraction[:left]:
        shares[queue] += 1
    return shares


def records_of_bytes(
    limit: int, lags: Mapping[MessageQueue, int], sizes: Mapping[MessageQueue, float]
) -> int:
    """How many messages come to about `limit` bytes, shared as `share` does; at least 1.

    `sizes` are mean bytes of messages of some queues, the others count as their mean.
    """
    known = [queue for queue in sizes if lags.get(queue, 0) > 0]
    records = sum(lags[queue] for queue in known)
    if records == 0:
        return max(1, limit)
    mean = sum(lags[queue] * sizes[queue] for queue in known) / records
    return max(1, int(limit / max(mean, 1.0)))
