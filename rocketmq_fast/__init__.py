"""RocketMQ push consumer for Python and Spark on a native core.

Names are loaded when they are first used: a process that only plans a Spark stream, or only sends,
starts without the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rocketmq_fast._version import __version__ as __version__

if TYPE_CHECKING:
    from rocketmq_fast import embedded as embedded
    from rocketmq_fast._core import ArrowBatch as ArrowBatch
    from rocketmq_fast._core import MessageBatch as MessageBatch
    from rocketmq_fast._core import MessageExt as MessageExt
    from rocketmq_fast._core import ProcessQueue as ProcessQueue
    from rocketmq_fast._core import RemotingCommand as RemotingCommand
    from rocketmq_fast._core import TagFilter as TagFilter
    from rocketmq_fast._core import decode_arrow as decode_arrow
    from rocketmq_fast._core import decode_frame as decode_frame
    from rocketmq_fast._core import decode_messages as decode_messages
    from rocketmq_fast._core import encode_frame as encode_frame
    from rocketmq_fast._core.consume import ConsumeContext as ConsumeContext
    from rocketmq_fast._core.consume import OrderlyContext as OrderlyContext
    from rocketmq_fast.admin.admin import Admin as Admin
    from rocketmq_fast.consumer.async_pull import AsyncPullConsumer as AsyncPullConsumer
    from rocketmq_fast.consumer.hooks import ConsumeHookContext as ConsumeHookContext
    from rocketmq_fast.consumer.hooks import ConsumeMessageHook as ConsumeMessageHook
    from rocketmq_fast.consumer.lite_pull import PullConsumer as PullConsumer
    from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore as LocalFileOffsetStore
    from rocketmq_fast.consumer.offset_file import OffsetFileError as OffsetFileError
    from rocketmq_fast.consumer.offsets import OffsetStore as OffsetStore
    from rocketmq_fast.consumer.push import PushConsumer as PushConsumer
    from rocketmq_fast.consumer.strategies import ByConfiguration as ByConfiguration
    from rocketmq_fast.consumer.strategies import ByMachineRoom as ByMachineRoom
    from rocketmq_fast.consumer.strategies import ConsistentHash as ConsistentHash
    from rocketmq_fast.consumer.strategies import MachineRoomNearby as MachineRoomNearby
    from rocketmq_fast.consumer.strategies import allocate_average as allocate_average
    from rocketmq_fast.consumer.strategies import (
        allocate_average_by_circle as allocate_average_by_circle,
    )
    from rocketmq_fast.consumer.subscription import Sql as Sql
    from rocketmq_fast.errors import BrokerError as BrokerError
    from rocketmq_fast.errors import BrokerNotFound as BrokerNotFound
    from rocketmq_fast.errors import BrokerSystemError as BrokerSystemError
    from rocketmq_fast.errors import ClientStateError as ClientStateError
    from rocketmq_fast.errors import CodecError as CodecError
    from rocketmq_fast.errors import ConfigError as ConfigError
    from rocketmq_fast.errors import ConnectError as ConnectError
    from rocketmq_fast.errors import ConnectionClosed as ConnectionClosed
    from rocketmq_fast.errors import HookError as HookError
    from rocketmq_fast.errors import MessageDecodeError as MessageDecodeError
    from rocketmq_fast.errors import MessageTooLarge as MessageTooLarge
    from rocketmq_fast.errors import NoNameServer as NoNameServer
    from rocketmq_fast.errors import NoPermission as NoPermission
    from rocketmq_fast.errors import QueryNotFound as QueryNotFound
    from rocketmq_fast.errors import RemotingError as RemotingError
    from rocketmq_fast.errors import ReplyTimeout as ReplyTimeout
    from rocketmq_fast.errors import RequestTimeout as RequestTimeout
    from rocketmq_fast.errors import RocketMQError as RocketMQError
    from rocketmq_fast.errors import SendError as SendError
    from rocketmq_fast.errors import SubscriptionParseFailed as SubscriptionParseFailed
    from rocketmq_fast.errors import TopicRouteNotFound as TopicRouteNotFound
    from rocketmq_fast.model import ConsumeFromWhere as ConsumeFromWhere
    from rocketmq_fast.model import ConsumeStatus as ConsumeStatus
    from rocketmq_fast.model import LocalTransactionState as LocalTransactionState
    from rocketmq_fast.model import Message as Message
    from rocketmq_fast.model import MessageModel as MessageModel
    from rocketmq_fast.model import MessageQueue as MessageQueue
    from rocketmq_fast.model import OrderlyStatus as OrderlyStatus
    from rocketmq_fast.model import SendResult as SendResult
    from rocketmq_fast.model import SendStatus as SendStatus
    from rocketmq_fast.model import TransactionSendResult as TransactionSendResult
    from rocketmq_fast.producer.hooks import EndTransactionContext as EndTransactionContext
    from rocketmq_fast.producer.hooks import SendContext as SendContext
    from rocketmq_fast.producer.hooks import SendMessageHook as SendMessageHook
    from rocketmq_fast.producer.producer import Producer as Producer
    from rocketmq_fast.producer.request_reply import create_reply_message as create_reply_message
    from rocketmq_fast.producer.selectors import select_at_random as select_at_random
    from rocketmq_fast.producer.selectors import select_by_hash as select_by_hash
    from rocketmq_fast.producer.transaction import TransactionProducer as TransactionProducer
    from rocketmq_fast.remoting.hooks import RpcHook as RpcHook
    from rocketmq_fast.remoting.security import Credentials as Credentials

# The same names by their homes, which the interpreter goes by; type checkers and editors read the
# imports above.
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
if not TYPE_CHECKING:  # a checker takes only literal lists; the imports above say `as` for it
    __all__ = sorted([*_HOME_OF, "__version__", "embedded"])
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
    return sorted({*globals(), *_HOME_OF, *_MODULES})
