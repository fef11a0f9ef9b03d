"""Build a source distribution and, from it alone, a wheel; repair and inspect the wheel.

Usage: build_wheel.py [--outdir wheelhouse] [--no-isolation] [--max-glibc 2.17]

On Linux auditwheel gives the wheel its platform tag, and the highest GLIBC symbol version that
the extension modules need is printed and compared with the limit.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What manylinux2014 has; users ask for CentOS 7 and its like.
MAX_GLIBC = "2.17"


def version_key(text: str) -> tuple[int, ...]:
    """Return a version such as 2.17 as numbers that compare."""
    return tuple(int(part) for part in text.split("."))


def run(*command: str) -> None:
    """Run a command with the tools of this environment first on PATH; stop when it fails."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command,
        check=False,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}")


def extension_modules(wheel: Path) -> dict[str, bytes]:
    """Return the compiled modules of a wheel by their path in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith((".so", ".pyd"))]
        return {name: archive.read(name) for name in names}


def glibc_versions(module: bytes) -> set[str]:
    """Return the GLIBC versions that an ELF file asks for."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

    needed: set[str] = set()
    for section in ELFFile(io.BytesIO(module)).iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, entries in section.iter_versions():
                names = [entry.name for entry in entries]
                needed.update(name[6:] for name in names if name.startswith("GLIBC_"))
    return needed


def exported(module: bytes) -> set[str]:
    """Return the functions and objects that an ELF file defines for others."""
    from elftools.elf.elffile import ELFFile

    table = ELFFile(io.BytesIO(module)).get_section_by_name(".dynsym")
    return {
        symbol.name
        for symbol in table.iter_symbols()
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
    }


def debug_sections(module: bytes) -> list[str]:
    """Return the names of the sections with debug information."""
    from elftools.elf.elffile import ELFFile

    sections = ELFFile(io.BytesIO(module)).iter_sections()
    return [section.name for section in sections if section.name.startswith(".debug")]


def inspect_linux(modules: dict[str, bytes], limit: str) -> list[str]:
    """Print the highest GLIBC version and return what is wrong with the modules."""
    faults = []
    highest = "2.0"
    for name, module in modules.items():
        needed = glibc_versions(module)
        top = max(needed, key=version_key, default="2.0")
        highest = max(highest, top, key=version_key)
        if version_key(top) > version_key(limit):
            faults.append(f"{name} needs GLIBC_{top}, more than {limit}")
        surplus = {symbol for symbol in exported(module) if not symbol.startswith("PyInit_")}
        if surplus:
            faults.append(f"{name} exports {', '.join(sorted(surplus)[:5])}")
        if debug_sections(module):
            faults.append(f"{name} holds debug information")
    sys.stdout.write(f"highest GLIBC symbol version: {highest} (limit {limit})\n")
    return faults


def package_files() -> list[str]:
    """Return what of the tree belongs into a wheel."""
    return [
        path.relative_to(ROOT).as_posix()
        for package in (
            ROOT / "rocketmq_fast",
            ROOT / "pyspark_rocketmq",
            ROOT / "pytest_rocketmq_fast",
        )
        for path in sorted(package.rglob("*"))
        if path.suffix in (".py", ".pyi") or path.name == "py.typed"
    ]


def inspect(wheel: Path, wanted_files: list[str], limit: str) -> None:
    """Stop when the wheel lacks a file of the tree, holds one too many, or asks for too much."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    faults = [f"{name} is missing" for name in wanted_files if name not in names]
    foreign = (".c", ".h", ".pyx", ".pxd", ".pyc")
    faults += [
        f"{name} does not belong into a wheel"
        for name in sorted(names)
        if name.endswith(foreign) or name.startswith("tests/")
    ]
    modules = extension_modules(wheel)
    wanted = {path.stem for path in (ROOT / "rocketmq_fast/_core").glob("*.pyx")}
    compiled = {name.rsplit("/", 1)[1].split(".")[0] for name in modules}
    if wanted != compiled:
        faults.append(f"compiled modules {sorted(compiled)}, sources {sorted(wanted)}")
    if sys.platform.startswith("linux"):
        faults += inspect_linux(modules, limit)
    if faults:
        sys.exit(f"{wheel.name}:\n  " + "\n  ".join(faults))


def main() -> None:
    """Build, repair, inspect, and leave both archives in the output folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outdir", type=Path, default=ROOT / "wheelhouse")
    parser.add_argument("--no-isolation", action="store_true", help="build with what is installed")
    parser.add_argument("--max-glibc", default=MAX_GLIBC)
    options = parser.parse_args()

    outdir: Path = options.outdir.resolve()
    outdir.mkdir(parents=True, exist_ok=True)
    wanted_files = package_files()
    with tempfile.TemporaryDirectory(prefix="rocketmq-fast-wheel-") as folder:
        raw = Path(folder) / "raw"
        repaired = Path(folder) / "repaired"
        extra = ["--no-isolation"] if options.no_isolation else []
        run(sys.executable, "-m", "build", "--outdir", str(raw), *extra, str(ROOT))
        (wheel,) = raw.glob("*.whl")
        (source,) = raw.glob("*.tar.gz")
        if sys.platform.startswith("linux"):
            command = [sys.executable, "-m", "auditwheel", "repair", "-w", str(repaired)]
            run(*command, str(wheel))
            (wheel,) = repaired.glob("*.whl")
        inspect(wheel, wanted_files, options.max_glibc)
        for old in [*outdir.glob("rocketmq_fast-*.whl"), *outdir.glob("rocketmq_fast-*.tar.gz")]:
            old.unlink()
        for path in (source, wheel):
            shutil.copy2(path, outdir / path.name)
            sys.stdout.write(f"{outdir / path.name} ({path.stat().st_size / 1024:.0f} KiB)\n")


if __name__ == "__main__":
    main()
