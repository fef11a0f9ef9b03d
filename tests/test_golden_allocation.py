"""Recorded allocations of the strategies that are built here, for every member of a group."""

from __future__ import annotations

import pytest

from rocketmq_fast.consumer.strategies import STRATEGIES, strategy_of
from rocketmq_fast.model import MessageQueue
from tests import golden_data

ROWS = golden_data.rows("allocation_v4_9_4")


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_recorded_allocations_are_reproduced(name: str) -> None:
    rows = [row for row in ROWS if row["strategy"] == name]
    assert rows, f"no recorded allocation of {name}"
    for row in rows:
        queues = [MessageQueue("TopicA", broker, number) for broker, number in row["queues"]]
        given = []
        for client in row["clients"]:
            found = strategy_of(name)("group", client, queues, row["clients"])
            assert [[queue.broker_name, queue.queue_id] for queue in found] == row["result"].get(
                client, []
            ), (client, row)
            given += found
        assert len(set(given)) == len(given) > 0


def test_the_average_strategies_are_among_those_built() -> None:
    assert {"AVG", "AVG_BY_CIRCLE"} <= STRATEGIES.keys()
    assert STRATEGIES.keys() <= {row["strategy"] for row in ROWS}
