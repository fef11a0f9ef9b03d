"""Which queues each member of a group gets. Results equal Java's, so that mixed groups agree.

A strategy is called with (group, own client id, queues, client ids), both lists sorted. Every
member of a group has to use the same one with the same arguments.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.names import RETRY_PREFIX

AllocateStrategy = Callable[
    [str, str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]
]

CONSISTENT_HASH_VIRTUAL_NODES = 10


def _own_index(cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]) -> int | None:
    """Own place among the members; None when not a member (yet): nothing is ours then."""
    if not cid:
        raise ConfigError("the own client id is empty")
    if not queues:
        raise ConfigError("there are no queues to allocate")
    if not cids:
        raise ConfigError("there are no members to allocate to")
    return list(cids).index(cid) if cid in cids else None


def utf16_order(text: str) -> bytes:
    """Sort key of Java's String.compareTo: UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


# ---------------------------------------------------------------------------------- average


def allocate_average(
    _group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
) -> list[MessageQueue]:
    """AVG: neighbouring queues, the first members get one more when it does not divide."""
    index = _own_index(cid, queues, cids)
    if index is None:
        return []
    quotient, rest = divmod(len(queues), len(cids))
    size = 1 if len(queues) <= len(cids) else quotient + (1 if index < rest else 0)
    start = index * size if rest > 0 and index < rest else index * size + rest
    return list(queues[start : start + size])


def allocate_average_by_circle(
    _group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: queues dealt out one by one."""
    index = _own_index(cid, queues, cids)
    return [] if index is None else list(queues[index :: len(cids)])


# -------------------------------------------------------------------------- consistent hash


def md5_hash(text: str) -> int:
    """The ring position that Java's client gives a text: the first four bytes of its MD5."""
    # "?" for half a surrogate pair, as Java's getBytes does.
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


class _Ring:
    """The members' points on the ring, in order."""

    def __init__(
        self, cids: Sequence[str], virtual_nodes: int, hash_function: Callable[[str], int]
    ) -> None:
        owners: dict[int, str] = {}
        seen: set[str] = set()
        for cid in cids:
            # A client id that is listed twice gets more points, numbered on from those it has.
            first = sum(owner == cid for owner in owners.values()) if cid in seen else 0
            seen.add(cid)
            for number in range(first, first + virtual_nodes):
                owners[hash_function(f"{cid}-{number}")] = cid
        self._points = sorted(owners)
        self._owners = [owners[point] for point in self._points]

    def owner(self, position: int) -> str | None:
        """Whoever has the first point at or after a position, around the end."""
        if not self._points:
            return None
        place = bisect_left(self._points, position)
        return self._owners[place if place < len(self._owners) else 0]


class ConsistentHash:
    """CONSISTENT_HASH: few queues move when a member comes or goes; the shares are uneven.

    `virtual_nodes` points on the ring per member (with 0 nobody gets a queue, as in Java).
    `hash_function` maps a text to an integer; all members need the same one.
    Raises ConfigError.
    """

    def __init__(
        self,
        virtual_nodes: int = CONSISTENT_HASH_VIRTUAL_NODES,
        hash_function: Callable[[str], int] = md5_hash,
    ) -> None:
        if isinstance(virtual_nodes, bool) or not isinstance(virtual_nodes, int):
            raise ConfigError(f"virtual_nodes is {virtual_nodes!r}, not an integer")
        if virtual_nodes < 0:
            raise ConfigError(f"virtual_nodes is {virtual_nodes}; it must not be negative")
        if not callable(hash_function):
            raise ConfigError(f"hash_function {hash_function!r} is not callable")
        self._virtual_nodes = virtual_nodes
        self._hash = hash_function
        # The ring of the members seen last: they are the same for every topic of a round. One
        # tuple, so that threads replace it in one step.
        self._cached: tuple[tuple[str, ...], _Ring] | None = None

    def __call__(
        self, _group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """Queues whose next point on the ring is one of ours."""
        if _own_index(cid, queues, cids) is None:
            return []
        ring = self._ring_of(tuple(cids))
        position = self._hash
        return [queue for queue in queues if ring.owner(position(_ring_text(queue))) == cid]

    def _ring_of(self, cids: tuple[str, ...]) -> _Ring:
        cached = self._cached
        if cached is None or cached[0] != cids:
            cached = self._cached = (cids, _Ring(cids, self._virtual_nodes, self._hash))
        return cached[1]

    def __repr__(self) -> str:
        return f"ConsistentHash(virtual_nodes={self._virtual_nodes})"


def _ring_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


# ---------------------------------------------------------------------------- configuration


class ByConfiguration:
    """CONFIG: the listed queues, whoever else is in the group.

    Of every topic the queues listed for it, also one that the brokers do not have. Java hands out
    the whole list for each topic, which comes to the same for one topic. Where no queue of the
    retry topic is listed the members share it by AVG: in Java nobody would read it, and messages
    that failed once would be lost. Raises ConfigError.
    """

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = _checked_queues("ByConfiguration", queues)
        self._topics = frozenset(queue.topic for queue in self._queues)

    def __call__(
        self, group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """The listed queues of the topic that is shared out; all where it is not known."""
        if not queues:
            return list(self._queues)
        topic = queues[0].topic
        if topic.startswith(RETRY_PREFIX) and topic not in self._topics:
            return allocate_average(group, cid, queues, cids)
        return [queue for queue in self._queues if queue.topic == topic]

    def __repr__(self) -> str:
        return f"ByConfiguration({len(self._queues)} queues)"


# ----------------------------------------------------------------------------- machine rooms


class ByMachineRoom:
    """MACHINE_ROOM: only queues of brokers named `<room>@<name>` with one of the given rooms.

    Queues of other brokers belong to nobody. Raises ConfigError.
    """

    def __init__(self, rooms: Iterable[str]) -> None:
        listed = [rooms] if isinstance(rooms, str) else list(rooms)
        wrong = [room for room in listed if not isinstance(room, str)]
        if not listed or wrong:
            raise ConfigError(f"rooms is {rooms!r}; it must be a list of names, one or more")
        self._rooms = frozenset(listed)

    def __call__(
        self, _group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """An equal run of neighbours each, then one each of what is left over."""
        index = _own_index(cid, queues, cids)
        if index is None:
            return []
        eligible = [queue for queue in queues if _room_in_name(queue.broker_name) in self._rooms]
        quotient, rest = divmod(len(eligible), len(cids))
        mine = eligible[index * quotient : (index + 1) * quotient]
        if index < rest:
            mine.append(eligible[quotient * len(cids) + index])
        return mine

    def __repr__(self) -> str:
        return f"ByMachineRoom({sorted(self._rooms)})"


def _room_in_name(broker_name: str) -> str | None:
    """The first of exactly two parts around `@`; like Java's split, blind to empty ends."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


class MachineRoomNearby:
    """MACHINE_ROOM_NEARBY: queues go to members in the room of their broker.

    Within a room, and among all members for a room without any, `inner` shares them out: a name or
    a callable. `broker_room` maps a queue, `consumer_room` a client id to the name of its room;
    both must know all of them. Raises ConfigError.
    """

    def __init__(
        self,
        inner: object = "AVG",
        *,
        broker_room: Callable[[MessageQueue], str],
        consumer_room: Callable[[str], str],
    ) -> None:
        for name, given in (("broker_room", broker_room), ("consumer_room", consumer_room)):
            if not callable(given):
                raise ConfigError(f"{name} {given!r} is not callable")
        self._inner = strategy_of(inner)
        # A strategy of its own for the rooms without members: each keeps the ring of its members.
        self._inner_of_all = strategy_of(inner)
        self._broker_room = broker_room
        self._consumer_room = consumer_room

    def __call__(
        self, group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """Our part of our own room's queues, then of each room without members."""
        if _own_index(cid, queues, cids) is None:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = _room("broker_room", self._broker_room(queue), queue)
            queues_of.setdefault(room, []).append(queue)
        members_of: dict[str, list[str]] = {}
        for member in cids:
            room = _room("consumer_room", self._consumer_room(member), member)
            members_of.setdefault(room, []).append(member)
        own = _room("consumer_room", self._consumer_room(cid), cid)
        mine: list[MessageQueue] = []
        near = queues_of.pop(own, None)
        if near:
            mine += self._inner(group, cid, near, members_of.get(own, ()))
        for room in sorted(queues_of, key=utf16_order):
            if room not in members_of:
                mine += self._inner_of_all(group, cid, queues_of[room], cids)
        return mine

    def __repr__(self) -> str:
        return f"MachineRoomNearby({self._inner!r})"


def _room(resolver: str, room: object, of: object) -> str:
    if not isinstance(room, str) or not room:
        raise ConfigError(f"{resolver} gave {room!r} for {of}, not the name of a room")
    return room


# --------------------------------------------------------------------------- names, own ones


class _UserStrategy:
    """A user's callable, whose results are checked before queues change hands."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(
        self, group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """What the callable gives. Raises ConfigError when that cannot be an allocation."""
        # Copies: the caller's lists are its own.
        mine = _checked_queues(repr(self), self._function(group, cid, list(queues), list(cids)))
        topics = {queue.topic for queue in queues}
        for queue in mine:
            if queue.topic not in topics:
                raise ConfigError(f"{self!r} gave {queue}, which is no queue of {sorted(topics)}")
        return list(mine)

    def __repr__(self) -> str:
        name = getattr(self._function, "__qualname__", None) or repr(self._function)
        return f"strategy {name}"


def _checked_queues(what: str, given: object) -> tuple[MessageQueue, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        queues = tuple(given)
        if all(isinstance(queue, MessageQueue) for queue in queues):
            return queues
    raise ConfigError(f"{what}: {given!r} is no list of MessageQueue")


# The strategies that need no arguments, by Java's name, each call with a strategy of its own.
STRATEGIES: dict[str, Callable[[], AllocateStrategy]] = {
    "AVG": lambda: allocate_average,
    "AVG_BY_CIRCLE": lambda: allocate_average_by_circle,
    "CONSISTENT_HASH": ConsistentHash,
}
_WITH_ARGUMENTS = {
    "CONFIG": "ByConfiguration(queues)",
    "MACHINE_ROOM": "ByMachineRoom(rooms)",
    "MACHINE_ROOM_NEARBY": "MachineRoomNearby(inner, broker_room=..., consumer_room=...)",
}
_OWN_FUNCTIONS = (allocate_average, allocate_average_by_circle)
_OWN_CLASSES = (ConsistentHash, ByConfiguration, ByMachineRoom, MachineRoomNearby, _UserStrategy)


def strategy_of(value: object) -> AllocateStrategy:
    """The strategy of a Java name or a callable (group, cid, queues, cids). Raises ConfigError."""
    if isinstance(value, str):
        if value in STRATEGIES:
            return STRATEGIES[value]()
        if value in _WITH_ARGUMENTS:
            raise ConfigError(f"strategy {value} needs arguments: give {_WITH_ARGUMENTS[value]}")
    elif isinstance(value, _OWN_CLASSES):
        return value
    elif isinstance(value, type):
        raise ConfigError(f"strategy {value.__name__} is a class; give an object of it")
    elif callable(value):
        own = next((known for known in _OWN_FUNCTIONS if value is known), None)
        return own or _UserStrategy(value)
    raise ConfigError(
        f"allocate_message_queue_strategy {value!r} is neither callable nor one of "
        f"{', '.join(sorted(STRATEGIES))}"
    )
