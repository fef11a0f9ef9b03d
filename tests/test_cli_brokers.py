"""The command on every kind of broker: what it sends, counts and shows."""

from __future__ import annotations

import json

from tests.brokers import TestBroker
from tests.test_cli import result, run


def test_commands_on_a_broker(broker: TestBroker) -> None:
    topic, group = broker.name("t"), broker.group()
    address = ("--namesrv", broker.namesrv_addr, "--json")
    made = result(run("topics", "--create", topic, "--queues", "4", *address))
    assert made == {"created": topic, "queues": 4}
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
