"""Options as Spark hands them over, name to text: found whatever their case, checked, told apart.

Reading and writing have tables of their own options; those of the connection are in both.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rocketmq_fast.client.namespaces import Namespace, check_namespace
from rocketmq_fast.client.options import ClientOptions, name_server_list
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.protocol.names import check_group, check_topic

# Canonical name -> other names for it.
CONNECTION_OPTIONS: dict[str, tuple[str, ...]] = {
    "namesrvAddr": ("nameServer", "nameServerAddress"),
    "namespace": (),
    "accessKey": (),
    "secretKey": (),
    "securityToken": (),
    "useTLS": (),
    "tlsCaFile": (),
    "tlsCertFile": (),
    "tlsKeyFile": (),
    "tlsInsecure": (),
}
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20}
_UNITS |= {"g": 1 << 30, "gb": 1 << 30}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TLS_FILES = ("tlsCaFile", "tlsCertFile", "tlsKeyFile")
_NOT_BLANK = ("accessKey", "secretKey", "securityToken")


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How to reach the cluster. Travels to executors, secrets included; repr hides these."""

    namesrv_addr: tuple[str, ...]
    namespace: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    use_tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_insecure: bool = False

    def client_options(self) -> ClientOptions:
        """The same for the client's classes. Raises ConfigError."""
        return ClientOptions(
            namesrv_addr=list(self.namesrv_addr),
            namespace=self.namespace,
            client_ip="127.0.0.1",  # no client id leaves this machine
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
            use_tls=self.use_tls,
            tls_ca_file=self.tls_ca_file,
            tls_cert_file=self.tls_cert_file,
            tls_key_file=self.tls_key_file,
            tls_insecure=self.tls_insecure,
        )


class OptionParser:
    """The given options by canonical name. Raises ConfigError that names the option."""

    def __init__(
        self,
        options: Mapping[str, str],
        known: Mapping[str, tuple[str, ...]],
        what: str = "the rocketmq source",
    ) -> None:
        by_lower: dict[str, tuple[str, str]] = {}
        for canonical, aliases in known.items():
            for name in (canonical, *aliases):
                by_lower[name.lower()] = (canonical, name)
        self._given: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        for name, value in options.items():
            found = by_lower.get(name.lower())
            if found is None:
                near = difflib.get_close_matches(name.lower(), by_lower, 1, 0.0)[0]
                raise ConfigError(
                    f"{what} has no option {name!r}; did you mean {by_lower[near][1]!r}?"
                )
            canonical, spelled = found
            if canonical in self._given:
                raise ConfigError(
                    f"options {self._spelled[canonical]!r} and {spelled!r} mean the same; "
                    "give one of them"
                )
            self._given[canonical] = value
            self._spelled[canonical] = spelled

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def spelled(self, name: str) -> str:
        """The name, of several for one option, that the user gave."""
        return self._spelled.get(name, name)

    def optional(self, name: str) -> str | None:
        """The text, None where it is not given."""
        value = self._given.get(name)
        return None if value is None else value.strip()

    def text(self, name: str, default: str) -> str:
        """The text without blanks around it."""
        return self._given.get(name, default).strip()

    def connection(self) -> ConnectOptions:
        """CONNECTION_OPTIONS."""
        servers = self._name_servers()
        for name in _NOT_BLANK:
            if self.optional(name) == "":
                raise ConfigError(f"option {name!r} is blank; leave it out where it is not needed")
        for one, other in (("accessKey", "secretKey"), ("tlsCertFile", "tlsKeyFile")):
            if (one in self) != (other in self):
                raise ConfigError(f"options {one!r} and {other!r} are needed both")
        if "securityToken" in self and "accessKey" not in self:
            raise ConfigError("option 'securityToken' needs 'accessKey' and 'secretKey'")
        use_tls = self.boolean("useTLS", False)
        for name in (*_TLS_FILES, "tlsInsecure"):
            if name in self and not use_tls:
                raise ConfigError(f"option {name!r} needs 'useTLS' to be true")
        for name in _TLS_FILES:
            path = self.optional(name)
            if path is not None and not os.path.isfile(path):
                raise ConfigError(f"option {name!r} is {path!r}: the driver has no such file")
        namespace = self.optional("namespace")
        if namespace is not None:
            with self._naming("namespace"):
                check_namespace(namespace)
        return ConnectOptions(
            servers,
            namespace,
            self.optional("accessKey"),
            self.optional("secretKey"),
            self.optional("securityToken"),
            use_tls,
            self.optional("tlsCaFile"),
            self.optional("tlsCertFile"),
            self.optional("tlsKeyFile"),
            self.boolean("tlsInsecure", False),
        )

    def _name_servers(self) -> tuple[str, ...]:
        given = self._given.get("namesrvAddr")
        if given is not None and not given.strip(";, "):
            raise ConfigError(
                f"option {self.spelled('namesrvAddr')!r} is blank; it is host:port;host:port"
            )
        with self._naming("namesrvAddr"):
            servers = name_server_list(given)
        if not servers:
            raise ConfigError(
                "option 'namesrvAddr' is not set, and neither is the environment's NAMESRV_ADDR"
            )
        return servers

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """What the client's checks say gets the name of the option."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError(f"option {self.spelled(name)!r}: {error}") from error

    def group(self, name: str, default: str, reserved: str) -> str:
        """The name of a group, which is not the one that is RocketMQ's own."""
        value = self.text(name, default)
        with self._naming(name):
            check_group(value, reserved)
        return value

    def topics(self, name: str, names: Iterable[str], namespace: str | None) -> tuple[str, ...]:
        """Names of topics, each once; with the namespace they must not be too long."""
        found: list[str] = []
        for topic in (topic.strip() for topic in names):
            with self._naming(name):
                check_topic(topic)
                check_topic(Namespace(namespace).wrap(topic))
            if topic not in found:
                found.append(topic)
        return tuple(found)

    def listed(self, name: str) -> list[str]:
        """Names in a JSON list, as Spark hands over several paths."""
        value = self.text(name, "")
        try:
            names = json.loads(value)
        except ValueError:
            names = None
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise ConfigError(
                f'option {self.spelled(name)!r} is {value!r}, not a JSON list of names as ["A","B"]'
            )
        return names

    def boolean(self, name: str, default: bool) -> bool:
        """A flag, given as true or false."""
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise ConfigError(f"option {self.spelled(name)!r} is {value!r}, not true or false")
        return value == "true"

    def choice(self, name: str, *choices: str) -> str:
        """One of some words, the first where none is given."""
        value = self.text(name, choices[0]).lower()
        if value not in choices:
            raise ConfigError(
                f"option {self.spelled(name)!r} is {value!r}, not one of {', '.join(choices)}"
            )
        return value

    def integer(self, name: str, default: int, low: int, high: int = 2**63 - 1) -> int:
        """An integer within bounds."""
        value = self.text(name, str(default))
        if re.fullmatch(r"[+-]?[0-9]{1,19}", value) is None:
            raise ConfigError(f"option {self.spelled(name)!r} is {value!r}, not an integer")
        return self._bounded(name, int(value), low, high)

    def optional_integer(self, name: str, low: int) -> int | None:
        """An integer, None where it is not given."""
        return self.integer(name, low, low) if name in self else None

    def size(self, name: str, default: int, high: int = 2**62) -> int:
        """Bytes, as 65536, 64k or 16m."""
        value = self.text(name, str(default)).lower()
        match = re.fullmatch(r"([0-9]{1,18}) ?([a-z]{0,2})", value)
        if match is None or match[2] not in _UNITS:
            raise ConfigError(
                f"option {self.spelled(name)!r} is {value!r}, not a size as 16m or 65536"
            )
        return self._bounded(name, int(match[1]) * _UNITS[match[2]], 1, high)

    def seconds(self, name: str, default: str) -> float:
        """A duration as 500ms, 30s, 15m, 2h or 1d."""
        value = self.text(name, default).lower()
        found = parse_duration(value)
        if found is None:
            raise ConfigError(
                f"option {self.spelled(name)!r} is {value!r}, not a duration as 30s, 15m or 1h"
            )
        return found

    def _bounded(self, name: str, value: int, low: int, high: int) -> int:
        if not low <= value <= high:
            bound = f"at least {low}" if value < low else f"at most {high}"
            raise ConfigError(f"option {self.spelled(name)!r} is {value}; it must be {bound}")
        return value


def parse_duration(text: str) -> float | None:
    """Seconds of "500ms", "30s", "15m", "2h", "1d"; None for anything else."""
    match = re.fullmatch(r"([0-9]{1,9}) ?(ms|s|m|h|d)", text.strip().lower())
    return None if match is None else int(match[1]) * _SECONDS[match[2]]
