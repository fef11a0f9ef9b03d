"""One face for every kind of broker that contract tests run on."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.broker_calls import BrokerCalls
from rocketmq_fast.client.sending import create_unique_id, send_command, send_result
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.model import MessageQueue, SendResult, SendStatus
from rocketmq_fast.protocol import fastjson
from rocketmq_fast.protocol.codes import RequestCode
from rocketmq_fast.remoting.client import RemotingClient
from rocketmq_fast.remoting.loop import EventLoop
from tests.apache import ApacheCluster
from tests.proxy import ProxiedCluster

_TIMEOUT = 30.0
_numbers = itertools.count()


class Wire:
    """Sends and queries over the package's remoting, with no consumer or producer in between."""

    def __init__(self) -> None:
        self._loop = EventLoop("test-wire")
        self._loop.start()
        self._remoting = RemotingClient(self._loop, lambda *_: None)
        self.calls = BrokerCalls(self._remoting, _TIMEOUT)

    def close(self) -> None:
        self._remoting.close()
        self._loop.stop()

    def invoke(self, address: str, command: RemotingCommand) -> RemotingCommand:
        return self._remoting.invoke(address, command, _TIMEOUT)

    def all(
        self, address: str, commands: Sequence[RemotingCommand]
    ) -> list[RemotingCommand | Exception]:
        """Send all at once; the answers in the order of the commands."""
        answers: list[RemotingCommand | Exception | None] = [None] * len(commands)
        left = len(commands)
        done = threading.Event()

        def take(index: int) -> Callable[[RemotingCommand | Exception], None]:
            def on_answer(answer: RemotingCommand | Exception) -> None:
                nonlocal left
                answers[index] = answer
                left -= 1  # the loop's thread only
                if left == 0:
                    done.set()

            return on_answer

        for index, command in enumerate(commands):
            self._remoting.invoke_async(address, command, _TIMEOUT, take(index))
        assert not commands or done.wait(_TIMEOUT + 5.0), "sends were not answered"
        return [answer for answer in answers if answer is not None]


class TestBroker:
    """One broker with its name server, the same for all three kinds."""

    __test__ = False

    def __init__(self, kind: str, cluster: Cluster | ApacheCluster, wire: Wire) -> None:
        self.kind = kind
        self.cluster = cluster
        self.wire = wire
        self._prefix = "test"

    def __repr__(self) -> str:
        return f"<TestBroker {self.kind} {self.namesrv_addr}>"

    # -------------------------------------------------------------------------------- names

    @property
    def namesrv_addr(self) -> str:
        return self.cluster.namesrv_addr

    @property
    def broker_addr(self) -> str:
        return self.cluster.broker_addr

    @property
    def broker_name(self) -> str:
        return self.cluster.broker_name

    def for_test(self, name: str) -> None:
        """Name topics and groups after the running test."""
        self._prefix = re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_")[:50]

    def name(self, what: str = "") -> str:
        """A name that nobody used before."""
        return f"{self._prefix}_{what}{os.getpid()}_{next(_numbers)}"

    def topic(self, queues: int = 4) -> str:
        """A new topic, there when this returns."""
        name = self.name("t")
        self.cluster.create_topic(name, queues=queues)
        return name

    def group(self) -> str:
        """A name for a new group."""
        return self.name("g")

    def queue(self, topic: str, queue_id: int = 0) -> MessageQueue:
        return MessageQueue(topic, self.broker_name, queue_id)

    # ------------------------------------------------------------------------------ sending

    def send(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        queues: Sequence[int] = (0,),
        tags: str | Sequence[str | None] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[SendResult]:
        """Send bodies to the queues in turn, in order; all must be stored."""
        results = []
        # One to each queue at a time: a broker stores what it gets at once in any order.
        for start in range(0, len(bodies), len(queues)):
            commands = []
            wave = []
            for place, body in enumerate(bodies[start : start + len(queues)]):
                table = {"UNIQ_KEY": create_unique_id(), "WAIT": "true", **(properties or {})}
                index = start + place
                tag = tags if tags is None or isinstance(tags, str) else tags[index % len(tags)]
                if tag is not None:
                    table["TAGS"] = tag
                target = self.queue(topic, queues[place])
                commands.append(send_command("test_producer", target, body, table))
                wave.append((target, table["UNIQ_KEY"]))
            answers = self.wire.all(self.broker_addr, commands)
            for answer, (target, key) in zip(answers, wave, strict=True):
                if isinstance(answer, Exception):
                    raise answer
                results.append(send_result(answer, target, key))
        assert all(result.status is SendStatus.SEND_OK for result in results), results
        return results

    # -------------------------------------------------------------------------------- state

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Offsets in the broker's own table, by queue id; a queue without one is absent."""
        answer = self.wire.invoke(
            self.broker_addr, RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET)
        )
        assert answer.code == 0, answer.remark
        table = fastjson.loads(answer.body)["offsetTable"].get(f"{topic}@{group}", {})
        return {int(queue_id): int(offset) for queue_id, offset in table.items()}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset, whatever it is, for a group that no consumer made yet."""
        if isinstance(self.cluster, ApacheCluster):
            self.cluster.create_group(group)  # 5.3.3 takes no offsets of groups it does not know
        self.wire.calls.commit_offset(self.broker_addr, group, self.queue(topic, queue_id), offset)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.wire.calls.max_offset(self.broker_addr, self.queue(topic, queue_id))

    def members(self, group: str) -> list[str]:
        """Client ids of a group; empty when the broker does not know it."""
        answer = self.wire.invoke(
            self.broker_addr,
            RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
        )
        if answer.code != 0 or not answer.body:
            return []
        found = fastjson.loads(answer.body)["consumerIdList"]
        return [str(item) for item in found]

    def held_by(self, group: str, client_id: str, topic: str) -> set[int]:
        """Queue ids that a member holds, as it says itself when the broker asks it."""
        fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
        answer = self.wire.invoke(
            self.broker_addr, RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        )
        if answer.code != 0:
            return set()
        table = fastjson.loads(answer.body).get("mqTable") or {}
        held = [fastjson.queue_of_key(key) for key in table]
        return {queue.queue_id for queue in held if queue.topic == topic}

    # ------------------------------------------------------------------------------ trouble

    def kill(self) -> None:
        """End the broker as kill -9 does; its store stays."""
        if isinstance(self.cluster, Cluster):
            self.cluster.kill()
        else:
            self.cluster.kill_broker()

    def start(self) -> None:
        """Start a killed broker again, on the same ports and store."""
        if isinstance(self.cluster, Cluster):
            self.cluster.start()
        else:
            self.cluster.start_broker()

    def proxied(self) -> ProxiedCluster:
        """Proxies in front of both servers; close them."""
        return ProxiedCluster(self.namesrv_addr, self.broker_addr)
