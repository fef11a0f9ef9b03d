"""Faults on demand: what each does to a request, which requests it takes, and that seeds repeat."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

import pytest

import rocketmq_fast as rmq
from rocketmq_fast._core import RemotingCommand, decode_messages
from rocketmq_fast.cli.faults import FaultPlan
from rocketmq_fast.embedded import Cluster, Fault, Faults
from rocketmq_fast.errors import CodecError, ConfigError
from tests.embedded_raw import Raw, lock_body, pull_fields, send_fields
from tests.waiting import wait_for

SEND, PULL, MAX_OFFSET, ROUTE, LOCK = 310, 11, 30, 105, 41
QUEUE = {"topic": "T", "queueId": "0"}


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2, fault_seed=7) as cluster:
        cluster.create_topic("T", 2)
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    yield running
    running.faults.clear()


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[Raw]:
    with Raw(cluster.broker_addr) as connection:
        yield connection


def send(raw: Raw, body: bytes = b"x", queue: int = 0) -> RemotingCommand:
    return raw.call(SEND, send_fields("T", queue), body)


def count(raw: Raw) -> int:
    return int(raw.call(MAX_OFFSET, QUEUE).ext_fields["offset"])


def test_an_error_instead_of_an_answer_or_after_the_deed(cluster: Cluster, raw: Raw) -> None:
    before = count(raw)
    fault = cluster.faults.error("send_message_v2", 2, remark="busy", times=2)
    assert [(a.code, a.remark) for a in (send(raw), send(raw))] == [(2, "busy")] * 2
    assert fault.hits == 2
    assert send(raw).code == 0
    assert count(raw) == before + 1
    with cluster.faults.error(SEND, 10, served=True):
        assert send(raw).code == 10
    assert send(raw).code == 0
    assert count(raw) == before + 3


def test_no_answer_leaves_the_connection_in_use(cluster: Cluster, raw: Raw) -> None:
    before = count(raw)
    cluster.faults.silence(SEND, times=1)
    cluster.faults.silence(SEND, times=1, served=True)
    lost = [raw.send(SEND, send_fields("T"), b"lost") for _ in range(2)]
    assert send(raw).code == 0
    assert count(raw) == before + 2
    raw.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        raw.wait(lost[0])


def test_a_delayed_request_is_overtaken(cluster: Cluster, raw: Raw) -> None:
    cluster.faults.delay(SEND, 0.05, times=1)
    late = raw.send(SEND, send_fields("T"), b"late")
    soon = send(raw)
    answer = raw.wait(late)
    assert answer.code == 0
    assert int(answer.ext_fields["queueOffset"]) == int(soon.ext_fields["queueOffset"]) + 1


@pytest.mark.parametrize("at", [0, 3, 10_000])
def test_a_connection_is_cut_at_a_byte(cluster: Cluster, raw: Raw, at: int) -> None:
    before = count(raw)
    with cluster.faults.cut(SEND, at):
        raw.send(SEND, send_fields("T"), b"x")
        got = b"".join(iter(lambda: raw.sock.recv(4096), b""))
    with Raw(cluster.broker_addr) as again:
        assert count(again) == before + 1
    if at < 1000:
        assert len(got) == at
    else:
        assert len(got) == int.from_bytes(got[:4], "big") + 4


def test_a_damaged_frame_and_a_damaged_message(cluster: Cluster, raw: Raw) -> None:
    assert send(raw, b"sound").code == 0
    offset = count(raw) - 1
    with cluster.faults.corrupt_message(topic="T", times=1) as fault:
        answer = raw.call(PULL, pull_fields("T", 0, offset))
        assert fault.hits == 1
    damaged = decode_messages(answer.body, check_crc=True)
    assert len(damaged) == 0
    assert "CRC" in damaged.errors[0][2]
    assert decode_messages(answer.body, check_crc=False)[0].body != b"sound"
    answer = raw.call(PULL, pull_fields("T", 0, offset))
    assert decode_messages(answer.body, check_crc=True)[0].body == b"sound"
    cluster.faults.corrupt(MAX_OFFSET, at=8, times=1)  # the brace of the header
    with pytest.raises(CodecError):
        raw.call(MAX_OFFSET, QUEUE)


def test_a_wrong_route(cluster: Cluster) -> None:
    with Raw(cluster.namesrv_addr) as raw:

        def route(topic: str = "T") -> tuple[set[str], set[int], set[int]]:
            value = json.loads(raw.call(ROUTE, {"topic": topic}).body)
            return (
                {a for b in value["brokerDatas"] for a in b["brokerAddrs"].values()},
                {q["writeQueueNums"] for q in value["queueDatas"]},
                {q["perm"] for q in value["queueDatas"]},
            )

        right = set(cluster.broker_addrs), {2}, {6}
        assert route() == right
        with cluster.faults.wrong_route(topic="T", address="127.0.0.1:1", queues=9, perm=4):
            assert route() == ({"127.0.0.1:1"}, {9}, {4})
            assert route("SELF_TEST_TOPIC") == (right[0], {1}, {6})
            cluster.delete_topic("T")
            assert raw.call(ROUTE, {"topic": "T"}).code == 17
            cluster.create_topic("T", 2)
        assert route() == right


def test_only_the_requests_that_are_meant(cluster: Cluster, raw: Raw) -> None:
    faults = cluster.faults
    faults.error(None, 1, topic="Other")
    faults.error(SEND, 2, topic="T", queue=1)
    faults.error(SEND, 3, server="broker-b")
    faults.error(PULL, 4, group="Nobody")
    faults.error((PULL, "GET_MIN_OFFSET"), 5, skip=1, times=1)
    assert [send(raw, queue=queue).code for queue in (0, 1, 0, 1)] == [0, 2, 0, 2]
    with Raw(cluster.broker_addrs[1]) as other:
        assert [send(other, queue=queue).code for queue in (0, 1)] == [3, 2]
    fields = pull_fields("T", consumerGroup="Nobody")
    assert raw.call(PULL, fields).code == 4
    assert raw.call(MAX_OFFSET, {"topic": "Other", "queueId": "0"}).code == 1
    assert [raw.call(31, QUEUE).code for _ in range(3)] == [0, 5, 0]
    assert {strike.server for strike in faults.strikes[-3:]} == {"broker-a"}


def test_locks_are_matched_by_their_queues_and_forgotten(cluster: Cluster, raw: Raw) -> None:
    def lock(client: str, *queues: int) -> tuple[int, int]:
        answer = raw.call(LOCK, None, lock_body(client, "G", "T", "broker-a", *queues))
        return answer.code, len(json.loads(answer.body)["lockOKMQSet"]) if answer.body else 0

    with cluster.faults.error("LOCK_BATCH_MQ", 1, topic="T", queue=1, group="G"):
        assert lock("one", 0) == (0, 1)
        assert lock("one", 1) == (1, 0)
        assert raw.call(LOCK, None, b"junk").code == 1
    assert lock("two", 0, 1) == (0, 1)
    cluster.forget_locks("Other")
    assert lock("one", 0, 1) == (0, 1)
    cluster.forget_locks("G")
    assert lock("two", 0, 1) == (0, 2)


def decisions(seed: int) -> tuple[list[int], bytes]:
    """Which of a hundred requests were refused, and a damaged answer."""
    with Cluster(fault_seed=seed) as cluster, Raw(cluster.broker_addr) as raw:
        cluster.create_topic("T", 1)
        assert send(raw, b"0123456789").code == 0
        faults = cluster.faults
        fault = faults.error(MAX_OFFSET, 1, probability=0.3, times=20)
        refused = [n for n in range(100) if raw.call(MAX_OFFSET, QUEUE).code]
        assert len(refused) == fault.hits <= 20
        assert [strike.request for strike in faults.strikes] == [MAX_OFFSET] * len(refused)
        faults.corrupt_message()
        pulled = raw.call(PULL, pull_fields("T"))
        return refused, decode_messages(pulled.body, check_crc=False)[0].body


def test_a_seed_repeats_the_decisions() -> None:
    assert decisions(11) == decisions(11)
    assert decisions(11)[0] != decisions(12)[0]
    assert Cluster(fault_seed=3).faults.seed == 3
    assert Cluster().faults.seed != Cluster().faults.seed


def test_clients_survive_what_faults_do(cluster: Cluster) -> None:
    """Ours through everything at once: each message arrives, as the faults end."""
    faults = cluster.faults
    cluster.create_topic("Through", 2)
    made: list[Fault] = [
        faults.error("SEND_MESSAGE_V2", 1, times=2, topic="Through"),
        faults.cut("PULL_MESSAGE", 5, times=2, topic="Through"),
        faults.corrupt("PULL_MESSAGE", 9, times=1, topic="Through"),
        faults.error("PULL_MESSAGE", 1, times=2, topic="Through"),
        faults.error("GET_ROUTEINFO_BY_TOPIC", 17, times=1, topic="Through"),
    ]
    got: set[bytes] = set()

    def listener(messages: list[rmq.MessageExt], _: object) -> rmq.ConsumeStatus:
        got.update(message.body for message in messages)
        return rmq.ConsumeStatus.CONSUME_SUCCESS

    consumer = rmq.PushConsumer(
        "through", namesrv_addr=cluster.namesrv_addr,
        consume_from_where=rmq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        pull_time_delay_millis_when_exception=50,
    )  # fmt: skip
    consumer.subscribe("Through")
    consumer.register_listener(listener)
    with rmq.Producer("p", namesrv_addr=cluster.namesrv_addr) as producer:
        for number in range(10):
            producer.send(rmq.Message("Through", b"%d" % number))
    consumer.start()
    try:
        wait_for(lambda: len(got) == 10, lambda: f"ten messages, not {len(got)}")
    finally:
        consumer.shutdown()
    assert [fault.hits for fault in made[:4]] == [2, 2, 1, 2]


def test_nonsense_is_refused(cluster: Cluster) -> None:
    faults = cluster.faults
    with pytest.raises(ConfigError, match="PULL_MESSAGE"):
        faults.silence("PULL_MESAGE")
    nonsense: tuple[Callable[[], Fault], ...] = (
        lambda: faults.delay(None, 0),
        lambda: faults.cut(None, -1),
        lambda: faults.corrupt(None, -1),
        lambda: faults.silence(None, times=0),
        lambda: faults.silence(None, probability=1.5),
        lambda: faults.wrong_route(address="nowhere"),
    )
    for wrong in nonsense:
        with pytest.raises(ConfigError):
            wrong()
    assert not faults


# ------------------------------------------------------------------------- the command line


def test_the_plan_of_a_command_line() -> None:
    plan = FaultPlan([
        "error requests=PULL_MESSAGE,30 code=2 topic=T times=1 remark='too busy'",
        "silence requests=all group=Nobody",
        "kill_broker number=1",
        "move-broker after=0",
        "stop_broker number=9",
    ])  # fmt: skip
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("T", 1)
        old = cluster.broker_addrs[0]
        plan.put_into(cluster.faults)
        with Raw(old) as raw:
            answer = raw.call(MAX_OFFSET, QUEUE)
            assert (answer.code, answer.remark) == (2, "too busy")
            assert raw.call(MAX_OFFSET, QUEUE).code == 0
        plan.start(cluster)
        wait_for(lambda: cluster.broker_addrs[0] != old, "the move of the broker")

        def away() -> bool:
            with contextlib.suppress(OSError):
                Raw(cluster.broker_addrs[1]).close()
                return False
            return True

        wait_for(away, "the end of the other broker")
        plan.stop()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "none of"),
        ("explode", "none of"),
        ("error requests=PULL_MESAGE code=1", "PULL_MESSAGE"),
        ("error requests=all", "code"),
        ("error requests=all code=x", "number"),
        ("silence requests=all served=maybe", "true or false"),
        ("silence requests=all colour=red", "colour"),
        ("stop_broker topic=T", "topic"),
        ("delay requests=all seconds=-1", "seconds"),
    ],
)
def test_a_plan_that_says_nonsense(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        FaultPlan([text]).put_into(Faults())
