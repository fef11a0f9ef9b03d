"""Topics of a broker: names, configuration, creation on demand."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rocketmq_fast.embedded.files import load_json, save_json
from rocketmq_fast.embedded.requests import Refused
from rocketmq_fast.protocol.codes import Perm, ResponseCode
from rocketmq_fast.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from rocketmq_fast.embedded.config import BrokerConfig

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
AUTO_CREATE_TOPIC = "TBW102"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_TOPIC,
        CHECK_MAX_TOPIC,
        "SELF_TEST_TOPIC",
        OFFSET_MOVED_EVENT,
    }
)
FORBIDDEN_TO_SEND = SYSTEM_TOPICS - {AUTO_CREATE_TOPIC, "BenchmarkTest", TRACE_TOPIC}
MAX_TOPIC_LENGTH = 127
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_MAX_QUEUES = 100_000
# Plain integers: an operation of an enum costs more than the rest of a check.
_READ = int(Perm.READ)


def check_topic_name(topic: str) -> None:
    """Refuse text that is no topic name, before it is used for anything."""
    if not topic.strip():
        raise Refused(ResponseCode.SYSTEM_ERROR, "The specified topic is blank.")
    if _LEGAL.match(topic) is None:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        )
    if len(topic) > MAX_TOPIC_LENGTH:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The specified topic is longer than topic max length {MAX_TOPIC_LENGTH}.",
        )


def is_system_topic(topic: str) -> bool:
    """Tell whether a topic belongs to the broker."""
    return topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Settings of a topic on one broker."""

    name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int = 6
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form of topics.json and of the wire."""
        return {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, name: str, value: dict[str, Any]) -> TopicConfig:
        """Read the form of to_json(). Raises ValueError, TypeError for what is no topic."""
        if _LEGAL.match(name) is None or len(name) > 255:
            raise ValueError(f"{name!r} is no topic name")
        config = cls(
            name=name,
            read_queue_nums=int(value.get("readQueueNums", 16)),
            write_queue_nums=int(value.get("writeQueueNums", 16)),
            perm=int(value.get("perm", 6)),
            filter_type=str(value.get("topicFilterType", "SINGLE_TAG")),
            sys_flag=int(value.get("topicSysFlag", 0)),
            order=bool(value.get("order", False)),
        )
        if not (
            0 <= config.read_queue_nums <= _MAX_QUEUES
            and 0 <= config.write_queue_nums <= _MAX_QUEUES
        ):
            raise ValueError(f"topic {name!r} has {config.write_queue_nums} queues")
        return config

    @property
    def readable(self) -> bool:
        """Whether messages may be pulled."""
        return self.perm & _READ != 0


class TopicTable:
    """All topics of a broker, kept in topics.json.

    `on_change` runs after each change, when the file is written already.
    """

    def __init__(self, path: Path, config: BrokerConfig, *, durable: bool) -> None:
        self._path = path
        self._config = config
        self._durable = durable
        self._topics: dict[str, TopicConfig] = {}
        self.version = 0
        self.on_change: Callable[[], None] | None = None
        self._add_system_topics()
        saved = load_json(path) or {}
        for name, value in (saved.get("topicConfigTable") or {}).items():
            self._topics[name] = TopicConfig.from_json(name, value)
        self.version = int((saved.get("dataVersion") or {}).get("counter", 0))

    def _add_system_topics(self) -> None:
        config = self._config
        levels = len(config.delay_levels.split())
        rows = [
            ("SELF_TEST_TOPIC", 1, 6),
            ("BenchmarkTest", 1024, 6),
            (config.cluster_name, 16, 7),
            (config.broker_name, 1, 7),
            (OFFSET_MOVED_EVENT, 1, 6),
            ("SCHEDULE_TOPIC_XXXX", max(18, levels), 6),
            (f"{config.cluster_name}_REPLY_TOPIC", 1, 6),
        ]
        if config.auto_create_topic_enable:
            rows.append((AUTO_CREATE_TOPIC, config.default_topic_queue_nums, 7))
        if config.trace_topic_enable:
            rows.append((TRACE_TOPIC, 1, 6))
        for name, queues, perm in rows:
            self._topics[name] = TopicConfig(name, queues, queues, perm)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def get(self, topic: str) -> TopicConfig | None:
        """Return the settings of a topic, or None."""
        return self._topics.get(topic)

    def all(self) -> list[TopicConfig]:
        """Return all topics."""
        return list(self._topics.values())

    def is_reserved(self, topic: str) -> bool:
        """Tell whether a topic may be neither created nor deleted from outside."""
        config = self._config
        return is_system_topic(topic) or topic in (
            config.cluster_name, config.broker_name, f"{config.cluster_name}_REPLY_TOPIC",
        )  # fmt: skip

    def put(self, config: TopicConfig) -> None:
        """Create or replace a topic."""
        self._topics[config.name] = config
        self._changed()

    def delete(self, topic: str) -> bool:
        """Remove a topic; False when there was none."""
        if self._topics.pop(topic, None) is None:
            return False
        self._changed()
        return True

    def ensure(self, topic: str, queues: int, perm: int = 6) -> TopicConfig:
        """Return a topic, created when it does not exist."""
        config = self._topics.get(topic)
        if config is None:
            config = TopicConfig(topic, queues, queues, perm)
            self.put(config)
        return config

    def for_send(self, topic: str, template_name: str, client_queues: int) -> TopicConfig:
        """Return the topic of a send, created after a template when it does not exist.

        Refuses with TOPIC_NOT_EXIST when there is no template that may be inherited.
        """
        config = self._topics.get(topic)
        if config is not None:
            return config
        template = self._topics.get(template_name)
        if template is not None and template.perm & Perm.INHERIT:
            queues = max(min(client_queues, template.write_queue_nums), 0)
            config = replace(
                template,
                name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=template.perm & ~Perm.INHERIT,
            )
            self.put(config)
            return config
        if topic.startswith(RETRY_PREFIX):
            return self.ensure(topic, 1)
        raise Refused(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
        )

    def set_ordered(self, ordered: Iterable[str]) -> None:
        """Mark the topics that name servers know as ordered, and no others."""
        names = set(ordered)
        changed = [c for c in self._topics.values() if c.order != (c.name in names)]
        for config in changed:
            self._topics[config.name] = replace(config, order=not config.order)
        if changed:
            self._changed()

    def data_version(self) -> dict[str, int]:
        """Return the version that name servers compare."""
        return {"counter": self.version, "timestamp": 0}

    def to_json(self) -> dict[str, Any]:
        """Return the content of topics.json."""
        return {
            "dataVersion": self.data_version(),
            "topicConfigTable": {name: c.to_json() for name, c in self._topics.items()},
        }

    def _changed(self) -> None:
        self.version += 1
        save_json(self._path, self.to_json(), durable=self._durable)
        if self.on_change is not None:
            self.on_change()
