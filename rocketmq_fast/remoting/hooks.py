"""What a program can see, and change, of every request of a client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.errors import ConfigError, HookError

logger = logging.getLogger(__name__)

AnswerCallback = Callable[[RemotingCommand | Exception], None]


class RpcHook:
    """Override what is wanted. Called on whichever thread asks; must not block.

    Requests of brokers to the client are not shown.
    """

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """A request is about to go out; `ext_fields` may be added to, and are signed afterwards.

        An exception keeps it from going out: the caller gets a HookError.
        """

    def after_response(
        self, address: str, request: RemotingCommand, response: RemotingCommand | Exception
    ) -> None:
        """The answer to a request, or why there is none. Event loop. Exceptions are logged."""


def checked_hooks(name: str, hooks: object, kind: type) -> tuple[object, ...]:
    """An option that is a hook, several, or None. Raises ConfigError."""
    if hooks is None:
        return ()
    given = (hooks,) if isinstance(hooks, kind) else hooks
    if not isinstance(given, Iterable):
        raise ConfigError(f"{name} is {hooks!r}, not a {kind.__name__} or a list of them")
    found = tuple(given)
    for hook in found:
        if not isinstance(hook, kind):
            raise ConfigError(f"{name} holds {hook!r}, not a {kind.__name__}")
    return found


def checked_calls(name: str, calls: object) -> tuple[Callable[..., object], ...]:
    """An option that is a callable, several, or None. Raises ConfigError."""
    if calls is None:
        return ()
    given = (calls,) if callable(calls) else calls
    if not isinstance(given, Iterable):
        raise ConfigError(f"{name} is {calls!r}, not callable or a list of callables")
    found = tuple(given)
    for call in found:
        if not callable(call):
            raise ConfigError(f"{name} holds {call!r}, which is not callable")
    return found


def before_request(hooks: Iterable[RpcHook], address: str, request: RemotingCommand) -> None:
    """Call the hooks in their order. Raises HookError."""
    for hook in hooks:
        try:
            hook.before_request(address, request)
        except Exception as error:
            raise HookError(
                f"{type(hook).__name__} refused request {request.code}: {error}", address
            ) from error


def with_after_response(
    hooks: Iterable[RpcHook], address: str, request: RemotingCommand, callback: AnswerCallback
) -> AnswerCallback:
    """A callback that shows the answer to the hooks first."""

    def on_answer(answer: RemotingCommand | Exception) -> None:
        for hook in hooks:
            try:
                hook.after_response(address, request, answer)
            except Exception:
                logger.exception("%s failed after request %d", type(hook).__name__, request.code)
        callback(answer)

    return on_answer
