"""Compiles the C units with sanitizers, with test programs or fuzz entries around them.

Objects are kept in `build/c-sanitized` under a hash of what they were made from, so a second run
compiles only what changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
TESTS = CSRC / "tests"
FUZZ = CSRC / "fuzz"
CORPUS = FUZZ / "corpus"
CACHE = ROOT / "build" / "c-sanitized"

WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# The edges that the driver counts; in test programs the harness takes the call, so that both kinds
# of program share the objects of the units.
COVERED = (*SANITIZE, "-fsanitize-coverage=trace-pc")
COMMON = (
    "-std=c11",
    "-g1",
    "-O1",
    "-fno-omit-frame-pointer",
    "-DRMF_TEST_ALLOC",
    f"-I{CSRC}",
    f"-I{FUZZ}",
)
# A leak is a failure, and so is a block larger than any that a unit may ask for.
ENVIRONMENT = {
    **os.environ,
    "ASAN_OPTIONS": "detect_leaks=1:max_allocation_size_mb=512:allocator_may_return_null=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass(frozen=True, slots=True)
class Engine:
    """What drives the fuzz entries."""

    name: str
    compiler: str


def gcc() -> str:
    """The compiler of the tests; the extension was built by one, so there is one."""
    for name in (os.environ.get("CC", ""), "gcc", "cc", "clang"):
        path = shutil.which(name.split()[0]) if name else None
        if path is not None:
            return path
    raise RuntimeError("no C compiler found: set CC")


@cache
def engine() -> Engine:
    """libFuzzer where clang links it, else the driver of this project."""
    clang = shutil.which("clang")
    if clang is not None:
        done = subprocess.run(
            [clang, "-fsanitize=fuzzer,address", "-x", "c", "-", "-o", os.devnull],
            input="int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n)"
            "{ return d == 0 && n == 1; }",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return Engine("libFuzzer", clang)
    return driver()


def driver() -> Engine:
    """The driver of this project, with whatever compiler there is."""
    return Engine("gcc-driver", gcc())


def library_sources() -> list[Path]:
    """The units under test."""
    return sorted(CSRC.glob("*.c"))


def test_sources() -> list[Path]:
    """The test programs."""
    return sorted(TESTS.glob("test_*.c"))


def fuzz_targets() -> list[str]:
    """Names of the fuzz entries."""
    return sorted(path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.c"))


def compile_object(compiler: str, source: Path, *flags: str) -> Path:
    """One object, from the cache if nothing that it depends on has changed."""
    digest = hashlib.sha256()
    command = [compiler, *COMMON, *WARNINGS, *flags]
    digest.update(repr(command).encode())
    digest.update(source.read_bytes())
    for folder in (CSRC, TESTS, FUZZ):
        for header in sorted(folder.glob("*.h")):
            digest.update(header.name.encode() + header.read_bytes())
    CACHE.mkdir(parents=True, exist_ok=True)
    output = CACHE / f"{source.stem}-{digest.hexdigest()[:24]}.o"
    if not output.exists():
        made = output.with_suffix(f".{os.getpid()}.o")
        _run([*command, "-c", str(source), "-o", str(made)])
        made.replace(output)
    return output


def build_test(source: Path) -> Path:
    """A test program."""
    compiler = gcc()
    objects = _objects(compiler, library_sources(), COVERED)
    objects += _objects(compiler, [TESTS / "harness.c", source], SANITIZE)
    return _program(compiler, source.stem, objects, SANITIZE)


def build_fuzzer(target: str) -> Path:
    """A fuzz program for the engine at hand."""
    return build_fuzzer_from(FUZZ / f"fuzz_{target}.c", engine())


def build_fuzzer_from(entry: Path, found: Engine) -> Path:
    """A fuzz program from a source file."""
    if found.name == "libFuzzer":
        flags = ("-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=all")
        objects = _objects(found.compiler, [*library_sources(), entry], flags)
        objects += _objects(found.compiler, [TESTS / "harness.c"], (*flags, "-DRMF_FUZZ"))
        link = ("-fsanitize=fuzzer,address,undefined",)
    else:
        objects = _objects(found.compiler, [*library_sources(), entry], COVERED)
        objects += _objects(found.compiler, [TESTS / "harness.c"], (*SANITIZE, "-DRMF_FUZZ"))
        objects += _objects(found.compiler, [FUZZ / "driver.c"], ("-DRMF_FUZZ",))
        link = SANITIZE
    return _program(found.compiler, entry.stem, objects, link)


def run(program: Path, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a built program; its output is text, whatever bytes it prints."""
    return subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        env=ENVIRONMENT,
        check=False,
    )


def _objects(compiler: str, sources: list[Path], flags: tuple[str, ...]) -> list[Path]:
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(lambda source: compile_object(compiler, source, *flags), sources))


def _program(compiler: str, name: str, objects: list[Path], flags: tuple[str, ...]) -> Path:
    digest = hashlib.sha256(repr((compiler, objects, flags)).encode()).hexdigest()[:24]
    program = CACHE / f"{name}-{digest}"
    if not program.exists():
        made = CACHE / f"{program.name}.{os.getpid()}"
        _run([compiler, *flags, *map(str, objects), "-lm", "-o", str(made)])
        made.replace(program)
    return program


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
