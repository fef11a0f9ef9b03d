"""What brokers send to producers on their own: questions about transactions, and replies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from rocketmq_fast._core import (
    MessageExt,
    RemotingCommand,
    decode_messages,
)
from rocketmq_fast._core.stored import assemble_message
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.client.records import plain_records
from rocketmq_fast.errors import ConfigError, HeaderError, MessageDecodeError, RocketMQError
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from rocketmq_fast.remoting.client import parse_address
from rocketmq_fast.remoting.connection import Connection
from rocketmq_fast.remoting.server import host_bytes

logger = logging.getLogger(__name__)

PRODUCER_REQUESTS = frozenset(
    (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
)
# Gets the reply to a request, on the event loop.
ReplyCallback = Callable[[MessageExt], None]

_NO_HOST = bytes(8)


class Checked(Protocol):
    """What a producer must offer to be asked about its transactions."""

    @property
    def names(self) -> Namespace:
        """Its namespace."""

    def check_transaction(
        self, address: str, message: MessageExt, fields: Mapping[str, str]
    ) -> None:
        """Have the state found out and sent to the broker. Event loop: must not block."""


class PushedToProducers:
    """Serves the codes of PRODUCER_REQUESTS. Event loop."""

    def __init__(self, producers: Mapping[str, Checked]) -> None:
        self._producers = producers
        self._waiting: dict[str, ReplyCallback] = {}

    def serve(self, connection: Connection, command: RemotingCommand) -> None:
        """One request. What is wrong with it is logged, and told to the broker if it waits."""
        code, remark = ResponseCode.SUCCESS, None
        try:
            if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
                self._reply(command)
            else:
                self._check_transaction(connection, command)
        except (RocketMQError, KeyError, ValueError) as error:
            logger.warning("request %d from %s: %r", command.code, connection.address, error)
            code, remark = ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
        if command.is_oneway or command.code == RequestCode.CHECK_TRANSACTION_STATE:
            return
        answer = RemotingCommand(code, opaque=command.opaque, flag=FLAG_RESPONSE, remark=remark)
        try:
            connection.send_command(answer)
        except RocketMQError as error:
            logger.warning("answer %d to %s: %s", command.code, connection.address, error)

    # ------------------------------------------------------------------------------ replies

    def expect(self, correlation_id: str, callback: ReplyCallback) -> None:
        """Have the reply to a request, the first one, given to `callback`. Any thread."""
        self._waiting[correlation_id] = callback

    def forget(self, correlation_id: str) -> None:
        """Wait for a reply no more. Any thread."""
        self._waiting.pop(correlation_id, None)

    def _reply(self, command: RemotingCommand) -> None:
        message = _pushed_message(command)
        correlation_id = message.properties.get(props.CORRELATION_ID, "")
        callback = self._waiting.pop(correlation_id, None)
        if callback is None:
            logger.info("a reply came that nobody waits for: correlation id %r", correlation_id)
        else:
            callback(message)

    # --------------------------------------------------------------------------- transactions

    def _check_transaction(self, connection: Connection, command: RemotingCommand) -> None:
        batch = decode_messages(command.body)
        if len(batch) != 1:
            raise MessageDecodeError(f"{len(batch)} messages to check: {batch.errors}")
        message = batch[0]
        group = message.properties.get(props.PGROUP)
        producer = self._producers.get(group) if group is not None else None
        if producer is None:
            logger.warning(
                "%s asks about message %s of producer group %r, which is not here",
                connection.address,
                message.msg_id,
                group,
            )
            return
        if producer.names:
            message = decode_messages(plain_records(command.body, producer.names, False))[0]
        producer.check_transaction(connection.address, message, command.ext_fields)


def _host(text: str | None) -> bytes:
    """An address as stored messages carry it; zeros for one that is missing or a name."""
    if text is None:
        return _NO_HOST
    try:
        return host_bytes(*parse_address(text.rpartition("/")[2]))
    except (ConfigError, ValueError):
        return _NO_HOST


def _pushed_message(command: RemotingCommand) -> MessageExt:
    """The message of request 326, whose fields stand in the header.

    Raises HeaderError, MessageDecodeError.
    """
    fields = command.ext_fields
    try:
        numbers = {
            name: int(fields[wire])
            for name, wire in (
                ("queue_id", "queueId"),
                ("flag", "flag"),
                ("sys_flag", "sysFlag"),
                ("born_timestamp", "bornTimestamp"),
                ("store_timestamp", "storeTimestamp"),
            )
        }
        topic = fields["topic"]
    except (KeyError, ValueError) as error:
        raise HeaderError(f"a pushed reply: field {error} is missing or no integer") from None
    arrived = f"ARRIVE_TIME\x01{time.time_ns() // 1_000_000}"
    given = fields.get("properties", "").rstrip("\x02")
    record, _ = assemble_message(
        command.body_view(),
        topic=topic.encode(),
        properties=(f"{given}\x02{arrived}" if given else arrived).encode(),
        born_host=_host(fields.get("bornHost")),
        store_host=_host(fields.get("storeHost")),
        queue_offset=0,
        position=0,
        reconsume_times=int(fields.get("reconsumeTimes") or 0),
        **numbers,
    )
    batch = decode_messages(record)
    if len(batch) != 1:
        raise MessageDecodeError(f"a pushed reply for topic {topic!r}: {batch.errors}")
    return batch[0]
