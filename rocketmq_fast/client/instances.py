"""The instances of the process, by client id; each lives while somebody uses it."""

from __future__ import annotations

import os
import threading
import time

from rocketmq_fast.client.address_server import AddressServer
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.lifecycle import in_child
from rocketmq_fast.client.options import ClientOptions
from rocketmq_fast.errors import ConfigError, NoNameServer

_instances: dict[str, ClientInstance] = {}
_instances_lock = threading.Lock()


@in_child
def _abandon_instances() -> None:
    """A forked child closes its copies of the sockets; the parent's connections go on."""
    global _instances_lock
    _instances_lock = threading.Lock()
    for instance in _instances.values():
        instance.loop.abandon()
    _instances.clear()


def unique_instance_name() -> str:
    """What "DEFAULT" turns into for a client that shall not share: pid#nanoseconds."""
    return f"{os.getpid()}#{time.time_ns()}"


def acquire_instance(
    client_id: str,
    options: ClientOptions,
) -> ClientInstance:
    """The instance of a client id, made and started if need be. Pair with release_instance.

    Raises ConfigError when it exists with other name servers, NoNameServer when an address server
    shall name them and does not.
    """
    addresses, address_server = options.namesrv_addr, options.address_server()
    while True:
        with _instances_lock:
            instance = _instances.get(client_id)
            if instance is not None and not instance.uses_name_servers_of(options):
                raise ConfigError(
                    f"client {client_id!r} uses the name servers "
                    f"{instance.name_servers.addresses}, not {options.namesrv_addr}; give another "
                    "instance_name"
                )
            if instance is None and (addresses or address_server is None):
                instance = ClientInstance(client_id, options, addresses, address_server)
                _instances[client_id] = instance
            if instance is not None:
                instance.users += 1
                instance.start()
                return instance
        if address_server is not None:
            addresses = _first_list(address_server)  # not under the lock: it takes its time


def _first_list(server: AddressServer) -> tuple[str, ...]:
    """What a client starts with. Raises NoNameServer that says what to do."""
    try:
        return server.fetch()
    except NoNameServer as error:
        raise NoNameServer(
            "namesrv_addr is not given, nor NAMESRV_ADDR in the environment, and the address "
            f"server does not help: {error}",
            server.url,
        ) from error


def release_instance(instance: ClientInstance) -> None:
    """Give up one use; the last one stops the instance."""
    with _instances_lock:
        instance.users -= 1
        last = instance.users == 0
        if last:
            _instances.pop(instance.client_id, None)
    if last:
        instance.stop()
