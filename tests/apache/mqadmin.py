"""Runs mqadmin of the fetched jars."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from .artifacts import classpath
from .java import run_java
from .process import JVM_ACCESS

TIMEOUT_SECONDS = 240.0
_ATTEMPTS = 5
_QUIET = '<configuration><root level="OFF"/></configuration>'
_TRACE = re.compile(r"^(Caused by: )?(\w+\.)+\w*(Exception|Error)\b", re.MULTILINE)
_FAST_START = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class AdminError(Exception):
    """mqadmin failed; the text carries what it printed."""


def ask(version: str, namesrv_addr: str, *commands: str) -> list[str]:
    """What commands print that change nothing, all in one JVM; words stand between blanks.

    Asked again when one ran out of time: their own time-outs are of 3 to 5 s, which a busy machine
    can take. Raises AdminError.
    """
    words = [f"{command} -n {namesrv_addr}" for command in commands]
    for attempt in range(1, _ATTEMPTS + 1):
        outputs: list[str] = run_java("Admin", words, version=version)["outputs"]
        failed = [said for said in outputs if _TRACE.search(said)]
        if not failed:
            break
        if attempt == _ATTEMPTS or not all("Timeout" in said for said in failed):
            raise AdminError("\n".join(failed)[-4000:])
    return outputs


def mqadmin(version: str, namesrv_addr: str, *words: str) -> str:
    """Run one command; what it printed. Raises AdminError.

    mqadmin ends with code 0 whatever happened, so a stack trace counts as a failure.
    """
    with tempfile.TemporaryDirectory(prefix="rocketmq-admin-") as folder:
        home = Path(folder)
        (home / "conf").mkdir()
        for name in ("logback_tools.xml", "rmq.tools.logback.xml"):
            (home / "conf" / name).write_text(_QUIET, encoding="utf-8")
        command = [
            "java", *JVM_ACCESS, *_FAST_START, "-cp", classpath(version),
            f"-Drocketmq.home.dir={home}", f"-Duser.home={home}",
            "org.apache.rocketmq.tools.command.MQAdminStartup", *words, "-n", namesrv_addr,
        ]  # fmt: skip
        try:
            run = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "ROCKETMQ_HOME": str(home), "LC_ALL": "C.UTF-8"},
                cwd=home,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AdminError(f"{' '.join(words)}: no end after {TIMEOUT_SECONDS} s") from None
    said = run.stdout + run.stderr
    if run.returncode != 0 or _TRACE.search(said):
        raise AdminError(f"{' '.join(words)}: exit code {run.returncode}\n{said[-4000:]}")
    return said
