"""What every test shares: the header and the fixture plug-ins beside this file.

A fixture plug-in is a module tests/fix_<concern>.py; it is loaded by being there.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import runpy
import shutil
import signal
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

# A job that a shell starts in the background ignores SIGINT, and so does all that it starts; the
# programs under test are told to end by it.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [f"tests.{path.stem}" for path in sorted(TESTS.glob("fix_*.py"))]


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _java() -> str:
    path = shutil.which("java")
    if path is None:
        return "absent"
    # The version goes to standard error: java -version prints it there.
    answer = subprocess.run(
        [path, "-version"], capture_output=True, text=True, check=False, timeout=60
    )
    first = (answer.stderr or answer.stdout).splitlines()
    return first[0].replace('"', "") if answer.returncode == 0 and first else "does not run"


def _under_test() -> list[str]:
    version = runpy.run_path(str(TESTS.parent / "rocketmq_fast" / "_version.py"))["__version__"]
    lines = [f"rocketmq-fast {version} from {TESTS.parent / 'rocketmq_fast'}"]
    core = TESTS.parent / "rocketmq_fast" / "_core"
    names = [path.stem for path in sorted(core.glob("*.pyx"))]
    for name in names:
        # Found without importing the package, which fails where nothing is built yet.
        spec = PathFinder.find_spec(name, [str(core)])
        origin = spec.origin if spec is not None else None
        built = Path(origin).name if origin is not None else "NOT BUILT (make build)"
        lines.append(f"extension {name}: {built}")
    return lines


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Print what is under test, and on what."""
    libraries = ", ".join(
        f"{name} {_version_of(name)}" for name in ("numpy", "lz4", "zstandard", "pyarrow")
    )
    required = os.environ.get("ROCKETMQ_FAST_REQUIRE", "") or "nothing"
    return [
        *_under_test(),
        libraries,
        f"spark: pyspark {_version_of('pyspark')}; java: {_java()}",
        f"required (a missing one fails instead of skipping): {required}",
        f"machine: {platform.machine()}, {os.cpu_count()} cpus, {sys.implementation.cache_tag}",
        f"fixture plug-ins: {', '.join(name.split('.')[-1] for name in pytest_plugins) or 'none'}",
    ]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return TESTS.parent


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder with the vectors that the Java code wrote."""
    return TESTS / "golden"
