"""The units of a parallel run, by fix_schedule."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest

from tests import fix_schedule
from tests.fix_schedule import unit_scheduling


def test_every_file_it_names_is_there(repository: Path) -> None:
    named = {*fix_schedule.LONGEST, *fix_schedule.UNITS} - {*fix_schedule.UNITS.values()}
    assert not [name for name in sorted(named) if not (repository / name).is_file()]


@pytest.mark.parametrize(
    ("fixture", "unit"), [("spark", fix_schedule.SPARK), ("short_locks", fix_schedule.LOCKS)]
)
def test_what_costs_most_is_started_once(
    request: pytest.FixtureRequest, fixture: str, unit: str
) -> None:
    users = {
        fix_schedule.unit_of(item.nodeid)
        for item in request.session.items
        if fixture in getattr(item, "fixturenames", ())
    }
    assert users <= {unit}


def test_ids_tell_who_needs_the_shared_brokers(request: pytest.FixtureRequest) -> None:
    users = {
        item.nodeid.partition("::")[0]
        for item in request.session.items
        if {"apache_494", "apache_533"}.intersection(getattr(item, "fixturenames", ()))
    }
    known = {
        item.nodeid.partition("::")[0]
        for item in request.session.items
        if any(name in item.nodeid for name in fix_schedule.BROKERS)
    }
    assert users <= known


class Node:
    """A process that is told what to run."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices


def test_a_third_process_starts_brokers_when_nothing_else_is_left() -> None:
    ids = [f"tests/{unit}.py::test[{what}]" for unit, what in (
        ("a", "apache_494"), ("b", "4.9.4-x"), ("c", "apache_533"), ("d", "embedded"), ("e", "1"),
        ("test_spark_read", "2"), ("test_spark_write", "apache_494"),
    )]  # fmt: skip
    scheduling = unit_scheduling()
    scheduler = scheduling.__new__(scheduling)
    scheduler.workqueue, scheduler.assigned_work = OrderedDict(), {}
    for nodeid in ids:
        unit = scheduler.workqueue.setdefault(scheduler._split_scope(nodeid), {})
        unit[nodeid] = False
    first, second, third = nodes = [Node() for _ in range(3)]
    scheduler._with_brokers = set()
    scheduler.registered_collections = dict.fromkeys(nodes, ids)
    for node in (*nodes, third, first, third):
        scheduler._assign_work_unit(node)
    assert not scheduler.workqueue
    assert (first.told, second.told, third.told) == ([0, 2], [1], [3, 4, 5, 6])
