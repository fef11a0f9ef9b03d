"""The brokers and name servers of a cluster, each started and stopped on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketmq_fast.embedded.broker import Broker
from rocketmq_fast.embedded.files import make_directory
from rocketmq_fast.embedded.name_server import NameServer
from rocketmq_fast.embedded.registration import Registrar, names_of, topics_of
from rocketmq_fast.errors import ClientStateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketmq_fast.embedded.config import BrokerConfig
    from rocketmq_fast.embedded.faults import Faults
    from rocketmq_fast.remoting.loop import EventLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the servers of a cluster listen, and what they share."""

    host: str
    advertised: str
    clock: Callable[[], int]
    order_message_enable: bool
    faults: Faults

    def address(self, port: int) -> str:
        """Return host:port as clients are told it; raises ClientStateError for port 0."""
        if port == 0:
            raise ClientStateError("the cluster was not started yet: its port is not chosen")
        host = f"[{self.advertised}]" if ":" in self.advertised else self.advertised
        return f"{host}:{port}"


class NameServerNode:
    """One name server. `inner` is there while it runs."""

    def __init__(self, place: Place, name: str, port: int) -> None:
        self._place = place
        self.name = name
        self.port = port
        self.inner: NameServer | None = None

    @property
    def address(self) -> str:
        """host:port; raises ClientStateError before the first start."""
        return self._place.address(self.port)

    def open(self, loop: EventLoop, folder: Path, *, durable: bool) -> NameServer:
        """Listen; start() of what is returned serves. Raises OSError when the port is taken."""
        inner = NameServer(
            loop,
            kv_path=make_directory(folder) / "kvConfig.json",
            order_message_enable=self._place.order_message_enable,
            durable=durable,
            name=self.name,
            faults=self._place.faults,
        )
        inner.server.listen(self._place.host, self.port)
        self.port = inner.server.port
        self.inner = inner
        return inner


class BrokerNode:
    """One broker. `inner` is there while it runs."""

    def __init__(self, place: Place, config: BrokerConfig, port: int) -> None:
        self._place = place
        self.config = config
        self.port = port
        self.inner: Broker | None = None

    @property
    def address(self) -> str:
        """host:port; raises ClientStateError before the first start."""
        return self._place.address(self.port)

    def open(
        self, loop: EventLoop, root: Path, register: Callable[[Broker], None], *, durable: bool,
        port: int | None = None,
    ) -> Broker:  # fmt: skip
        """Open the store and listen, on another `port` if one is given; start() of it serves.

        Raises OSError when the port is taken, StoreError when the store cannot be used.
        """
        inner = Broker(
            loop, make_directory(root), self.config, host=self._place.host,
            port=self.port if port is None else port, advertised_host=self._place.advertised,
            register=register, clock=self._place.clock, durable=durable, faults=self._place.faults,
        )  # fmt: skip
        self.port = inner.server.port
        self.inner = inner
        return inner


class Registry:
    """Who is registered where: in the name servers of the cluster, and in others."""

    def __init__(
        self, loop: EventLoop, name_servers: list[NameServerNode], outside: tuple[str, ...]
    ) -> None:
        self._loop = loop
        self._name_servers = name_servers
        self._outside = outside
        self._registrars: dict[Broker, Registrar] = {}

    def register(self, broker: Broker) -> None:
        """Tell all name servers the topics of now; the cluster's own know at once. Loop thread.

        The first of them tells which topics are ordered, as it does a Java broker.
        """
        topics = topics_of(broker)
        tables = [
            node.inner.register(names_of(broker), topics, broker.state.topics.version)
            for node in self._name_servers
            if node.inner is not None
        ]
        if self._outside:
            registrar = self._registrars.get(broker)
            if registrar is None:
                registrar = Registrar(self._loop, self._outside, broker)
                self._registrars[broker] = registrar
            registrar.register()
        if tables and tables[0] is not None:
            broker.state.topics.set_ordered(tables[0])

    def wait(self, timeout: float) -> None:
        """Wait until the name servers outside have answered. Not on the loop's thread."""
        for registrar in list(self._registrars.values()):
            registrar.wait(timeout)

    def forget(self, broker: Broker) -> Registrar | None:
        """Take a broker that ends out of the cluster's name servers. Loop thread.

        Returns who tells the others.
        """
        for node in self._name_servers:
            if node.inner is not None:
                node.inner.routes.unregister(broker.address)
        return self._registrars.pop(broker, None)
