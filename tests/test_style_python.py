"""ruff and mypy --strict pass, and they looked at every file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rocketmq_fast
from tests.style import PACKAGE, ROOT, sources


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_ruff() -> None:
    done = run("ruff", "check", "--output-format", "concise", "--no-cache", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_looked_at_every_file() -> None:
    shown = run("ruff", "check", "--show-files", ".")
    assert shown.returncode == 0, shown.stderr
    seen = {Path(line).resolve() for line in shown.stdout.splitlines()}
    missed = [path for path in sources(ROOT, ".py", ".pyi") if path not in seen]
    assert not missed
    assert seen


@pytest.mark.slow
def test_mypy_strict() -> None:
    done = run("mypy")
    assert done.returncode == 0, done.stdout + done.stderr
    match = re.search(r"no issues found in (\d+) source files", done.stdout)
    assert match, done.stdout
    stubs = sources(PACKAGE, ".pyi")
    modules = [path for path in sources(PACKAGE, ".py") if path.with_suffix(".pyi") not in stubs]
    assert int(match[1]) >= len(modules) + len(stubs), done.stdout


@pytest.mark.slow
def test_type_checkers_know_the_public_names(tmp_path: Path) -> None:
    """As attributes and by a star, also where only what is said to be public counts as that."""
    program = tmp_path / "user.py"
    program.write_text(
        "import rocketmq_fast as rmq\n"
        + "".join(f"rmq.{name}\n" for name in rocketmq_fast.__all__)
        + "reveal_type(rmq.PushConsumer.subscribe)\n"
    )
    starred = tmp_path / "starred.py"
    starred.write_text(
        "from rocketmq_fast import *\n"
        + "".join(f"{name}\n" for name in rocketmq_fast.__all__ if name != "__version__")
        + "reveal_type(PushConsumer.subscribe)\n"
    )
    done = run("mypy", "--strict", str(program), str(starred))
    told = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(told) == 2, done.stdout
    assert all("def (self: rocketmq_fast.consumer.push.PushConsumer" in line for line in told)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_opts_out_of_types() -> None:
    wrong = [
        path.relative_to(ROOT).as_posix()
        for path in sources(PACKAGE, ".py", ".pyi")
        if re.search(r"#\s*(?:mypy:|type:\s*ignore(?!\[))", path.read_text(encoding="utf-8"))
    ]
    assert not wrong, f"a type: ignore names its code, and no file leaves strict: {wrong}"
