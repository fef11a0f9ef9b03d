"""Dead letters of a group: reading them, and giving them to the group once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rocketmq_fast._core import MessageExt
from rocketmq_fast.admin.bodies import QueueRange
from rocketmq_fast.admin.calls import AdminCalls
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.sending import send_to_retry_topic_anew
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.names import DLQ_PREFIX, dlq_topic


def read_range(
    calls: AdminCalls,
    address_of: Callable[[MessageQueue], str],
    ranges: Mapping[MessageQueue, QueueRange],
) -> Iterator[MessageExt]:
    """Every message of these ranges, queue by queue in offset order."""
    for queue, bounds in ranges.items():
        address = address_of(queue)
        offset = bounds.min_offset
        while offset < bounds.max_offset:
            batch, following = calls.read(address, queue, offset)
            for message in batch:
                if offset <= message.queue_offset < bounds.max_offset:
                    yield message
            if following <= offset:
                break  # what was counted is gone meanwhile
            offset = following


def give_again(instance: ClientInstance, group: str, message: MessageExt) -> None:
    """Send a dead letter to the retry topic of its group, with its tries counted from 0 again.

    Only that group gets it, whoever else subscribes its topic. The dead letter stays where it is.
    Raises ConfigError for a message that is no dead letter of the group, RocketMQError.
    """
    where = f"message {message.msg_id} of topic {message.topic!r}"
    if message.topic != dlq_topic(group):
        raise ConfigError(f"{where} is no dead letter of group {group!r}")
    properties = message.properties
    origin = properties.get(props.RETRY_TOPIC) or properties.get("DLQ_ORIGIN_TOPIC")
    if not origin or origin.startswith(DLQ_PREFIX):
        raise ConfigError(f"{where} does not say which topic it comes from")
    send_to_retry_topic_anew(instance, group, message, topic=origin)
