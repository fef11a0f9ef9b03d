"""The wheel: built from the source distribution, tried in an empty environment, for all platforms.

The trial itself is tests/wheel_smoke.py, which scripts/test_wheel.py copies away from the tree.
"""

from __future__ import annotations

import email
import email.message
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rocketmq_fast import _version
from tests.style import CORE, ROOT, sources

PYTHONS = ("cp311", "cp312", "cp313", "cp314")
# What users ask for; free-threaded interpreters follow when the core was stressed on one.
PLATFORMS = {
    "linux": ("manylinux_x86_64", "manylinux_aarch64", "musllinux_x86_64", "musllinux_aarch64"),
    "macos": ("macosx_x86_64", "macosx_arm64"),
    "windows": ("win_amd64",),
}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Source distribution and repaired wheel, and what the build printed."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    output = run(str(ROOT / "scripts/build_wheel.py"), "--outdir", str(folder))
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    return source, wheel, output


def run(*command: str) -> str:
    """Run Python with arguments; its output, or a failure that shows it."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


@pytest.mark.slow
def test_wheel_works_in_an_empty_environment(built: tuple[Path, Path, str]) -> None:
    output = run(str(ROOT / "scripts/test_wheel.py"), str(built[1]))
    assert "golden messages" in output
    assert output.rstrip().endswith("works in an empty environment")


@pytest.mark.slow
def test_wheel_runs_on_old_glibc(built: tuple[Path, Path, str]) -> None:
    match = re.search(r"highest GLIBC symbol version: ([\d.]+)", built[2])
    assert match, built[2]
    assert tuple(map(int, match[1].split("."))) <= (2, 17)
    assert "manylinux2014" in built[1].name


@pytest.mark.slow
def test_wheel_metadata(built: tuple[Path, Path, str]) -> None:
    data = metadata_of(built[1])
    assert data["Name"] == "rocketmq-fast"
    assert data["Version"] == _version.__version__
    assert data["Requires-Python"] == ">=3.11"
    assert data["License-Expression"] == "Apache-2.0"
    requirements = data.get_all("Requires-Dist") or []
    mandatory = {
        re.split(r"[<>=!~\[; ]", line)[0] for line in requirements if "extra ==" not in line
    }
    assert mandatory == {"numpy", "lz4", "zstandard"}
    assert set(data.get_all("Provides-Extra") or []) == {"spark", "cli", "metrics", "dev"}


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path, str]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
        (entry,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "rocketmq-fast = rocketmq_fast.cli:main" in archive.read(entry).decode()
    tops = {name.split("/")[0] for name in names}
    info = f"rocketmq_fast-{_version.__version__}.dist-info"
    assert tops == {"rocketmq_fast", "pyspark_rocketmq", "pytest_rocketmq_fast", info}
    # That each file of the tree is in it was checked by the build itself, at its start.
    layers = "_core protocol remoting client consumer producer embedded spark cli".split()
    for layer in layers:
        assert f"rocketmq_fast/{layer}/__init__.py" in names
    assert len([name for name in names if name.endswith(".pyi")]) == len(sources(CORE, ".pyi"))
    assert "rocketmq_fast/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_source_distribution_can_be_built_from(built: tuple[Path, Path, str]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = [*sources(ROOT / "csrc", ".c", ".h"), *sources(CORE, ".pyx", ".pxd", ".pyi")]
    missing = {path.relative_to(ROOT).as_posix() for path in needed} - names
    assert needed
    assert not missing
    assert {"setup.py", "pyproject.toml", "LICENSE", "README.md"} <= names
    assert not [name for name in names if name.endswith((".so", ".o", ".a", ".pyc"))]


@pytest.mark.parametrize("platform", sorted(PLATFORMS))
def test_cibuildwheel_builds_what_users_ask_for(platform: str) -> None:
    output = run("-m", "cibuildwheel", "--print-build-identifiers", "--platform", platform)
    wanted = {f"{python}-{tag}" for python, tag in product(PYTHONS, PLATFORMS[platform])}
    assert set(output.split()) == wanted


def test_images_are_old_enough(pyproject: dict[str, Any]) -> None:
    linux = pyproject["tool"]["cibuildwheel"]["linux"]
    for arch in linux["archs"]:
        assert linux[f"manylinux-{arch}-image"] == "manylinux2014"
        assert linux[f"musllinux-{arch}-image"] == "musllinux_1_2"


def test_workflow_has_a_runner_for_each_platform(pyproject: dict[str, Any]) -> None:
    text = (ROOT / ".github/workflows/wheels.yml").read_text(encoding="utf-8")
    pairs = set(re.findall(r"platform: (\w+), archs: (\w+), runner:", text))
    config = pyproject["tool"]["cibuildwheel"]
    assert pairs == {(name, arch) for name in PLATFORMS for arch in config[name]["archs"]}


def test_classifiers_name_the_pythons_of_the_matrix(pyproject: dict[str, Any]) -> None:
    prefix = "Programming Language :: Python :: 3."
    minors = {
        f"cp3{line.removeprefix(prefix)}"
        for line in pyproject["project"]["classifiers"]
        if line.startswith(prefix)
    }
    assert minors == set(PYTHONS)


def test_compiler_options_are_portable() -> None:
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    assert "-march" not in text
    assert "-mtune" not in text
