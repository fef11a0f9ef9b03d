"""Build of the native part; everything declarative is in pyproject.toml.

The C units of csrc/ are compiled once into a static library, then each
rocketmq_fast/_core/*.pyx becomes one extension linked with it. Cython directives live only here.

Environment:
    ROCKETMQ_FAST_DEBUG=1    turn the run-time checks on and the optimiser down
    ROCKETMQ_FAST_CFLAGS     further compiler flags (sanitizers, for example)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_clib import build_clib
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)

DEBUG = os.environ.get("ROCKETMQ_FAST_DEBUG", "") not in ("", "0")
MSVC = sys.platform == "win32" and "gcc" not in os.environ.get("CC", "")
EXTRA_CFLAGS = os.environ.get("ROCKETMQ_FAST_CFLAGS", "").split()

# The checks of a debug build never change what valid code computes: wraparound and cdivision
# keep their meaning in both, so that a debug build tests the code that is shipped.
DIRECTIVES: dict[str, Any] = {
    "language_level": 3,
    "binding": True,
    "embedsignature": True,
    "boundscheck": DEBUG,
    "nonecheck": DEBUG,
    "initializedcheck": DEBUG,
    "overflowcheck": DEBUG,
    "wraparound": False,
    "cdivision": True,
}

if MSVC:
    C_STANDARD = ["/std:c11"]
    C_FLAGS = ["/Od", "/Zi"] if DEBUG else ["/O2"]
else:
    C_STANDARD = ["-std=c11"]
    C_FLAGS = ["-O1", "-g", "-UNDEBUG"] if DEBUG else ["-O3", "-g0", "-DNDEBUG"]
    C_FLAGS += ["-fvisibility=hidden", "-fPIC"]
C_FLAGS += EXTRA_CFLAGS

# A wheel carries no debug information, whatever flags the interpreter was built with.
LINK_FLAGS = ["-Wl,-S"] if sys.platform.startswith("linux") and not DEBUG else []
LINK_FLAGS += [flag for flag in EXTRA_CFLAGS if flag.startswith("-fsanitize")]

LIBRARY = "rmf_core"
BUILD_DIR = Path("build") / ("cython-debug" if DEBUG else "cython")


def paths(pattern: str) -> list[str]:
    """Return the files that match, relative to the tree and in a fixed order."""
    return sorted(path.as_posix() for path in Path().glob(pattern))


def flags_stamp() -> str:
    """Return a file whose time changes with the flags, so that a change of mode rebuilds."""
    text = repr((sys.version, DEBUG, C_STANDARD, C_FLAGS, LINK_FLAGS, sorted(DIRECTIVES.items())))
    stamp = Path("build") / "flags.txt"
    stamp.parent.mkdir(exist_ok=True)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != text:
        stamp.write_text(text, encoding="utf-8")
    return stamp.as_posix()


def directives_changed(pyx: list[str], stamp: str) -> bool:
    """Tell whether generated C is older than the flags: cythonize compares sources only."""
    generated = [(BUILD_DIR / path).with_suffix(".c") for path in pyx]
    changed = Path(stamp).stat().st_mtime
    return any(path.exists() and path.stat().st_mtime < changed for path in generated)


class BuildNative(build_ext):
    """Build the static library first, in place too, then translate and link each extension.

    Cython is imported here and not above: making a source distribution or reading the metadata
    does not need it. numpy is no build dependency: arrays reach it by the buffer protocol.
    """

    def finalize_options(self) -> None:
        """Compile the extensions side by side unless told how many at a time."""
        super().finalize_options()
        if self.parallel is None:
            self.parallel = True

    def run(self) -> None:
        """Run build_clib before the extensions, which distutils does only for a whole build."""
        stamp = flags_stamp()
        if self.distribution.has_c_libraries():
            for _, options in self.distribution.libraries:
                options["obj_deps"][""].append(stamp)
            self.run_command("build_clib")
        if self.extensions:
            self.translate(stamp)
        super().run()

    def translate(self, stamp: str) -> None:
        """Turn each .pyx into C below build/ and compile that instead."""
        from Cython.Build import cythonize

        translated = cythonize(
            self.extensions,
            build_dir=BUILD_DIR.as_posix(),
            compiler_directives=DIRECTIVES,
            force=directives_changed(PYX, stamp),
            quiet=True,
        )
        sources = {extension.name: extension.sources for extension in translated}
        for extension in self.extensions:
            extension.sources = sources[extension.name]
            extension.depends.append(stamp)


class BuildLibrary(build_clib):
    """build_clib with an archive made from scratch."""

    def build_libraries(self, libraries: list[Any]) -> None:
        """Drop an archive of an earlier list of units: ar would keep a removed member."""
        for name, _ in libraries:
            archive = Path(self.compiler.library_filename(name, output_dir=self.build_clib))
            archive.unlink(missing_ok=True)
        super().build_libraries(libraries)


C_SOURCES = paths("csrc/*.c")
C_HEADERS = paths("csrc/*.h")
PYX = paths("rocketmq_fast/_core/*.pyx")
PXD = paths("rocketmq_fast/_core/*.pxd")

units = {
    "sources": C_SOURCES,
    "include_dirs": ["csrc"],
    "cflags": C_STANDARD + C_FLAGS,
    "obj_deps": {"": [*C_HEADERS]},
}

setup(
    libraries=[(LIBRARY, units)] if C_SOURCES else [],
    ext_modules=[
        Extension(
            path.removesuffix(".pyx").replace("/", "."),
            [path],
            include_dirs=["csrc"],
            extra_compile_args=C_FLAGS,
            extra_link_args=LINK_FLAGS,
            depends=[*C_SOURCES, *C_HEADERS, *PXD],
        )
        for path in PYX
    ],
    cmdclass={"build_ext": BuildNative, "build_clib": BuildLibrary},
)
