"""The same odd requests to the embedded cluster and to Apache 4.9.4: same codes, fields, bodies."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field

import pytest

from rocketmq_fast._core import RemotingCommand, decode_messages
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.protocol import fastjson
from tests.apache import SHORT_DELAYS, ApacheCluster
from tests.embedded_raw import Raw, element, heartbeat, lock_body, pull_fields, send_fields

pytestmark = pytest.mark.apache


@dataclass(frozen=True)
class Step:
    """A request. `differs` is why the answers may not be equal; then only their codes are."""

    name: str
    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    to_namesrv: bool = False
    differs: str = ""
    settle: tuple[str, int, int] | None = None


def send(name: str, topic: str, queue: int, body: bytes = b"x", **fields: str | None) -> Step:
    return Step(f"send {name}", 310, send_fields(topic, queue, **fields), body)


def batch(name: str, topic: str, queue: int, body: bytes, **fields: str | None) -> Step:
    return Step(f"batch {name}", 320, send_fields(topic, queue, m="true", **fields), body)


def pull(name: str, topic: str, queue: int = 0, offset: int = 0, **fields: str | None) -> Step:
    own = {"consumerGroup": f"{topic.lstrip('%')[:4]}-CG", **fields}
    return Step(f"pull {name}", 11, pull_fields(topic, queue, offset, **own))


def script(p: str) -> list[Step]:
    """The requests; all names begin with a prefix of their own."""
    t, g = f"{p}T", f"{p}G"
    queue = {"topic": t, "queueId": "1"}
    key = {"consumerGroup": f"{p}N", "topic": t, "queueId": "1"}
    query = {"topic": t, "key": "k1", "maxNum": "5", "beginTimestamp": "0",
             "endTimestamp": str(2**50)}  # fmt: skip
    create = {"topic": f"{p}C", "defaultTopic": "TBW102", "readQueueNums": "3",
              "writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG",
              "topicSysFlag": "0", "order": "false"}  # fmt: skip
    kv = {"namespace": p, "key": "k"}

    def ns(name: str, code: int, **fields: str) -> Step:
        return Step(f"name server {name}", code, fields, to_namesrv=True)

    own = {"sysFlag": "0", "subscription": None, "consumerGroup": g}
    schedule = "offsets of the schedule topic, which all runs share"
    client = json.dumps(
        {"clientId": "c", "group": g,
         "subscriptionData": {"topic": t, "subString": "*", "expressionType": "TAG"}}
    ).encode()  # fmt: skip
    return [
        ns("unknown topic", 105, topic=f"{p}none"),
        ns("no topic", 105),
        ns("no value", 101, **kv),
        ns("put", 100, value="v", **kv),
        ns("get", 101, **kv),
        ns("list", 219, namespace=p),
        ns("list of nothing", 219, namespace=f"{p}none"),
        ns("delete", 102, **kv),
        ns("delete again", 102, **kv),
        ns("topics of an unknown cluster", 224, cluster="zz"),
        ns("wipe an unknown broker", 205, brokerName="zz"),
        ns("delete an unknown topic", 216, topic=f"{p}none"),
        send("creates", t, 0),
        send("queue too high", t, 4),
        send("blank in topic", "T 1", 0),
        send("blank topic", " ", 0),
        send("long topic", "T" * 128, 0),
        send("no topic", t, 0, b=None),
        send("forbidden", "SCHEDULE_TOPIC_XXXX", 0),
        send("empty body", t, 0, b""),
        send("no template", f"{p}none", 0, c="zz"),
        send("retry", f"%RETRY%{p}R", 0, c="zz"),
        send("retry too often", f"%RETRY%{p}R", 0, j="16"),
        send("retry own limit", f"%RETRY%{p}R", 0, j="1", l="1"),
        send("properties too long", t, 0, i="k\x01" + "v" * 32760),
        send("long properties", t, 0, i="k\x01" + "v" * 32700),
        send("body too long", t, 0, b"x" * ((4 << 20) + 1)),
        send("tags", t, 1, b"tagged",
             i=f"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01{p}U1\x02WAIT\x01true"),
        Step("send long names", 10,
             {"producerGroup": "PG", "topic": t, "defaultTopic": "TBW102",
              "defaultTopicQueueNums": "4", "queueId": "2", "sysFlag": "0",
              "bornTimestamp": "1700000000000", "flag": "3", "properties": "TAGS\x01B",
              "reconsumeTimes": "2", "unitMode": "false"}, b"old"),
        batch("plain", t, 2, element(b"a", "TAGS\x01A\x02WAIT\x01true")
              + element(b"b", "KEYS\x01zz\x02") + element(b"", ""), i="WAIT\x01true"),
        Step("batch without its flag", 320, send_fields(t, 3, m="false"), element(b"a")),
        Step("310 with the flag", 310, send_fields(t, 3, m="true"), element(b"a", "TAGS\x01A")),
        batch("delay", t, 0, element(b"a"), i="DELAY\x012"),
        batch("transaction", t, 0, element(b"a"), f="4"),
        batch("delay in an element", t, 3, element(b"a", "DELAY\x012")),
        Step("settle", 30, {"topic": t, "queueId": "3"}, settle=(t, 3, 3)),
        pull("all of 0", t, 0, maxMsgNums="2"),
        pull("all of 1", t, 1),
        pull("all of 2", t, 2),
        pull("all of 3", t, 3),
        pull("tag", t, 2, subscription="A || B"),
        pull("other tag", t, 2, subscription="ZZZ"),
        pull("far beyond", t, 1, 100),
        pull("at the end", t, 1, 1),
        pull("negative", t, 1, -1),
        pull("unknown topic", f"{p}none"),
        pull("queue too high", t, 9),
        pull("negative queue", t, -1),
        pull("bad expression", t, 1, subscription="||"),
        pull("blank expression", t, 1, subscription=" "),
        pull("no expression", t, 1, subscription=None),
        pull("max 0", t, 2, maxMsgNums="0"),
        pull("max -1", t, 2, maxMsgNums="-1"),
        pull("no max", t, 2, maxMsgNums=None),
        pull("never written", "BenchmarkTest", 1007),
        pull("never written at 5", "BenchmarkTest", 1007, 5),
        pull("unknown group", t, 1, sysFlag="0", consumerGroup=f"{p}NOHB"),
        pull("with commit", t, 1, sysFlag="5", commitOffset="7", consumerGroup=f"{p}PCG"),
        Step("offset of a pull", 14, {**key, "consumerGroup": f"{p}PCG"}),
        Step("heartbeat", 34, {}, heartbeat("c1", g, {t: ("*", [], 1)})),
        Step("heartbeat again", 34, {}, heartbeat("c1", g, {t: ("*", [], 1)})),
        Step("heartbeat of nothing", 34),
        Step("heartbeat of junk", 34, {}, b"{{{"),
        pull("by heartbeat", t, 1, subVersion="1", **own),
        pull("newer than the heartbeat", t, 1, subVersion="2", **own),
        pull("not in the heartbeat", "BenchmarkTest", 1, subVersion="1", **own),
        Step("members", 38, {"consumerGroup": g}),
        Step("no members", 38, {"consumerGroup": f"{p}none"}),
        Step("members of nothing", 38),
        Step("connections", 203, {"consumerGroup": g}),
        Step("no connections", 203, {"consumerGroup": f"{p}none"}),
        Step("no producers", 204, {"producerGroup": f"{p}none"}),
        Step("lock", 41, {}, lock_body("c1", g, t, "broker-a", 0, 1)),
        Step("lock others", 41, {}, lock_body("c2", g, t, "broker-a", 1, 2)),
        Step("unlock", 42, {}, lock_body("c1", g, t, "broker-a", 0, 1)),
        Step("lock freed", 41, {}, lock_body("c2", g, t, "broker-a", 0, 1, 2)),
        Step("lock of junk", 41, {}, b"xx"),
        Step("check subscription", 46, {}, client),
        Step("check nothing", 46),
        Step("offset never stored", 14, key),
        Step("offset of an unknown topic", 14, {**key, "topic": f"{p}none"}),
        Step("commit", 15, {**key, "commitOffset": "1"}),
        Step("commit beyond", 15, {**key, "commitOffset": "1000"}),
        Step("commit negative", 15, {**key, "queueId": "2", "commitOffset": "-5"}),
        Step("commit nothing", 15, key),
        Step("offset", 14, key),
        Step("negative offset", 14, {**key, "queueId": "2"}),
        Step("max", 30, queue),
        Step("max of an unknown topic", 30, {**queue, "topic": f"{p}none"}),
        Step("min", 31, queue),
        Step("min of an unknown topic", 31, {**queue, "topic": f"{p}none"}),
        Step("min of an unwritten queue", 31, {"topic": "BenchmarkTest", "queueId": "999"}),
        Step("earliest", 32, queue),
        Step("earliest of an unknown topic", 32, {**queue, "topic": f"{p}none"}),
        Step("search at 0", 29, {**queue, "timestamp": "0"}),
        Step("search far ahead", 29, {**queue, "timestamp": str(2**50)}),
        Step("search in an unknown topic", 29, {**queue, "topic": f"{p}none", "timestamp": "5"}),
        Step("view beyond", 33, {"offset": "99999999999"}),
        Step("view at -1", 33, {"offset": "-1"}),
        Step("query by key", 12, query, differs="positions of the index"),
        Step("query by unique key", 12, {**query, "key": f"{p}U1", "_UNIQUE_KEY_QUERY": "true"},
             differs="positions of the index"),
        Step("query for nothing", 12, {**query, "key": "zz"}, differs="positions of the index"),
        Step("create", 17, create),
        ns("created topic", 105, topic=f"{p}C"),
        Step("create a system topic", 17, {**create, "topic": "TBW102"}),
        Step("create a bad name", 17, {**create, "topic": "a b"}),
        Step("create a bad type", 17, {**create, "topicFilterType": "X"}),
        Step("create write only", 17, {**create, "topic": f"{p}W", "perm": "2"}),
        pull("write only", f"{p}W"),
        Step("create read only", 17, {**create, "topic": f"{p}O", "perm": "4"}),
        send("read only", f"{p}O", 0),
        Step("statistics", 202, {"topic": f"{p}C"}),
        Step("statistics of nothing", 202, {"topic": f"{p}none"}),
        Step("progress", 208, {"consumerGroup": f"{p}N"}),
        Step("progress of nothing", 208, {"consumerGroup": f"{p}none"}),
        Step("progress in a topic", 208, {"consumerGroup": f"{p}N", "topic": t}),
        Step("groups of a topic", 300, {"topic": t}),
        Step("reset while offline", 222, {"topic": t, "group": f"{p}N", "timestamp": "-1",
                                          "isForce": "true"}),
        Step("reset of nothing", 222, {"topic": f"{p}none", "group": g, "timestamp": "-1",
                                       "isForce": "true"}),
        Step("status while offline", 223, {"topic": t, "group": f"{p}none"}),
        Step("running info while offline", 307, {"consumerGroup": f"{p}none", "clientId": "x"}),
        Step("consume directly while offline", 309,
             {"consumerGroup": f"{p}none", "clientId": "x", "msgId": "0" * 32}),
        Step("send back what is not there", 36,
             {"offset": "99999999999", "group": g, "delayLevel": "0", "originMsgId": "x",
              "originTopic": t, "unitMode": "false", "maxReconsumeTimes": "16"}),
        Step("send back without a group", 36, {"offset": "0", "delayLevel": "-1"}),
        Step("create a group", 200, {}, json.dumps({"groupName": f"{p}GG"}).encode()),
        Step("create a group of junk", 200, {}, b"zz"),
        Step("delete a group", 207, {"groupName": f"{p}GG"}),
        Step("system topics", 305),
        Step("delete", 215, {"topic": f"{p}C"}),
        Step("delete again", 215, {"topic": f"{p}C"}),
        Step("delete a system topic", 215, {"topic": "TBW102"}),
        Step("unregister", 35, {"clientID": "c1", "consumerGroup": g, "producerGroup": "PG"}),
        Step("unregister nobody", 35),
        Step("unknown code", 9999),
        Step("send delayed", 310, send_fields(t, 1, i="DELAY\x012\x02WAIT\x01true\x02TAGS\x01L"),
             b"late", differs=schedule),
        Step("send delayed beyond all levels", 310, send_fields(t, 0, i="DELAY\x0199"), b"later",
             differs=schedule),
        Step("settle", 30, queue, settle=(t, 1, 2)),
        pull("delivered", t, 1, 1),
    ]  # fmt: skip


def run(cluster: Cluster | ApacheCluster, prefix: str, serialize_type: int) -> list[object]:
    """Every answer, with what differs between any two clusters taken out."""
    seen: list[object] = []
    with (
        Raw(cluster.broker_addr, serialize_type=serialize_type) as broker,
        Raw(cluster.namesrv_addr, serialize_type=serialize_type) as namesrv,
    ):
        sent: dict[str, str] = {}
        for step in script(prefix):
            raw = namesrv if step.to_namesrv else broker
            body = step.body.replace(b"broker-a", cluster.broker_name.encode())
            response = raw.call(step.code, step.fields, body)
            if step.settle is not None:
                settle(raw, *step.settle)
                continue
            sent |= response.ext_fields
            pushed = [command.code for command in broker.pushed]
            broker.pushed.clear()
            ports = [cluster.broker_addr, cluster.namesrv_addr]
            seen.append([step.name, *comparable(step, response, ports, cluster), pushed])
    return seen


def settle(raw: Raw, topic: str, queue: int, offset: int) -> None:
    """Wait until a queue shows what was sent: Apache indexes a little later, delays need time."""
    deadline = time.monotonic() + 30
    while True:
        shown = raw.call(30, {"topic": topic, "queueId": str(queue)}).ext_fields["offset"]
        if int(shown) >= offset:
            return
        assert time.monotonic() < deadline, f"{topic} {queue} stays at {shown}"
        time.sleep(0.02)


def comparable(
    step: Step, response: RemotingCommand, addresses: list[str], cluster: Cluster | ApacheCluster
) -> list[object]:
    """Code, header type, fields and body of an answer."""
    basic: list[object] = [response.code, response.serialize_type]
    if step.differs:
        return [*basic, sorted(response.ext_fields), messages(response.body, step)]
    fields = {
        name: re.sub(r"^\d{13}$|^[0-9A-F]{32}(,|$)", "*", value)
        for name, value in response.ext_fields.items()
    }
    if "msgId" in fields:
        fields["msgId"] = str(response.ext_fields["msgId"].count(","))
    if step.code in (11, 12, 33):
        return [*basic, fields, messages(response.body, step)]
    text = response.body.decode()
    for address in addresses:
        text = text.replace(address, "ADDRESS")
    text = text.replace(cluster.broker_name, "broker-a")
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
    text = re.sub(r"\b1[6-9]\d{11}\b", "0", text)
    return [*basic, fields, ordered(fastjson.loads(text)) if text else None]


def messages(body: bytes, step: Step) -> list[object]:
    batch = decode_messages(body, check_crc=True)
    assert not batch.errors, step.name
    rows: list[object] = [
        (m.topic, m.queue_id, m.flag, m.queue_offset, m.sys_flag, m.reconsume_times, m.store_size,
         m.body, sorted(m.properties.items()))
        for m in batch
    ]  # fmt: skip
    return sorted(rows, key=repr) if step.code == 12 else rows


def ordered(value: object) -> object:
    """A JSON value whose lists and objects have one order."""
    if isinstance(value, dict):
        return sorted(((repr(k), ordered(v)) for k, v in value.items()), key=repr)
    if isinstance(value, list):
        return sorted((ordered(v) for v in value), key=repr)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("serialize_type", [0, 1], ids=["json", "compact"])
def test_answers_are_those_of_apache(apache_494: ApacheCluster, serialize_type: int) -> None:
    prefix = f"q{time.time_ns() % 10**10}x"
    with Cluster(delay_levels=SHORT_DELAYS["messageDelayLevel"]) as embedded:
        ours = run(embedded, prefix, serialize_type)
    theirs = run(apache_494, prefix, serialize_type)
    assert len(ours) == len(theirs) > 100
    wrong = [
        f"{mine!r}\n     Apache: {other!r}"
        for mine, other in zip(ours, theirs, strict=True)
        if mine != other
    ]
    assert not wrong, "\n".join(wrong)
