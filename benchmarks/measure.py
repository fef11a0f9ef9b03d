"""What all reports share: timed rounds, the machine, JSON files and Markdown tables."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.work import Work
from rocketmq_fast import __version__

RESULTS = Path(__file__).resolve().parent / "results"
ROOT = RESULTS.parent.parent
# Work whose data is made anew for every call gets this many times its seconds, making included.
_PATIENCE = 5
_LIBRARIES = ("numpy", "lz4", "zstandard", "pyarrow")


def rate(work: Work, seconds: float) -> float:
    """Units a second over ``seconds`` of timed work; what ``prepare`` takes is not counted.

    Time is the CPU time of this process, as in the Java programs: other load on the machine slows
    neither side of a comparison then.
    """
    clock = time.process_time
    spent = 0.0
    units = 0
    calls = 1
    with quiet_collector():
        step = work.prepare()
        until = clock() + _PATIENCE * seconds
        while True:
            began = clock()
            for _ in range(calls):
                step()
            took = clock() - began
            units += calls * work.units
            spent += took
            if spent >= seconds or (not work.repeatable and clock() >= until):
                break
            # What prepare returned once is always used: it may have moved on for it.
            if not work.repeatable:
                step = work.prepare()
            elif took < 0.001:
                # So many calls between two looks at the clock that the looks cost nothing.
                calls *= 2
    return units / spent


@contextlib.contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep what exists out of the cyclic collector, so that it does not run by chance."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def middle(values: Sequence[float]) -> float:
    """The median."""
    return float(median(values))


def wait_until_quiet(limit: float, minutes: float) -> float:
    """Wait for a load average below ``limit``, at most some minutes; the load at the end."""
    until = time.monotonic() + minutes * 60
    load = os.getloadavg()[0]
    while load >= limit and time.monotonic() < until:
        say(f"load {load:.2f}, waiting for less than {limit}")
        time.sleep(min(10.0, minutes * 60))
        load = os.getloadavg()[0]
    return load


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def run_python(module: str, patience: float, **options: object) -> dict[str, Any]:
    """Run a module of ours in a process of its own; its last line is the result."""
    words = [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )
    if done.returncode != 0 or not done.stdout.strip():
        raise RuntimeError(f"{module} failed with {done.returncode}:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not result["complete"]:
        raise RuntimeError(f"{module} got {result['messages']} messages:\n{done.stderr[-3000:]}")
    return result


# ------------------------------------------------------------------------------------- the machine


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    with contextlib.suppress(OSError, ValueError):
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return None


def java_version() -> str | None:
    """First line of ``java -version``, None without one."""
    if shutil.which("java") is None:
        return None
    answer = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False, timeout=60
    )
    lines = (answer.stderr or answer.stdout).splitlines()
    return lines[0].replace('"', "") if lines else None


def _commit() -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()
    return None


def version_of(distribution: str) -> str:
    """The installed version, or "absent"."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def circumstances(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Machine, versions and command, for the head of a result."""
    return {
        "command": " ".join(["python", "-m", module, *arguments]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "rocketmq_fast": __version__,
        "commit": _commit(),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gib": _memory_gib(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "load_before": round(os.getloadavg()[0], 2),
        },
        "versions": {
            "python": platform.python_version(),
            "java": java_version(),
            **{name: version_of(name) for name in _LIBRARIES},
        },
    }


def describe(result: dict[str, Any]) -> str:
    """One line that says where, when and how a result was measured."""
    machine = result["machine"]
    java = result["versions"]["java"] or "no Java"
    load = machine["load_before"]
    before = "" if load is None else f", load average {load} before"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; Python "
        f"{result['versions']['python']}; {java}; {result['date']}{before}; "
        f"`{result['command']}`"
    )


# ------------------------------------------------------------------------------------------- files


def write_result(name: str, result: dict[str, Any], markdown: str, folder: Path = RESULTS) -> None:
    """Write ``name``.json and ``name``.md."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(markdown.rstrip("\n") + "\n", encoding="utf-8")
    say(f"wrote {folder / name}.json and .md")


def read_result(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """A result that was written before, None when there is none."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table; the first ``left`` columns stand left, the others right."""
    marks = ["---" if column < left else "---:" for column in range(len(head))]
    lines = [head, marks, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, unit: str = "") -> str:
    """A rate as a person reads it: 13.2 M, 340 k; a dash for what was not measured."""
    if value is None:
        return "-"
    for limit, suffix, scale in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e3, "k", 1e3)):
        if value >= limit:
            scaled = value / scale
            digits = f"{scaled:.0f}" if scaled >= 100 else f"{scaled:.3g}"
            return f"{digits} {suffix}{unit}"
    return f"{value:.3g} {unit}".strip()


def times(value: float | None) -> str:
    """A ratio: 12x, 2.1x."""
    if value is None:
        return "-"
    return f"{value:.0f}x" if value >= 20 else f"{value:.1f}x" if value >= 3 else f"{value:.2f}x"


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that every command has."""
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument(
        "--quiet-load", type=float, default=1.0, help="wait for a load average below this"
    )
    parser.add_argument("--wait", type=float, default=0.0, help="how many minutes at most")


def run_main(
    action: Callable[[argparse.Namespace, list[str]], None], parser: argparse.ArgumentParser
) -> None:
    """Parse the command line, wait for a quiet machine and go."""
    arguments = sys.argv[1:]
    options = parser.parse_args(arguments)
    wait_until_quiet(options.quiet_load, options.wait)
    action(options, arguments)
