"""Names of topics and groups: checks, prefixes, reserved (Validators, TopicValidator, MixAll)."""

from __future__ import annotations

import re

from rocketmq_fast.errors import ConfigError

TOPIC_MAX_CHARS = 127
GROUP_MAX_CHARS = 255
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")

SYSTEM_TOPICS = frozenset(
    """TBW102 SCHEDULE_TOPIC_XXXX BenchmarkTest RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRACE_TOPIC
    RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC SELF_TEST_TOPIC
    OFFSET_MOVED_EVENT""".split()
)
NOT_SENDABLE_TOPICS = frozenset(
    """SCHEDULE_TOPIC_XXXX RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRANS_OP_HALF_TOPIC
    TRANS_CHECK_MAX_TIME_TOPIC SELF_TEST_TOPIC OFFSET_MOVED_EVENT""".split()
)


def retry_topic(group: str) -> str:
    """Topic that holds what the group sent back."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Topic that holds what the group failed for good."""
    return DLQ_PREFIX + group


def check_topic(topic: str) -> None:
    """Raise ConfigError unless the name can be a topic."""
    if not isinstance(topic, str) or not topic.strip():
        raise ConfigError(f"topic {topic!r} is blank")
    if len(topic) > TOPIC_MAX_CHARS:
        raise ConfigError(f"topic {topic!r} is longer than {TOPIC_MAX_CHARS} characters")
    if _ALLOWED.fullmatch(topic) is None:
        raise ConfigError(f"topic {topic!r} holds characters other than % | a-z A-Z 0-9 _ -")


def check_group(group: str, reserved: str) -> None:
    """Raise ConfigError unless the name can be a group; `reserved` is the one Java refuses."""
    if not isinstance(group, str) or not group.strip():
        raise ConfigError(f"group {group!r} is blank")
    if len(group) > GROUP_MAX_CHARS:
        raise ConfigError(f"group {group!r} is longer than {GROUP_MAX_CHARS} characters")
    if _ALLOWED.fullmatch(group) is None:
        raise ConfigError(f"group {group!r} holds characters other than % | a-z A-Z 0-9 _ -")
    if group == reserved:
        raise ConfigError(f"group {group!r} is RocketMQ's own default; choose another name")
