"""Helpers of the pull consumer's tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rocketmq_fast import MessageExt, PullConsumer
from tests.waiting import wait_for

FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


def take(consumer: PullConsumer, count: int, seconds: float = 30.0) -> list[MessageExt]:
    """Poll until `count` messages came, and then some; fails when they do not."""
    got: list[MessageExt] = []
    deadline = time.monotonic() + seconds
    while len(got) < count:
        got += consumer.poll(1.0)
        assert len(got) >= count or time.monotonic() < deadline, f"{len(got)} of {count} came"
    return got


def drain(consumer: PullConsumer, quiet: float = 0.3) -> list[MessageExt]:
    """Everything that comes until nothing came for a while."""
    got: list[MessageExt] = []
    while messages := consumer.poll(quiet):
        got += messages
    return got


@contextmanager
def assigned(namesrv_addr: str, group: str, topic: str, **options: Any) -> Iterator[PullConsumer]:
    """A pull consumer of all queues of a topic, from their first message on."""
    with PullConsumer(group, namesrv_addr=namesrv_addr, **{**FIRST, **options}) as consumer:
        consumer.assign(consumer.queues(topic))
        yield consumer


_SERVERS = ("rocketmq-broker", "rocketmq-namesrv", "rocketmq-embedded")


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Fails when a client's thread that was started inside is still there afterwards."""
    before = set(threading.enumerate())
    yield

    def left() -> list[str]:
        mine = set(threading.enumerate()) - before
        names = [thread.name for thread in mine if thread.name.startswith("rocketmq-")]
        return [name for name in names if not name.startswith(_SERVERS)]

    wait_for(lambda: not left(), lambda: f"threads to end: {left()}")
