"""The exact tag filter over the messages of one pull."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import work
from benchmarks.inputs import BODY_SIZES
from benchmarks.work import NATIVE, PYTHON, Work


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON])
@pytest.mark.parametrize("size", BODY_SIZES)
def test_filter(time_work: Callable[[Work], None], size: int, implementation: str) -> None:
    time_work(work.tag_filter(implementation, size))
