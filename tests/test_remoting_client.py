"""Requests over the event loop: every one gets its own answer, or one error that says why."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from rocketmq_fast import ClientStateError, RemotingCommand, encode_frame
from rocketmq_fast._core import FrameSplitter
from rocketmq_fast.errors import (
    ConfigError,
    ConnectError,
    ConnectionClosed,
    RemotingError,
    RequestTimeout,
)
from rocketmq_fast.remoting.client import Channel, RemotingClient, parse_address
from rocketmq_fast.remoting.connection import Connection
from rocketmq_fast.remoting.loop import EventLoop
from rocketmq_fast.remoting.server import Peer, RemotingServer
from tests.waiting import wait_for

Handler = Callable[[Peer, RemotingCommand], None]


class Server:
    """A server whose answers a test writes."""

    def __init__(self, port: int = 0) -> None:
        self.loop = EventLoop("test-server")
        self.loop.start()
        self.seen: list[RemotingCommand] = []
        self.left = 0
        self.handler: Handler = echo
        self.server = RemotingServer(self.loop, self._handle, on_disconnect=self._on_left)
        self.server.listen("127.0.0.1", port)
        self.server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _handle(self, peer: Peer, command: RemotingCommand) -> None:
        self.seen.append(command)
        self.handler(peer, command)

    def _on_left(self, _: Peer) -> None:
        self.left += 1

    def close(self) -> None:
        self.loop.call_soon(self.server.close)
        self.loop.stop()


def answer(command: RemotingCommand, **fields: str) -> RemotingCommand:
    return RemotingCommand(0, fields, body=command.body, opaque=command.opaque, flag=1)


def echo(peer: Peer, command: RemotingCommand) -> None:
    if not command.is_oneway:
        peer.send(answer(command, **command.ext_fields))


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def requests() -> list[RemotingCommand]:
    """What a server asked the client."""
    return []


@pytest.fixture
def client(requests: list[RemotingCommand]) -> Iterator[RemotingClient]:
    loop = EventLoop("test-client")
    loop.start()
    made = RemotingClient(loop, lambda _, command: requests.append(command), connect_timeout=2.0)
    yield made
    made.close()
    loop.stop()


def ask(client: RemotingClient, address: str, text: str, timeout: float = 10.0) -> str:
    command = RemotingCommand(1, {"text": text}, text.encode())
    got = client.invoke(address, command, timeout)
    assert got.body.decode() == got.ext_fields["text"]
    return got.ext_fields["text"]


def test_call_at_the_end_of_a_connection_goes_over_the_next(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that never left is not failed by the end of the connection before."""
    closed, go_on = threading.Event(), threading.Event()
    on_close = Channel._on_close

    def late(channel: Channel, connection: Connection, error: Exception) -> None:
        closed.set()
        assert go_on.wait(30.0)
        on_close(channel, connection, error)

    monkeypatch.setattr(Channel, "_on_close", late)
    assert ask(client, server.address, "before") == "before"
    server.handler = lambda peer, _: peer.connection.close("as the test wants")
    client.invoke_oneway(server.address, RemotingCommand(1))
    assert closed.wait(30.0)
    server.handler = echo
    answers: list[RemotingCommand | Exception] = []
    client.invoke_async(server.address, RemotingCommand(2), 30.0, answers.append)
    go_on.set()
    wait_for(lambda: answers, "the answer")
    assert isinstance(answers[0], RemotingCommand)


def test_no_thread_to_connect_with_is_a_failed_connect(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(ConnectError, match="can't start new thread"):
            client.invoke(server.address, RemotingCommand(1), 10.0)
    wait_for(lambda: not fails(client, server.address), "another try")


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_many_threads_get_their_own_answers(server: Server, client: RemotingClient) -> None:
    held: list[tuple[Peer, RemotingCommand]] = []

    def backwards(peer: Peer, command: RemotingCommand) -> None:
        held.append((peer, command))
        if len(held) == 8:
            for one, kept in reversed(held):
                echo(one, kept)
            held.clear()

    server.handler = backwards
    wrong: list[str] = []

    def run(number: int) -> None:
        for turn in range(50):
            text = f"{number}-{turn}"
            if ask(client, server.address, text) != text:
                wrong.append(text)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not wrong
    assert len(server.seen) == 400
    assert len({command.opaque for command in server.seen}) == 400


def test_late_double_and_unknown_answers_are_ignored(
    server: Server, client: RemotingClient
) -> None:
    late: list[tuple[Peer, RemotingCommand]] = []

    def handler(peer: Peer, command: RemotingCommand) -> None:
        if command.ext_fields["text"] == "late":
            late.append((peer, command))
            return
        for other, kept in late:
            echo(other, kept)  # long after its caller gave up
        peer.send(RemotingCommand(0, {"text": "?"}, opaque=2**31 - 5, flag=1))
        echo(peer, command)
        echo(peer, command)

    server.handler = handler
    with pytest.raises(RequestTimeout, match=server.address):
        ask(client, server.address, "late", 0.3)
    for number in range(5):
        assert ask(client, server.address, f"n{number}") == f"n{number}"


def test_frame_that_answers_nothing_ends_the_connection(
    server: Server, client: RemotingClient
) -> None:
    """A wrong length: what the server goes on to say is taken for the rest of that frame."""
    beginning = (1 << 20).to_bytes(4, "big") + bytes(8)
    server.handler = lambda peer, _: peer.connection.send(beginning)
    with pytest.raises(RequestTimeout):
        client.invoke(server.address, RemotingCommand(1, {}), 0.3)
    server.handler = echo
    wait_for(lambda: server.left == 1, "the end of the connection")
    client.invoke(server.address, RemotingCommand(1, {}), 20.0)


def test_long_frame_outlives_the_calls_that_wait_behind_it(
    server: Server, client: RemotingClient
) -> None:
    frames: list[bytes] = []

    def begin(peer: Peer, command: RemotingCommand) -> None:
        if not frames:
            frames.append(encode_frame(answer(command)))
            peer.connection.send(frames[0][:20])
        else:
            peer.connection.send(frames[0][20:21])  # slow, and still coming

    server.handler = begin
    answers: list[object] = []
    client.invoke_async(server.address, RemotingCommand(1, {}), 60.0, answers.append)
    with pytest.raises(RequestTimeout):
        client.invoke(server.address, RemotingCommand(2, {}), 0.5)
    server.handler = lambda peer, _: peer.connection.send(frames[0][21:])
    client.invoke_oneway(server.address, RemotingCommand(3, {}))
    wait_for(lambda: answers, "the answer")
    assert isinstance(answers[0], RemotingCommand)
    assert server.left == 0


def test_silent_server_is_left_and_asked_anew(server: Server, client: RemotingClient) -> None:
    assert ask(client, server.address, "before") == "before"
    server.handler = lambda *_: None
    with pytest.raises(RequestTimeout) as caught:
        ask(client, server.address, "x", 0.3)
    assert caught.value.address == server.address
    assert isinstance(caught.value, TimeoutError)
    # Nothing came since the request: the connection is not trusted any more.
    wait_for(lambda: server.left == 1, "the connection to end")
    server.handler = echo
    assert ask(client, server.address, "again") == "again"


def test_requests_in_flight_fail_when_the_connection_ends(
    server: Server, client: RemotingClient
) -> None:
    def hang_up(peer: Peer, command: RemotingCommand) -> None:
        if len(server.seen) == 3:
            peer.connection.close("by the test")

    server.handler = hang_up
    errors: list[RemotingCommand | Exception] = []
    done = threading.Event()

    def take(result: RemotingCommand | Exception) -> None:
        errors.append(result)
        if len(errors) == 3:
            done.set()

    for _ in range(3):
        client.invoke_async(server.address, RemotingCommand(1), 10.0, take)
    assert done.wait(30.0)
    assert all(isinstance(error, ConnectionClosed) for error in errors)
    server.handler = echo
    assert ask(client, server.address, "again") == "again"


def test_nobody_listens(client: RemotingClient) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    with pytest.raises(ConnectError, match=address) as caught:
        ask(client, address, "x")
    assert caught.value.retriable
    with pytest.raises(RemotingError):
        ask(client, "no-such-host.invalid:1", "x")


def test_connection_comes_back_when_the_server_does(client: RemotingClient) -> None:
    first = Server()
    assert ask(client, first.address, "one") == "one"
    port, address = first.server.port, first.address
    first.close()
    wait_for(lambda: fails(client, address), "an error")
    second = Server(port)
    try:
        wait_for(lambda: not fails(client, address), "an answer")
    finally:
        second.close()


def fails(client: RemotingClient, address: str) -> bool:
    try:
        ask(client, address, "x", 1.0)
    except RemotingError:
        return True
    return False


def test_frames_in_every_fragmentation(client: RemotingClient) -> None:
    """Two answers cut at every byte, and one byte at a time, are the same two answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        pieces: list[Callable[[bytes], list[bytes]]] = [
            lambda data: [data[i : i + 1] for i in range(len(data))]
        ]
        size = len(encode_frame(RemotingCommand(0, {"n": "1"}, b"body", opaque=1, flag=1)))
        for place in range(0, size, 3):
            pieces.append(lambda data, place=place: [data[:place], data[place:]])
        got: list[RemotingCommand | Exception] = []
        done = threading.Semaphore(0)

        def take(result: RemotingCommand | Exception) -> None:
            got.append(result)
            done.release()

        client.invoke_async(address, RemotingCommand(7), 20.0, take)
        client.invoke_async(address, RemotingCommand(7), 20.0, take)
        sock, _ = listener.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for cut in pieces:
                opaques = read_opaques(sock, 2)
                frames = b"".join(
                    encode_frame(
                        RemotingCommand(0, {"n": str(opaque)}, b"body", opaque=opaque, flag=1)
                    )
                    for opaque in opaques
                )
                for piece in cut(frames):
                    sock.sendall(piece)
                for _ in range(2):
                    assert done.acquire(timeout=30.0)
                for result in got[-2:]:
                    assert isinstance(result, RemotingCommand)
                    assert result.ext_fields["n"] == str(result.opaque)
                    assert result.body == b"body"
                client.invoke_async(address, RemotingCommand(7), 20.0, take)
                client.invoke_async(address, RemotingCommand(7), 20.0, take)
    assert len(got) >= 2 * len(pieces)


def read_opaques(sock: socket.socket, count: int) -> list[int]:
    splitter = FrameSplitter()
    commands: list[RemotingCommand] = []
    while len(commands) < count:
        commands += splitter.feed(sock.recv(65536))
    return [command.opaque for command in commands]


def test_server_may_ask_too(
    server: Server, client: RemotingClient, requests: list[RemotingCommand]
) -> None:
    def handler(peer: Peer, command: RemotingCommand) -> None:
        # The same opaque as the client's own request: a request is never taken for an answer.
        peer.send(RemotingCommand(40, {"consumerGroup": "g"}, opaque=command.opaque, flag=2))
        echo(peer, command)

    server.handler = handler
    assert ask(client, server.address, "x") == "x"
    wait_for(lambda: len(requests) == 1, "the server's request")
    assert (requests[0].code, requests[0].is_oneway) == (40, True)


def test_oneway_gets_no_answer(server: Server, client: RemotingClient) -> None:
    client.invoke_oneway(server.address, RemotingCommand(5, {"text": "x"}))
    assert ask(client, server.address, "after") == "after"
    assert [command.code for command in server.seen] == [5, 1]
    assert server.seen[0].is_oneway


def test_large_bodies_both_ways(server: Server, client: RemotingClient) -> None:
    body = bytes(range(256)) * 40_000  # 10 MB: more than any socket buffer takes at once
    command = RemotingCommand(1, {"text": "x"}, body)
    assert client.invoke(server.address, command, 30.0).body == body


def test_closed_client_refuses_and_fails_what_waits(server: Server, client: RemotingClient) -> None:
    server.handler = lambda *_: None
    errors: list[RemotingCommand | Exception] = []
    done = threading.Event()

    def take(result: RemotingCommand | Exception) -> None:
        errors.append(result)
        done.set()

    client.invoke_async(server.address, RemotingCommand(1), 30.0, take)
    wait_for(lambda: server.seen, "the request")
    client.close()
    assert done.wait(30.0)
    assert isinstance(errors[0], ConnectionClosed)
    with pytest.raises(ClientStateError, match="shut down"):
        client.invoke("127.0.0.1:9", RemotingCommand(1), 1.0)


@pytest.mark.parametrize("connected", [True, False])
def test_no_call_brings_a_closed_client_back(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch, *, connected: bool
) -> None:
    """Neither by an address that was used before nor by a channel that somebody kept."""
    opened: list[str] = []
    open_socket = Channel._open

    def noted(channel: Channel) -> socket.socket:
        opened.append(channel.address)
        return open_socket(channel)

    monkeypatch.setattr(Channel, "_open", noted)
    channel = client.channel(server.address)
    if connected:
        ask(client, server.address, "before")
    client.close()
    told: list[RemotingCommand | Exception] = []
    calls: list[Callable[[], object]] = [
        lambda: client.invoke(server.address, RemotingCommand(1), 10.0),
        lambda: client.invoke_async(server.address, RemotingCommand(1), 10.0, told.append),
        lambda: client.invoke_async_soon(server.address, RemotingCommand(1), 10.0, told.append),
        lambda: client.invoke_oneway(server.address, RemotingCommand(1)),
        lambda: channel.call(1, encode_frame(RemotingCommand(1)), 10.0, told.append),
        lambda: channel.call_soon(1, encode_frame(RemotingCommand(1)), 10.0, told.append),
        lambda: channel.send_oneway(1, encode_frame(RemotingCommand(1))),
    ]
    for call in calls:
        with pytest.raises(ClientStateError, match="shut down"):
            call()
    if connected:
        wait_for(lambda: server.left == 1, "the end of the connection")
    assert not told
    assert len(server.seen) == len(opened) == (1 if connected else 0)


@pytest.fixture
def slow_connect(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Connects wait until the event is set."""
    allowed = threading.Event()
    opened = Channel._open

    def wait(channel: Channel) -> socket.socket:
        assert allowed.wait(30.0)
        return opened(channel)

    monkeypatch.setattr(Channel, "_open", wait)
    return allowed


def test_close_fails_what_waits_for_a_connection(
    server: Server, client: RemotingClient, slow_connect: threading.Event
) -> None:
    errors: list[RemotingCommand | Exception] = []
    done = threading.Event()

    def take(result: RemotingCommand | Exception) -> None:
        errors.append(result)
        done.set()

    client.invoke_async(server.address, RemotingCommand(1), 30.0, take)
    client.close()
    assert done.wait(30.0)
    assert isinstance(errors[0], ConnectionClosed)
    assert "shut down" in str(errors[0])
    slow_connect.set()


def test_connection_that_is_made_during_the_end_is_closed(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ended = threading.Event(), threading.Event()

    class Late(Connection):
        def start(self) -> None:
            made.set()
            assert ended.wait(30.0)
            super().start()

    monkeypatch.setattr("rocketmq_fast.remoting.client.Connection", Late)
    client.invoke_oneway(server.address, RemotingCommand(1))
    assert made.wait(30.0)
    client.close()
    ended.set()
    wait_for(lambda: server.left == 1, "the end of the connection")


def test_call_that_timed_out_before_the_connection_is_not_sent(
    server: Server, client: RemotingClient, slow_connect: threading.Event
) -> None:
    with pytest.raises(RequestTimeout):
        client.invoke(server.address, RemotingCommand(77, {"text": "x"}, b"x"), 0.2)
    client.invoke_oneway(server.address, RemotingCommand(78))
    slow_connect.set()
    assert ask(client, server.address, "later") == "later"
    assert [command.code for command in server.seen] == [78, 1]


def test_server_that_leaves_without_a_word_may_want_tls(client: RemotingClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            sock.recv(4096)
            sock.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(ConnectionClosed, match="use_tls"):
            client.invoke(f"127.0.0.1:{listener.getsockname()[1]}", RemotingCommand(1), 5.0)
        thread.join(10.0)


def test_server_that_answered_before_gives_no_hint(server: Server, client: RemotingClient) -> None:
    ask(client, server.address, "x")
    server.handler = lambda peer, _: peer.connection.close("as told")
    with pytest.raises(ConnectionClosed) as caught:
        client.invoke(server.address, RemotingCommand(1), 5.0)
    assert "TLS" not in str(caught.value)


def test_unreachable_address_is_told() -> None:
    told: list[str] = []
    loop = EventLoop("test-unreachable")
    loop.start()
    made = RemotingClient(loop, lambda *_: None, on_unreachable=told.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectError):
        made.invoke(address, RemotingCommand(1), 5.0)
    wait_for(lambda: told == [address], "the address")
    made.close()
    loop.stop()


def test_port_that_is_taken_is_named() -> None:
    loop = EventLoop("test-taken")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}") as caught:
            RemotingServer(loop, lambda *_: None).listen("127.0.0.1", port)
    assert caught.value.errno == errno.EADDRINUSE
    loop.stop()


def test_blocking_call_on_the_loop_is_refused(server: Server, client: RemotingClient) -> None:
    errors: list[Exception] = []
    done = threading.Event()

    def on_answer(_: RemotingCommand | Exception) -> None:
        try:
            client.invoke(server.address, RemotingCommand(1), 1.0)
        except ClientStateError as error:
            errors.append(error)
        done.set()

    client.invoke_async(server.address, RemotingCommand(1), 5.0, on_answer)
    assert done.wait(30.0)
    assert len(errors) == 1


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" host.name:1 ", ("host.name", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_addresses(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:-1"])
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        parse_address(text)
