"""Fixtures of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.work import Work


@pytest.fixture
def timing(request: pytest.FixtureRequest) -> bool:
    """Whether times are taken; without, each piece of work runs once, and large ones small."""
    return not request.config.getoption("--benchmark-disable") or bool(
        request.config.getoption("--benchmark-enable")
    )


@pytest.fixture
def time_work(benchmark: BenchmarkFixture) -> Callable[[Work], None]:
    """Check the answer, then time the work; groups compare the implementations."""

    def run(work: Work) -> None:
        benchmark.group = f"{work.path} {work.size or ''}".strip()
        benchmark.extra_info.update({"unit": work.unit, "units": work.units})
        if work.repeatable:
            benchmark(work.prepare())
            return

        def fresh() -> tuple[tuple[object, ...], dict[str, object]]:
            return (work.prepare(),), {}

        pedantic: Callable[..., object] = benchmark.pedantic
        pedantic(lambda step: step(), setup=fresh, rounds=10)

    return run
