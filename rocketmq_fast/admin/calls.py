"""Administrative requests to brokers, one function each."""

from __future__ import annotations

from rocketmq_fast._core import MessageExt, RemotingCommand, decode_messages
from rocketmq_fast.admin.bodies import (
    GroupMember,
    QueueLag,
    QueueRange,
    consume_stats_of,
    group_names_of,
    members_of,
    topic_stats_of,
)
from rocketmq_fast.client.broker_calls import BrokerCalls
from rocketmq_fast.errors import ConsumerNotOnline, QueryNotFound
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import compact, offset_table_of
from rocketmq_fast.protocol.codes import RequestCode

_QUERY_BY_KEY_TIMEOUT = 18.0
# From 4.9.5 brokers on, a newer request would have this field signed under ACL, which they refuse.
_UNIQUE_QUERY_VERSION = 399
_INT64_MAX = 2**63 - 1


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

    def query_message(
        self,
        address: str,
        topic: str,
        key: str,
        *,
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
        # The index knows hashes only.
        return [
            message
            for message in decode_messages(answer.body)
            if message.topic == topic
            and (message.msg_id == key if unique else key in (message.keys or "").split(" "))
        ]
