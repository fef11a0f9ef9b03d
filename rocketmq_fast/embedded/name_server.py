"""The name server: which broker has which queues of which topic."""

from __future__ import annotations

import logging
import time
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketmq_fast.embedded.dispatch import Dispatcher, Handlers
from rocketmq_fast.embedded.files import load_json, save_json
from rocketmq_fast.embedded.requests import (
    Refused,
    answer,
    boolean,
    dump,
    dump_int_keys,
    int32,
    int64,
    json_body,
    text,
)
from rocketmq_fast.embedded.scope import LoopScope
from rocketmq_fast.protocol.codes import VERSION_4_9_4, Perm, RequestCode, ResponseCode
from rocketmq_fast.remoting.server import RemotingServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from rocketmq_fast._core import RemotingCommand
    from rocketmq_fast.embedded.faults import Faults
    from rocketmq_fast.remoting.loop import EventLoop
    from rocketmq_fast.remoting.server import Peer

log = logging.getLogger(__name__)

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
BROKER_EXPIRY = 120.0
_SCAN_INTERVAL = 10.0


@dataclass(slots=True)
class LiveBroker:
    """One registered address."""

    name: str
    cluster: str
    broker_id: int
    data_version: tuple[int, int]
    last_seen: float
    peer: Peer | None
    ha_address: str = ""


@dataclass(slots=True)
class BrokerData:
    """The addresses behind a broker name."""

    name: str
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)


class RouteTable:
    """Registered brokers and their topics."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.brokers: dict[str, BrokerData] = {}
        self.live: dict[str, LiveBroker] = {}
        self.topics: dict[str, dict[str, dict[str, Any]]] = {}

    def register(
        self, *, cluster: str, name: str, broker_id: int, address: str,
        topics: Iterable[dict[str, Any]] | None, data_version: tuple[int, int],
        peer: Peer | None = None, ha_address: str = "",
    ) -> str | None:  # fmt: skip
        """Enter a broker; returns the master's address for a slave."""
        broker = self.brokers.setdefault(name, BrokerData(name, cluster))
        broker.cluster = cluster
        for other_id in [i for i, a in broker.addresses.items() if a == address and i != broker_id]:
            del broker.addresses[other_id]
        first = broker.addresses.get(broker_id) != address
        broker.addresses[broker_id] = address
        before = self.live.get(address)
        changed = before is None or before.data_version != data_version
        if topics is not None and broker_id == 0 and (first or changed):
            self._replace_topics(name, topics)
        # A broker in this process never expires: it is gone when it says so.
        seen = float("inf") if peer is None else self._clock()
        self.live[address] = LiveBroker(
            name, cluster, broker_id, data_version, seen, peer, ha_address
        )
        return broker.addresses.get(0) if broker_id != 0 else None

    def _replace_topics(self, name: str, topics: Iterable[dict[str, Any]]) -> None:
        for config in topics:
            topic = str(config["topicName"])
            self.topics.setdefault(topic, {})[name] = {
                "brokerName": name,
                "perm": int(config["perm"]),
                "readQueueNums": int(config["readQueueNums"]),
                "topicSysFlag": int(config.get("topicSysFlag", 0)),
                "writeQueueNums": int(config["writeQueueNums"]),
            }

    def unregister(self, address: str) -> None:
        """Take an address out; the last one of a broker takes its queues along."""
        live = self.live.pop(address, None)
        if live is None:
            return
        broker = self.brokers.get(live.name)
        if broker is None:
            return
        broker.addresses = {i: a for i, a in broker.addresses.items() if a != address}
        if not broker.addresses:
            del self.brokers[live.name]
            for topic in list(self.topics):
                self.topics[topic].pop(live.name, None)
                if not self.topics[topic]:
                    del self.topics[topic]

    def delete_topic(self, topic: str, broker_name: str | None = None) -> None:
        """Forget a topic, on one broker or on all."""
        queues = self.topics.get(topic, {})
        if broker_name is None:
            queues.clear()
        else:
            queues.pop(broker_name, None)
        if not queues:
            self.topics.pop(topic, None)

    def set_write(self, broker_name: str, *, allowed: bool) -> int:
        """Give or take the write permission of all queues of a broker; returns how many."""
        count = 0
        for queues in self.topics.values():
            data = queues.get(broker_name)
            if data is not None:
                perm = data["perm"] & ~int(Perm.WRITE)
                data["perm"] = perm | int(Perm.WRITE) if allowed else perm
                count += 1
        return count

    def clusters(self) -> dict[str, list[str]]:
        """Return the broker names of each cluster."""
        table: dict[str, list[str]] = {}
        for broker in self.brokers.values():
            table.setdefault(broker.cluster, []).append(broker.name)
        return table

    def expired(self, seconds: float) -> list[str]:
        """Return the addresses that did not register for so long."""
        limit = self._clock() - seconds
        return [address for address, live in self.live.items() if live.last_seen < limit]


class NameServer:
    """Serves routes, broker registration and key-value configuration on one port."""

    def __init__(
        self, loop: EventLoop, *, kv_path: Path | None = None, order_message_enable: bool = False,
        durable: bool = True, clock: Callable[[], float] = time.monotonic,
        name: str = "namesrv-1", faults: Faults | None = None,
    ) -> None:  # fmt: skip
        self._name = name
        self._faults = faults
        self.routes = RouteTable(clock)
        self.server = RemotingServer(
            loop, self._on_request, on_disconnect=self._on_disconnect,
        )  # fmt: skip
        self._clock = clock
        self._loop = LoopScope(loop)
        self._kv_path = kv_path
        self._durable = durable
        self._order_message_enable = order_message_enable
        saved = load_json(kv_path) if kv_path is not None else None
        table = (saved or {}).get("configTable") or {}
        self._kv: dict[str, dict[str, str]] = {
            str(space): {str(k): str(v) for k, v in entries.items()}
            for space, entries in table.items()
        }
        self._dispatcher = Dispatcher(self._handlers())

    def _handlers(self) -> Handlers:
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._cluster_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
        }

    def start(self) -> None:
        """Begin to serve the port that server.listen() took."""
        self.server.start()
        self._loop.call_later(_SCAN_INTERVAL, self._scan)

    def stop_serving(self) -> None:
        """Accept nothing more and end all connections. Loop thread."""
        self._loop.end()
        self.server.close()

    def _on_request(self, peer: Peer, request: RemotingCommand) -> None:
        if self._loop.ended:
            return
        if self._faults:
            self._faults.serve(self._name, self._loop, peer, request, self._dispatcher.dispatch)
        else:
            self._dispatcher.dispatch(peer, request)

    def _scan(self) -> None:
        self.drop_silent()
        self._loop.call_later(_SCAN_INTERVAL, self._scan)

    def drop_silent(self) -> None:
        """Forget the brokers that have not registered for too long. Loop thread."""
        for address in self.routes.expired(BROKER_EXPIRY):
            log.warning("broker %s did not register for %.0f s", address, BROKER_EXPIRY)
            peer = self.routes.live[address].peer
            self.routes.unregister(address)
            if peer is not None:
                peer.connection.close("no registration")

    def _on_disconnect(self, peer: Peer) -> None:
        for address, live in list(self.routes.live.items()):
            if live.peer is peer:
                self.routes.unregister(address)

    # -------------------------------------------------------------------------- routes

    def _route(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields.get("topic")
        queues = self.routes.topics.get(topic, {}) if topic is not None else {}
        names = [name for name in queues if name in self.routes.brokers]
        if topic is None or not names:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
            )
        standard = request.version >= VERSION_4_9_4 or boolean(
            request.ext_fields, "acceptStandardJsonOnly"
        )
        brokers = ",".join(self._broker_json(name, standard=standard) for name in names)
        body = f'{{"brokerDatas":[{brokers}],"filterServerTable":{{}},'
        order = self._kv.get(ORDER_NAMESPACE, {}).get(topic)
        if self._order_message_enable and order is not None:
            body += f'"orderTopicConf":{dump(order).decode()},'
        body += f'"queueDatas":{dump([queues[name] for name in names]).decode()}}}'
        return answer(request, ResponseCode.SUCCESS, None, body.encode())

    def _broker_json(self, name: str, *, standard: bool) -> str:
        broker = self.routes.brokers[name]
        addresses = broker.addresses
        table = dump(addresses).decode() if standard else dump_int_keys(addresses)
        return (
            f'{{"brokerAddrs":{table},"brokerName":{dump(name).decode()},'
            f'"cluster":{dump(broker.cluster).decode()}}}'
        )

    def _cluster_info(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        brokers = ",".join(
            f"{dump(name).decode()}:{self._broker_json(name, standard=False)}"
            for name in self.routes.brokers
        )
        clusters = dump(self.routes.clusters()).decode()
        body = f'{{"brokerAddrTable":{{{brokers}}},"clusterAddrTable":{clusters}}}'
        return answer(request, ResponseCode.SUCCESS, None, body.encode())

    def _all_topics(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        return answer(
            request, ResponseCode.SUCCESS, None, dump({"topicList": sorted(self.routes.topics)})
        )

    def _cluster_topics(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        names = set(self.routes.clusters().get(text(request.ext_fields, "cluster"), ()))
        topics = [topic for topic, queues in self.routes.topics.items() if names & queues.keys()]
        return answer(request, ResponseCode.SUCCESS, None, dump({"topicList": sorted(topics)}))

    def _system_topics(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        clusters = self.routes.clusters()
        names = [*clusters, *(name for names in clusters.values() for name in names)]
        value: dict[str, Any] = {"topicList": names}
        address = next(iter(self.routes.live), None)
        if address is not None:
            value["brokerAddr"] = address
        return answer(request, ResponseCode.SUCCESS, None, dump(value))

    def _delete_topic(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        topic = text(request.ext_fields, "topic")
        cluster = request.ext_fields.get("clusterName")
        if cluster is None:
            self.routes.delete_topic(topic)
        else:
            for name in self.routes.clusters().get(cluster, ()):
                self.routes.delete_topic(topic, name)
        return answer(request)

    def _wipe_write(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        count = self.routes.set_write(text(request.ext_fields, "brokerName"), allowed=False)
        return answer(request, ResponseCode.SUCCESS, {"wipeTopicCount": str(count)})

    def _add_write(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        count = self.routes.set_write(text(request.ext_fields, "brokerName"), allowed=True)
        return answer(request, ResponseCode.SUCCESS, {"addTopicCount": str(count)})

    # -------------------------------------------------------------------- registration

    def register(
        self, fields: Mapping[str, str], topics: Iterable[dict[str, Any]], version: int
    ) -> dict[str, str] | None:
        """Enter a broker of this process, as its request would; returns the ordered topics.

        It stays until it is taken back, and has no topics but these. Loop thread.
        """
        known = {str(topic["topicName"]): topic for topic in topics}
        name = fields["brokerName"]
        self.routes.register(
            cluster=fields["clusterName"], name=name, broker_id=int(fields["brokerId"]),
            address=fields["brokerAddr"], topics=known.values(), data_version=(0, version),
        )  # fmt: skip
        for topic in [t for t, queues in self.routes.topics.items() if name in queues]:
            if topic not in known:
                self.routes.delete_topic(topic, name)
        return self._kv.get(ORDER_NAMESPACE)

    def _register(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        crc = int32(fields, "bodyCrc32", 0)
        if crc != 0 and zlib.crc32(request.body) & 0x7FFFFFFF != crc:
            raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        topics, version = self._registered_topics(request)
        master = self.routes.register(
            cluster=text(fields, "clusterName"), name=text(fields, "brokerName"),
            broker_id=int64(fields, "brokerId"), address=text(fields, "brokerAddr"),
            topics=topics, data_version=version, peer=peer,
            ha_address=fields.get("haServerAddr", ""),
        )  # fmt: skip
        ext = {}
        if master is not None:
            ext["masterAddr"] = master
            live = self.routes.live.get(master)
            if live is not None and live.ha_address:
                ext["haServerAddr"] = live.ha_address
        order = self._kv.get(ORDER_NAMESPACE)
        return answer(request, ResponseCode.SUCCESS, ext, dump({"table": order}) if order else b"")

    @staticmethod
    def _registered_topics(
        request: RemotingCommand,
    ) -> tuple[list[dict[str, Any]] | None, tuple[int, int]]:
        """Return the topics and their version in a registration; None for an empty body."""
        if not len(request.body_view()):
            return None, (0, 0)
        if boolean(request.ext_fields, "compressed"):
            raise Refused(ResponseCode.SYSTEM_ERROR, "compressed registration is not supported")
        body = json_body(request)
        wrapper = body.get("topicConfigSerializeWrapper") or body
        version = wrapper.get("dataVersion") or {}
        topics = list((wrapper.get("topicConfigTable") or {}).values())
        return topics, (int(version.get("timestamp", 0)), int(version.get("counter", 0)))

    def _unregister(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        self.routes.unregister(text(request.ext_fields, "brokerAddr"))
        return answer(request)

    def _data_version(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        address = text(request.ext_fields, "brokerAddr")
        value = json_body(request)
        version = (int(value.get("timestamp", 0)), int(value.get("counter", 0)))
        live = self.routes.live.get(address)
        if live is None:
            return answer(request, ResponseCode.SUCCESS, {"changed": "true"})
        live.last_seen = self._clock()
        changed = live.data_version != version
        body = dump({"counter": live.data_version[1], "timestamp": live.data_version[0]})
        return answer(
            request, ResponseCode.SUCCESS, {"changed": "true" if changed else "false"}, body
        )

    # ----------------------------------------------------------------------- key-value

    def _put_kv(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        space = self._kv.setdefault(text(fields, "namespace"), {})
        space[text(fields, "key")] = text(fields, "value")
        self._save_kv()
        return answer(request)

    def _get_kv(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        space, key = text(request.ext_fields, "namespace"), text(request.ext_fields, "key")
        value = self._kv.get(space, {}).get(key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {space} Key: {key}"
            )
        return answer(request, ResponseCode.SUCCESS, {"value": value})

    def _delete_kv(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        space, key = text(request.ext_fields, "namespace"), text(request.ext_fields, "key")
        if self._kv.get(space, {}).pop(key, None) is not None:
            self._save_kv()
        return answer(request)

    def _list_kv(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        space = text(request.ext_fields, "namespace")
        entries = self._kv.get(space)
        if entries is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {space}")
        return answer(request, ResponseCode.SUCCESS, None, dump({"table": entries}))

    def _save_kv(self) -> None:
        if self._kv_path is not None:
            save_json(self._kv_path, {"configTable": self._kv}, durable=self._durable)
