"""What consumers and producers share: a group, options, and a part that lives while they run."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, Protocol, TypeVar

from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.lifecycle import hold, let_go
from rocketmq_fast.client.options import ClientOptions
from rocketmq_fast.errors import ClientStateError
from rocketmq_fast.protocol.names import check_group


class RunningPart(Protocol):
    """What lives from start to shutdown."""

    @property
    def instance(self) -> ClientInstance:
        """The client instance that it uses."""

    def start(self) -> None:
        """Begin. Raises RocketMQError."""


OptionsT = TypeVar("OptionsT", bound=ClientOptions)
RunningT = TypeVar("RunningT", bound=RunningPart)


class Startable(ABC, Generic[OptionsT, RunningT]):
    """The states of a client: not started, running, and after shutdown as before start."""

    _kind: ClassVar[str]  # for messages of errors

    def __init__(self, group: str, options: OptionsT, reserved: str) -> None:
        self._group = group
        self._options = options
        self._names = options.names
        check_group(self._names.wrap(group), reserved)
        self._lock = threading.RLock()
        self._running: RunningT | None = None

    @property
    def group(self) -> str:
        """The group, by the name that the program gave."""
        return self._group

    def __repr__(self) -> str:
        running = self._running
        state = "not started" if running is None else f"client_id={running.instance.client_id!r}"
        return " ".join(
            (f"<{type(self).__name__} group={self._group!r}", *self._traits(), f"{state}>")
        )

    def _traits(self) -> Iterable[str]:
        """What else tells one client from another in a log."""
        return ()

    def update_name_server_address(self, namesrv_addr: str | Iterable[str]) -> None:
        """Use other name servers from now on: "host:port;host:port", or a list.

        Connections and queues stay. Holds for all clients of the same instance_name. Raises
        ConfigError.
        """
        with self._lock:
            self._options = self._options.with_name_servers(namesrv_addr)
            running = self._running
        if running is not None:
            running.instance.update_name_servers(self._options.namesrv_addr)

    def _run_new(self, make: Callable[[], RunningT]) -> None:
        """Start what `make` returns. Raises ClientStateError when something runs already."""
        with self._lock:
            if self._running is not None:
                raise ClientStateError(f"{self._kind} of group {self._group!r} is started already")
            running = make()
            running.start()
            self._running = running
        hold(self)

    def _take_running(self) -> RunningT | None:
        """What ran, which is the caller's to stop; None when nothing did."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            let_go(self)
        return running

    def _require_running(self) -> RunningT:
        """What runs. Raises ClientStateError when nothing does."""
        running = self._running
        if running is None:
            raise ClientStateError(f"{self._kind} of group {self._group!r} is not started")
        return running

    @abstractmethod
    def shutdown_at_exit(self) -> None:
        """Called at the exit of an interpreter whose program did not shut down."""

    def forget_after_fork(self) -> None:
        """Called in a forked child: it may start this client anew, the parent's goes on."""
        self._lock = threading.RLock()
        self._running = None
