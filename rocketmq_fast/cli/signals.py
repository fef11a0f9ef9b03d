"""Ctrl-C and SIGTERM as an event that a command waits for."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Stop:
    """Set by SIGINT or SIGTERM, or by the command itself."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal_number: int | None = None

    def on_signal(self, number: int, _: object) -> None:
        """Signal handler; a second signal ends the process in the ordinary way."""
        self.signal_number = number
        self.event.set()
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A Stop that signals set while the block runs."""
    stop = Stop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop.on_signal) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
