"""A Kafka broker out of Maven's jars, for peers, and the jars of Spark's own Kafka source."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from benchmarks.measure import say
from tests.apache import StartError, fetched
from tests.apache.process import JvmProcess, Watchdog
from tests.apache.settings import free_port

VERSION = "4.1.0"
# Connector and token provider of one version would be better; Maven Central's mirrors did not have
# them for Spark 4.3, and these work with it.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
)
_SERVER = (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
_START_SECONDS = 90.0
_TOOL_SECONDS = 300
_CLUSTER_ID = "cm9ja2V0bXFfZmFzdGJlbg"

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={home}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def connector_jars() -> list[Path]:
    """The jars that a session needs for format("kafka"). Raises ArtifactError."""
    return sorted(fetched("spark-kafka", CONNECTOR, alone=True).glob("*.jar"))


class KafkaServer:
    """One broker and controller in a temporary directory, with Kafka's defaults; a context."""

    def __init__(self) -> None:
        self._jars = fetched(f"kafka/{VERSION}", _SERVER)
        self._home = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._port, self._controller = free_port(), free_port()
        self._watchdog = Watchdog()
        self._settings = self._home / "server.properties"
        self._process = JvmProcess(
            "kafka",
            ["java", "-Xmx1g", "-cp", f"{self._jars}/*", "kafka.Kafka", str(self._settings)],
            {},
            self._home / "output.log",
            self._home / "logs",
            self._watchdog,
        )

    @property
    def address(self) -> str:
        """``127.0.0.1:port`` for clients."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        text = _PROPERTIES.format(port=self._port, controller=self._controller, home=self._home)
        self._settings.write_text(text, encoding="utf-8")
        try:
            self._tool(
                "kafka.tools.StorageTool",
                *("format", "--cluster-id", _CLUSTER_ID, "--config", str(self._settings)),
            )
            self._process.start()
            self._wait()
        except BaseException:
            self.close()
            raise
        say(f"Kafka {VERSION}: {self.address}")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop it and remove its files."""
        self._process.kill()
        self._watchdog.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError as error:
                if not self._process.alive or time.monotonic() > deadline:
                    raise StartError(f"Kafka did not start\n{self._process.tail()}") from error
                time.sleep(0.05)
            else:
                return

    def _tool(self, main: str, *words: str) -> None:
        done = subprocess.run(
            ["java", "-Xmx512m", "-cp", f"{self._jars}/*", main, *words],
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=_TOOL_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise StartError(f"{main} failed with {done.returncode}:\n{done.stderr[-2000:]}")

    def fill(self, topic: str, count: int, size: int, partitions: int) -> None:
        """Make a topic and put ``count`` messages of ``size`` bytes into it, by Kafka's tools."""
        self._tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", self.address, "--create", "--topic", topic),
            *("--partitions", str(partitions)),
        )
        self._tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--record-size", str(size)),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={self.address}"),
            *("acks=1", "batch.size=262144", "linger.ms=5"),
        )
