"""Streams of frames: fragments, limits, corruption."""

from __future__ import annotations

import contextlib
import random
import select
import socket
from collections.abc import Iterator

import pytest

from rocketmq_fast import _core
from rocketmq_fast._core.frame import send_small
from rocketmq_fast.errors import FrameError, HeaderError
from tests.differential import command_fields
from tests.require import require
from tests.waiting import wait_for

MAX_FRAME = 16_777_216


def frame(opaque: int, body: bytes = b"", serialize_type: int = 0) -> bytes:
    command = _core.RemotingCommand(
        0, {"k": "v"}, body, opaque=opaque, flag=1, serialize_type=serialize_type
    )
    data: bytes = _core.encode_frame(command)
    return data


def opaques(commands: list[_core.RemotingCommand]) -> list[int]:
    return [command.opaque for command in commands]


def test_a_stream_split_at_every_byte_gives_the_same_commands() -> None:
    stream = frame(1, b"one") + frame(2, serialize_type=1) + frame(3, bytes(range(256)))
    expected = [command_fields(command) for command in _core.FrameSplitter().feed(stream)]
    assert [fields["opaque"] for fields in expected] == [1, 2, 3]
    for cut in range(len(stream) + 1):
        splitter = _core.FrameSplitter()
        commands = splitter.feed(stream[:cut]) + splitter.feed(stream[cut:])
        assert [command_fields(command) for command in commands] == expected
        assert splitter.pending == 0


def test_a_thousand_frames_in_one_read_come_out_in_order() -> None:
    stream = b"".join(frame(number, bytes(number % 50), number % 2) for number in range(1000))
    commands = _core.FrameSplitter().feed(stream)
    assert opaques(commands) == list(range(1000))
    assert [len(command.body) for command in commands] == [number % 50 for number in range(1000)]


@pytest.mark.parametrize("size", [0, 1, 4096, 98_304, 131_072, 262_144, 1_000_000, 5_000_000])
def test_frames_of_any_size_arrive_whole_through_the_receive_buffer(size: int) -> None:
    source = random.Random(size)
    bodies = [source.randbytes(size), b"between", source.randbytes(size)]
    stream = b"".join(frame(number, body) for number, body in enumerate(bodies))
    splitter = _core.FrameSplitter()
    commands = []
    at = 0
    while at < len(stream):
        room = splitter.get_buffer()
        assert len(room) > 0
        count = min(len(room), len(stream) - at, source.choice((1, 1448, 65_536, 1 << 20)))
        room[:count] = stream[at : at + count]
        del room
        at += count
        commands += splitter.commit(count)
    assert [command.body for command in commands] == bodies
    assert splitter.pending == 0


def test_pending_counts_the_bytes_of_the_frame_at_hand() -> None:
    data = frame(7, b"abc")
    splitter = _core.FrameSplitter()
    for size in range(1, len(data)):
        assert splitter.feed(data[size - 1 : size]) == []
        assert splitter.pending == size
    assert opaques(splitter.feed(data[-1:])) == [7]
    assert splitter.pending == 0


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 3, MAX_FRAME - 3, (1 << 31) - 1])
def test_an_impossible_length_is_refused_at_its_fourth_byte(length: int) -> None:
    prefix = length.to_bytes(4, "big", signed=True)
    splitter = _core.FrameSplitter()
    assert splitter.feed(prefix[:3]) == []
    with pytest.raises(FrameError) as caught:
        splitter.feed(prefix[3:])
    assert caught.value.position == 0
    assert str(length) in str(caught.value)


def test_the_largest_length_is_waited_for_without_allocating_it() -> None:
    splitter = _core.FrameSplitter()
    assert splitter.feed((MAX_FRAME - 4).to_bytes(4, "big")) == []
    assert splitter.pending == 4
    assert len(splitter.get_buffer()) < 1 << 20


def test_a_largest_frame_is_read_and_one_byte_more_is_refused() -> None:
    empty = len(frame(1))
    data = frame(1, bytes(MAX_FRAME - empty))
    assert len(data) == MAX_FRAME
    (command,) = _core.FrameSplitter().feed(data)
    assert len(command.body_view()) == MAX_FRAME - empty
    with pytest.raises(FrameError):
        frame(1, bytes(MAX_FRAME - empty + 1))


def test_a_smaller_frame_limit_is_kept() -> None:
    data = frame(1, bytes(100))
    assert opaques(_core.FrameSplitter(len(data)).feed(data)) == [1]
    with pytest.raises(FrameError):
        _core.FrameSplitter(len(data) - 1).feed(data)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (b"\xff\xff\xff\xff", FrameError),
        (b"\x00\x00\x00\x04\x02\x00\x00\x00", FrameError),
        (b"\x00\x00\x00\x04\x00\x00\x00\x01", FrameError),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00", HeaderError),
        (b"\x00\x00\x00\x05\x00\x00\x00\x01{", HeaderError),
        (b"\x00\x00\x00\x05\x01\x00\x00\x01x", HeaderError),
    ],
)
def test_a_corrupt_stream_is_refused_until_reset(wrong: bytes, error: type[Exception]) -> None:
    splitter = _core.FrameSplitter()
    with pytest.raises(error):
        splitter.feed(wrong)
    for _ in range(3):
        with pytest.raises(error):
            splitter.feed(frame(1))
        with pytest.raises(error):
            splitter.get_buffer()
        with pytest.raises(error):
            splitter.commit(0)
    splitter.reset()
    assert splitter.pending == 0
    assert opaques(splitter.feed(frame(2))) == [2]


def test_commands_before_the_corruption_are_not_lost() -> None:
    splitter = _core.FrameSplitter()
    good = frame(1) + frame(2)
    assert opaques(splitter.feed(good + b"\xff\xff\xff\xff" + frame(3))) == [1, 2]
    with pytest.raises(FrameError):
        splitter.feed(b"")


def test_text_of_another_protocol_is_named_in_the_error() -> None:
    with pytest.raises(FrameError, match="HTTP"):
        _core.FrameSplitter().feed(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(FrameError, match="TLS"):
        _core.FrameSplitter().feed(b"\x15\x03\x03\x00\x02\x02\x28")


def test_a_body_view_outlives_command_and_splitter() -> None:
    splitter = _core.FrameSplitter()
    body = random.Random(3).randbytes(200_000)
    (command,) = splitter.feed(frame(1, body))
    view = command.body_view()
    del command, splitter
    assert bytes(view) == body


def test_more_bytes_than_the_room_cannot_be_committed() -> None:
    splitter = _core.FrameSplitter()
    room = len(splitter.get_buffer())
    with pytest.raises(FrameError):
        splitter.commit(room + 1)


# --------------------------------------------------------------------- straight from a socket


@pytest.fixture
def native_sockets() -> None:
    require("native_sockets")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


@pytest.mark.usefixtures("native_sockets")
def test_commands_come_straight_from_a_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    splitter = _core.FrameSplitter()
    with pytest.raises(BlockingIOError):
        splitter.receive(ours.fileno(), 1 << 20)
    many = b"".join(frame(number) for number in range(200))
    theirs.sendall(many + frame(200)[:10])
    received, commands = splitter.receive(ours.fileno(), 1 << 20)
    assert (received, opaques(commands)) == (len(many) + 10, list(range(200)))
    assert splitter.pending == 10
    theirs.sendall(frame(200)[10:])
    theirs.close()
    assert opaques(splitter.receive(ours.fileno(), 1 << 20)[1]) == [200]
    assert splitter.pending == 0
    for _ in range(2):
        assert splitter.receive(ours.fileno(), 1 << 20) == (0, [])


@pytest.mark.usefixtures("native_sockets")
def test_commands_before_a_corruption_come_from_the_socket_too(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    splitter = _core.FrameSplitter()
    theirs.sendall(frame(1) + b"\xff\xff\xff\xff" + frame(2))
    assert opaques(splitter.receive(ours.fileno(), 1 << 20)[1]) == [1]
    assert isinstance(splitter.failure, FrameError)
    with pytest.raises(FrameError):
        splitter.receive(ours.fileno(), 1 << 20)


@pytest.mark.usefixtures("native_sockets")
def test_commands_before_a_wrong_header_come_and_the_others_go(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    splitter = _core.FrameSplitter()
    wrong = b"\x00\x00\x00\x04\x00\x00\x00\x00"
    theirs.sendall(frame(1) + wrong + frame(2))
    assert opaques(splitter.receive(ours.fileno(), 1 << 20)[1]) == [1]
    assert isinstance(splitter.failure, HeaderError)


@pytest.fixture
def unread() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A pair over TCP whose other side has bytes that it never reads: its close is a reset."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        ours.setblocking(False)
        ours.sendall(b"never read")
        wait_for(lambda: theirs.recv(1, socket.MSG_PEEK), "the bytes at the other side")
        yield ours, theirs


@pytest.mark.usefixtures("native_sockets")
def test_a_reset_is_told(unread: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = unread
    splitter = _core.FrameSplitter()
    theirs.close()

    def is_told() -> bool:
        try:
            splitter.receive(ours.fileno(), 1 << 20)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        raise AssertionError("the stream ended without an error")

    wait_for(is_told, "the reset")


@pytest.mark.usefixtures("native_sockets")
def test_a_reset_behind_a_full_block_is_told_after_the_bytes(
    unread: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = unread
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    splitter = _core.FrameSplitter()
    block = len(splitter.get_buffer())
    theirs.sendall(frame(1, bytes(2 * block))[:block])

    def has_arrived() -> bool:
        with contextlib.suppress(BlockingIOError):
            return len(ours.recv(block, socket.MSG_PEEK)) == block
        return False

    wait_for(has_arrived, "the bytes at this side")
    theirs.close()
    poll = select.poll()
    poll.register(ours, 0)
    wait_for(lambda: poll.poll(0), "the reset")
    assert splitter.receive(ours.fileno(), 1 << 20) == (block, [])
    assert splitter.pending == block
    with pytest.raises(ConnectionResetError):
        splitter.receive(ours.fileno(), 1 << 20)


@pytest.mark.usefixtures("native_sockets")
def test_no_more_is_received_than_asked_for(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    splitter = _core.FrameSplitter()
    block = len(splitter.get_buffer())
    stream = frame(1, bytes(block))
    rest = memoryview(stream)
    got: list[_core.RemotingCommand] = []
    while not got:
        with contextlib.suppress(BlockingIOError):
            rest = rest[theirs.send(rest) :] if rest else rest
        received, got = splitter.receive(ours.fileno(), 1)
        assert 0 < received <= block
    assert opaques(got) == [1]


@pytest.mark.usefixtures("native_sockets")
def test_a_wrong_descriptor_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        _core.FrameSplitter().receive(-1, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        send_small(-1, b"x")


@pytest.mark.usefixtures("native_sockets")
def test_what_a_socket_does_not_take_is_not_sent(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    data = bytes(8 << 20)
    sent = send_small(ours.fileno(), data)
    assert 0 < sent < len(data)
    with pytest.raises(BlockingIOError):
        send_small(ours.fileno(), data)
    theirs.close()
    with pytest.raises(BrokenPipeError):
        send_small(ours.fileno(), b"x")
