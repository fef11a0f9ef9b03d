"""Options of producers: names, defaults and checks of Java's DefaultMQProducer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketmq_fast.client.options import ClientOptions, check_range, milliseconds
from rocketmq_fast.client.sending import DEFAULT_TOPIC_QUEUE_NUMS
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.producer.compression import check_level, codec_of
from rocketmq_fast.producer.hooks import SendMessageHook
from rocketmq_fast.producer.latency import LATENCY_MAX, NOT_AVAILABLE_DURATION
from rocketmq_fast.protocol.codes import ResponseCode
from rocketmq_fast.protocol.names import AUTO_CREATE_TOPIC, check_topic
from rocketmq_fast.remoting.hooks import checked_calls, checked_hooks

_RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(ClientOptions):
    """Java's properties in snake_case, Java's units (ms, bytes).

    compress_type: "ZLIB", "LZ4" or "ZSTD"; compress_level: the codec's own scale, 5 when None, and
        without meaning for LZ4 below 3.
    retry_response_codes: answers after which `send` tries another broker; add 2 (SYSTEM_BUSY) to
        have it wait out a busy one.
    send_latency_fault_enable: leave brokers alone that were slow or failed: after a send of at
        least latency_max[i] ms for not_available_duration[i] ms, after a failed one as after 30 s.
    send_message_hooks, check_forbidden_hooks: a SendMessageHook or several; callables that may
        raise to keep a message from being sent.
    enable_msg_trace: record what becomes of messages, in customized_trace_topic or
        RMQ_SYS_TRACE_TOPIC.
    max_in_flight, max_in_flight_bytes: what `send_async` keeps without an answer; beyond it blocks.
    """

    create_topic_key: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = DEFAULT_TOPIC_QUEUE_NUMS
    send_msg_timeout: Any = 3_000
    compress_msg_body_over_howmuch: int = 4096
    compress_type: str = "ZLIB"
    compress_level: int | None = None
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    max_message_size: int = 4 << 20
    retry_response_codes: Any = _RETRY_CODES
    send_latency_fault_enable: bool = False
    latency_max: Any = LATENCY_MAX
    not_available_duration: Any = NOT_AVAILABLE_DURATION
    send_message_hooks: Any = None
    check_forbidden_hooks: Any = None
    enable_msg_trace: bool = False
    customized_trace_topic: str | None = None
    max_in_flight: int = 1_000
    max_in_flight_bytes: int = 100 << 20

    def __post_init__(self) -> None:
        ClientOptions.__post_init__(self)
        check_topic(self.create_topic_key)
        for name, low, high in (
            ("default_topic_queue_nums", 1, 65535),
            ("compress_msg_body_over_howmuch", 0, 2**31 - 1),
            ("retry_times_when_send_failed", 0, 1000),
            ("retry_times_when_send_async_failed", 0, 1000),
            ("max_message_size", 1, 16 << 20),
            ("max_in_flight", 1, 2**31 - 1),
            ("max_in_flight_bytes", 1, 2**62),
        ):
            check_range(name, getattr(self, name), low, high)
        self._milliseconds("send_msg_timeout", 1)
        codec_of(self.compress_type)
        check_level(self.compress_type, self.compress_level)
        try:
            codes = frozenset(int(code) for code in self.retry_response_codes)
        except (TypeError, ValueError):
            raise ConfigError(
                f"retry_response_codes is {self.retry_response_codes!r}, not a set of integers"
            ) from None
        object.__setattr__(self, "retry_response_codes", codes)
        hooks = checked_hooks("send_message_hooks", self.send_message_hooks, SendMessageHook)
        object.__setattr__(self, "send_message_hooks", hooks)
        forbid = checked_calls("check_forbidden_hooks", self.check_forbidden_hooks)
        object.__setattr__(self, "check_forbidden_hooks", forbid)
        if self.customized_trace_topic is not None:
            check_topic(self.customized_trace_topic)
        for name in ("latency_max", "not_available_duration"):
            times = tuple(milliseconds(name, value) for value in getattr(self, name))
            object.__setattr__(self, name, times)
        if len(self.latency_max) != len(self.not_available_duration):
            raise ConfigError(
                f"latency_max has {len(self.latency_max)} steps, "
                f"not_available_duration {len(self.not_available_duration)}"
            )

    @property
    def send_timeout(self) -> float:
        """send_msg_timeout in seconds."""
        return float(self.send_msg_timeout) / 1000


def producer_options(given: Mapping[str, Any]) -> ProducerOptions:
    """Check the keyword arguments of Producer."""
    return ProducerOptions.of("Producer", given)
