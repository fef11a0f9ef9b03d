"""Options of the push consumer: Java's defaults and bounds, and helpful refusals."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest

from rocketmq_fast import ConfigError, ConsumeFromWhere, MessageModel, PushConsumer
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.subscription import Sql, subscribe

ADDRESS = "127.0.0.1:9876"


def options(**given: Any) -> PushConsumerOptions:
    return PushConsumer("group", namesrv_addr=ADDRESS, **given)._options


# Java's name in snake_case: default, smallest, largest, and a further value that is allowed.
BOUNDS: dict[str, tuple[int, int, int, int | None]] = {
    "consume_thread_min": (20, 1, 1000, None),
    "consume_thread_max": (64, 1, 1000, None),
    "consume_concurrently_max_span": (2000, 1, 65535, None),
    "pull_threshold_for_queue": (1000, 1, 65535, None),
    "pull_threshold_for_topic": (-1, 1, 6553500, -1),
    "pull_threshold_size_for_queue": (100, 1, 1024, None),
    "pull_threshold_size_for_topic": (-1, 1, 102400, -1),
    "pull_interval": (0, 0, 65535, None),
    "consume_message_batch_max_size": (1, 1, 1024, None),
    "pull_batch_size": (32, 1, 1024, None),
    "max_reconsume_times": (-1, 0, 2**31 - 1, -1),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_java_s(name: str) -> None:
    default, low, high, also = BOUNDS[name]
    # Its partner must not be what refuses a number of threads.
    rest: dict[str, Any] = {}
    if name == "consume_thread_min":
        rest["consume_thread_max"] = 1000
    elif name == "consume_thread_max":
        rest["consume_thread_min"] = 1
    assert getattr(options(), name) == default
    for value in {low, high, default}:
        assert getattr(options(**{name: value}, **rest), name) == value
    refused = [low - 1, high + 1, "5", None, 1.5 if name != "pull_interval" else "1.5", True]
    for value in refused:
        if value == also:
            continue
        with pytest.raises(ConfigError, match=name):
            options(**{name: value}, **rest)
    if also is not None:
        assert getattr(options(**{name: also}), name) == also


def test_other_defaults() -> None:
    made = options()
    assert made.message_model is MessageModel.CLUSTERING
    assert made.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert made.consume_timeout_seconds == 15 * 60
    assert made.reconsume_limit == 16
    assert made.await_termination_millis_when_shutdown == 30_000
    assert made.poll_name_server_interval == 30_000
    assert made.heartbeat_broker_interval == 30_000
    assert made.persist_consumer_offset_interval == 5_000
    assert made.pull_time_delay_millis_when_exception == 1_000
    assert made.mq_client_api_timeout == 3_000
    assert made.post_subscription_when_pull is False
    assert made.check_crc is True
    assert made.on_bad_message == "hold"
    age = datetime.now().timestamp() * 1000 - made.consume_timestamp
    assert 29.9 * 60_000 < age < 30.5 * 60_000


def test_least_threads_must_not_exceed_most() -> None:
    with pytest.raises(ConfigError, match="consume_thread_min 65 is over consume_thread_max 64"):
        options(consume_thread_min=65)
    assert options(consume_thread_min=64).consume_thread_min == 64


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("consume_thread_maximum", "consume_thread_max"),
        ("pullBatchSize", "pull_batch_size"),
        ("namesrv_address", "namesrv_addr"),
        ("consume_from", "consume_from_where"),
    ],
)
def test_unknown_option_names_the_nearest(given: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"{given!r}.*did you mean {near!r}"):
        PushConsumer("group", **{"namesrv_addr": ADDRESS, given: 1})


def test_option_that_is_like_no_other_is_refused_too() -> None:
    with pytest.raises(TypeError, match="'zzzzzz'"):
        options(zzzzzz=1)


def test_every_option_is_known_by_its_name() -> None:
    names = {field.name for field in dataclasses.fields(PushConsumerOptions)}
    assert names >= BOUNDS.keys()


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (datetime(2024, 3, 1, 12, 30), datetime(2024, 3, 1, 12, 30).timestamp() * 1000),
        ("20240301123000", datetime(2024, 3, 1, 12, 30).timestamp() * 1000),
    ],
)
def test_consume_timestamp(value: object, milliseconds: float) -> None:
    assert options(consume_timestamp=value).consume_timestamp == milliseconds


@pytest.mark.parametrize(
    "value", ["", "2024", "20241301000000", "20240301123000x", 5, "2024-03-01"]
)
def test_wrong_consume_timestamp(value: object) -> None:
    with pytest.raises(ConfigError, match="consume_timestamp"):
        options(consume_timestamp=value)


def test_times_as_timedelta() -> None:
    made = options(
        pull_interval=timedelta(milliseconds=20),
        consume_timeout=timedelta(seconds=90),
        persist_consumer_offset_interval=timedelta(seconds=1),
    )
    assert made.pull_interval == 20
    assert made.consume_timeout_seconds == 90
    assert made.persist_consumer_offset_interval == 1000


@pytest.mark.parametrize("value", [0, -1, "15", None, True])
def test_wrong_consume_timeout(value: object) -> None:
    with pytest.raises(ConfigError, match="consume_timeout"):
        options(consume_timeout=value)


@pytest.mark.parametrize(
    "name",
    [
        "poll_name_server_interval",
        "heartbeat_broker_interval",
        "persist_consumer_offset_interval",
        "mq_client_api_timeout",
    ],
)
def test_intervals_are_positive(name: str) -> None:
    for value in (0, -1, "1", None):
        with pytest.raises(ConfigError, match=name):
            options(**{name: value})


def test_names_of_choices() -> None:
    made = options(consume_from_where="CONSUME_FROM_FIRST_OFFSET", message_model="CLUSTERING")
    assert made.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    for name in ("consume_from_where", "message_model"):
        for value in ("EVERYWHERE", None, 3):
            with pytest.raises(ConfigError, match=name):
                options(**{name: value})
    with pytest.raises(ConfigError, match="AVG_BY_CIRCLE"):
        options(allocate_message_queue_strategy="AVERAGE")


@pytest.mark.parametrize(
    "group", ["", " ", "\t", "x" * 256, "a b", "grüppe", "a/b", "DEFAULT_CONSUMER", None, 7]
)
def test_wrong_group(group: Any) -> None:
    with pytest.raises(ConfigError):
        PushConsumer(group, namesrv_addr=ADDRESS)


def test_longest_group() -> None:
    assert PushConsumer("%|aZ0_-" + "x" * 248, namesrv_addr=ADDRESS).group.startswith("%|aZ0_-")


def test_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert PushConsumer("group")._options.namesrv_addr == ()  # an address server is to be asked
    for value in ("", " ; ", [], "host", "host:", ":1", "host:x", "host:70000", "a:1;b"):
        with pytest.raises(ConfigError):
            PushConsumer("group", namesrv_addr=value)
    two = ("10.0.0.1:9876", "10.0.0.2:9876")
    for given in (";".join(two), f" {two[0]} ; {two[1]};", list(two)):
        assert PushConsumer("group", namesrv_addr=given)._options.namesrv_addr == two
    monkeypatch.setenv("NAMESRV_ADDR", two[0])
    assert PushConsumer("group")._options.namesrv_addr == two[:1]


def test_client_id() -> None:
    made = options(client_ip="10.1.2.3", unit_name="unit")
    assert made.client_id("name") == "10.1.2.3@name@unit"
    assert options(client_ip="10.1.2.3").client_id("name") == "10.1.2.3@name"


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", set()),
        ("", set()),
        (None, set()),
        ("TagA", {"TagA"}),
        (" TagA || TagB ||", {"TagA", "TagB"}),
    ],
)
def test_tag_expressions(expression: str | None, tags: set[str]) -> None:
    made = subscribe("topic", expression)
    assert made.data.tags == frozenset(tags)
    assert (made.tag_filter is None) == (not tags)
    assert len(made.data.codes) == len(tags)


def test_wrong_expressions() -> None:
    with pytest.raises(ConfigError):
        subscribe("topic", "||")
    for text in ("", "  ", None):
        with pytest.raises(ConfigError):
            Sql(text)  # type: ignore[arg-type]


def test_new_subscription_is_newer() -> None:
    first = subscribe("topic", "*")
    assert first.renewed().data.sub_version > first.data.sub_version
