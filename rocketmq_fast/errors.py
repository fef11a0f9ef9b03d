"""Exceptions of the package. Messages name topic, queue, offset or broker, never a message body."""

from __future__ import annotations

from typing import ClassVar


class RocketMQError(Exception):
    """Root of every error that this package raises on purpose.

    `retriable`: the same call may succeed later. `refresh_route`: the cached route is probably
    stale.
    """

    retriable: ClassVar[bool] = False
    refresh_route: ClassVar[bool] = False


class ConfigError(RocketMQError, ValueError):
    """An option, name or expression that can never work; raised before anything is sent."""


class MessageTooLarge(ConfigError):
    """A message or batch over the producer's max_message_size; it was not sent."""


class ClientStateError(RocketMQError):
    """A call that the client's state does not allow (not started, shut down, started twice)."""


# ------------------------------------------------------------------------------------ codec


class CodecError(RocketMQError):
    """Bytes that could not be decoded, or values that cannot be encoded.

    `position` is the byte offset in the decoder's input, or None where there is none.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class FrameError(CodecError):
    """A frame whose length, type or header length is wrong. The connection cannot go on."""


class HeaderError(CodecError):
    """A remoting header that is not valid JSON, or not a valid compact header."""


class MessageDecodeError(CodecError):
    """A stored message, batch element or property string that could not be decoded."""


class MessageEncodeError(CodecError):
    """A message whose properties or lengths the wire format cannot carry."""


class BodyError(CodecError):
    """A JSON body (route, heartbeat, offset table ...) that is malformed or has a wrong shape."""


# --------------------------------------------------------------------------------- remoting


class RemotingError(RocketMQError):
    """A request that got no answer."""

    retriable = True

    def __init__(self, message: str, address: str | None = None) -> None:
        super().__init__(message)
        self.address = address


class ConnectError(RemotingError):
    """The peer could not be reached within the connect timeout."""

    refresh_route = True


class ConnectionClosed(RemotingError):
    """The connection ended while the request was in flight."""

    refresh_route = True


class RequestTimeout(RemotingError, TimeoutError):
    """No answer within the timeout. The request may still have been carried out."""


class ReplyTimeout(RequestTimeout):
    """A request was stored, but no reply to it came in time. It may still be worked on."""


class TooMuchRequests(RemotingError):
    """More is waiting to be sent than the client may hold; nothing was sent."""


class HookError(RemotingError):
    """An RpcHook raised before the request: it was not sent. The cause is what the hook raised."""

    retriable = False


class NoNameServer(RemotingError):
    """No name server answered, or none is configured."""


class TopicRouteNotFound(RocketMQError):
    """The name servers know no broker for the topic."""

    retriable = True
    refresh_route = True

    def __init__(self, topic: str, message: str | None = None) -> None:
        super().__init__(message or f"no route for topic {topic!r} on the name servers")
        self.topic = topic


class BrokerNotFound(RocketMQError):
    """The route of the topic holds no usable address for the broker."""

    retriable = True
    refresh_route = True


# ------------------------------------------------------------------------- answers by code


class BrokerError(RocketMQError):
    """A broker or name server answered with an error code.

    `code` is the response code (ResponseCode in the Java code), `remark` the server's text.
    """

    _by_code: ClassVar[dict[int, type[BrokerError]]] = {}
    codes: ClassVar[tuple[int, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for code in cls.codes:
            if code in BrokerError._by_code:
                raise TypeError(f"response code {code} already has an error class")
            BrokerError._by_code[code] = cls

    def __init__(self, code: int, remark: str | None, address: str | None = None) -> None:
        where = f" from {address}" if address else ""
        super().__init__(f"code {code}{where}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark
        self.address = address

    @staticmethod
    def of(code: int, remark: str | None, address: str | None = None) -> BrokerError:
        """The error of the class that stands for `code`."""
        return BrokerError._by_code.get(code, BrokerError)(code, remark, address)


class BrokerSystemError(BrokerError):
    """1: generic failure; also ACL rejection and an illegal queue id on 4.x."""

    codes = (1,)
    retriable = True


class SystemBusy(BrokerError):
    """2: flow control in the broker."""

    codes = (2,)
    retriable = True


class RequestCodeNotSupported(BrokerError):
    """3: the server does not know the request code."""

    codes = (3,)


class MessageIllegal(BrokerError):
    """13: body, properties or topic too long, or a batch with delay or transaction."""

    codes = (13,)


class ServiceNotAvailable(BrokerError):
    """14: disk full, slave, or store shut down."""

    codes = (14,)
    retriable = True


class NoPermission(BrokerError):
    """16: broker, topic or group may not be read or written."""

    codes = (16,)
    refresh_route = True


class TopicNotExist(BrokerError):
    """17: the broker does not have the topic."""

    codes = (17,)
    retriable = True
    refresh_route = True


class QueryNotFound(BrokerError):
    """22: no offset stored, no message for the key, no such entry."""

    codes = (22,)


class SubscriptionParseFailed(BrokerError):
    """23: the filter expression does not compile."""

    codes = (23,)


class SubscriptionNotExist(BrokerError):
    """24: the broker has not seen a heartbeat with this group and topic yet."""

    codes = (24,)
    retriable = True


class SubscriptionNotLatest(BrokerError):
    """25: the pull is newer than the last heartbeat the broker saw."""

    codes = (25,)
    retriable = True


class SubscriptionGroupNotExist(BrokerError):
    """26: the group does not exist and the broker does not create it."""

    codes = (26,)


class InvalidParameter(BrokerError):
    """29: 5.x brokers' answer to a request that 4.x answers with 1."""

    codes = (29,)


class ConsumerNotOnline(BrokerError):
    """206: no member of the group is connected."""

    codes = (206,)


class SendError(RocketMQError):
    """A message could not be sent to any broker; `causes` holds an error per attempt."""

    retriable = True

    def __init__(self, message: str, causes: list[Exception]) -> None:
        super().__init__(message)
        self.causes = causes
