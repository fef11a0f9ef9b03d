"""What the style tests share: the tracked files, and reading source without importing it."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rocketmq_fast"
CORE = PACKAGE / "_core"


@cache
def tracked() -> tuple[Path, ...]:
    """The files that a commit would hold: tracked ones and new ones that are not ignored.

    An unpacked source archive has no repository; then every file counts that is not a build's.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        names = [name for name in done.stdout.decode().split("\0") if name]
    else:
        skipped = {".venv", "build", "wheelhouse", "__pycache__"}
        names = [
            path.relative_to(ROOT).as_posix()
            for path in ROOT.rglob("*")
            if path.is_file() and not skipped.intersection(path.relative_to(ROOT).parts)
        ]
    return tuple(sorted(ROOT / name for name in set(names) if (ROOT / name).is_file()))


def sources(folder: Path, *suffixes: str) -> list[Path]:
    """The tracked files below a folder with one of the suffixes."""
    return [path for path in tracked() if path.is_relative_to(folder) and path.suffix in suffixes]


def module_name(path: Path) -> str:
    """rocketmq_fast/client/route.py -> rocketmq_fast.client.route."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a Python file or stub."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@dataclass(frozen=True, slots=True)
class Import:
    """One import: who, what, where, and whether only a type checker sees it."""

    importer: str
    imported: str
    line: int
    typing_only: bool


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports_of(path: Path) -> list[Import]:
    """Every import of a file, also those inside functions, by absolute name.

    `from package import name` counts as package.name: whether that is a module or a value, the
    layer is the same.
    """
    name = module_name(path)
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    found: list[Import] = []

    def visit(node: ast.AST, typing_only: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(name, alias.name, node.lineno, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                start = parts[: len(parts) - node.level + 1]
                base = ".".join([*start, base] if base else start)
            found.extend(
                Import(name, f"{base}.{alias.name}", node.lineno, typing_only)
                for alias in node.names
            )
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            for child in node.body:
                visit(child, True)
            for child in node.orelse:
                visit(child, typing_only)
            return
        for child in ast.iter_child_nodes(node):
            visit(child, typing_only)

    visit(tree_of(path), False)
    return found
