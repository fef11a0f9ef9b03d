"""What brokers send to producers on their own: questions about transactions, and replies."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from rocketmq_fast._core import MessageExt, RemotingCommand, decode_messages
from rocketmq_fast.errors import MessageDecodeError, RocketMQError
from rocketmq_fast.protocol.codes import RequestCode
from rocketmq_fast.remoting.connection import Connection

logger = logging.getLogger(__name__)

PRODUCER_REQUESTS = frozenset((RequestCode.CHECK_TRANSACTION_STATE,))
_PRODUCER_GROUP = "PGROUP"


class Checked(Protocol):
    """What a producer must offer to be asked about its transactions."""

    def check_transaction(
        self, address: str, message: MessageExt, fields: Mapping[str, str]
    ) -> None:
        """Have the state found out and sent to the broker. Event loop: must not block."""


class PushedToProducers:
    """Serves the codes of PRODUCER_REQUESTS. Event loop."""

    def __init__(self, producers: Mapping[str, Checked]) -> None:
        self._producers = producers

    def serve(self, connection: Connection, command: RemotingCommand) -> None:
        """One request. What is wrong with it is logged: the broker will ask again."""
        try:
            self._check_transaction(connection, command)
        except RocketMQError as error:
            logger.warning("request %d from %s: %s", command.code, connection.address, error)

    def _check_transaction(self, connection: Connection, command: RemotingCommand) -> None:
        batch = decode_messages(command.body)
        if len(batch) != 1:
            raise MessageDecodeError(f"{len(batch)} messages to check: {batch.errors}")
        message = batch[0]
        group = message.properties.get(_PRODUCER_GROUP)
        producer = self._producers.get(group) if group is not None else None
        if producer is None:
            logger.warning(
                "%s asks about message %s of producer group %r, which is not here",
                connection.address,
                message.msg_id,
                group,
            )
            return
        producer.check_transaction(connection.address, message, command.ext_fields)
