"""setup.py rebuilds what changed and nothing else, on a tree of one unit and one extension."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.style import ROOT

HEADER = "#define RMF_STEP 1\nint rmf_unit_next(int value);\n"
UNIT = '#include "rmf_unit.h"\nint rmf_unit_next(int value) { return value + RMF_STEP; }\n'
PXD = 'cdef extern from "rmf_unit.h":\n    int rmf_unit_next(int value) noexcept nogil\n'
PYX = '''"""One function."""
from rocketmq_fast._core.c_unit cimport rmf_unit_next
def next_of(int value):
    return rmf_unit_next(value)
def at(list values, Py_ssize_t index):
    return values[index]
'''


class Tree:
    """A small tree with our setup.py."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("setup.py", "pyproject.toml", "LICENSE"):
            shutil.copy2(ROOT / name, root)
        core = root / "rocketmq_fast" / "_core"
        core.mkdir(parents=True)
        shutil.copy2(ROOT / "rocketmq_fast" / "_version.py", core.parent)
        for folder in (core, core.parent):
            (folder / "__init__.py").write_text("", encoding="utf-8")
        self.write("README.md", "A tree of one unit.\n")
        self.write("csrc/rmf_unit.h", HEADER)
        self.write("csrc/rmf_unit.c", UNIT)
        self.write("rocketmq_fast/_core/c_unit.pxd", PXD)
        self.write("rocketmq_fast/_core/unit.pyx", PYX)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def change(self, name: str, old: str, new: str) -> None:
        """Edit a file and make sure that its time is seen as newer than what was built."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        latest = max(one.stat().st_mtime for one in self.root.rglob("*") if one.is_file())
        os.utime(path, (latest + 1, latest + 1))

    def build(self, **variables: str) -> float:
        """Build in place; the time stamp of the extension."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ROCKETMQ_FAST_")}
        done = subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=self.root,
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        (extension,) = self.root.glob("rocketmq_fast/_core/unit.*.so")
        return extension.stat().st_mtime

    def call(self, expression: str) -> str:
        code = f"from rocketmq_fast._core.unit import *\nprint({expression})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A small tree, not yet built."""
    return Tree(tmp_path)


@pytest.mark.slow
def test_a_change_of_c_is_built_in(tree: Tree) -> None:
    first = tree.build()
    assert tree.call("next_of(1)") == "2"
    assert tree.build() == first, "nothing changed, yet it was built again"
    assert not list(tree.root.glob("rocketmq_fast/**/*.c")), "generated C lies beside the sources"
    tree.change("csrc/rmf_unit.c", "value + RMF_STEP", "value + 10 * RMF_STEP")
    tree.build()
    assert tree.call("next_of(1)") == "11"
    tree.change("csrc/rmf_unit.h", "RMF_STEP 1", "RMF_STEP 2")
    tree.build()
    assert tree.call("next_of(1)") == "21"


@pytest.mark.slow
def test_the_debug_build_checks_and_leaves_again(tree: Tree) -> None:
    tree.build(ROCKETMQ_FAST_DEBUG="1")
    assert tree.call("at([1], 3)").startswith("IndexError")
    tree.build()
    assert tree.call("next_of(1)") == "2"
    (extension,) = tree.root.glob("rocketmq_fast/_core/unit.*.so")
    assert b".debug_info" not in extension.read_bytes()
