"""The address that a client tells others about itself, and the other port of a broker."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import ip_address

from rocketmq_fast.errors import ConfigError

_SIOCGIFADDR = 0x8915


def _interface_addresses() -> Iterator[str]:
    """IPv4 addresses of the interfaces that are no bridges; Linux only."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if os.path.isdir(f"/sys/class/net/{name}/bridge"):
                continue
            request = struct.pack("256s", name.encode()[:15])
            # An interface without an IPv4 address says so with an error.
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                yield socket.inet_ntoa(answer[20:24])


def vip_channel(address: str) -> str:
    """The broker's second port, which pulls do not use: two below its first."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def parse_offset_id(msg_id: str) -> tuple[str, int]:
    """(broker address, commit log offset) of an offset message id. Raises ConfigError."""
    try:
        raw = bytes.fromhex(msg_id)
    except (TypeError, ValueError):
        raw = b""
    if len(raw) not in (16, 28):
        raise ConfigError(f"{msg_id!r} is no message id: 32 or 56 hex digits")
    host = ip_address(raw[:-12])
    port = int.from_bytes(raw[-12:-8], "big")
    text = f"[{host}]" if host.version == 6 else str(host)
    return f"{text}:{port}", int.from_bytes(raw[-8:], "big")


def local_ip() -> str:
    """Java's choice: the first IPv4 address outside 127/8 and 192.168/16, else the last one.

    Falls back to what the host name resolves to, and to 127.0.0.1.
    """
    addresses: list[str] = []
    if sys.platform == "linux":
        addresses = list(_interface_addresses())
    if not addresses:
        with contextlib.suppress(OSError):
            found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
            addresses = [str(item[4][0]) for item in found]
    outside = [a for a in addresses if not a.startswith("127.")]
    for address in outside:
        if not address.startswith("192.168."):
            return address
    return outside[-1] if outside else "127.0.0.1"
