"""What a streaming query knows of the cluster: queues, addresses, offsets."""

from __future__ import annotations

import logging
import time

from rocketmq_fast.errors import NoNameServer, RocketMQError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.spark.batch import chosen_queues, chosen_topics
from rocketmq_fast.spark.brokers import Brokers, naming_servers, retrying
from rocketmq_fast.spark.options import ReadOptions

logger = logging.getLogger(__name__)

# While a broker does not answer, routes are asked for so often: it may be somewhere else soon.
_AWAY_SECONDS = 1.0


class ClusterView:
    """Queues of the query with [min, max) of those whose broker answers. One thread.

    A broker that is away takes nothing from the query: its queues stand still until it is back.
    """

    def __init__(self, brokers: Brokers, options: ReadOptions) -> None:
        self._brokers = brokers
        self._options = options
        self.queues: frozenset[MessageQueue] = frozenset()
        self.addresses: dict[str, str] = {}
        self.bounds: dict[MessageQueue, tuple[int, int]] = {}
        self._unreachable: dict[str, Exception] = {}
        self._told: set[str] = set()
        self._absent: dict[MessageQueue, Exception | None] = {}
        self._routes_at: float | None = None
        self._bounds_at: float | None = None

    def require_all(self) -> None:
        """Ask for everything, and raise when anything is missing: for the start of a query."""
        options = self._options

        def ask() -> None:
            queues, self.addresses = chosen_queues(self._brokers, options)
            self.queues = frozenset(queues)
            self.bounds = self._brokers.bounds(queues, self.addresses)

        retrying(ask, options.retries, options.retry_interval)
        self._routes_at = self._bounds_at = time.monotonic()
        self._unreachable = {}

    def refresh(self, *, force: bool = False) -> None:
        """Ask for what is older than the options allow."""
        now = time.monotonic()
        old = self._routes_at is None or now - self._routes_at >= self._options.route_refresh
        if old or force:
            retrying(self._find_queues, self._options.retries, self._options.retry_interval)
            self._routes_at = now
        due = self._bounds_at is None or now - self._bounds_at >= self._options.latest_interval
        if due or force:
            self._ask_bounds()
            self._bounds_at = now

    def why_absent(self, queue: MessageQueue) -> Exception | None:
        """Why there are no bounds of a queue: its broker is away; None when the queue is gone.

        What was found out is kept until routes are asked for again. Raises NoNameServer.
        """
        if queue not in self._absent:
            error = self._away(queue)
            if error is None:
                # The broker is there. Perhaps it came after the route was asked for: look again.
                self.refresh(force=True)
                error = self._away(queue)
                if queue in self.bounds:
                    error = RocketMQError("it was not in the route a moment ago")
            self._absent[queue] = error
        return self._absent[queue]

    def _away(self, queue: MessageQueue) -> Exception | None:
        name = queue.broker_name
        if name in self._unreachable:
            return self._unreachable[name]
        with naming_servers():
            masters = self._brokers.masters()
        if name not in masters:
            return RocketMQError(f"broker {name!r} is not registered at the name server")
        return None

    def _find_queues(self) -> None:
        try:
            with naming_servers():
                topics = chosen_topics(self._brokers, self._options)
                queues, addresses = self._brokers.known_queues(topics)
        except NoNameServer as error:
            if not self.queues:
                raise
            logger.warning("%s; going on with the queues known so far", error)
            return
        assigned = self._options.assigned
        found = frozenset(q for q in queues if assigned is None or q in assigned)
        for queue in sorted(found - self.queues) if self.queues else ():
            logger.info("new queue %s", queue)
        self.queues, self.addresses = found, addresses
        self._absent = {}

    def _ask_bounds(self) -> None:
        asked = sorted(queue for queue in self.queues if queue.broker_name in self.addresses)
        self.bounds, failures = self._brokers.bounds_of_reachable(asked, self.addresses)
        without_master = {
            queue.broker_name: RocketMQError(f"broker {queue.broker_name!r} has no master")
            for queue in self.queues
            if queue.broker_name not in self.addresses
        }
        self._unreachable = {**without_master, **failures}
        for name in sorted(self._unreachable.keys() - self._told):
            logger.warning(
                "broker %s: %s; its queues wait until it is back", name, self._unreachable[name]
            )
        self._told = set(self._unreachable)
        if self._unreachable and self._routes_at is not None:
            soon = time.monotonic() - self._options.route_refresh + _AWAY_SECONDS
            self._routes_at = min(self._routes_at, soon)
