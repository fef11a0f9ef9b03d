"""Allocation: the tables worked out by hand, what each strategy promises, and what it refuses."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketmq_fast
from rocketmq_fast.consumer import strategies
from rocketmq_fast.consumer.strategies import (
    AllocateStrategy,
    ByConfiguration,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    md5_hash,
    strategy_of,
    utf16_order,
)
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue


def queues_of(count: int, topic: str = "TopicTest", broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


def shares(strategy: AllocateStrategy, queues: Sequence[MessageQueue], cids: list[str]) -> Any:
    """The places in `queues` that each member gets."""
    return [[queues.index(q) for q in strategy("group", cid, queues, cids)] for cid in cids]


def spans(text: str) -> list[list[int]]:
    """The tables' notation: "0-2; 3,5; -" -> [[0, 1, 2], [3, 5], []]."""
    members = []
    for member in text.split(";"):
        numbers: list[int] = []
        for part in member.strip().split(","):
            if part != "-":
                first, _, last = part.partition("-")
                numbers += range(int(first), int(last or first) + 1)
        members.append(numbers)
    return members


# queues, members, AVG, AVG_BY_CIRCLE, MACHINE_ROOM with every queue eligible
TABLE = [
    (8, 3, "0-2; 3-5; 6-7", "0,3,6; 1,4,7; 2,5", "0,1,6; 2,3,7; 4,5"),
    (10, 4, "0-2; 3-5; 6-7; 8-9", "0,4,8; 1,5,9; 2,6; 3,7", "0,1,8; 2,3,9; 4,5; 6,7"),
    (2, 5, "0; 1; -; -; -", "0; 1; -; -; -", "0; 1; -; -; -"),
    (7, 3, "0-2; 3-4; 5-6", "0,3,6; 1,4; 2,5", "0,1,6; 2,3; 4,5"),
    (9, 4, "0-2; 3-4; 5-6; 7-8", "0,4,8; 1,5; 2,6; 3,7", "0,1,8; 2,3; 4,5; 6,7"),
    (
        12, 5, "0-2; 3-5; 6-7; 8-9; 10-11", "0,5,10; 1,6,11; 2,7; 3,8; 4,9",
        "0,1,10; 2,3,11; 4,5; 6,7; 8,9",
    ),
    (
        16, 5, "0-3; 4-6; 7-9; 10-12; 13-15",
        "0,5,10,15; 1,6,11; 2,7,12; 3,8,13; 4,9,14", "0,1,2,15; 3-5; 6-8; 9-11; 12-14",
    ),
    (8, 8, *["0; 1; 2; 3; 4; 5; 6; 7"] * 3),
    (1, 2, "0; -", "0; -", "0; -"),
]  # fmt: skip


@pytest.mark.parametrize(("count", "members", "average", "circle", "room"), TABLE)
def test_table(count: int, members: int, average: str, circle: str, room: str) -> None:
    queues = queues_of(count, broker="r@broker-a")
    cids = [f"c{number}" for number in range(members)]
    assert shares(strategy_of("AVG"), queues, cids) == spans(average)
    assert shares(strategy_of("AVG_BY_CIRCLE"), queues, cids) == spans(circle)
    assert shares(ByMachineRoom(["r"]), queues, cids) == spans(room)


@pytest.mark.parametrize(
    ("count", "cids", "expected"),
    [
        (8, ["c0", "c1", "c2"], "1; 0,3,4,5,7; 2,6"),
        (10, ["c0", "c1", "c2", "c3"], "1,9; 0,4,5,7,8; 6; 2,3"),
        (2, ["c0", "c1", "c2", "c3", "c4"], "1; 0; -; -; -"),
        (16, ["10.0.0.1@1001#1", "10.0.0.2@1002#2"], "0,1,4,5,8; 2,3,6,7,9-15"),
    ],
)
def test_consistent_hash_table(count: int, cids: list[str], expected: str) -> None:
    assert shares(ConsistentHash(), queues_of(count), cids) == spans(expected)


def test_points_on_the_ring() -> None:
    assert (md5_hash("c0-0"), md5_hash("c1-0")) == (2316876094, 3886541579)
    text = "MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=0]"
    assert md5_hash(text) == 1987926524
    assert md5_hash("\ud800") == md5_hash("?")


def test_nearby_example() -> None:
    queues = queues_of(6, broker="A") + queues_of(4, broker="B") + queues_of(2, broker="C")
    strategy = MachineRoomNearby(
        broker_room=lambda queue: queue.broker_name, consumer_room=lambda cid: cid[0].upper()
    )
    assert shares(strategy, queues, ["a1", "a2", "b1"]) == spans("0-2,10; 3-5,11; 6-9")


# ----------------------------------------------------------------------------- what is promised

names = st.text("ab@-0123456789.", min_size=1, max_size=8)
groups = st.lists(names, min_size=1, max_size=12, unique=True).map(
    lambda cids: sorted(cids, key=utf16_order)
)
topics = st.lists(
    st.builds(MessageQueue, st.just("T"), names, st.integers(0, 20)),
    min_size=1, max_size=40, unique=True,
).map(sorted)  # fmt: skip

COMPLETE: dict[str, AllocateStrategy] = {
    "AVG": strategy_of("AVG"),
    "AVG_BY_CIRCLE": strategy_of("AVG_BY_CIRCLE"),
    "CONSISTENT_HASH": ConsistentHash(),
    "one virtual node": ConsistentHash(1),
    "own hash": ConsistentHash(3, lambda text: sum(text.encode()) - 1000),
    **{
        f"nearby {inner}": MachineRoomNearby(
            inner,
            broker_room=lambda queue: queue.broker_name[0],
            consumer_room=lambda cid: cid[-1],
        )
        for inner in ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")
    },
}


@pytest.mark.parametrize("name", COMPLETE)
@given(queues=topics, cids=groups)
def test_every_queue_has_exactly_one_owner(
    name: str, queues: list[MessageQueue], cids: list[str]
) -> None:
    handed_out = [q for cid in cids for q in COMPLETE[name]("g", cid, queues, cids)]
    assert sorted(handed_out) == queues


@given(queues=topics, cids=groups, rooms=st.lists(st.text("ab0", max_size=2), min_size=1))
def test_machine_room_shares_the_queues_of_its_rooms_evenly(
    queues: list[MessageQueue], cids: list[str], rooms: list[str]
) -> None:
    strategy = ByMachineRoom(rooms)
    parts = [strategy("g", cid, queues, cids) for cid in cids]
    handed_out = [queue for part in parts for queue in part]
    for queue in queues:
        named = queue.broker_name.rstrip("@").split("@")
        eligible = len(named) == 2 and named[0] in rooms
        assert handed_out.count(queue) == eligible
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(queues=topics, cids=groups)
def test_a_member_that_leaves_moves_only_its_own_queues_on_the_ring(
    queues: list[MessageQueue], cids: list[str]
) -> None:
    strategy = ConsistentHash()
    before = {q: cid for cid in cids for q in strategy("g", cid, queues, cids)}
    gone, rest = cids[0], cids[1:]
    for cid in rest:
        for queue in strategy("g", cid, queues, rest):
            assert before[queue] in (cid, gone)


@pytest.mark.parametrize("name", COMPLETE)
def test_who_is_no_member_gets_nothing(name: str) -> None:
    assert COMPLETE[name]("g", "c9", queues_of(4), ["c0", "c1"]) == []
    assert ByMachineRoom(["r"])("g", "c9", queues_of(4, broker="r@b"), ["c0"]) == []


@pytest.mark.parametrize("strategy", [*COMPLETE.values(), ByMachineRoom(["r"])])
@pytest.mark.parametrize(
    "wrong", [("", queues_of(1), ["c0"]), ("c0", [], ["c0"]), ("c0", queues_of(1), [])]
)
def test_nothing_to_share_is_an_error(
    strategy: AllocateStrategy, wrong: tuple[str, list[MessageQueue], list[str]]
) -> None:
    with pytest.raises(ConfigError):
        strategy("g", *wrong)


# ----------------------------------------------------------------------------------- the ring


def test_a_client_id_listed_twice_has_twice_the_points() -> None:
    seen: list[str] = []

    def note(text: str) -> int:
        seen.append(text)
        return md5_hash(text)

    ConsistentHash(2, note)("g", "a", queues_of(1), ["a", "a", "b"])
    assert seen[:6] == ["a-0", "a-1", "a-2", "a-3", "b-0", "b-1"]


def test_of_two_points_in_one_place_the_later_wins() -> None:
    strategy = ConsistentHash(1, lambda text: 7)
    assert strategy("g", "a", queues_of(3), ["a", "b"]) == []
    assert strategy("g", "b", queues_of(3), ["a", "b"]) == queues_of(3)


def test_no_virtual_nodes_give_nothing() -> None:
    assert ConsistentHash(0)("g", "a", queues_of(3), ["a"]) == []


def test_the_ring_is_built_once_for_the_same_members() -> None:
    calls: Counter[bool] = Counter()

    def count(text: str) -> int:
        calls[text.startswith("MessageQueue")] += 1
        return md5_hash(text)

    strategy = ConsistentHash(10, count)
    cids = [f"10.0.0.{number}@{number}#{number}" for number in range(100)]
    queues = queues_of(1000)
    whole = []
    for cid in cids:
        whole += strategy("g", cid, queues, list(cids))
    assert sorted(whole) == queues
    assert calls == {False: 1000, True: 100_000}
    strategy("g", cids[0], queues, cids[1:])
    strategy("g", cids[1], queues, cids[1:])
    assert calls[False] == 1990


def test_every_consumer_has_its_own_ring() -> None:
    assert strategy_of("CONSISTENT_HASH") is not strategy_of("CONSISTENT_HASH")


# ------------------------------------------------------------------------------ configuration


def test_the_configured_queues_whoever_else_is_there() -> None:
    mine = [MessageQueue("T", "b", 3), MessageQueue("T", "gone", 0)]
    other = MessageQueue("U", "b", 0)
    strategy = ByConfiguration(iter([*mine, other]))
    assert strategy("g", "c", queues_of(4, "T", "b"), ["x", "y"]) == mine
    assert strategy("g", "c", queues_of(4, "U", "b"), []) == [other]
    assert strategy("g", "c", queues_of(4, "V", "b"), ["c"]) == []
    assert strategy("g", "c", [], []) == [*mine, other]
    assert ByConfiguration([])("g", "c", queues_of(4), ["c"]) == []


def test_the_retry_topic_is_shared_unless_it_is_configured() -> None:
    retry = [MessageQueue("%RETRY%g", "a", 0), MessageQueue("%RETRY%g", "b", 0)]
    unaware = ByConfiguration(queues_of(2))
    assert [unaware("g", cid, retry, ["c", "d"]) for cid in "cd"] == [[retry[0]], [retry[1]]]
    aware = ByConfiguration([*queues_of(2), retry[1]])
    assert aware("g", "c", retry, ["c", "d"]) == [retry[1]]


# -------------------------------------------------------------------------------------- rooms


@pytest.mark.parametrize(
    ("broker_name", "eligible"),
    [
        ("r@b", True), ("r@b@", True), ("r@b@@", True), ("@b", False), ("r@", False), ("r", False),
        ("r@b@c", False), ("s@b", False), ("r@@b", False), ("@", False),
    ],
)  # fmt: skip
def test_room_in_the_name_of_a_broker(broker_name: str, eligible: bool) -> None:
    queues = queues_of(2, broker=broker_name)
    assert ByMachineRoom("r")("g", "c", queues, ["c"]) == (queues if eligible else [])


@pytest.mark.parametrize("room", ["", None, 3])
def test_a_resolver_that_knows_no_room(room: Any) -> None:
    for strategy in (
        MachineRoomNearby(broker_room=lambda queue: room, consumer_room=lambda cid: "r"),
        MachineRoomNearby(broker_room=lambda queue: "r", consumer_room=lambda cid: room),
    ):
        with pytest.raises(ConfigError, match="not the name of a room"):
            strategy("g", "c", queues_of(1), ["c"])


def test_nearby_over_a_user_strategy() -> None:
    def reverse(
        group: str, cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        return [queue for queue in queues if queue.queue_id % len(cids) == cids.index(cid)]

    strategy = MachineRoomNearby(
        reverse, broker_room=lambda queue: "far", consumer_room=lambda cid: "here"
    )
    assert shares(strategy, queues_of(4), ["c", "d"]) == [[0, 2], [1, 3]]


# --------------------------------------------------------------------------------- own, names


def test_own_callable_sees_copies_and_is_checked() -> None:
    def greedy(
        group: str, cid: str, queues: list[MessageQueue], cids: list[str]
    ) -> set[MessageQueue]:
        cids.clear()
        return {queues.pop(), queues.pop()}

    queues, cids = queues_of(4), ["c"]
    found = strategy_of(greedy)("g", "c", queues, cids)
    assert sorted(found) == queues[2:]
    assert (len(queues), cids) == (4, ["c"])
    assert "greedy" in repr(strategy_of(greedy))


@pytest.mark.parametrize(
    "wrong", [None, "text", 3, [1], ["b:0"], [("T", "b", 0)], queues_of(1, "Another")]
)
def test_what_is_no_allocation_is_an_error(wrong: Any) -> None:
    strategy = strategy_of(lambda *_: wrong)
    with pytest.raises(ConfigError):
        strategy("g", "c", queues_of(4), ["c"])


def test_an_error_of_the_own_callable_comes_through() -> None:
    def broken(*_: object) -> list[MessageQueue]:
        raise KeyError("no such room")

    with pytest.raises(KeyError):
        strategy_of(broken)("g", "c", queues_of(4), ["c"])


def test_strategies_pass_as_they_are() -> None:
    for strategy in (
        strategies.allocate_average,
        ConsistentHash(),
        ByConfiguration([]),
        ByMachineRoom(["r"]),
        strategy_of(lambda *_: []),
    ):
        assert strategy_of(strategy) is strategy
    assert strategy_of("AVG") is strategies.allocate_average
    assert rocketmq_fast.ConsistentHash is ConsistentHash
    assert repr(strategy_of("CONSISTENT_HASH")) == "ConsistentHash(virtual_nodes=10)"


@pytest.mark.parametrize("name", ["CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY"])
def test_names_that_need_arguments_say_so(name: str) -> None:
    with pytest.raises(ConfigError, match="needs arguments"):
        strategy_of(name)


@pytest.mark.parametrize("wrong", ["avg", "", None, 3, ConsistentHash, dict])
def test_what_is_no_strategy(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        strategy_of(wrong)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (ConsistentHash, {"virtual_nodes": -1}),
        (ConsistentHash, {"virtual_nodes": True}),
        (ConsistentHash, {"virtual_nodes": "10"}),
        (ConsistentHash, {"hash_function": 3}),
        (ByConfiguration, {"queues": None}),
        (ByConfiguration, {"queues": "broker-a:0"}),
        (ByConfiguration, {"queues": ["broker-a:0"]}),
        (ByMachineRoom, {"rooms": []}),
        (ByMachineRoom, {"rooms": [None]}),
        (MachineRoomNearby, {"broker_room": None, "consumer_room": str}),
        (MachineRoomNearby, {"broker_room": str, "consumer_room": "r"}),
        (MachineRoomNearby, {"inner": "NO", "broker_room": str, "consumer_room": str}),
    ],
)
def test_arguments_that_can_never_work(kind: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        kind(**arguments)


def test_java_order_of_client_ids() -> None:
    mixed = ["\uffee", "\U0001f600", "b", "a", "B"]
    random.Random(1).shuffle(mixed)
    assert sorted(mixed, key=utf16_order) == ["B", "a", "b", "\U0001f600", "\uffee"]
