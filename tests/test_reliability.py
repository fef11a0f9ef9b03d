"""Short rounds of trouble; `python -m tests.reliability` runs many and longer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.reliability.grounds import EmbeddedGround
from tests.reliability.plan import CONCURRENT, ORDERLY, Plan
from tests.reliability.run import Report, Round
from tests.style import ROOT

SECONDS = 4.0


def played(plan: Plan, folder: Path) -> Report:
    """The round on an embedded cluster, with nothing wrong."""
    ground = EmbeddedGround(folder / "store", plan.seed)
    try:
        report = Round(plan, ground, folder).run()
    finally:
        ground.close()
    assert not report.violations, f"{report}\n" + "\n".join(map(str, plan.steps))
    assert report.sent
    return report


@pytest.mark.parametrize(("seed", "mode"), [(2, CONCURRENT), (9, ORDERLY)])
def test_nothing_is_lost_in_trouble(seed: int, mode: str, tmp_path: Path) -> None:
    plan = Plan.of(seed, SECONDS)
    assert plan.mode == mode
    assert played(plan, tmp_path).strikes


@pytest.mark.parametrize("seed", [6, 17])
def test_nothing_is_lost_when_members_are_killed_and_stopped(seed: int, tmp_path: Path) -> None:
    report = played(Plan.of(seed, SECONDS, processes=True, storm=True), tmp_path)
    assert report.killed
    assert report.paused


def test_a_seed_gives_one_plan() -> None:
    assert Plan.of(7, 10.0) == Plan.of(7, 10.0)
    assert Plan.of(7, 10.0) != Plan.of(9, 10.0)


def test_the_page_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (I?\d+) \|", text, re.M) == [
        *(f"I{number}" for number in range(1, 16)),
        *(str(number) for number in range(1, 46)),
    ]
    named = re.findall(r"`((?:contract/)?test_\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 60
    for file, function in named:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert not function or f"\ndef {function}(" in source, f"{file}::{function}"


def test_the_page_counts_the_planted_bugs() -> None:
    planted = 0
    for path in ROOT.glob("tests/test_planted_*.py"):
        source = path.read_text(encoding="utf-8")
        planted += len(re.findall(r"^def \w+\(patch: pytest\.MonkeyPatch\)", source, re.M))
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert f"{planted} mistakes" in text
