"""Storing messages: sends, batches, send-back with delay levels and dead letters."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from rocketmq_fast._core.stored import offset_ids
from rocketmq_fast.embedded.files import StoreError
from rocketmq_fast.embedded.groups import group_or_refuse
from rocketmq_fast.embedded.requests import (
    Malformed,
    Refused,
    answer,
    boolean,
    format_properties,
    int32,
    int64,
    parse_properties,
    text,
)
from rocketmq_fast.embedded.store import SCHEDULE_TOPIC
from rocketmq_fast.embedded.topics import (
    DLQ_PREFIX,
    FORBIDDEN_TO_SEND,
    RETRY_PREFIX,
    TopicConfig,
    check_topic_name,
)
from rocketmq_fast.errors import MessageDecodeError
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.codes import MessageSysFlag, Perm, RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketmq_fast._core import RemotingCommand
    from rocketmq_fast.embedded.groups import GroupConfig
    from rocketmq_fast.embedded.state import BrokerState
    from rocketmq_fast.embedded.store import Appended
    from rocketmq_fast.remoting.server import Peer

# Long names of code 10 and 324 in the order of the letters that 310, 320 and 325 use.
LONG_NAMES = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d",
    "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i",
    "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip
_PREPARED = int(MessageSysFlag.TRANSACTION_PREPARED)
_TRANSACTION = int(MessageSysFlag.TRANSACTION_ROLLBACK)
_MIN_VERSION_MAX_RECONSUME = 121


class SendService:
    """Serves requests 10, 310, 320 and 36.

    `when_stored` gets the answer of a send whose message has to be on disk before it is given,
    `prepare` stores a message of a transaction.
    """

    def __init__(
        self,
        state: BrokerState,
        when_stored: Callable[[Peer, RemotingCommand, RemotingCommand], None],
        prepare: Callable[..., Appended],
    ) -> None:
        self._state = state
        self._prepare = prepare
        self._when_stored = when_stored
        self._marks = {
            props.MSG_REGION: state.config.region_id,
            props.TRACE_ON: "true" if state.config.trace_on else "false",
        }
        self._cluster_property = f"CLUSTER\x01{state.config.cluster_name}"

    def send(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        """Store the message, or the batch of messages, in a request."""
        response, wait = self._send(peer, request)
        if wait:
            self._when_stored(peer, request, response)
            return None
        return response

    def store_now(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """As send(), with an answer that waits for no disk."""
        return self._send(peer, request)[0]

    def _send(self, peer: Peer, request: RemotingCommand) -> tuple[RemotingCommand, bool]:
        """Return the answer to a send, and whether it has to wait for the disk."""
        fields: Mapping[str, str] = request.ext_fields
        if request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
            fields = {LONG_NAMES[k]: v for k, v in fields.items() if k in LONG_NAMES}
        try:
            queue_id, stored, wait = self._store(peer, request, fields)
        except Refused as error:
            return answer(
                request,
                error.code,
                dict(self._marks),
                remark=error.remark,
                json_header=isinstance(error, Malformed),
            ), False
        except StoreError as error:
            return answer(
                request, ResponseCode.SERVICE_NOT_AVAILABLE, dict(self._marks), remark=str(error)
            ), False
        except MessageDecodeError as error:
            return answer(
                request,
                ResponseCode.MESSAGE_ILLEGAL,
                dict(self._marks),
                remark=f"topic {topic_of(fields)}: {error}",
            ), False
        ext = {
            "msgId": offset_ids(self._state.store.store_host, stored.entries),
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            **self._marks,
        }
        return answer(request, ResponseCode.SUCCESS, ext), wait

    def _store(
        self, peer: Peer, request: RemotingCommand, fields: Mapping[str, str]
    ) -> tuple[int, Appended, bool]:
        state = self._state
        topic = topic_of(fields)
        batch = boolean(fields, "m")
        config = self._topic_for_send(topic, fields)
        queue_id = int32(fields, "e")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queue_id >= queues:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, topic {topic} has {queues} queues",
            )
        if queue_id < 0:
            queue_id = random.randrange(max(config.write_queue_nums, 1))
        body = request.body_view()
        if len(body) > state.config.max_message_size:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the body of {len(body)} bytes for topic {topic} is over the limit of "
                f"{state.config.max_message_size}",
            )
        sys_flag = int32(fields, "f")
        if config.filter_type == "MULTI_TAG":
            sys_flag |= MessageSysFlag.MULTI_TAGS
        born = int64(fields, "g")
        properties = fields.get("i")
        if batch:
            return self._store_batch(
                peer, topic, queue_id, body, properties, sys_flag, born, int32(fields, "j", 0)
            )
        table = parse_properties(properties)
        reconsume_times = int32(fields, "j", 0)
        if topic.startswith(RETRY_PREFIX):
            topic, queue_id = self._retry_or_dead(request, fields, topic, queue_id, reconsume_times)
        table[props.CLUSTER] = state.config.cluster_name
        if table.get(props.TRAN_MSG, "").lower() == "true":
            stored = self._prepare(
                topic, queue_id, body, table, sys_flag=sys_flag, flag=int32(fields, "h"),
                born_timestamp=born, born_host=peer.host, reconsume_times=reconsume_times,
            )  # fmt: skip
            return queue_id, stored, table.get(props.WAIT) != "false"
        wait = table.pop(props.WAIT, None)
        try:
            level = int(table.get(props.DELAY, "0"))
        except ValueError:
            level = 0
        stored = self.put(
            topic, queue_id, body, table, wait=wait, delay_level=level, sys_flag=sys_flag,
            flag=int32(fields, "h"), born_timestamp=born, born_host=peer.host,
            reconsume_times=reconsume_times,
        )  # fmt: skip
        return queue_id, stored, wait != "false"

    def _topic_for_send(self, topic: str, fields: Mapping[str, str]) -> TopicConfig:
        state = self._state
        check_topic_name(topic)
        if topic in FORBIDDEN_TO_SEND:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        config = state.topics.get(topic)
        if config is None:
            config = state.topics.for_send(topic, fields.get("c", ""), int32(fields, "d"))
        if config.order and not state.config.broker_permission & Perm.WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{state.config.broker_name}] sending message is forbidden",
            )
        return config

    def _store_batch(
        self, peer: Peer, topic: str, queue_id: int, body: memoryview, properties: str | None,
        sys_flag: int, born: int, reconsume_times: int,
    ) -> tuple[int, Appended, bool]:  # fmt: skip
        if not len(body):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"a batch for topic {topic} is empty")
        table = parse_properties(properties)
        if sys_flag & _TRANSACTION or int(table.get(props.DELAY, "0") or 0) > 0:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch for topic {topic} with a delay or in a transaction",
            )
        table[props.CLUSTER] = self._state.config.cluster_name
        stored = self._state.store.put_batch(
            topic, queue_id, body, properties=format_properties(table), born_timestamp=born,
            born_host=peer.host, sys_flag=sys_flag, reconsume_times=reconsume_times,
        )  # fmt: skip
        return queue_id, stored, table.get(props.WAIT) != "false"

    def _retry_or_dead(
        self, request: RemotingCommand, fields: Mapping[str, str], topic: str, queue_id: int,
        reconsume_times: int,
    ) -> tuple[str, int]:  # fmt: skip
        """Return where a message that a client sends to its retry topic goes."""
        name = topic[len(RETRY_PREFIX) :]
        group = group_or_refuse(self._state.groups, name)
        limit = group.retry_max_times
        if request.version >= _MIN_VERSION_MAX_RECONSUME:
            limit = int32(fields, "l", limit)
        if reconsume_times < limit:
            return topic, queue_id
        return self.dead_letter_topic(name), 0

    def dead_letter_topic(self, group: str) -> str:
        """Return the dead-letter topic of a group, created when it does not exist."""
        topic = DLQ_PREFIX + group
        check_topic_name(topic)
        self._state.topics.ensure(topic, 1)
        return topic

    def put(
        self, topic: str, queue_id: int, body: bytes | memoryview, table: dict[str, str], *,
        born_timestamp: int, born_host: bytes, sys_flag: int, flag: int,
        reconsume_times: int = 0, delay_level: int = 0, wait: str | None = None,
    ) -> Appended:  # fmt: skip
        """Store a message, in the schedule topic when it has a delay level."""
        store = self._state.store
        if delay_level > 0 and not sys_flag & _PREPARED:
            delay_level = min(delay_level, len(store.delays))
            table[props.REAL_TOPIC] = topic
            table[props.REAL_QID] = str(queue_id)
            if wait is not None:
                table[props.WAIT] = wait
            topic, queue_id = SCHEDULE_TOPIC, delay_level - 1
        else:
            delay_level = 0
        return store.put(
            topic, queue_id, body, properties=format_properties(table), flag=flag,
            sys_flag=sys_flag, born_timestamp=born_timestamp, born_host=born_host,
            reconsume_times=reconsume_times, delay_level=delay_level,
        )  # fmt: skip

    def send_back(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Copy a message that a consumer could not handle to its retry or dead-letter topic."""
        fields = request.ext_fields
        state = self._state
        name = text(fields, "group")
        position, level = int64(fields, "offset"), int32(fields, "delayLevel")
        group = group_or_refuse(state.groups, name)
        if not state.config.broker_permission & Perm.WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{state.config.broker_name}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            return answer(request, ResponseCode.SUCCESS)
        retry_topic = RETRY_PREFIX + name
        check_topic_name(retry_topic)
        config = state.topics.ensure(retry_topic, group.retry_queue_nums)
        if not config.perm & Perm.WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the topic[{retry_topic}] sending message is forbidden"
            )
        self._copy_back(request, group, position, level, retry_topic)
        return answer(request, ResponseCode.SUCCESS)

    def _copy_back(
        self, request: RemotingCommand, group: GroupConfig, position: int, level: int,
        retry_topic: str,
    ) -> None:  # fmt: skip
        store = self._state.store
        try:
            message = store.stored_at(position)
        except (StoreError, MessageDecodeError) as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {position}"
            ) from error
        if message.position != position:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no message begins at {position}")
        table = parse_properties(message.properties.decode("utf-8", "replace"))
        table.setdefault(props.RETRY_TOPIC, message.topic)
        table[props.WAIT] = "false"
        limit = group.retry_max_times
        if request.version >= _MIN_VERSION_MAX_RECONSUME:
            limit = int32(request.ext_fields, "maxReconsumeTimes", limit)
        topic, queue_id = retry_topic, random.randrange(group.retry_queue_nums)
        if message.reconsume_times >= limit or level < 0:
            topic, queue_id, level = self.dead_letter_topic(group.name), 0, 0
        elif level == 0:
            level = 3 + message.reconsume_times
        table[props.DELAY] = str(level)
        entry = position.to_bytes(8, "big") + bytes(12)
        table.setdefault(props.ORIGIN_MESSAGE_ID, offset_ids(message.store_host, entry))
        try:
            self.put(
                topic, queue_id, message.body, table, delay_level=level, wait="false",
                sys_flag=message.sys_flag, flag=message.flag,
                born_timestamp=message.born_timestamp, born_host=message.born_host,
                reconsume_times=message.reconsume_times + 1,
            )  # fmt: skip
        except (StoreError, MessageDecodeError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{topic}: {error}") from error


def topic_of(fields: Mapping[str, str]) -> str:
    """Return the topic of a send request for messages."""
    return fields.get("b", "")
