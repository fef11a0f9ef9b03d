"""Metrics with the real libraries: what a scrape and a reader see of consumers that run."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rocketmq_fast import ConfigError, ConsumeStatus, MessageExt, MessageQueue, PullConsumer
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.errors import ConnectError
from rocketmq_fast.metrics import (
    FIGURES,
    PrometheusCollector,
    register_opentelemetry,
    register_prometheus,
    samples,
)
from tests.brokers import TestBroker
from tests.consuming import LATER, SUCCESS, Recorder, bodies, consuming, make, releasing
from tests.waiting import wait_for

Key = tuple[str, tuple[tuple[str, str], ...]]


def scraped(registry: CollectorRegistry) -> dict[Key, float]:
    """Samples of a scrape, parsed as a Prometheus server does, by name and labels."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> Key:
    return name, tuple(sorted(labels.items()))


def observed(reader: InMemoryMetricReader) -> dict[Key, float]:
    """The points of a collection, by name and attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, tuple(sorted((k, str(v)) for k, v in point.attributes.items()))): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points  # type: ignore[union-attr]
    }


def test_push_consumer_by_both(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(10), queues=(0, 1))
    recorder = Recorder(lambda messages, _: LATER if messages[0].reconsume_times == 0 else SUCCESS)
    registry = CollectorRegistry()
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    consumer = make(broker.namesrv_addr, group, topic, recorder)
    register_prometheus([consumer], registry)
    register_opentelemetry([consumer], meter)
    up = key("rocketmq_consumer_up", group=group)
    assert scraped(registry) == {up: 0.0}
    assert observed(reader) == {key("rocketmq.consumer.up", group=group): 0}
    consumer.start()
    try:
        recorder.wait_deliveries(20)
        failed = key("rocketmq_consumer_failed_total", group=group, topic=topic)
        consumed = key("rocketmq_consumer_consumed_total", group=group, topic=f"%RETRY%{group}")
        wait_for(
            lambda: scraped(registry).get(failed) == 10 and scraped(registry).get(consumed) == 10,
            lambda: f"the figures; {scraped(registry)}",
        )
        found = scraped(registry)
        assert found[up] == 1
        assert found[key("rocketmq_consumer_pulled_total", group=group, topic=topic)] == 10
        assert found[key("rocketmq_consumer_listener_calls_total", group=group, topic=topic)] == 10
        assert found[key("rocketmq_consumer_threads", group=group)] >= 1
        assert found[key("rocketmq_consumer_cached_messages", group=group)] == 0
        for queue in ("0", "1"):
            where = {"topic": topic, "broker": broker.broker_name, "queue": queue}
            assert found[key("rocketmq_consumer_lag", group=group, **where)] == 0
            assert found[key("rocketmq_consumer_next_offset", group=group, **where)] == 5
        told = observed(reader)
        for (name, labels), value in found.items():
            if name.endswith(("_age_seconds", "_seconds_total")):
                continue  # they go on
            dotted = name.removesuffix("_total").replace("rocketmq_consumer_", "rocketmq.consumer.")
            assert told[dotted, labels] == value, name
        assert {name for name, _ in found} == {
            f"rocketmq_consumer_{figure.name}" + ("_total" if figure.counter else "")
            for figure in FIGURES
        }
    finally:
        consumer.shutdown()
    assert scraped(registry) == {up: 0.0}


def test_a_failure_takes_nothing_off_a_counter(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, go = broker.topic(1), threading.Event()

    def listener(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].body == b"m0":
            return LATER
        assert go.wait(30.0)
        return SUCCESS

    broker.send(topic, bodies(5))
    with (
        consuming(
            broker.namesrv_addr,
            broker.group(),
            topic,
            listener,
            consume_thread_min=1,
            consume_thread_max=1,
        ) as consumer,
        releasing(go),
    ):

        def totals() -> dict[str, float]:
            found: dict[str, float] = consumer.stats()["totals"].get(topic, {})
            return found

        wait_for(lambda: totals().get("failed") == 1, totals)
        assert totals()["consumed"] == 0
        go.set()
        wait_for(lambda: totals()["consumed"] == 4, totals)


def test_pull_consumer(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(4))
    registry = CollectorRegistry()
    with PullConsumer(group, namesrv_addr=broker.namesrv_addr) as pull:
        register_prometheus([pull], registry)
        pull.assign(pull.queues(topic))
        pull.seek_to_begin()
        got: list[Any] = []
        wait_for(lambda: bool(got.extend(pull.poll(0.2, 2))) or len(got) >= 2, "two messages")
        found = scraped(registry)
    where = {"topic": topic, "broker": broker.broker_name, "queue": "0"}
    assert found[key("rocketmq_consumer_lag", group=group, **where)] == 2
    assert found[key("rocketmq_consumer_pulled_total", group=group, topic=topic)] == 4


class Fake:
    """A consumer whose broker cannot be asked."""

    def __init__(self, group: str, client_id: str) -> None:
        self.group = group
        self._client_id = client_id

    def stats(self) -> dict[str, Any]:
        queue = {"next_offset": 5, "max_offset": 7, "cached": 0, "last_pull_age_seconds": 0.5}
        return {
            "client_id": self._client_id,
            "pull_errors": 3,
            "totals": {},
            "queues": {"T@room1@b:0:2": queue},
        }

    def lag(self) -> Mapping[MessageQueue, int]:
        raise ConnectError("no broker", "b:1")


def test_broker_that_is_away_costs_only_the_lag(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    register_prometheus([Fake("g", "c")], registry)
    found = scraped(registry)
    assert found[key("rocketmq_consumer_pull_errors_total", group="g")] == 3
    where = {"topic": "T", "broker": "room1@b:0", "queue": "2"}
    assert found[key("rocketmq_consumer_max_offset", group="g", **where)] == 7
    assert not [name for name, _ in found if name == "rocketmq_consumer_lag"]
    assert "lag of group g: no broker" in caplog.text


def test_members_of_one_group_need_their_client_id() -> None:
    members = [Fake("g", "one"), Fake("g", "two")]
    with pytest.raises(ConfigError, match="client_id"):
        PrometheusCollector(members)
    with pytest.raises(ConfigError, match="client_id"):
        register_opentelemetry(members)
    registry = CollectorRegistry()
    register_prometheus(members, registry, client_id=True, lag=False)
    found = scraped(registry)
    for client_id in ("one", "two"):
        assert found[key("rocketmq_consumer_up", group="g", client_id=client_id)] == 1
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    register_opentelemetry(members, meter, client_id=True, lag=False)
    assert observed(reader)[key("rocketmq.consumer.up", group="g", client_id="two")] == 1


def test_nothing_is_imported_before_it_is_used() -> None:
    program = (
        "import sys, rocketmq_fast, rocketmq_fast.metrics as metrics\n"
        "metrics.PrometheusCollector([])\n"
        "assert not {'prometheus_client', 'opentelemetry'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_names_are_unique() -> None:
    names = [figure.name for figure in FIGURES]
    assert len(set(names)) == len(names)
    assert {sample.figure for sample in samples(Fake("g", "c"))} <= set(FIGURES)
