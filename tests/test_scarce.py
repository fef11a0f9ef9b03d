"""Programs that run short of disk and descriptors, and clocks that jump."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Self

from tests.brokers import TestBroker
from tests.consuming import bodies
from tests.proxy import ProxiedCluster
from tests.test_lifecycle import _HEAD, _ROOT, _SECONDS
from tests.waiting import wait_for


class Program:
    """A program beside the test, which waits for a line wherever it calls `turn()`."""

    def __init__(self, address: str, group: str, topic: str, text: str, folder: Path) -> None:
        head = _HEAD + textwrap.dedent("""
            import resource

            def turn(word):
                say(word)
                sys.stdin.readline()
        """)
        self._errors = folder / "errors"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", head + textwrap.dedent(text), address, group, topic,
                 str(folder)],
                cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def said(self) -> str:
        """What it logged."""
        return self._errors.read_text()

    def until(self, word: str) -> None:
        """Wait for a word, which it says where it goes on after `go`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line == word, f"{line!r}, not {word!r}: {self.said()}"

    def go(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self, word: str) -> None:
        """Its last word, and an end without an error."""
        self.until(word)
        assert self._process.wait(_SECONDS) == 0, self.said()
        assert "Traceback" not in self.said(), self.said()


def test_disk_that_is_full(embedded_broker: TestBroker, tmp_path: Path) -> None:
    """No byte can be written to files: consuming goes on, and the old offsets stay whole."""
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(10))
    text = """
        consumer = rmq.PushConsumer(
            group, namesrv_addr=address, message_model="BROADCASTING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET", local_offset_store_dir=sys.argv[4],
            persist_consumer_offset_interval=20)
        consumer.subscribe(topic)
        consumer.register_listener(listen)
        consumer.start()
        wait_for(lambda: len(got) == 10, "the first messages")
        turn("ten")
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
        turn("full")
        wait_for(lambda: len(got) == 20, "messages while the disk is full")
        turn("twenty")
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        turn("room")
        consumer.shutdown()
        say("end")
    """
    with Program(broker.namesrv_addr, group, topic, text, tmp_path) as program:

        def stored() -> bytes:
            found = list(tmp_path.glob("*/*/offsets.json"))
            return found[0].read_bytes() if found else b""

        program.until("ten")
        wait_for(lambda: b"}:10" in stored(), "the offset in the file")
        program.go()
        program.until("full")
        broker.send(topic, bodies(10, "n"))
        program.go()
        program.until("twenty")
        # stderr is a file too: what the log would say has no room either.
        assert b"}:10" in stored()
        program.go()
        program.until("room")
        wait_for(lambda: b"}:20" in stored(), lambda: f"the new offset: {stored()!r}")
        program.go()
        program.end("end")


def test_descriptors_that_are_used_up(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster, tmp_path: Path
) -> None:
    """No socket can be made: connections are tried again until there is a descriptor."""
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(10))
    text = """
        consumer = make()
        consumer.start()
        wait_for(lambda: len(got) == 10, "the first messages")
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
        turn("none")
        wait_for(lambda: consumer.stats()["pull_errors"] >= 2, "pulls that fail")
        turn("failed")
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        wait_for(lambda: len(got) == 20, "the other messages")
        consumer.shutdown()
        say("end", len(set(got)))
    """
    with Program(proxied.namesrv_addr, group, topic, text, tmp_path) as program:
        program.until("none")
        proxied.broker.cut()
        program.go()
        program.until("failed")
        broker.send(topic, bodies(10, "n"))
        program.go()
        program.end("end 20")
    assert broker.committed(group, topic) == {0: 20}


def test_clock_that_jumps(embedded_broker: TestBroker, tmp_path: Path) -> None:
    """Hours and days, forth and back: nothing expires, no lock is lost, nothing comes twice."""
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    other = broker.group()
    broker.send(topic, bodies(10), queues=(0, 1))
    text = f"""
        jump, now, now_ns = 0, time.time, time.time_ns
        time.time = lambda: now() + jump
        time.time_ns = lambda: now_ns() + jump * 10**9
        in_order = []

        def listen_in_order(messages, context):
            in_order.extend(message.body for message in messages)
            return rmq.OrderlyStatus.SUCCESS

        ordered = rmq.PushConsumer(
            {other!r}, namesrv_addr=address, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
        ordered.subscribe(topic)
        ordered.register_listener(listen_in_order, orderly=True)
        consumer = make()
        consumer.start()
        ordered.start()
        count = 10
        for jump in (3600, 0, 86400, -3600, -86400, 1, 0):
            wait_for(lambda: len(got) == len(in_order) == count, "the messages")
            turn("so many")
            count += 10
        wait_for(lambda: len(got) == len(in_order) == count, "the last messages")
        consumer.shutdown()
        ordered.shutdown()
        say("end", len(set(got)), len(set(in_order)))
    """
    with Program(broker.namesrv_addr, group, topic, text, tmp_path) as program:
        for number in range(7):
            program.until("so many")
            broker.send(topic, bodies(10, f"{number}_"), queues=(0, 1))
            program.go()
        program.end("end 80 80")
    assert broker.committed(group, topic) == broker.committed(other, topic) == {0: 40, 1: 40}
