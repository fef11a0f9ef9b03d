"""RocketMQ push consumer for Python and Spark on a native core.

Names are loaded when they are first used: a process that only plans a Spark stream, or only sends,
starts without the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rocketmq_fast._version import __version__

if TYPE_CHECKING:
    from rocketmq_fast import embedded
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
    from rocketmq_fast._core.consume import ConsumeContext, OrderlyContext
    from rocketmq_fast.admin.admin import Admin
    from rocketmq_fast.consumer.async_pull import AsyncPullConsumer
    from rocketmq_fast.consumer.hooks import ConsumeHookContext, ConsumeMessageHook
    from rocketmq_fast.consumer.lite_pull import PullConsumer
    from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore
    from rocketmq_fast.consumer.offset_file import OffsetFileError
    from rocketmq_fast.consumer.offsets import OffsetStore
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
    "ConsumeContext",
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

# Where the names above are at home.
_HOMES = {
    "_core": (
        "ArrowBatch MessageBatch MessageExt ProcessQueue RemotingCommand TagFilter decode_arrow "
        "decode_frame decode_messages encode_frame"
    ),
    "_core.consume": "ConsumeContext OrderlyContext",
    "admin.admin": "Admin",
    "consumer.async_pull": "AsyncPullConsumer",
    "consumer.hooks": "ConsumeHookContext ConsumeMessageHook",
    "consumer.lite_pull": "PullConsumer",
    "consumer.local_offsets": "LocalFileOffsetStore",
    "consumer.offset_file": "OffsetFileError",
    "consumer.offsets": "OffsetStore",
    "consumer.push": "PushConsumer",
    "consumer.strategies": (
        "ByConfiguration ByMachineRoom ConsistentHash MachineRoomNearby allocate_average "
        "allocate_average_by_circle"
    ),
    "consumer.subscription": "Sql",
    "errors": (
        "BrokerError BrokerNotFound BrokerSystemError ClientStateError CodecError ConfigError "
        "ConnectError ConnectionClosed HookError MessageDecodeError MessageTooLarge "
        "NoNameServer NoPermission QueryNotFound RemotingError ReplyTimeout RequestTimeout "
        "RocketMQError SendError SubscriptionParseFailed TopicRouteNotFound"
    ),
    "model": (
        "ConsumeFromWhere ConsumeStatus LocalTransactionState Message MessageModel MessageQueue "
        "OrderlyStatus SendResult SendStatus TransactionSendResult"
    ),
    "producer.hooks": "EndTransactionContext SendContext SendMessageHook",
    "producer.producer": "Producer",
    "producer.request_reply": "create_reply_message",
    "producer.selectors": "select_at_random select_by_hash",
    "producer.transaction": "TransactionProducer",
    "remoting.hooks": "RpcHook",
    "remoting.security": "Credentials",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
# Parts of the package that are attributes of it without an import of their own.
_MODULES = frozenset(
    "admin client consumer embedded errors model producer protocol remoting".split()
)


def __getattr__(name: str) -> object:
    """Load a name at its first use; it is an ordinary attribute from then on."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
