"""Stored messages to Arrow columns, beside a copy of the same bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import work
from benchmarks.inputs import BODY_SIZES, LARGE_PULL, PULL
from benchmarks.work import MEMCPY, NATIVE, PYTHON, Work


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON, MEMCPY])
@pytest.mark.parametrize("columns", [None, ("body",)], ids=["all", "body"])
@pytest.mark.parametrize("size", BODY_SIZES)
@pytest.mark.parametrize("count", [PULL, LARGE_PULL])
def test_decode_arrow(
    time_work: Callable[[Work], None],
    count: int,
    size: int,
    columns: tuple[str, ...] | None,
    implementation: str,
) -> None:
    time_work(work.arrow(implementation, size, columns, count=count))
