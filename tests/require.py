"""What a test needs from the machine: skip with a printed reason, or fail where it is demanded.

``ROCKETMQ_FAST_REQUIRE`` is a comma separated list of names (``apache,spark,java``). A name in
that list must be there: its absence fails the test instead of skipping it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from typing import NoReturn

import pytest

from rocketmq_fast._core.frame import NATIVE_SOCKETS

REQUIRE_VARIABLE = "ROCKETMQ_FAST_REQUIRE"


def _missing_commands(*names: str) -> str | None:
    missing = [name for name in names if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} on PATH" if missing else None


def _java() -> str | None:
    return _missing_commands("java", "javac", "mvn")


def _spark() -> str | None:
    without = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if without:
        return f"not installed: {', '.join(without)}"
    return _missing_commands("java")


def _testcapi() -> str | None:
    found = importlib.util.find_spec("_testcapi") is not None
    return None if found else "this interpreter was installed without the modules of its own tests"


def _native_sockets() -> str | None:
    return None if NATIVE_SOCKETS else "sockets of this platform are read by Python"


_PROBES: dict[str, Callable[[], str | None]] = {
    "apache": _java,
    "java": _java,
    "native_sockets": _native_sockets,
    "spark": _spark,
    "testcapi": _testcapi,
}


def required_names() -> frozenset[str]:
    """The names that the environment demands; an unknown one is an error, not a no-op."""
    listed = os.environ.get(REQUIRE_VARIABLE, "").split(",")
    names = frozenset(name.strip() for name in listed if name.strip())
    unknown = names - _PROBES.keys()
    if unknown:
        pytest.fail(f"{REQUIRE_VARIABLE} names {sorted(unknown)}; known: {sorted(_PROBES)}")
    return names


def missing(name: str, reason: str) -> NoReturn:
    """``name`` is not there because of ``reason``: skip, or fail where it is required."""
    if name not in _PROBES:
        pytest.fail(f"{name!r} is no requirement; known: {sorted(_PROBES)}")
    if name in required_names():
        pytest.fail(f"required {name}: {reason}", pytrace=False)
    pytest.skip(f"needs {name}: {reason}", allow_module_level=True)


def require(name: str, reason: str | None = None) -> None:
    """Return when ``name`` is here, else skip or fail.

    Without a reason the machine is probed; with one the caller already knows what is missing.
    """
    if reason is None:
        if name not in _PROBES:
            pytest.fail(f"{name!r} is no requirement; known: {sorted(_PROBES)}")
        reason = _PROBES[name]()
    if reason is not None:
        missing(name, reason)
