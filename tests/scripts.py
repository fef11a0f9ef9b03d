"""Runs scripts and commands as a user does, until they end or until they have said something."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 240.0


def environment(namesrv_addr: str | None = None, **more: str) -> dict[str, str]:
    """This process's environment, with our interpreter's commands first on the path."""
    values = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    values["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{values.get('PATH', '')}"
    values["PYTHONUNBUFFERED"] = "1"
    if namesrv_addr is not None:
        values["NAMESRV_ADDR"] = namesrv_addr
    return values | more


def finish(words: Sequence[str], env: Mapping[str, str], cwd: Path | None = None) -> str:
    """Run to the end; it must succeed. Returns standard output."""
    done = subprocess.run(
        list(words), env=dict(env), cwd=cwd, capture_output=True, text=True, check=False,
        timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def until(
    words: Sequence[str], expected: Sequence[str], env: Mapping[str, str], code: int = 0
) -> str:
    """Run until standard output holds every expected text, then press Ctrl-C.

    The process must then end with `code`. Returns standard output.
    """
    process = subprocess.Popen(
        list(words), env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    stream = process.stdout

    def read() -> None:
        for line in stream:
            lines.put(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    said = ""
    end = time.monotonic() + SECONDS
    try:
        while not all(text in said for text in expected):
            assert time.monotonic() < end, f"{words} did not say {expected} but:\n{said}"
            try:
                said += lines.get(timeout=0.2)
            except queue.Empty:
                assert process.poll() is None, f"{words} ended:\n{said}\n{process.communicate()[1]}"
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == code, f"{words}\n{said}\n{process.stderr}"
        reader.join(10.0)
        while not lines.empty():
            said += lines.get()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reader.join(10.0)
        stream.close()
        if process.stderr is not None:
            process.stderr.close()
    return said
