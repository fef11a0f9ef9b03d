"""Recorded allocations of every strategy, for every member of a group."""

from __future__ import annotations

import pytest

from rocketmq_fast.consumer.strategies import (
    STRATEGIES,
    AllocateStrategy,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    strategy_of,
)
from rocketmq_fast.model import MessageQueue
from tests import golden_data

ROWS = golden_data.rows("allocation_v4_9_4")

RECORDED: dict[str, AllocateStrategy] = {
    "AVG": strategy_of("AVG"),
    "AVG_BY_CIRCLE": strategy_of("AVG_BY_CIRCLE"),
    "CONSISTENT_HASH": strategy_of("CONSISTENT_HASH"),
    "CONSISTENT_HASH_50": ConsistentHash(50),
    "MACHINE_ROOM": ByMachineRoom(["idc0", "idc1"]),
    "MACHINE_ROOM_NEARBY_AVG": MachineRoomNearby(
        "AVG",
        broker_room=lambda queue: queue.broker_name.partition("@")[0],
        consumer_room=lambda cid: cid.partition("-")[0],
    ),
}


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_recorded_allocations_are_reproduced(name: str) -> None:
    rows = [row for row in ROWS if row["strategy"] == name]
    assert rows, f"no recorded allocation of {name}"
    for row in rows:
        queues = [MessageQueue("TopicA", broker, number) for broker, number in row["queues"]]
        given = []
        for client in row["clients"]:
            found = RECORDED[name]("group", client, queues, row["clients"])
            assert [[queue.broker_name, queue.queue_id] for queue in found] == row["result"].get(
                client, []
            ), (client, row)
            given += found
        assert len(set(given)) == len(given) > 0


def test_every_recorded_strategy_is_compared() -> None:
    assert {row["strategy"] for row in ROWS} == RECORDED.keys()
    assert STRATEGIES.keys() <= RECORDED.keys()
