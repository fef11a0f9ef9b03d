"""Compiles the Java programs of this repository and runs them.

Programs are single files that print ``RESULT`` and one JSON object on a line at their end. They
are compiled once per content against the 4.9.4 jars, into the cache directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .artifacts import cache_root, classpath, locked, say
from .process import JVM_ACCESS

DRIVERS = Path(__file__).resolve().parent.parent / "java"
CLIENT_VERSION = "4.9.4"
COMPILE_TIMEOUT_SECONDS = 300
RESULT_MARK = "RESULT "
SMALL_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# A consumer looks for changes of its group and renews its locks every second, not every twenty, and
# gives the lock of a queue with messages left back after one.
SOON = tuple(
    f"-Drocketmq.client.{name}=1000"
    for name in ("rebalance.waitInterval", "rebalance.lockInterval", "unlockDelayTimeMills")
)

# Without it logback writes every level of every library to standard output.
_LOGBACK = """<?xml version="1.0" encoding="UTF-8"?>
<configuration>
  <appender name="ERR" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %t %logger{0} - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="ERR"/></root>
</configuration>
"""


class JavaError(Exception):
    """A program did not compile, failed or ran out of time; the text carries what it printed."""


def compiled(sources: Sequence[Path] = (DRIVERS,), version: str = CLIENT_VERSION) -> Path:
    """The directory with the classes of all Java files in ``sources``."""
    files = sorted(path for folder in sources for path in folder.glob("*.java"))
    if not files:
        raise JavaError(f"no Java files in {', '.join(map(str, sources))}")
    digest = hashlib.sha256(version.encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    home = cache_root() / "java" / digest.hexdigest()[:20]
    if not home.is_dir():
        with locked(cache_root() / "java" / "compile.lock"):
            if not home.is_dir():
                _compile(files, version, home)
    return home


def _compile(files: Sequence[Path], version: str, home: Path) -> None:
    compiler = shutil.which("javac")
    if compiler is None:
        raise JavaError("javac is not on PATH")
    work = Path(tempfile.mkdtemp(prefix=".classes-", dir=home.parent))
    try:
        say(f"compiling {len(files)} Java files against {version}")
        command = [
            compiler, "-nowarn", "-Xlint:-options", "-proc:none", "-encoding", "UTF-8",
            "-d", str(work), "-cp", classpath(version), *map(str, files),
        ]  # fmt: skip
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_SECONDS,
            check=False,
        )
        if run.returncode != 0:
            raise JavaError(f"javac failed:\n{run.stderr[-4000:]}")
        work.rename(home)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def java_command(
    main: str,
    *,
    sources: Sequence[Path] = (DRIVERS,),
    version: str = CLIENT_VERSION,
    jvm_options: Iterable[str] = SMALL_JVM,
    home: Path,
) -> list[str]:
    """The command line that runs class ``main``; ``home`` gets the client's logs and offsets."""
    logback = home / "logback.xml"
    logback.write_text(_LOGBACK, encoding="utf-8")
    return [
        "java", *JVM_ACCESS, *jvm_options,
        f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home / 'logs'}",
        "-Drocketmq.client.logLevel=WARN", f"-Dlogback.configurationFile={logback}",
        "-Dfile.encoding=UTF-8",
        "-cp", f"{compiled(sources, version)}{os.pathsep}{classpath(version)}", main,
    ]  # fmt: skip


def run_java(
    main: str,
    args: Sequence[str] | Mapping[str, object] = (),
    timeout: float = 240.0,
    *,
    sources: Sequence[Path] = (DRIVERS,),
    version: str = CLIENT_VERSION,
    jvm_options: Iterable[str] = SMALL_JVM,
) -> dict[str, Any]:
    """Run class ``main`` and return the JSON object of its result line.

    ``args`` is a list, or a mapping written as key=value. Raises JavaError with the end of the
    output and of the client's log when it fails or takes longer than ``timeout`` seconds.
    """
    words = words_of(args) if isinstance(args, Mapping) else list(args)
    with tempfile.TemporaryDirectory(prefix="rocketmq-java-") as folder:
        home = Path(folder)
        command = java_command(
            main, sources=sources, version=version, jvm_options=jvm_options, home=home
        )
        try:
            run = subprocess.run(
                [*command, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment(),
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise JavaError(
                f"{main} {' '.join(words)}: no end after {timeout} s\n"
                f"{_said(error.stdout or b'', error.stderr or b'', home)}"
            ) from None
        said = _said(run.stdout, run.stderr, home)
        printed = run.stdout.decode("utf-8", "replace").splitlines()
        lines = [line for line in printed if line.startswith(RESULT_MARK)]
        if run.returncode != 0 or not lines:
            raise JavaError(f"{main} {' '.join(words)}: exit code {run.returncode}\n{said}")
        try:
            result = json.loads(lines[-1].removeprefix(RESULT_MARK))
        except ValueError as error:
            raise JavaError(f"{main} {' '.join(words)}: {error}\n{said}") from error
    if not isinstance(result, dict):
        raise JavaError(f"{main}: the result is no JSON object\n{said}")
    return result


def environment() -> dict[str, str]:
    """The environment of a program."""
    # The JVM decodes its arguments by the locale, and C would lose non-ASCII text.
    return {**os.environ, "LC_ALL": "C.UTF-8", "NAMESRV_ADDR": ""}


def words_of(args: Mapping[str, object]) -> list[str]:
    """Arguments as key=value."""
    return [f"{key}={_word(value)}" for key, value in args.items()]


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _said(stdout: bytes, stderr: bytes, home: Path) -> str:
    parts = [("standard output", stdout), ("standard error", stderr)]
    parts += [(path.name, path.read_bytes()) for path in sorted(home.rglob("*.log"))]
    return "\n".join(
        f"--- end of {name}:\n{text[-2500:].decode('utf-8', 'replace').strip()}"
        for name, text in parts
        if text.strip()
    )


# -- the programs of tests/java -----------------------------------------------------------------


def body_for(index: int, size: int) -> bytes:
    """Body number ``index`` as Produce makes it."""
    start = index * 31 + 8
    rest = max(size - 8, 0)
    pattern = bytes((start + i) & 0xFF for i in range(256))
    tail = (pattern * (rest // 256 + 1))[:rest]
    return ((index & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") + tail)[:size]


def body_digest(bodies: Iterable[bytes]) -> str:
    """XOR of the SHA-256 of all bodies, the same for every order; equals the programs' digest."""
    total = 0
    for body in bodies:
        total ^= int.from_bytes(hashlib.sha256(body).digest(), "big")
    return total.to_bytes(32, "big").hex()


def produce(
    namesrv: str, topic: str, count: int, *, timeout: float = 240.0, **options: object
) -> dict[str, Any]:
    """Java producer: ``count`` messages; options as in Produce.java (size, tags, batch, ...)."""
    return run_java(
        "Produce", {"namesrv": namesrv, "topic": topic, "count": count, **options}, timeout
    )


def consume(
    namesrv: str, topic: str, group: str, count: int, *, timeout: float = 180.0, **options: object
) -> dict[str, Any]:
    """Java push consumer until ``count`` distinct messages; options as in Consume.java."""
    words = {"namesrv": namesrv, "topic": topic, "group": group, "count": count, **options}
    return run_java(
        "Consume", {**words, "timeout": timeout}, timeout + 30.0, jvm_options=(*SMALL_JVM, *SOON)
    )


def pull_dump(
    namesrv: str, topic: str, *, timeout: float = 240.0, **options: object
) -> dict[str, Any]:
    """Every message of a topic as the Java pull consumer reads it (``output=path``: in full)."""
    return run_java("PullDump", {"namesrv": namesrv, "topic": topic, **options}, timeout)


def offsets(namesrv: str, topic: str, group: str, *, timeout: float = 240.0) -> dict[str, Any]:
    """Minimum, maximum and committed offsets of a group on a topic."""
    return run_java("Offsets", {"namesrv": namesrv, "topic": topic, "group": group}, timeout)
