"""Running clients at the ends of a process: interpreter exit, and fork.

A started client is held here, so that a consumer without a variable does not vanish. At exit each
one is shut down in a hurry. A forked child has none of its parent's threads: there the clients are
forgotten and their sockets closed, and they can be started anew.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)


class RunningClient(Protocol):
    """A consumer, producer or admin between start and shutdown."""

    def shutdown_at_exit(self) -> None:
        """Shut down within about a second."""

    def forget_after_fork(self) -> None:
        """Be as before start. Runs in the child, where no other thread exists."""


_running: dict[RunningClient, None] = {}
_lock = threading.Lock()
_child_hooks: list[Callable[[], None]] = []


def hold(client: RunningClient) -> None:
    """Keep a client that was started."""
    with _lock:
        _running[client] = None


def let_go(client: RunningClient) -> None:
    """Forget a client that was shut down."""
    with _lock:
        _running.pop(client, None)


def in_child(hook: Callable[[], None]) -> Callable[[], None]:
    """Register what a module does in a forked child, after the clients forgot their state."""
    _child_hooks.append(hook)
    return hook


def _at_exit() -> None:
    # The last first: a listener may send with a producer that was started before its consumer.
    for client in reversed(list(_running)):
        try:
            client.shutdown_at_exit()
        except Exception:
            logger.exception("shutting down %r at exit", client)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    clients = list(_running)
    _running.clear()
    for client in clients:
        client.forget_after_fork()
    for hook in _child_hooks:
        hook()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
