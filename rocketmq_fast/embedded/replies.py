"""Answers of request-reply: stored, and pushed to the client that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.embedded.requests import (
    answer,
    format_properties,
    parse_properties,
)
from rocketmq_fast.embedded.send import LONG_NAMES
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_fast.embedded.dispatch import Handlers
    from rocketmq_fast.embedded.state import BrokerState
    from rocketmq_fast.remoting.server import Peer

_PUSH_SECONDS = 10.0
_SHORT_TO_LONG = {short: long for long, short in LONG_NAMES.items() if long != "batch"}


class ReplyService:
    """Serves requests 324 and 325: `store` stores the reply as an ordinary send."""

    def __init__(
        self,
        state: BrokerState,
        store: Callable[[Peer, RemotingCommand], RemotingCommand],
    ) -> None:
        self._state = state
        self._store = store

    def handlers(self) -> Handlers:
        """Return what this part serves."""
        return dict.fromkeys(
            (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2), self.reply
        )

    def reply(self, peer: Peer, request: RemotingCommand) -> None:
        """Push a reply to the client that asked, and store it; answers when the push is through."""
        short = {LONG_NAMES.get(name, name): value for name, value in request.ext_fields.items()}
        table = parse_properties(short.get("i"))
        stored = self._store(peer, request)
        if stored.code != ResponseCode.SUCCESS:
            peer.reply(request, stored)
            return
        target = self._client(table.get(props.REPLY_TO_CLIENT))
        if target is None:
            self._finish(
                peer,
                request,
                stored,
                f"push reply message fail, channel of <{table.get('REPLY_TO_CLIENT')}> not found.",
            )
            return
        now = str(self._state.store.clock())
        table["PUSH_REPLY_TIME"] = now
        fields = {long: short[name] for name, long in _SHORT_TO_LONG.items() if name in short} | {
            "properties": format_properties(table).decode(),
            "bornHost": peer.address,
            "storeHost": self._state.address,
            "storeTimestamp": now,
        }

        def pushed(response: RemotingCommand | None, error: Exception | None) -> None:
            if response is None:
                self._finish(peer, request, stored, f"push reply message to client fail: {error}")
            elif response.code != ResponseCode.SUCCESS:
                self._finish(
                    peer,
                    request,
                    stored,
                    f"push reply message fail, code {response.code}: {response.remark}",
                )
            else:
                self._finish(peer, request, stored, None)

        push = RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body)
        target.invoke(push, _PUSH_SECONDS, pushed)

    def _client(self, client_id: str | None) -> Peer | None:
        """Return the connection of a producer."""
        for members in self._state.members.producers.values():
            for peer, member in members.items():
                if member.client_id == client_id:
                    return peer
        return None

    @staticmethod
    def _finish(
        peer: Peer, request: RemotingCommand, stored: RemotingCommand, problem: str | None
    ) -> None:
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        peer.reply(request, answer(request, code, dict(stored.ext_fields), remark=problem))
