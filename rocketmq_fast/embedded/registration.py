"""Brokers tell name servers about themselves: those of the cluster, and any others."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.embedded.requests import dump
from rocketmq_fast.errors import RocketMQError
from rocketmq_fast.protocol.codes import Perm, RequestCode, ResponseCode
from rocketmq_fast.remoting.client import RemotingClient, parse_address

if TYPE_CHECKING:
    from rocketmq_fast.embedded.broker import Broker
    from rocketmq_fast.remoting.loop import EventLoop

log = logging.getLogger(__name__)

REGISTER_SECONDS = 30.0
_ANSWER_SECONDS = 6.0
_READ_WRITE = int(Perm.READ | Perm.WRITE)


def name_server_addresses(text: str | None) -> tuple[str, ...]:
    """Return the addresses in "host:port;host:port". Raises ConfigError."""
    addresses = tuple(part.strip() for part in (text or "").split(";") if part.strip())
    for address in addresses:
        parse_address(address)
    return addresses


def names_of(broker: Broker) -> dict[str, str]:
    """Return what a broker says about itself in each such request."""
    config = broker.config
    return {
        "brokerAddr": broker.address,
        "brokerId": str(config.broker_id),
        "brokerName": config.broker_name,
        "clusterName": config.cluster_name,
    }


def topics_of(broker: Broker) -> list[dict[str, Any]]:
    """Return the topics of a broker as it registers them. Loop thread."""
    topics = broker.state.topics.all()
    allowed = broker.config.broker_permission
    if allowed & _READ_WRITE != _READ_WRITE:  # what the broker forbids is forbidden for all
        topics = [replace(topic, perm=allowed) for topic in topics]
    return [topic.to_json() for topic in topics]


def registration(broker: Broker) -> RemotingCommand:
    """Return the request by which a broker tells its address and topics. Loop thread."""
    body = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": broker.state.topics.data_version(),
            "topicConfigTable": {topic["topicName"]: topic for topic in topics_of(broker)},
        },
    }
    fields = {**names_of(broker), "bodyCrc32": "0", "compressed": "false", "haServerAddr": ""}
    return RemotingCommand(RequestCode.REGISTER_BROKER, fields, dump(body))


def unregistration(broker: Broker) -> RemotingCommand:
    """Return the request by which a broker takes its leave."""
    return RemotingCommand(RequestCode.UNREGISTER_BROKER, names_of(broker))


def _take_over_order(broker: Broker, answer: RemotingCommand) -> None:
    """Mark the topics that a name server knows as ordered. Loop thread."""
    if not len(answer.body_view()):
        return
    try:
        value: Any = json.loads(answer.body)
    except ValueError as error:
        log.warning("broker %s: answer to the registration: %s", broker.config.broker_name, error)
        return
    table = value.get("table") if isinstance(value, dict) else None
    if isinstance(table, dict):
        broker.state.topics.set_ordered(table.keys())


class Registrar:
    """Keeps one broker registered at name servers outside of the cluster, every 30 s.

    One that cannot be reached is tried again; nothing else waits for it.
    """

    def __init__(self, loop: EventLoop, addresses: tuple[str, ...], broker: Broker) -> None:
        self._loop = loop
        self._addresses = addresses
        self._broker = broker
        # A client of its own: the end of the connections tells that the broker was killed.
        self._client = RemotingClient(loop, lambda _, command: log.debug("%r", command))
        # What is on its way: two registrations must not overtake each other.
        self._busy: set[str] = set()
        self._again: set[str] = set()
        loop.call_later(REGISTER_SECONDS, self._tick)

    def _tick(self) -> None:
        if not self._client.closed:
            self.register()
            self._loop.call_later(REGISTER_SECONDS, self._tick)

    def register(self) -> None:
        """Tell all name servers the topics of now. Loop thread."""
        for address in self._addresses:
            if address in self._busy:
                self._again.add(address)
            else:
                self._send(address)

    def _send(self, address: str) -> None:
        self._busy.add(address)

        def answered(answer: RemotingCommand | Exception) -> None:
            self._busy.discard(address)
            if self._client.closed:
                return
            name = self._broker.config.broker_name
            if isinstance(answer, Exception):
                log.warning("broker %s is not registered at %s: %s", name, address, answer)
            elif answer.code != ResponseCode.SUCCESS:
                log.warning(
                    "broker %s is not registered at %s: code %d, %s",
                    name,
                    address,
                    answer.code,
                    answer.remark,
                )
            elif address == self._addresses[0]:
                _take_over_order(self._broker, answer)
            if address in self._again:
                self._again.discard(address)
                self._send(address)

        self._client.invoke_async(address, registration(self._broker), _ANSWER_SECONDS, answered)

    def wait(self, timeout: float) -> None:
        """Wait until nothing is on its way. Not on the loop's thread."""
        idle = threading.Event()

        def look() -> None:
            if self._busy and not self._client.closed:
                self._loop.call_later(0.001, look)
            else:
                idle.set()

        self._loop.call_soon(look)
        if not idle.wait(timeout):
            log.warning("a registration at %s takes long", "; ".join(self._addresses))

    def leave(self, *, killed: bool) -> None:
        """Take the broker out everywhere, a killed one without a word. Not on the loop's thread."""
        for address in () if killed else self._addresses:
            try:
                self._client.invoke(address, unregistration(self._broker), _ANSWER_SECONDS)
            except RocketMQError as error:
                log.warning(
                    "broker %s is still registered at %s: %s",
                    self._broker.config.broker_name,
                    address,
                    error,
                )
        self._client.close()
