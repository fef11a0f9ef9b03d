"""Each compiled module has a stub that names what is there at run time, and says what it does."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.style import CORE, ROOT, sources, tree_of

# What Cython adds to each module and class; no user calls these.
CYTHON_OWN = (
    r".*\.__reduce_cython__",
    r".*\.__setstate_cython__",
    r".*\.__test__",
    r".*\.__pyx_capi__",
    r".*\.__pyx_vtable__",
    r".*\.__reduce__",
)
# Compiled classes show no signature of __init__ (they have __cinit__), and __buffer__ is a method
# only from Python 3.12 on; the stub is right about both.
NOT_VISIBLE = (r".*\.__init__", r".*\.__buffer__", r".*\.__release_buffer__")


def compiled() -> list[str]:
    return [path.stem for path in sources(CORE, ".pyx")]


def stub_of(name: str) -> Path:
    return CORE / f"{name}.pyi"


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"rocketmq_fast._core.{name}")


def aliases(name: str) -> set[str]:
    """The type aliases of a stub: they exist for the checker only."""
    return {
        node.target.id
        for node in tree_of(stub_of(name)).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and "TypeAlias" in ast.unparse(node.annotation)
    }


def is_for_the_checker(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """Tell whether a definition describes a shape and no object."""
    decorators = {ast.unparse(one).split(".")[-1] for one in node.decorator_list}
    bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    return "type_check_only" in decorators or any(
        "Protocol" in base or "TypedDict" in base for base in bases
    )


def stub_names(name: str) -> set[str]:
    """The public names that a stub says are there at run time."""
    names: set[str] = set()
    for node in tree_of(stub_of(name)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not is_for_the_checker(node):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {one for one in names - aliases(name) if not one.startswith("_")}


def imported_names(name: str) -> set[str]:
    """What a .pyx imports, by the name it gets there."""
    text = (CORE / f"{name}.pyx").read_text(encoding="utf-8")
    text = re.sub(r"\\\n", " ", text)
    found: set[str] = set()
    for group in re.findall(r"^\s*from\s+[\w.]+\s+import\s+(\([^)]*\)|.*)$", text, re.MULTILINE):
        found |= {one.split(" as ")[-1].strip() for one in group.strip("()").split(",")}
    return found


def runtime_names(name: str) -> set[str]:
    """The public names of a module that are its own."""
    module = module_of(name)
    return {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and not isinstance(value, ModuleType)
        and key not in imported_names(name)
    }


def test_the_core_was_found() -> None:
    assert compiled() == sorted(path.stem for path in CORE.glob("*.pyx"))
    assert compiled()


@pytest.mark.parametrize("name", compiled())
def test_stub_names_what_is_there(name: str) -> None:
    assert stub_of(name).is_file(), f"{name}.pyx has no stub"
    assert stub_names(name) == runtime_names(name)


@pytest.mark.parametrize("name", compiled())
def test_module_is_the_one_of_this_tree(name: str) -> None:
    origin = Path(module_of(name).__file__ or "")
    assert origin.resolve().parent == CORE.resolve()
    assert origin.suffix in (".so", ".pyd")


@pytest.mark.slow
def test_signatures_agree(tmp_path: Path) -> None:
    """Compare the arguments and kinds of each function and method, by mypy's own stub test."""
    allowed = tmp_path / "allowed.txt"
    unseen = [f"rocketmq_fast._core.{name}.{one}" for name in compiled() for one in aliases(name)]
    allowed.write_text("\n".join([*CYTHON_OWN, *NOT_VISIBLE, *unseen]), encoding="utf-8")
    modules = [f"rocketmq_fast._core.{name}" for name in compiled()]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy.stubtest",
            *modules,
            "--concise",
            "--allowlist",
            str(allowed),
            "--ignore-unused-allowlist",
            "--ignore-disjoint-bases",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def described(value: object) -> bool:
    """Tell whether a docstring says more than the signature that Cython puts first."""
    text = inspect.getdoc(value) or ""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and re.match(r"[\w.]+\(.*\)(\s*->.*)?$", lines[0]):
        lines.pop(0)
    return bool(lines)


@pytest.mark.parametrize("name", compiled())
def test_public_names_are_described(name: str) -> None:
    module = module_of(name)
    silent = [] if described(module) else [name]
    for key in sorted(stub_names(name)):
        value = getattr(module, key)
        if not callable(value):
            continue
        if not described(value):
            silent.append(key)
        if inspect.isclass(value):
            silent += [
                f"{key}.{member}"
                for member, method in vars(value).items()
                if not member.startswith("_") and callable(method) and not described(method)
            ]
    assert not silent, f"without a docstring: {silent}"
