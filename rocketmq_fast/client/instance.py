"""The client instance: what all consumers and producers of one client id share.

One event loop with its connections, the route table, the tasks, the rebalance thread.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from rocketmq_fast._core import MessageExt, RemotingCommand
from rocketmq_fast.client.address_server import CHECK_SECONDS, AddressServer
from rocketmq_fast.client.addresses import vip_channel
from rocketmq_fast.client.broker_calls import BrokerCalls
from rocketmq_fast.client.inbound import AskedOfConsumers, ConsumerMember
from rocketmq_fast.client.name_servers import NameServers
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.client.options import ClientOptions
from rocketmq_fast.client.pushed import PRODUCER_REQUESTS, PushedToProducers
from rocketmq_fast.client.tasks import PeriodicTasks
from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    ClientStateError,
    CodecError,
    ConfigError,
    RemotingError,
    RocketMQError,
    TopicRouteNotFound,
)
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import (
    BrokerData,
    HeartbeatData,
    TopicRouteData,
)
from rocketmq_fast.protocol.codes import (
    Perm,
    RequestCode,
)
from rocketmq_fast.protocol.names import AUTO_CREATE_TOPIC, INNER_PRODUCER_GROUP, RETRY_PREFIX
from rocketmq_fast.remoting.client import RemotingClient
from rocketmq_fast.remoting.connection import Connection
from rocketmq_fast.remoting.loop import EventLoop

logger = logging.getLogger(__name__)

REBALANCE_INTERVAL_SECONDS = 20.0
# After a broker could not be reached: when the routes are asked for, and then twice that each time.
_DOUBT_SECONDS = 0.5
_DOUBT_MOST_SECONDS = 30.0
_MASTER_ID = 0
# How soon a topic that does not exist is looked for again; the time doubles.
_LOOK_SECONDS = 1.0


class ProducerMember(Protocol):
    """What the instance needs of a producer."""

    @property
    def group(self) -> str:
        """Producer group."""

    def publish_topics(self) -> Iterable[str]:
        """Topics whose routes it needs."""

    @property
    def names(self) -> Namespace:
        """Its namespace."""

    def check_transaction(
        self, address: str, message: MessageExt, fields: Mapping[str, str]
    ) -> None:
        """Have a transaction's state found out and sent. Event loop: must not block."""


class ClientInstance:
    """See the module. Methods may be called from any thread; those that ask servers block."""

    def __init__(
        self,
        client_id: str,
        options: ClientOptions,
        name_servers: Sequence[str],
        address_server: AddressServer | None,
    ) -> None:
        self.client_id = client_id
        self.options = options
        self._address_server = address_server
        self.loop = EventLoop(f"rocketmq-io-{client_id}")
        self.remoting = RemotingClient(
            self.loop,
            self._on_request,
            rpc_hooks=options.rpc_hooks,
            signer=options.signer(),
            tls=options.tls(),
            on_unreachable=self._on_unreachable,
            on_closed=self._on_closed,
        )
        self.name_servers = NameServers(self.remoting, name_servers)
        self.brokers = BrokerCalls(
            self.remoting, options.api_timeout, vip=options.vip_channel_enabled
        )
        self.users = 0
        self._tasks = PeriodicTasks(f"rocketmq-tasks-{client_id}")
        self._rebalance_wanted = threading.Event()
        self._rebalance_thread = threading.Thread(
            target=self._rebalance_loop, name=f"rocketmq-rebalance-{client_id}", daemon=True
        )
        self._heartbeat_wanted = False
        self._looking = False  # for topics without a route; tasks thread
        self._announced = False  # a heartbeat was sent
        self._rejoin_due = False
        self._refresh_due = False
        self._refresh_delay = _DOUBT_SECONDS
        self._refreshed_at = -math.inf
        self._stopping = False
        self._started = False
        self._lock = threading.Lock()
        self._consumers: dict[str, ConsumerMember] = {}
        self._producers: dict[str, ProducerMember] = {}
        self.pushed = PushedToProducers(self._producers)
        self._routes: dict[str, TopicRouteData] = {}
        self._kept_topics: set[str] = set()
        self._broker_table: dict[str, BrokerData] = {}
        self._broker_names: dict[str, str] = {}  # by address, also those of before
        self._broker_versions: dict[str, int] = {}
        self._heartbeat_lock = threading.Lock()
        self._asked = AskedOfConsumers(client_id, self._consumers)

    # ---------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Start the threads. Does nothing the second time."""
        with self._lock:
            if self._started:
                return
            self._started = True
        options = self.options
        self.loop.start()
        self._tasks.every(options.poll_name_server_interval / 1000, self.refresh_routes, first=0.01)
        self._tasks.every(
            options.heartbeat_broker_interval / 1000, self._clean_and_heartbeat, first=1.0
        )
        if self._address_server is not None:
            self._tasks.every(CHECK_SECONDS, self._ask_address_server, first=CHECK_SECONDS)
        self._tasks.start()
        period = options.persist_consumer_offset_interval / 1000
        self.loop.call_later(min(10.0, period), self._persist_offsets)
        self._rebalance_thread.start()

    def stop(self) -> None:
        """End all threads and connections."""
        self._stopping = True
        self._rebalance_wanted.set()
        if self._started:
            self._tasks.stop()
            if self._rebalance_thread is not threading.current_thread():
                self._rebalance_thread.join(5.0)
        self.remoting.close()
        self.loop.stop()

    def _ask_address_server(self) -> None:
        server = self._address_server
        if server is None or not server.due:
            return
        addresses = server.refresh()
        if addresses is not None and self._address_server is server:  # else they were given since
            self._use_name_servers(addresses)

    def update_name_servers(self, addresses: Sequence[str]) -> None:
        """Ask these from now on, and no address server any more. The connections stay."""
        self._address_server = None
        self._use_name_servers(addresses)

    def _use_name_servers(self, addresses: Sequence[str]) -> None:
        if self.name_servers.update(addresses):
            self._tasks.soon(self.refresh_routes)

    def uses_name_servers_of(self, options: ClientOptions) -> bool:
        """Whether a client with these options may share this instance."""
        wanted = set(options.namesrv_addr)
        if wanted and wanted == set(self.name_servers.addresses):
            return True
        mine, theirs = self.options.address_server(), options.address_server()
        if mine is None or theirs is None:
            return wanted == set(self.options.namesrv_addr)
        return mine.url == theirs.url

    def _persist_offsets(self) -> None:
        for consumer in list(self._consumers.values()):
            consumer.persist_offsets()
        period = self.options.persist_consumer_offset_interval / 1000
        self.loop.call_later(period, self._persist_offsets)

    # ------------------------------------------------------------------------------ members

    def register_consumer(self, consumer: ConsumerMember) -> None:
        """Raises ConfigError when the group has a consumer in this instance already."""
        with self._lock:
            if consumer.group in self._consumers:
                raise ConfigError(
                    f"group {consumer.group!r} has a consumer in client {self.client_id!r} already"
                )
            self._consumers[consumer.group] = consumer
        # The first round may have been before it, and the next one is far.
        self._tasks.soon(self._begin_to_look)

    def register_producer(self, producer: ProducerMember) -> None:
        """Raises ConfigError when the group has a producer in this instance already."""
        with self._lock:
            if producer.group in self._producers:
                raise ConfigError(
                    f"group {producer.group!r} has a producer in client {self.client_id!r} already"
                )
            self._producers[producer.group] = producer

    def unregister_consumer(self, group: str, *, wait: bool = True) -> None:
        """Forget the consumer and tell every broker; without `wait`, not heeding the answers."""
        with self._heartbeat_lock:  # no heartbeat on its way may bring the member back
            with self._lock:
                self._consumers.pop(group, None)
            self._tell_unregistered(consumer=group, wait=wait)

    def unregister_producer(self, group: str, *, wait: bool = True) -> None:
        """Forget the producer and tell every broker; without `wait`, not heeding the answers."""
        with self._heartbeat_lock:
            with self._lock:
                self._producers.pop(group, None)
            self._tell_unregistered(producer=group, wait=wait)

    def _tell_unregistered(
        self, *, consumer: str | None = None, producer: str | None = None, wait: bool = True
    ) -> None:
        for address in self.broker_addresses(with_slaves=True):
            try:
                self.brokers.unregister(
                    address, self.client_id, consumer=consumer, producer=producer, wait=wait
                )
            except RocketMQError as error:
                logger.warning("unregistering at %s: %s", address, error)

    # ------------------------------------------------------------------------------- routes

    def route(self, topic: str) -> TopicRouteData | None:
        """The cached route."""
        return self._routes.get(topic)

    def update_route(
        self,
        topic: str,
        *,
        default_queues: int | None = None,
        create_topic_key: str = AUTO_CREATE_TOPIC,
    ) -> TopicRouteData:
        """Fetch a route and keep it.

        With `default_queues`, a topic without a route takes that of the auto-create topic
        `create_topic_key`, with at most so many queues: the broker makes the topic at the first
        send. Raises TopicRouteNotFound, NoNameServer, BrokerError, BodyError.
        """
        timeout = self.options.api_timeout
        try:
            route = self.name_servers.route(topic, timeout)
        except TopicRouteNotFound:
            if default_queues is None:
                raise
            route = self._template_route(topic, default_queues, create_topic_key)
        self._store_route(topic, route)
        return route

    def _template_route(self, topic: str, queues: int, create_topic_key: str) -> TopicRouteData:
        """The route that a topic will have once a broker made it."""
        try:
            template = self.name_servers.route(create_topic_key, self.options.api_timeout)
        except TopicRouteNotFound:
            raise TopicRouteNotFound(
                topic,
                f"no route for topic {topic!r} on the name servers, "
                f"and none for {create_topic_key!r}, so the brokers do not create it",
            ) from None
        return _template_route(template, queues)

    def _store_route(self, topic: str, route: TopicRouteData) -> None:
        with self._lock:
            known = self._routes.get(topic)
            if known == route:
                return
            self._routes[topic] = route
            fresh = [
                data
                for data in route.broker_datas
                if self._broker_table.get(data.broker_name) != data
            ]
            for data in fresh:
                self._broker_table[data.broker_name] = data
                for address in data.broker_addrs.values():
                    self._broker_names[address] = data.broker_name
        logger.info("route of topic %s %s", topic, "changed" if known else "found")
        if fresh and self._announced:
            # A broker that has not heard of us answers neither pulls nor who the members are.
            self.heartbeat_soon()
        if known is not None and known.subscribe_queues(topic) != route.subscribe_queues(topic):
            self.rebalance_soon()

    def keep_route(self, topic: str) -> None:
        """Have the route of a topic refreshed that no member names."""
        with self._lock:
            self._kept_topics.add(topic)

    def refresh_routes(self) -> None:
        """Fetch the routes of every topic that a member uses."""
        with self._lock:
            topics = set(self._kept_topics)
            topics |= {t for c in self._consumers.values() for t in c.subscribed_topics()}
            topics |= {t for p in self._producers.values() for t in p.publish_topics()}
        if self._refresh(topics):
            self._begin_to_look()

    def _begin_to_look(self) -> None:
        """Look for topics without a route before the next round. Tasks thread."""
        if not self._looking:
            self._looking = True
            self._look_later(_LOOK_SECONDS)

    def _look_later(self, delay: float) -> None:
        self._tasks.every(math.inf, partial(self._look_for_missing, delay), first=delay)

    def _look_for_missing(self, delay: float) -> None:
        """Look for topics without a route more often at first: they may be about to be made."""
        with self._lock:
            topics = {t for c in self._consumers.values() for t in c.subscribed_topics()}
            topics -= self._routes.keys()
        delay *= 2
        missing = self._refresh(topics)
        if missing and delay < self.options.poll_name_server_interval / 1000:
            self._look_later(delay)
        else:
            self._looking = False

    def _refresh(self, topics: Iterable[str]) -> bool:
        """Fetch these routes; whether a topic that is not for retries has none."""
        missing = False
        for topic in sorted(topics):
            if self._stopping:
                return False
            known = topic in self._routes
            try:
                self.update_route(topic)
            except TopicRouteNotFound as error:
                if not topic.startswith(RETRY_PREFIX):
                    # Who starts with a topic that does not exist was told of it then.
                    logger.log(logging.WARNING if known else logging.DEBUG, "%s", error)
                    missing = True
            except (RemotingError, BrokerError, CodecError) as error:
                logger.warning("route of topic %s was not refreshed: %s", topic, error)
            except ClientStateError as error:  # stopped in between
                logger.debug("route of topic %s was not refreshed: %s", topic, error)
                return False
            else:
                if not known:
                    self.rebalance_soon()
        return missing

    def _on_unreachable(self, address: str) -> None:
        """Ask for the routes before their time: the broker may be gone from them. Event loop."""
        now = time.monotonic()
        if self._refresh_due or address in self.name_servers.addresses:
            return
        if now - self._refreshed_at > 2 * _DOUBT_MOST_SECONDS:
            self._refresh_delay = _DOUBT_SECONDS
        self._refresh_due = True
        self.loop.call_later(self._refresh_delay, self._refresh_doubtful)
        self._refresh_delay = min(2 * self._refresh_delay, _DOUBT_MOST_SECONDS)

    def _on_closed(self, address: str) -> None:
        """Tell the consumers whose brokers may have restarted. Event loop."""
        name = self._broker_names.get(address)
        if name is not None:
            for consumer in list(self._consumers.values()):
                consumer.on_disconnected(name)

    def _refresh_doubtful(self) -> None:
        self._refresh_due = False
        self._refreshed_at = time.monotonic()
        self._tasks.soon(self.refresh_routes)

    def _clean_and_heartbeat(self) -> None:
        self._drop_offline_brokers()
        self.heartbeat()

    def _drop_offline_brokers(self) -> None:
        """Forget brokers that no route names any more."""
        with self._lock:
            live = {
                data.broker_name: data
                for route in self._routes.values()
                for data in route.broker_datas
            }
            for name in [name for name in self._broker_table if name not in live]:
                logger.info("broker %s is in no route any more", name)
                del self._broker_table[name]

    # ------------------------------------------------------------------------------ brokers

    def broker_addresses(self, *, with_slaves: bool) -> list[str]:
        """Addresses of all known brokers."""
        with self._lock:
            table = list(self._broker_table.values())
        return [
            address
            for data in table
            for broker_id, address in sorted(data.broker_addrs.items())
            if with_slaves or broker_id == _MASTER_ID
        ]

    def broker_address(
        self, name: str, broker_id: int = _MASTER_ID, *, only_this: bool = False
    ) -> tuple[str, bool]:
        """(address, whether it is a slave) of a broker name; the wanted id, or else any other.

        Raises BrokerNotFound.
        """
        data = self._broker_table.get(name)
        if data is not None and data.broker_addrs:
            ids = [broker_id] if only_this else [broker_id, broker_id + 1, *data.broker_addrs]
            for candidate in ids:
                address = data.broker_addrs.get(candidate)
                if address is not None:
                    return address, candidate != _MASTER_ID
        raise BrokerNotFound(f"no address of broker {name!r} (id {broker_id}) in any route")

    def master_of(self, queue: MessageQueue) -> str:
        """Address of the queue's master; refreshes the route once.

        Raises BrokerNotFound, or what update_route raises.
        """
        try:
            return self.broker_address(queue.broker_name, only_this=True)[0]
        except BrokerNotFound:
            self.update_route(queue.topic)
        return self.broker_address(queue.broker_name)[0]

    def send_address(self, name: str) -> str:
        """Where messages for a broker go: its master, by the VIP channel if that is wanted.

        Raises BrokerNotFound.
        """
        address, _ = self.broker_address(name, only_this=True)
        return vip_channel(address) if self.options.vip_channel_enabled else address

    def any_broker_of(self, topic: str) -> str:
        """A random broker that hosts the topic, a master if there is one.

        Raises TopicRouteNotFound, or what update_route raises.
        """
        route = self._routes.get(topic) or self.update_route(topic)
        datas = [data for data in route.broker_datas if data.broker_addrs]
        if not datas:
            raise TopicRouteNotFound(topic, f"the route of topic {topic!r} names no broker")
        data = random.choice(datas)
        return data.master or next(iter(data.broker_addrs.values()))

    # ---------------------------------------------------------------------------- heartbeat

    def heartbeat(self) -> None:
        """Tell every broker about all members. Failures are logged."""
        with self._heartbeat_lock:
            with self._lock:
                consumers = list(self._consumers.values())
                producers = list(self._producers)
            if not consumers and not producers:
                return
            self._announced = True
            data = HeartbeatData(
                self.client_id,
                tuple(sorted({*producers, INNER_PRODUCER_GROUP})),
                tuple(data for member in consumers if (data := member.consumer_data()) is not None),
            )
            for address in self.broker_addresses(with_slaves=bool(consumers)):
                if self._stopping:
                    return
                try:
                    self._broker_versions[address] = self.brokers.heartbeat(address, data)
                except RocketMQError as error:
                    logger.warning("heartbeat to %s: %s", address, error)

    def heartbeat_soon(self) -> None:
        """Have the rebalance thread send a heartbeat before its next round. Any thread."""
        self._heartbeat_wanted = True
        self._rebalance_wanted.set()

    def rejoin_later(self, delay: float) -> bool:
        """Have a heartbeat and a round of rebalancing after `delay` seconds, unless one is due.

        For members that found a broker away: when it is back it does not know them. Returns
        whether this call set the time. Rebalance thread.
        """
        if self._rejoin_due:
            return False
        self._rejoin_due = True
        self.loop.call_later(delay, self._rejoin)
        return True

    def _rejoin(self) -> None:
        self._rejoin_due = False
        self.heartbeat_soon()

    def broker_version(self, address: str) -> int:
        """Version ordinal from the last heartbeat, 0 when unknown."""
        return self._broker_versions.get(address, 0)

    # ---------------------------------------------------------------------------- rebalance

    def rebalance_soon(self) -> None:
        """Have the rebalance thread run now. Wake-ups while it is busy become one more round."""
        self._rebalance_wanted.set()

    def rebalance_later(self, delay: float) -> None:
        """Have the rebalance thread run after `delay` seconds, at the latest."""
        self.loop.call_later(delay, self.rebalance_soon)

    def _rebalance_loop(self) -> None:
        while not self._stopping:
            self._rebalance_wanted.wait(REBALANCE_INTERVAL_SECONDS)
            self._rebalance_wanted.clear()
            if self._heartbeat_wanted:
                self._heartbeat_wanted = False
                self.heartbeat()
            for consumer in list(self._consumers.values()):
                if self._stopping:
                    return
                try:
                    consumer.rebalance()
                except Exception:
                    logger.exception("rebalance of group %s failed", consumer.group)

    # ------------------------------------------------------------------------------ inbound

    def _on_request(self, connection: Connection, command: RemotingCommand) -> None:
        """A request from a broker. Event loop, so it only sets flags."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            logger.info("members of group %s changed", command.ext_fields.get("consumerGroup"))
            self.rebalance_soon()
            return
        if command.code in PRODUCER_REQUESTS:
            self.pushed.serve(connection, command)
            return
        self._asked.serve(connection, command)


def _template_route(route: TopicRouteData, queues: int) -> TopicRouteData:
    """The auto-create topic's route as a new topic will get it."""
    return TopicRouteData(
        tuple(
            type(data)(
                data.broker_name,
                min(queues, data.read_queue_nums),
                min(queues, data.read_queue_nums),
                data.perm & ~Perm.INHERIT,
                data.topic_sys_flag,
            )
            for data in route.queue_datas
        ),
        route.broker_datas,
    )
