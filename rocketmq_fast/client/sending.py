"""The wire form of a send: for producers, and for consumers that return a message by sending it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from rocketmq_fast._core import MessageExt, RemotingCommand, UniqueIdGenerator, encode_properties
from rocketmq_fast.client.addresses import local_ip
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.lifecycle import in_child
from rocketmq_fast.errors import BrokerError, HeaderError, RocketMQError, TopicRouteNotFound
from rocketmq_fast.model import MessageQueue, SendResult, SendStatus
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from rocketmq_fast.protocol.names import AUTO_CREATE_TOPIC, INNER_PRODUCER_GROUP, retry_topic

SEND_TIMEOUT = 3.0
DEFAULT_TOPIC_QUEUE_NUMS = 4

_STATUS = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
_FIRST_RETRY_LEVEL = 3
_REPLY = "reply"

_ids: UniqueIdGenerator | None = None


def create_unique_id() -> str:
    """A message id that no other message has. Any thread."""
    global _ids
    if _ids is None:
        _ids = UniqueIdGenerator(bytes(int(part) for part in local_ip().split(".")))
    return _ids.create()


@in_child
def _forget_ids() -> None:
    """A forked child must not go on with its parent's ids."""
    global _ids
    _ids = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_ids)


def send_command(
    group: str,
    queue: MessageQueue,
    body: bytes,
    properties: Mapping[str, str],
    *,
    flag: int = 0,
    sys_flag: int = 0,
    batch: bool = False,
    default_topic_queue_nums: int = DEFAULT_TOPIC_QUEUE_NUMS,
    create_topic_key: str = AUTO_CREATE_TOPIC,
) -> RemotingCommand:
    """Request 310, 320 for a batch, or 325 for a reply, with its one-letter fields.

    Raises MessageEncodeError for properties that cannot be written.
    """
    table = dict(properties)
    # In a send to a retry topic these two stand in the header instead (DefaultMQProducerImpl).
    reconsume_times = table.pop(props.RECONSUME_TIME, "0")
    max_reconsume_times = table.pop(props.MAX_RECONSUME_TIMES, None)
    fields = {
        "a": group,
        "b": queue.topic,
        "c": create_topic_key,
        "d": str(default_topic_queue_nums),
        "e": str(queue.queue_id),
        "f": str(sys_flag),
        "g": str(time.time_ns() // 1_000_000),
        "h": str(flag),
        "i": encode_properties(table).decode(),
        "j": reconsume_times,
        "k": "false",
        "m": "true" if batch else "false",
    }
    if max_reconsume_times is not None:
        fields["l"] = max_reconsume_times
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    if table.get(props.MSG_TYPE) == _REPLY:
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    return RemotingCommand(code, fields, body)


def send_result(answer: RemotingCommand, queue: MessageQueue, msg_id: str) -> SendResult:
    """What an answer to a send says. Raises BrokerError, HeaderError."""
    status = _STATUS.get(answer.code)  # type: ignore[call-overload]
    if status is None:
        raise BrokerError.of(answer.code, answer.remark, queue.broker_name)
    fields = answer.ext_fields
    try:
        queue_id = int(fields["queueId"])
        queue_offset = int(fields["queueOffset"])
        offset_msg_id = fields["msgId"]
    except (KeyError, ValueError) as error:
        raise HeaderError(
            f"answer to a send to {queue}: field {error} is missing or no integer"
        ) from None
    return SendResult(
        status,
        msg_id,
        offset_msg_id,
        MessageQueue(queue.topic, queue.broker_name, queue_id),
        queue_offset,
        fields.get("transactionId"),
        fields.get(props.MSG_REGION, "DefaultRegion"),
        fields.get(props.TRACE_ON, "true") != "false",
    )


def send_to_retry_topic(
    instance: ClientInstance,
    group: str,
    message: MessageExt,
    max_reconsume_times: int,
    *,
    topic: str | None = None,
) -> None:
    """Give a message back without the broker's help: send a copy to the group's retry topic.

    The way out when the broker that stores the message does not answer. `topic`: its topic's name
    on the wire, where the message tells another. Raises RocketMQError.
    """
    times = message.reconsume_times
    _send_copy(
        instance,
        group,
        message,
        {
            props.RECONSUME_TIME: str(times + 1),
            props.MAX_RECONSUME_TIMES: str(max_reconsume_times),
            props.DELAY: str(_FIRST_RETRY_LEVEL + times),
        },
        topic,
    )


def send_to_dead_letters(
    instance: ClientInstance, group: str, message: MessageExt, *, topic: str | None = None
) -> None:
    """Send a copy that the broker moves from the retry topic to the dead letters at once.

    Without DELAY: a 4.9.4 broker would keep it back by that level even so. Raises RocketMQError.
    """
    times = str(message.reconsume_times)
    counts = {props.RECONSUME_TIME: times, props.MAX_RECONSUME_TIMES: times}
    _send_copy(instance, group, message, counts, topic)


def send_to_retry_topic_anew(
    instance: ClientInstance, group: str, message: MessageExt, *, topic: str
) -> None:
    """Send a copy of a dead letter that the group gets at once, as if it had never failed.

    `topic`: where it came from. Raises RocketMQError.
    """
    _send_copy(instance, group, message, {props.RECONSUME_TIME: "0"}, topic)


def _send_copy(
    instance: ClientInstance,
    group: str,
    message: MessageExt,
    header_properties: dict[str, str],
    origin_topic: str | None,
) -> None:
    """Send a copy to the group's retry topic, to whichever of its brokers takes it."""
    topic = retry_topic(group)
    properties = dict(message.properties)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, message.msg_id)
    properties[props.RETRY_TOPIC] = origin_topic or message.topic
    for name in (props.TRAN_MSG, props.CLUSTER, props.WAIT, props.DELAY, props.MAX_RECONSUME_TIMES):
        properties.pop(name, None)
    properties.update(header_properties)
    route = instance.route(topic) or instance.update_route(
        topic, default_queues=DEFAULT_TOPIC_QUEUE_NUMS
    )
    first_of_broker = {queue.broker_name: queue for queue in reversed(route.publish_queues(topic))}
    failure: RocketMQError = TopicRouteNotFound(topic, f"topic {topic!r} has no writable queue")
    for queue in first_of_broker.values():
        command = send_command(
            INNER_PRODUCER_GROUP, queue, message.body, properties, flag=message.flag
        )
        try:
            address = instance.send_address(queue.broker_name)
            answer = instance.remoting.invoke(address, command, SEND_TIMEOUT)
            send_result(answer, queue, message.msg_id)
        except RocketMQError as error:
            failure = error
        else:
            return
    raise failure
