"""The embedded cluster in a process of its own, so that it does not share our interpreter lock."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from rocketmq_fast.embedded import Cluster
from rocketmq_fast.errors import RocketMQError

_START_SECONDS = 120.0
_CALL_SECONDS = 60.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TopicState:
    """What the broker itself says about a topic and a group."""

    stored: int
    committed: int


class ClusterProcess:
    """Starts the cluster in a child process; the child ends with us, however we end."""

    def __init__(self) -> None:
        # Spawned, not forked: nothing of this process, threads least of all, gets into the child.
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="embedded-cluster")
        self._theirs = theirs
        self.namesrv_addr = ""

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid or 0

    def __enter__(self) -> Self:
        self._process.start()
        self._theirs.close()
        try:
            self.namesrv_addr = str(self._answer(_START_SECONDS))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._ours.close()
        self._process.join(_STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic."""
        self._call("create_topic", topic, queues)

    def state(self, topic: str, queues: int, group: str) -> TopicState:
        """How many messages of the topic are stored, and how many the group committed."""
        stored, committed = self._call("state", topic, queues, group)
        return TopicState(stored, committed)

    def _call(self, *request: object) -> tuple[int, int]:
        try:
            self._ours.send(request)
        except OSError as error:
            raise RocketMQError(f"the cluster process ended: {error}") from error
        stored, committed = self._answer(_CALL_SECONDS)
        return int(stored), int(committed)

    def _answer(self, seconds: float) -> Any:
        try:
            if not self._ours.poll(seconds):
                raise RocketMQError(f"the cluster process did not answer within {seconds:g} s")
            good, value = self._ours.recv()
        except (EOFError, OSError) as error:
            raise RocketMQError(f"the cluster process ended: {error}") from error
        if not good:
            raise RocketMQError(f"embedded cluster: {value}")
        return value


def _serve(connection: Connection) -> None:
    """Child: a cluster until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both; the parent closes the pipe
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with Cluster() as cluster:
            connection.send((True, cluster.namesrv_addr))
            while True:
                try:
                    request = connection.recv()
                except (EOFError, OSError):
                    return
                connection.send(_carry_out(cluster, *request))
    except (OSError, RocketMQError) as error:
        _try_to_send(connection, (False, f"{error} (process {os.getpid()})"))


def _carry_out(
    cluster: Cluster, name: str, topic: str, queues: int, group: str = ""
) -> tuple[bool, object]:
    try:
        if name == "create_topic":
            cluster.create_topic(topic, queues=queues)
            return True, (0, 0)
        offsets = [cluster.committed(group, topic, number) for number in range(queues)]
        return True, (cluster.message_count(topic), sum(max(0, offset) for offset in offsets))
    except RocketMQError as error:
        return False, str(error)


def _try_to_send(connection: Connection, answer: tuple[bool, str]) -> None:
    try:
        connection.send(answer)
    except OSError:
        # The parent is gone; what is left is our exit code.
        sys.exit(1)
