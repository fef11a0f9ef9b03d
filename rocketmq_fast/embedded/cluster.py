"""A name server and a broker in this process, over real sockets."""

from __future__ import annotations

import ipaddress
import logging
import shutil
import socket
import tempfile
import threading
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rocketmq_fast.embedded.broker import Broker
from rocketmq_fast.embedded.config import BrokerConfig
from rocketmq_fast.embedded.files import make_directory
from rocketmq_fast.embedded.name_server import NameServer
from rocketmq_fast.embedded.store import now_ms
from rocketmq_fast.embedded.topics import TopicConfig, check_topic_name
from rocketmq_fast.errors import ClientStateError, ConfigError
from rocketmq_fast.remoting.loop import EventLoop

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_CALL_SECONDS = 30.0


class Cluster:
    """A name server and a broker that clients of any language can use.

    With `store` the messages stay in that directory and are there again after a restart; without it
    they live in a temporary directory that stop() removes. Ports of 0 are chosen by the system once
    and kept for later starts. The cluster listens on loopback only unless `allow_remote` is set;
    `advertised_host` is the address that clients are told (an IP address), by default `host`.

    Further keyword options are the fields of BrokerConfig, for example `delay_levels="1s 2s"`,
    `broker_name`, `flush_disk_type="SYNC_FLUSH"`. `clock` gives the time of messages in ms.

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
        advertised_host: str | None = None,
        order_message_enable: bool = False,
        clock: Callable[[], int] = now_ms,
        **options: Any,
    ) -> None:
        known = [field.name for field in fields(BrokerConfig)]
        for name in options:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"unknown option {name!r}{hint}")
        self.config = BrokerConfig(**options)
        self._host = _checked_host(host, allow_remote=allow_remote)
        self._advertised = _advertised(self._host, advertised_host)
        self._store = Path(store) if store is not None else None
        self._temporary: Path | None = None
        self._namesrv_port = namesrv_port
        self._broker_port = broker_port
        self._order_message_enable = order_message_enable
        self._clock = clock
        self._guard = threading.RLock()
        self._loop: EventLoop | None = None
        self._namesrv: NameServer | None = None
        self._broker: Broker | None = None

    # --------------------------------------------------------------------------- state

    @property
    def running(self) -> bool:
        """Whether the cluster serves."""
        return self._loop is not None

    @property
    def namesrv_addr(self) -> str:
        """host:port of the name server; raises ClientStateError before the first start."""
        return self._address(self._namesrv_port)

    @property
    def broker_addr(self) -> str:
        """host:port of the broker; raises ClientStateError before the first start."""
        return self._address(self._broker_port)

    def _address(self, port: int) -> str:
        if port == 0:
            raise ClientStateError("the cluster was not started yet: its port is not chosen")
        return f"[{self._advertised}]:{port}" if ":" in self._advertised else (
            f"{self._advertised}:{port}"
        )

    @property
    def broker_name(self) -> str:
        """Name of the broker in routes and message queues."""
        return self.config.broker_name

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
            durable = self._store is not None
            if self._store is None and self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="rocketmq-fast-"))
            root = make_directory(self.store)
            loop = EventLoop("rocketmq-embedded")
            namesrv = NameServer(
                loop,
                kv_path=make_directory(root / "config") / "kvConfig.json",
                order_message_enable=self._order_message_enable,
                durable=durable,
            )
            broker: Broker | None = None
            try:
                namesrv.server.listen(self._host, self._namesrv_port)
                broker = Broker(
                    loop, root, self.config, host=self._host, port=self._broker_port,
                    advertised_host=self._advertised, register=self._register,
                    clock=self._clock, durable=durable,
                )  # fmt: skip
            except BaseException:
                namesrv.server.close()
                loop.stop()
                raise
            self._namesrv_port = namesrv.server.port
            self._broker_port = broker.server.port
            self._namesrv, self._broker, self._loop = namesrv, broker, loop
            broker.register()
            loop.start()
            loop.call_soon(namesrv.start)
            loop.call_soon(broker.start)
            return self

    def _register(self, broker: Broker) -> None:
        namesrv = self._namesrv
        if namesrv is None:
            return
        topics = broker.state.topics
        namesrv.routes.register(
            cluster=broker.config.cluster_name,
            name=broker.config.broker_name,
            broker_id=broker.config.broker_id,
            address=broker.address,
            topics=[topic.to_json() for topic in topics.all()],
            data_version=(0, topics.version),
        )
        names = {topic.name for topic in topics.all()}
        for name in [n for n, q in namesrv.routes.topics.items() if n not in names]:
            namesrv.routes.delete_topic(name, broker.config.broker_name)

    def stop(self) -> None:
        """Stop serving, save everything, remove a temporary store. Does nothing when stopped."""
        with self._guard:
            broker = self._stop_serving()
            if broker is not None:
                broker.close()
            self._remove_temporary()

    def kill(self) -> None:
        """Stop as a killed process would: nothing is saved, no client is told.

        The store, a temporary one too, stays for the next start().
        """
        with self._guard:
            broker = self._stop_serving()
            if broker is not None:
                broker.abandon()

    def _stop_serving(self) -> Broker | None:
        loop, namesrv, broker = self._loop, self._namesrv, self._broker
        self._loop = self._namesrv = self._broker = None
        if loop is None or namesrv is None or broker is None:
            return None
        loop.call_soon(namesrv.server.close)
        loop.call_soon(broker.stop_serving)
        loop.stop()
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

    # -------------------------------------------------------------- things tests need

    def create_topic(self, topic: str, queues: int = 4, perm: int = 6) -> None:
        """Create a topic or change it; its route is there when this returns."""
        check_topic_name(topic)
        config = TopicConfig(topic, queues, queues, perm)
        self._call(lambda broker: broker.state.topics.put(config))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages."""

        def delete(broker: Broker) -> None:
            broker.state.topics.delete(topic)
            broker.state.store.delete_topic(topic)

        self._call(delete)

    def message_count(self, topic: str) -> int:
        """Return how many messages the queues of a topic hold."""

        def count(broker: Broker) -> int:
            store = broker.state.store
            return sum(
                store.max_offset(topic, queue_id) - store.min_offset(topic, queue_id)
                for queue_id in store.queue_ids(topic)
            )

        return self._call(count)

    def committed(self, group: str, topic: str, queue_id: int) -> int:
        """Return a committed offset, -1 without one."""
        return self._call(lambda broker: broker.state.offsets.query(group, topic, queue_id))

    def _call(self, action: Callable[[Broker], _T]) -> _T:
        """Run something on the loop's thread and return what it returns."""
        loop, broker = self._loop, self._broker
        if loop is None or broker is None:
            raise ClientStateError("the cluster is not running")
        if loop.in_loop:
            return action(broker)
        done = threading.Event()
        results: list[_T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(action(broker))
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
