"""Prints test by broker at the end of the run, for every test with a broker in its id."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

import pytest

from tests.fix_cluster import BROKERS

_TITLES = {"embedded": "embedded", "apache_494": "4.9.4", "apache_533": "5.3.3"}


class Matrix:
    """Collects one result per test and broker."""

    def __init__(self) -> None:
        self.cells: dict[str, dict[str, str]] = {}
        self.reasons: dict[tuple[str, str], str] = {}

    def expect(self, test: str, broker: str) -> None:
        """A test that will run: until it does its cell says that it did not."""
        self.cells.setdefault(test, {})[broker] = "not run"
        self.reasons[test, broker] = "the run ended before it"

    def record(self, test: str, broker: str, result: str, reason: str) -> None:
        """Keep a result; a failed phase is not covered by a later good one."""
        row = self.cells.setdefault(test, {})
        if row.get(broker) != "FAIL":
            row[broker] = result
            self.reasons[test, broker] = reason

    def lines(self) -> list[str]:
        """The table, then the reason of every cell that is not a pass."""
        width = max(len(test) for test in self.cells)
        head = "  ".join(f"{_TITLES[name]:>8}" for name in BROKERS)
        table = [f"{'test':<{width}}  {head}"]
        notes: list[str] = []
        for test in sorted(self.cells):
            row = []
            for name in BROKERS:
                cell = self.cells[test].get(name)
                reason = self.reasons.get((test, name), "not selected in this run")
                if cell != "pass":
                    note = f"{cell or 'empty'}: {reason}"
                    if note not in notes:
                        notes.append(note)
                    cell = f"{cell or ''}[{notes.index(note) + 1}]"
                row.append(f"{cell:>8}")
            table.append(f"{test:<{width}}  {'  '.join(row)}")
        return [*table, *(f"[{number}] {note}" for number, note in enumerate(notes, 1))]


_KEY = pytest.StashKey[Matrix]()


def _place(nodeid: str) -> tuple[str, str] | None:
    """(test, broker) of a test with a broker in its id; the rest of that belongs to its name.

    Of a test nothing but its id is known to the controller of several workers.
    """
    path, _, test = nodeid.partition("::")
    name, _, ids = test.partition("[")
    parts = ids.removesuffix("]").split("-")
    broker = next((part for part in parts if part in BROKERS), None)
    if broker is None:
        return None
    others = "-".join(part for part in parts if part != broker)
    return f"{PurePosixPath(path).stem}::{name}" + (f"[{others}]" if others else ""), broker


def pytest_configure(config: pytest.Config) -> None:
    """One matrix per run: of the controller where there are workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config.stash.setdefault(_KEY, Matrix())))


class _Collector:
    """Fills the matrix from what pytest, or its workers, report."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    def _expect(self, nodeids: Iterable[str]) -> None:
        for nodeid in nodeids:
            place = _place(nodeid)
            if place is not None:
                self._matrix.expect(*place)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the cells that are to be filled."""
        self._expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """As ``pytest_collection_finish``, where workers collect."""
        self._expect(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take each phase's result."""
        place = _place(report.nodeid)
        if place is None:
            return
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            self._matrix.record(*place, "skip", str(reason).removeprefix("Skipped: "))
        elif report.failed:
            self._matrix.record(*place, "FAIL", f"{report.when} failed, see above")
        elif report.when == "call":
            self._matrix.record(*place, "pass", "")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    config = terminalreporter.config
    matrix = config.stash[_KEY]
    if matrix.cells and not config.option.collectonly:
        terminalreporter.section("test by broker")
        for line in matrix.lines():
            terminalreporter.write_line(line)
