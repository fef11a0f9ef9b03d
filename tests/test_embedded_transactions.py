"""Transactions of the embedded broker, request by request, with a clock that tests move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_fast import MessageExt, decode_messages
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.embedded import Cluster, StoreError
from tests.embedded_raw import Raw, pull_fields, send_fields
from tests.waiting import wait_for

END, CHECK, HEARTBEAT, SEND, PULL = 37, 39, 34, 310, 11
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class Clock:
    """Milliseconds that only move when told."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(tmp_path: Path, clock: Clock) -> Iterator[Cluster]:
    options = {"transaction_check_interval": 0.02, "flush_interval": 0.02}
    with Cluster(tmp_path / "store", clock=clock, **options) as running:
        running.create_topic("T", queues=2)
        yield running


class Client:
    """A producer of group PG on one connection."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._clock = clock
        self.raw = Raw(cluster.broker_addr)
        body = {"clientID": "c@1", "consumerDataSet": [], "producerDataSet": [{"groupName": "PG"}]}
        assert self.raw.call(HEARTBEAT, body=json.dumps(body).encode()).code == 0

    def prepare(self, key: str, **properties: str) -> tuple[int, int]:
        """Send a half message; (half offset, log position)."""
        table = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": key, "TAGS": "A", **properties}
        encoded = "\x02".join(f"{name}\x01{value}" for name, value in table.items())
        fields = send_fields("T", 1, i=encoded, f="4", g=str(self._clock.now))
        answer = self.raw.call(SEND, fields, key.encode())
        assert answer.code == 0, answer.remark
        assert answer.ext_fields["queueId"] == "1"
        return int(answer.ext_fields["queueOffset"]), int(answer.ext_fields["msgId"][16:], 16)

    def end(self, place: tuple[int, int], decision: int, group: str = "PG") -> RemotingCommand:
        fields = {
            "producerGroup": group, "tranStateTableOffset": str(place[0]),
            "commitLogOffset": str(place[1]), "commitOrRollback": str(decision),
            "fromTransactionCheck": "false", "msgId": "id",
        }  # fmt: skip
        return self.raw.call(END, fields)

    def asked(self) -> tuple[MessageExt, dict[str, str]]:
        """Wait for a check."""
        push = self.raw.wait_push()
        assert push.code == CHECK
        assert push.is_oneway
        (message,) = decode_messages(push.body)
        return message, dict(push.ext_fields)

    def visible(self) -> list[MessageExt]:
        """What a consumer finds."""
        answer = self.raw.call(PULL, pull_fields("T", 1, sysFlag="4"))
        return decode_messages(answer.body).to_list() if answer.code == 0 else []


@pytest.fixture
def client(cluster: Cluster, clock: Clock) -> Iterator[Client]:
    made = Client(cluster, clock)
    yield made
    made.raw.close()


def test_commit_and_rollback(cluster: Cluster, client: Client) -> None:
    first, second = client.prepare("one"), client.prepare("two")
    assert (first[0], second[0]) == (0, 1)
    assert client.visible() == []
    assert client.end(first, COMMIT).code == 0
    assert client.end(second, ROLLBACK).code == 0
    (message,) = client.visible()
    assert (message.body, message.queue_id, message.queue_offset) == (b"one", 1, 0)
    assert message.prepared_transaction_offset == first[1]
    assert message.sys_flag & 0xC == 8
    assert message.properties["REAL_TOPIC"] == "T"
    assert cluster.message_count(HALF) == cluster.message_count(OP) == 2


def test_what_is_refused(client: Client) -> None:
    place = client.prepare("one")
    for answer, said in (
        (client.end(place, COMMIT, "another"), "producer group"),
        (client.end((place[0] + 1, place[1]), COMMIT), "table offset"),
        (client.end((place[0], place[1] + 1), COMMIT), "Find prepared"),
        (client.end((place[0], 1 << 40), COMMIT), "Find prepared"),
        (client.end((place[0], -5), COMMIT), "Find prepared"),
    ):
        assert answer.code == 1
        assert said in answer.remark
    assert client.end(place, COMMIT).code == 0
    again = client.end(place, COMMIT)
    assert again.code == 1
    assert "has ended" in again.remark
    assert len(client.visible()) == 1


def test_a_message_that_is_none_of_the_half_topic_is_no_transaction(client: Client) -> None:
    answer = client.raw.call(SEND, send_fields("T", 1), b"plain")
    position = int(answer.ext_fields["msgId"][16:], 16)
    assert client.end((0, position), COMMIT).code == 1


def test_a_check_tells_the_real_topic_and_the_place_of_the_copy(
    client: Client, clock: Clock
) -> None:
    place = client.prepare("one")
    clock.now += 6_000
    message, fields = client.asked()
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"one")
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    copy = int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"])
    assert copy != place
    assert (message.queue_offset, message.commit_log_offset) == copy
    assert fields["msgId"] == fields["transactionId"] == "one"
    assert int(fields["offsetMsgId"][16:], 16) == copy[1]
    assert client.end(copy, COMMIT).code == 0
    assert len(client.visible()) == 1


def test_a_late_decision_on_the_first_copy_ends_the_later_one_too(
    client: Client, clock: Clock
) -> None:
    place = client.prepare("one")
    clock.now += 6_000
    _, fields = client.asked()
    _, second = client.asked()
    assert second != fields
    assert client.end(place, COMMIT).code == 0
    copy = int(second["tranStateTableOffset"]), int(second["commitLogOffset"])
    assert client.end(copy, COMMIT).code == 1
    assert len(client.visible()) == 1


def test_nobody_is_asked_too_early(client: Client, clock: Clock) -> None:
    client.prepare("patient", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    client.prepare("young")
    clock.now += 6_000
    assert client.asked()[0].body == b"young"
    clock.now += 54_000
    bodies = {client.asked()[0].body for _ in range(4)}
    assert bodies == {b"young", b"patient"}


def test_fifteen_checks_are_enough(cluster: Cluster, client: Client, clock: Clock) -> None:
    client.prepare("one")
    clock.now += 6_000
    counts = [client.asked()[0].properties["TRANSACTION_CHECK_TIMES"] for _ in range(15)]
    assert counts == [str(number) for number in range(1, 16)]
    aside = "TRANS_CHECK_MAX_TIME_TOPIC"
    wait_for(lambda: cluster.message_count(aside) == 1, "the message that is put aside")
    answer = client.raw.call(PULL, pull_fields(aside))
    assert [message.body for message in decode_messages(answer.body)] == [b"one"]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_knows_what_is_open(
    cluster: Cluster, client: Client, clock: Clock, how: str
) -> None:
    places = [client.prepare(f"m{i}") for i in range(600)]
    for place in places[::2]:
        assert client.end(place, COMMIT).code == 0
    client.raw.close()
    if how == "kill":
        cluster.kill()
    else:
        cluster.stop()
    cluster.start()
    again = Client(cluster, clock)
    assert again.end(places[0], COMMIT).code == 1
    for place in places[1::2]:
        assert again.end(place, ROLLBACK if place[0] % 4 == 1 else COMMIT).code == 0
    assert cluster.message_count("T") == 300 + 150
    again.raw.close()


def test_a_start_reads_on_from_where_everything_was_ended(
    cluster: Cluster, client: Client, clock: Clock
) -> None:
    for i in range(10):
        client.end(client.prepare(f"m{i}"), COMMIT)
    left = client.prepare("left")
    path = cluster.store / "config" / "transactionOffset.json"

    def saved() -> dict[str, int]:
        return dict(json.loads(path.read_text())) if path.exists() else {}

    wait_for(lambda: saved() == {"half": left[0], "op": 10}, saved)
    client.raw.close()
    cluster.stop()
    cluster.start()
    again = Client(cluster, clock)
    assert again.end(left, COMMIT).code == 0
    assert cluster.message_count("T") == 11
    wait_for(lambda: saved() == {"half": 11, "op": 11}, saved)
    again.raw.close()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        path = cluster.store / "config" / "transactionOffset.json"
    path.write_text('{"half": "x"}')
    with pytest.raises(StoreError, match=r"transactionOffset\.json"):
        Cluster(tmp_path).start()
