"""A real Apache name server with brokers on free loopback ports."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from . import wire
from .artifacts import classpath, jars, say
from .process import JVM_ACCESS, JvmProcess, StartError, Watchdog
from .settings import LOGBACK, TEST_BROKER, TEST_BROKER_5X, free_port

START_TIMEOUT = 300.0
CLUSTER_NAME = "DefaultCluster"
AUTO_CREATE_TEMPLATE = "TBW102"

_open_clusters: weakref.WeakSet[ApacheCluster] = weakref.WeakSet()


def _close_all() -> None:
    for cluster in list(_open_clusters):
        cluster.close()


atexit.register(_close_all)


class _Broker:
    """Name, port and process of one broker."""

    def __init__(self, name: str, port: int, process: JvmProcess) -> None:
        self.name = name
        self.port = port
        self.process = process

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class ApacheCluster:
    """A name server and ``brokers`` brokers of the real thing, ready when entered.

    With ``slaves`` each has a slave, which copies it within moments, offsets every ten seconds.
    ``broker_properties`` are lines of broker.conf and override the presets. ``fast_start``
    (tests) keeps heaps and store files small and stops the JIT at its first level; without it
    (benchmarks) the JVM and the broker have their production defaults. With a ``workdir`` the
    store stays there and the brokers are ended by SIGTERM; without one everything lives in a
    temporary directory that disappears. Not thread safe.
    """

    def __init__(
        self,
        version: str,
        broker_properties: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        brokers: int = 1,
        *,
        slaves: bool = False,
        namesrv_properties: Mapping[str, str] | None = None,
        fast_start: bool = True,
        jvm_options: tuple[str, ...] = (),
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster needs a broker, got brokers={brokers}")
        self.version = version
        self.fast_start = fast_start
        self._broker_properties = dict(broker_properties or {})
        self._namesrv_properties = dict(namesrv_properties or {})
        self._jvm_options = jvm_options
        self._count = brokers
        self._with_slaves = slaves
        self._keep = workdir is not None
        self._wanted_workdir = Path(workdir).absolute() if workdir is not None else None
        self._watchdog: Watchdog | None = None
        self._namesrv: JvmProcess | None = None
        self._namesrv_port = 0
        self._brokers: list[_Broker] = []
        self._slaves: list[_Broker] = []
        self._workdir: Path | None = None

    # -- life -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Fetch the jars if needed, start everything and wait until routes show the brokers."""
        jars(self.version)
        started = time.monotonic()
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        say(
            f"RocketMQ {self.version}: name server {self.namesrv_addr}, brokers "
            f"{', '.join(self.broker_addrs)}, ready in {time.monotonic() - started:.1f} s"
        )

    def _open(self) -> None:
        if self._workdir is not None:
            raise RuntimeError("the cluster is open")
        if self._wanted_workdir is not None:
            self._wanted_workdir.mkdir(parents=True, exist_ok=True)
            self._workdir = self._wanted_workdir
        else:
            self._workdir = Path(tempfile.mkdtemp(prefix=f"rocketmq-{self.version}-"))
        _open_clusters.add(self)
        self._watchdog = Watchdog()
        self._namesrv_port = free_port()
        self._namesrv = self._make_namesrv()
        self._namesrv.start()
        for index in range(self._count):
            self._brokers.append(self._make_broker(index))
            if self._with_slaves:
                self._slaves.append(self._make_broker(index, slave=True))
        # A broker registers once when it starts and then only every 10 s: it must find the name
        # server, whose port opens well before a broker is that far.
        deadline = time.monotonic() + START_TIMEOUT
        self._wait_port(self._namesrv, self._namesrv_port, deadline)
        for broker in self._brokers:
            broker.process.start()
        self._namesrv.wait_printed("boot success", deadline)
        for broker in self._brokers:
            self._wait_broker(broker, deadline)
        # After the masters: a slave asks the name server for its master when it registers, and
        # takes over the master's topics then, or ten seconds later.
        deadline = time.monotonic() + START_TIMEOUT
        for slave in self._slaves:
            slave.process.start()
        for slave in self._slaves:
            self._wait_broker(slave, deadline)

    def close(self) -> None:
        """Stop every process; safe to call twice."""
        for broker in (*self._slaves, *self._brokers):
            if self._keep:
                broker.process.terminate()
            else:
                broker.process.kill()
        if self._namesrv is not None:
            self._namesrv.kill()
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        if self._workdir is not None and not self._keep:
            shutil.rmtree(self._workdir, ignore_errors=True)
        self._brokers = []
        self._slaves = []
        self._namesrv = None
        self._workdir = None
        _open_clusters.discard(self)

    # -- names ----------------------------------------------------------------------------------

    @property
    def namesrv_addr(self) -> str:
        """``127.0.0.1:port`` of the name server."""
        return f"127.0.0.1:{self._namesrv_port}"

    @property
    def broker_addr(self) -> str:
        """Address of the first broker."""
        return self._broker(0).address

    @property
    def broker_name(self) -> str:
        """Name of the first broker."""
        return self._broker(0).name

    @property
    def broker_addrs(self) -> list[str]:
        """Addresses of all brokers."""
        return [broker.address for broker in self._brokers]

    @property
    def broker_names(self) -> list[str]:
        """Names of all brokers."""
        return [broker.name for broker in self._brokers]

    @property
    def slave_addr(self) -> str:
        """Address of the first broker's slave."""
        return self._slaves[0].address

    @property
    def workdir(self) -> Path:
        """Configuration, logs and stores; gone after close unless it was given."""
        if self._workdir is None:
            raise RuntimeError("the cluster is not open")
        return self._workdir

    @property
    def pids(self) -> dict[str, int]:
        """Name to pid of what is running."""
        brokers = (*self._brokers, *self._slaves)
        processes = [self._namesrv, *(broker.process for broker in brokers)]
        return {p.name: p.pid for p in processes if p is not None and p.pid is not None}

    def broker_log(self, index: int = 0) -> str:
        """The end of the output and of the log files of a broker."""
        return self._broker(index).process.tail()

    # -- trouble --------------------------------------------------------------------------------

    def kill_broker(self, index: int = 0) -> None:
        """SIGKILL: the store is left as it is and recovered by the next start."""
        self._broker(index).process.kill()

    def stop_broker(self, index: int = 0) -> None:
        """SIGTERM: the broker unregisters and closes its store."""
        self._broker(index).process.terminate()

    def start_broker(self, index: int = 0, *, wait: bool = True) -> None:
        """Start a killed or stopped broker on the same ports and store."""
        broker = self._broker(index)
        broker.process.start()
        if wait:
            self._wait_broker(broker, time.monotonic() + START_TIMEOUT)

    def pause_broker(self, index: int = 0) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        self._broker(index).process.pause()

    def resume_broker(self, index: int = 0) -> None:
        """SIGCONT."""
        self._broker(index).process.resume()

    def kill_namesrv(self) -> None:
        """SIGKILL of the name server."""
        assert self._namesrv is not None
        self._namesrv.kill()

    def start_namesrv(self, *, wait: bool = True) -> None:
        """Start the name server on its old port.

        Brokers come back to it by themselves, within their registration period (10 s with
        ``fast_start``, else 30 s); ``wait`` waits for those that are running.
        """
        assert self._namesrv is not None
        self._namesrv.start()
        if not wait:
            return
        deadline = time.monotonic() + START_TIMEOUT
        self._namesrv.wait_printed("boot success", deadline)
        for broker in self._brokers:
            if broker.process.alive:
                self._wait_registered(broker, deadline)

    # -- topics and groups ----------------------------------------------------------------------

    def create_topic(
        self, topic: str, queues: int = 4, *, perm: int = 6, order: bool = False
    ) -> None:
        """Create or change a topic on every broker and wait until the route shows it."""
        fields = {
            "topic": topic,
            "defaultTopic": AUTO_CREATE_TEMPLATE,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "true" if order else "false",
        }
        for broker in self._brokers:
            answer = wire.request(
                broker.address, wire.UPDATE_AND_CREATE_TOPIC, fields, timeout=10.0
            )
            if answer.code != wire.SUCCESS:
                raise StartError(
                    f"{broker.name} refused topic {topic}: {answer.code} {answer.remark}"
                )

        def shown() -> bool:
            route = self.route(topic)
            entries = [] if route is None else route.get("queueDatas") or []
            ready = {
                entry["brokerName"]
                for entry in entries
                if entry["readQueueNums"] == queues
                and entry["writeQueueNums"] == queues
                and entry["perm"] == perm
            }
            return ready >= set(self.broker_names)

        self._poll(shown, time.monotonic() + 60.0, f"the route of topic {topic}")

    def create_group(self, group: str, **settings: object) -> None:
        """Create a subscription group on every broker, e.g. ``retryMaxTimes=3``.

        Its retry topic is created too. Else the first heartbeat makes it, after the consumer's
        first rebalance, and a Java consumer sees what it refused only 20 s later.
        """
        config: dict[str, object] = {
            "groupName": group,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
            "retryMaxTimes": 16,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        config.update(settings)
        for broker in self._brokers:
            answer = wire.request(
                broker.address,
                wire.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=json.dumps(config).encode(),
                timeout=10.0,
            )
            if answer.code != wire.SUCCESS:
                raise StartError(
                    f"{broker.name} refused group {group}: {answer.code} {answer.remark}"
                )
        self.create_topic(f"%RETRY%{group}", queues=1)

    def route(self, topic: str) -> dict[str, list[dict[str, object]]] | None:
        """The name server's route of ``topic``, None when it has none."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = wire.request(self.namesrv_addr, wire.GET_ROUTEINFO_BY_TOPIC, fields)
        if answer.code != wire.SUCCESS:
            return None
        decoded: dict[str, list[dict[str, object]]] = json.loads(answer.body)
        return decoded

    def max_offset(self, topic: str, queue_id: int, index: int = 0) -> int:
        """The queue's maximum offset as the broker says it."""
        fields = {"topic": topic, "queueId": str(queue_id), "committed": "true"}
        answer = wire.request(self._broker(index).address, wire.GET_MAX_OFFSET, fields)
        if answer.code != wire.SUCCESS:
            raise StartError(f"max offset of {topic}/{queue_id}: {answer.code} {answer.remark}")
        return int(answer.ext_fields["offset"])

    def pull_frame(
        self, topic: str, queue_id: int, offset: int, count: int = 32, index: int = 0
    ) -> bytes:
        """A pull answer with messages, as the whole frame that the broker sent.

        Raises StartError when the broker answers anything but messages.
        """
        fields = {
            "consumerGroup": "harness_pull",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(count),
            # The request carries its subscription: no heartbeat is needed.
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        frame = wire.exchange(self._broker(index).address, wire.PULL_MESSAGE, fields, timeout=10.0)
        answer = wire.parse(frame)
        if answer.code != wire.SUCCESS:
            raise StartError(
                f"pull of {topic}/{queue_id} at {offset}: {answer.code} {answer.remark}"
            )
        return frame

    # -- making and waiting ---------------------------------------------------------------------

    def _broker(self, index: int) -> _Broker:
        return self._brokers[index]

    def _make_namesrv(self) -> JvmProcess:
        home = self.workdir / "namesrv"
        properties = {
            "listenPort": str(self._namesrv_port),
            "kvConfigPath": str(home / "kvConfig.json"),
            "configStorePath": str(home / "namesrv.properties"),
            **self._only_5x({"bindAddress": "127.0.0.1"}),
            **self._namesrv_properties,
        }
        memory = ("-Xms32m", "-Xmx128m") if self.fast_start else ("-Xmx512m",)
        return self._make(
            "namesrv", home, "org.apache.rocketmq.namesrv.NamesrvStartup", memory, properties
        )

    def _make_broker(self, index: int, *, slave: bool = False) -> _Broker:
        name = f"broker-{chr(ord('a') + index)}"
        own_name = f"{name}-slave" if slave else name
        home = self.workdir / own_name
        port = free_port((-2, 0, 1))
        store = home / "store"
        properties = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": name,
            "brokerId": "1" if slave else "0",
            "brokerRole": "SLAVE" if slave else "ASYNC_MASTER",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": self.namesrv_addr,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "autoCreateTopicEnable": "true",
            "diskMaxUsedSpaceRatio": "98",
            **self._only_5x({"bindAddress": "127.0.0.1"}),
            **(TEST_BROKER | self._only_5x(TEST_BROKER_5X) if self.fast_start else {}),
            **self._broker_properties,
        }
        if self.fast_start:
            memory = ("-Xms192m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
        else:
            memory = ("-Xms1g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g")
        # The broker refuses writes above 90 % of disk use, whatever diskMaxUsedSpaceRatio says.
        disk = (
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
        )
        process = self._make(
            own_name, home, "org.apache.rocketmq.broker.BrokerStartup", (*memory, *disk), properties
        )
        return _Broker(name, port, process)

    def _only_5x(self, properties: dict[str, str]) -> dict[str, str]:
        return {} if self.version.startswith("4.") else properties

    def _make(
        self,
        name: str,
        home: Path,
        main: str,
        options: tuple[str, ...],
        properties: Mapping[str, str],
    ) -> JvmProcess:
        (home / "conf").mkdir(parents=True, exist_ok=True)
        logs = home / "logs"
        for kind in ("namesrv", "broker"):
            text = LOGBACK.format(path=logs / f"{kind}.log", level="WARN")
            (home / "conf" / f"logback_{kind}.xml").write_text(text, encoding="utf-8")
        configuration = home / "conf" / f"{name}.conf"
        lines = [f"{key}={value}" for key, value in properties.items()]
        configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
        if self.fast_start:
            options += ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
        assert self._watchdog is not None
        return JvmProcess(
            f"{name} {self.version}",
            [
                "java", *JVM_ACCESS, *options, *self._jvm_options, f"-Duser.home={home}",
                "-cp", classpath(self.version), main, "-c", str(configuration),
            ],
            {"ROCKETMQ_HOME": str(home), "NAMESRV_ADDR": ""},
            output=home / "stdout.txt",
            logs=logs,
            watchdog=self._watchdog,
        )  # fmt: skip

    def _wait_port(self, process: JvmProcess, port: int, deadline: float) -> None:
        def accepts() -> bool:
            process.printed("boot success")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                return True
            return False

        self._poll(accepts, deadline, f"port {port} of {process.name}", process)

    def _wait_broker(self, broker: _Broker, deadline: float) -> None:
        broker.process.wait_printed("boot success", deadline)

        def answers() -> bool:
            with contextlib.suppress(OSError):
                answer = wire.request(broker.address, wire.GET_BROKER_RUNTIME_INFO)
                return answer.code == wire.SUCCESS
            return False

        self._poll(answers, deadline, f"an answer of {broker.name}", broker.process)
        if self._namesrv is not None and self._namesrv.alive:
            self._wait_registered(broker, deadline)

    def _wait_registered(self, broker: _Broker, deadline: float) -> None:
        def registered() -> bool:
            with contextlib.suppress(OSError):
                info = wire.request(self.namesrv_addr, wire.GET_BROKER_CLUSTER_INFO)
                if broker.address.encode() not in info.body:
                    return False
                if self._broker_properties.get("autoCreateTopicEnable", "true") != "true":
                    return True
                route = self.route(AUTO_CREATE_TEMPLATE)
                entries = [] if route is None else route.get("queueDatas") or []
                return any(entry["brokerName"] == broker.name for entry in entries)
            return False

        what = f"{broker.name} at the name server"
        self._poll(registered, deadline, what, broker.process)

    @staticmethod
    def _poll(
        check: Callable[[], bool], deadline: float, what: str, process: JvmProcess | None = None
    ) -> None:
        while not check():
            if time.monotonic() > deadline:
                tail = f"\n{process.tail()}" if process is not None else ""
                raise StartError(f"waited in vain for {what}{tail}")
            time.sleep(0.03)
