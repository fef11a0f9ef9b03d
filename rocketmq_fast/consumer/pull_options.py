"""Options of the pull consumer: names and defaults of Java's DefaultLitePullConsumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rocketmq_fast.client.options import ClientOptions, check_range
from rocketmq_fast.consumer.options import consume_timestamp_ms, member_of
from rocketmq_fast.consumer.strategies import strategy_of
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import ConsumeFromWhere, MessageModel
from rocketmq_fast.protocol.names import check_topic

_BAD_MESSAGE_POLICIES = ("hold", "skip")
_ILLEGAL_OFFSET_POLICIES = ("broker", "earliest", "latest", "error")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerOptions(ClientOptions):
    """Java's properties in snake_case, Java's units (ms, messages, MiB).

    Different from Java: pull_batch_size 32, which is what brokers give at most unless told
    otherwise; check_crc; pull_threshold_size_for_all.
    on_bad_message: what happens to a message that cannot be decoded. "hold": the commit stays below
    it; "skip": it counts as consumed.
    on_illegal_offset: where to go on when the broker does not have the offset. "broker": where the
    broker says; "earliest", "latest": its first message, its end; "error": `poll` raises until a
    seek.
    enable_msg_trace: record what polls give, in customized_trace_topic or RMQ_SYS_TRACE_TOPIC.
    """

    auto_commit: bool = True
    auto_commit_interval_millis: Any = 5_000
    consume_from_where: Any = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp: Any = None
    allocate_message_queue_strategy: Any = "AVG"
    consume_max_span: int = 2000
    pull_batch_size: int = 32
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100
    pull_threshold_for_all: int = 10_000
    pull_threshold_size_for_all: int = 512
    check_crc: bool = True
    max_body: int = 32 << 20
    on_bad_message: str = "hold"
    on_illegal_offset: str = "broker"
    enable_msg_trace: bool = False
    customized_trace_topic: str | None = None

    def __post_init__(self) -> None:
        ClientOptions.__post_init__(self)
        put = object.__setattr__
        where = member_of("consume_from_where", self.consume_from_where, ConsumeFromWhere)
        put(self, "consume_from_where", where)
        timestamp = self.consume_timestamp
        if timestamp is None:
            timestamp = datetime.now() - timedelta(minutes=30)
        put(self, "consume_timestamp", consume_timestamp_ms(timestamp))
        strategy = strategy_of(self.allocate_message_queue_strategy)
        put(self, "allocate_message_queue_strategy", strategy)
        for name, low, high in (
            ("consume_max_span", 1, 2**31 - 1),
            ("pull_batch_size", 1, 1024),
            ("pull_threshold_for_queue", 1, 2**31 - 1),
            ("pull_threshold_size_for_queue", 1, 1024),
            ("pull_threshold_for_all", 1, 2**31 - 1),
            ("pull_threshold_size_for_all", 1, 102_400),
            ("max_body", 1, 1 << 30),
        ):
            check_range(name, getattr(self, name), low, high)
        self._milliseconds("auto_commit_interval_millis", 10)
        if self.customized_trace_topic is not None:
            check_topic(self.customized_trace_topic)
        for name, policies in (
            ("on_bad_message", _BAD_MESSAGE_POLICIES),
            ("on_illegal_offset", _ILLEGAL_OFFSET_POLICIES),
        ):
            if getattr(self, name) not in policies:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(policies)}"
                )

    # ------------------------------------------------ what the parts shared with push read

    @property
    def message_model(self) -> MessageModel:
        """The members of a group share the queues."""
        return MessageModel.CLUSTERING

    @property
    def pull_interval(self) -> int:
        """The next pull leaves at once."""
        return 0

    @property
    def post_subscription_when_pull(self) -> bool:
        """Pulls carry the filter: with assigned queues the broker knows no subscription."""
        return True

    @property
    def consume_concurrently_max_span(self) -> int:
        """The push consumer's name of consume_max_span."""
        return self.consume_max_span

    @property
    def pull_threshold_for_topic(self) -> int:
        """No limit by topic."""
        return -1

    @property
    def pull_threshold_size_for_topic(self) -> int:
        """No limit by topic."""
        return -1

    @property
    def size_for_all_bytes(self) -> int:
        """pull_threshold_size_for_all in bytes."""
        return self.pull_threshold_size_for_all * _MIB


def pull_options(given: Mapping[str, Any]) -> PullConsumerOptions:
    """Check the keyword arguments of PullConsumer."""
    return PullConsumerOptions.of("PullConsumer", given)
