"""The callbacks of one server on a loop that it shares with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_fast.remoting.loop import EventLoop, Timer


class LoopScope:
    """What a server has on the loop; after end() none of it runs any more.

    So that one of several servers can be stopped, and started again, while the loop goes on.
    """

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.ended = False

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Run the callback on the loop's thread as soon as possible. Any thread."""
        self.loop.call_soon(self._run, callback, args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Run the callback on the loop's thread after `delay` seconds. Any thread."""
        return self.loop.call_later(delay, self._run, callback, args)

    def _run(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self.ended:
            callback(*args)

    def end(self) -> None:
        """Run nothing any more. Loop thread, or when the loop does not run."""
        self.ended = True
