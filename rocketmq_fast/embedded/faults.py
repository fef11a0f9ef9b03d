"""Faults on demand: requests that the embedded servers answer wrongly, late or not at all."""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rocketmq_fast._core import RemotingCommand, encode_frame
from rocketmq_fast.embedded.damage import damaged_frame, damaged_message, other_route
from rocketmq_fast.embedded.requests import Refused, answer, items_of, json_body
from rocketmq_fast.errors import ConfigError, ConnectionClosed
from rocketmq_fast.protocol.codes import FLAG_ONEWAY, RequestCode
from rocketmq_fast.remoting.client import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self, TypedDict, Unpack

    from rocketmq_fast.embedded.scope import LoopScope
    from rocketmq_fast.remoting.server import Peer

    class Where(TypedDict, total=False):
        """Which requests a fault concerns, and how many of them."""

        topic: str | None
        queue: int | None
        group: str | None
        server: str | None
        times: int | None
        skip: int
        probability: float


log = logging.getLogger(__name__)

# A code, its name in RequestCode, several of them, or None for every request.
Requests: TypeAlias = "int | str | Iterable[int | str] | None"
_PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
_HISTORY = 10_000


def request_codes(requests: Requests) -> frozenset[int] | None:
    """Return the codes that are meant, None for all. Raises ConfigError for an unknown name."""
    if requests is None:
        return None
    single = isinstance(requests, (int, str))
    codes = set()
    for one in (requests,) if single else requests:  # type: ignore[union-attr]
        if isinstance(one, int):
            codes.add(int(one))
            continue
        name = str(one).upper()
        if name not in RequestCode.__members__:
            near = get_close_matches(name, RequestCode.__members__, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"there is no request {one!r}{hint}")
        codes.add(int(RequestCode[name]))
    return frozenset(codes)


class Strike(NamedTuple):
    """A request that was hit by a fault."""

    kind: str
    server: str
    request: int
    topic: str | None
    queue: int | None


class Target(NamedTuple):
    """What a request is about, as far as it says so."""

    topics: frozenset[str]
    queues: frozenset[int]
    group: str | None


def target_of(request: RemotingCommand) -> Target:
    """Return topic, queue and group of a request; those of locks stand in their bodies."""
    fields = request.ext_fields
    if request.code in _LOCKS:
        try:
            body = json_body(request)
            keys = items_of(body, "mqSet")
        except Refused:  # the server says so itself
            return Target(frozenset(), frozenset(), None)
        return Target(
            frozenset(str(key.get("topic")) for key in keys),
            frozenset(key["queueId"] for key in keys if isinstance(key.get("queueId"), int)),
            str(body.get("consumerGroup")),
        )
    topic = fields.get("topic") or fields.get("b") or fields.get("originTopic")
    queue = fields.get("queueId") or fields.get("e") or ""
    group = (fields.get("consumerGroup") or fields.get("group") or fields.get("producerGroup")
             or fields.get("a"))  # fmt: skip
    return Target(
        frozenset((topic,) if topic else ()),
        frozenset((int(queue),) if queue.isdecimal() else ()),
        group,
    )


@dataclass(frozen=True, slots=True)
class _Effect:
    """What a fault does: before a request is served, or with the answer."""

    kind: str
    # Not carried out: answered with what this returns, or not at all.
    instead: Callable[[RemotingCommand], RemotingCommand | None] | None = None
    # Carried out: these bytes are the answer (None: no answer), cut: and then the end.
    change: Callable[[RemotingCommand, RemotingCommand, random.Random], bytes | None] | None = None
    cut: bool = False
    seconds: float = 0.0


class Fault:
    """A fault that is in force until remove(), clear(), or until it struck `times` times.

    As a context manager it is removed at the end of the block.
    """

    def __init__(
        self, owner: Faults, effect: _Effect, codes: frozenset[int] | None, seed: str,
        where: Where,
    ) -> None:  # fmt: skip
        self._owner = owner
        self._effect = effect
        self._codes = codes
        self._seed = seed
        self._random = random.Random(seed)
        self._topic = where.get("topic")
        self._queue = where.get("queue")
        self._group = where.get("group")
        self._server = where.get("server")
        self._times = where.get("times")
        self._skip = where.get("skip", 0)
        self._probability = where.get("probability", 1.0)
        self.hits = 0
        if self._times is not None and self._times < 1:
            raise ConfigError(f"times is {self._times}, not over 0")
        if not 0 < self._probability <= 1:
            raise ConfigError(f"probability is {self._probability}, not over 0 and up to 1")

    @property
    def kind(self) -> str:
        """What it does: error, silence, delay, cut, corrupt, corrupt_message or wrong_route."""
        return self._effect.kind

    def remove(self) -> None:
        """Strike no more. Any thread."""
        self._owner._remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def _strikes(self, server: str, request: RemotingCommand, target: Target) -> bool:
        """Decide about a request. Loop thread."""
        if (
            (self._codes is not None and request.code not in self._codes)
            or self._server not in (None, server)
            or (self._topic is not None and self._topic not in target.topics)
            or (self._queue is not None and self._queue not in target.queues)
            or self._group not in (None, target.group)
        ):
            return False
        if self._skip:
            self._skip -= 1
            return False
        if self._probability < 1 and self._random.random() >= self._probability:
            return False
        self.hits += 1
        if self._times is not None and self.hits >= self._times:
            self.remove()
        return True


class Faults:
    """The faults of a cluster, `cluster.faults`. All methods may be called from any thread.

    Every kind takes the requests (a code or its name in RequestCode, several, or None for all),
    and, by keyword: `topic`, `queue`, `group` and `server` (a broker's name, "namesrv-1") that a
    request has to be about; `times` it strikes at most; `skip`, how many such requests pass first;
    `probability` with which each of the others is hit. Of several faults the one that was made
    first decides about a request.

    With the same seed the same faults, made in the same order, hit the same ones of the requests
    that concern them.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self._lock = threading.Lock()
        self._made = 0
        self._active: tuple[Fault, ...] = ()
        self._strikes: deque[Strike] = deque(maxlen=_HISTORY)

    def __bool__(self) -> bool:
        return bool(self._active)

    @property
    def strikes(self) -> list[Strike]:
        """The last 10,000 requests that were hit, the oldest first."""
        return list(self._strikes)

    # --------------------------------------------------------------------------- kinds

    def error(
        self, requests: Requests, code: int, *, remark: str = "a fault on demand",
        served: bool = False, **where: Unpack[Where],
    ) -> Fault:  # fmt: skip
        """Answer with a code of ResponseCode. `served`: the request is carried out all the same."""

        def refuse(request: RemotingCommand) -> RemotingCommand:
            return answer(request, code, None, remark=remark)

        def replace(request: RemotingCommand, _: RemotingCommand, __: random.Random) -> bytes:
            return _encoded(request, refuse(request))

        effect = _Effect("error", change=replace) if served else _Effect("error", instead=refuse)
        return self._add(effect, requests, where)

    def silence(self, requests: Requests, *, served: bool = False, **where: Unpack[Where]) -> Fault:
        """Answer nothing. `served`: the request is carried out all the same."""
        effect = (
            _Effect("silence", change=lambda *_: None)
            if served else _Effect("silence", instead=lambda _: None)
        )  # fmt: skip
        return self._add(effect, requests, where)

    def delay(self, requests: Requests, seconds: float, **where: Unpack[Where]) -> Fault:
        """Serve a request only after so many seconds."""
        if not 0 < seconds < 1e6:
            raise ConfigError(f"seconds is {seconds}, not over 0")
        return self._add(_Effect("delay", seconds=seconds), requests, where)

    def cut(self, requests: Requests, at: int = 0, **where: Unpack[Where]) -> Fault:
        """Carry a request out, send `at` bytes of the answer and end the connection."""
        if at < 0:
            raise ConfigError(f"at is {at}, not 0 or more")

        def head(request: RemotingCommand, response: RemotingCommand, _: random.Random) -> bytes:
            return _encoded(request, response)[:at]

        return self._add(_Effect("cut", change=head, cut=True), requests, where)

    def corrupt(self, requests: Requests, at: int | None = None, **where: Unpack[Where]) -> Fault:
        """Change byte `at` of the frame of the answer, by default one that the seed chooses."""
        if at is not None and at < 0:
            raise ConfigError(f"at is {at}, not 0 or more")

        def damage(
            request: RemotingCommand, response: RemotingCommand, chance: random.Random
        ) -> bytes:
            return damaged_frame(_encoded(request, response), at, chance)

        return self._add(_Effect("corrupt", change=damage), requests, where)

    def corrupt_message(self, **where: Unpack[Where]) -> Fault:
        """Change a byte in the body of one of the messages that a pull brings; its CRC tells."""

        def damage(
            request: RemotingCommand, response: RemotingCommand, chance: random.Random
        ) -> bytes:
            response.body = damaged_message(response.body, chance)
            return _encoded(request, response)

        return self._add(_Effect("corrupt_message", change=damage), _PULLS, where)

    def wrong_route(
        self, *, address: str | None = None, queues: int | None = None, perm: int | None = None,
        **where: Unpack[Where],
    ) -> Fault:  # fmt: skip
        """Announce other addresses of all brokers, or numbers or permissions of queues, in routes.

        `address` is host:port.
        """
        if address is not None:
            parse_address(address)

        def announce(
            request: RemotingCommand, response: RemotingCommand, _: random.Random
        ) -> bytes:
            response.body = other_route(response.body, address=address, queues=queues, perm=perm)
            return _encoded(request, response)

        effect = _Effect("wrong_route", change=announce)
        return self._add(effect, RequestCode.GET_ROUTEINFO_BY_TOPIC, where)

    def clear(self) -> None:
        """Remove all faults. What struck stays in `strikes`."""
        with self._lock:
            self._active = ()

    def _add(self, effect: _Effect, requests: Requests, where: Where) -> Fault:
        codes = request_codes(requests)
        with self._lock:
            fault = Fault(self, effect, codes, f"{self.seed}/{self._made}", where)
            self._made += 1
            self._active = (*self._active, fault)
        return fault

    def _remove(self, fault: Fault) -> None:
        with self._lock:
            self._active = tuple(one for one in self._active if one is not fault)

    # ------------------------------------------------------------------------- serving

    def serve(
        self, server: str, loop: LoopScope, peer: Peer, request: RemotingCommand,
        dispatch: Callable[[Peer, RemotingCommand], None],
    ) -> None:  # fmt: skip
        """Serve a request, as the faults in force want it. Loop thread."""
        target = target_of(request)
        fault = next((f for f in self._active if f._strikes(server, request, target)), None)
        if fault is None:
            dispatch(peer, request)
            return
        effect = fault._effect
        self._strikes.append(
            Strike(effect.kind, server, request.code, min(target.topics, default=None),
                   min(target.queues, default=None))
        )  # fmt: skip
        log.info(
            "fault %s: request %d of %s to %s", effect.kind, request.code, peer.address, server
        )
        if effect.seconds:
            loop.call_later(effect.seconds, dispatch, peer, request)
        elif effect.instead is not None:
            response = effect.instead(request)
            if response is not None:
                peer.reply(request, response)
        else:
            if not request.flag & FLAG_ONEWAY:
                peer.change_answer(request.opaque, _sender(peer, request, fault))
            dispatch(peer, request)


def _encoded(request: RemotingCommand, response: RemotingCommand) -> bytes:
    response.opaque = request.opaque
    return encode_frame(response)


def _sender(
    peer: Peer, request: RemotingCommand, fault: Fault
) -> Callable[[RemotingCommand], None]:
    """Return what sends an answer as a fault changes it."""
    effect = fault._effect
    # Of this strike alone: answers may leave in another order than the requests came in.
    chance = random.Random(f"{fault._seed}/{fault.hits}")

    def send(response: RemotingCommand) -> None:
        change: Any = effect.change
        data = change(request, response, chance)
        try:
            if data:
                peer.connection.send(data)
        except ConnectionClosed as error:
            log.debug("no answer sent: %s", error)
        if effect.cut:
            peer.connection.close("a fault on demand")

    return send
