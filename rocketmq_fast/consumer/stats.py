"""Counters of a consumer by topic, and their rates over the last minute."""

from __future__ import annotations

import time
from collections import deque

# Java samples every 10 s and keeps a minute of it; its rates in mqadmin are over that window.
SAMPLE_SECONDS = 10.0
_SAMPLES = 7


class TopicCounters:
    """What happened to the messages of one topic since start.

    The pull figures are written by the event loop, the others under the consume service's lock.
    """

    __slots__ = ("call_seconds", "calls", "failed", "pull_seconds", "pulled", "pulls", "succeeded")

    def __init__(self) -> None:
        self.pulls = 0
        self.pull_seconds = 0.0
        self.pulled = 0
        self.calls = 0
        self.call_seconds = 0.0
        self.succeeded = 0
        self.failed = 0

    def figures(self) -> dict[str, float]:
        """All figures by name: counts of messages, pulls and calls, and seconds."""
        return {
            "pulls": self.pulls,
            "pulled": self.pulled,
            "pull_seconds": self.pull_seconds,
            "calls": self.calls,
            "call_seconds": self.call_seconds,
            "consumed": self.succeeded,
            "failed": self.failed,
        }

    def snapshot(self) -> tuple[float, ...]:
        """Time and all figures, in the order of `rates`."""
        return (
            time.monotonic(),
            self.pulls,
            self.pull_seconds,
            self.pulled,
            self.calls,
            self.call_seconds,
            self.succeeded,
            self.failed,
        )


class ConsumerStats:
    """Counters of all topics, with a minute of samples. Any thread."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCounters] = {}
        self._samples: dict[str, deque[tuple[float, ...]]] = {}

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic; made on first use."""
        counters = self._topics.get(name)
        if counters is None:
            counters = self._topics.setdefault(name, TopicCounters())
            self._samples[name] = deque([counters.snapshot()], maxlen=_SAMPLES)
        return counters

    def totals(self) -> dict[str, TopicCounters]:
        """The counters by topic."""
        return dict(self._topics)

    def sample(self) -> None:
        """Take a sample of every topic. Every SAMPLE_SECONDS."""
        for name, counters in self._topics.copy().items():
            self._samples[name].append(counters.snapshot())

    def rates(self) -> dict[str, dict[str, float]]:
        """By topic, under the names of Java's ConsumeStatus.

        pullRT and consumeRT are mean milliseconds of a pull and of a listener call, the TPS figures
        messages a second over the last minute, consumeFailedMsgs a count since start.
        """
        result = {}
        for name, counters in self._topics.copy().items():
            then = self._samples[name][0]
            now = counters.snapshot()
            seconds, pulls, pull_s, pulled, calls, call_s, good, bad = (
                b - a for a, b in zip(then, now, strict=True)
            )
            seconds = max(seconds, 1e-3)
            result[name] = {
                "pullRT": 1000 * pull_s / pulls if pulls else 0.0,
                "pullTPS": pulled / seconds,
                "consumeRT": 1000 * call_s / calls if calls else 0.0,
                "consumeOKTPS": good / seconds,
                "consumeFailedTPS": bad / seconds,
                "consumeFailedMsgs": counters.failed,
            }
        return result
