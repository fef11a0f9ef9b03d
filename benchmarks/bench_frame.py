"""Remoting frames: split and decode pull answers, encode pull requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import work
from benchmarks.inputs import BODY_SIZES
from benchmarks.work import NATIVE, PYTHON, Work


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON])
@pytest.mark.parametrize("size", BODY_SIZES)
def test_decode(time_work: Callable[[Work], None], size: int, implementation: str) -> None:
    time_work(work.frame_decode(implementation, size))


@pytest.mark.parametrize("implementation", [NATIVE, PYTHON])
@pytest.mark.parametrize("serialize_type", [0, 1], ids=["JSON", "ROCKETMQ"])
def test_encode(
    time_work: Callable[[Work], None], serialize_type: int, implementation: str
) -> None:
    time_work(work.frame_encode(implementation, serialize_type))
