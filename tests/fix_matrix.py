"""Prints test by broker at the end of the run, for every test that takes the ``broker`` fixture."""

from __future__ import annotations

import pytest

from tests.fix_cluster import BROKERS

_FIXTURE = "broker"
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


def _place(item: pytest.Item) -> tuple[str, str] | None:
    """(test, broker) of an item with the fixture; other parameters belong to the test's name."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or _FIXTURE not in callspec.params:
        return None
    broker = callspec.params[_FIXTURE]
    others = [part for part in callspec.id.split("-") if part != broker]
    name = getattr(item, "originalname", item.name)
    return f"{item.path.stem}::{name}" + (f"[{'-'.join(others)}]" if others else ""), broker


def pytest_configure(config: pytest.Config) -> None:
    """One matrix per run."""
    config.stash[_KEY] = Matrix()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the cells that are to be filled."""
    for item in session.items:
        place = _place(item)
        if place is not None:
            session.config.stash[_KEY].expect(*place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
    """Take each phase's result."""
    report: pytest.TestReport = yield
    place = _place(item)
    if place is not None:
        matrix = item.config.stash[_KEY]
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            matrix.record(*place, "skip", str(reason).removeprefix("Skipped: "))
        elif report.failed:
            matrix.record(*place, "FAIL", f"{report.when} failed, see above")
        elif report.when == "call":
            matrix.record(*place, "pass", "")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    config = terminalreporter.config
    matrix = config.stash[_KEY]
    if matrix.cells and not config.option.collectonly:
        terminalreporter.section("test by broker")
        for line in matrix.lines():
            terminalreporter.write_line(line)
