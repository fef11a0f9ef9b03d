"""Ctrl-C and SIGTERM as something that a command looks for, or waits for."""

from __future__ import annotations

import contextlib
import queue
import signal
from collections.abc import Iterator

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_SLICE_SECONDS = 1.0


class Stop:
    """The first SIGINT or SIGTERM. Main thread only."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        # A handler runs in the middle of anything, also of a wait: put() is made for that, the
        # lock of an Event is not.
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()

    def on_signal(self, number: int, _: object) -> None:
        """Signal handler; a second signal ends the process in the ordinary way."""
        self.signal_number = number
        for each in _NUMBERS:
            signal.signal(each, signal.SIG_DFL)
        self._signals.put(number)

    @property
    def wanted(self) -> bool:
        """Whether there was a signal."""
        return self.signal_number is not None

    def wait(self) -> None:
        """Wait for a signal."""
        while not self.wanted:
            # In slices: on some platforms a wait without a timeout holds signals back.
            with contextlib.suppress(queue.Empty):
                self._signals.get(timeout=_SLICE_SECONDS)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A Stop that signals set while the block runs."""
    stop = Stop()
    before = {number: signal.signal(number, stop.on_signal) for number in _NUMBERS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
