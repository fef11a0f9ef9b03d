"""A short round of trouble for each mode; `python -m tests.reliability` runs many and longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability.plan import CONCURRENT, ORDERLY, Plan
from tests.reliability.run import Round

SECONDS = 4.0


@pytest.mark.parametrize(("seed", "mode"), [(2, CONCURRENT), (3, ORDERLY)])
def test_nothing_is_lost_in_trouble(seed: int, mode: str, tmp_path: Path) -> None:
    plan = Plan.of(seed, SECONDS)
    assert plan.mode == mode
    report = Round(plan, tmp_path).run()
    assert not report.violations, f"{report}\n" + "\n".join(map(str, plan.steps))
    assert report.strikes
    assert report.sent


def test_a_seed_gives_one_plan() -> None:
    assert Plan.of(7, 10.0) == Plan.of(7, 10.0)
    assert Plan.of(7, 10.0) != Plan.of(9, 10.0)
