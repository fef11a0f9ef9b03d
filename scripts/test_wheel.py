"""Install a wheel into an empty environment out of reach of the sources and try it there.

Usage: test_wheel.py [WHEEL]      (the newest one in wheelhouse/ by default)

The environment gets the wheel and what it declares, from wheels only. The trial runs with an
isolated interpreter, away from the tree, with a PATH that holds no compiler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "cl", "tcc")
TIMEOUT_S = 600


def newest_wheel() -> Path:
    """Return the wheel that was built last."""
    wheels = list((ROOT / "wheelhouse").glob("rocketmq_fast-*.whl"))
    if not wheels:
        sys.exit("wheelhouse/ holds no wheel: run scripts/build_wheel.py first")
    return max(wheels, key=lambda path: path.stat().st_mtime)


def clean_environment(bin_dir: Path, home: Path) -> dict[str, str]:
    """Return the variables of a user who has this environment and no compiler."""
    kept = ("SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "LANG", "LC_ALL")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    return {**variables, **without_compiler(bin_dir), "HOME": str(home)}


def without_compiler(bin_dir: Path) -> dict[str, str]:
    """Return the variables that take every compiler out of reach."""
    return {"PATH": str(bin_dir), "CC": "no-compiler-here", "CXX": "no-compiler-here"}


def main() -> None:
    """Make the environment, install, check the dependencies, run the trial."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, nargs="?")
    wheel = (parser.parse_args().wheel or newest_wheel()).resolve()

    with tempfile.TemporaryDirectory(prefix="rocketmq-fast-trial-") as folder:
        base = Path(folder)
        if base.is_relative_to(ROOT):
            sys.exit(f"the temporary folder {base} lies inside the source tree; set TMPDIR")
        work = base / "work"
        work.mkdir()
        shutil.copy2(ROOT / "tests/wheel_smoke.py", work)
        shutil.copytree(ROOT / "tests/golden", work / "golden")
        venv.create(base / "env", with_pip=True, symlinks=os.name != "nt")
        bin_dir = base / "env" / ("Scripts" if os.name == "nt" else "bin")
        python = str(bin_dir / ("python.exe" if os.name == "nt" else "python"))
        for compiler in COMPILERS:
            if shutil.which(compiler, path=str(bin_dir)):
                sys.exit(f"{compiler} is on the PATH of the clean environment")

        def step(variables: dict[str, str], *command: str) -> None:
            """Run one command there and stop when it fails."""
            done = subprocess.run(command, cwd=work, env=variables, check=False, timeout=TIMEOUT_S)
            if done.returncode:
                sys.exit(f"{' '.join(command)}: exit status {done.returncode}")

        # pip keeps this machine's settings (mirrors, certificates); the trial keeps nothing.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        installing = {**inherited, **without_compiler(bin_dir)}
        pip = [python, "-I", "-m", "pip", "--disable-pip-version-check", "--quiet"]
        step(installing, *pip, "install", "--only-binary", ":all:", str(wheel))
        step(installing, *pip, "check")
        trial = clean_environment(bin_dir, work)
        step(trial, python, "-I", "wheel_smoke.py", "--not-from", str(ROOT))
        command = bin_dir / ("rocketmq-fast.exe" if os.name == "nt" else "rocketmq-fast")
        step(trial, str(command), "--help")
    sys.stdout.write(f"{wheel.name}: works in an empty environment\n")


if __name__ == "__main__":
    main()
