"""Messages that are given back to their broker: for a retry, or to the dead letters."""

from __future__ import annotations

import logging
import threading

from rocketmq_fast._core import MessageExt
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.sending import send_to_dead_letters, send_to_retry_topic
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.errors import ConfigError, RocketMQError
from rocketmq_fast.model import MessageQueue

logger = logging.getLogger(__name__)

_DEAD_LETTER_LEVEL = -1


class Returns:
    """The ways back of one consumer's messages. They ask brokers: not on the event loop."""

    def __init__(self, instance: ClientInstance, group: str, options: PushConsumerOptions) -> None:
        self._instance = instance
        self._group = group
        self._names = options.names
        self._limit = options.reconsume_limit

    def send_back(self, queue: AssignedQueue, message: MessageExt, delay_level: int) -> None:
        """Give a message back. Raises RocketMQError when neither way works."""
        self._send_back(queue.message_queue, message, delay_level)

    def send_back_message(self, message: MessageExt, delay_level: int) -> None:
        """As `send_back` for a message that the user holds."""
        if message.broker_name is None:
            raise ConfigError("only a message that a consumer delivered can be sent back")
        self._send_back(
            MessageQueue(message.topic, message.broker_name, message.queue_id), message, delay_level
        )

    def _send_back(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> None:
        try:
            address, _ = self._instance.broker_address(queue.broker_name, only_this=True)
            self._instance.brokers.send_message_back(
                address,
                self._group,
                message,
                delay_level,
                self._limit,
                self._names.wrap(message.topic),
            )
        except RocketMQError as error:
            logger.warning(
                "%s offset %d was not sent back (%s); sending it to the retry topic",
                queue,
                message.queue_offset,
                error,
            )
            topic = self._names.wrap(message.topic)
            send_to_retry_topic(self._instance, self._group, message, self._limit, topic=topic)

    def dead_letter_soon(self, queue: AssignedQueue, offset: int, log_offset: int) -> None:
        """Have the broker copy an undecodable message to the dead letters, off the event loop."""
        threading.Thread(
            target=self._dead_letter,
            args=(queue, offset, log_offset),
            name=f"rocketmq-dead-letter-{self._group}",
            daemon=True,
        ).start()

    def _dead_letter(self, queue: AssignedQueue, offset: int, log_offset: int) -> None:
        target = queue.message_queue
        try:
            address, _ = self._instance.broker_address(target.broker_name, only_this=True)
            self._instance.brokers.send_back(
                address,
                self._group,
                log_offset,
                _DEAD_LETTER_LEVEL,
                self._limit,
                origin_topic=target.topic,
            )
        except RocketMQError as error:
            logger.warning("%s offset %d stays held: %s", target, offset, error)
            return
        queue.release(offset)
        first = queue.process_queue.min_offset
        if first >= 0:
            queue.advance(first)

    def bury(self, message: MessageExt) -> None:
        """Move a message to the dead letters by sending it. Raises RocketMQError."""
        topic = self._names.wrap(message.topic)
        send_to_dead_letters(self._instance, self._group, message, topic=topic)
