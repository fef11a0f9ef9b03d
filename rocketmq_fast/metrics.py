"""What consumers count, for Prometheus and OpenTelemetry. Needs the extra [metrics].

Figures are read when somebody asks for them; in between nothing runs. Neither library is imported
before it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rocketmq_fast.errors import ClientStateError, ConfigError, RocketMQError
from rocketmq_fast.model import MessageQueue

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client import CollectorRegistry, Metric

logger = logging.getLogger(__name__)


class Measured(Protocol):
    """A PushConsumer or a PullConsumer."""

    @property
    def group(self) -> str:
        """The consumer group."""

    def stats(self) -> dict[str, Any]:
        """Counters and gauges; no request is made."""

    def lag(self) -> Mapping[MessageQueue, int]:
        """Messages behind the end of each owned queue; asks the brokers."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric. `unit` as OpenTelemetry writes it; labels stand beside that of the group."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    counter: bool = False
    unit: str = "1"


_TOPIC = ("topic",)
_QUEUE = ("topic", "broker", "queue")

UP = Figure("up", "1 while the consumer is started, else 0")
LAG = Figure("lag", "Messages between the progress and the end of an owned queue", _QUEUE)
# By the key of stats() they are read from.
_OF_GROUP = {
    "pull_errors": Figure("pull_errors", "Pulls that failed", counter=True),
    "flow_controlled": Figure("flow_controlled", "Pulls put off by a limit", counter=True),
    "undecodable": Figure("undecodable", "Messages that could not be decoded", counter=True),
    "cached_messages": Figure("cached_messages", "Messages pulled and not done"),
    "cached_bytes": Figure("cached_bytes", "Bytes of their bodies", unit="By"),
    "backlog": Figure("backlog", "Messages (orderly: queues) that wait for a thread"),
    "threads": Figure("threads", "Listener threads, or coroutines"),
    "listener_seconds": Figure(
        "listener_seconds", "Mean time of a listener call, lately", unit="s"
    ),
}
_OF_TOPIC = {
    "pulls": Figure("pulls", "Pulls that brought messages", _TOPIC, counter=True),
    "pulled": Figure("pulled", "Messages pulled", _TOPIC, counter=True),
    "pull_seconds": Figure("pull_seconds", "Time of these pulls", _TOPIC, counter=True, unit="s"),
    "calls": Figure("listener_calls", "Listener calls", _TOPIC, counter=True),
    "call_seconds": Figure(
        "listener_call_seconds", "Time in listener calls", _TOPIC, counter=True, unit="s"
    ),
    "consumed": Figure("consumed", "Messages that were acknowledged", _TOPIC, counter=True),
    "failed": Figure("failed", "Messages to come again, or dead", _TOPIC, counter=True),
}
_OF_QUEUE = {
    "next_offset": Figure("next_offset", "Offset of the next pull", _QUEUE),
    "max_offset": Figure("max_offset", "End of the queue, as the last answer told", _QUEUE),
    "cached": Figure("queue_cached_messages", "Messages pulled and not done", _QUEUE),
    "last_pull_age_seconds": Figure(
        "last_pull_age_seconds", "Since the last pull", _QUEUE, unit="s"
    ),
}
FIGURES = (UP, *_OF_GROUP.values(), *_OF_TOPIC.values(), *_OF_QUEUE.values(), LAG)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a figure. `labels` are in the order of the figure's."""

    figure: Figure
    labels: tuple[str, ...]
    value: float


def _queue_labels(name: str) -> tuple[str, ...]:
    """(topic, broker, queue id) of "topic@broker:id"; a broker's name may hold both marks."""
    topic, _, rest = name.partition("@")
    broker, _, queue_id = rest.rpartition(":")
    return topic, broker, queue_id


def samples(consumer: Measured) -> Iterator[Sample]:
    """Everything that needs no request. Any thread."""
    try:
        stats = consumer.stats()
    except ClientStateError:
        yield Sample(UP, (), 0)
        return
    yield Sample(UP, (), 1)
    for key, figure in _OF_GROUP.items():
        if key in stats:
            yield Sample(figure, (), stats[key])
    for topic, totals in stats["totals"].items():
        for key, figure in _OF_TOPIC.items():
            yield Sample(figure, (topic,), totals[key])
    for name, state in stats["queues"].items():
        for key, figure in _OF_QUEUE.items():
            if key in state:
                yield Sample(figure, _queue_labels(name), state[key])


def lag_samples(consumer: Measured) -> list[Sample]:
    """The lag of each owned queue: one request for each. None when a broker cannot be asked."""
    try:
        lags = consumer.lag()
    except ClientStateError:
        return []
    except RocketMQError as error:
        logger.warning("lag of group %s: %s", consumer.group, error)
        return []
    return [
        Sample(LAG, (queue.topic, queue.broker_name, str(queue.queue_id)), lag)
        for queue, lag in sorted(lags.items())
    ]


class PrometheusCollector:
    """Collects from consumers when a registry is scraped: `registry.register(collector)`.

    Metrics are named rocketmq_consumer_* and labelled with the group; `lag=False` spares the
    requests to the brokers at each scrape. Consumers must be of different groups, or
    `client_id=True` adds that label. Consumers need not be started yet. Raises ConfigError.
    """

    def __init__(
        self, consumers: Iterable[Measured], *, lag: bool = True, client_id: bool = False
    ) -> None:
        self._consumers = _different(consumers, client_id)
        self._lag = lag
        self._client_id = client_id

    def describe(self) -> list[Metric]:
        """Nothing: registering asks no broker."""
        return []

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        more = ("group", "client_id") if self._client_id else ("group",)
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for figure in FIGURES:
            kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
            families[figure.name] = kind(
                f"rocketmq_consumer_{figure.name}", figure.help, labels=(*more, *figure.labels)
            )
        for consumer in self._consumers:
            labels = [consumer.group]
            if self._client_id:
                labels.append(_client_id(consumer))
            for sample in (*samples(consumer), *(lag_samples(consumer) if self._lag else ())):
                family = families[sample.figure.name]
                family.add_metric([*labels, *sample.labels], sample.value)
        return [family for family in families.values() if family.samples]


def register_prometheus(
    consumers: Iterable[Measured],
    registry: CollectorRegistry | None = None,
    *,
    lag: bool = True,
    client_id: bool = False,
) -> PrometheusCollector:
    """Make a PrometheusCollector and register it, at the process's own registry for None."""
    from prometheus_client import REGISTRY

    collector = PrometheusCollector(consumers, lag=lag, client_id=client_id)
    (REGISTRY if registry is None else registry).register(collector)
    return collector


def register_opentelemetry(
    consumers: Iterable[Measured],
    meter: Meter | None = None,
    *,
    lag: bool = True,
    client_id: bool = False,
) -> None:
    """Observe consumers with a meter: rocketmq.consumer.*, with the attributes of Prometheus.

    Without `meter` it is that of the global provider. Callbacks run on the reader's thread; that of
    the lag asks the brokers. Raises ConfigError as PrometheusCollector.
    """
    from opentelemetry.metrics import Observation, get_meter

    measured = _different(consumers, client_id)
    used = get_meter("rocketmq_fast") if meter is None else meter

    def observer(figure: Figure) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for consumer in measured:
                found = lag_samples(consumer) if figure is LAG else samples(consumer)
                common = {"group": consumer.group}
                if client_id:
                    common["client_id"] = _client_id(consumer)
                for sample in found:
                    if sample.figure is figure:
                        labels = dict(zip(figure.labels, sample.labels, strict=True))
                        yield Observation(sample.value, {**common, **labels})

        return observe

    for figure in FIGURES:
        if figure is LAG and not lag:
            continue
        create = used.create_observable_counter if figure.counter else used.create_observable_gauge
        name = f"rocketmq.consumer.{figure.name}"
        create(name, [observer(figure)], unit=figure.unit, description=figure.help)


def _client_id(consumer: Measured) -> str:
    """The client id of a started consumer, else an empty text."""
    try:
        return str(consumer.stats()["client_id"])
    except ClientStateError:
        return ""


def _different(consumers: Iterable[Measured], client_id: bool) -> Sequence[Measured]:
    """Raise ConfigError for consumers that could not be told apart."""
    measured = tuple(consumers)
    groups = [consumer.group for consumer in measured]
    twice = sorted({group for group in groups if groups.count(group) > 1})
    if twice and not client_id:
        raise ConfigError(f"group {twice[0]!r} has several consumers here; give client_id=True")
    return measured
