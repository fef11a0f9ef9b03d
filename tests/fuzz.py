"""Fuzzes the C decoders: `python -m tests.fuzz --seconds 3600 --target messages --seed 7`.

libFuzzer drives the entries where clang has it, else the driver in csrc/fuzz; the first line says
which. What is found is kept in `fuzz-work/`; a bug becomes a seed of the corpus or a unit test.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests import c_build

WORK = c_build.ROOT / "fuzz-work"


def command(target: str, *, seconds: float, iterations: int, seed: int, work: Path) -> list[str]:
    """The command that fuzzes one target, built first."""
    program = c_build.build_fuzzer(target)
    corpus = c_build.CORPUS / target
    work.mkdir(parents=True, exist_ok=True)
    if c_build.engine().name == "libFuzzer":
        found = work / f"{target}-corpus"
        found.mkdir(exist_ok=True)
        options = [f"-seed={seed}", f"-artifact_prefix={work}/{target}-", "-max_len=65536"]
        if iterations:
            options.append(f"-runs={iterations}")
        if seconds:
            options.append(f"-max_total_time={int(seconds)}")
        return [str(program), *options, str(found), str(corpus)]
    options = ["--seed", str(seed), "--crash", str(work / f"{target}-crash-{seed}")]
    if iterations:
        options += ["--iterations", str(iterations)]
    if seconds:
        options += ["--seconds", str(seconds)]
    return [str(program), *options, str(corpus)]


def main(arguments: list[str] | None = None) -> int:
    """Fuzz the chosen targets one after another; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", choices=c_build.fuzz_targets(), action="append")
    parser.add_argument("--seconds", type=float, default=60.0, help="per target")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print(f"engine: {c_build.engine().name}", flush=True)
    failed = []
    for target in options.target or c_build.fuzz_targets():
        line = command(target, seconds=options.seconds, iterations=0, seed=options.seed, work=WORK)
        print(f"{target}: {' '.join(line)}", flush=True)
        if subprocess.run(line, env=c_build.ENVIRONMENT, check=False).returncode != 0:
            failed.append(target)
    if failed:
        print(f"failed: {', '.join(failed)}; inputs in {WORK}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
