"""`--fault` of the broker command: what it may say, and what happens at its time."""

from __future__ import annotations

import inspect
import logging
import shlex
import threading
from collections.abc import Callable, Iterable
from typing import Any

from rocketmq_fast.embedded import Cluster, Faults
from rocketmq_fast.errors import ConfigError, RocketMQError

log = logging.getLogger(__name__)

_KINDS = ("error", "silence", "delay", "cut", "corrupt", "corrupt_message", "wrong_route")
# What is done once, `after` so many seconds.
_DEEDS = ("stop_broker", "kill_broker", "start_broker", "move_broker", "stop_namesrv",
          "start_namesrv", "forget_locks")  # fmt: skip
_WHERE = ("topic", "queue", "group", "server", "times", "skip", "probability")
_INTEGERS = frozenset(("code", "at", "queues", "perm", "queue", "times", "skip", "number", "port"))
_NUMBERS = frozenset(("seconds", "probability", "after"))


def _value(text: str, name: str, given: str) -> Any:
    try:
        if name in _INTEGERS:
            return int(given)
        if name in _NUMBERS:
            return float(given)
    except ValueError:
        raise ConfigError(f"--fault {text!r}: {name} is {given!r}, not a number") from None
    if name == "served":
        if given not in ("true", "false"):
            raise ConfigError(f"--fault {text!r}: served is {given!r}, not true or false")
        return given == "true"
    if name == "requests":
        codes = [int(word) if word.isdecimal() else word for word in given.split(",")]
        return None if given == "all" else codes
    return given


class FaultPlan:
    """The faults of a command line. Raises ConfigError for text that says nothing sensible."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._faults: list[tuple[str, str, dict[str, Any]]] = []
        self._deeds: list[tuple[float, str, dict[str, Any]]] = []
        self._timers: list[threading.Timer] = []
        for text in texts:
            self._read(text)

    def _read(self, text: str) -> None:
        kind, *words = shlex.split(text) or [""]
        kind = kind.replace("-", "_")
        if kind not in (*_KINDS, *_DEEDS):
            known = ", ".join((*_KINDS, *_DEEDS))
            raise ConfigError(f"--fault {text!r}: {kind!r} is none of {known}")
        deed = kind in _DEEDS
        method = getattr(Cluster if deed else Faults, kind)
        names = [n for n in inspect.signature(method).parameters if n not in ("self", "where")]
        names += ["after"] if deed else _WHERE
        values: dict[str, Any] = {}
        for word in words:
            name, equals, given = word.partition("=")
            if not equals or name not in names:
                raise ConfigError(f"--fault {text!r}: {word!r} is not {'=..., '.join(names)}=...")
            values[name] = _value(text, name, given)
        if deed:
            self._deeds.append((values.pop("after", 0.0), kind, values))
        else:
            self._faults.append((text, kind, values))

    def put_into(self, faults: Faults) -> None:
        """Bring the faults of requests into force. Raises ConfigError."""
        for text, kind, values in self._faults:
            try:
                getattr(faults, kind)(**values)
            except (ConfigError, TypeError) as error:
                raise ConfigError(f"--fault {text!r}: {error}") from error

    def start(self, cluster: Cluster) -> None:
        """Do the rest when it is time, on threads of its own, until stop()."""
        for after, kind, values in self._deeds:
            timer = threading.Timer(after, _carry_out, (getattr(cluster, kind), values))
            timer.daemon = True
            timer.start()
            self._timers.append(timer)

    def stop(self) -> None:
        """Do nothing any more."""
        for timer in self._timers:
            timer.cancel()


def _carry_out(deed: Callable[..., object], values: dict[str, Any]) -> None:
    log.info("fault: %s %s", deed.__name__, values)
    try:
        deed(**values)
    except (OSError, IndexError, RocketMQError) as error:
        log.error("fault %s %s: %s", deed.__name__, values, error)  # noqa: TRY400 - no news in where
