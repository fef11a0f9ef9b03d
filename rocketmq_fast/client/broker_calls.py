"""Requests to brokers, one function each: values in, values or typed errors out."""

from __future__ import annotations

from rocketmq_fast._core import MessageExt, RemotingCommand, decode_messages
from rocketmq_fast.client.addresses import vip_channel
from rocketmq_fast.errors import BrokerError, HeaderError, MessageDecodeError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import (
    HeartbeatData,
    LockBatch,
    SubscriptionData,
    compact,
    consumer_ids_of,
    locked_queues_of,
)
from rocketmq_fast.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from rocketmq_fast.remoting.client import RemotingClient
from rocketmq_fast.remoting.hooks import AnswerCallback

OFFSET_TIMEOUT = 5.0
SEND_BACK_TIMEOUT = 5.0
LOCK_TIMEOUT = 1.0
QUERY_TIMEOUT = 6.0
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)  # plain: an enum's operators cost microseconds


def number_field(answer: RemotingCommand, name: str, what: str) -> int:
    """An integer ext field. Raises HeaderError: a missing offset must never read as 0."""
    text = answer.ext_fields.get(name)
    try:
        return int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise HeaderError(f"{what}: field {name!r} is {text!r}, not an integer") from None


def pull_command(
    group: str,
    queue: MessageQueue,
    offset: int,
    count: int,
    sys_flag: int,
    commit_offset: int,
    suspend_millis: int,
    sub_version: int,
    expression_type: str,
    expression: str | None,
) -> RemotingCommand:
    """A pull. Without an expression the one counts that the broker knows from the heartbeat."""
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": str(sys_flag),
        "commitOffset": str(commit_offset),
        "suspendTimeoutMillis": str(suspend_millis),
        "subVersion": str(sub_version),
        "expressionType": expression_type,
    }
    if expression is not None:
        fields["sysFlag"] = str(sys_flag | _SUBSCRIPTION)
        fields["subscription"] = expression
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


def read_command(
    group: str,
    queue: MessageQueue,
    offset: int,
    count: int,
    expression: str = "*",
    expression_type: str = "TAG",
) -> RemotingCommand:
    """A pull that is answered at once and neither commits nor needs a member of the group."""
    return pull_command(group, queue, offset, count, 0, 0, 0, 0, expression_type, expression)


class BrokerCalls:
    """Blocking calls by address. Not for the event loop's thread.

    All raise BrokerError for an error code and RemotingError without an answer.
    """

    def __init__(self, remoting: RemotingClient, timeout: float, *, vip: bool = False) -> None:
        self._remoting = remoting
        self._timeout = timeout
        self._vip = vip

    def _address(self, address: str) -> str:
        """Where a request goes that Java's client sends over the VIP channel, if there is one."""
        return vip_channel(address) if self._vip else address

    def _invoke(
        self, address: str, command: RemotingCommand, timeout: float | None = None
    ) -> RemotingCommand:
        return self._invoke_plain(self._address(address), command, timeout)

    def _invoke_plain(
        self, address: str, command: RemotingCommand, timeout: float | None = None
    ) -> RemotingCommand:
        answer = self._remoting.invoke(address, command, timeout or self._timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, address)
        return answer

    def heartbeat(self, address: str, data: HeartbeatData) -> int:
        """Send a heartbeat. Returns the broker's version ordinal."""
        command = RemotingCommand(RequestCode.HEART_BEAT, body=data.to_body())
        return self._invoke_plain(address, command).version

    def unregister(
        self,
        address: str,
        client_id: str,
        *,
        consumer: str | None = None,
        producer: str | None = None,
        wait: bool = True,
    ) -> None:
        """Take a group of this client off the broker's lists."""
        fields = {"clientID": client_id}
        if consumer is not None:
            fields["consumerGroup"] = consumer
        if producer is not None:
            fields["producerGroup"] = producer
        command = RemotingCommand(RequestCode.UNREGISTER_CLIENT, fields)
        if wait:
            self._invoke_plain(address, command)
        else:
            self._remoting.invoke_oneway(address, command)

    def consumer_ids(self, address: str, group: str) -> list[str]:
        """Client ids of a group's members."""
        command = RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        return consumer_ids_of(self._invoke(address, command).body)

    def consumer_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Committed offset, None when none is stored. Any other trouble raises."""
        command = RemotingCommand(
            RequestCode.QUERY_CONSUMER_OFFSET,
            {
                "consumerGroup": group,
                "topic": queue.topic,
                "queueId": str(queue.queue_id),
            },
        )
        answer = self._remoting.invoke(self._address(address), command, OFFSET_TIMEOUT)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, address)
        return number_field(answer, "offset", f"offset of {group!r} on {queue}")

    @staticmethod
    def _commit_command(group: str, queue: MessageQueue, offset: int) -> RemotingCommand:
        return RemotingCommand(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {
                "consumerGroup": group,
                "topic": queue.topic,
                "queueId": str(queue.queue_id),
                "commitOffset": str(offset),
            },
        )

    def commit_offset(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Store an offset and wait until the broker has it."""
        self._invoke(address, self._commit_command(group, queue, offset), OFFSET_TIMEOUT)

    def commit_offset_async(
        self, address: str, group: str, queue: MessageQueue, offset: int, done: AnswerCallback
    ) -> None:
        """Store an offset; the answer goes to `done` on the event loop's thread."""
        command = self._commit_command(group, queue, offset)
        self._remoting.invoke_async(self._address(address), command, OFFSET_TIMEOUT, done)

    def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Next offset to be written."""
        return self._offset(address, RequestCode.GET_MAX_OFFSET, queue, {})

    def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Smallest offset that is still there."""
        return self._offset(address, RequestCode.GET_MIN_OFFSET, queue, {})

    def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of a message near a store time; 4.9.4 answers with the nearest neighbour."""
        return self._offset(
            address,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            queue,
            {"timestamp": str(timestamp_ms)},
        )

    def _offset(
        self, address: str, code: RequestCode, queue: MessageQueue, more: dict[str, str]
    ) -> int:
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id), **more}
        answer = self._invoke(address, RemotingCommand(code, fields), QUERY_TIMEOUT)
        return number_field(answer, "offset", f"{code.name} of {queue}")

    def send_message_back(
        self,
        address: str,
        group: str,
        message: MessageExt,
        delay_level: int,
        max_reconsume_times: int,
        origin_topic: str,
    ) -> None:
        """Have the broker copy a message to the group's retry topic."""
        self.send_back(
            address,
            group,
            message.commit_log_offset,
            delay_level,
            max_reconsume_times,
            origin_topic=origin_topic,
            origin_msg_id=message.msg_id,
        )

    def send_back(
        self,
        address: str,
        group: str,
        commit_log_offset: int,
        delay_level: int,
        max_reconsume_times: int,
        *,
        origin_topic: str,
        origin_msg_id: str | None = None,
    ) -> None:
        """As send_message_back, by log position alone."""
        fields = {
            "offset": str(commit_log_offset),
            "group": group,
            "delayLevel": str(delay_level),
            "originTopic": origin_topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(max_reconsume_times),
        }
        if origin_msg_id is not None:
            fields["originMsgId"] = origin_msg_id
        command = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        self._invoke(address, command, SEND_BACK_TIMEOUT)

    def lock_queues(self, address: str, request: LockBatch) -> frozenset[MessageQueue]:
        """Lock queues for this client. Returns those it holds now."""
        command = RemotingCommand(RequestCode.LOCK_BATCH_MQ, body=request.to_body())
        return locked_queues_of(self._invoke(address, command, LOCK_TIMEOUT).body)

    def unlock_queues(self, address: str, request: LockBatch) -> None:
        """Give locks back."""
        command = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, body=request.to_body())
        self._invoke(address, command, LOCK_TIMEOUT)

    def check_subscription(
        self, address: str, client_id: str, group: str, data: SubscriptionData
    ) -> None:
        """Ask whether the broker can filter so. Raises BrokerError when it cannot."""
        body = {"clientId": client_id, "group": group, "subscriptionData": data.to_json()}
        command = RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, body=compact(body))
        self._invoke(address, command)

    def create_topic(
        self, address: str, topic: str, *, read_queues: int, write_queues: int, perm: int = 6
    ) -> None:
        """Create or overwrite a topic on one broker."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(read_queues),
            "writeQueueNums": str(write_queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        self._invoke(address, command, QUERY_TIMEOUT)

    def view_message(
        self, address: str, commit_log_offset: int, broker_name: str | None = None
    ) -> MessageExt:
        """The message at a log position. Raises MessageDecodeError when none begins there."""
        command = RemotingCommand(
            RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(commit_log_offset)}
        )
        batch = decode_messages(self._invoke(address, command, QUERY_TIMEOUT).body)
        batch.broker_name = broker_name
        if len(batch) != 1 or batch[0].commit_log_offset != commit_log_offset:
            raise MessageDecodeError(f"no message begins at log offset {commit_log_offset}")
        return batch[0]
