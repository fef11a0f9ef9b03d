"""A name server and brokers over real sockets that answer sends as a test tells them."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.remoting.loop import EventLoop
from rocketmq_fast.remoting.server import Peer, RemotingServer

ROUTE, HEARTBEAT, SEND, SEND_BATCH = 105, 34, 310, 320

# What a broker does with a send: a response code, or its own way with the peer and the request.
Step = int | Callable[[Peer, RemotingCommand], None]


def close(peer: Peer, _: RemotingCommand) -> None:
    """End the connection instead of an answer."""
    peer.connection.close("as scripted")


def ignore(_: Peer, __: RemotingCommand) -> None:
    """Never answer."""


class ScriptedBroker:
    """Answers sends with its steps, one after another, then with success."""

    def __init__(self, loop: EventLoop, name: str) -> None:
        self.name = name
        self.steps: deque[Step] = deque()
        self.sends: list[RemotingCommand] = []
        self.heartbeats: list[RemotingCommand] = []
        self.server = RemotingServer(loop, self._on_request)
        self.server.listen("127.0.0.1", 0)
        self.server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _on_request(self, peer: Peer, request: RemotingCommand) -> None:
        if request.code not in (SEND, SEND_BATCH):
            if request.code == HEARTBEAT:
                self.heartbeats.append(request)
            peer.reply(request, RemotingCommand(0))
            return
        self.sends.append(request)
        step = self.steps.popleft() if self.steps else 0
        if callable(step):
            step(peer, request)
            return
        fields = {
            "msgId": f"{len(self.sends):032X}",
            "queueId": request.ext_fields["e"],
            "queueOffset": str(len(self.sends) - 1),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        remark = None if step == 0 else "as scripted"
        peer.reply(request, RemotingCommand(step, fields, remark=remark))


class ScriptedCluster:
    """Brokers a, b, ... behind one name server. `topics` maps a name to its brokers' names."""

    def __init__(self, brokers: Sequence[str] = ("a", "b"), queues: int = 2) -> None:
        self.loop = EventLoop("scripted-cluster")
        self.queues = queues
        self.brokers = {name: ScriptedBroker(self.loop, name) for name in brokers}
        self.topics: dict[str, Sequence[str]] = {"TBW102": brokers, "T": brokers}
        self.route_requests: list[str] = []
        self.silent = False
        self._server = RemotingServer(self.loop, self._on_request)
        self._server.listen("127.0.0.1", 0)
        self._server.start()

    @property
    def namesrv_addr(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    @property
    def sends(self) -> list[tuple[str, RemotingCommand]]:
        """(broker, request) of all sends."""
        return [(b.name, request) for b in self.brokers.values() for request in b.sends]

    def __enter__(self) -> Self:
        self.loop.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(self._server, *(broker.server for broker in self.brokers.values()))
        self.loop.stop()

    def stop_brokers(self, *names: str) -> None:
        """End brokers; the route stays as it is."""
        self._close(*(self.brokers[name].server for name in names))

    def _close(self, *servers: RemotingServer) -> None:
        closed = threading.Event()

        def close_all() -> None:
            for server in servers:
                server.close()
            # Their connections end in callbacks that are queued before this one.
            self.loop.call_soon(closed.set)

        self.loop.call_soon(close_all)
        if not closed.wait(30.0):
            raise TimeoutError("the scripted servers did not close")

    def _on_request(self, peer: Peer, request: RemotingCommand) -> None:
        topic = request.ext_fields.get("topic", "")
        self.route_requests.append(topic)
        if self.silent:
            return
        names = self.topics.get(topic)
        if request.code != ROUTE or names is None:
            peer.reply(request, RemotingCommand(17, remark=f"no route for {topic}"))
            return
        route = {
            "queueDatas": [
                {"brokerName": name, "perm": 6, "readQueueNums": self.queues,
                 "writeQueueNums": self.queues, "topicSysFlag": 0}
                for name in names
            ],
            "brokerDatas": [
                {"brokerName": name, "cluster": "C",
                 "brokerAddrs": {"0": self.brokers[name].address}}
                for name in names
            ],
        }  # fmt: skip
        peer.reply(request, RemotingCommand(0, body=json.dumps(route).encode()))
