"""RocketMQ push consumer for Python and Spark on a native core."""

from importlib import import_module
from typing import TYPE_CHECKING

from rocketmq_fast._core import (
    ArrowBatch,
    MessageBatch,
    MessageExt,
    ProcessQueue,
    RemotingCommand,
    TagFilter,
    decode_arrow,
    decode_frame,
    decode_messages,
    encode_frame,
)
from rocketmq_fast._version import __version__
from rocketmq_fast.admin.admin import Admin
from rocketmq_fast.consumer.async_pull import AsyncPullConsumer
from rocketmq_fast.consumer.hooks import ConsumeHookContext, ConsumeMessageHook
from rocketmq_fast.consumer.lite_pull import PullConsumer
from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore
from rocketmq_fast.consumer.offset_file import OffsetFileError
from rocketmq_fast.consumer.offsets import OffsetStore
from rocketmq_fast.consumer.orderly import OrderlyContext
from rocketmq_fast.consumer.push import PushConsumer
from rocketmq_fast.consumer.strategies import (
    ByConfiguration,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    allocate_average,
    allocate_average_by_circle,
)
from rocketmq_fast.consumer.subscription import Sql
from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    BrokerSystemError,
    ClientStateError,
    CodecError,
    ConfigError,
    ConnectError,
    ConnectionClosed,
    HookError,
    MessageDecodeError,
    MessageTooLarge,
    NoNameServer,
    NoPermission,
    QueryNotFound,
    RemotingError,
    ReplyTimeout,
    RequestTimeout,
    RocketMQError,
    SendError,
    SubscriptionParseFailed,
    TopicRouteNotFound,
)
from rocketmq_fast.model import (
    ConsumeFromWhere,
    ConsumeStatus,
    LocalTransactionState,
    Message,
    MessageModel,
    MessageQueue,
    OrderlyStatus,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from rocketmq_fast.producer.hooks import EndTransactionContext, SendContext, SendMessageHook
from rocketmq_fast.producer.producer import Producer
from rocketmq_fast.producer.request_reply import create_reply_message
from rocketmq_fast.producer.selectors import select_at_random, select_by_hash
from rocketmq_fast.producer.transaction import TransactionProducer
from rocketmq_fast.remoting.hooks import RpcHook
from rocketmq_fast.remoting.security import Credentials

if TYPE_CHECKING:
    from rocketmq_fast import embedded

__all__ = [
    "Admin",
    "ArrowBatch",
    "AsyncPullConsumer",
    "BrokerError",
    "BrokerNotFound",
    "BrokerSystemError",
    "ByConfiguration",
    "ByMachineRoom",
    "ClientStateError",
    "CodecError",
    "ConfigError",
    "ConnectError",
    "ConnectionClosed",
    "ConsistentHash",
    "ConsumeFromWhere",
    "ConsumeHookContext",
    "ConsumeMessageHook",
    "ConsumeStatus",
    "Credentials",
    "EndTransactionContext",
    "HookError",
    "LocalFileOffsetStore",
    "LocalTransactionState",
    "MachineRoomNearby",
    "Message",
    "MessageBatch",
    "MessageDecodeError",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageTooLarge",
    "NoNameServer",
    "NoPermission",
    "OffsetFileError",
    "OffsetStore",
    "OrderlyContext",
    "OrderlyStatus",
    "ProcessQueue",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "QueryNotFound",
    "RemotingCommand",
    "RemotingError",
    "ReplyTimeout",
    "RequestTimeout",
    "RocketMQError",
    "RpcHook",
    "SendContext",
    "SendError",
    "SendMessageHook",
    "SendResult",
    "SendStatus",
    "Sql",
    "SubscriptionParseFailed",
    "TagFilter",
    "TopicRouteNotFound",
    "TransactionProducer",
    "TransactionSendResult",
    "__version__",
    "allocate_average",
    "allocate_average_by_circle",
    "create_reply_message",
    "decode_arrow",
    "decode_frame",
    "decode_messages",
    "embedded",
    "encode_frame",
    "select_at_random",
    "select_by_hash",
]


def __getattr__(name: str) -> object:
    """Load the embedded cluster when it is named: clients start without it."""
    if name == "embedded":
        return import_module("rocketmq_fast.embedded")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
