"""From a user's message to what goes on the wire: checks, id, compression, batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rocketmq_fast._core import encode_batch, encode_properties
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.client.sending import create_unique_id
from rocketmq_fast.errors import ConfigError, MessageTooLarge
from rocketmq_fast.model import Message
from rocketmq_fast.producer.compression import Compressor
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.names import NOT_SENDABLE_TOPICS, RETRY_PREFIX, check_topic

# Lengths and checksum before and between body and properties of a batch element.
_ELEMENT_BYTES = 22
# \x01, \x02, "UNIQ_KEY" and an id of 32 digits.
_UNIQUE_ID_BYTES = 42


@dataclass(slots=True)
class Outgoing:
    """A message, or a batch as one, ready for a queue. Not changed by sending it."""

    topic: str
    body: bytes
    properties: dict[str, str]
    msg_id: str
    flag: int = 0
    sys_flag: int = 0
    batch: bool = False
    messages: Sequence[Message] = ()


class Packer:
    """Checks messages and makes them ready. Any thread."""

    def __init__(
        self, max_message_size: int, compressor: Compressor, names: Namespace | None = None
    ) -> None:
        self._max = max_message_size
        self._names = names or Namespace(None)
        self._compressor = compressor
        self._topics: set[str] = set()  # those that were checked

    def _check_topic(self, topic: str) -> None:
        check_topic(topic)
        if topic in NOT_SENDABLE_TOPICS:
            raise ConfigError(f"topic {topic!r} belongs to the broker; it takes no messages")
        self._topics.add(topic)

    def _too_large(self, topic: str, size: int, what: str, hint: str = "") -> MessageTooLarge:
        return MessageTooLarge(
            f"{what} for topic {topic!r} has {size} bytes; max_message_size is {self._max}{hint}"
        )

    def pack(self, message: Message) -> Outgoing:
        """One message. Raises ConfigError, MessageTooLarge."""
        # The topic of replies belongs to the broker, and to no namespace.
        reply = bool(message.system_properties)
        topic = message.topic if reply else self._names.wrap(message.topic)
        if topic not in self._topics:
            self._check_topic(topic)
        body = message.body
        if len(body) > self._max:
            raise self._too_large(topic, len(body), "the body of a message")
        properties = message.wire_properties()
        msg_id = properties[props.UNIQ_KEY] = create_unique_id()
        if self._names.name:
            properties[props.INSTANCE_ID] = self._names.name
        body, sys_flag = self._compressor.compress(body)
        return Outgoing(
            topic, body, properties, msg_id, message.flag, sys_flag, messages=(message,)
        )

    def pack_batch(self, messages: Iterable[Message]) -> Outgoing:
        """Several messages for one request. Raises ConfigError, MessageTooLarge."""
        topic: str | None = None
        wait = True
        ids = []
        elements = []
        given = []
        for message in messages:
            its_topic = self._names.wrap(message.topic)
            if topic is None:
                topic, wait = its_topic, message.wait_store_msg_ok
                if topic not in self._topics:
                    self._check_topic(topic)
                if topic.startswith(RETRY_PREFIX):
                    raise ConfigError(f"a batch cannot go to the retry topic {topic!r}")
            elif its_topic != topic:
                raise ConfigError(f"a batch holds messages for topics {topic!r} and {its_topic!r}")
            elif message.wait_store_msg_ok is not wait:
                raise ConfigError(f"messages of a batch for {topic!r} differ in wait_store_msg_ok")
            if message.delay_time_level:
                raise ConfigError(f"a message of a batch for {topic!r} has a delay level")
            if message.system_properties:
                raise ConfigError(f"a reply for {topic!r} is part of a batch; it is sent alone")
            properties = message.wire_properties()
            msg_id = properties[props.UNIQ_KEY] = create_unique_id()
            ids.append(msg_id)
            given.append(message)
            elements.append((message.flag, message.body, properties))
        if topic is None:
            raise ConfigError("a batch holds no message")
        body = encode_batch(elements)
        if len(body) > self._max:
            raise self._too_large(
                topic, len(body), f"a batch of {len(ids)} messages", "; cut it with split_batches"
            )
        properties = {props.WAIT: "true" if wait else "false"}
        if self._names.name:
            properties[props.INSTANCE_ID] = self._names.name
        return Outgoing(topic, body, properties, ",".join(ids), batch=True, messages=given)

    def split(self, messages: Iterable[Message]) -> Iterator[list[Message]]:
        """Batches in order, each as large as max_message_size allows. Raises MessageTooLarge."""
        batch: list[Message] = []
        size = 0
        for message in messages:
            properties = len(encode_properties(message.wire_properties())) + _UNIQUE_ID_BYTES
            element = _ELEMENT_BYTES + len(message.body) + properties
            if element > self._max:
                raise self._too_large(message.topic, element, "a message as part of a batch")
            if batch and size + element > self._max:
                yield batch
                batch, size = [], 0
            batch.append(message)
            size += element
        if batch:
            yield batch
