"""Where rounds take place: an embedded cluster with faults of its own, or Apache behind proxies."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rocketmq_fast import MessageQueue
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.embedded.damage import damaged_frame, other_route
from rocketmq_fast.protocol import fastjson
from rocketmq_fast.protocol.codes import RequestCode
from tests.apache import SHORT_DELAYS, ApacheCluster
from tests.brokers import Wire
from tests.proxy import Cut, Frame, Proxy, answer_with, encoded
from tests.reliability.plan import BROKERS, NAME_SERVERS, QUEUES, Step

_DELAYS = " ".join(["1s"] * 18)
# A lock is free so long after its last renewal.
LOCK_MILLIS = 3000


class Ground(Protocol):
    """What a round needs of its cluster."""

    # All is consumed this long after the last fault, and every queue has one owner (I8, I9).
    settle_seconds: float

    @property
    def namesrv_addr(self) -> str:
        """For clients."""

    @property
    def brokers(self) -> Mapping[str, str]:
        """Names by the addresses that clients see, also those of before."""

    def open_topic(self, topic: str, group: str) -> None:
        """Create what a round uses."""

    def act(self, step: Step) -> None:
        """Make trouble, or end it."""

    def calm(self) -> None:
        """End all trouble."""

    def strikes(self) -> dict[str, int]:
        """Requests that were hit, by the kind of trouble."""

    def committed(self, topic: str, group: str) -> int:
        """The sum of the offsets of all queues."""

    def count(self, topic: str) -> int:
        """Messages in all queues."""

    def holders(self, topic: str, group: str) -> dict[MessageQueue, list[str]]:
        """Instance names of the members that hold each queue, as they say themselves."""

    def close(self) -> None:
        """End everything."""


def queues_of(topic: str, names: Sequence[str]) -> list[MessageQueue]:
    """All queues of a topic."""
    return [MessageQueue(topic, name, number) for name in names for number in range(QUEUES)]


def holders(wire: Wire, address: str, topic: str, group: str) -> dict[MessageQueue, list[str]]:
    """See Ground.holders; a broker is asked, who asks the members."""
    fields = {"consumerGroup": group}
    command = RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
    answer = wire.invoke(address, command)
    found: dict[MessageQueue, list[str]] = {}
    members = fastjson.loads(answer.body)["consumerIdList"] if answer.code == 0 else ()
    for client in members:
        asked = {**fields, "clientId": str(client), "jstackEnable": "false"}
        command = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, asked)
        answer = wire.invoke(address, command)
        table = fastjson.loads(answer.body).get("mqTable") if answer.code == 0 else None
        for key in table or ():
            queue = fastjson.queue_of_key(key)
            if queue.topic == topic:
                found.setdefault(queue, []).append(str(client).split("@")[1])
    return found


class EmbeddedGround:
    """An embedded cluster for one round."""

    settle_seconds = 90.0

    def __init__(self, store: Path, seed: int) -> None:
        self._cluster = Cluster(
            store,
            brokers=BROKERS,
            name_servers=NAME_SERVERS,
            fault_seed=seed,
            delay_levels=_DELAYS,
            lock_expiry_ms=LOCK_MILLIS,
            flush_disk_type="SYNC_FLUSH",
        )
        self._cluster.start()
        self.brokers: dict[str, str] = {}
        self._note_addresses()
        self._wire = Wire()

    @property
    def namesrv_addr(self) -> str:
        return self._cluster.namesrv_addr

    def _note_addresses(self) -> None:
        cluster = self._cluster
        self.brokers |= zip(cluster.broker_addrs, cluster.broker_names, strict=True)

    def open_topic(self, topic: str, group: str) -> None:
        self._cluster.create_topic(topic, queues=QUEUES)

    def act(self, step: Step) -> None:
        if step.action == "start_broker":
            self._cluster.start_broker(step.values["number"], step.values["port"])
            self._note_addresses()
        elif step.action.startswith(("stop_", "kill_", "start_")) or step.action == "forget_locks":
            getattr(self._cluster, step.action)(**step.values)
        else:
            getattr(self._cluster.faults, step.action)(**step.values)

    def calm(self) -> None:
        self._cluster.faults.clear()
        for number in range(BROKERS):
            self._cluster.start_broker(number)
        for number in range(NAME_SERVERS):
            self._cluster.start_namesrv(number)
        self._note_addresses()

    def strikes(self) -> dict[str, int]:
        return dict(Counter(strike.kind for strike in self._cluster.faults.strikes))

    def committed(self, topic: str, group: str) -> int:
        return sum(
            self._cluster.committed(group, topic, queue, broker)
            for broker in range(BROKERS)
            for queue in range(QUEUES)
        )

    def count(self, topic: str) -> int:
        return self._cluster.message_count(topic)

    def holders(self, topic: str, group: str) -> dict[MessageQueue, list[str]]:
        return holders(self._wire, self._cluster.broker_addr, topic, group)

    def close(self) -> None:
        self._wire.close()
        self._cluster.stop()


class _Faults:
    """What the proxies before real servers do to the frames that pass."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: list[tuple[str, dict[str, Any]]] = []
        self._random = random.Random(0)
        self.strikes: Counter[str] = Counter()

    def add(self, kind: str, values: Mapping[str, Any]) -> None:
        """A fault that strikes `times` times."""
        with self._lock:
            self._active.append((kind, dict(values)))

    def clear(self) -> None:
        """Remove all."""
        with self._lock:
            self._active.clear()

    def _struck(self, frame: Frame, *, answers: bool) -> tuple[str, dict[str, Any]] | None:
        with self._lock:
            for fault in self._active:
                kind, values = fault
                asked = values.get("requests", "GET_ROUTEINFO_BY_TOPIC")
                before = kind == "delay" or (kind == "silence" and not values["served"])
                if before == answers or frame.code != RequestCode[asked]:
                    continue
                values["times"] -= 1
                if not values["times"]:
                    self._active.remove(fault)
                self.strikes[kind] += 1
                return fault
        return None

    def on_request(self, frame: Frame) -> Sequence[bytes] | None:
        """Requests that are late, or get lost."""
        struck = self._struck(frame, answers=False)
        if struck is None:
            return None
        kind, values = struck
        if kind == "silence":
            return []
        time.sleep(values["seconds"])
        return None

    def on_answer(self, frame: Frame) -> bytes | Sequence[bytes] | None:
        """Answers that get lost, are damaged or others. All requests were carried out."""
        struck = self._struck(frame, answers=True) if frame.request is not None else None
        if struck is None:
            return None
        kind, values = struck
        if kind == "error":
            return answer_with(frame, values["code"])
        if kind == "silence":
            return []
        if kind == "cut":
            raise Cut(frame.raw[: values["at"]])
        if kind == "corrupt":
            return damaged_frame(frame.raw, values["at"], self._random)
        if kind != "wrong_route":
            raise ValueError(kind)
        queues = values["queues"]
        frame.command.body = other_route(frame.command.body, address=None, queues=queues, perm=None)
        return encoded(frame.command)


class ApacheGround:
    """Real servers behind proxies, for several rounds one after another."""

    # A broker that was stopped may take a member that left meanwhile for one that is there, until
    # it has been silent for 120 s: so long its queues are nobody's.
    settle_seconds = 180.0

    def __init__(self, version: str) -> None:
        self._cluster = ApacheCluster(
            version,
            {**SHORT_DELAYS},
            brokers=BROKERS,
            jvm_options=(f"-Drocketmq.broker.rebalance.lockMaxLiveTime={LOCK_MILLIS}",),
        )
        self._cluster.start()
        self._faults = _Faults()
        self._proxies = [
            Proxy(address, on_request=self._faults.on_request, on_answer=self._faults.on_answer)
            for address in self._cluster.broker_addrs
        ]
        self._name_servers = [
            Proxy(
                self._cluster.namesrv_addr,
                on_request=self._faults.on_request,
                on_answer=self._redirect,
            )
            for _ in range(NAME_SERVERS)
        ]
        names = self._cluster.broker_names
        self.brokers = dict(zip([p.address for p in self._proxies], names, strict=True))
        self._wire = Wire()
        self._up = [True] * BROKERS
        self._paused = [False] * BROKERS

    @property
    def namesrv_addr(self) -> str:
        return ";".join(proxy.address for proxy in self._name_servers)

    def _redirect(self, frame: Frame) -> bytes | Sequence[bytes] | None:
        changed = self._faults.on_answer(frame)
        if changed is not None and not isinstance(changed, bytes):
            return changed
        command = frame.command  # of a route that is wrong: as the fault changed it
        if changed is not None and frame.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return changed
        if changed is not None and not command.body:
            return changed
        body = command.body
        for real, proxy in zip(self._cluster.broker_addrs, self._proxies, strict=True):
            body = body.replace(real.encode(), proxy.address.encode())
        if body == command.body:
            return changed
        command.body = body
        return encoded(command)

    def open_topic(self, topic: str, group: str) -> None:
        self._cluster.create_topic(topic, queues=QUEUES)
        self._cluster.create_group(group)

    def act(self, step: Step) -> None:
        number = step.values.get("number", 0)
        if step.action in ("stop_broker", "kill_broker"):
            self._resume(number)
            if self._up[number]:
                self._up[number] = False
                getattr(self._cluster, step.action)(number)
        elif step.action == "start_broker":
            self._start(number)
        elif step.action == "pause_broker":
            if self._up[number]:
                self._paused[number] = True
                self._cluster.pause_broker(number)
        elif step.action == "resume_broker":
            self._resume(number)
        elif step.action == "stop_namesrv":
            self._name_servers[number].refuse()
        elif step.action == "start_namesrv":
            self._listen(number)
        elif step.action == "strand":
            self._faults.strikes["strand"] += 1
            self._proxies[number].strand()
        else:
            self._faults.add(step.action, step.values)

    def _start(self, number: int) -> None:
        if not self._up[number]:
            self._cluster.start_broker(number)
            self._up[number] = True

    def _resume(self, number: int) -> None:
        if self._paused[number]:
            self._paused[number] = False
            self._cluster.resume_broker(number)

    def _listen(self, number: int) -> None:
        if not self._name_servers[number].listening:
            self._name_servers[number].listen()

    def calm(self) -> None:
        self._faults.clear()
        for number in range(BROKERS):
            self._resume(number)
            self._start(number)
        for number in range(NAME_SERVERS):
            self._listen(number)

    def strikes(self) -> dict[str, int]:
        found, self._faults.strikes = dict(self._faults.strikes), Counter()
        return found

    def committed(self, topic: str, group: str) -> int:
        total = 0
        for address in self._cluster.broker_addrs:
            command = RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET)
            table = fastjson.loads(self._wire.invoke(address, command).body)["offsetTable"]
            total += sum(map(int, table.get(f"{topic}@{group}", {}).values()))
        return total

    def count(self, topic: str) -> int:
        cluster = self._cluster
        return sum(
            self._wire.calls.max_offset(address, queue)
            for address, name in zip(cluster.broker_addrs, cluster.broker_names, strict=True)
            for queue in queues_of(topic, [name])
        )

    def holders(self, topic: str, group: str) -> dict[MessageQueue, list[str]]:
        return holders(self._wire, self._cluster.broker_addr, topic, group)

    def close(self) -> None:
        self._wire.close()
        for proxy in (*self._proxies, *self._name_servers):
            proxy.close()
        self._cluster.close()
