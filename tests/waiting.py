"""Bounded waits: what a test expects happens at some time, or the test says what did not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
# Nothing waits so long where all is well: a busy machine is no failure.
DEFAULT_SECONDS = 60.0


def wait_for(
    check: Callable[[], _T], what: str | Callable[[], object], seconds: float = DEFAULT_SECONDS
) -> _T:
    """Return the first true value of ``check``; fail with ``what`` when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds:.0f} s in vain for {text}")
        time.sleep(0.01)
    return value
