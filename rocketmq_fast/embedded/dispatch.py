"""From requests to handlers, and from exceptions to answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.embedded.requests import Malformed, Refused, answer
from rocketmq_fast.errors import RocketMQError
from rocketmq_fast.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from rocketmq_fast.remoting.server import Peer

log = logging.getLogger(__name__)

# A handler returns the answer, or None when it answers later.
Handler: TypeAlias = "Callable[[Peer, RemotingCommand], RemotingCommand | None]"
Handlers: TypeAlias = Mapping[int, Handler]


class Dispatcher:
    """Calls the handler of a request's code and sends what it returns."""

    def __init__(self, *tables: Handlers) -> None:
        self._handlers: dict[int, Handler] = {}
        for table in tables:
            for code, handler in table.items():
                if int(code) in self._handlers:
                    raise ValueError(f"request code {code} has two handlers")
                self._handlers[int(code)] = handler

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that are served."""
        return frozenset(self._handlers)

    def dispatch(self, peer: Peer, request: RemotingCommand) -> None:
        """Serve one request. Whatever is wrong with it, the connection goes on."""
        handler = self._handlers.get(request.code)
        response: RemotingCommand | None
        if handler is None:
            response = answer(
                request,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f" request type {request.code} not supported",
            )
        else:
            response = call(handler, peer, request)
        if response is not None:
            peer.reply(request, response)


def call(
    handler: Handler, peer: Peer, request: RemotingCommand, *, json_header: bool = False
) -> RemotingCommand | None:
    """Return what a handler answers, or an answer that says why it could not.

    `json_header` is for errors of requests that are served later: they are JSON always.
    """
    try:
        return handler(peer, request)
    except Refused as error:
        return answer(
            request,
            error.code,
            error.ext_fields,
            remark=error.remark,
            json_header=json_header or isinstance(error, Malformed),
        )
    except (
        RocketMQError,
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        log.warning("request %d from %s: %r", request.code, peer.address, error)
        log.debug("where it came from", exc_info=True)
        return answer(
            request,
            ResponseCode.SYSTEM_ERROR,
            json_header=True,
            remark=f"{type(error).__name__}: {error}",
        )
