"""Stored messages of one pull: known, as view objects, and read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import work
from benchmarks.inputs import BODY_SIZES
from benchmarks.work import NATIVE, PYTHON, Work


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON])
@pytest.mark.parametrize("crc", [False, True], ids=["plain", "crc"])
@pytest.mark.parametrize("variant", ["index", "views", "read"])
@pytest.mark.parametrize("size", BODY_SIZES)
def test_decode(
    time_work: Callable[[Work], None], size: int, variant: str, crc: bool, implementation: str
) -> None:
    time_work(work.decode(implementation, size, variant, crc=crc))
