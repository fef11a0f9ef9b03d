"""Name servers and brokers in this process, over real sockets."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import shutil
import socket
import tempfile
import threading
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rocketmq_fast.embedded.config import BrokerConfig
from rocketmq_fast.embedded.faults import Faults
from rocketmq_fast.embedded.files import make_directory
from rocketmq_fast.embedded.nodes import BrokerNode, NameServerNode, Place, Registry
from rocketmq_fast.embedded.registration import name_server_addresses
from rocketmq_fast.embedded.store import now_ms
from rocketmq_fast.embedded.topics import TopicConfig, check_topic_name
from rocketmq_fast.errors import ClientStateError, ConfigError
from rocketmq_fast.remoting.loop import EventLoop

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from rocketmq_fast.embedded.broker import Broker
    from rocketmq_fast.embedded.name_server import NameServer
    from rocketmq_fast.embedded.registration import Registrar

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_CALL_SECONDS = 30.0
_MAX_SERVERS = 26


class Cluster:
    """Name servers and brokers, one of each by default, that clients of any language can use.

    With `store` the messages stay in that directory and are there again after a restart; without it
    they live in a temporary directory that stop() removes. Ports of 0 are chosen by the system once
    and kept for later starts; those given are of the first broker and name server. The cluster
    listens on loopback only unless `allow_remote` is set; `advertised_host` is the address that
    clients are told (an IP address), by default `host`.

    Brokers are numbered from 0 and named broker-a, broker-b and so on; the first keeps its messages
    in `store` itself, the others in directories of their names. With `register_at`
    ("host:port;host:port") they register at those name servers too, and with `name_servers=0` at
    those only.

    Further keyword options are the fields of BrokerConfig, for example `delay_levels="1s 2s"`,
    `broker_name`, `flush_disk_type="SYNC_FLUSH"`. `clock` gives the time of messages in ms.
    `faults` makes requests fail; `fault_seed` repeats the decisions of an earlier run.

    All methods may be called from any thread.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        namesrv_port: int = 0,
        broker_port: int = 0,
        host: str = "127.0.0.1",
        allow_remote: bool = False,
        *,
        brokers: int = 1,
        name_servers: int = 1,
        register_at: str | None = None,
        advertised_host: str | None = None,
        order_message_enable: bool = False,
        clock: Callable[[], int] = now_ms,
        fault_seed: int | None = None,
        **options: Any,
    ) -> None:
        known = [field.name for field in fields(BrokerConfig)]
        for name in options:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"unknown option {name!r}{hint}")
        self.config = BrokerConfig(**options)
        if not 1 <= brokers <= _MAX_SERVERS:
            raise ConfigError(f"brokers is {brokers}, not 1 to {_MAX_SERVERS}")
        if not 0 <= name_servers <= _MAX_SERVERS:
            raise ConfigError(f"name_servers is {name_servers}, not 0 to {_MAX_SERVERS}")
        self._register_at = name_server_addresses(register_at)
        if name_servers == 0 and not self._register_at:
            raise ConfigError("name_servers=0 needs register_at, or nobody finds the brokers")
        bound = _checked_host(host, allow_remote=allow_remote)
        self.faults = Faults(fault_seed)
        self._place = Place(
            host=bound, advertised=_advertised(bound, advertised_host), clock=clock,
            order_message_enable=order_message_enable, faults=self.faults,
        )  # fmt: skip
        self._store = Path(store) if store is not None else None
        self._temporary: Path | None = None
        self._name_servers = [
            NameServerNode(self._place, f"namesrv-{number + 1}", namesrv_port if number == 0 else 0)
            for number in range(name_servers)
        ]
        self._brokers = [
            BrokerNode(
                self._place,
                replace(self.config, broker_name=_numbered(self.config.broker_name, number)),
                broker_port if number == 0 else 0,
            )
            for number in range(brokers)
        ]
        self._guard = threading.RLock()
        self._loop: EventLoop | None = None
        self._registry: Registry

    # --------------------------------------------------------------------------- state

    @property
    def running(self) -> bool:
        """Whether the cluster serves."""
        return self._loop is not None

    @property
    def namesrv_addr(self) -> str:
        """host:port of the name servers with ";" between them, as clients take it.

        Raises ClientStateError before the first start.
        """
        return ";".join(self.namesrv_addrs) or ";".join(self._register_at)

    @property
    def namesrv_addrs(self) -> list[str]:
        """host:port of each name server; raises ClientStateError before the first start."""
        return [node.address for node in self._name_servers]

    @property
    def broker_addr(self) -> str:
        """host:port of the first broker; raises ClientStateError before the first start."""
        return self._brokers[0].address

    @property
    def broker_addrs(self) -> list[str]:
        """host:port of each broker; raises ClientStateError before the first start."""
        return [node.address for node in self._brokers]

    @property
    def broker_name(self) -> str:
        """Name of the first broker in routes and message queues."""
        return self.config.broker_name

    @property
    def broker_names(self) -> list[str]:
        """Names of all brokers."""
        return [node.config.broker_name for node in self._brokers]

    @property
    def store(self) -> Path:
        """Directory of the messages; raises ClientStateError while there is none."""
        path = self._store or self._temporary
        if path is None:
            raise ClientStateError("the cluster is not running: its temporary store does not exist")
        return path

    # --------------------------------------------------------------------- start, stop

    def start(self) -> Self:
        """Open the store and serve. Does nothing when the cluster runs.

        Raises OSError when a port is taken, StoreError when the store cannot be used.
        """
        with self._guard:
            if self._loop is not None:
                return self
            if self._store is None and self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="rocketmq-fast-"))
            loop = EventLoop("rocketmq-embedded")
            self._registry = Registry(loop, self._name_servers, self._register_at)
            try:
                name_servers = [
                    self._open_name_server(loop, number)
                    for number in range(len(self._name_servers))
                ]
                brokers = [self._open_broker(loop, number) for number in range(len(self._brokers))]
            except BaseException:
                self._abandon_opened()
                loop.stop()
                raise
            self._loop = loop
            # Before the loop runs: who connects finds all routes.
            for broker in brokers:
                broker.start()
            for name_server in name_servers:
                name_server.start()
            loop.start()
            self._registry.wait(_CALL_SECONDS)
            return self

    def _open_name_server(self, loop: EventLoop, number: int) -> NameServer:
        node = self._name_servers[number]
        folder = make_directory(self.store) / (node.name if number else "config")
        return node.open(loop, folder, durable=self._store is not None)

    def _open_broker(self, loop: EventLoop, number: int, port: int | None = None) -> Broker:
        node = self._brokers[number]
        root = make_directory(self.store)
        return node.open(
            loop, root / node.config.broker_name if number else root, self._registry.register,
            durable=self._store is not None, port=port,
        )  # fmt: skip

    def _abandon_opened(self) -> None:
        for node in self._name_servers:
            if node.inner is not None:
                node.inner.server.close()
                node.inner = None
        for broker in self._brokers:
            if broker.inner is not None:
                broker.inner.stop_serving()
                broker.inner.abandon()
                broker.inner = None

    def stop(self) -> None:
        """Stop serving, save everything, remove a temporary store. Does nothing when stopped.

        Raises OSError when something could not be saved.
        """
        with self._guard, contextlib.ExitStack() as stack:
            stack.callback(self._remove_temporary)
            for broker in self._stop_serving(killed=False):
                stack.callback(broker.close)

    def kill(self) -> None:
        """Stop as a killed process would: nothing is saved, no client is told.

        The store, a temporary one too, stays for the next start().
        """
        with self._guard:
            for broker in self._stop_serving(killed=True):
                broker.abandon()

    def _stop_serving(self, *, killed: bool) -> list[Broker]:
        if self._loop is None:
            return []
        ended = [self._stop_one(number, killed=killed) for number in range(len(self._brokers))]
        for node in self._name_servers:
            if node.inner is not None:
                self._on_loop(node.inner.stop_serving)
                node.inner = None
        self._loop.stop()
        self._loop = None
        return [broker for broker in ended if broker is not None]

    def _stop_one(self, number: int, *, killed: bool) -> Broker | None:
        """Let a broker serve no more and leave all name servers; None when it was stopped."""
        node = self._brokers[number]

        def end() -> tuple[Broker | None, Registrar | None]:
            broker, node.inner = node.inner, None
            if broker is None:
                return None, None
            broker.stop_serving()
            return broker, self._registry.forget(broker)

        broker, registrar = self._on_loop(end)
        # What the ends of its connections set off has run when this returns.
        self._on_loop(lambda: None)
        if registrar is not None:
            registrar.leave(killed=killed)
        return broker

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ------------------------------------------------------------- one server of several

    def stop_broker(self, number: int = 0) -> None:
        """Stop one broker; it saves everything and leaves the name servers.

        Does nothing when it is stopped. Raises OSError when something could not be saved.
        """
        self._end_broker(number, kill=False)

    def kill_broker(self, number: int = 0) -> None:
        """End one broker as kill() does. Does nothing when it is stopped."""
        self._end_broker(number, kill=True)

    def _end_broker(self, number: int, *, kill: bool) -> None:
        with self._guard:
            self._running_loop()
            broker = self._stop_one(number, killed=kill)
            if broker is not None:
                end = broker.abandon if kill else broker.close
                end()

    def start_broker(self, number: int = 0, port: int | None = None) -> None:
        """Start a stopped broker again, on its port or another one (0: a free one).

        Does nothing when it runs. Raises as start().
        """
        with self._guard:
            loop = self._running_loop()
            node = self._brokers[number]
            if node.inner is not None:
                return
            broker = self._open_broker(loop, number, port)
            self._on_loop(broker.start)
            self._registry.wait(_CALL_SECONDS)

    def move_broker(self, number: int = 0, port: int = 0) -> None:
        """Stop a broker and start it on another port (0: a free one), with the same messages."""
        with self._guard:
            self.stop_broker(number)
            self.start_broker(number, port)

    def stop_namesrv(self, number: int = 0) -> None:
        """Stop one name server. Does nothing when it is stopped."""
        with self._guard:
            self._running_loop()
            node = self._name_servers[number]
            inner, node.inner = node.inner, None
            if inner is not None:
                self._on_loop(inner.stop_serving)

    def start_namesrv(self, number: int = 0) -> None:
        """Start a stopped name server on its port; it knows all running brokers at once."""
        with self._guard:
            loop = self._running_loop()
            if self._name_servers[number].inner is not None:
                return
            inner = self._open_name_server(loop, number)

            def serve() -> None:
                for node in self._brokers:
                    if node.inner is not None:
                        node.inner.register()
                inner.start()

            self._on_loop(serve)

    def _running_loop(self) -> EventLoop:
        if self._loop is None:
            raise ClientStateError("the cluster is not running")
        return self._loop

    # -------------------------------------------------------------- things tests need

    def create_topic(self, topic: str, queues: int = 4, perm: int = 6) -> None:
        """Create a topic on all running brokers or change it; its route is there on return."""
        check_topic_name(topic)
        config = TopicConfig(topic, queues, queues, perm)
        self._each(lambda broker: broker.state.topics.put(config))
        self._registry.wait(_CALL_SECONDS)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages, on all running brokers."""

        def delete(broker: Broker) -> None:
            broker.state.topics.delete(topic)
            broker.state.store.delete_topic(topic)

        self._each(delete)

    def message_count(self, topic: str) -> int:
        """Return how many messages the queues of a topic hold, on all running brokers."""

        def count(broker: Broker) -> int:
            store = broker.state.store
            return sum(
                store.max_offset(topic, queue_id) - store.min_offset(topic, queue_id)
                for queue_id in store.queue_ids(topic)
            )

        return sum(self._each(count))

    def committed(self, group: str, topic: str, queue_id: int, broker: int = 0) -> int:
        """Return a committed offset, -1 without one."""
        return self._call(lambda it: it.state.offsets.query(group, topic, queue_id), broker)

    def forget_locks(self, group: str | None = None) -> None:
        """Let all running brokers forget the queue locks of a group, or of all groups."""
        self._each(lambda broker: broker.state.locks.forget(group))

    @property
    def _broker(self) -> Broker | None:
        return self._brokers[0].inner

    def _each(self, action: Callable[[Broker], _T]) -> list[_T]:
        """Run something for every running broker on the loop's thread."""
        return self._on_loop(
            lambda: [action(node.inner) for node in self._brokers if node.inner is not None]
        )

    def _call(self, action: Callable[[Broker], _T], number: int = 0) -> _T:
        """Run something for one broker on the loop's thread and return what it returns."""

        def run() -> _T:
            broker = self._brokers[number].inner
            if broker is None:
                raise ClientStateError(f"broker {number} is not running")
            return action(broker)

        return self._on_loop(run)

    def _on_loop(self, action: Callable[[], _T]) -> _T:
        """Run something on the loop's thread and return what it returns."""
        loop = self._running_loop()
        if loop.in_loop:
            return action()
        done = threading.Event()
        results: list[_T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(action())
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                errors.append(error)
            finally:
                done.set()

        loop.call_soon(run)
        if not done.wait(_CALL_SECONDS):
            raise ClientStateError("the cluster does not respond")
        if errors:
            raise errors[0]
        return results[0]


def _numbered(name: str, number: int) -> str:
    """Return the name of broker `number` when the first has this name."""
    if number == 0:
        return name
    if name.endswith("-a"):
        return f"{name[:-1]}{chr(ord('a') + number)}"
    return f"{name}-{number + 1}"


def _checked_host(host: str, *, allow_remote: bool) -> str:
    """Return the IP address to bind. Raises ConfigError for one that others can reach."""
    try:
        resolved = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        address = ipaddress.ip_address(resolved.partition("%")[0])
    except (OSError, ValueError) as error:
        raise ConfigError(f"host {host!r} cannot be resolved: {error}") from error
    if not address.is_loopback and not allow_remote:
        raise ConfigError(
            f"host {host!r} can be reached from other machines; the embedded cluster checks no "
            "credentials. Set allow_remote=True if that is wanted"
        )
    return resolved


def _advertised(host: str, advertised_host: str | None) -> str:
    """Return the address for clients. Raises ConfigError when it has to be given."""
    chosen = advertised_host if advertised_host is not None else host
    try:
        address = ipaddress.ip_address(chosen.partition("%")[0])
    except ValueError as error:
        raise ConfigError(f"advertised_host {chosen!r} is not an IP address") from error
    if address.is_unspecified:
        raise ConfigError(f"{chosen} is no address to connect to: give advertised_host")
    return chosen
