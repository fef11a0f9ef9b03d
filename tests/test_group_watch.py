"""Members of a group that subscribe differently: the signs, and what is none."""

from __future__ import annotations

import logging
import time

import pytest

from rocketmq_fast import MessageQueue, decode_messages
from rocketmq_fast._core import MessageBatch
from rocketmq_fast.consumer import group_watch
from rocketmq_fast.consumer.group_watch import GroupWatch
from rocketmq_fast.consumer.subscription import subscribe
from tests.reference.messages_factory import build_message

QUEUES = [MessageQueue("T", "a", index) for index in range(4)]


class Clock:
    def __init__(self) -> None:
        self.now = time.monotonic() + 1e6  # long after every subscription was made

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> Clock:
    caplog.set_level(logging.WARNING, group_watch.__name__)
    return Clock()


def forget(watch: GroupWatch) -> None:
    """All queues are refused, and then pulled again."""
    for queue in QUEUES:
        watch.unknown(queue)
    for queue in QUEUES:
        watch.known(queue)


def test_a_topic_that_is_forgotten_again_and_again_is_told_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = GroupWatch("g", clock)
    forget(watch)
    forget(watch)
    assert caplog.messages == []
    clock.now += 12
    forget(watch)
    forget(watch)
    (line,) = caplog.messages
    assert "group g, topic T: broker a forgot the subscription 3 times in 12 s" in line
    assert "same topics" in line


def test_restarts_and_long_times_are_no_sign(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = GroupWatch("g", clock)
    for _ in range(6):
        forget(watch)
        watch.away("a")
    for _ in range(6):
        forget(watch)
        clock.now += 200.0
    assert caplog.messages == []


def batch(*tags: str) -> MessageBatch:
    return decode_messages(b"".join(build_message(properties={"TAGS": tag}) for tag in tags))


def test_a_tag_that_nobody_here_asked_for_is_told_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = GroupWatch("g", clock)
    wanted = subscribe("T", "Aa || TagB")
    watch.filtered(batch("BB", "TagB"), wanted)  # a collision with "Aa", no more
    assert caplog.messages == []
    watch.filtered(batch("TagB", "TagC"), wanted)
    watch.filtered(batch("TagD"), wanted)
    (line,) = caplog.messages
    assert "a message with tag 'TagC', which is not in 'Aa || TagB'" in line


def test_a_new_subscription_may_meet_pulls_of_the_old_one(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = subscribe("T", "TagB")
    clock.now = wanted.made_at + group_watch.SETTLED_SECONDS / 2
    GroupWatch("g", clock).filtered(batch("TagC"), wanted.renewed())
    assert caplog.messages == []
