"""Administration: topics, groups, configuration, offsets moved from outside, relays to clients."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast._version import __version__
from rocketmq_fast.embedded.files import StoreError
from rocketmq_fast.embedded.groups import GroupConfig
from rocketmq_fast.embedded.requests import (
    Malformed,
    Refused,
    answer,
    boolean,
    dump,
    dump_int_keys,
    dump_queue_keys,
    int32,
    int64,
    json_body,
    text,
)
from rocketmq_fast.embedded.store import SCHEDULE_TOPIC
from rocketmq_fast.embedded.topics import SYSTEM_TOPICS, TopicConfig, check_topic_name
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from rocketmq_fast.embedded.dispatch import Handlers
    from rocketmq_fast.embedded.members import ConsumerGroup
    from rocketmq_fast.embedded.schedule import ScheduleService
    from rocketmq_fast.embedded.state import BrokerState
    from rocketmq_fast.remoting.server import Peer

_MAX_QUEUES = 10_000
_RELAY_SECONDS = 10.0
_STATUS_SECONDS = 5.0
_MIN_VERSION_RESET = 28
_MIN_VERSION_RELAY = 62


class AdminService:
    """Serves tools. There is no request that changes the configuration of the broker itself."""

    def __init__(self, state: BrokerState, schedule: ScheduleService) -> None:
        self._state = state
        self._schedule = schedule
        self._started_ms = state.store.clock()

    def handlers(self) -> Handlers:
        """Return what this part serves."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.create_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_offsets,
            RequestCode.GET_BROKER_CONFIG: self.broker_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    # ------------------------------------------------------------------ topics, groups

    def create_topic(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Create a topic or replace its settings."""
        fields = request.ext_fields
        topic = text(fields, "topic")
        check_topic_name(topic)
        if self._state.topics.is_reserved(topic):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )
        kind = text(fields, "topicFilterType")
        if kind not in ("SINGLE_TAG", "MULTI_TAG"):
            raise Malformed(f"topicFilterType {kind!r} is unknown")
        read, write = int32(fields, "readQueueNums"), int32(fields, "writeQueueNums")
        if not (0 <= read <= _MAX_QUEUES and 0 <= write <= _MAX_QUEUES):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic}: {read} and {write} queues, at most {_MAX_QUEUES}",
            )
        self._state.topics.put(
            TopicConfig(
                topic, read, write, int32(fields, "perm"), kind, int32(fields, "topicSysFlag", 0)
            )
        )
        return answer(request)

    def delete_topic(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Delete a topic with its messages; a topic of that name starts at 0 again."""
        topic = text(request.ext_fields, "topic")
        check_topic_name(topic)
        if self._state.topics.is_reserved(topic):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )
        self._state.topics.delete(topic)
        self._state.store.delete_topic(topic)
        return answer(request)

    def all_topics(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return the settings of all topics."""
        return answer(request, ResponseCode.SUCCESS, None, dump(self._state.topics.to_json()))

    def system_topics(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """List the broker's own topics."""
        config = self._state.config
        own = {config.cluster_name, config.broker_name, f"{config.cluster_name}_REPLY_TOPIC"}
        names = sorted(SYSTEM_TOPICS | own)
        return answer(request, ResponseCode.SUCCESS, None, dump({"topicList": names}))

    def create_group(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Create a group or replace its settings."""
        self._state.groups.put(GroupConfig.from_json(json_body(request)))
        return answer(request)

    def all_groups(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return the settings of all groups."""
        return answer(request, ResponseCode.SUCCESS, None, dump(self._state.groups.to_json()))

    def delete_group(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Delete a group's settings, and its offsets when asked."""
        name = text(request.ext_fields, "groupName")
        self._state.groups.delete(name)
        if boolean(request.ext_fields, "removeOffset"):
            self._state.offsets.delete_group(name)
        return answer(request)

    # ---------------------------------------------------------------------- information

    def all_offsets(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return all committed offsets."""
        rows = ",".join(
            f"{dump(key).decode()}:{dump_int_keys(offsets)}"
            for key, offsets in self._state.offsets.tables().items()
        )
        return answer(request, ResponseCode.SUCCESS, None, f'{{"offsetTable":{{{rows}}}}}'.encode())

    def delay_offsets(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return how far the delay levels are delivered."""
        body = f'{{"offsetTable":{dump_int_keys(self._schedule.offsets)}}}'
        return answer(request, ResponseCode.SUCCESS, None, body.encode())

    def broker_config(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return the settings as Java properties text."""
        config = self._state.config
        rows = {
            "brokerClusterName": config.cluster_name,
            "brokerName": config.broker_name,
            "brokerId": config.broker_id,
            "brokerPermission": config.broker_permission,
            "autoCreateTopicEnable": str(config.auto_create_topic_enable).lower(),
            "autoCreateSubscriptionGroup": str(config.auto_create_subscription_group).lower(),
            "defaultTopicQueueNums": config.default_topic_queue_nums,
            "maxMessageSize": config.max_message_size,
            "messageDelayLevel": config.delay_levels,
            "maxTransferCountOnMessageInMemory": config.max_transfer_count_on_message_in_memory,
            "maxTransferBytesOnMessageInMemory": config.max_transfer_bytes_on_message_in_memory,
            "flushDiskType": config.flush_disk_type,
            "longPollingEnable": str(config.long_polling_enable).lower(),
            "enablePropertyFilter": str(config.enable_property_filter).lower(),
            "useServerSideResetOffset": "true",  # reset_offset takes a queue and a number
        }
        body = "".join(f"{name}={value}\n" for name, value in rows.items())
        return answer(
            request,
            ResponseCode.SUCCESS,
            {"version": dump(self._state.topics.data_version()).decode()},
            body.encode(),
        )

    def runtime_info(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return some figures as text."""
        store = self._state.store
        table = {
            "brokerVersionDesc": "V4_9_4",
            "brokerVersion": "401",
            "bootTimestamp": str(self._started_ms),
            "runtime": f"rocketmq-fast {__version__}, Python {sys.version.split()[0]}",
            "msgPutTotalTodayNow": str(store.messages_put),
            "commitLogMinOffset": str(store.log.start),
            "commitLogMaxOffset": str(store.log.end),
            "earliestMessageTimeStamp": str(self._started_ms),
            "putTps": "0.0 0.0 0.0",
            "getTotalTps": "0.0 0.0 0.0",
            "getTransferedTps": "0.0 0.0 0.0",
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalTodayNow": str(store.messages_got),
            "msgGetTotalYesterdayMorning": "0",
            "sendThreadPoolQueueSize": "0",
            "pullThreadPoolQueueSize": "0",
            "sendThreadPoolQueueHeadWaitTimeMills": "0",
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "pageCacheLockTimeMills": "0",
        }
        for level, offset in self._schedule.offsets.items():
            last = store.max_offset(SCHEDULE_TOPIC, level - 1)
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{last}"
        return answer(request, ResponseCode.SUCCESS, None, dump({"table": table}))

    # -------------------------------------------------------------------------- offsets

    def clone_offsets(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Give a group the offsets of another one."""
        fields = request.ext_fields
        source, target = text(fields, "srcGroup"), text(fields, "destGroup")
        topic = fields.get("topic")
        for name in [topic] if topic else self._state.offsets.topics_of(source):
            if name not in self._state.topics:
                continue
            self._state.offsets.clone(source, target, name)
        return answer(request)

    def reset_offset(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Tell the members of a group to go on at a time, or in one queue at a number (5.x)."""
        fields = request.ext_fields
        state = self._state
        topic, name = text(fields, "topic"), text(fields, "group")
        timestamp, force = int64(fields, "timestamp"), boolean(fields, "isForce")
        only, number = int32(fields, "queueId", -1), int64(fields, "offset", -1)
        config = state.topics.get(topic)
        if config is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. {topic}",
            )
        targets: list[tuple[str, str, int, Any]] = []
        for queue_id in [only] if only >= 0 else range(config.write_queue_nums):
            committed = state.offsets.query(name, topic, queue_id)
            if committed < 0:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"THe consumer group <{name}> not exist or has no offset for queue {queue_id}",
                )
            if only >= 0 and number >= 0:
                last = state.store.max_offset(topic, queue_id)
                if not state.store.min_offset(topic, queue_id) <= number <= last:
                    raise Refused(
                        ResponseCode.SYSTEM_ERROR,
                        f"Target offset {number} not in consume queue range",
                    )
                wanted = number
            elif timestamp == -1:
                wanted = state.store.max_offset(topic, queue_id)
            else:
                wanted = state.store.offset_by_time(topic, queue_id, timestamp)
            offset = max(wanted, 0)
            targets.append(
                (
                    topic,
                    state.config.broker_name,
                    queue_id,
                    offset if force or offset < committed else committed,
                )
            )
        body = f'{{"offsetTable":{dump_queue_keys(targets)}}}'.encode()
        pushed = body
        if request.language == "CPP":  # those clients read a list
            pushed = dump(
                {
                    "offsetTable": [
                        {"brokerName": b, "offset": o, "queueId": q, "topic": t}
                        for t, b, q, o in targets
                    ]
                }
            )
        group = state.members.consumers.get(name)
        if group is None or not group.members:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {name} Topic: {topic} "
                f"Timestamp: {timestamp}",
            )
        for peer, member in group.members.items():
            if member.version < _MIN_VERSION_RESET:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={member.version}",
                )
            ext = {"topic": topic, "group": name, "timestamp": str(timestamp), "isForce": "false"}
            peer.notify(RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, pushed))
        return answer(request, ResponseCode.SUCCESS, None, body)

    # --------------------------------------------------------------------------- relays

    def _member(self, group_name: str, client_id: str) -> Peer:
        group = self._state.members.consumers.get(group_name)
        peer = group.find(client_id) if group is not None else None
        if group is None or peer is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online"
            )
        version = group.members[peer].version
        if version < _MIN_VERSION_RELAY:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        return peer

    @staticmethod
    def _relay(peer: Peer, request: RemotingCommand, target: Peer, ext: dict[str, str],
               body: bytes = b"") -> None:  # fmt: skip
        client_id, group = ext.get("clientId"), ext.get("consumerGroup")

        def answered(response: RemotingCommand | None, error: Exception | None) -> None:
            if response is None:
                timed_out = isinstance(error, TimeoutError)
                code = ResponseCode.CONSUME_MSG_TIMEOUT if timed_out else ResponseCode.SYSTEM_ERROR
                remark = f"consumer <{group}> <{client_id}>: {error}"
                peer.reply(request, answer(request, code, remark=remark))
                return
            peer.reply(
                request,
                answer(
                    request,
                    response.code,
                    dict(response.ext_fields),
                    response.body,
                    response.remark,
                ),
            )

        target.invoke(RemotingCommand(request.code, ext, body), _RELAY_SECONDS, answered)

    def running_info(self, peer: Peer, request: RemotingCommand) -> None:
        """Pass a question about its state on to a consumer."""
        fields = request.ext_fields
        target = self._member(text(fields, "consumerGroup"), text(fields, "clientId"))
        self._relay(peer, request, target, dict(fields))

    def consume_directly(self, peer: Peer, request: RemotingCommand) -> None:
        """Hand one message to one consumer."""
        fields = dict(request.ext_fields)
        group_name, message_id = text(fields, "consumerGroup"), text(fields, "msgId")
        client_id = fields.get("clientId")
        if client_id is None:
            group = self._state.members.consumers.get(group_name)
            client_id = next((m.client_id for m in group.members.values()), "") if group else ""
            fields["clientId"] = client_id
        target = self._member(group_name, client_id)
        fields["brokerName"] = self._state.config.broker_name
        try:
            body = self._state.store.message_at(int(message_id[-16:], 16))
        except (StoreError, ValueError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"message {message_id}: {error}") from error
        self._relay(peer, request, target, fields, body)

    def consumer_status(self, peer: Peer, request: RemotingCommand) -> None:
        """Collect the offsets that the members of a group hold in memory."""
        fields = request.ext_fields
        topic, name = text(fields, "topic"), text(fields, "group")
        wanted = fields.get("clientAddr")
        group = self._state.members.consumers.get(name)
        if group is None or not group.members:
            raise Malformed(f"No Any Consumer online in the group {name}")
        targets = {
            member.client_id: target
            for target, member in group.members.items()
            if not wanted or wanted == member.client_id
        }
        StatusCollector(peer, request, topic, group).collect(targets)


class StatusCollector:
    """Gathers the answers of several clients to 221 into one answer to 223."""

    def __init__(
        self, peer: Peer, request: RemotingCommand, topic: str, group: ConsumerGroup
    ) -> None:
        self._peer = peer
        self._request = request
        self._ext = {"topic": topic, "group": group.name}
        self._waiting = 0
        self._tables: dict[str, str] = {}

    def collect(self, targets: dict[str, Peer]) -> None:
        """Ask all of them; answers when the last one has answered or timed out."""
        self._waiting = len(targets)
        if not targets:
            self._finish()
        for client_id, target in targets.items():

            def answered(
                response: RemotingCommand | None, _: Exception | None, client_id: str = client_id
            ) -> None:
                if response is not None and response.code == ResponseCode.SUCCESS:
                    self._tables[client_id] = queue_table(response.body)
                self._waiting -= 1
                if self._waiting == 0:
                    self._finish()

            command = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, dict(self._ext))
            target.invoke(command, _STATUS_SECONDS, answered)

    def _finish(self) -> None:
        rows = ",".join(f"{dump(cid).decode()}:{table}" for cid, table in self._tables.items())
        body = f'{{"consumerTable":{{{rows}}},"messageQueueTable":{{}}}}'
        response = answer(self._request, ResponseCode.SUCCESS, None, body.encode())
        self._peer.reply(self._request, response)


def queue_table(body: bytes) -> str:
    """Return the text of messageQueueTable in a client's answer, an empty object without one.

    The table is keyed by objects, which json does not read: it is passed on as it is, by counting
    braces outside of strings.
    """
    content = body.decode("utf-8", "replace")
    start = content.find('"messageQueueTable":')
    if start < 0:
        return "{}"
    start = content.find("{", start)
    depth, quoted, skip = 0, False, False
    for at in range(max(start, 0), len(content)):
        char = content[at]
        if skip:
            skip = False
        elif quoted:
            skip = char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return content[start : at + 1]
    return "{}"
