"""A TCP proxy that knows frames: it passes, changes, holds, cuts and watches them.

Hooks see one frame at a time and decide what goes on. They run on the proxy's threads, one for each
direction of a connection, so the order of the frames is kept.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rocketmq_fast._core import RemotingCommand, decode_frame, encode_frame

_LOOPBACK = "127.0.0.1"


class Cut(Exception):
    """Raised by a hook: send these bytes, then end the connection on both sides."""

    def __init__(self, sent: bytes = b"") -> None:
        super().__init__(f"cut after {len(sent)} bytes")
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame on its way. `request` is the request that an answer belongs to."""

    raw: bytes
    command: RemotingCommand
    request: RemotingCommand | None = None

    @property
    def code(self) -> int:
        """Code of the request, also for an answer; -1 for an answer to nothing."""
        if self.request is not None:
            return self.request.code
        return -1 if self.command.is_response else self.command.code


# None: pass on as it is. Bytes or several pieces: send these instead, none of them to drop it.
Hook = Callable[[Frame], bytes | Sequence[bytes] | None]


def encoded(command: RemotingCommand) -> bytes:
    """A changed command as the frame to send."""
    return encode_frame(command)


def answer_with(frame: Frame, code: int, remark: str = "made by a test") -> bytes:
    """Another answer to the same request: an error code and nothing else."""
    return encode_frame(
        RemotingCommand(code, {}, opaque=frame.command.opaque, flag=1, remark=remark)
    )


class _Link:
    """One accepted connection and its counterpart at the target."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.requests: dict[int, RemotingCommand] = {}
        self.stranded = False

    def close(self) -> None:
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class Proxy:
    """Listens on loopback and forwards to ``target``.

    ``on_request`` sees what clients send, ``on_answer`` what servers send (their own requests too).
    Both may be set at any time.
    """

    def __init__(
        self,
        target: str,
        *,
        on_request: Hook | None = None,
        on_answer: Hook | None = None,
        port: int = 0,
    ) -> None:
        self.target = target
        self.on_request = on_request
        self.on_answer = on_answer
        self.accepted = 0
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._gate = threading.Event()
        self._gate.set()
        self._listener: socket.socket | None = None
        self._closed = False
        self.port = port
        self.listen()

    @property
    def address(self) -> str:
        """host:port that clients shall use."""
        return f"{_LOOPBACK}:{self.port}"

    # ------------------------------------------------------------------------------ trouble

    def listen(self) -> None:
        """Accept again, on the same port."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_LOOPBACK, self.port))
        listener.listen(128)
        self.port = int(listener.getsockname()[1])
        self._listener = listener
        self._spawn(self._accept, listener)

    def refuse(self) -> None:
        """Refuse new connections and end the present ones, as a dead server does."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def cut(self) -> None:
        """End the present connections; new ones are accepted."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.close()

    def strand(self) -> None:
        """Leave the present connections open and swallow what comes, as when the peer vanished."""
        with self._lock:
            for link in self._links:
                link.stranded = True

    @property
    def listening(self) -> bool:
        """Whether new connections are accepted."""
        return self._listener is not None

    def freeze(self) -> None:
        """Keep connections open and forward nothing, as a stopped process does."""
        self._gate.clear()

    def thaw(self) -> None:
        """Forward again, what waited first."""
        self._gate.set()

    def close(self) -> None:
        """End everything and wait for the threads."""
        self._closed = True
        self.refuse()
        self._gate.set()
        for thread in self._threads:
            thread.join(10.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ----------------------------------------------------------------------------- plumbing

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="test-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        host, _, port = self.target.rpartition(":")
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # the listener was closed
            try:
                server = socket.create_connection((host, int(port)), timeout=30.0)
            except OSError:
                client.close()  # the target is down: so are we
                continue
            server.settimeout(None)
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            with self._lock:
                self.accepted += 1
                self._links.add(link)
            self._spawn(self._pump, link, client, server, True)
            self._spawn(self._pump, link, server, client, False)

    def _pump(
        self, link: _Link, source: socket.socket, sink: socket.socket, is_request: bool
    ) -> None:
        try:
            while True:
                raw = _read_frame(source)
                self._gate.wait()
                if self._closed:
                    return
                if link.stranded:
                    continue
                for piece in self._handled(link, raw, is_request):
                    sink.sendall(piece)
        except Cut as cut:
            with contextlib.suppress(OSError):
                sink.sendall(cut.sent)
        except OSError:
            return  # one side went; the other is told below
        finally:
            with self._lock:
                self._links.discard(link)
            link.close()

    def _handled(self, link: _Link, raw: bytes, is_request: bool) -> Sequence[bytes]:
        hook = self.on_request if is_request else self.on_answer
        command = decode_frame(raw)
        request = None
        if is_request and not command.is_response and not command.is_oneway:
            link.requests[command.opaque] = command
        elif not is_request and command.is_response:
            request = link.requests.pop(command.opaque, None)
        made = hook(Frame(raw, command, request)) if hook is not None else None
        if made is None:
            return (raw,)
        return (made,) if isinstance(made, bytes) else made


def _read_frame(sock: socket.socket) -> bytes:
    prefix = _exactly(sock, 4)
    (length,) = struct.unpack(">i", prefix)
    return prefix + _exactly(sock, length)


def _exactly(sock: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = sock.recv(min(size - len(received), 1 << 20))
        if not chunk:
            raise ConnectionResetError("the peer closed")
        received += chunk
    return bytes(received)


class ProxiedCluster:
    """A name server and a broker behind proxies: routes name the broker's proxy."""

    def __init__(self, namesrv_addr: str, broker_addr: str) -> None:
        self._real = broker_addr.encode()
        self.broker = Proxy(broker_addr)
        self.namesrv = Proxy(namesrv_addr, on_answer=self._redirect)

    @property
    def namesrv_addr(self) -> str:
        """What clients shall be given."""
        return self.namesrv.address

    def _redirect(self, frame: Frame) -> bytes | None:
        command = frame.command
        if not command.body or self._real not in command.body:
            return None
        command.body = command.body.replace(self._real, self.broker.address.encode())
        return encode_frame(command)

    def close(self) -> None:
        """End both proxies."""
        self.namesrv.close()
        self.broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def json_body(command: RemotingCommand) -> dict[str, object]:
    """A command's body as JSON."""
    decoded: dict[str, object] = json.loads(command.body)
    return decoded
