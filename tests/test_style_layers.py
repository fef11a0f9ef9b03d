"""Imports go down only, and the C units stay C."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

import rocketmq_fast
from tests.style import CORE, PACKAGE, ROOT, Import, imports_of, module_name, sources

# Each layer and what it may use besides itself. A module straight in rocketmq_fast/ is a layer of
# its own name. A new layer has to be entered here: that is the moment to think where it belongs.
BASE = frozenset({"errors", "model", "_version"})
CODEC = BASE | {"_core", "protocol"}
NETWORK = CODEC | {"remoting"}
CLIENT = NETWORK | {"client"}
ALLOWED: dict[str, frozenset[str]] = {
    "errors": BASE,
    "model": BASE,
    "_version": frozenset(),
    "metrics": BASE,  # over what stats() and lag() give
    "_core": BASE,
    "protocol": CODEC,
    "remoting": CODEC,
    "client": NETWORK,
    "consumer": CLIENT,
    "producer": CLIENT,
    "admin": CLIENT | {"consumer", "producer"},
    "spark": CLIENT | {"consumer", "producer", "admin"},
    "embedded": NETWORK,
    "cli": CLIENT | {"consumer", "producer", "admin", "spark", "embedded", ""},
    "__main__": BASE | {"cli"},
    # The package itself puts the public names together.
    "": CLIENT | {"consumer", "producer", "admin", "spark", "embedded"},
}

# C11 without I/O, threads or an operating system; the last line is what SIMD needs.
ALLOWED_HEADERS = frozenset(
    "assert.h errno.h inttypes.h limits.h stdalign.h stdbool.h stddef.h stdint.h stdlib.h string.h"
    " immintrin.h nmmintrin.h wmmintrin.h emmintrin.h x86intrin.h arm_acle.h arm_neon.h".split()
)

# The one unit that makes system calls.
SOCKET_HEADERS = {"csrc/rmf_socket.c": frozenset(("sys/socket.h", "sys/types.h"))}


def layer_of(module: str) -> str:
    """rocketmq_fast.client.route -> client; the package itself -> ''."""
    parts = module.split(".")
    if len(parts) == 1:
        return ""
    # A name that the package itself defines (rocketmq_fast.PushConsumer) is no module.
    path = PACKAGE / parts[1]
    return parts[1] if path.is_dir() or path.with_suffix(".py").is_file() else ""


def cython_imports() -> list[Import]:
    """import and cimport lines of the Cython files, which ast cannot read."""
    pattern = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+\(?\s*(\w+)|c?import\s+([\w.]+))")
    found = []
    for path in sources(CORE, ".pyx", ".pxd"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = pattern.match(line)
            if match is None:
                continue
            base, name, whole = match.groups()
            target = whole or f"{base}.{name}"
            if target.startswith("."):
                dots = len(target) - len(target.lstrip("."))
                parent = module_name(path).split(".")[:-dots]
                target = ".".join([*parent, target[dots:]])
            found.append(Import(module_name(path), target, number, False))
    return found


def all_imports() -> list[Import]:
    """Every import of the package: Python, stubs, Cython."""
    python = [one for path in sources(PACKAGE, ".py", ".pyi") for one in imports_of(path)]
    return python + cython_imports()


def ours(one: Import) -> bool:
    return one.imported.split(".")[0] == "rocketmq_fast"


def test_every_layer_is_known_and_visited() -> None:
    seen = {layer_of(module_name(path)) for path in sources(PACKAGE, ".py", ".pyx")}
    assert seen <= ALLOWED.keys(), f"enter into ALLOWED: {sorted(seen - ALLOWED.keys())}"
    on_disk = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")}
    there = {name.removesuffix(".py") for name in on_disk} - {"__init__"} | {"", "_core"}
    assert there <= seen, f"not visited: {sorted(there - seen)}"
    assert any(ours(one) for one in all_imports()), "no import of our own was seen"


def test_imports_go_down_only() -> None:
    wrong = []
    for one in filter(ours, all_imports()):
        importer, imported = layer_of(one.importer), layer_of(one.imported)
        if importer != imported and imported not in ALLOWED[importer]:
            wrong.append(f"{one.importer}:{one.line} uses {one.imported}")
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_a_wrong_import() -> None:
    assert layer_of("rocketmq_fast.client.route") == "client" or not (PACKAGE / "client").exists()
    assert "consumer" not in ALLOWED["embedded"]
    assert "client" not in ALLOWED["embedded"]
    assert "remoting" not in ALLOWED["protocol"]
    assert "embedded" not in ALLOWED["spark"]


def test_the_spark_entry_only_forwards() -> None:
    entry = ROOT / "pyspark_rocketmq"
    found = [one for path in sources(entry, ".py") for one in imports_of(path) if ours(one)]
    wrong = [
        f"{one.importer}:{one.line} {one.imported}"
        for one in found
        if layer_of(one.imported) not in ("spark", "")
    ]
    assert not wrong, wrong


def test_only_the_bindings_name_c_headers() -> None:
    wrong = []
    seen = 0
    for path in sources(PACKAGE, ".py", ".pyx", ".pxd"):
        text = path.read_text(encoding="utf-8")
        headers = re.findall(r'cdef\s+extern\s+from\s+"([^"]+)"', text)
        headers = [header for header in headers if header != "Python.h"]
        seen += len(headers)
        if headers and not (path.suffix == ".pxd" and path.parent == CORE):
            wrong.append(f"{path.relative_to(ROOT)}: {headers}")
    assert seen, "no C header is bound"
    assert not wrong, f"C headers are declared in _core/*.pxd only: {wrong}"


def c_files() -> list[str]:
    return [
        path.relative_to(ROOT).as_posix()
        for path in sources(ROOT / "csrc", ".c", ".h")
        if path.parent == ROOT / "csrc"
    ]


def test_c_files_were_found() -> None:
    names = set(c_files())
    on_disk = {path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").glob("*.[ch]")}
    assert names == on_disk
    assert any(name.endswith(".c") for name in names)


@pytest.mark.parametrize("name", c_files())
def test_c_includes_only_the_language_and_its_own(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    system = set(re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE))
    allowed = ALLOWED_HEADERS | SOCKET_HEADERS.get(name, frozenset())
    assert system <= allowed, sorted(system - allowed)
    own = re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.MULTILINE)
    assert all((ROOT / "csrc" / header).is_file() for header in own), own


def c_unit(name: str) -> str:
    """rmf_tags.h -> rmf_tags; a header that calls itself the inside of a unit belongs to it."""
    stem = name.partition(".")[0]
    header = (ROOT / "csrc" / f"{stem}.h").read_text(encoding="utf-8")
    inside = re.match(r"/\* Inside of (rmf_\w+)", header)
    return inside[1] if inside else stem


def circles(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left when all that needs nothing of the rest was taken: circles and their users."""
    left = dict(needs)
    while ready := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in ready:
            del left[name]
    return left


def test_no_c_units_need_each_other() -> None:
    needs: dict[str, set[str]] = {}
    for name in c_files():
        path = ROOT / name
        own = re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text("utf-8"), re.MULTILINE)
        unit = c_unit(path.name)
        needs.setdefault(unit, set()).update({c_unit(header) for header in own} - {unit})
    assert needs["rmf_tags"] >= {"rmf_message"}
    assert not circles(needs)
    assert circles({"a": {"b"}, "b": {"a"}, "c": set(), "d": {"a", "c"}}).keys() == {"a", "b", "d"}


def test_clients_are_loaded_without_the_embedded_cluster() -> None:
    program = (
        "import sys, rocketmq_fast as rmq; assert 'rocketmq_fast.embedded' not in sys.modules; "
        "assert rmq.embedded.Cluster is sys.modules['rocketmq_fast.embedded'].Cluster"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


def test_public_names_are_loaded_when_they_are_used() -> None:
    """The package alone loads nothing, and every name, for people and type checkers, is there."""
    program = (
        "import sys, rocketmq_fast as rmq\n"
        "loaded = [name for name in sys.modules if name.startswith('rocketmq_fast')]\n"
        "assert sorted(loaded) == ['rocketmq_fast', 'rocketmq_fast._version'], loaded\n"
        "assert set(rmq.__all__) <= set(dir(rmq))\n"
        "assert rmq.errors.BrokerError is rmq.BrokerError\n"
        "names = {name: getattr(rmq, name) for name in rmq.__all__}\n"
        "import pickle\n"
        "assert pickle.loads(pickle.dumps(rmq.Message)) is names['Message']\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (f"{node.module}", alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    used = {
        (f"rocketmq_fast.{home}", name)
        for home, names in rocketmq_fast._HOMES.items()
        for name in names.split()
    }
    assert used | {("rocketmq_fast", "embedded")} == typed
    assert {name for _, name in typed} | {"__version__"} == set(rocketmq_fast.__all__)


def test_an_unknown_name_of_the_package_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'PushConsumr'"):
        _ = rocketmq_fast.PushConsumr  # type: ignore[attr-defined]
