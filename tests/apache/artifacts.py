"""Fetches the Apache jars with Maven, once per user, into a cache directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

VERSIONS = ("4.9.4", "5.3.3")
ARTIFACTS = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-client", "rocketmq-tools")
FETCH_ATTEMPTS = 3
FETCH_TIMEOUT_SECONDS = 600

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rocketmq_fast</groupId>
  <artifactId>apache-jars</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>{more}
    </dependency>"""
_NOTHING_ELSE = """
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""


class ArtifactError(Exception):
    """The jars could not be fetched; the text carries what Maven said."""


def say(text: str) -> None:
    """Progress goes to standard error: standard output belongs to the caller's results."""
    print(f"[apache] {text}", file=sys.stderr, flush=True)


def cache_root() -> Path:
    """The per-user cache; ``ROCKETMQ_FAST_CACHE`` replaces ``~/.cache/rocketmq-fast``."""
    override = os.environ.get("ROCKETMQ_FAST_CACHE")
    return Path(override) if override else Path.home() / ".cache" / "rocketmq-fast"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """An exclusive lock between processes, so that parallel runs do a job once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def jars(version: str) -> Path:
    """The directory with all jars of ``version``, fetched when it is not there yet.

    Raises ArtifactError when Maven is missing or fails.
    """
    return fetched(f"apache/{version}", [f"org.apache.rocketmq:{a}:{version}" for a in ARTIFACTS])


def fetched(folder: str, coordinates: Sequence[str], *, alone: bool = False) -> Path:
    """A directory with the jars of ``group:artifact:version`` and, unless ``alone``, all they need.

    It is in ``folder`` of the cache, and fetched when it is not there yet. Raises ArtifactError.
    """
    home = cache_root() / folder
    done = home / "lib"
    if done.is_dir():
        return done
    with locked(home.with_name(f"{home.name}.lock")):
        if not done.is_dir():
            _fetch(home, coordinates, alone)
    return done


def classpath(version: str) -> str:
    """The class path of ``version`` as one JVM argument."""
    return f"{jars(version)}/*"


def _fetch(home: Path, coordinates: Sequence[str], alone: bool) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ArtifactError("Maven (mvn) is not on PATH")
    wanted = [name.split(":") for name in coordinates]
    home.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        dependencies = "\n".join(
            _DEPENDENCY.format(
                group=group, artifact=artifact, version=version, more=_NOTHING_ELSE * alone
            )
            for group, artifact, version in wanted
        )
        (work / "pom.xml").write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
        say(f"fetching {', '.join(coordinates)} with Maven into {home}")
        started = time.monotonic()
        for attempt in range(1, FETCH_ATTEMPTS + 1):
            said = _copy_dependencies(maven, work)
            if said is None:
                break
            say(f"Maven failed, attempt {attempt} of {FETCH_ATTEMPTS}: {said.splitlines()[-1:]}")
            if attempt == FETCH_ATTEMPTS:
                raise ArtifactError(f"Maven could not fetch {coordinates}:\n{said}")
            time.sleep(2.0 * attempt)
        found = list((work / "lib").glob("*.jar"))
        for _, artifact, version in wanted:
            if not any(jar.name == f"{artifact}-{version}.jar" for jar in found):
                raise ArtifactError(f"Maven brought no {artifact}-{version}.jar")
        # A directory without lib is what an interrupted older run left: it has no reader.
        shutil.rmtree(home, ignore_errors=True)
        work.rename(home)
        say(f"{len(found)} jars of {home.name} in {time.monotonic() - started:.1f} s")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _copy_dependencies(maven: str, work: Path) -> str | None:
    """One Maven run; None when it worked, else the end of its output."""
    command = [
        maven, "-q", "-B", "dependency:copy-dependencies",
        f"-DoutputDirectory={work / 'lib'}", "-DincludeScope=runtime",
    ]  # fmt: skip
    try:
        run = subprocess.run(
            command,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {FETCH_TIMEOUT_SECONDS} s"
    return None if run.returncode == 0 else (run.stdout.strip()[-2000:] or "no output")
