"""The name servers: a list with a chosen one that is kept until it fails."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.errors import BrokerError, NoNameServer, RemotingError, TopicRouteNotFound
from rocketmq_fast.protocol.bodies import ClusterInfo, TopicRouteData, topic_list_of
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from rocketmq_fast.remoting.client import RemotingClient

logger = logging.getLogger(__name__)


class NameServers:
    """Calls to whichever name server answers. Any thread but the event loop's."""

    def __init__(self, remoting: RemotingClient, addresses: Sequence[str]) -> None:
        self._remoting = remoting
        self._lock = threading.Lock()
        self._addresses = list(addresses)
        random.shuffle(self._addresses)  # spreads clients over the servers, as Java does

    @property
    def addresses(self) -> tuple[str, ...]:
        """All known addresses, the chosen one first."""
        with self._lock:
            return tuple(self._addresses)

    def update(self, addresses: Sequence[str]) -> bool:
        """Take over another list, keeping the chosen server if it is still there.

        Connections stay as they are. An empty list is ignored. Returns whether anything changed.
        """
        with self._lock:
            if not addresses or set(addresses) == set(self._addresses):
                return False
            chosen = [address for address in self._addresses[:1] if address in addresses]
            others = [address for address in addresses if address not in chosen]
            random.shuffle(others)
            before, self._addresses = self._addresses, [*chosen, *others]
        logger.info("name servers are %s now, not %s", addresses, before)
        return True

    def _move_back(self, address: str) -> None:
        with self._lock:
            if self._addresses and self._addresses[0] == address:
                self._addresses.append(self._addresses.pop(0))

    def invoke(self, command: RemotingCommand, timeout: float) -> RemotingCommand:
        """Ask the chosen server, and each other one when it gives no answer.

        `timeout` seconds are for each server. Raises NoNameServer with every cause, and
        RequestCodeNotSupported for what seems to be no name server.
        """
        causes = []
        for address in self.addresses:
            try:
                answer = self._remoting.invoke(address, command, timeout)
            except RemotingError as error:
                causes.append(str(error))
                self._move_back(address)
                continue
            for cause in causes:
                logger.warning("a name server does not answer: %s; using %s", cause, address)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise BrokerError.of(
                    answer.code,
                    f"{answer.remark}; is that a broker? namesrv_addr wants the name server, whose "
                    "port is mostly 9876",
                    address,
                )
            return answer
        raise NoNameServer("no name server answered: " + "; ".join(causes))

    def route(self, topic: str, timeout: float) -> TopicRouteData:
        """Route of a topic. Raises TopicRouteNotFound, NoNameServer, BrokerError, BodyError."""
        answer = self.invoke(
            RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}), timeout
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST or (
            answer.code == ResponseCode.SUCCESS and not answer.body
        ):
            raise TopicRouteNotFound(topic)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark)
        return TopicRouteData.from_body(answer.body, topic)

    def cluster(self, timeout: float) -> ClusterInfo:
        """All brokers. Raises NoNameServer, BrokerError, BodyError."""
        answer = self.invoke(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark)
        return ClusterInfo.from_body(answer.body)

    def topics(self, timeout: float) -> list[str]:
        """Names of all topics. Raises NoNameServer, BrokerError, BodyError."""
        answer = self.invoke(
            RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), timeout
        )
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark)
        return topic_list_of(answer.body)
