"""The command on every kind of broker: what it sends, counts and shows."""

from __future__ import annotations

import json

from rocketmq_fast import ConsumeStatus, MessageExt
from rocketmq_fast._core.consume import ConsumeContext
from tests.brokers import TestBroker
from tests.consuming import Recorder, bodies, consuming
from tests.test_cli import error, result, run
from tests.waiting import wait_for


def test_commands_on_a_broker(broker: TestBroker) -> None:
    topic, group = broker.name("t"), broker.group()
    address = ("--namesrv", broker.namesrv_addr, "--json")
    made = result(run("topics", "--create", topic, "--queues", "4", *address))
    assert made == {"created": topic, "queues": 4}
    create = ("topics", "--create", topic, *address)
    assert "has 4 queues on" in error(run(*create, "--queues", "3"), 2)
    assert result(run(*create, "--queues", "3", "--update"))["updated"] == topic
    assert result(run(*create, "--queues", "4", "--update"))["updated"] == topic
    assert result(run(*create, "--queues", "4"))["unchanged"] == topic
    sent = result(run("produce", "--topic", topic, "--count", "2k", "--size", "5000",
                      "--tags", "A,B", "--keys", "k", *address))  # fmt: skip
    assert (sent["messages"], sent["failed"], sent["bytes"]) == (2000, 0, 10_000_000)
    words = ("consume", "--topic", topic, "--group", group, "--from", "first", "--timeout", "60",
             *address)  # fmt: skip
    first = result(run(*words, "--count", "500", "--quiet"))
    assert (first["messages"], first["duplicates"], first["bytes"]) == (500, 0, 2_500_000)

    behind = result(run("lag", "--group", group, "--topic", topic, *address))
    assert behind["lag"] == 1500
    listed = result(run("topics", *address))["topics"]
    assert next(row for row in listed if row["topic"] == topic)["messages"] == 2000
    groups = result(run("groups", *address))["groups"]
    assert group in {row["group"] for row in groups}

    rest = run(*words, "--count", "1500")
    found = result(rest)
    assert (found["messages"], found["duplicates"]) == (1500, 0)
    lines = [json.loads(line) for line in rest.stdout.splitlines()[:-1]]
    assert {line["tags"] for line in lines} == {"A", "B"}
    assert len({line["keys"] for line in lines}) == 1500
    assert result(run("lag", "--group", group, "--topic", topic, *address))["lag"] == 0


def test_offsets_are_shown_and_moved(broker: TestBroker) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(20), queues=(0, 1))
    words = ("offsets", "--group", group, "--topic", topic, "--namesrv", broker.namesrv_addr)
    assert [row["committed"] for row in result(run(*words, "--json"))["queues"]] == [None, None]
    name = result(run(*words, "--json"))["queues"][0]["broker_name"]

    def reset(*more: str) -> list[tuple[int, int, int]]:
        rows = result(run(*words, "--json", "--reset", *more))["queues"]
        return [(row["queue_id"], row["reset"], row["committed"]) for row in rows]

    assert reset("last") == [(0, 10, 10), (1, 10, 10)]
    assert reset("4") == [(0, 4, 4), (1, 4, 4)]
    assert reset("7", "--queue", f"{name}:1") == [(0, None, 4), (1, 7, 7)]
    assert broker.committed(group, topic) == {0: 4, 1: 7}
    assert reset("2001-01-01T00:00:00") == [(0, 0, 0), (1, 0, 0)]
    assert reset("first") == [(0, 0, 0), (1, 0, 0)]
    assert f"{name}:1" in run(*words).stdout


def test_a_message_is_viewed(broker: TestBroker) -> None:
    topic = broker.topic(1)
    (sent,) = broker.send(topic, [b"seen\x1b[31m"],
                          properties={"KEYS": "order-7", "colour": "red"})  # fmt: skip
    address = ("--namesrv", broker.namesrv_addr)
    by_offset_id = run("view", sent.offset_msg_id, *address)
    assert "seen\\x1b[31m" in by_offset_id.stdout, by_offset_id.stderr
    assert "property colour" in by_offset_id.stdout
    assert f"{sent.message_queue} {sent.queue_offset}\n" in by_offset_id.stdout
    for words in ((sent.msg_id, "--topic", topic), ("--key", "order-7", "--topic", topic)):
        wait_for(lambda: run("view", *words, *address).returncode == 0, "the index")  # noqa: B023
        (found,) = result(run("view", *words, *address, "--json"))["messages"]
        assert found["body"] == "seen\x1b[31m"
        assert (found["msg_id"], found["keys"]) == (sent.msg_id, "order-7")
        assert found["properties"]["colour"] == "red"
        assert found["broker_name"] == sent.message_queue.broker_name
    nobody = run("view", "--key", "nobody", "--topic", topic, *address)
    assert "has key 'nobody'" in error(nobody, 1)


def test_dead_letters_are_listed_and_given_again(broker: TestBroker) -> None:
    topic, group, other = broker.topic(1), broker.group(), broker.group()
    broker.send(topic, bodies(3))
    failing = True

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        context.delay_level_when_next_consume = -1
        if failing and messages[0].body != b"m1":
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    words = ("--group", group, "--namesrv", broker.namesrv_addr)
    assert result(run("dlq", "list", *words, "--json"))["dead_letters"] == 0

    def listed() -> list[dict[str, object]]:
        lines = run("dlq", "list", *words, "--json").stdout.splitlines()
        return [json.loads(line) for line in lines[:-1]]

    recorder, beside = Recorder(listen), Recorder()
    with (
        consuming(broker.namesrv_addr, group, topic, recorder),
        consuming(broker.namesrv_addr, other, topic, beside),
    ):
        recorder.wait(3)
        beside.wait(3)
        wait_for(lambda: len(listed()) == 2, listed)
        failing = False
        dead = {str(row["body"]): row for row in listed()}
        assert sorted(dead) == ["m0", "m2"]
        chosen = str(dead["m2"]["msg_id"])
        assert result(run("dlq", "resend", chosen, *words, "--json"))["resent"] == 1
        recorder.wait_deliveries(4)
        again = recorder.of(b"m2")[1]
        # As itself, with all tries before it, for this group alone.
        assert (again.topic, again.msg_id, again.reconsume_times) == (topic, chosen, 0)
        assert result(run("dlq", "resend", "--all", *words, "--json"))["resent"] == 2
        recorder.wait_deliveries(6)
    assert len(listed()) == 2
    assert sorted(beside.bodies) == [b"m0", b"m1", b"m2"]
    assert "no dead letter AAAA" in error(run("dlq", "resend", "AAAA", *words), 1)
    limited = run("dlq", "list", "--limit", "1", *words)
    assert "1 dead letter of group" in limited.stdout
    assert "there are more" in limited.stdout
