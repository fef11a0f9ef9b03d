"""One JVM process: started, signalled and stopped by its pid, never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .artifacts import say

# Access that the brokers' Netty and store code need on JDK 17.
JVM_ACCESS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)

# Reads lines with all live pids; when its input ends (the parent is gone, however it died) it
# kills the pids of the last line.
_WATCHDOG = 'p=; while read -r line; do p=$line; done; [ -z "$p" ] || kill -9 $p 2>/dev/null; :'


class StartError(Exception):
    """A server did not come up; the text carries the end of its output and log."""


class Watchdog:
    """Kills the registered processes when this Python process disappears, kill -9 included."""

    def __init__(self) -> None:
        self._pids: set[int] = set()
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, pid: int) -> None:
        """Watch over ``pid``."""
        self._pids.add(pid)
        self._tell()

    def forget(self, pid: int) -> None:
        """``pid`` has ended."""
        self._pids.discard(pid)
        self._tell()

    def _tell(self) -> None:
        assert self._shell.stdin is not None
        line = " ".join(map(str, sorted(self._pids))) + "\n"
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()

    def close(self) -> None:
        """End the watch; processes that are still registered are killed."""
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._shell.stdin.close()
        self._shell.wait(timeout=10)


class JvmProcess:
    """A JVM that can be started again with the same command."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        logs: Path,
        watchdog: Watchdog,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._environment = {**os.environ, **environment}
        self._output = output
        self._logs = logs
        self._watchdog = watchdog
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def pid(self) -> int | None:
        """The pid while it runs."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the process exists (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the JVM; returns at once."""
        if self.alive:
            raise RuntimeError(f"{self.name} is running (pid {self.pid})")
        with open(self._output, "wb") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._output.parent,
                start_new_session=True,
            )
        self._paused = False
        self._watchdog.add(self._process.pid)

    def printed(self, text: str) -> bool:
        """Whether this start has printed ``text``; raises StartError when the JVM has ended."""
        alive = self.alive
        if text.encode() in self._output.read_bytes():
            return True
        if not alive:
            assert self._process is not None
            self._watchdog.forget(self._process.pid)
            raise StartError(f"{self.name} ended with {self._process.returncode}\n{self.tail()}")
        return False

    def wait_printed(self, text: str, deadline: float) -> None:
        """Wait until ``text`` is on its output; ``deadline`` is of time.monotonic()."""
        while not self.printed(text):
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} did not print {text!r} in time\n{self.tail()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._end(signal.SIGKILL, 30.0)

    def terminate(self, timeout: float = 30.0) -> None:
        """SIGTERM, and wait; SIGKILL when it takes longer than ``timeout``."""
        self.resume()
        if not self._end(signal.SIGTERM, timeout):
            say(f"{self.name} did not end within {timeout:.0f} s of SIGTERM, killing it")
            self.kill()

    def pause(self) -> None:
        """SIGSTOP: the process keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT after a pause."""
        if self._paused and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self._paused = False

    def _end(self, number: signal.Signals, timeout: float) -> bool:
        process = self._process
        if process is None:
            return True
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(timeout=timeout)
            except subprocess.TimeoutExpired:
                return False
        self._watchdog.forget(process.pid)
        self._process = None
        self._paused = False
        return True

    def tail(self, size: int = 3000) -> str:
        """The end of what it printed and of its log files, for error messages."""
        parts = []
        candidates = [self._output]
        if self._logs.is_dir():
            candidates += sorted(self._logs.rglob("*.log"))
        for path in candidates:
            if not path.is_file():
                continue
            text = path.read_bytes()[-size:].decode("utf-8", "replace").strip()
            if text:
                parts.append(f"--- end of {path}:\n{text}")
        return "\n".join(parts) or f"--- {self._output}: nothing printed"
