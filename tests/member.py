"""A member of a consumer group in a process of its own: a program, and how tests run it.

It notes each listener call as a line when it begins and another when it ends, and ends by SIGTERM
as `PushConsumer.run` does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocketmq_fast import ConsumeStatus, MessageExt, OrderlyStatus, PushConsumer
from tests.apache import java
from tests.waiting import wait_for

_ROOT = Path(__file__).resolve().parent.parent
_END_SECONDS = 60.0


class Member:
    """The process, seen from the test."""

    def __init__(self, name: str, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.errors = folder / f"{name}.err"
        self.process = process

    def lines(self, kind: str) -> list[list[str]]:
        """What it wrote of one kind: R ready, B begin, E end."""
        if not self.log.exists():
            return []
        return [line.split() for line in self.log.read_text().splitlines() if line[:1] == kind]

    def wait_ready(self) -> None:
        """Wait until it owns a queue."""
        wait_for(lambda: self.lines("R") or self.process.poll() is not None, self.said)
        assert self.process.poll() is None, self.said()

    def said(self) -> str:
        """What it logged."""
        return f"member {self.name}: {self.errors.read_text()[-3000:]}"

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        try:
            return self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {_END_SECONDS:.0f} s; {self.said()}") from None

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def member(
    folder: Path,
    name: str,
    namesrv_addr: str,
    group: str,
    topic: str,
    *,
    orderly: bool = False,
    pause: float = 0.0,
    **options: object,
) -> Iterator[Member]:
    """A running member; killed at the end if it still runs."""
    task = {
        "group": group,
        "topic": topic,
        "log": str(folder / f"{name}.log"),
        "orderly": orderly,
        "pause": pause,
        "options": {
            "namesrv_addr": namesrv_addr,
            "consume_from_where": "CONSUME_FROM_FIRST_OFFSET",
            **options,
        },
    }
    with open(folder / f"{name}.err", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.member", json.dumps(task)],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
    yield from _watched(Member(name, folder, process))


def _watched(started: Member) -> Iterator[Member]:
    try:
        yield started
    finally:
        started.kill()


@contextlib.contextmanager
def java_member(
    folder: Path, name: str, namesrv_addr: str, group: str, topic: str, **options: object
) -> Iterator[Member]:
    """As `member`, of the Java client; options as in Consume.java. It never says it is ready."""
    home = folder / f"{name}.home"
    home.mkdir()
    words = {
        "namesrv": namesrv_addr,
        "topic": topic,
        "group": group,
        "count": 2**31 - 1,
        "timeout": 600,
        "calls": folder / f"{name}.log",
        **options,
    }
    command = java.java_command("Consume", jvm_options=(*java.SMALL_JVM, *java.SOON), home=home)
    with open(folder / f"{name}.err", "wb") as errors:
        process = subprocess.Popen(
            [*command, *java.words_of(words)],
            env=java.environment(),
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
    yield from _watched(Member(name, folder, process))


def main(task: Mapping[str, Any]) -> None:
    """What the process does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers = iter(range(1 << 60))

    def note(text: str) -> None:
        os.write(log, f"{text}\n".encode())

    def listen(messages: list[MessageExt], context: Any) -> OrderlyStatus | ConsumeStatus:
        key = next(numbers)
        offsets = " ".join(str(message.queue_offset) for message in messages)
        note(f"B {key} {context.message_queue.queue_id} {time.monotonic_ns()} {offsets}")
        time.sleep(task["pause"])  # the work of a listener
        note(f"E {key} {time.monotonic_ns()}")
        return OrderlyStatus.SUCCESS if task["orderly"] else ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(task["group"], **task["options"])
    consumer.subscribe(task["topic"])
    consumer.register_listener(listen, orderly=task["orderly"])
    consumer.start()

    def announce() -> None:
        consumer.wait_assigned(_END_SECONDS)
        note("R ready")

    threading.Thread(target=announce, daemon=True).start()
    consumer.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
