"""Values that users and every layer share. Imports nothing of the package but its errors."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from rocketmq_fast.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker. Orders as Java's: topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


class MessageModel(enum.Enum):
    """Whether the members of a group share the queues or each read all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(enum.Enum):
    """Where a group without a stored offset starts."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ConsumeStatus(enum.Enum):
    """What a concurrent listener returns."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class OrderlyStatus(enum.Enum):
    """What an orderly listener returns."""

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class SendStatus(enum.Enum):
    """How far a stored message got: the last three are stored on the master all the same."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True)
class SendResult:
    """Answer to a send.

    `msg_id` is the client's unique id (comma-joined for a batch), `offset_msg_id` the broker's id
    made of its address and the commit log offset, `queue_offset` the position in the queue (of the
    first message of a batch).
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True


class LocalTransactionState(enum.Enum):
    """How a local transaction ended; the names are Java's."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"


@dataclass(frozen=True, slots=True)
class TransactionSendResult(SendResult):
    """Answer to a send in a transaction.

    `queue_offset` is the half message's; the state is what the broker was told.
    """

    local_transaction_state: LocalTransactionState = LocalTransactionState.UNKNOW


# Names that producers may not set as user properties (MessageConst.STRING_HASH_SET, 4.9.4).
RESERVED_PROPERTIES = frozenset(
    """TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP
    MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG
    RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME INSTANCE_ID CORRELATION_ID
    REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE
    INNER_MULTI_QUEUE_OFFSET""".split()
)

_SEPARATORS = ("\x01", "\x02")


@dataclass(slots=True)
class Message:
    """A message to send.

    `keys` may be one string or several; they are joined with a blank, as Java does. `properties`
    are the user's own; names and values must not be blank nor hold the separators U+0001 and
    U+0002. `delay_time_level` 1..18 stands for the broker's delay levels (1 s to 2 h by default),
    0 for none. `transaction_id` is set on the copy that a local transaction is given,
    `system_properties` on a reply.

    Raises ConfigError for a reserved or unusable property.
    """

    topic: str
    body: bytes = b""
    tags: str | None = None
    keys: str | Iterable[str] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_time_level: int = 0
    wait_store_msg_ok: bool = True
    transaction_id: str | None = field(default=None, init=False, compare=False)
    system_properties: Mapping[str, str] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        body = cast(object, self.body)
        if not isinstance(body, bytes):
            if not isinstance(body, (bytearray, memoryview)):
                kind = type(body).__name__
                raise ConfigError(
                    f"body of a message for topic {self.topic!r} is {kind}, not bytes"
                )
            self.body = bytes(body)
        if self.keys is not None and not isinstance(self.keys, str):
            self.keys = " ".join(self.keys)
        for text, name in ((self.tags, "tags"), (self.keys, "keys")):
            if text is not None and any(mark in text for mark in _SEPARATORS):
                raise ConfigError(
                    f"{name} of a message for topic {self.topic!r} holds U+0001 or U+0002"
                )
        for name, value in cast(Mapping[str, object], self.properties).items():
            if name in RESERVED_PROPERTIES:
                raise ConfigError(f"property name {name!r} is used by RocketMQ itself")
            if not isinstance(value, str):
                raise ConfigError(f"property {name!r} is {type(value).__name__}, not str")
            if not name.strip() or not value.strip():
                raise ConfigError(f"property {name!r}: name and value must not be blank")
            if any(mark in name or mark in value for mark in _SEPARATORS):
                raise ConfigError(f"property {name!r} holds U+0001 or U+0002")

    def wire_properties(self) -> dict[str, str]:
        """All properties as stored with the message: the user's, tags, keys, delay, WAIT."""
        table = {**self.properties, **self.system_properties}
        if self.keys is not None:
            table["KEYS"] = str(self.keys)
        if self.tags is not None:
            table["TAGS"] = self.tags
        if self.delay_time_level:
            table["DELAY"] = str(self.delay_time_level)
        table["WAIT"] = "true" if self.wait_store_msg_ok else "false"
        return table
