"""The page for users of the Java client: every setter of its classes is there, and true."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

import rocketmq_fast as rmq
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.pull_options import PullConsumerOptions
from rocketmq_fast.producer.options import ProducerOptions
from rocketmq_fast.producer.transaction import TransactionProducerOptions
from tests.apache.java import run_java
from tests.style import ROOT

# Section of the page: Java's classes, and what takes the options here.
SECTIONS = {
    "ClientConfig: all clients": (("ClientConfig",), ProducerOptions),
    "DefaultMQPushConsumer": (("DefaultMQPushConsumer",), PushConsumerOptions),
    "DefaultLitePullConsumer": (("DefaultLitePullConsumer",), PullConsumerOptions),
    "DefaultMQProducer and TransactionMQProducer": (
        ("DefaultMQProducer", "TransactionMQProducer"),
        TransactionProducerOptions,
    ),
}


def page() -> str:
    return (ROOT / "docs" / "from-java.md").read_text(encoding="utf-8")


def rows(section: str) -> list[tuple[str, str]]:
    text = page().partition(f"### {section}\n")[2].partition("\n#")[0]
    return [(row[0], row[1]) for row in re.findall(r"^\| (`.+?) \| (.+) \|$", text, re.M)]


@pytest.mark.apache
def test_every_setter_of_java_is_named() -> None:
    java = run_java("ClientSettings")
    general = {name.lower() for left, _ in rows("ClientConfig: all clients")
               for name in re.findall(r"`(\w+)`", left)}  # fmt: skip
    for section, (classes, _) in SECTIONS.items():
        named = {name.lower() for left, _ in rows(section) for name in re.findall(r"`(\w+)`", left)}
        setters = {name.lower() for one in classes for name in java[one]}
        assert named <= setters, section
        own = section != "ClientConfig: all clients"
        assert setters <= (named | general if own else named), section


@pytest.mark.parametrize("section", SECTIONS)
def test_every_name_on_our_side_is_an_option(section: str) -> None:
    options = {field.name for field in fields(SECTIONS[section][1])}
    found = rows(section)
    assert len(found) > 10
    for _, right in found:
        if right.startswith("`"):
            for name in re.findall(r"`(\w+)`", right):
                known = name in options or hasattr(rmq.PushConsumer, name)
                assert known or name == "TransactionProducer", name


def test_every_class_on_our_side_is_there() -> None:
    text = page().partition("## Classes")[2].partition("\n## ")[0]
    for _, right in re.findall(r"^\| (.+?) \| (.+) \|$", text, re.M):
        for name in re.findall(r"`([A-Z]\w+)", right):
            assert hasattr(rmq, name), name


def test_every_call_on_our_side_is_there() -> None:
    text = page().partition("## Calls")[2].partition("\n## ")[0]
    named = re.findall(r"`([A-Z]\w+)\.(\w+)`", text)
    assert len(named) > 20
    for owner, name in named:
        assert hasattr(getattr(rmq, owner), name), f"{owner}.{name}"
    assert all(
        hasattr(client, "update_name_server_address")
        for client in (rmq.PushConsumer, rmq.PullConsumer, rmq.Producer)
    )


def test_the_named_arguments_are_there() -> None:
    send = inspect.signature(rmq.Producer.send).parameters
    assert {"queue", "selector"} <= set(send)
    assert "timeout" in inspect.signature(rmq.PullConsumer.poll).parameters
