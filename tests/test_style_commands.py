"""The commands that documents name exist, and those of the set-up say what is missing."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.style import ROOT, tracked

TARGETS = {"venv", "build", "demo", "test", "bench", "fuzz", "lint", "wheel", "clean"}


def makefile_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


def test_makefile_has_the_targets() -> None:
    assert makefile_targets() >= TARGETS
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for target in TARGETS - {"venv"}:
        assert f"make {target}" in shown.stdout


def test_documents_name_targets_that_exist() -> None:
    named: dict[str, str] = {}
    documents = [path for path in tracked() if path.suffix == ".md"]
    assert len(documents) >= 4
    for path in documents:
        text = path.read_text(encoding="utf-8")
        code = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
        for target in re.findall(r"(?:^|[`\s])make ([a-z][a-z-]*)", "\n".join(code)):
            named[target] = path.name
    assert {"test", "build"} <= named.keys()
    unknown = {target: where for target, where in named.items() if target not in makefile_targets()}
    assert not unknown


def test_documents_name_files_that_exist() -> None:
    missing = []
    for path in tracked():
        if path.suffix != ".md":
            continue
        text = path.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in link and not (path.parent / link).exists():
                missing.append(f"{path.relative_to(ROOT)}: {link}")
        for script in re.findall(r"\bscripts/[\w./-]+\.(?:py|sh)", text):
            if not (ROOT / script).is_file():
                missing.append(f"{path.relative_to(ROOT)}: {script}")
        for module in re.findall(r"-m ((?:benchmarks|tests|rocketmq_fast)[\w.]*\w)", text):
            target = ROOT / module.replace(".", "/")
            if not (target.with_suffix(".py").is_file() or (target / "__main__.py").is_file()):
                missing.append(f"{path.relative_to(ROOT)}: python -m {module}")
    assert not missing


def test_makefile_runs_files_that_exist() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"\bscripts/[\w.-]+\.(?:py|sh)", text)
    assert len(named) >= 3
    assert not [name for name in named if not (ROOT / name).is_file()]
    modules = re.findall(r"-m ((?:tests|benchmarks)\.\w+)", text)
    assert modules
    assert not [one for one in modules if not (ROOT / f"{one.replace('.', '/')}.py").is_file()]


def test_continuous_integration_requires_everything() -> None:
    path = ROOT / ".ci" / "run"
    text = path.read_text(encoding="utf-8")
    assert os.access(path, os.X_OK)
    assert "export ROCKETMQ_FAST_REQUIRE=apache,spark" in text
    assert re.search(r"\bmake\b.* test\b", text)
    subprocess.run(["bash", "-n", str(path)], check=True)


def find_python(path: str, name: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "find_python.sh"), name],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def fake_python(folder: Path, name: str, answer: str, status: int) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n", encoding="utf-8")
    path.chmod(0o755)


def test_an_old_python_is_named_with_the_reason(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", "is Python 3.9", 1)
    done = find_python(f"{tmp_path}:/usr/bin/nowhere")
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr


def test_a_python_that_fits_is_taken(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", "is Python 3.9", 1)
    fake_python(tmp_path, "python3.12", "/opt/python3.12/bin/python3.12", 0)
    for tool in ("tail",):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = find_python(str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "/opt/python3.12/bin/python3.12\n"


def test_a_named_python_is_the_only_one_tried(tmp_path: Path) -> None:
    done = find_python(os.environ["PATH"], str(tmp_path / "absent"))
    assert done.returncode == 1
    assert "make PYTHON=" in done.stderr
