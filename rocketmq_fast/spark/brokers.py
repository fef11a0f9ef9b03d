"""Access to the cluster: on the driver for a plan, in a worker process for all its tasks."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.client.name_servers import NameServers
from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    HeaderError,
    RequestTimeout,
    RocketMQError,
)
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from rocketmq_fast.remoting.client import RemotingClient
from rocketmq_fast.remoting.connection import Connection
from rocketmq_fast.remoting.loop import EventLoop

logger = logging.getLogger(__name__)

_QUERY_SECONDS = 6.0
_T = TypeVar("_T")


class Brokers:
    """Routes and offsets, and the connections that pulls go over. Any thread may use it."""

    def __init__(self, namesrv_addr: Sequence[str]) -> None:
        self.loop = EventLoop("rocketmq-spark")
        self.client = RemotingClient(self.loop, _ignore)
        self._name_servers = NameServers(self.client, namesrv_addr)
        self.loop.start()

    def close(self) -> None:
        """End the connections and the thread."""
        self.client.close()
        self.loop.stop()

    def queues(self, topics: Sequence[str]) -> tuple[list[MessageQueue], dict[str, str]]:
        """The queues of the topics, and the address of each broker's master.

        Raises TopicRouteNotFound, NoNameServer, BrokerNotFound.
        """
        queues: list[MessageQueue] = []
        addresses: dict[str, str] = {}
        for topic in topics:
            route = self._name_servers.route(topic, _QUERY_SECONDS)
            for queue in route.subscribe_queues(topic):
                data = route.broker(queue.broker_name)
                address = data.master if data is not None else None
                if address is None:
                    raise BrokerNotFound(
                        f"broker {queue.broker_name!r} of topic {topic!r} has no master"
                    )
                addresses[queue.broker_name] = address
                queues.append(queue)
        return queues, addresses

    def bounds(
        self, queues: Sequence[MessageQueue], addresses: Mapping[str, str]
    ) -> dict[MessageQueue, tuple[int, int]]:
        """[min, max) of every queue, all asked at once. Raises BrokerError, RemotingError."""
        commands = [
            (addresses[queue.broker_name], _offset_command(code, queue))
            for queue in queues
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        ]
        answers = self.invoke_all(commands, _QUERY_SECONDS)
        offsets = [
            _offset_of(answer, queues[number // 2], commands[number][0])
            for number, answer in enumerate(answers)
        ]
        return {
            queue: (offsets[2 * number], offsets[2 * number + 1])
            for number, queue in enumerate(queues)
        }

    def invoke_all(
        self, commands: Sequence[tuple[str, RemotingCommand]], timeout: float
    ) -> list[RemotingCommand]:
        """Send all requests, then wait for all answers. Raises the first failure."""
        answers: list[RemotingCommand | Exception | None] = [None] * len(commands)
        left = len(commands)
        done = threading.Event()

        def take(number: int) -> Callable[[RemotingCommand | Exception], None]:
            def on_answer(answer: RemotingCommand | Exception) -> None:
                nonlocal left  # changed on the loop's thread only
                answers[number] = answer
                left -= 1
                if left == 0:
                    done.set()

            return on_answer

        for number, (address, command) in enumerate(commands):
            self.client.invoke_async(address, command, timeout, take(number))
        if commands and not done.wait(timeout + 5.0):
            raise RequestTimeout(f"{left} of {len(commands)} requests were not answered")
        found = []
        for answer in answers:
            if not isinstance(answer, RemotingCommand):
                raise answer if answer is not None else RequestTimeout("no answer")
            found.append(answer)
        return found


def retrying(action: Callable[[], _T], retries: int, interval: float) -> _T:
    """Call until it succeeds; an error that can pass is tried `retries` times more."""
    for attempt in range(retries + 1):
        try:
            return action()
        except RocketMQError as error:
            if not error.retriable or attempt == retries:
                raise
            logger.warning("attempt %d of %d failed: %s", attempt + 1, retries + 1, error)
            time.sleep(interval)
    raise RuntimeError("unreachable")


_cache: dict[tuple[int, tuple[str, ...]], Brokers] = {}
_cache_lock = threading.Lock()


def cached_brokers(namesrv_addr: tuple[str, ...], *, fresh: bool = False) -> Brokers:
    """The process's client for these name servers. `fresh` replaces it, as a retried task does.

    The process id is part of the key: a forked child must not share its parent's sockets.
    """
    key = (os.getpid(), namesrv_addr)
    with _cache_lock:
        # A Python worker runs one task at a time, so nobody else uses what is closed here.
        old = _cache.pop(key, None) if fresh else None
        found = _cache.get(key)
        if found is None:
            found = _cache[key] = Brokers(namesrv_addr)
    if old is not None:
        logger.info("a retried task gets new connections")
        old.close()
    return found


def _ignore(connection: Connection, command: RemotingCommand) -> None:
    logger.debug("request %d of %s is not for us", command.code, connection.address)


def _offset_command(code: RequestCode, queue: MessageQueue) -> RemotingCommand:
    return RemotingCommand(code, {"topic": queue.topic, "queueId": str(queue.queue_id)})


def _offset_of(answer: RemotingCommand, queue: MessageQueue, address: str) -> int:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError.of(answer.code, f"{queue}: {answer.remark}", address)
    text = answer.ext_fields.get("offset")
    try:
        return int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise HeaderError(f"{queue}: field 'offset' is {text!r}, not an integer") from None
