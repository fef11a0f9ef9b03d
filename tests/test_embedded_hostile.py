"""A server that is sent garbage, too much, too slowly or by too many: it goes on for the others."""

from __future__ import annotations

import contextlib
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.remoting.loop import EventLoop
from rocketmq_fast.remoting.server import Peer, RemotingServer
from tests.embedded_raw import PULL, SEND, Raw, pull_fields, send, send_fields
from tests.fuzz_server import fuzz
from tests.waiting import wait_for

MIB = 1 << 20
Start = Callable[..., RemotingServer]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers that answer a request with its body, as often as it says; stops them."""
    loop = EventLoop("hostile")
    servers: list[RemotingServer] = []

    def answer(peer: Peer, request: RemotingCommand) -> None:
        for _ in range(int(request.ext_fields.get("times", "1"))):
            peer.reply(request, RemotingCommand(0, None, request.body))

    def make(**limits: Any) -> RemotingServer:
        server = RemotingServer(loop, answer, **limits)
        server.listen("127.0.0.1", 0)
        server.start()
        servers.append(server)
        return server

    loop.start()
    try:
        yield make
    finally:
        for server in servers:
            loop.call_soon(server.close)
        loop.stop()


def address_of(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


def is_closed(raw: Raw) -> bool:
    """Whether the server ended a connection; reads what came before."""
    raw.sock.setblocking(False)
    try:
        while raw.sock.recv(MIB):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def test_bytes_that_come_too_slowly_end_their_connection(start: Start) -> None:
    address = address_of(start(frame_seconds=0.1))
    with Raw(address) as good, Raw(address) as slow, Raw(address) as silent:
        slow.sock.sendall(b"\0\0\1")
        wait_for(lambda: is_closed(slow), "the end of a frame that does not come")
        assert good.call(1).code == 0
        # One that has said nothing at all has no frame to complete.
        assert not is_closed(silent)


def test_a_slow_line_is_no_attack(start: Start) -> None:
    """A frame that is late, but more than 1 KiB/s came of it, may take its time."""
    address = address_of(start(frame_seconds=0.1))
    with Raw(address) as steady, Raw(address) as slow:
        steady.sock.sendall((15 * MIB).to_bytes(4, "big") + b"\0\0\0\x02{}" + b"x" * MIB)
        slow.sock.sendall(b"\0")
        wait_for(lambda: is_closed(slow), "the end of the slow one")
        assert not is_closed(steady)


def test_incomplete_frames_hold_no_more_memory_than_they_may(start: Start) -> None:
    address = address_of(start(max_held_bytes=8 * MIB))
    announced = (15 * MIB).to_bytes(4, "big") + b"\0\0\0\x02{}"
    with ExitStack() as stack:
        good = stack.enter_context(Raw(address))
        bad = [stack.enter_context(Raw(address)) for _ in range(10)]
        for raw in bad:
            with contextlib.suppress(OSError):
                raw.sock.sendall(announced + b"x" * (2 * MIB))
        # Ten times 2 MiB: at most four of them may stay.
        wait_for(lambda: sum(map(is_closed, bad)) >= 6, "the end of six connections")
        assert good.call(1, {}, b"x").body == b"x"


def test_unread_answers_hold_no_more_memory_than_they_may(start: Start) -> None:
    server = start(max_held_bytes=32 * MIB)
    address = address_of(server)
    with ExitStack() as stack:
        good = stack.enter_context(Raw(address))
        bad = [stack.enter_context(Raw(address)) for _ in range(4)]
        for raw in bad:  # 24 MB that nobody reads, less what the sockets take
            raw.send(1, {"times": "24"}, b"x" * MIB)
        wait_for(lambda: len(server.peers) < 5, "the end of one that reads nothing")
        assert good.call(1, {}, b"x").body == b"x"


def test_too_many_connections_are_refused_until_one_leaves() -> None:
    with Cluster(max_connections=300) as cluster, ExitStack() as stack:
        idle = [stack.enter_context(Raw(cluster.broker_addr)) for _ in range(300)]
        assert idle[0].call(30, {"topic": "T", "queueId": "0"}).code == 0
        assert idle[299].call(30, {"topic": "T", "queueId": "0"}).code == 0
        with Raw(cluster.broker_addr) as more, pytest.raises(OSError, match=r"."):
            more.call(30, {"topic": "T", "queueId": "0"})
        idle[7].close()

        def served() -> bool:
            with Raw(cluster.broker_addr) as more, contextlib.suppress(OSError):
                return more.call(30, {"topic": "T", "queueId": "0"}).code == 0
            return False

        wait_for(served, "room for one more")


def test_a_bomb_is_kept_and_not_blown_up() -> None:
    """The server never inflates a body: it stores what it is sent and gives it back."""
    bomb = zlib.compress(bytes(8 * MIB), 9)
    with Cluster() as cluster, Raw(cluster.broker_addr) as raw:
        cluster.create_topic("T", 1)
        fields = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "1", "g": "0",
                  "h": "0", "i": "", "j": "0", "k": "false"}  # fmt: skip
        assert raw.call(310, fields, bomb).code == 0
        assert bomb in raw.call(11, pull_fields("T")).body
        fields["m"], fields["f"] = "true", "0"
        assert raw.call(320, fields, bomb).code == 13  # no batch


def test_noise_from_a_seed() -> None:
    assert fuzz(seed=1, seconds=0.0, rounds=300) > 1000


def test_a_connection_that_is_reset_while_it_is_served(start: Start) -> None:
    address = address_of(start())
    host, port = address.split(":")
    for _ in range(20):
        sock = socket.create_connection((host, int(port)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.sendall(b"\0\0\0\x08\0\0\0\x02{}")
        sock.close()
    with Raw(address) as good:
        assert good.call(1).code == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF) + b"\0" * 8,
        struct.pack(">iI", 8, 0xFFFF) + b"\0" * 4,
        struct.pack(">iI", 6, 2) + b"{{",
        struct.pack(">iI", 8, 7 << 24 | 4) + b"\0" * 4,
        struct.pack(">iI", 4, 0),
    ],
)
def test_bytes_that_are_no_frame_end_their_connection_only(
    fresh_cluster: Cluster, data: bytes
) -> None:
    for address in (fresh_cluster.broker_addr, fresh_cluster.namesrv_addr):
        with Raw(address) as good, Raw(address) as bad:
            bad.sock.sendall(data)
            assert bad.sock.recv(100) == b""
            assert good.call(4711).code == 3


def test_garbage_in_every_request_never_stops_the_server(fresh_cluster: Cluster) -> None:
    """Each code the server knows, with nothing, junk and too much in it."""
    served = fresh_cluster._broker
    assert served is not None
    known = sorted(served._dispatcher.codes)
    assert len(known) > 40
    with Raw(fresh_cluster.broker_addr) as raw:
        for code in known:
            for fields in ({}, {"topic": "T", "group": "G", "queueId": "99999999999"}):
                for body in (b"", b"junk", b"[]", b"{}", b"[" * 5000, b"\xff" * 64,
                             b'{"clientID":5,"consumerDataSet":{},"mqSet":[5]}'):  # fmt: skip
                    response = raw.call(code, fields, body)
                    assert response.code in (0, 1, 3, 13, 16, 17, 22, 24, 206), (code, fields, body)
        assert raw.call(30, {"topic": "T", "queueId": "0"}).code == 0


def test_a_slow_reader_does_not_hold_up_others(fresh_cluster: Cluster, raw_broker: Raw) -> None:
    body = b"x" * 60_000
    for _ in range(4):
        send(raw_broker, "T", 0, body)
    slow = Raw(fresh_cluster.broker_addr)
    for _ in range(300):  # 70 MB of answers that nobody reads
        slow.send(PULL, pull_fields("T"))
    for _ in range(50):
        assert raw_broker.call(30, {"topic": "T", "queueId": "0"}).ext_fields["offset"] == "4"
    slow.close()


def test_many_connections_at_once(fresh_cluster: Cluster) -> None:
    raws = [Raw(fresh_cluster.broker_addr) for _ in range(200)]
    for index, raw in enumerate(raws):
        raw.send(SEND, send_fields("T", index % 4), b"%d" % index)
    for raw in raws:
        raw.receive()
        raw.close()
    assert fresh_cluster.message_count("T") == 200


def test_no_more_connections_than_allowed() -> None:
    with Cluster(max_connections=3) as cluster:
        raws = [Raw(cluster.broker_addr) for _ in range(3)]
        for raw in raws:
            assert raw.call(4711).code == 3
        with Raw(cluster.broker_addr) as extra:
            assert extra.sock.recv(10) == b""
        assert raws[0].call(4711).code == 3
        for raw in raws:
            raw.close()
