"""What may stand in the tree: no binaries, no code from data, no unexplained skip."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.style import PACKAGE, ROOT, module_name, sources, tracked, tree_of

# Bytes that are test input, and pictures of measurements.
BINARY_FOLDERS = (ROOT / "tests" / "golden",)
BINARY_PARTS = frozenset({"corpus"})
PICTURES = frozenset({".png", ".svg"})
BUILT = frozenset(
    ".whl .jar .class .so .pyd .dll .dylib .o .obj .a .lib .exe .zip .gz .tgz .parquet .pyc".split()
)
LARGEST_BYTES = 400_000
CODE_FROM_DATA = frozenset(
    {"pickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "jsonpickle"}
)
STARTS_COMMANDS = frozenset({"subprocess", "pty", "commands"})
CALLS = frozenset({"eval", "exec", "compile", "__import__"})
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def may_be_binary(path: Path) -> bool:
    relative = path.relative_to(ROOT)
    return any(path.is_relative_to(folder) for folder in BINARY_FOLDERS) or bool(
        BINARY_PARTS.intersection(relative.parts)
    )


def test_nothing_built_is_committed() -> None:
    assert len(tracked()) > 50
    built = [
        path.relative_to(ROOT).as_posix()
        for path in tracked()
        if path.suffix in BUILT and not may_be_binary(path)
    ]
    generated = [
        path.relative_to(ROOT).as_posix() for path in sources(PACKAGE, ".c", ".cpp", ".html")
    ]
    assert not built + generated


def test_files_are_text_and_small() -> None:
    wrong = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        content = path.read_bytes()
        if len(content) > LARGEST_BYTES:
            wrong.append(f"{name} has {len(content)} bytes")
        if may_be_binary(path) or path.suffix in PICTURES:
            continue
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            wrong.append(f"{name}: {error}")
        if b"\0" in content or b"\r\n" in content:
            wrong.append(f"{name} holds a NUL byte or a Windows line end")
    assert not wrong, "\n".join(wrong)


def forbidden(tree: ast.Module) -> list[tuple[int, str]]:
    """What runs data as code, starts a command, or leaves a method unwritten."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        found += [
            (node.lineno, name)
            for name in names  # type: ignore[attr-defined]
            if name.split(".")[0] in CODE_FROM_DATA | STARTS_COMMANDS
        ]
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in CALLS:
                found.append((node.lineno, function.id))
            if (
                isinstance(function, ast.Attribute)
                and isinstance(function.value, ast.Name)
                and (function.value.id, function.attr) in {("os", "system"), ("os", "popen")}
            ):
                found.append((node.lineno, f"os.{function.attr}"))
        if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
            found.append((node.lineno, "NotImplementedError"))
    return found


def test_no_code_from_data() -> None:
    files = sources(PACKAGE, ".py")
    assert files
    wrong = [
        f"{module_name(path)}:{line}: {what}"
        for path in files
        for line, what in forbidden(tree_of(path))
    ]
    for path in sources(PACKAGE, ".pyx"):
        text = path.read_text(encoding="utf-8")
        names = "|".join(sorted(CODE_FROM_DATA | STARTS_COMMANDS))
        hits = re.findall(rf"^\s*(?:from|import)\s+({names})\b", text, re.MULTILINE)
        hits += re.findall(r"(?<![\w.])(eval|exec|__import__)\(", text)
        wrong += [f"{path.name}: {hit}" for hit in hits]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import pickle", "pickle"),
        ("from yaml import load", "yaml"),
        ("def f(x):\n    return eval(x)", "eval"),
        ("import os\nos.system('ls')", "os.system"),
        ("def f():\n    import subprocess", "subprocess"),
        ("def f():\n    raise NotImplementedError", "NotImplementedError"),
    ],
)
def test_the_check_sees_code_from_data(text: str, what: str) -> None:
    assert [hit for _, hit in forbidden(ast.parse(text))] == [what]


def test_nothing_is_left_for_later() -> None:
    wrong = []
    for path in tracked():
        is_code = path.suffix in {".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".java", ".sh"}
        if not is_code or path == Path(__file__).resolve():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if UNFINISHED.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


# A test of the fuzz driver that is used without clang: nothing is missing where it is skipped.
SKIPS_WITH_REASON = frozenset({"test_c_units.py"})


def skips(tree: ast.Module) -> list[int]:
    """Lines that skip or excuse a test."""
    names = {"skip", "skipif", "importorskip", "xfail", "skipTest", "SkipTest"}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in names
    ]


def test_skips_go_through_require() -> None:
    files = [path for path in sources(ROOT / "tests", ".py") if path.name != "require.py"]
    assert len(files) > 10
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if path != Path(__file__).resolve() and path.name not in SKIPS_WITH_REASON
        for line in skips(tree_of(path))
    ]
    assert not wrong, f"use tests.require, which REQUIRE can turn into a failure: {wrong}"
    assert skips(ast.parse("import pytest\npytest.skip('x')")) == [2]
