"""Many idle clients at the embedded servers: whether they are served, and what each one costs.

Plain sockets stand for the clients. At a name server each asks for a route; at a broker each sends
a heartbeat, as members of groups of ten, and some of them pull a message.
"""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from benchmarks.measure import middle, say
from rocketmq_fast._core import decode_messages
from rocketmq_fast.protocol.codes import RequestCode
from tests.embedded_raw import PULL, SEND, Raw, heartbeat, pull_fields, send_fields

TOPIC = "Idle"
NAME_SERVER, BROKER = "name server", "broker"
# Files beside the connections: the store, the event loops, standard streams, libraries.
SPARE_FILES = 100
_GROUP = 10
_ASKING = 100
_IDLE_SECONDS = 5.0


class Servers(Protocol):
    """The process under test."""

    namesrv_addr: str
    broker_addr: str

    @property
    def pid(self) -> int:
        """Its process."""

    def rss_mib(self) -> float:
        """Resident memory."""


def raise_file_limit(count: int) -> None:
    """Let this process and its children have so many connections. Exits where they may not."""
    needed = count + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SystemExit(
            f"{count:,} connections need {needed:,} open files in the process of the servers, and "
            f"as many here; the limit is {hard:,}: `ulimit -Hn {needed}`, or fewer --connections"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _opened(stack: ExitStack, address: str, count: int) -> tuple[list[Raw], float]:
    """Connections that are served, and the seconds until the last one was."""
    began = time.perf_counter()
    clients = [stack.enter_context(Raw(address, timeout=60.0)) for _ in range(count)]
    clients[-1].call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"})
    return clients, time.perf_counter() - began


def _routes(servers: Servers, clients: list[Raw]) -> list[float]:
    """Ask for the route; seconds of each answer."""
    seconds = []
    for client in clients:
        began = time.perf_counter()
        answer = client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        seconds.append(time.perf_counter() - began)
        if servers.broker_addr.encode() not in answer.body:
            raise RuntimeError(f"no route: {answer.remark}")
    return seconds


def _members(clients: list[Raw]) -> None:
    """Send the heartbeat of each."""
    for number, client in enumerate(clients):
        group = f"idle_{number // _GROUP}"
        body = heartbeat(f"127.0.0.1@{number}", group, {TOPIC: ("*", [], 1)})
        answer = client.call(RequestCode.HEART_BEAT, None, body)
        if answer.code != 0:
            raise RuntimeError(f"heartbeat of client {number}: {answer.remark}")


def _pulls(clients: list[Raw]) -> list[float]:
    """Pull the message that is there; seconds of each answer."""
    seconds = []
    step = max(1, len(clients) // _ASKING)
    for number, client in list(enumerate(clients))[::step]:
        fields = pull_fields(TOPIC, consumerGroup=f"idle_{number // _GROUP}")
        began = time.perf_counter()
        answer = client.call(PULL, fields)
        seconds.append(time.perf_counter() - began)
        bodies = [message.body for message in decode_messages(answer.body)]
        if bodies != [b"idle"]:
            raise RuntimeError(f"client {number} got {bodies}: {answer.remark}")
    return seconds


def measure_connections(
    servers: Servers, name: str, count: int, *, idle_seconds: float = _IDLE_SECONDS
) -> dict[str, Any]:
    """Connect so many clients to the NAME_SERVER or the BROKER of a process that had none yet.

    Raises RuntimeError when one is not served.
    """
    with Raw(servers.broker_addr) as producer:
        answer = producer.call(SEND, send_fields(TOPIC), b"idle")
        if answer.code != 0:
            raise RuntimeError(f"send: {answer.remark}")
    address = servers.broker_addr if name == BROKER else servers.namesrv_addr
    before = servers.rss_mib()
    with ExitStack() as stack:
        clients, seconds = _opened(stack, address, count)
        connected = servers.rss_mib()
        if name == BROKER:
            _members(clients)
            answers = _pulls(clients)
        else:
            answers = _routes(servers, clients)
        served = servers.rss_mib()
        cpu = _cpu_seconds(servers.pid)
        time.sleep(idle_seconds)
        cpu = _cpu_seconds(servers.pid) - cpu
        first = clients[0].call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"})
        if not first.remark:
            raise RuntimeError("the first connection is not served any more")
    say(f"{count:,} connections at the {name} in {seconds:.1f} s")
    return {
        "server": name,
        "connections": count,
        "connect_seconds": seconds,
        "kib_connected": (connected - before) * 1024 / count,
        "kib_served": (served - before) * 1024 / count,
        "answer_ms": middle(answers) * 1000,
        "idle_cpu": cpu / idle_seconds if idle_seconds else 0.0,
    }
