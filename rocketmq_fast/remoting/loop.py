"""One thread that waits for sockets and timers. Callbacks run on it and must not block."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

logger = logging.getLogger(__name__)


class SocketHandler(Protocol):
    """What the loop calls for a registered socket."""

    def on_readable(self) -> None:
        """Bytes, an end or an error wait to be read."""

    def on_writable(self) -> None:
        """The socket takes bytes again."""


class Timer:
    """A callback that waits for its time. `cancel` may be called from any thread."""

    __slots__ = ("_args", "_callback", "cancelled", "when")

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self.cancelled = False

    def cancel(self) -> None:
        """Never run the callback. Does nothing once it ran."""
        self.cancelled = True
        self._callback = None
        self._args = ()

    def run(self) -> None:
        """Called by the loop."""
        callback, args = self._callback, self._args
        if callback is not None:
            callback(*args)


class EventLoop:
    """A selector loop on its own thread.

    `call_soon`, `call_later` and `stop` may be called from any thread; the rest on the loop's
    thread or before `start`. Times are monotonic, so that a jump of the wall clock moves no timer.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._selector = selectors.DefaultSelector()
        self._wake_receive, self._wake_send = socket.socketpair()
        self._wake_receive.setblocking(False)
        self._wake_send.setblocking(False)
        self._selector.register(self._wake_receive, selectors.EVENT_READ, None)
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._sequence = itertools.count()
        self._woken = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. Does nothing when it runs already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    @property
    def in_loop(self) -> bool:
        """Whether the caller is on the loop's thread."""
        return threading.current_thread() is self._thread

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Run the callback on the loop's thread as soon as possible."""
        self._ready.append((callback, args))
        if not self._woken and threading.current_thread() is not self._thread:
            self._wake()

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Run the callback on the loop's thread after `delay` seconds."""
        timer = Timer(time.monotonic() + delay, callback, args)
        if threading.current_thread() is self._thread:
            self._schedule(timer)
        else:
            self.call_soon(self._schedule, timer)
        return timer

    def _schedule(self, timer: Timer) -> None:
        heapq.heappush(self._timers, (timer.when, next(self._sequence), timer))

    def _wake(self) -> None:
        self._woken = True
        try:
            self._wake_send.send(b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups already
        except OSError:
            if not self._stopping:
                raise

    def register(self, sock: socket.socket, handler: SocketHandler, *, write: bool = False) -> None:
        """Watch a socket for reading, and for writing when asked. Loop thread only."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        self._selector.register(sock, events, handler)

    def watch_write(self, sock: socket.socket, handler: SocketHandler, write: bool) -> None:
        """Start or stop watching a registered socket for writing. Loop thread only."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        self._selector.modify(sock, events, handler)

    def unregister(self, sock: socket.socket) -> None:
        """Stop watching a socket. Loop thread only; must precede its close."""
        self._selector.unregister(sock)

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread after the callbacks that are due, and release everything.

        Called on the loop's own thread it only asks for the end.
        """
        self._stopping = True
        self._wake()
        thread = self._thread
        if thread is None:
            self._release()
        elif thread is not threading.current_thread():
            thread.join(timeout)
            if thread.is_alive():
                logger.warning("thread %s did not end within %.1f s", self._name, timeout)

    def abandon(self) -> None:
        """Close the loop's files in a forked child, whose copy of the thread does not exist."""
        self._stopping = True
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._release()

    def _release(self) -> None:
        self._selector.close()
        self._wake_receive.close()
        self._wake_send.close()

    def _run(self) -> None:
        try:
            while not self._stopping or self._ready:
                self._run_once()
        finally:
            self._release()

    def _run_once(self) -> None:
        timeout: float | None = None
        if self._ready or self._stopping:
            timeout = 0.0
        elif self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        for key, events in self._selector.select(timeout):
            handler = key.data
            if handler is None:
                self._drain_wakeups()
                continue
            if events & selectors.EVENT_READ:
                self._guard(handler.on_readable)
            if events & selectors.EVENT_WRITE:
                self._guard(handler.on_writable)
        if self._timers:
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                self._guard(timer.run)
        for _ in range(len(self._ready)):
            callback, args = self._ready.popleft()
            self._guard(callback, *args)

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):  # another round read it
            self._wake_receive.recv(4096)
        # Cleared after the read: a call that came in between found the flag set and sent nothing,
        # but it was queued before, so this round runs it. The other order would swallow the byte of
        # such a call and leave the flag set: nothing would wake the loop any more.
        self._woken = False

    @staticmethod
    def _guard(callback: Callable[..., object], *args: Any) -> None:
        """One callback's bug must not end the loop for all connections."""
        try:
            callback(*args)
        except Exception:
            logger.exception("callback %r failed", callback)
