"""The accepting side: a listening socket, its connections, and requests that the server makes."""

from __future__ import annotations

import errno
import ipaddress
import itertools
import logging
import socket
import time
from collections.abc import Callable

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.errors import ConnectionClosed, RequestTimeout
from rocketmq_fast.remoting.connection import Connection
from rocketmq_fast.remoting.loop import EventLoop, Timer

logger = logging.getLogger(__name__)

RequestHandler = Callable[["Peer", RemotingCommand], None]
PeerCallback = Callable[["Peer"], None]
# Called with the answer, or with None and the reason why there is none.
AnswerCallback = Callable[[RemotingCommand | None, Exception | None], None]

_FLAG_RESPONSE = 1
_FLAG_ONEWAY = 2
# A peer that reads nothing while answers pile up is cut off.
_MAX_UNSENT_BYTES = 64 << 20
_ACCEPT_PAUSE = 0.1
# Connections that hold less are not counted when the memory of all is.
_LARGE_BYTES = 1 << 20
# A frame must be complete within some time, or come at least as fast as the slowest line.
_SLOWEST_BYTES_PER_SECOND = 1024
_SWEEP_SECONDS = 0.5


class Peer:
    """One client of a server. All methods belong to the loop's thread."""

    __slots__ = ("_changes", "_opaques", "_pending", "_server", "connection", "host")

    def __init__(self, server: RemotingServer) -> None:
        self._server = server
        self._opaques = itertools.count(1)
        self._pending: dict[int, tuple[AnswerCallback, Timer]] = {}
        self._changes: dict[int, Callable[[RemotingCommand], None]] = {}
        self.connection: Connection
        # Address and port as they stand in stored messages: 4 or 16 bytes, then the port in 4.
        self.host = b""

    @property
    def address(self) -> str:
        """host:port of the client."""
        return self.connection.address

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self.connection.closed

    def send(self, command: RemotingCommand) -> None:
        """Send a command; nothing happens when the connection has ended."""
        try:
            self.connection.send_command(command)
        except ConnectionClosed as error:
            logger.debug("no answer sent: %s", error)
            return
        unsent = self.connection.unsent_bytes
        if unsent > _MAX_UNSENT_BYTES:
            self.connection.close(f"{unsent} bytes are waiting to be read")
        elif unsent > _LARGE_BYTES:
            self._server.check_memory()

    def reply(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Answer a request, unless it wants no answer."""
        if request.flag & _FLAG_ONEWAY:
            return
        response.opaque = request.opaque
        response.flag |= _FLAG_RESPONSE
        if self._changes:
            change = self._changes.pop(request.opaque, None)
            if change is not None:
                change(response)
                return
        self.send(response)

    def change_answer(self, opaque: int, send: Callable[[RemotingCommand], None]) -> None:
        """Give the answer to a request to `send` instead of sending it, as tests want it."""
        self._changes[opaque] = send

    def notify(self, command: RemotingCommand) -> None:
        """Send a request that wants no answer."""
        command.opaque = next(self._opaques)
        command.flag = _FLAG_ONEWAY
        self.send(command)

    def invoke(self, command: RemotingCommand, timeout: float, callback: AnswerCallback) -> None:
        """Send a request; the callback gets its answer, a RequestTimeout or a ConnectionClosed."""
        opaque = next(self._opaques)
        command.opaque = opaque
        command.flag = 0
        timer = self._server.loop.call_later(timeout, self._expire, opaque, timeout)
        self._pending[opaque] = (callback, timer)
        if self.closed:
            self.fail_pending(ConnectionClosed(f"{self.address} is gone", self.address))
            return
        self.send(command)

    def _expire(self, opaque: int, timeout: float) -> None:
        pending = self._pending.pop(opaque, None)
        if pending is not None:
            pending[0](
                None, RequestTimeout(f"{self.address}: no answer in {timeout} s", self.address)
            )

    def answered(self, response: RemotingCommand) -> None:
        """Hand an answer to whoever waits for it; late and unknown ones are dropped."""
        pending = self._pending.pop(response.opaque, None)
        if pending is not None:
            pending[1].cancel()
            pending[0](response, None)

    def fail_pending(self, error: Exception) -> None:
        """Tell everybody who waits for an answer that there will be none."""
        waiting = list(self._pending.values())
        self._pending.clear()
        for callback, timer in waiting:
            timer.cancel()
            callback(None, error)


def host_bytes(host: str, port: int) -> bytes:
    """Return an address as stored messages carry it: 4 or 16 bytes, then the port in 4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).packed + port.to_bytes(4, "big")


class RemotingServer:
    """Accepts connections and hands requests to `on_request`, on the loop's thread.

    An exception in `on_request` is logged and ends neither the connection nor the loop. Bytes that
    are no frame end their connection only, and so does a frame that takes over `frame_seconds` at
    less than 1 KiB/s. When incomplete frames and unread answers of all connections are over
    `max_held_bytes` together, those that hold most are ended.
    """

    def __init__(
        self,
        loop: EventLoop,
        on_request: RequestHandler,
        *,
        on_disconnect: PeerCallback | None = None,
        max_connections: int = 10_000,
        idle_seconds: float = 120.0,
        frame_seconds: float = 30.0,
        max_held_bytes: int = 512 << 20,
    ) -> None:
        self.loop = loop
        self.port = 0
        self._on_request = on_request
        self._on_disconnect = on_disconnect
        self._max_connections = max_connections
        self._idle_seconds = idle_seconds
        self._frame_seconds = frame_seconds
        self._max_held_bytes = max_held_bytes
        self._socket: socket.socket | None = None
        self._peers: dict[Connection, Peer] = {}
        self._timer: Timer | None = None

    def listen(self, host: str, port: int) -> None:
        """Bind and listen; `port` tells the chosen one when 0 is asked.

        Raises OSError that names host and port.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(1024)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            raise OSError(error.errno, f"cannot listen on {place}: {error.strerror}") from error
        except BaseException:
            sock.close()
            raise
        self._socket = sock
        self.port = int(sock.getsockname()[1])

    def start(self) -> None:
        """Begin to accept. Any thread."""
        self.loop.call_soon(self._start)

    def _start(self) -> None:
        if self._socket is not None:
            self.loop.register(self._socket, self)
            self._timer = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    @property
    def peers(self) -> list[Peer]:
        """The connected clients."""
        return list(self._peers.values())

    def on_readable(self) -> None:
        """Accept what waits."""
        for _ in range(128):
            if self._socket is None:
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # Accepting would fail again at once; connections that end make room.
                    logger.warning("cannot accept a connection: %s", error)
                    self._pause()
                    return
                raise
            if len(self._peers) >= self._max_connections:
                logger.warning("refusing %s: %d connections", address, len(self._peers))
                sock.close()
                continue
            self._add(sock, str(address[0]), int(address[1]))

    def on_writable(self) -> None:
        """A listening socket is never watched for this."""

    def _pause(self) -> None:
        if self._socket is not None:
            self.loop.unregister(self._socket)
            self.loop.call_later(_ACCEPT_PAUSE, self._resume)

    def _resume(self) -> None:
        if self._socket is not None:
            self.loop.register(self._socket, self)

    def _add(self, sock: socket.socket, host: str, port: int) -> None:
        peer = Peer(self)
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            peer.connection = Connection(self.loop, sock, name, self._received, self._closed)
            peer.host = host_bytes(host, port)
        except OSError as error:  # reset before it was accepted
            logger.debug("connection of %s: %s", name, error)
            sock.close()
            return
        self._peers[peer.connection] = peer
        peer.connection.start()

    def _received(self, connection: Connection, command: RemotingCommand) -> None:
        peer = self._peers.get(connection)
        if peer is None:
            return
        try:
            if command.flag & _FLAG_RESPONSE:
                peer.answered(command)
            else:
                self._on_request(peer, command)
        except Exception:
            logger.exception("request %d from %s", command.code, peer.address)

    def _closed(self, connection: Connection, error: Exception) -> None:
        peer = self._peers.pop(connection, None)
        if peer is None:
            return
        logger.debug("%s left: %s", peer.address, error)
        peer.fail_pending(error)
        if self._on_disconnect is not None:
            self._on_disconnect(peer)

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in list(self._peers):
            if now - connection.last_active > self._idle_seconds:
                connection.close(f"idle for {self._idle_seconds:.0f} s")
                continue
            since = connection.partial_since
            age = 0.0 if since is None else now - since
            slow = connection.partial_bytes < age * _SLOWEST_BYTES_PER_SECOND
            if slow and age > self._frame_seconds:
                connection.close(f"a frame is incomplete after {age:.0f} s")
        self.check_memory()
        if self._socket is not None:
            self._timer = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    def check_memory(self) -> None:
        """End the connections that hold most, until all together hold no more than they may."""
        held = {
            connection: size
            for connection in self._peers
            if (size := connection.partial_bytes + connection.unsent_bytes) > _LARGE_BYTES
        }
        total = sum(held.values())
        while total > self._max_held_bytes:
            connection = max(held, key=held.__getitem__)
            total -= held.pop(connection)
            connection.close(f"all connections hold over {self._max_held_bytes} bytes")

    def close(self) -> None:
        """Stop accepting and end all connections. Loop thread, or when the loop has not started."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            sock, self._socket = self._socket, None
            try:
                self.loop.unregister(sock)
            except (KeyError, ValueError):
                logger.debug("the listening socket was not registered")
            sock.close()
        for connection in list(self._peers):
            connection.close("the server stops")
