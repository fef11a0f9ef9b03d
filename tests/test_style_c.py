"""Each C unit alone: compiles without a warning, owns no writable global, exports its own names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.style import ROOT, sources

CSRC = ROOT / "csrc"
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Wvla", "-Werror"]
# nm's letters of initialised, zeroed, common and small data, global and local.
WRITABLE = frozenset("DdBbCcGgSs")


def units(suffix: str) -> list[str]:
    return [path.name for path in sources(CSRC, suffix) if path.parent == CSRC]


def compiler() -> str:
    """A C compiler; the extension under test was built by one, so there is one."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        path = shutil.which(name.split()[0]) if name else None
        if path is not None:
            return path
    pytest.fail("no C compiler found: set CC")


def compile_unit(name: str, output: Path, *flags: str) -> None:
    command = [compiler(), "-std=c11", *WARNINGS, *flags, "-I", str(CSRC)]
    done = subprocess.run(
        [*command, str(CSRC / name), "-o", str(output)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def symbols(unit: Path) -> list[tuple[str, str]]:
    """(letter, name) of each symbol that an object defines."""
    done = subprocess.run(
        ["nm", "--defined-only", str(unit)], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return [(fields[-2], fields[-1]) for fields in lines if len(fields) >= 2]


@pytest.mark.parametrize("name", units(".c"))
def test_unit(name: str, tmp_path: Path) -> None:
    output = tmp_path / "unit.o"
    compile_unit(name, output, "-c", "-O2", "-fPIC", "-fvisibility=hidden")
    found = symbols(output)
    assert found, f"{name} defines nothing"
    writable = [
        symbol
        for letter, symbol in found
        # Tables of addresses are constant data that the loader relocates.
        if letter in WRITABLE and not is_relocated_constant(output, symbol)
    ]
    assert not writable, f"{name} has writable globals: {writable}"
    foreign = [
        symbol
        for letter, symbol in found
        if letter.isupper() and letter != "U" and not re.match(r"rmf_", symbol)
    ]
    assert not foreign, f"{name} exports names without the prefix: {foreign}"


def is_relocated_constant(unit: Path, symbol: str) -> bool:
    """Tell whether a symbol stands in .data.rel.ro, which is read-only once loaded."""
    done = subprocess.run(["objdump", "-t", str(unit)], capture_output=True, text=True, check=True)
    line = next((text for text in done.stdout.splitlines() if text.endswith(f" {symbol}")), "")
    return ".data.rel.ro" in line


@pytest.mark.parametrize("name", units(".h"))
def test_header_stands_alone(name: str, tmp_path: Path) -> None:
    compile_unit(name, tmp_path / "header.o", "-fsyntax-only", "-xc", "-Wno-unused-function")


def test_the_check_sees_a_writable_global(tmp_path: Path) -> None:
    source = tmp_path / "bad.c"
    source.write_text(
        "int rmf_counter;\nstatic int kept = 3;\nint *rmf_get(void);\n"
        "int *rmf_get(void) { kept++; return &kept; }\n",
        encoding="utf-8",
    )
    output = tmp_path / "bad.o"
    subprocess.run([compiler(), "-c", str(source), "-o", str(output)], check=True)
    writable = {symbol for letter, symbol in symbols(output) if letter in WRITABLE}
    assert writable == {"rmf_counter", "kept"}


def test_units_were_found() -> None:
    assert len(units(".c")) == len(list(CSRC.glob("*.c"))) > 0
    assert len(units(".h")) == len(list(CSRC.glob("*.h"))) > 0
