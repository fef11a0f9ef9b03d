"""The administrator's public face."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, Self, TypeVar

from rocketmq_fast._core import MessageExt, RemotingCommand
from rocketmq_fast.admin.bodies import GroupMember, QueueLag, QueueRange
from rocketmq_fast.admin.calls import AdminCalls
from rocketmq_fast.admin.dead_letters import give_again, read_range
from rocketmq_fast.client.addresses import parse_offset_id
from rocketmq_fast.client.instance import ClientInstance
from rocketmq_fast.client.instances import acquire_instance, release_instance, unique_instance_name
from rocketmq_fast.client.lifecycle import hold, let_go
from rocketmq_fast.client.options import ClientOptions, check_range
from rocketmq_fast.errors import (
    BrokerError,
    BrokerNotFound,
    ClientStateError,
    ConfigError,
    QueryNotFound,
    RemotingError,
    SubscriptionGroupNotExist,
    TopicRouteNotFound,
)
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol.bodies import BrokerData, ClusterInfo, TopicRouteData
from rocketmq_fast.protocol.codes import Perm, RequestCode, ResponseCode
from rocketmq_fast.protocol.names import (
    DEFAULT_CONSUMER_GROUP,
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPICS,
    check_group,
    check_topic,
    dlq_topic,
)

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_MAX_QUEUES = 65535
_ALL_PERMISSIONS = int(Perm.READ | Perm.WRITE | Perm.INHERIT)
_TO_THE_END = -1
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_GROUPS = frozenset(
    """TOOLS_CONSUMER FILTERSRV_CONSUMER SELF_TEST_C_GROUP SELF_TEST_P_GROUP SCHEDULE_CONSUMER
    CLIENT_INNER_PRODUCER __MONITOR_CONSUMER CID_ONS-HTTP-PROXY CID_ONSAPI_OWNER
    CID_ONSAPI_PERMISSION CID_ONSAPI_PULL CID_SYS_RMQ_TRANS""".split()
)


class Admin:
    """Asks and changes what operators need: topics, groups, lag, offsets, messages.

    Options are those that all clients share (ClientOptions). Use it as a context manager, or
    `start` and `shutdown`. Methods block, may be called from any thread, and raise RocketMQError:
    BrokerError for a refusal, TopicRouteNotFound, NoNameServer, RemotingError without an answer.
    """

    def __init__(self, **options: Any) -> None:
        self._options = ClientOptions.of("Admin", options)
        if options.get("namespace") is not None:
            raise ConfigError("Admin knows no namespace; give the whole names: 'namespace%topic'")
        self._lock = threading.Lock()
        self._instance: ClientInstance | None = None

    # ----------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Begin. Raises NoNameServer when none answers."""
        with self._lock:
            if self._instance is not None:
                raise ClientStateError("the admin is started already")
            name = self._options.instance_name
            if name == "DEFAULT":
                name = unique_instance_name()
            instance = acquire_instance(self._options.client_id(name), self._options)
            try:
                instance.name_servers.cluster(self._options.api_timeout)
            except BaseException:
                release_instance(instance)
                raise
            self._instance = instance
        hold(self)

    def shutdown(self) -> None:
        """End. May be repeated."""
        with self._lock:
            instance, self._instance = self._instance, None
        if instance is not None:
            let_go(self)
            release_instance(instance)

    def shutdown_at_exit(self) -> None:
        """As `shutdown`: nothing of an admin is lost at the end of its program."""
        self.shutdown()

    def forget_after_fork(self) -> None:
        """Called in a forked child: it may start this admin anew, the parent's goes on."""
        self._lock = threading.Lock()
        self._instance = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _started(self) -> ClientInstance:
        instance = self._instance
        if instance is None:
            raise ClientStateError("the admin is not started")
        return instance

    def _calls(self) -> AdminCalls:
        return AdminCalls(
            self._started().remoting,
            self._options.api_timeout,
            vip=self._options.vip_channel_enabled,
        )

    # ------------------------------------------------------------------------------- cluster

    def cluster(self) -> ClusterInfo:
        """All brokers and clusters that the name servers know."""
        return self._started().name_servers.cluster(self._options.api_timeout)

    def _masters(self, cluster: str | None = None, broker: str | None = None) -> dict[str, str]:
        """Master addresses by broker name. Raises BrokerNotFound when there is none."""
        info = self.cluster()
        wanted: Iterable[str] = info.brokers
        if broker is not None:
            wanted = [broker]
        elif cluster is not None:
            wanted = info.clusters.get(cluster, ())
        masters = _masters_of(info.brokers[name] for name in wanted if name in info.brokers)
        if not masters:
            where = f"broker {broker!r}" if broker else f"cluster {cluster!r}" if cluster else "any"
            raise BrokerNotFound(f"the name servers know no master of {where}")
        return masters

    # -------------------------------------------------------------------------------- topics

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = 6,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Create a topic, or change it, with so many queues on each master.

        One queue on one broker gives a global order. `perm`: 4 to read, 2 to write, 6 for both.
        `cluster` or `broker` names where; everywhere without. Raises ConfigError, BrokerNotFound.
        """
        check_topic(topic)
        reads = queues if read_queues is None else read_queues
        writes = queues if write_queues is None else write_queues
        check_range("read_queues", reads, 1, _MAX_QUEUES)
        check_range("write_queues", writes, 1, _MAX_QUEUES)
        check_range("perm", perm, 0, _ALL_PERMISSIONS)
        calls = self._calls()
        for address in self._masters(cluster, broker).values():
            calls.create_topic(address, topic, read_queues=reads, write_queues=writes, perm=perm)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages on every broker, and its route on every name server."""
        check_topic(topic)
        calls = self._calls()
        for address in self._masters().values():
            calls.delete_topic(address, topic)
        instance = self._started()
        for address in instance.name_servers.addresses:
            command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
            try:
                answer = instance.remoting.invoke(address, command, self._options.api_timeout)
            except RemotingError as error:
                logger.warning("name server %s still has topic %s: %s", address, topic, error)
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError.of(answer.code, answer.remark, address)

    def topics(self, *, internal: bool = False) -> list[str]:
        """Names of all topics, sorted; RocketMQ's own, retry and dead-letter ones if `internal`."""
        names = self._started().name_servers.topics(self._options.api_timeout)
        if internal:
            return sorted(names)
        info = self.cluster()
        own = {*SYSTEM_TOPICS, *info.brokers, *info.clusters}
        own |= {f"{name}_REPLY_TOPIC" for name in info.clusters}
        prefixes = (RETRY_PREFIX, DLQ_PREFIX, "rmq_sys_")
        return sorted(n for n in names if n not in own and not n.startswith(prefixes))

    def route(self, topic: str) -> TopicRouteData:
        """Queues and brokers of a topic. Raises TopicRouteNotFound."""
        return self._started().name_servers.route(topic, self._options.api_timeout)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Queues of a topic that can be read. Raises TopicRouteNotFound."""
        return self.route(topic).subscribe_queues(topic)

    def offsets(self, topic: str) -> dict[MessageQueue, QueueRange]:
        """First and next offset of each queue of a topic, sorted. Raises TopicRouteNotFound."""
        calls = self._calls()
        found: dict[MessageQueue, QueueRange] = {}
        for address in _masters_of(self.route(topic).broker_datas).values():
            found |= calls.topic_stats(address, topic)
        return dict(sorted(found.items()))

    def _master_of(self, queue: MessageQueue) -> str:
        address = _masters_of(self.route(queue.topic).broker_datas).get(queue.broker_name)
        if address is None:
            raise BrokerNotFound(f"the route of {queue} names no master")
        return address

    def min_offset(self, queue: MessageQueue) -> int:
        """First offset that is there."""
        return self._calls().min_offset(self._master_of(queue), queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """Next offset to be written."""
        return self._calls().max_offset(self._master_of(queue), queue)

    def search_offset(self, queue: MessageQueue, timestamp: datetime | int) -> int:
        """Offset of the message stored at a time; a 4.x broker takes the nearest, 5.x the next."""
        address = self._master_of(queue)
        return self._calls().search_offset(address, queue, _milliseconds(timestamp))

    # -------------------------------------------------------------------------------- groups

    def groups(self, *, internal: bool = False) -> list[str]:
        """Consumer groups that any broker knows, sorted; RocketMQ's own too if `internal`."""
        calls = self._calls()
        names = {name for a in self._masters().values() for name in calls.group_names(a)}
        if not internal:
            names = {
                name for name in names - _SYSTEM_GROUPS if not name.startswith(_SYSTEM_GROUP_PREFIX)
            }
        return sorted(names)

    def create_group(self, group: str, *, retry_max_times: int = 16) -> None:
        """Create a consumer group, or change it, on every master."""
        check_group(group, DEFAULT_CONSUMER_GROUP)
        check_range("retry_max_times", retry_max_times, 0, 2**31 - 1)
        calls = self._calls()
        for address in self._masters().values():
            calls.create_group(address, group, retry_max_times)

    def members(self, group: str) -> list[GroupMember]:
        """Consumers of a group that are connected now, sorted by client id."""
        calls = self._calls()
        found = {
            member.client_id: member
            for address in self._masters().values()
            for member in calls.members(address, group)
        }
        return sorted(found.values())

    def lag(self, group: str, topic: str | None = None) -> dict[MessageQueue, QueueLag]:
        """Progress of a group in each queue, sorted; empty when it has no offsets anywhere.

        While members are connected, brokers tell of the topics they subscribed; else of all topics
        that the group has offsets in, its retry topic among them.
        """
        calls = self._calls()
        found: dict[MessageQueue, QueueLag] = {}
        for address in self._masters().values():
            found |= calls.consume_stats(address, group, topic)
        return dict(sorted(found.items()))

    def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        timestamp: datetime | int | None = None,
        offset: int | Literal["earliest", "latest"] | Mapping[MessageQueue, int] | None = None,
    ) -> dict[MessageQueue, int]:
        """Move a group. Returns the new offset of each queue.

        `timestamp`: to the messages stored from then on. `offset`: the same number for every queue,
        a number for each of some queues, "earliest" or "latest"; numbers outside of a queue are
        brought to its ends. A running group is told by its brokers: by a 4.x broker at once, by a
        5.x broker at the next pull, which an idle group makes within 20 s. 4.x brokers move a
        running group by timestamp, "earliest" or "latest" only; numbers written meanwhile would be
        overwritten by its members' commits: ClientStateError. Also ConfigError, TopicRouteNotFound.
        """
        if (timestamp is None) == (offset is None):
            raise ConfigError("give either timestamp or offset")
        if isinstance(offset, str) and offset not in ("earliest", "latest"):
            raise ConfigError(f"offset is {offset!r}; as text it must be 'earliest' or 'latest'")
        check_group(group, DEFAULT_CONSUMER_GROUP)
        members = self.members(group)
        if members:
            if timestamp is not None:
                moment = _milliseconds(timestamp)
            elif offset == "latest":
                moment = _TO_THE_END
            elif offset == "earliest":
                moment = 0
            else:
                return self._reset_online_by_number(
                    group, self._targets(topic, None, offset), len(members)
                )
            return self._reset_online(group, topic, moment)
        targets = self._targets(topic, timestamp, offset)
        for queue, target in targets.items():
            self._commit(group, queue, target)
        return targets

    def _reset_online(self, group: str, topic: str, moment: int) -> dict[MessageQueue, int]:
        calls = self._calls()
        found: dict[MessageQueue, int] = {}
        for address in _masters_of(self.route(topic).broker_datas).values():
            found |= calls.reset_offset(address, group, topic, moment)
        return dict(sorted(found.items()))

    def _reset_online_by_number(
        self, group: str, targets: dict[MessageQueue, int], members: int
    ) -> dict[MessageQueue, int]:
        calls = self._calls()
        addresses = {queue: self._master_of(queue) for queue in targets}
        for address in sorted(set(addresses.values())):
            if not calls.takes_numbers(address):
                raise ClientStateError(
                    f"group {group!r} has {members} members, and broker {address} moves running "
                    "groups by time only; offsets by number need a group without members there"
                )
        for queue, target in targets.items():
            calls.reset_queue(addresses[queue], group, queue, target)
        return targets

    def _targets(
        self,
        topic: str,
        timestamp: datetime | int | None,
        offset: int | str | Mapping[MessageQueue, int] | None,
    ) -> dict[MessageQueue, int]:
        """Where each queue shall go on."""
        ranges = self.offsets(topic)
        if isinstance(offset, Mapping):
            unknown = [queue for queue in offset if queue not in ranges]
            if unknown:
                raise ConfigError(f"{unknown[0]} is no queue of topic {topic!r}")
            ranges = {queue: ranges[queue] for queue in sorted(offset)}
        targets = {}
        now = int(time.time() * 1000)
        for queue, bounds in ranges.items():
            if timestamp is not None:
                moment = _milliseconds(timestamp)
                # A 4.x broker names the last message for any later time.
                wanted = bounds.max_offset if moment >= now else self.search_offset(queue, moment)
            elif offset == "earliest":
                wanted = bounds.min_offset
            elif offset == "latest":
                wanted = bounds.max_offset
            else:
                given = offset[queue] if isinstance(offset, Mapping) else offset
                wanted = check_range(f"offset of {queue}", given, 0, 2**63 - 1)
            targets[queue] = min(max(wanted, bounds.min_offset), bounds.max_offset)
        return targets

    def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store an offset of a group without members, and see that it is there."""
        calls = self._calls()
        address = self._master_of(queue)
        try:
            calls.commit_offset(address, group, queue, offset)
        except SubscriptionGroupNotExist:
            # A 5.x broker keeps offsets only of groups it knows; this one has not run yet.
            self.create_group(group)
            calls.commit_offset(address, group, queue, offset)
        stored = calls.consumer_offset(address, group, queue)
        if stored != offset:
            raise ClientStateError(
                f"the offset of group {group!r} in {queue} is {stored}, not {offset}: "
                "a member or another reset changed it"
            )

    # ------------------------------------------------------------------------------ messages

    def view(self, msg_id: str, topic: str | None = None) -> MessageExt:
        """A message by its id: the broker's offset id, or with `topic` the unique id.

        Raises QueryNotFound, ConfigError for what is no id, MessageDecodeError when no message
        begins at the offset, BrokerNotFound when the id names no broker of this cluster.
        """
        address, offset = parse_offset_id(msg_id)
        info = self.cluster()
        for name, data in info.brokers.items():
            if address in data.broker_addrs.values():
                return self._calls().view_message(address, offset, name)
        if topic is None:
            raise BrokerNotFound(
                f"message id {msg_id!r} is of no broker here; a unique id needs the topic"
            )
        found = self._query(
            topic,
            lambda calls, name, address: calls.query_message(
                address, topic, msg_id, broker_name=name, unique=True
            ),
        )
        if not found:
            raise QueryNotFound(
                ResponseCode.QUERY_NOT_FOUND, f"no message of topic {topic!r} has id {msg_id!r}"
            )
        return found[0]

    def dead_letters(self, group: str) -> Iterator[MessageExt]:
        """What the group failed for good and is still stored, oldest first per queue.

        Messages of topic `%DLQ%group`; property RETRY_TOPIC tells where one came from. Reads while
        it is iterated, up to what was there at the call; empty for a group without dead letters.
        """
        check_group(group, DEFAULT_CONSUMER_GROUP)
        try:
            ranges = self.offsets(dlq_topic(group))
        except TopicRouteNotFound:
            ranges = {}
        return read_range(self._calls(), self._master_of, ranges)

    def resend_dead_letter(self, group: str, message: MessageExt) -> None:
        """Give a dead letter to its group once more, with all its tries before it.

        Other groups do not see it, and the dead letter stays stored: resent twice, it is consumed
        twice. Raises ConfigError for a message that is no dead letter of the group.
        """
        check_group(group, DEFAULT_CONSUMER_GROUP)
        give_again(self._started(), group, message)

    def query(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 32,
        begin: datetime | int = 0,
        end: datetime | int | None = None,
    ) -> list[MessageExt]:
        """Messages that have `key` among their keys, oldest first, stored between two times."""
        begin_ms = _milliseconds(begin)
        end_ms = 2**63 - 1 if end is None else _milliseconds(end)
        check_range("max_num", max_num, 1, 64)
        found = self._query(
            topic,
            lambda calls, name, address: calls.query_message(
                address,
                topic,
                key,
                broker_name=name,
                max_num=max_num,
                begin_ms=begin_ms,
                end_ms=end_ms,
            ),
        )
        return sorted(found, key=lambda message: message.store_timestamp)[:max_num]

    def _query(self, topic: str, ask: Callable[[AdminCalls, str, str], list[_T]]) -> list[_T]:
        masters = _masters_of(self.route(topic).broker_datas)
        if not masters:
            raise TopicRouteNotFound(topic, f"the route of topic {topic!r} names no master")
        calls = self._calls()
        return [item for name, address in masters.items() for item in ask(calls, name, address)]


def _masters_of(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Master addresses by broker name."""
    return {data.broker_name: data.master for data in brokers if data.master is not None}


def _milliseconds(moment: datetime | int) -> int:
    """A time as ms since the epoch. Raises ConfigError."""
    if isinstance(moment, datetime):
        return int(moment.timestamp() * 1000)
    return check_range("timestamp", moment, 0, 2**63 - 1)
