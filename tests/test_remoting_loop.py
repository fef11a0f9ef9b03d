"""The event loop: no wake-up may be lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from rocketmq_fast.remoting.loop import EventLoop

WAIT = 30.0


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    running = EventLoop("loop-under-test")
    yield running
    running.stop()


class Interrupted:
    """The receiving end of the wake-ups; another thread comes in while it is read."""

    def __init__(self, loop: EventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self._sock = sock
        self.came = threading.Event()

    def recv(self, size: int) -> bytes:
        if not self.came.is_set():
            thread = threading.Thread(target=self._loop.call_soon, args=(self.came.set,))
            thread.start()
            thread.join(WAIT)
        return self._sock.recv(size)

    def close(self) -> None:
        self._sock.close()


def test_a_call_that_comes_while_wake_ups_are_read_keeps_the_loop_awake(loop: EventLoop) -> None:
    interrupted = Interrupted(loop, loop._wake_receive)
    loop._wake_receive = interrupted  # type: ignore[assignment]
    loop.start()
    for _ in range(3):
        done = threading.Event()
        loop.call_soon(done.set)
        assert done.wait(WAIT)
    assert interrupted.came.is_set()


def test_calls_of_many_threads_all_run(loop: EventLoop) -> None:
    loop.start()
    ran = [0] * 4

    def post(number: int) -> None:
        for _ in range(2000):
            done = threading.Event()
            loop.call_soon(done.set)
            assert done.wait(WAIT)
            ran[number] += 1

    threads = [threading.Thread(target=post, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert ran == [2000] * 4
