"""Subscriptions that change while the consumer runs."""

from __future__ import annotations

import threading

import pytest

from tests.brokers import TestBroker
from tests.consuming import Recorder, consuming


def test_late_heartbeat_does_not_bring_an_old_filter_back(
    embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads announce at once: what counts is what was subscribed last.

    With the older filter the consumer would throw away what the broker sends by the newer one.
    """
    topic = embedded_broker.topic(1)
    with consuming(
        embedded_broker.namesrv_addr, embedded_broker.group(), {topic: "TagA"}, Recorder()
    ) as consumer:
        running = consumer._running
        assert running is not None
        heartbeat = running.instance.heartbeat
        first_in, other_done = threading.Event(), threading.Event()

        def slow_heartbeat() -> None:
            heartbeat()
            if threading.current_thread() is slow:
                first_in.set()
                other_done.wait(0.5)

        monkeypatch.setattr(running.instance, "heartbeat", slow_heartbeat)
        slow = threading.Thread(target=running.announce)
        slow.start()
        assert first_in.wait(30.0)
        consumer.subscribe(topic, "TagB")
        other_done.set()
        slow.join(30.0)
        subscription = running.subscription(topic)
        assert subscription is not None
        assert subscription.data.sub_string == "TagB"
