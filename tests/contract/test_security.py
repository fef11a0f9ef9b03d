"""TLS that fails closed, signatures as Java's, and secrets that show nowhere."""

from __future__ import annotations

import base64
import logging
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocketmq_fast import Admin, BrokerError, ConfigError, RemotingError
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.consumer.options import push_options
from rocketmq_fast.errors import NoNameServer
from rocketmq_fast.protocol.codes import RequestCode
from rocketmq_fast.remoting.security import Credentials, Signer, signature
from tests import golden_data
from tests.apache import SHORT_DELAYS, ApacheCluster
from tests.brokers import TestBroker, Wire
from tests.consuming import Recorder, bodies, consuming, make
from tests.fix_spark import batch_rows
from tests.proxy import Frame
from tests.require import require
from tests.waiting import wait_for

SECRET = "hush-0123456789"  # noqa: S105
TOKEN = "token-9876543210"  # noqa: S105


# --------------------------------------------------------------------------- signatures


def test_signatures_are_javas() -> None:
    rows = golden_data.rows("acl_v4_9_4")
    assert len(rows) == 20
    for row in rows:
        fields = row["fields"]
        body = base64.b64decode(row["bodyBase64"] or "")
        assert signature(fields, body, row["secretKey"]) == row["signature"]


def test_signer_signs_the_whole_request_as_java() -> None:
    for row in golden_data.rows("acl_v4_9_4"):
        fields = dict(row["fields"])
        key = fields.pop("AccessKey")
        token = fields.pop("SecurityToken", None)
        body = base64.b64decode(row["bodyBase64"] or "")
        command = RemotingCommand(RequestCode.PULL_MESSAGE, fields, body)
        credentials = Credentials(key, row["secretKey"], token)
        signer = Signer(partial(replace, credentials))
        signer.sign(command)
        assert command.ext_fields["Signature"] == row["signature"]
        signer.sign(command)  # a request that is sent again
        assert command.ext_fields["Signature"] == row["signature"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"access_key": "ak"}, "both"),
        ({"secret_key": SECRET}, "both"),
        ({"credentials": "ak:sk"}, "callable"),
        ({"use_tls": "yes"}, "bool"),
        ({"access_key": "", "secret_key": SECRET}, "access_key"),
        ({"use_tls": True, "tls_ca_file": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
    ],
)
def test_unusable_options_are_refused_before_anything_is_sent(
    given: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make("127.0.0.1:1", "group", "topic", Recorder(), **given).start()
    assert SECRET not in str(caught.value)


def test_secrets_show_nowhere(
    embedded_broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(3))
    given: dict[str, Any] = {
        "access_key": "ak",
        "secret_key": SECRET,
        "security_token": TOKEN,
        "tls_key_password": SECRET,
    }
    recorder = Recorder()
    with (
        caplog.at_level(logging.DEBUG),
        consuming(broker.namesrv_addr, group, topic, recorder, **given) as consumer,
    ):
        recorder.wait(3)
        stats = consumer.stats()
        fields = {"consumerGroup": group, "clientId": stats["client_id"], "jstackEnable": "true"}
        info = broker.wire.invoke(
            broker.broker_addr, RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        )
        assert info.code == 0
        running = consumer._running
        assert running is not None
        texts = [
            repr(consumer), repr(running.options), str(running.options), repr(stats),
            info.body.decode(), repr(Credentials("ak", SECRET, TOKEN)), caplog.text,
        ]  # fmt: skip
    assert len(caplog.records) > 0
    for text in texts:
        assert SECRET not in text
        assert TOKEN not in text
    assert SECRET not in repr(push_options({"namesrv_addr": "127.0.0.1:1", **given}))


def test_every_request_is_signed_with_the_credentials_of_its_time(
    embedded_broker: TestBroker,
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    keys = ["first"]
    seen: dict[str, set[int]] = {}
    unsigned: list[int] = []

    def note(frame: Frame) -> None:
        fields = frame.command.ext_fields
        if "Signature" not in fields or "SecurityToken" not in fields:
            unsigned.append(frame.code)
            return
        made = signature(fields, frame.command.body, SECRET + fields["AccessKey"])
        if made == fields["Signature"]:
            seen.setdefault(fields["AccessKey"], set()).add(frame.code)

    def provider() -> Credentials:
        return Credentials(keys[0], SECRET + keys[0], TOKEN)

    with broker.proxied() as cluster:
        cluster.broker.on_request = cluster.namesrv.on_request = note
        recorder = Recorder()
        with consuming(
            cluster.namesrv_addr, group, topic, recorder,
            credentials=provider, persist_consumer_offset_interval=50,
        ):  # fmt: skip
            broker.send(topic, bodies(2))
            recorder.wait(2)
            keys[0] = "second"
            broker.send(topic, bodies(2, "n"))
            recorder.wait(4)
            wait_for(lambda: RequestCode.PULL_MESSAGE in seen.get("second", ()), "a new pull")
    assert not unsigned
    assert seen["first"] >= {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.HEART_BEAT,
        RequestCode.PULL_MESSAGE,
    }


# ---------------------------------------------------------------------------------- ACL

_RULES = """globalWhiteRemoteAddresses:
{white}
accounts:
- accessKey: testaccess1
  secretKey: {secret}
  whiteRemoteAddress:
  admin: true
- accessKey: testaccess2
  secretKey: {secret}b
  whiteRemoteAddress:
  admin: true
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, wire: Wire) -> Iterator[TestBroker]:
    """A 4.9.4 broker with access control; it has a topic of three messages, and takes no more.

    While it starts everybody on this host is welcome: whoever watches it signs nothing.
    """
    require("apache")
    folder = tmp_path_factory.mktemp("guarded")
    rules = folder / "broker-a" / "conf" / "plain_acl.yml"
    rules.parent.mkdir(parents=True)
    rules.write_text(_RULES.format(white="- 127.0.0.1", secret=SECRET))
    properties = {"aclEnable": "true", **SHORT_DELAYS}
    with ApacheCluster("4.9.4", properties, folder) as cluster:
        broker = TestBroker("apache_494", cluster, wire)
        broker.for_test("guarded")
        cluster.create_topic("Guarded", queues=1)
        broker.send("Guarded", bodies(3))
        rules.write_text(_RULES.format(white="- 10.10.10.10", secret=SECRET))

        def closed() -> bool:
            command = RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET)
            return wire.invoke(cluster.broker_addr, command).code != 0

        wait_for(closed, "the broker to read its rules again")
        yield broker


@pytest.mark.apache
def test_right_key_consumes(guarded: TestBroker) -> None:
    recorder = Recorder()
    with consuming(
        guarded.namesrv_addr, guarded.group(), "Guarded", recorder,
        access_key="testaccess1", secret_key=SECRET,
    ):  # fmt: skip
        recorder.wait(3)


@pytest.mark.apache
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "accessKey"),
        ({"access_key": "testaccess1", "secret_key": "wrong" + SECRET}, "Check signature failed"),
        ({"access_key": "nobody", "secret_key": SECRET}, "nobody"),
    ],
    ids=["none", "wrong", "unknown"],
)
def test_wrong_key_says_so_and_does_not_hammer_the_broker(
    guarded: TestBroker, caplog: pytest.LogCaptureFixture, given: dict[str, str], text: str
) -> None:
    with guarded.proxied() as cluster:
        requests: list[int] = []
        cluster.broker.on_request = lambda frame: requests.append(frame.code)
        with (
            caplog.at_level(logging.WARNING, "rocketmq_fast"),
            consuming(
                cluster.namesrv_addr, guarded.group(), "Guarded", Recorder(),
                assigned=False, **given,
            ) as consumer,
        ):  # fmt: skip
            wait_for(lambda: text in caplog.text, lambda: f"the refusal; {caplog.text}")
            requests.clear()
            assert not consumer.wait_assigned(1.0)
        # A second of refusals, and the end.
        assert len(requests) <= 20
    assert SECRET not in caplog.text


@pytest.mark.apache
def test_admin_raises_the_brokers_refusal(guarded: TestBroker) -> None:
    with (
        Admin(
            namesrv_addr=guarded.namesrv_addr,
            access_key="testaccess1",
            secret_key="wrong" + SECRET,
        ) as admin,
        pytest.raises(BrokerError, match=r"(?i)signature|accesskey") as caught,
    ):
        admin.create_topic("Other", queues=1)
    assert SECRET not in str(caught.value)


@pytest.mark.apache
def test_rotated_credentials_take_effect_without_a_restart(guarded: TestBroker) -> None:
    current = [Credentials("testaccess1", "not yet valid " + SECRET)]
    recorder = Recorder()
    with consuming(
        guarded.namesrv_addr, guarded.group(), "Guarded", recorder, assigned=False,
        credentials=lambda: current[0], heartbeat_broker_interval=300,
    ) as consumer:  # fmt: skip
        assert not consumer.wait_assigned(0.5)
        current[0] = Credentials("testaccess2", SECRET + "b")
        recorder.wait(3)


# ---------------------------------------------------------------------------------- TLS


@pytest.fixture(params=["apache_494", "apache_533"])
def tls_broker(request: pytest.FixtureRequest, wire: Wire) -> TestBroker:
    """Apache's servers: both speak TLS, with a certificate that nobody signed."""
    made = TestBroker(request.param, request.getfixturevalue(request.param), wire)
    made.for_test(request.node.originalname)
    return made


@pytest.mark.apache
def test_certificate_nobody_knows_is_taken_only_when_asked_for(
    tls_broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = tls_broker
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(200, size=3000), queues=(0, 1))
    refused = make(broker.namesrv_addr, group, topic, Recorder(), use_tls=True)
    with pytest.raises(NoNameServer, match=r"(?i)certificate verify failed"):
        refused.start()
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr, group, topic, recorder, use_tls=True, tls_insecure=True
    ):  # fmt: skip
        recorder.wait(200)
    assert "without verification" in caplog.text


def test_tls_client_meets_a_plain_server(embedded_broker: TestBroker) -> None:
    consumer = make(
        embedded_broker.namesrv_addr, "group", "topic", Recorder(),
        use_tls=True, tls_insecure=True,
    )  # fmt: skip
    with pytest.raises(NoNameServer, match=r"(?i)tls|ssl|handshake"):
        consumer.start()


class Authority:
    """Certificates made by the openssl command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run("genrsa", "-out", "ca.key", "2048")
        self._run(
            "req", "-x509", "-new", "-key", "ca.key", "-sha256", "-days", "2", "-out", "ca.pem",
            "-subj", "/CN=test authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        self.issue("server", "subjectAltName=IP:127.0.0.1")
        self.issue("client", "extendedKeyUsage=clientAuth")

    def _run(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def issue(self, name: str, extension: str) -> None:
        """name.pem and name.key (PKCS#8, as Netty wants it)."""
        (self.folder / f"{name}.ext").write_text(extension + "\n")
        self._run("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048",
                  "-out", f"{name}.key")  # fmt: skip
        self._run("req", "-new", "-key", f"{name}.key", "-out", f"{name}.csr",
                  "-subj", f"/CN={name}")  # fmt: skip
        self._run(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", "2", "-sha256", "-extfile", f"{name}.ext",
            "-out", f"{name}.pem",
        )  # fmt: skip

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority of our own."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def mutual(authority: Authority, wire: Wire) -> Iterator[TestBroker]:
    """A 4.9.4 cluster that shows our authority's certificate and wants one of its clients.

    It takes plain connections too: whoever watches it start speaks plain.
    """
    require("apache")
    options = {
        "tls.test.mode.enable": "false",
        "tls.server.mode": "permissive",
        "tls.server.certPath": authority.path("server.pem"),
        "tls.server.keyPath": authority.path("server.key"),
        "tls.server.trustCertPath": authority.path("ca.pem"),
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
    }
    with ApacheCluster(
        "4.9.4", jvm_options=tuple(f"-D{name}={value}" for name, value in options.items())
    ) as cluster:
        broker = TestBroker("apache_494", cluster, wire)
        broker.for_test("mutual")
        yield broker


@pytest.mark.apache
def test_mutual_tls_under_an_authority_of_our_own(mutual: TestBroker, authority: Authority) -> None:
    topic = mutual.topic(2)
    mutual.send(topic, bodies(100), queues=(0, 1))
    recorder = Recorder()
    with consuming(
        mutual.namesrv_addr, mutual.group(), topic, recorder,
        use_tls=True, tls_ca_file=authority.path("ca.pem"),
        tls_cert_file=authority.path("client.pem"), tls_key_file=authority.path("client.key"),
    ):  # fmt: skip
        recorder.wait(100)


@pytest.mark.apache
@pytest.mark.parametrize("case", ["no client certificate", "unknown authority", "another host"])
def test_tls_fails_closed(mutual: TestBroker, authority: Authority, case: str) -> None:
    address = mutual.namesrv_addr
    given: dict[str, Any] = {
        "tls_ca_file": authority.path("ca.pem"),
        "tls_cert_file": authority.path("client.pem"),
        "tls_key_file": authority.path("client.key"),
    }
    text = "(?i)certificate verify failed"
    if case == "no client certificate":
        del given["tls_cert_file"], given["tls_key_file"]
        text = "(?i)certificate|closed|ended|reset"
    elif case == "unknown authority":
        del given["tls_ca_file"]
    else:
        address = address.replace("127.0.0.1", "localhost")
        text = "(?i)certificate verify failed.*(hostname|localhost)"
    consumer = make(address, "group", "topic", Recorder(), use_tls=True, **given)
    with pytest.raises(RemotingError, match=text):
        consumer.start()


# -------------------------------------------------------------------------------- Spark


def spark_round(broker: TestBroker, topic: str, given: dict[str, str]) -> None:
    """A write and a read with Spark's options; plans and tasks run here, without Spark."""
    require("spark")
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, StructField, StructType

    from rocketmq_fast.spark.writer import RocketMQWriter
    from rocketmq_fast.spark.writer_options import WriteOptions

    options = {"namesrvAddr": broker.namesrv_addr, "topic": topic} | given
    schema = StructType([StructField("body", BinaryType())])
    writer = RocketMQWriter(schema, WriteOptions.of(options | {"sendTimeoutMs": "60000"}), False)
    sent = writer.write(iter([pa.record_batch({"body": [b"one", b"two", b"three"]})]))
    assert sent.messages == 3
    assert sorted(row["body"] for row in batch_rows(options)) == [b"one", b"three", b"two"]


@pytest.mark.apache
@pytest.mark.usefixtures("no_kept_producers")
def test_spark_signs_what_it_sends(guarded: TestBroker) -> None:
    keys = {"accessKey": "testaccess1", "secretKey": SECRET}
    spark_round(guarded, "SparkGuarded", keys)
    quick = {"namesrvAddr": guarded.namesrv_addr, "topic": "Guarded", "fetchOffset.numRetries": "0"}
    for wrong in ({}, keys | {"secretKey": "wrong" + SECRET}):
        with pytest.raises(BrokerError, match=r"(?i)signature|accesskey") as caught:
            batch_rows(quick | wrong)
        assert SECRET not in str(caught.value)


@pytest.mark.apache
@pytest.mark.usefixtures("no_kept_producers")
def test_spark_with_mutual_tls(mutual: TestBroker, authority: Authority) -> None:
    given = {"useTLS": "true", "tlsCaFile": authority.path("ca.pem")}
    mine = {
        "tlsCertFile": authority.path("client.pem"),
        "tlsKeyFile": authority.path("client.key"),
    }
    spark_round(mutual, mutual.topic(2), given | mine)
    quick = {"namesrvAddr": mutual.namesrv_addr, "topic": "T", "fetchOffset.numRetries": "0"}
    with pytest.raises(NoNameServer, match=r"(?i)option 'namesrvAddr'.*(certificate|closed|ended)"):
        batch_rows(quick | given)
    del given["tlsCaFile"]
    with pytest.raises(NoNameServer, match=r"(?i)'namesrvAddr'.*certificate verify failed"):
        batch_rows(quick | given | mine)


def test_plain_client_meets_a_server_that_wants_tls() -> None:
    """A TLS server may answer anything else with an alert, which must not be read as a length."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(4096)
                sock.sendall(b"\x15\x03\x03\x00\x02\x02\x46")  # fatal: protocol version
                sock.recv(4096)  # until the client closes: a reset could overtake the alert

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        consumer = make(address, "group", "topic", Recorder())
        with pytest.raises(NoNameServer, match="looks like TLS") as raised:
            consumer.start()
        assert "sent nothing" not in str(raised.value)
        thread.join(10)
