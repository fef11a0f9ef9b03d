"""Queue locks of orderly consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class LockKey(NamedTuple):
    """A queue as a lock request names it."""

    topic: str
    broker_name: str
    queue_id: int


class LockTable:
    """Locks by group and queue, owned by client ids; one that is not renewed expires.

    `clock` is monotonic, in milliseconds: a jump of the wall clock must not free a lock.
    """

    def __init__(self, expiry_ms: int, clock: Callable[[], int]) -> None:
        self._expiry_ms = expiry_ms
        self._clock = clock
        self._groups: dict[str, dict[LockKey, tuple[str, int]]] = {}

    def lock(self, group: str, client_id: str, keys: Iterable[LockKey]) -> list[LockKey]:
        """Lock or renew; returns the queues that the client holds now."""
        now = self._clock()
        locks = self._groups.setdefault(group, {})
        held = []
        for key in keys:
            owner = locks.get(key)
            if owner is None or owner[0] == client_id or now - owner[1] > self._expiry_ms:
                locks[key] = (client_id, now)
                held.append(key)
        return held

    def unlock(self, group: str, client_id: str, keys: Iterable[LockKey]) -> None:
        """Release the queues that the client holds."""
        locks = self._groups.get(group, {})
        for key in keys:
            if locks.get(key, ("", 0))[0] == client_id:
                del locks[key]

    def owner(self, group: str, key: LockKey) -> str | None:
        """Return who holds a queue."""
        held = self._groups.get(group, {}).get(key)
        if held is None or self._clock() - held[1] > self._expiry_ms:
            return None
        return held[0]

    def forget(self, group: str | None = None) -> None:
        """Drop all locks, of one group or of all: a broker that restarted knows none."""
        if group is None:
            self._groups.clear()
        else:
            self._groups.pop(group, None)
