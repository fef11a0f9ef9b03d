"""One framed TCP connection on an event loop. Client and server use the same class."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

from rocketmq_fast._core import FrameSplitter, RemotingCommand, encode_frame
from rocketmq_fast._core.frame import NATIVE_SOCKETS, send_small
from rocketmq_fast.errors import CodecError, ConnectionClosed
from rocketmq_fast.remoting.loop import EventLoop

logger = logging.getLogger(__name__)

CommandCallback = Callable[["Connection", RemotingCommand], None]
CloseCallback = Callable[["Connection", Exception], None]

# What is received at once, and how often, before other sockets get their turn.
_RECEIVE_BYTES = 1 << 18
_RECEIVE_ROUNDS = 8
_WOULD_BLOCK = (
    BlockingIOError,
    InterruptedError,
    ssl.SSLWantReadError,
    ssl.SSLWantWriteError,
)
# Windows has no sendmsg; elsewhere one call takes at most IOV_MAX (1024 on Linux) parts.
_GATHER_PARTS = 512 if hasattr(socket.socket, "sendmsg") else 1
_SMALL_BYTES = 1 << 14  # of requests that leave without a change of the GIL


class Connection:
    """A connected socket that sends and receives commands.

    `on_command` and `on_close` run on the loop's thread; `on_close` runs exactly once, with the
    reason. `send` and `close` may be called from any thread. `address` is "host:port" of the peer.
    """

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        address: str,
        on_command: CommandCallback,
        on_close: CloseCallback,
    ) -> None:
        # One TLS session serves both directions, so it is touched under the send lock only; it
        # cannot gather parts, and it may hold bytes that the selector does not know of.
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._native = NATIVE_SOCKETS and not self._tls
        self._gather_parts = 1 if self._tls else _GATHER_PARTS
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address = address
        self.last_active = time.monotonic()
        self.last_received = self.last_active
        # When the frame that is not complete yet began to come, monotonic; None without one.
        self.partial_since: float | None = None
        self._loop = loop
        self._sock = sock
        self._on_command = on_command
        self._on_close = on_close
        self._splitter = FrameSplitter()
        self._send_lock = threading.Lock()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._corked = False  # what is sent waits for `_uncork`
        self._watching = False  # what is unsent waits for the socket to have room
        self._closed = False
        self._heard = False  # whether the peer ever sent anything

    def start(self) -> None:
        """Begin to receive. Any thread."""
        self._loop.call_soon(self._register)

    def _register(self) -> None:
        if not self._closed:
            self._loop.register(self._sock, self)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._closed

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the peer to read; a server uses it to stop feeding a slow one."""
        return self._unsent_bytes

    @property
    def partial_bytes(self) -> int:
        """Received bytes of a frame that is not complete yet."""
        return self._splitter.pending

    @property
    def local_address(self) -> tuple[str, int]:
        """(ip, port) of this side."""
        name = self._sock.getsockname()
        return str(name[0]), int(name[1])

    def send_command(self, command: RemotingCommand) -> None:
        """Encode and send. Raises ConnectionClosed, HeaderError or FrameError."""
        self.send(encode_frame(command))

    def send(self, *parts: bytes | memoryview) -> None:
        """Send the parts in order, as one unit; what the socket does not take now is queued.

        Raises ConnectionClosed when the connection has ended.
        """
        with self._send_lock:
            if self._closed:
                raise ConnectionClosed(f"connection to {self.address} is closed", self.address)
            if self._corked or self._unsent:
                self._queue(parts)
                return
            if len(parts) > self._gather_parts:
                parts = (b"".join(parts),)
            # Off the loop: other threads may go on meanwhile, and no listener waits for this one.
            try:
                sent = self._sock.send(parts[0]) if len(parts) == 1 else self._sock.sendmsg(parts)
            except _WOULD_BLOCK:
                sent = 0
            except OSError as error:
                self._loop.call_soon(self._close, self._closed_error(error))
                raise self._closed_error(error) from error
            self.last_active = time.monotonic()
            if len(parts) == 1 and sent == len(parts[0]):
                return
            self._queue(parts, sent)
            if self._unsent:
                self._watching = True
                self._loop.call_soon(self._watch_write)

    def _queue(self, parts: tuple[bytes | memoryview, ...], skip: int = 0) -> None:
        for part in parts:
            size = len(part)
            if skip >= size:
                skip -= size
                continue
            view = memoryview(part)[skip:]
            skip = 0
            self._unsent.append(view)
            self._unsent_bytes += len(view)

    def _closed_error(self, error: Exception) -> ConnectionClosed:
        text = f"connection to {self.address} ended: {error}{self._hint()}"
        closed = ConnectionClosed(text, self.address)
        closed.__cause__ = error
        return closed

    def _hint(self) -> str:
        """What a peer may mean that ends the connection without a word."""
        if self._heard or self._tls:
            return ""
        return " (it sent nothing at all, as a server does that wants TLS: use_tls)"

    def _watch_write(self) -> None:
        if not self._closed:
            self._loop.watch_write(self._sock, self, True)

    def _send_queued(self) -> int:
        """Give the socket as many queued parts as one call takes. Returns the bytes it took."""
        if self._native and self._unsent_bytes <= _SMALL_BYTES:
            return send_small(self._sock.fileno(), b"".join(self._unsent))
        if len(self._unsent) == 1 or self._gather_parts == 1:
            return self._sock.send(self._unsent[0])
        return self._sock.sendmsg(islice(self._unsent, _GATHER_PARTS))

    def _send_unsent(self) -> bool:
        """Send what was queued, as far as the socket takes it. Send lock held; loop thread."""
        while self._unsent:
            try:
                sent = self._send_queued()
            except _WOULD_BLOCK:
                return False
            except OSError as error:
                self._loop.call_soon(self._close, self._closed_error(error))
                return False
            self.last_active = time.monotonic()
            self._unsent_bytes -= sent
            while sent:
                first = self._unsent[0]
                if sent < len(first):
                    self._unsent[0] = first[sent:]
                    break
                sent -= len(first)
                self._unsent.popleft()
        return True

    def on_writable(self) -> None:
        """Send what was queued. Loop thread."""
        with self._send_lock:
            if not self._closed and self._send_unsent():
                self._watching = False
                self._loop.watch_write(self._sock, self, False)

    def _uncork(self) -> None:
        with self._send_lock:
            self._corked = False
            if not (self._closed or self._watching or self._send_unsent()):
                self._watching = True
                self._watch_write()

    def _receive(self) -> tuple[int, list[RemotingCommand]]:
        """Bytes received, 0 at the end of the stream, and the commands that they completed."""
        if self._native:
            return self._splitter.receive(self._sock.fileno(), _RECEIVE_BYTES)
        room = self._splitter.get_buffer()
        with self._send_lock:
            received = 0 if self._closed else self._sock.recv_into(room)
        return received, self._splitter.commit(received)

    def on_readable(self) -> None:
        """Receive, split, and hand over the commands. Loop thread."""
        for _ in range(_RECEIVE_ROUNDS):
            try:
                received, commands = self._receive()
            except _WOULD_BLOCK:
                return
            except (OSError, CodecError, MemoryError) as error:
                self._heard = self._heard or isinstance(error, CodecError)
                self._close(self._closed_error(error))
                return
            if received == 0:
                text = f"{self.address} closed the connection{self._hint()}"
                self._close(ConnectionClosed(text, self.address))
                return
            self._heard = True
            now = self.last_active = self.last_received = time.monotonic()
            if not self._splitter.pending:
                self.partial_since = None
            elif commands or self.partial_since is None:
                self.partial_since = now
            self._hand_over(commands)
            if self._splitter.failure is not None:
                self._close(self._closed_error(self._splitter.failure))
                return
            if self._closed or (received < _RECEIVE_BYTES and not self._tls):
                return
        if self._tls:
            self._loop.call_soon(self.on_readable)

    def _hand_over(self, commands: list[RemotingCommand]) -> None:
        """Give commands to their owner. What is sent meanwhile leaves in one call.

        Answers to pulls come several at a time, and each is followed by the next pull: to send
        them one by one took a quarter of the loop's time, and as many changes of the GIL.
        """
        self._corked = len(commands) > 1
        try:
            for command in commands:
                self._on_command(self, command)
        finally:
            if self._corked:
                self._uncork()

    def close(self, reason: str = "closed by this side") -> None:
        """End the connection. What is queued is dropped. Any thread."""
        error = ConnectionClosed(f"connection to {self.address}: {reason}", self.address)
        self._loop.call_soon(self._close, error)

    def _close(self, error: Exception) -> None:
        with self._send_lock:
            if self._closed:
                return
            self._closed = True
            self._unsent.clear()
            self._unsent_bytes = 0
        try:
            self._loop.unregister(self._sock)
        except (KeyError, ValueError, RuntimeError):
            logger.debug("connection to %s was not registered yet", self.address)
        self._sock.close()
        self._on_close(self, error)
