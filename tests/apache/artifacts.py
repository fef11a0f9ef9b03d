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
from collections.abc import Iterator
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
  <version>{version}</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """    <dependency>
      <groupId>org.apache.rocketmq</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>"""


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
    home = cache_root() / "apache" / version
    done = home / "lib"
    if done.is_dir():
        return done
    with locked(cache_root() / "apache" / f"{version}.lock"):
        if done.is_dir():
            return done
        _fetch(version, home)
    return done


def classpath(version: str) -> str:
    """The class path of ``version`` as one JVM argument."""
    return f"{jars(version)}/*"


def _fetch(version: str, home: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ArtifactError("Maven (mvn) is not on PATH")
    home.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=home.parent))
    try:
        dependencies = "\n".join(_DEPENDENCY.format(artifact=a, version=version) for a in ARTIFACTS)
        pom = _POM.format(version=version, dependencies=dependencies)
        (work / "pom.xml").write_text(pom, encoding="utf-8")
        say(f"fetching Apache RocketMQ {version} with Maven into {home}")
        started = time.monotonic()
        for attempt in range(1, FETCH_ATTEMPTS + 1):
            said = _copy_dependencies(maven, work)
            if said is None:
                break
            say(f"Maven failed, attempt {attempt} of {FETCH_ATTEMPTS}: {said.splitlines()[-1:]}")
            if attempt == FETCH_ATTEMPTS:
                raise ArtifactError(f"Maven could not fetch RocketMQ {version}:\n{said}")
            time.sleep(2.0 * attempt)
        found = list((work / "lib").glob("*.jar"))
        for artifact in ARTIFACTS:
            if not any(jar.name == f"{artifact}-{version}.jar" for jar in found):
                raise ArtifactError(f"Maven brought no {artifact}-{version}.jar")
        # A directory without lib is what an interrupted older run left: it has no reader.
        shutil.rmtree(home, ignore_errors=True)
        work.rename(home)
        say(f"{len(found)} jars of {version} in {time.monotonic() - started:.1f} s")
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
