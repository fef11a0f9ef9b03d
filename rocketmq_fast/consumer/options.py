"""Options of consumers: names, defaults and checks of Java's DefaultMQPushConsumer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Self, TypeVar

from rocketmq_fast.client.options import ClientOptions, check_range
from rocketmq_fast.consumer.hooks import ConsumeMessageHook
from rocketmq_fast.consumer.strategies import strategy_of
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import ConsumeFromWhere, MessageModel
from rocketmq_fast.protocol.names import check_topic
from rocketmq_fast.remoting.hooks import checked_hooks

_E = TypeVar("_E", bound=Enum)

MAX_RECONSUME_TIMES_CONCURRENT = 16
_BAD_MESSAGE_POLICIES = ("hold", "skip", "dead_letter")


def member_of(name: str, value: object, kind: type[_E]) -> _E:
    """An option that is a member of an enum, or its name. Raises ConfigError."""
    if isinstance(value, kind):
        return value
    try:
        return kind[str(value)]
    except KeyError:
        names = ", ".join(item.name for item in kind)
        raise ConfigError(f"{name} is {value!r}; it must be one of {names}") from None


def consume_timestamp_ms(value: object) -> int:
    """Milliseconds of consume_timestamp: a datetime, or Java's yyyyMMddHHmmss in local time.

    Raises ConfigError.
    """
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, str) and len(value) == 14 and value.isdigit():
        try:
            return int(datetime.strptime(value, "%Y%m%d%H%M%S").timestamp() * 1000)
        except ValueError as error:
            raise ConfigError(f"consume_timestamp {value!r}: {error}") from error
    raise ConfigError(f"consume_timestamp is {value!r}, not a datetime or yyyyMMddHHmmss")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerOptions(ClientOptions):
    """Java's properties in snake_case, Java's units (ms, messages, MiB; consume_timeout minutes).

    Different from Java: consume_thread_max 64 (with 20 = min the pool could never grow),
    await_termination_millis_when_shutdown 30,000 (Java interrupts listeners at once), check_crc.
    on_bad_message: what happens to a message that cannot be decoded. "hold": the commit stays below
    it; "skip": it counts as consumed; "dead_letter": the broker moves it to the dead-letter topic.
    consume_message_hooks: a ConsumeMessageHook or several. enable_msg_trace: record what becomes of
        messages, in customized_trace_topic or RMQ_SYS_TRACE_TOPIC.
    """

    message_model: Any = MessageModel.CLUSTERING
    consume_from_where: Any = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp: Any = None
    allocate_message_queue_strategy: Any = "AVG"
    consume_thread_min: int = 20
    consume_thread_max: int = 64
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_queue: int = 1000
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_queue: int = 100
    pull_threshold_size_for_topic: int = -1
    pull_interval: Any = 0
    consume_message_batch_max_size: int = 1
    pull_batch_size: int = 32
    post_subscription_when_pull: bool = False
    max_reconsume_times: int = -1
    suspend_current_queue_time_millis: Any = 1_000
    consume_timeout: Any = 15
    await_termination_millis_when_shutdown: Any = 30_000
    offset_store: Any = None
    local_offset_store_dir: str | None = None
    check_crc: bool = True
    max_body: int = 32 << 20
    on_bad_message: str = "hold"
    consume_message_hooks: Any = None
    enable_msg_trace: bool = False
    customized_trace_topic: str | None = None

    def __post_init__(self) -> None:
        ClientOptions.__post_init__(self)
        put = object.__setattr__
        put(self, "message_model", member_of("message_model", self.message_model, MessageModel))
        put(
            self,
            "consume_from_where",
            member_of("consume_from_where", self.consume_from_where, ConsumeFromWhere),
        )
        timestamp = self.consume_timestamp
        if timestamp is None:
            timestamp = datetime.now() - timedelta(minutes=30)
        put(self, "consume_timestamp", consume_timestamp_ms(timestamp))
        put(
            self,
            "allocate_message_queue_strategy",
            strategy_of(self.allocate_message_queue_strategy),
        )
        for name, low, high, also in (
            ("consume_thread_min", 1, 1000, None),
            ("consume_thread_max", 1, 1000, None),
            ("consume_concurrently_max_span", 1, 65535, None),
            ("pull_threshold_for_queue", 1, 65535, None),
            ("pull_threshold_for_topic", 1, 6553500, -1),
            ("pull_threshold_size_for_queue", 1, 1024, None),
            ("pull_threshold_size_for_topic", 1, 102400, -1),
            ("consume_message_batch_max_size", 1, 1024, None),
            ("pull_batch_size", 1, 1024, None),
            ("max_reconsume_times", 0, 2**31 - 1, -1),
            ("max_body", 1, 1 << 30, None),
        ):
            check_range(name, getattr(self, name), low, high, also)
        self._check_threads()
        hooks = checked_hooks(
            "consume_message_hooks", self.consume_message_hooks, ConsumeMessageHook
        )
        put(self, "consume_message_hooks", hooks)
        if self.customized_trace_topic is not None:
            check_topic(self.customized_trace_topic)
        self._milliseconds("pull_interval", 0, 65535)
        self._milliseconds("suspend_current_queue_time_millis", 0)
        self._milliseconds("await_termination_millis_when_shutdown", 0)
        minutes = self.consume_timeout
        if isinstance(minutes, timedelta):
            put(self, "consume_timeout", minutes.total_seconds() / 60)
        elif isinstance(minutes, bool) or not isinstance(minutes, (int, float)):
            raise ConfigError(f"consume_timeout is {minutes!r}, not minutes or a timedelta")
        if self.consume_timeout <= 0:
            raise ConfigError(f"consume_timeout is {self.consume_timeout}; it must be over 0")
        if self.on_bad_message not in _BAD_MESSAGE_POLICIES:
            raise ConfigError(
                f"on_bad_message is {self.on_bad_message!r}; it must be one of "
                f"{', '.join(_BAD_MESSAGE_POLICIES)}"
            )

    def _check_threads(self) -> None:
        if self.consume_thread_min > self.consume_thread_max:
            raise ConfigError(
                f"consume_thread_min {self.consume_thread_min} is over "
                f"consume_thread_max {self.consume_thread_max}"
            )

    def with_threads(self, fewest: int | None, most: int | None) -> Self:
        """The same with other numbers of threads; None leaves one as it is. Raises ConfigError."""
        changed = copy.copy(self)
        for name, value in (("consume_thread_min", fewest), ("consume_thread_max", most)):
            if value is not None:
                object.__setattr__(changed, name, check_range(name, value, 1, 1000))
        changed._check_threads()
        return changed

    @property
    def reconsume_limit(self) -> int:
        """max_reconsume_times, with -1 resolved."""
        limit = self.max_reconsume_times
        return MAX_RECONSUME_TIMES_CONCURRENT if limit == -1 else limit

    @property
    def consume_timeout_seconds(self) -> float:
        """consume_timeout in seconds."""
        return float(self.consume_timeout) * 60


def push_options(given: Mapping[str, Any]) -> PushConsumerOptions:
    """Check the keyword arguments of PushConsumer."""
    return PushConsumerOptions.of("PushConsumer", given)
