"""Administrative requests to brokers, one function each."""

from __future__ import annotations

from rocketmq_fast._core import MessageBatch, MessageExt, RemotingCommand, decode_messages
from rocketmq_fast.admin.bodies import (
    GroupMember,
    QueueLag,
    QueueRange,
    consume_stats_of,
    group_names_of,
    members_of,
    topic_stats_of,
)
from rocketmq_fast.client.broker_calls import BrokerCalls, number_field, read_command
from rocketmq_fast.errors import (
    BrokerError,
    ConsumerNotOnline,
    MessageDecodeError,
    QueryNotFound,
)
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import compact, offset_table_of
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode

_QUERY_BY_KEY_TIMEOUT = 18.0
# From 4.9.5 brokers on, a newer request would have this field signed under ACL, which they refuse.
_UNIQUE_QUERY_VERSION = 399
_INT64_MAX = 2**63 - 1
# A group that every broker has: who reads with it needs none of his own.
_TOOLS_GROUP = "TOOLS_CONSUMER"
_READ_COUNT = 32
_READ_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class AdminCalls(BrokerCalls):
    """As BrokerCalls: blocking, by address, with typed errors."""

    def delete_topic(self, address: str, topic: str) -> None:
        """Delete a topic on one broker."""
        fields = {"topic": topic}
        self._invoke(address, RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, fields))

    def group_names(self, address: str) -> list[str]:
        """Subscription groups that the broker knows."""
        command = RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return group_names_of(self._invoke(address, command).body)

    def create_group(self, address: str, group: str, retry_max_times: int) -> None:
        """Create or overwrite a subscription group on one broker."""
        config = {
            "groupName": group,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
            "retryMaxTimes": retry_max_times,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        command = RemotingCommand(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=compact(config)
        )
        self._invoke(address, command)

    def members(self, address: str, group: str) -> list[GroupMember]:
        """Consumers of the group that are connected to the broker."""
        command = RemotingCommand(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
        )
        try:
            return members_of(self._invoke(address, command).body, group)
        except ConsumerNotOnline:
            return []

    def consume_stats(
        self, address: str, group: str, topic: str | None
    ) -> dict[MessageQueue, QueueLag]:
        """Progress of a group in the queues of one broker."""
        fields = {"consumerGroup": group}
        if topic is not None:
            fields["topic"] = topic
        answer = self._invoke(address, RemotingCommand(RequestCode.GET_CONSUME_STATS, fields))
        return consume_stats_of(answer.body, group)

    def topic_stats(self, address: str, topic: str) -> dict[MessageQueue, QueueRange]:
        """Offsets of a topic's queues on one broker."""
        command = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        return topic_stats_of(self._invoke(address, command).body, topic)

    def reset_offset(
        self, address: str, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """Have a broker move a running group to a time, -1 for the end."""
        fields = {
            "topic": topic,
            "group": group,
            "timestamp": str(timestamp_ms),
            "isForce": "true",
        }
        command = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        return offset_table_of(self._invoke(address, command).body)

    def takes_numbers(self, address: str) -> bool:
        """Whether a broker moves a running group to given offsets (5.x, unless it is set off)."""
        answer = self._invoke(address, RemotingCommand(RequestCode.GET_BROKER_CONFIG))
        return b"useServerSideResetOffset=true" in answer.body.split()

    def reset_queue(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Have a broker for which `takes_numbers` is true move a running group in one queue."""
        fields = {
            "topic": queue.topic,
            "group": group,
            "queueId": str(queue.queue_id),
            "offset": str(offset),
            "timestamp": "0",
            "isForce": "true",
        }
        self._invoke(address, RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields))

    def read(self, address: str, queue: MessageQueue, offset: int) -> tuple[MessageBatch, int]:
        """Messages from `offset` on, as many as the broker gives, and where to go on.

        The same offset when there is none. Raises MessageDecodeError for one that is damaged.
        """
        answer = self._remoting.invoke(
            address, read_command(_TOOLS_GROUP, queue, offset, _READ_COUNT), self._timeout
        )
        if answer.code not in _READ_CODES:
            raise BrokerError.of(answer.code, f"{queue}: {answer.remark}", address)
        batch = decode_messages(answer.body)
        if batch.errors:
            raise MessageDecodeError(f"{queue} from offset {offset} on: {batch.errors[0]}")
        batch.broker_name = queue.broker_name
        return batch, number_field(answer, "nextBeginOffset", str(queue))

    def query_message(
        self,
        address: str,
        topic: str,
        key: str,
        *,
        broker_name: str | None = None,
        unique: bool = False,
        max_num: int = 32,
        begin_ms: int = 0,
        end_ms: int = _INT64_MAX,
    ) -> list[MessageExt]:
        """Messages of one broker that have the key, or the unique id."""
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": str(max_num),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": str(end_ms),
        }
        command = RemotingCommand(RequestCode.QUERY_MESSAGE, fields)
        if unique:
            command.ext_fields = {**fields, "_UNIQUE_KEY_QUERY": "true"}
            command.version = _UNIQUE_QUERY_VERSION
        try:
            answer = self._invoke(address, command, _QUERY_BY_KEY_TIMEOUT)
        except QueryNotFound:
            return []
        batch = decode_messages(answer.body)
        batch.broker_name = broker_name
        # The index knows hashes only.
        return [
            message
            for message in batch
            if message.topic == topic
            and (message.msg_id == key if unique else key in (message.keys or "").split(" "))
        ]
