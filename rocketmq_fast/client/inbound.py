"""What brokers ask a client about its consumers: resets, progress, running info, one message."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

from rocketmq_fast._core import MessageExt, RemotingCommand, decode_messages
from rocketmq_fast.errors import CodecError, MessageDecodeError, RemotingError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import (
    ConsumerData,
    compact,
    consumer_status_body,
    offset_table_of,
)
from rocketmq_fast.protocol.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from rocketmq_fast.protocol.names import RETRY_PREFIX
from rocketmq_fast.remoting.connection import Connection

logger = logging.getLogger(__name__)

_CONSUMER_REQUESTS = frozenset(
    (
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    )
)
_NEVER_ANSWERED = frozenset((RequestCode.RESET_CONSUMER_CLIENT_OFFSET,))


class ConsumerMember(Protocol):
    """What the instance needs of a consumer. Called from the instance's threads."""

    @property
    def group(self) -> str:
        """Consumer group."""

    def consumer_data(self) -> ConsumerData | None:
        """Its part of the heartbeat; None while it is no member of its group."""

    def subscribed_topics(self) -> Iterable[str]:
        """Topics whose routes it needs."""

    def rebalance(self) -> None:
        """Take and give up queues. Rebalance thread."""

    def persist_offsets(self) -> None:
        """Begin to store its offsets at the brokers. Event loop."""

    def on_disconnected(self, broker_name: str) -> None:
        """A connection to a broker ended. Event loop."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets, whatever is under way. May block."""

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Progress in memory, of one topic or of all for an empty name."""

    def running_info(self, *, stacks: bool) -> bytes:
        """Body of answer 307. May block."""

    def plain_records(self, body: bytes) -> bytes:
        """Stored messages, with the names that its program knows."""

    def consume_directly(self, message: MessageExt) -> dict[str, object]:
        """Give one message to the listener, outside of the flow; the result of answer 309."""


class AskedOfConsumers:
    """Serves the requests; each on a thread of its own: they ask brokers or run the listener."""

    def __init__(self, client_id: str, consumers: Mapping[str, ConsumerMember]) -> None:
        self._client_id = client_id
        self._consumers = consumers

    def serve(self, connection: Connection, command: RemotingCommand) -> None:
        """One request, which is rare. Event loop."""
        threading.Thread(
            target=self._serve,
            args=(connection, command),
            name=f"rocketmq-inbound-{command.code}-{self._client_id}",
            daemon=True,
        ).start()

    def _serve(self, connection: Connection, command: RemotingCommand) -> None:
        try:
            code, remark, body = self._answer(command)
        except Exception as error:
            logger.exception("request %d from %s", command.code, connection.address)
            code, remark, body = ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}", b""
        if command.is_oneway or command.code in _NEVER_ANSWERED:
            return
        answer = RemotingCommand(
            code, body=body, opaque=command.opaque, flag=FLAG_RESPONSE, remark=remark
        )
        try:
            connection.send_command(answer)
        except (RemotingError, CodecError) as error:
            logger.warning("answer %d to %s: %s", command.code, connection.address, error)

    def _answer(self, command: RemotingCommand) -> tuple[int, str | None, bytes]:
        """(code, remark, body) for a broker's request about a consumer."""
        fields = command.ext_fields
        group = fields.get("consumerGroup", fields.get("group", ""))
        topic = fields.get("topic", "")
        consumer = self._consumers.get(group)
        if command.code not in _CONSUMER_REQUESTS:
            remark = f"request code {command.code} is not supported by this client"
            return ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark, b""
        if consumer is None:
            if command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                return ResponseCode.SUCCESS, None, consumer_status_body({})
            remark = f"client {self._client_id} has no consumer of group {group!r}"
            return ResponseCode.SYSTEM_ERROR, remark, b""
        if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            consumer.reset_offsets(topic, offset_table_of(command.body))
            return ResponseCode.SUCCESS, None, b""
        if command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return ResponseCode.SUCCESS, None, consumer_status_body(consumer.offsets(topic))
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            stacks = fields.get("jstackEnable", "").lower() == "true"
            return ResponseCode.SUCCESS, None, consumer.running_info(stacks=stacks)
        batch = decode_messages(consumer.plain_records(command.body))
        if len(batch) != 1:
            raise MessageDecodeError(f"{len(batch)} messages to consume directly: {batch.errors}")
        batch.broker_name = fields.get("brokerName")
        batch.restore_topic = batch[0].topic.startswith(RETRY_PREFIX)
        result = consumer.consume_directly(batch[0])
        return ResponseCode.SUCCESS, None, compact(result)
