"""Options: the Java property names in snake_case, checked when they are given."""

from __future__ import annotations

import copy
import difflib
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Self

from rocketmq_fast.client.address_server import (
    DEFAULT_DOMAIN,
    DEFAULT_SUBGROUP,
    AddressServer,
    split_addresses,
)
from rocketmq_fast.client.addresses import local_ip
from rocketmq_fast.client.namespaces import Namespace, check_namespace, namespace_of_endpoint
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.remoting.hooks import RpcHook, checked_hooks
from rocketmq_fast.remoting.security import (
    Credentials,
    CredentialsProvider,
    Signer,
    tls_context,
)


def name_server_list(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Addresses of "a:1;b:2", "a:1,b:2" or a list; the environment's NAMESRV_ADDR for None.

    Empty when there are none: then an address server is asked. Raises ConfigError.
    """
    if value is None:
        value = os.environ.get("NAMESRV_ADDR", "")
        return split_addresses(value)
    addresses = split_addresses(value if isinstance(value, str) else ";".join(value))
    if not addresses:
        raise ConfigError("namesrv_addr is empty; None stands for the environment's NAMESRV_ADDR")
    return addresses


def milliseconds(name: str, value: object) -> int:
    """A time option: int or float of milliseconds, or a timedelta. Raises ConfigError."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} is {value!r}, not milliseconds or a timedelta")
    return int(value)


def check_range(name: str, value: object, low: int, high: int, also: int | None = None) -> int:
    """An integer option within bounds. Raises ConfigError that names all three."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} is {value!r}, not an integer")
    if value != also and not low <= value <= high:
        extra = f" or {also}" if also is not None else ""
        raise ConfigError(f"{name} is {value}; it must be {low} to {high}{extra}")
    return value


def reject_unknown(what: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise TypeError for an option that does not exist, naming the nearest that does."""
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{what} has no option {name!r}{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What producers, consumers and admins share. Times are milliseconds.

    namesrv_addr: "host:port;host:port" or with commas, a list, or None for the environment's
        NAMESRV_ADDR. Where neither is given, the address server is asked for the list at start and
        then every 120 s.
    namesrv_domain: "host" (port 8080) or "host:port" of the address server, by default the
        environment's ROCKETMQ_NAMESRV_DOMAIN, else Java's jmenv.tbsite.net.
    namesrv_domain_subgroup: the last part of the path there, /rocketmq/nsaddr by default; or the
        environment's ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP.
    namespace: prefix of the names of topics and groups on the wire, which the program does not see.
        An endpoint "http://MQ_INST_..." as namesrv_addr names one too.
    client_ip: the address part of the client id; found out when None.
    instance_name: "DEFAULT" becomes unique per client, any other name is shared by all clients that
        give it: they use one client instance with one connection per broker.
    unit_name: joins the client id and the path of the address server. unit_mode: what producers and
        consumers tell brokers, which mark the topics that they make for them.
    vip_channel_enabled: use the brokers' second port, two below the first, for everything but pulls
        and heartbeats.
    access_key, secret_key, security_token: sign every request. credentials: a callable that gives
        Credentials, asked before each request, in place of the three.
    use_tls: True, or an ssl.SSLContext. The certificate and the host name are verified, against the
        system's authorities or tls_ca_file; tls_cert_file and tls_key_file for mutual TLS.
        tls_insecure=True turns the verification off.
    rpc_hooks: an RpcHook or several, which see every request and answer.
    """

    namesrv_addr: Any = None
    namesrv_domain: str | None = None
    namesrv_domain_subgroup: str | None = None
    client_ip: str | None = None
    instance_name: str = "DEFAULT"
    namespace: str | None = None
    unit_name: str | None = None
    unit_mode: bool = False
    vip_channel_enabled: bool = False
    poll_name_server_interval: Any = 30_000
    heartbeat_broker_interval: Any = 30_000
    persist_consumer_offset_interval: Any = 5_000
    pull_time_delay_millis_when_exception: Any = 1_000
    mq_client_api_timeout: Any = 3_000
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    credentials: CredentialsProvider | None = field(default=None, repr=False)
    use_tls: bool | ssl.SSLContext = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_insecure: bool = False
    rpc_hooks: Any = None

    @classmethod
    def option_names(cls) -> list[str]:
        """All option names."""
        return [item.name for item in fields(cls)]

    @classmethod
    def of(cls, what: str, given: Mapping[str, Any]) -> Self:
        """Build and check. Raises TypeError for an unknown name, ConfigError for a bad value."""
        reject_unknown(what, given, cls.option_names())
        return cls(**given)

    def __post_init__(self) -> None:
        if self.namespace is None and isinstance(self.namesrv_addr, str):
            named = namespace_of_endpoint(self.namesrv_addr)
            object.__setattr__(self, "namespace", named)
        if self.namespace is not None:
            check_namespace(self.namespace)
        object.__setattr__(self, "namesrv_addr", name_server_list(self.namesrv_addr))
        for name, default in (
            ("namesrv_domain", DEFAULT_DOMAIN),
            ("namesrv_domain_subgroup", DEFAULT_SUBGROUP),
        ):
            if getattr(self, name) is None:
                value = os.environ.get(f"ROCKETMQ_{name.upper()}") or default
                object.__setattr__(self, name, value)
        self.address_server()  # a wrong domain is told now
        if self.client_ip is None:
            object.__setattr__(self, "client_ip", local_ip())
        for name in (
            "poll_name_server_interval",
            "heartbeat_broker_interval",
            "persist_consumer_offset_interval",
            "mq_client_api_timeout",
        ):
            self._milliseconds(name, 1)
        self._milliseconds("pull_time_delay_millis_when_exception", 0)
        self._check_security()
        hooks = checked_hooks("rpc_hooks", self.rpc_hooks, RpcHook)
        object.__setattr__(self, "rpc_hooks", hooks)

    def _check_security(self) -> None:
        if self.credentials is not None and not callable(self.credentials):
            raise ConfigError("credentials is not callable")
        if self.credentials is None and (self.access_key is None) != (self.secret_key is None):
            raise ConfigError("access_key and secret_key are needed both")
        if not isinstance(self.use_tls, (bool, ssl.SSLContext)):
            raise ConfigError(f"use_tls is {self.use_tls!r}, not a bool or an ssl.SSLContext")

    def signer(self) -> Signer | None:
        """What signs the requests; None without credentials. Raises ConfigError."""
        if self.credentials is not None:
            return Signer(self.credentials)
        if self.access_key is None or self.secret_key is None:
            return None
        fixed = Credentials(self.access_key, self.secret_key, self.security_token)
        return Signer(lambda: fixed)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None for plain connections. Raises ConfigError."""
        if isinstance(self.use_tls, ssl.SSLContext):
            return self.use_tls
        if not self.use_tls:
            return None
        return tls_context(
            ca_file=self.tls_ca_file,
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            key_password=self.tls_key_password,
            insecure=self.tls_insecure,
        )

    def _milliseconds(self, name: str, low: int, high: int = 2**31 - 1) -> None:
        value = milliseconds(name, getattr(self, name))
        object.__setattr__(self, name, check_range(name, value, low, high))

    @property
    def names(self) -> Namespace:
        """What makes names on the wire of the program's names, and back."""
        return Namespace(self.namespace)

    def client_id(self, instance_name: str) -> str:
        """ip@instance[@unit]."""
        unit = f"@{self.unit_name}" if self.unit_name else ""
        return f"{self.client_ip}@{instance_name}{unit}"

    def with_name_servers(self, namesrv_addr: str | Iterable[str]) -> Self:
        """The same with other name servers. Raises ConfigError."""
        changed = copy.copy(self)
        object.__setattr__(changed, "namesrv_addr", name_server_list(namesrv_addr))
        return changed

    def address_server(self) -> AddressServer | None:
        """What names the name servers; None where they are given. Raises ConfigError."""
        if self.namesrv_addr:
            return None
        return AddressServer(
            self.namesrv_domain or DEFAULT_DOMAIN,
            self.namesrv_domain_subgroup or DEFAULT_SUBGROUP,
            self.unit_name,
        )

    @property
    def api_timeout(self) -> float:
        """mq_client_api_timeout in seconds."""
        return float(self.mq_client_api_timeout) / 1000
