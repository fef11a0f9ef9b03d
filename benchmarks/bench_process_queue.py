"""The process queue: put and remove in batches of 32, with few and with many messages held."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import work
from benchmarks.work import NATIVE, PYTHON, Work

HELD = (1_000, 100_000, 1_000_000)


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON])
@pytest.mark.parametrize("held", HELD)
def test_put_and_remove(
    time_work: Callable[[Work], None], timing: bool, held: int, implementation: str
) -> None:
    scale = 1 if timing else 100
    time_work(work.process_queue(implementation, held // scale, batches=4096 // scale))
