"""What a Python worker of Spark keeps from one task to the next."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

_MOST = 4
_Key = TypeVar("_Key")
_Client = TypeVar("_Client")


class Kept(Generic[_Key, _Client]):
    """Clients by what they are made of, the few that were used last. Any thread.

    The process id is part of the key: a forked child must not share its parent's sockets.
    """

    def __init__(self, make: Callable[[_Key], _Client], end: Callable[[_Client], None]) -> None:
        self._make = make
        self._end = end
        self._clients: OrderedDict[tuple[int, _Key], _Client] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, key: _Key, *, fresh: bool = False) -> _Client:
        """The client that is there, or a new one; `fresh` replaces it, as a retried task does.

        Raises what making one raises.
        """
        pid = os.getpid()
        place = pid, key
        # A Python worker runs one task at a time, so nobody else uses what is ended here.
        gone: list[_Client] = []
        try:
            with self._lock:
                if fresh and place in self._clients:
                    logger.info("a retried task gets new connections")
                    gone.append(self._clients.pop(place))
                if place not in self._clients:
                    self._clients[place] = self._make(key)
                self._clients.move_to_end(place)
                found = self._clients[place]
                while len(self._clients) > _MOST:
                    (owner, _), old = self._clients.popitem(last=False)
                    gone += [old] if owner == pid else []
        finally:
            for old in gone:
                self._end(old)
        return found

    def clear(self) -> None:
        """End all of this process."""
        with self._lock:
            mine = [old for (owner, _), old in self._clients.items() if owner == os.getpid()]
            self._clients.clear()
        for old in mine:
            self._end(old)
