"""Namespaces: several tenants on one cluster, told apart by a prefix that their programs never see.

"orders" of the namespace "shop" is "shop%orders" on the wire, its retries "%RETRY%shop%group".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS

SEPARATOR = "%"
_SYSTEM_TOPIC_PREFIX = "rmq_sys_"
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_ALLOWED = re.compile(r"[a-zA-Z0-9_-]+")
# A cloud's endpoint names its instance, which is the namespace.
_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\..+")


def namespace_of_endpoint(namesrv_addr: str) -> str | None:
    """The namespace that an address like "http://MQ_INST_1_a.host:80" names, as Java reads it."""
    found = _INSTANCE_ENDPOINT.fullmatch(namesrv_addr.strip())
    return found[1] if found is not None else None


def check_namespace(namespace: object) -> None:
    """Raise ConfigError unless it can be one."""
    if not isinstance(namespace, str) or _ALLOWED.fullmatch(namespace) is None:
        raise ConfigError(f"namespace {namespace!r} is not of the characters a-z A-Z 0-9 _ -")


def _split(resource: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource


class Namespace:
    """Puts the prefix on names of topics and groups, and takes it off. Without one, does nothing.

    Names of RocketMQ itself belong to no namespace. Immutable.
    """

    __slots__ = ("_prefix", "name")

    def __init__(self, name: str | None) -> None:
        self.name = name
        self._prefix = f"{name}{SEPARATOR}" if name else ""

    def __bool__(self) -> bool:
        return bool(self._prefix)

    def wrap(self, resource: str) -> str:
        """The name on the wire; a name that has the prefix already is not changed."""
        if not self._prefix or not resource:
            return resource
        if resource in SYSTEM_TOPICS or resource.startswith(
            (_SYSTEM_TOPIC_PREFIX, _SYSTEM_GROUP_PREFIX)
        ):
            return resource
        kind, rest = _split(resource)
        return resource if rest.startswith(self._prefix) else f"{kind}{self._prefix}{rest}"

    def unwrap(self, resource: str) -> str:
        """The name for the program; another namespace's name is not changed."""
        if not self._prefix:
            return resource
        kind, rest = _split(resource)
        return kind + rest[len(self._prefix) :] if rest.startswith(self._prefix) else resource

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue with the topic's name on the wire."""
        if not self._prefix:
            return queue
        return MessageQueue(self.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue with the topic's name for the program."""
        if not self._prefix:
            return queue
        return MessageQueue(self.unwrap(queue.topic), queue.broker_name, queue.queue_id)

    def wrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """As wrap_queue, for several."""
        return [self.wrap_queue(queue) for queue in queues] if self._prefix else list(queues)

    def unwrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """As unwrap_queue, for several."""
        return [self.unwrap_queue(queue) for queue in queues] if self._prefix else list(queues)
