"""What the command writes: progress to a terminal, results as text or as one line of JSON."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

_DRAW_SECONDS = 0.1
_CLEAR_LINE = "\r\033[K"


def number(value: float) -> str:
    """1234567.8 -> 1,234,568; small fractions keep a digit or two."""
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}"


def counted(amount: int, noun: str) -> str:
    """1 message, 1,234 messages."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def rate(amount: float, seconds: float) -> float:
    """Amount per second, 0 without a time."""
    return amount / seconds if seconds > 0 else 0.0


class Progress(Protocol):
    """A line on the terminal that shows how far something is."""

    def update(self, done: int, note: str = "") -> None:
        """Show a new state; cheap enough to be called often."""

    def close(self) -> None:
        """Take the line away."""


class _Silent:
    """Nothing is drawn: standard error is no terminal."""

    def update(self, done: int, note: str = "") -> None:
        """Draw nothing."""

    def close(self) -> None:
        """There is nothing to take away."""


class _Line:
    """One line that is written over and over."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label = label
        self._total = total
        self._start = time.monotonic()
        self._next = 0.0

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _DRAW_SECONDS
        of = f" of {self._total:,} ({100 * done // self._total}%)" if self._total else ""
        speed = f", {number(round(rate(done, now - self._start)))}/s" if done else ""
        text = f"{self._label}: {done:,}{of}{speed}{', ' + note if note else ''}"
        sys.stderr.write(f"{_CLEAR_LINE}{text[:120]}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()


class _Bar:
    """The same drawn by rich."""

    def __init__(self, label: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            ProgressColumn,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as RichProgress

        columns: list[ProgressColumn] = [TextColumn("{task.description}")]
        columns += [SpinnerColumn()] if total is None else [BarColumn(), TaskProgressColumn()]
        self._rich = RichProgress(
            *columns,
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            refresh_per_second=4,
            transient=True,
        )
        self._task = self._rich.add_task(label, total=total, note="")
        self._start = time.monotonic()
        self._rich.start()

    def update(self, done: int, note: str = "") -> None:
        speed = number(round(rate(done, time.monotonic() - self._start)))
        shown = f"{done:,} at {speed}/s" if done else ""
        self._rich.update(self._task, completed=done, note=f"{shown} {note}".strip())

    def close(self) -> None:
        self._rich.stop()


class _LogHandler(logging.Handler):
    """Log lines that do not run into a progress line."""

    def emit(self, record: logging.LogRecord) -> None:
        clear = _CLEAR_LINE if sys.stderr.isatty() else ""
        sys.stderr.write(f"{clear}{self.format(record)}\n")
        sys.stderr.flush()


def set_up_logging(level: int) -> None:
    """Send the package's log lines to standard error."""
    handler = _LogHandler()
    handler.setFormatter(logging.Formatter("rocketmq-fast: %(levelname)s: %(message)s"))
    logger = logging.getLogger("rocketmq_fast")
    logger.handlers[:] = [handler]
    logger.setLevel(level)


@contextlib.contextmanager
def only_errors(name: str) -> Iterator[None]:
    """Keep a part of the package from warning while the block runs, unless more was asked for."""
    logger = logging.getLogger(name)
    before = logger.level
    if logger.getEffectiveLevel() == logging.WARNING:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class Output:
    """Where a command writes. With `as_json` text for people goes to standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._lock = threading.Lock()
        self._rich = importlib.util.find_spec("rich") is not None

    def line(self, text: str) -> None:
        """Write a line of payload to standard output; `flush` makes sure that it is seen."""
        with self._lock:
            sys.stdout.write(f"{text}\n")

    def flush(self) -> None:
        """Write out what `line` gathered."""
        with self._lock:
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Write a line for people."""
        stream = sys.stderr if self.as_json else sys.stdout
        with self._lock:
            stream.write(f"{text}\n")
            stream.flush()

    def result(self, values: Mapping[str, Any], text: str | None = None) -> None:
        """Write the outcome: one JSON object, or the text."""
        shown = json.dumps(dict(values), ensure_ascii=False) if self.as_json else text
        if shown is not None:
            self.line(shown)
        self.flush()

    @contextlib.contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Progress]:
        """A progress line while the block runs, if standard error is a terminal."""
        shown: Progress = _Silent()
        if sys.stderr.isatty():
            shown = _Bar(label, total) if self._rich else _Line(label, total)
        try:
            yield shown
        finally:
            shown.close()


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns of text; numbers to the right."""
    cells = [[f"{c:,}" if type(c) is int else str(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right = [
        bool(rows) and all(type(row[i]) in (int, float) for row in rows) for i in range(len(heads))
    ]

    def joined(row: Sequence[str]) -> str:
        parts = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([joined(heads), joined(["-" * w for w in widths]), *map(joined, cells)])
