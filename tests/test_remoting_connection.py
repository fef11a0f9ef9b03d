"""A connection by itself: what leaves, in which order and in how many calls."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketmq_fast._core import FrameSplitter, RemotingCommand, encode_frame
from rocketmq_fast._core.frame import NATIVE_SOCKETS, send_small
from rocketmq_fast.remoting import connection
from rocketmq_fast.remoting.connection import Connection
from rocketmq_fast.remoting.loop import EventLoop
from tests.waiting import wait_for


class CountingSocket(socket.socket):
    """Counts the calls that send."""

    sends = 0

    def send(self, *args: Any) -> int:
        type(self).sends += 1
        return super().send(*args)

    def sendmsg(self, *args: Any) -> int:
        type(self).sends += 1
        return super().sendmsg(*args)


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop("test-loop")
    loop.start()
    yield loop
    loop.stop()


class Peers:
    """A connection on a loop, whose owner answers with `answer`, and the bare socket opposite."""

    def __init__(
        self, loop: EventLoop, answer: Callable[[Connection, RemotingCommand], None]
    ) -> None:
        ours, self.peer = socket.socketpair()
        self.peer.settimeout(20)
        self.socket_type = type("Counted", (CountingSocket,), {})
        self.ended = threading.Event()
        self.connection = Connection(
            loop,
            self.socket_type(fileno=ours.detach()),
            "peer",
            answer,
            lambda *_: self.ended.set(),
        )
        self.connection.start()

    def close(self) -> None:
        self.peer.close()
        assert self.ended.wait(20)

    def receive(self, count: int) -> list[RemotingCommand]:
        """So many commands."""
        splitter, commands = FrameSplitter(), list[RemotingCommand]()
        while len(commands) < count:
            commands += splitter.feed(self.peer.recv(1 << 16))
        return commands


@pytest.fixture(autouse=True)
def unix_sockets_have_no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket pair stands in for TCP, which alone knows the option."""
    monkeypatch.setattr(CountingSocket, "setsockopt", lambda *_: None)


def frames(count: int) -> bytes:
    return b"".join(encode_frame(RemotingCommand(1, {}, opaque=n)) for n in range(count))


def echo(connection: Connection, command: RemotingCommand) -> None:
    connection.send_command(RemotingCommand(2, {}, opaque=command.opaque))


@pytest.mark.parametrize("native", sorted({NATIVE_SOCKETS, False}))
def test_answers_of_one_round_leave_in_one_call(
    loop: EventLoop, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small: list[int] = []

    def count_small(fd: int, data: bytes) -> int:
        small.append(len(data))
        return send_small(fd, data)

    monkeypatch.setattr(connection, "send_small", count_small)
    monkeypatch.setattr(connection, "NATIVE_SOCKETS", native)
    peers = Peers(loop, echo)
    peers.peer.sendall(frames(50))
    assert [command.opaque for command in peers.receive(50)] == list(range(50))
    assert (len(small), peers.socket_type.sends) == ((1, 0) if native else (0, 1))
    peers.peer.sendall(frames(1))
    assert [command.opaque for command in peers.receive(1)] == [0]
    assert len(small) + peers.socket_type.sends == 2
    peers.close()


def test_more_than_the_socket_takes_follows(loop: EventLoop) -> None:
    body = bytes(1 << 19)

    def answer(connection: Connection, command: RemotingCommand) -> None:
        connection.send_command(RemotingCommand(2, {}, opaque=command.opaque, body=body))

    peers = Peers(loop, answer)
    peers.peer.sendall(frames(8))
    wait_for(lambda: peers.connection.unsent_bytes > 0, "a full socket")
    got = peers.receive(8)
    assert [(command.opaque, len(command.body)) for command in got] == [
        (number, len(body)) for number in range(8)
    ]
    # What the peer has got is counted as sent a moment later.
    wait_for(lambda: peers.connection.unsent_bytes == 0, "the end of the sending")
    peers.peer.sendall(frames(2))
    assert len(peers.receive(2)) == 2
    peers.close()


def test_what_other_threads_send_meanwhile_leaves_too(loop: EventLoop) -> None:
    def answer(connection: Connection, command: RemotingCommand) -> None:
        if command.opaque == 0:
            other = threading.Thread(target=echo, args=(connection, command))
            other.start()
            other.join(20)
        else:
            echo(connection, command)

    peers = Peers(loop, answer)
    peers.peer.sendall(frames(3))
    assert [command.opaque for command in peers.receive(3)] == [0, 1, 2]
    peers.close()


def test_an_owner_that_fails_holds_nothing_back(
    loop: EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(connection: Connection, command: RemotingCommand) -> None:
        echo(connection, command)
        if command.opaque == 1:
            raise ValueError("a bug of the owner")

    peers = Peers(loop, answer)
    peers.peer.sendall(frames(2))
    assert len(peers.receive(2)) == 2
    wait_for(lambda: "a bug of the owner" in caplog.text, "the log")
    peers.close()
