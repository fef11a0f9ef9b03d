"""The client side of remoting: one connection per address, calls matched to answers by opaque."""

from __future__ import annotations

import _thread
import itertools
import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable

from rocketmq_fast._core import RemotingCommand, encode_frame
from rocketmq_fast.errors import (
    ClientStateError,
    ConfigError,
    ConnectError,
    ConnectionClosed,
    RemotingError,
    RequestTimeout,
)
from rocketmq_fast.protocol.codes import FLAG_ONEWAY
from rocketmq_fast.remoting.connection import Connection
from rocketmq_fast.remoting.hooks import (
    AnswerCallback,
    RpcHook,
    before_request,
    with_after_response,
)
from rocketmq_fast.remoting.loop import EventLoop
from rocketmq_fast.remoting.security import Signer

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 3.0
# How often calls are looked through for expired ones, while there are any.
_SWEEP_SECONDS = 0.2
# After a failed connect, callers within this time share its result instead of trying again.
_CONNECT_BACKOFF_SECONDS = 0.5
# With so many calls open to an address, requests of `call_soon` are collected and sent together.
_COLLECT_FROM_CALLS = 8
# A connection without traffic is closed, as both sides of the Java code do.
_IDLE_SECONDS = 120.0
_SHUT_DOWN = "the client was shut down"

RequestCallback = Callable[[Connection, RemotingCommand], None]

_opaques = itertools.count(1)


def next_opaque() -> int:
    """A correlation id, unique in the process until 31 bits wrap. Any thread."""
    return next(_opaques) & 0x7FFFFFFF


def parse_address(address: str) -> tuple[str, int]:
    """(host, port) of "host:port" or "[v6]:port". Raises ConfigError."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"address {address!r} is not host:port")
    return host.strip("[]"), int(port)


class _Call:
    """A request that waits for its answer."""

    __slots__ = ("callback", "deadline", "sent_at", "timeout")

    def __init__(self, callback: AnswerCallback, timeout: float) -> None:
        self.callback = callback
        self.timeout = timeout
        self.sent_at = time.monotonic()
        self.deadline = self.sent_at + timeout


class Channel:
    """All calls to one address, over one connection that is made when needed.

    Any thread may call; answers and errors arrive on the loop's thread, exactly one per call.
    """

    def __init__(self, client: RemotingClient, loop: EventLoop, address: str) -> None:
        self.address = address
        self._client = client
        self._loop = loop
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._connecting = False
        # Opaque and frame of what waits for a connection; opaque None for one-way requests.
        self._unsent: list[tuple[int | None, bytes]] = []
        self._calls: dict[int, _Call] = {}
        self._collected: deque[tuple[int, bytes]] = deque()  # until the loop sends them
        self._flushing = False
        self._failed_at = -1e9
        self._failure: RemotingError | None = None

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the connection, or for the peer to read."""
        connection = self._connection
        if connection is not None:
            return connection.unsent_bytes
        return sum(len(frame) for _, frame in list(self._unsent))

    def call_soon(
        self, opaque: int, frame: bytes, timeout: float, callback: AnswerCallback
    ) -> None:
        """As `call`; for callers with many open calls, who gain by one write for many requests.

        The first few leave at once. Requests of one thread keep their order.
        """
        connection = self._connection
        if (
            connection is None
            or connection.closed
            or (not self._flushing and len(self._calls) < _COLLECT_FROM_CALLS)
        ):
            self.call(opaque, frame, timeout, callback)
            return
        self._note(opaque, timeout, callback)
        self._collected.append((opaque, frame))
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what was collected. Loop thread."""
        collected = self._collected
        items = [collected.popleft() for _ in range(len(collected))]
        connection = self._connection
        try:
            if connection is None:
                raise ConnectionClosed(f"connection to {self.address} ended", self.address)
            connection.send(*[frame for _, frame in items])
        except RemotingError as error:
            for opaque, _ in items:
                self._fail(opaque, error)
        # Only now, so that no request overtakes these; what was added meanwhile saw the flag set.
        self._flushing = False
        if collected and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _note(self, opaque: int, timeout: float, callback: AnswerCallback) -> None:
        """Keep a call before its request leaves. Raises ClientStateError after the end.

        The end fails what it finds kept, and was announced before it looks: either it finds the
        call, or the call finds the announcement.
        """
        self._calls[opaque] = _Call(callback, timeout)
        if self._client.closed and self._calls.pop(opaque, None) is not None:
            raise ClientStateError(_SHUT_DOWN)

    def call(self, opaque: int, frame: bytes, timeout: float, callback: AnswerCallback) -> None:
        """Send an encoded request; the callback gets its answer or an error.

        Raises ClientStateError after the client was closed.
        """
        connection = self._connection
        if connection is not None and not connection.closed:
            self._note(opaque, timeout, callback)
            try:
                connection.send(frame)
            except RemotingError as error:
                self._loop.call_soon(self._fail, opaque, error)
            return
        with self._lock:
            connection = self._connection
            if connection is None or connection.closed:
                self._note(opaque, timeout, callback)
                self._connect_later(opaque, frame)
                return
        self.call(opaque, frame, timeout, callback)

    def send_oneway(self, opaque: int, frame: bytes) -> None:
        """Send an encoded one-way request; a failure to do so is logged.

        Raises ClientStateError after the client was closed.
        """
        if self._client.closed:
            raise ClientStateError(_SHUT_DOWN)
        connection = self._connection
        if connection is not None and not connection.closed:
            try:
                connection.send(frame)
            except RemotingError as error:
                logger.warning("one-way request to %s was not sent: %s", self.address, error)
            return
        with self._lock:
            connection = self._connection
            if connection is None or connection.closed:
                self._connect_later(None, frame)
                return
        self.send_oneway(opaque, frame)

    def cancel(self, opaque: int) -> None:
        """Forget a call whose caller gave up; a late answer is dropped."""
        self._calls.pop(opaque, None)

    def connect_anew(self) -> None:
        """Let the next call try to connect, however lately that failed."""
        with self._lock:
            self._failure = None

    def _connect_later(self, opaque: int | None, frame: bytes) -> None:
        """Queue the frame and begin to connect. Called with the lock held."""
        failure = self._failure
        if failure is not None and time.monotonic() - self._failed_at < _CONNECT_BACKOFF_SECONDS:
            self._loop.call_soon(self._fail_unsent, opaque, failure)
            return
        self._unsent.append((opaque, frame))
        if not self._connecting:
            self._connecting = True
            # Resolving a name can block for seconds, which the loop must not.
            thread = threading.Thread(
                target=self._connect, name=f"rocketmq-connect-{self.address}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as cause:  # the process may have no more
                self._cannot_connect(cause)

    def _connect(self) -> None:
        try:
            sock = self._open()
        except (OSError, ConfigError) as cause:
            self._cannot_connect(cause)
            return
        if self._client.closed:
            sock.close()  # the loop may have ended, and nobody else would
            return
        self._loop.call_soon(self._connected, sock)

    def _cannot_connect(self, cause: Exception) -> None:
        error = ConnectError(f"cannot connect to {self.address}: {cause}", self.address)
        error.__cause__ = cause
        self._loop.call_soon(self._connect_failed, error)

    def _open(self) -> socket.socket:
        """A connected socket, through the TLS handshake where TLS is on."""
        host, port = parse_address(self.address)
        sock = socket.create_connection((host, port), timeout=self._client.connect_timeout)
        if self._client.tls is None:
            return sock
        try:
            return self._client.tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    def _connect_failed(self, error: RemotingError) -> None:
        with self._lock:
            self._connecting = False
            self._failed_at = time.monotonic()
            self._failure = error
            unsent, self._unsent = self._unsent, []
        for opaque, _ in unsent:
            self._fail_unsent(opaque, error)
        if self._client.on_unreachable is not None and isinstance(error, ConnectError):
            self._client.on_unreachable(self.address)

    def _connected(self, sock: socket.socket) -> None:
        if self._client.closed:
            sock.close()
            self._connect_failed(ConnectionClosed(_SHUT_DOWN, self.address))
            return
        connection = Connection(
            self._loop, sock, self.address, self._client.on_command, self._on_close
        )
        connection.start()
        with self._lock:
            self._connecting = False
            self._failure = None
            unsent, self._unsent = self._unsent, []
            for opaque, frame in unsent:
                if opaque is not None and opaque not in self._calls:
                    continue  # its caller was told that there is no answer
                try:
                    connection.send(frame)
                except RemotingError as error:
                    self._loop.call_soon(self._fail_unsent, opaque, error)
            # Last: who finds a connection sends at once, which must not overtake what waited.
            self._connection = connection

    def _on_close(self, connection: Connection, error: Exception) -> None:
        with self._lock:
            if self._connection is connection:
                self._connection = None
            waiting = {opaque for opaque, _ in self._unsent}  # for the next connection
            # Under the lock: a call that comes now waits for the next one, and was not among these.
            lost = [opaque for opaque in self._calls.copy() if opaque not in waiting]
        try:
            if self._client.on_closed is not None and not self._client.closed:
                self._client.on_closed(self.address)
        finally:
            for opaque in lost:
                self._fail(opaque, error)

    def _fail_unsent(self, opaque: int | None, error: Exception) -> None:
        if opaque is None:
            logger.warning("one-way request to %s was not sent: %s", self.address, error)
        else:
            self._fail(opaque, error)

    def _fail(self, opaque: int, error: Exception) -> None:
        call = self._calls.pop(opaque, None)
        if call is not None:
            call.callback(error)

    def on_answer(self, command: RemotingCommand) -> None:
        """Match an answer to its call. Loop thread."""
        call = self._calls.pop(command.opaque, None)
        if call is None:
            logger.debug("late or unknown answer %d from %s", command.opaque, self.address)
            return
        call.callback(command)

    def sweep(self, now: float) -> None:
        """Expire calls, and close a connection that is idle or silent. Loop thread."""
        # A copy is made in one step. A list of items is not: its tuples can set off a collection,
        # in which other threads run and add calls.
        calls = self._calls.copy()
        expired = [opaque for opaque, call in calls.items() if call.deadline <= now]
        connection = self._connection
        for opaque in expired:
            call = self._calls.get(opaque)
            if call is None:
                continue
            if connection is not None and connection.last_received < call.sent_at:
                # Nothing came since the request left: the peer is gone without a word.
                connection.close(f"no answer for {call.timeout:.1f} s")
                connection = None
            elif connection is not None and self._is_astray(connection, now):
                connection.close("what comes is the answer to nothing that was asked")
                connection = None
            self._fail(
                opaque,
                RequestTimeout(
                    f"no answer from {self.address} within {call.timeout:.3f} s", self.address
                ),
            )
        if (
            connection is not None
            and not self._calls
            and now - connection.last_active > _IDLE_SECONDS
        ):
            connection.close(f"idle for {_IDLE_SECONDS:.0f} s")

    def _is_astray(self, connection: Connection, now: float) -> bool:
        """Whether a frame is coming that no call can wait for any more.

        A wrong length makes one: it swallows all answers that follow. A right one may take long.
        """
        since = connection.partial_since
        return since is not None and not any(
            call.sent_at <= since and call.deadline > now for call in self._calls.copy().values()
        )

    def close(self) -> None:
        """End the connection; fail what is in flight or waits for a connection. Any thread."""
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        """On the loop's thread, so that no connection is being taken over meanwhile."""
        connection = self._connection
        if connection is not None:
            connection.close(_SHUT_DOWN)
        error = ConnectionClosed(_SHUT_DOWN, self.address)
        with self._lock:
            self._unsent.clear()
        for opaque in list(self._calls):
            self._fail(opaque, error)


class RemotingClient:
    """Calls to any number of addresses over one event loop.

    `on_request` gets requests that a server sends on its own, `on_unreachable` an address that
    could not be connected to, `on_closed` one whose connection ended, before the calls that are
    lost with it. They run on the loop's thread and must not block. All other methods may be called
    from any thread; `invoke` not from the loop's.
    """

    def __init__(
        self,
        loop: EventLoop,
        on_request: RequestCallback,
        *,
        connect_timeout: float = CONNECT_TIMEOUT_SECONDS,
        rpc_hooks: tuple[RpcHook, ...] = (),
        signer: Signer | None = None,
        tls: ssl.SSLContext | None = None,
        on_unreachable: Callable[[str], object] | None = None,
        on_closed: Callable[[str], object] | None = None,
    ) -> None:
        self.tls = tls
        self.on_unreachable = on_unreachable
        self.on_closed = on_closed
        self._hooks = rpc_hooks
        self._signer = signer
        self.connect_timeout = connect_timeout
        self.closed = False
        self._loop = loop
        self._on_request = on_request
        self._channels: dict[str, Channel] = {}
        self._lock = threading.Lock()
        self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _encode(self, address: str, command: RemotingCommand) -> bytes:
        """A request as it goes out, signed where the client has credentials."""
        if self._hooks:
            before_request(self._hooks, address, command)
        if self._signer is not None:
            self._signer.sign(command)
        return encode_frame(command)

    def _prepare(
        self, address: str, command: RemotingCommand, callback: AnswerCallback
    ) -> tuple[bytes, AnswerCallback]:
        """(frame to send, who gets the answer) of a request, which gets its opaque."""
        command.opaque = next_opaque()
        if self._hooks:
            callback = with_after_response(self._hooks, address, command, callback)
        return self._encode(address, command), callback

    def channel(self, address: str) -> Channel:
        """The channel to an address; made on first use, kept until `close`."""
        channel = self._channels.get(address)
        if channel is None:
            with self._lock:
                if self.closed:
                    raise ClientStateError(_SHUT_DOWN)
                channel = self._channels.setdefault(address, Channel(self, self._loop, address))
        return channel

    def connect_anew(self, address: str) -> None:
        """Let the next call to an address try to connect, however lately that failed."""
        self.channel(address).connect_anew()

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout: float, callback: AnswerCallback
    ) -> None:
        """Send a request; the callback gets the answer or an error, on the loop's thread."""
        frame, callback = self._prepare(address, command, callback)
        self.channel(address).call(command.opaque, frame, timeout, callback)

    def invoke_async_soon(
        self, address: str, command: RemotingCommand, timeout: float, callback: AnswerCallback
    ) -> None:
        """As `invoke_async`, sent together with others when many calls are open."""
        frame, callback = self._prepare(address, command, callback)
        self.channel(address).call_soon(command.opaque, frame, timeout, callback)

    def invoke(self, address: str, command: RemotingCommand, timeout: float) -> RemotingCommand:
        """Send a request and wait for its answer, whatever its code.

        Raises ConnectError, ConnectionClosed, RequestTimeout, HookError, CodecError, or
        ClientStateError after `close`.
        """
        if self._loop.in_loop:
            raise ClientStateError("a blocking call on the event loop's thread would never return")
        done = _thread.allocate_lock()
        done.acquire()
        answers: list[RemotingCommand | Exception] = []

        def on_answer(answer: RemotingCommand | Exception) -> None:
            answers.append(answer)
            done.release()

        frame, callback = self._prepare(address, command, on_answer)
        channel = self.channel(address)
        channel.call(command.opaque, frame, timeout, callback)
        # The sweep ends the call; the margin covers a loop that is late.
        if not done.acquire(timeout=timeout + 5.0):
            channel.cancel(command.opaque)
            raise RequestTimeout(f"no answer from {address} within {timeout:.3f} s", address)
        answer = answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def invoke_oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request that gets no answer."""
        command.opaque = next_opaque()
        command.flag |= FLAG_ONEWAY
        self.channel(address).send_oneway(command.opaque, self._encode(address, command))

    def on_command(self, connection: Connection, command: RemotingCommand) -> None:
        """Route a received command. Loop thread."""
        if command.flag & 1:
            channel = self._channels.get(connection.address)
            if channel is not None:
                channel.on_answer(command)
        else:
            self._on_request(connection, command)

    def _sweep(self) -> None:
        if self.closed:
            return
        self._loop.call_later(_SWEEP_SECONDS, self._sweep)  # first: without it no call times out
        now = time.monotonic()
        for channel in list(self._channels.values()):
            channel.sweep(now)

    def close(self) -> None:
        """Close every connection for good; calls without an answer fail, new ones are refused.

        Does not stop the loop.
        """
        with self._lock:
            self.closed = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.close()
