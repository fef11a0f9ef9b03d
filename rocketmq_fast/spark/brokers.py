"""Access to the cluster: on the driver for a plan, in a worker process for all its tasks."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from rocketmq_fast._core import MessageBatch, RemotingCommand
from rocketmq_fast._core.message import decode_command
from rocketmq_fast.client.broker_calls import BrokerCalls, number_field, read_command
from rocketmq_fast.client.name_servers import NameServers
from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    ConfigError,
    NoNameServer,
    RequestTimeout,
    RocketMQError,
    TopicRouteNotFound,
)
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import SubscriptionData
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from rocketmq_fast.protocol.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS
from rocketmq_fast.remoting.client import RemotingClient
from rocketmq_fast.remoting.connection import Connection
from rocketmq_fast.remoting.loop import EventLoop
from rocketmq_fast.spark.kept import Kept
from rocketmq_fast.spark.offsets import where
from rocketmq_fast.spark.option_parser import ConnectOptions

logger = logging.getLogger(__name__)

_QUERY_SECONDS = 6.0
_MAX_BODY = 32 << 20
_CLIENT_ID = "spark"
# What no pattern means: topics of the brokers' own, of 4.x and of 5.x.
_OWN_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX, "rmq_sys_", "RMQ_SYS_")
_REPLY_SUFFIX = "_REPLY_TOPIC"
_T = TypeVar("_T")


class Brokers:
    """Routes and offsets, and the connections that pulls go over. Any thread may use it.

    Names of topics and groups are the program's; those on the wire have the namespace.
    """

    def __init__(self, connect: ConnectOptions) -> None:
        options = connect.client_options()
        self.names = options.names
        self.loop = EventLoop("rocketmq-spark")
        self.client = RemotingClient(self.loop, _ignore, signer=options.signer(), tls=options.tls())
        self._name_servers = NameServers(self.client, connect.namesrv_addr)
        self._calls = BrokerCalls(self.client, _QUERY_SECONDS)
        self.loop.start()

    def close(self) -> None:
        """End the connections and the thread."""
        self.client.close()
        self.loop.stop()

    def queues(self, topics: Sequence[str]) -> tuple[list[MessageQueue], dict[str, str]]:
        """The queues of the topics, and the address of each broker's master.

        Raises TopicRouteNotFound, NoNameServer, BrokerNotFound.
        """
        queues, addresses = self.known_queues(topics)
        for topic in topics:
            if all(queue.topic != topic for queue in queues):
                raise TopicRouteNotFound(topic)
        for queue in queues:
            if queue.broker_name not in addresses:
                raise BrokerNotFound(
                    f"broker {queue.broker_name!r} of topic {queue.topic!r} has no master"
                )
        return queues, addresses

    def known_queues(self, topics: Sequence[str]) -> tuple[list[MessageQueue], dict[str, str]]:
        """As `queues`, without topics that have no route and addresses of brokers without a master.

        Raises NoNameServer.
        """
        queues: list[MessageQueue] = []
        addresses: dict[str, str] = {}
        for topic in topics:
            try:
                route = self._name_servers.route(self.names.wrap(topic), _QUERY_SECONDS)
            except TopicRouteNotFound:
                continue
            for queue in route.subscribe_queues(topic):
                data = route.broker(queue.broker_name)
                address = data.master if data is not None else None
                if address is not None:
                    addresses[queue.broker_name] = address
                queues.append(queue)
        return queues, addresses

    def topics_like(self, pattern: str) -> list[str]:
        """Topics whose whole name matches a regular expression, without RocketMQ's own ones."""
        cluster = self._name_servers.cluster(_QUERY_SECONDS)
        own = {*SYSTEM_TOPICS, *cluster.brokers, *cluster.clusters}
        found = []
        for wire in self._name_servers.topics(_QUERY_SECONDS):
            topic = self.names.unwrap(wire)
            if (
                re.fullmatch(pattern, topic) is not None
                and topic not in own
                and not topic.startswith(_OWN_PREFIXES)
                and not topic.endswith(_REPLY_SUFFIX)
                and self.names.wrap(topic) == wire
            ):
                found.append(topic)
        return sorted(found)

    def masters(self) -> dict[str, str]:
        """Address of the master of every broker that a name server knows."""
        cluster = self._name_servers.cluster(_QUERY_SECONDS)
        return {
            name: address
            for name, data in cluster.brokers.items()
            if (address := data.master) is not None
        }

    def bounds(
        self, queues: Sequence[MessageQueue], addresses: Mapping[str, str]
    ) -> dict[MessageQueue, tuple[int, int]]:
        """[min, max) of every queue, all asked at once. Raises BrokerError, RemotingError."""
        found, failures = self.bounds_of_reachable(queues, addresses)
        for error in failures.values():
            raise error
        return found

    def bounds_of_reachable(
        self, queues: Sequence[MessageQueue], addresses: Mapping[str, str]
    ) -> tuple[dict[MessageQueue, tuple[int, int]], dict[str, Exception]]:
        """As `bounds`, with an error for each broker that did not answer for all its queues."""
        codes = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        answers = self.invoke_each(
            [
                (addresses[queue.broker_name], self._queue_command(code, queue))
                for queue in queues
                for code in codes
            ]
        )
        found: dict[MessageQueue, tuple[int, int]] = {}
        failures: dict[str, Exception] = {}
        for number, queue in enumerate(queues):
            try:
                low, high = (
                    _offset_of(answer, queue, addresses[queue.broker_name])
                    for answer in answers[2 * number : 2 * number + 2]
                )
            except RocketMQError as error:
                failures.setdefault(queue.broker_name, error)
                continue
            found[queue] = low, high
        return found, failures

    def committed(
        self, group: str, queues: Sequence[MessageQueue], addresses: Mapping[str, str]
    ) -> dict[MessageQueue, int]:
        """Committed offsets of a group; queues without one are left out."""
        more = {"consumerGroup": self.names.wrap(group)}
        answers = self._ask(RequestCode.QUERY_CONSUMER_OFFSET, queues, addresses, lambda _: more)
        return {
            queue: _offset_of(answer, queue, addresses[queue.broker_name])
            for queue, answer in zip(queues, answers, strict=True)
            if not (
                isinstance(answer, RemotingCommand) and answer.code == ResponseCode.QUERY_NOT_FOUND
            )
        }

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], addresses: Mapping[str, str]
    ) -> list[Exception]:
        """Store offsets for a group and wait for the answers. Returns what went wrong."""
        queues = list(offsets)
        name = self.names.wrap(group)
        answers = self._ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            queues,
            addresses,
            lambda queue: {"consumerGroup": name, "commitOffset": str(offsets[queue])},
        )
        errors: list[Exception] = []
        for queue, answer in zip(queues, answers, strict=True):
            try:
                _checked(answer, queue, addresses[queue.broker_name])
            except RocketMQError as error:
                errors.append(error)
        return errors

    def near_time(
        self, times: Mapping[MessageQueue, int], addresses: Mapping[str, str]
    ) -> dict[MessageQueue, int]:
        """Offset of a message near a store time in ms, before or after it: what brokers know."""
        queues = list(times)
        answers = self._ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            queues,
            addresses,
            lambda queue: {"timestamp": str(times[queue])},
        )
        return {
            queue: _offset_of(answer, queue, addresses[queue.broker_name])
            for queue, answer in zip(queues, answers, strict=True)
        }

    def peek(
        self,
        group: str,
        offsets: Mapping[MessageQueue, int],
        addresses: Mapping[str, str],
        count: int = 1,
    ) -> dict[MessageQueue, MessageBatch]:
        """Up to `count` messages from an offset of each queue on; none where it was deleted."""
        queues = list(offsets)
        name = self.names.wrap(group)
        answers = self.invoke_each(
            [
                (
                    addresses[queue.broker_name],
                    read_command(name, self.names.wrap_queue(queue), offsets[queue], count),
                )
                for queue in queues
            ]
        )
        found = {}
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, RemotingCommand) and answer.code in (
                ResponseCode.PULL_NOT_FOUND,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                ResponseCode.PULL_OFFSET_MOVED,
            ):
                continue
            command = _checked(answer, queue, addresses[queue.broker_name])
            found[queue] = decode_command(command, False, _MAX_BODY)
        return found

    def check_sql(self, topic: str, group: str, expression: str, addresses: Iterable[str]) -> None:
        """Raise ConfigError when a broker cannot filter by an expression, or calls it wrong."""
        data = SubscriptionData(self.names.wrap(topic), expression, expression_type="SQL92")
        for address in addresses:
            try:
                self._calls.check_subscription(address, _CLIENT_ID, self.names.wrap(group), data)
            except BrokerError as error:
                raise ConfigError(
                    f"option 'expression' is {expression!r}: broker {address} says: {error}; it "
                    "needs enablePropertyFilter=true and a correct SQL92 expression"
                ) from error

    def _queue_command(
        self, code: RequestCode, queue: MessageQueue, more: Mapping[str, str] | None = None
    ) -> RemotingCommand:
        topic = self.names.wrap(queue.topic)
        return RemotingCommand(
            code, {"topic": topic, "queueId": str(queue.queue_id), **(more or {})}
        )

    def _ask(
        self,
        code: RequestCode,
        queues: Collection[MessageQueue],
        addresses: Mapping[str, str],
        more: Callable[[MessageQueue], Mapping[str, str]],
    ) -> list[RemotingCommand | Exception]:
        return self.invoke_each(
            [
                (addresses[queue.broker_name], self._queue_command(code, queue, more(queue)))
                for queue in queues
            ]
        )

    def invoke_each(
        self, commands: Sequence[tuple[str, RemotingCommand]], timeout: float = _QUERY_SECONDS
    ) -> list[RemotingCommand | Exception]:
        """Send all requests, then wait for all answers."""
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
        return [answer if answer is not None else RequestTimeout("no answer") for answer in answers]


@contextlib.contextmanager
def naming_servers() -> Iterator[None]:
    """NoNameServer gets the name of the option to correct."""
    try:
        yield
    except NoNameServer as error:
        raise NoNameServer(f"option 'namesrvAddr': {error}", error.address) from error


@contextlib.contextmanager
def naming_options(topic_option: str) -> Iterator[None]:
    """What the first look at a cluster finds wrong gets the name of the option to correct."""
    try:
        with naming_servers():
            yield
    except TopicRouteNotFound as error:
        raise TopicRouteNotFound(
            error.topic,
            f"option {topic_option!r}: {error}; create the topic, or correct its name",
        ) from error


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


kept_brokers: Kept[ConnectOptions, Brokers] = Kept(Brokers, Brokers.close)


def _ignore(connection: Connection, command: RemotingCommand) -> None:
    logger.debug("request %d of %s is not for us", command.code, connection.address)


def _checked(
    answer: RemotingCommand | Exception, queue: MessageQueue, address: str
) -> RemotingCommand:
    if not isinstance(answer, RemotingCommand):
        raise answer
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError.of(answer.code, f"{where(queue)}: {answer.remark}", address)
    return answer


def _offset_of(answer: RemotingCommand | Exception, queue: MessageQueue, address: str) -> int:
    return number_field(_checked(answer, queue, address), "offset", where(queue))
