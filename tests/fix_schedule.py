"""Which process of a parallel run gets which file, and when.

A file stays in one process, whose tests share brokers and a Spark session; those are what costs
most. So the files that share more are one unit, not every process starts Apache brokers, and the
longest units begin first: at the end no process waits for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# Files whose tests use the Spark session of fix_spark, and the short locks of fix_cluster.
SPARK, LOCKS = "spark", "locks"
UNITS = {
    "tests/test_benchmarks_spark.py": SPARK,
    "tests/test_examples.py": SPARK,
    "tests/test_spark_kinds.py": SPARK,
    "tests/test_spark_read.py": SPARK,
    "tests/test_spark_stream.py": SPARK,
    "tests/test_spark_trouble.py": SPARK,
    "tests/test_spark_write.py": SPARK,
    "tests/contract/test_mixed_groups.py": LOCKS,
    "tests/contract/test_orderly.py": LOCKS,
}
# What takes longest, most first; other files follow in their own order.
LONGEST = (
    SPARK,
    LOCKS,
    "tests/test_spark_cluster.py",
    "tests/contract/test_slaves.py",
    "tests/test_cli.py",
    "tests/contract/test_transactions.py",
    "tests/test_packaging.py",
    "tests/test_apache_harness.py",
    "tests/contract/test_inbound.py",
    "tests/contract/test_broadcasting.py",
    "tests/contract/test_faults.py",
    "tests/contract/test_bad_messages.py",
    "tests/contract/test_hooks.py",
    "tests/contract/test_security.py",
    "tests/test_benchmarks.py",
    "tests/test_c_units.py",
    "tests/test_spark_brokers.py",
    "tests/test_docs.py",
)
# What says in the ids of tests that they need the shared Apache brokers.
BROKERS = (
    "apache_494",
    "apache_533",
    "4.9.4",
    "5.3.3",
    "tests/test_benchmarks.py",
    "tests/test_embedded_apache.py",
    "tests/test_embedded_with_apache.py",
)
# So many processes start Apache brokers as long as there are other files for the rest.
WITH_BROKERS = 2


def unit_of(nodeid: str) -> str:
    """The unit of a test: its file, or what several files share."""
    path = nodeid.partition("::")[0]
    return UNITS.get(path, path)


def rank(nodeid: str) -> int:
    """Where the unit of a test stands."""
    unit = unit_of(nodeid)
    return LONGEST.index(unit) if unit in LONGEST else len(LONGEST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first where processes share the tests; their collections must be equal."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.nodeid))


def unit_scheduling() -> type[Any]:
    """The scheduler, where pytest-xdist is installed."""
    from xdist.scheduler import LoadFileScheduling

    class UnitScheduling(LoadFileScheduling):
        """Gives a process without Apache brokers what needs none, while others have them."""

        def __init__(self, config: pytest.Config, log: Any) -> None:
            super().__init__(config, log)
            self._with_brokers: set[WorkerController] = set()

        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            spared = len(self._with_brokers - {node}) >= WITH_BROKERS
            unit = next(
                (name for name in self.workqueue if not (spared and self._needs_brokers(name))),
                next(iter(self.workqueue)),
            )
            if self._needs_brokers(unit):
                self._with_brokers.add(node)
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

        def _needs_brokers(self, unit: str) -> bool:
            return any(name in nodeid for nodeid in self.workqueue[unit] for name in BROKERS)

    return UnitScheduling


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute units instead of files."""
    if config.getoption("dist") != "loadfile":
        return None
    return unit_scheduling()(config, log)
