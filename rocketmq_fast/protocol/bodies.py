"""Bodies of requests and answers as values: routes, heartbeats, queue lists, offset tables."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketmq_fast.errors import BodyError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol import fastjson
from rocketmq_fast.protocol.codes import Perm

_MASTER_ID = 0
# More queues than this in one route is a mistake or an attack: each becomes an object here.
_MAX_QUEUES = 1 << 20


def _object(data: bytes | str, what: str) -> dict[Any, Any]:
    try:
        value = fastjson.loads(data)
    except BodyError as error:
        place = error.position
        raise BodyError(f"{what}: {error} at character {place}", place) from None
    if not isinstance(value, dict):
        raise BodyError(f"{what} is a {type(value).__name__}, not an object")
    return value


def _get(table: object, name: str, what: str, default: object = None) -> Any:
    if not isinstance(table, Mapping):
        raise BodyError(f"{what}: a {type(table).__name__} where an object with {name!r} belongs")
    return table.get(name, default)


def _text(table: object, name: str, what: str) -> str:
    value = _get(table, name, what)
    if not isinstance(value, str):
        raise BodyError(f"{what}: field {name!r} is {value!r}, not text")
    return value


def _int(table: object, name: str, what: str, default: int | None = None) -> int:
    return _integer(_get(table, name, what, default), f"{what}: field {name!r}")


def _integer(given: object, what: str) -> int:
    value = given
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            value = None
    if not isinstance(value, int) or isinstance(value, bool):
        raise BodyError(f"{what} is {reprlib.repr(given)}, not an integer")
    return value


def _list(table: object, name: str, what: str) -> list[Any]:
    value = _get(table, name, what)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyError(f"{what}: field {name!r} is a {type(value).__name__}, not a list")
    return value


def _map(table: object, name: str, what: str) -> dict[Any, Any]:
    value = _get(table, name, what)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BodyError(f"{what}: field {name!r} is a {type(value).__name__}, not an object")
    return value


def compact(value: Any) -> bytes:
    """Standard JSON without blanks, UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# ------------------------------------------------------------------------------------ routes


@dataclass(frozen=True, slots=True, order=True)
class QueueData:
    """Queues of a topic on one broker."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    def to_json(self) -> dict[str, Any]:
        """As Java writes it."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }


@dataclass(frozen=True, slots=True)
class BrokerData:
    """Addresses of the brokers that share a name: id 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]

    @property
    def master(self) -> str | None:
        """Address of id 0."""
        return self.broker_addrs.get(_MASTER_ID)


@dataclass(frozen=True, slots=True)
class TopicRouteData:
    """Where a topic is: answer to request 105."""

    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    order_topic_conf: str | None = None

    @classmethod
    def from_body(cls, body: bytes | str, topic: str) -> TopicRouteData:
        """Decode. Raises BodyError that names the topic and the field."""
        what = f"route of topic {topic!r}"
        table = _object(body, what)
        queues = []
        total = 0
        for item in _list(table, "queueDatas", what):
            if not isinstance(item, dict):
                raise BodyError(f"{what}: an entry of 'queueDatas' is no object")
            data = QueueData(
                _text(item, "brokerName", what),
                _int(item, "readQueueNums", what),
                _int(item, "writeQueueNums", what),
                _int(item, "perm", what),
                _int(item, "topicSysFlag", what, 0),
            )
            total += max(data.read_queue_nums, data.write_queue_nums)
            if min(data.read_queue_nums, data.write_queue_nums) < 0 or total > _MAX_QUEUES:
                raise BodyError(
                    f"{what}: {data.read_queue_nums} read and {data.write_queue_nums} write queues "
                    f"on broker {data.broker_name!r} are out of bounds"
                )
            queues.append(data)
        brokers = []
        for item in _list(table, "brokerDatas", what):
            if not isinstance(item, dict):
                raise BodyError(f"{what}: an entry of 'brokerDatas' is no object")
            name = _text(item, "brokerName", what)
            addresses: dict[int, str] = {}
            for key, address in _map(item, "brokerAddrs", what).items():
                try:
                    broker_id = int(key)
                except (TypeError, ValueError):
                    raise BodyError(f"{what}: broker id {key!r} of {name!r}") from None
                if not isinstance(address, str):
                    raise BodyError(f"{what}: address {address!r} of {name!r}")
                addresses[broker_id] = address
            cluster = item.get("cluster")
            brokers.append(BrokerData(cluster if isinstance(cluster, str) else "", name, addresses))
        conf = table.get("orderTopicConf")
        return cls(
            tuple(sorted(queues)),
            tuple(sorted(brokers, key=lambda data: data.broker_name)),
            conf if isinstance(conf, str) and conf else None,
        )

    def broker(self, name: str) -> BrokerData | None:
        """Addresses of a broker name."""
        for data in self.broker_datas:
            if data.broker_name == name:
                return data
        return None

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Queues to send to: writable ones of brokers with a master, or what the order topic
        configuration pins. Sorted by broker name and queue id.
        """
        if self.order_topic_conf:
            return [
                MessageQueue(topic, name, queue_id)
                for name, count in _order_conf(self.order_topic_conf, topic)
                for queue_id in range(count)
            ]
        queues = []
        for data in self.queue_datas:
            broker = self.broker(data.broker_name)
            if data.perm & Perm.WRITE and broker is not None and broker.master is not None:
                queues += [
                    MessageQueue(topic, data.broker_name, i) for i in range(data.write_queue_nums)
                ]
        return queues

    def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Queues to read; a master is not required."""
        return [
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queue_datas
            if data.perm & Perm.READ
            for queue_id in range(data.read_queue_nums)
        ]


def _order_conf(conf: str, topic: str) -> list[tuple[str, int]]:
    pairs = []
    for item in conf.split(";"):
        if not item:
            continue
        name, _, count = item.partition(":")
        if not name or not count.isdigit() or int(count) > _MAX_QUEUES:
            raise BodyError(f"order configuration {conf!r} of topic {topic!r}")
        pairs.append((name, int(count)))
    return pairs


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Answer to request 106."""

    brokers: Mapping[str, BrokerData]
    clusters: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_body(cls, body: bytes | str) -> ClusterInfo:
        """Decode. Raises BodyError."""
        what = "cluster info"
        table = _object(body, what)
        brokers = {}
        for name, item in _map(table, "brokerAddrTable", what).items():
            addresses = {
                _integer(key, f"{what}: broker id"): str(address)
                for key, address in _map(item, "brokerAddrs", what).items()
            }
            cluster = str(_get(item, "cluster", what, ""))
            brokers[str(name)] = BrokerData(cluster, str(name), addresses)
        tables = _map(table, "clusterAddrTable", what)
        clusters = {
            str(name): tuple(str(broker) for broker in _list(tables, name, what)) for name in tables
        }
        return cls(brokers, clusters)


# --------------------------------------------------------------------------------- heartbeat


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """What a group wants of a topic. `sub_version` is the time of the subscription, ms."""

    topic: str
    sub_string: str = "*"
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = "TAG"

    def to_json(self) -> dict[str, Any]:
        """As Java writes it."""
        return {
            "classFilterMode": False,
            "codeSet": sorted(self.codes),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags),
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, table: Mapping[Any, Any]) -> SubscriptionData:
        """Decode. Raises BodyError."""
        what = "subscription"
        codes = _list(table, "codeSet", what)
        return cls(
            _text(table, "topic", what),
            str(table.get("subString", "*")),
            frozenset(str(tag) for tag in _list(table, "tagsSet", what)),
            frozenset(_integer(code, f"{what}: tag code") for code in codes),
            _int(table, "subVersion", what, 0),
            str(table.get("expressionType") or "TAG"),
        )


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """A consumer of the client, in its heartbeat."""

    group_name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: tuple[SubscriptionData, ...]
    unit_mode: bool = False

    def to_json(self) -> dict[str, Any]:
        """As Java writes it."""
        return {
            "consumeFromWhere": self.consume_from_where,
            "consumeType": self.consume_type,
            "groupName": self.group_name,
            "messageModel": self.message_model,
            "subscriptionDataSet": [data.to_json() for data in self.subscriptions],
            "unitMode": self.unit_mode,
        }

    @classmethod
    def from_json(cls, table: Mapping[Any, Any]) -> ConsumerData:
        """Decode. Raises BodyError."""
        what = "consumer of a heartbeat"
        return cls(
            _text(table, "groupName", what),
            str(table.get("consumeType")),
            str(table.get("messageModel")),
            str(table.get("consumeFromWhere")),
            tuple(
                SubscriptionData.from_json(item)
                for item in _list(table, "subscriptionDataSet", what)
            ),
            bool(table.get("unitMode", False)),
        )


@dataclass(frozen=True, slots=True)
class HeartbeatData:
    """Body of request 34."""

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()

    def to_body(self) -> bytes:
        """As Java writes it."""
        return compact(
            {
                "clientID": self.client_id,
                "consumerDataSet": [data.to_json() for data in self.consumers],
                "producerDataSet": [{"groupName": name} for name in self.producer_groups],
            }
        )

    @classmethod
    def from_body(cls, body: bytes | str) -> HeartbeatData:
        """Decode. Raises BodyError."""
        what = "heartbeat"
        table = _object(body, what)
        return cls(
            _text(table, "clientID", what),
            tuple(_text(item, "groupName", what) for item in _list(table, "producerDataSet", what)),
            tuple(ConsumerData.from_json(item) for item in _list(table, "consumerDataSet", what)),
        )


# -------------------------------------------------------------------------- queues and offsets


def queue_json(queue: MessageQueue) -> dict[str, Any]:
    """A queue as Java writes it."""
    return {
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "topic": queue.topic,
    }


def queue_of_json(table: Mapping[Any, Any], what: str) -> MessageQueue:
    """The queue that an object stands for. Raises BodyError."""
    return MessageQueue(
        _text(table, "topic", what), _text(table, "brokerName", what), _int(table, "queueId", what)
    )


@dataclass(frozen=True, slots=True)
class LockBatch:
    """Body of requests 41 and 42."""

    group: str
    client_id: str
    queues: frozenset[MessageQueue] = field(default_factory=frozenset)

    def to_body(self) -> bytes:
        """As Java writes it."""
        return compact(
            {
                "clientId": self.client_id,
                "consumerGroup": self.group,
                "mqSet": [queue_json(queue) for queue in sorted(self.queues)],
            }
        )

    @classmethod
    def from_body(cls, body: bytes | str) -> LockBatch:
        """Decode. Raises BodyError."""
        what = "lock request"
        table = _object(body, what)
        return cls(
            _text(table, "consumerGroup", what),
            _text(table, "clientId", what),
            frozenset(queue_of_json(item, what) for item in _list(table, "mqSet", what)),
        )


def locked_queues_body(queues: Iterable[MessageQueue]) -> bytes:
    """Answer to request 41."""
    return compact({"lockOKMQSet": [queue_json(queue) for queue in sorted(queues)]})


def locked_queues_of(body: bytes | str) -> frozenset[MessageQueue]:
    """The queues that are locked now. Raises BodyError."""
    what = "answer to a lock request"
    table = _object(body, what)
    return frozenset(queue_of_json(item, what) for item in _list(table, "lockOKMQSet", what))


def consumer_ids_of(body: bytes | str) -> list[str]:
    """Client ids of answer 38. Raises BodyError."""
    what = "consumer list"
    return [str(item) for item in _list(_object(body, what), "consumerIdList", what)]


def topic_list_of(body: bytes | str) -> list[str]:
    """Topics of answers 206, 224 and 304. Raises BodyError."""
    what = "topic list"
    return [str(item) for item in _list(_object(body, what), "topicList", what)]


def offset_table_of(body: bytes | str) -> dict[MessageQueue, int]:
    """Offsets by queue of bodies 220 and 222, in the map form or the list form for C++ clients.

    Raises BodyError.
    """
    what = "offset table"
    table = _object(body, what).get("offsetTable")
    if isinstance(table, list):
        return {queue_of_json(item, what): _int(item, "offset", what) for item in table}
    if not isinstance(table, dict):
        raise BodyError(f"{what}: field 'offsetTable' is missing")
    offsets = {}
    for key, value in table.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise BodyError(f"{what}: offset {value!r}")
        offsets[fastjson.queue_of_key(key)] = value
    return offsets


def consumer_status_body(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Answer to request 221."""
    table = {"consumerTable": {}, "messageQueueTable": dict(offsets)}
    return fastjson.dumps(table).encode()


def offset_table_body(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The map form of an offset table."""
    return fastjson.dumps({"offsetTable": dict(offsets)}).encode()
