"""What the documents say is so: code blocks run, commands work, tables of options are complete.

Python blocks are programs of their own. One that ends with run() is stopped once it has printed
what the test sent. Commands of a document run in their order against one broker; those that build
or install are not run here.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import rocketmq_fast as rmq
from rocketmq_fast.cli.entry import _parser
from rocketmq_fast.client.options import ClientOptions
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.pull_options import PullConsumerOptions
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.embedded.config import BrokerConfig
from rocketmq_fast.producer.options import ProducerOptions
from rocketmq_fast.producer.transaction import TransactionProducerOptions
from tests.require import require
from tests.scripts import environment, finish, until
from tests.style import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
ADDRESS = "127.0.0.1:9876"
STORE = "/tmp/rocketmq"  # noqa: S108 - replaced by a directory of the test
# Pages whose Python blocks are pieces of a session, checked by tests of their own.
PIECES = {"spark.md", "spark-write.md"}
# What is sent before a block with run() is started: (topic, body, tags), and what it then prints.
SENT = {"TopicTest": [("hello", "TagA")], "Orders": [("order 1", "created")]}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, *languages: str) -> list[str]:
    """The fenced blocks of a document in these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    return [text for language, text in found if language in languages]


def python_blocks() -> list[Any]:
    return [
        pytest.param(text, id=f"{relative(path)}:{number}")
        for path in DOCUMENTS
        for number, text in enumerate(blocks(path, "python"))
        if path.name not in PIECES
    ]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def test_documents_and_blocks_were_found() -> None:
    assert len(DOCUMENTS) >= 10
    assert len(python_blocks()) >= 7
    named = {path.name for path in DOCUMENTS}
    assert named >= PIECES
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text("utf-8"))
    assert set(listed) == {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"}


@pytest.mark.parametrize("text", python_blocks())
def test_python_block(text: str, cluster: Cluster, tmp_path: Path) -> None:
    ast.parse(text)
    if "pyspark" in text:
        require("spark")
    with rmq.Producer("docs", namesrv_addr=cluster.namesrv_addr) as producer:
        for topic, sent in SENT.items():
            for body, tags in sent:
                producer.send(rmq.Message(topic, body.encode(), tags=tags))
    program = tmp_path / "block.py"
    program.write_text(text.replace(ADDRESS, cluster.namesrv_addr), encoding="utf-8")
    words, env = [sys.executable, str(program)], environment(cluster.namesrv_addr)
    if re.search(r"^consumer\.run\(\)", text, re.M):
        topic = next(topic for topic in SENT if f'"{topic}"' in text)
        until(words, [body for body, _ in SENT[topic]], env)
    else:
        finish(words, env, cwd=tmp_path)


# ------------------------------------------------------------------------------------ commands


def commands(path: Path) -> list[str]:
    """Lines of the shell blocks, continued ones joined, comments cut off."""
    text = "\n".join(blocks(path, "sh")).replace("\\\n", " ")
    return [line for line in (re.sub(r"\s+#.*$", "", raw) for raw in text.splitlines()) if line]


def shell_documents() -> list[Any]:
    return [pytest.param(path, id=relative(path)) for path in DOCUMENTS if commands(path)]


@pytest.mark.parametrize("path", shell_documents())
def test_commands(path: Path, cluster: Cluster, tmp_path: Path) -> None:
    env = environment()
    ran = 0
    for line in commands(path):
        shown = line.replace(ADDRESS, cluster.namesrv_addr).replace(STORE, str(tmp_path))
        if shown.startswith("export "):
            name, _, value = shown.removeprefix("export ").partition("=")
            env[name] = value
            continue
        if re.match(r"rocketmq-fast broker\b", shown):
            free = re.sub(r"--(namesrv|broker)-port \d+", "", shown)
            check_parses(shown)
            until([*shlex.split(free), "--namesrv-port", "0", "--broker-port", "0"], ["ready"], env)
            ran += 1
            continue
        for part in re.findall(r"rocketmq-fast [^|]*", shown):
            check_parses(part)
        done = subprocess.run(
            ["bash", "-c", shown], env=env, cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=120.0,
        )  # fmt: skip
        assert done.returncode == 0, f"{shown}\n{done.stdout}\n{done.stderr}"
        ran += 1
    assert ran


def check_parses(line: str) -> argparse.Namespace:
    """Parse a command line of a document; a wrong one ends the test with argparse's message."""
    words = shlex.split(line)
    if words[1:] == ["--version"]:
        return argparse.Namespace()
    try:
        return _parser().parse_args(words[1:])
    except SystemExit:
        pytest.fail(f"this command line is wrong: {line}")


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return [parser, *(p for a in below for sub in a.choices.values() for p in _parsers(sub))]


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def test_every_command_is_described() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)` \|", text, re.M))
    actions = [a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction)]
    assert named == set(actions[0].choices)
    # Options that a page names belong to a command.
    known = {option for parser in _parsers(_parser()) for option in _options(parser)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named <= known, named - known


def test_the_tests_that_are_named_exist() -> None:
    text = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!what|---)(.+?) \| (.+) \|$", text, re.M)
    assert len(rows) > 40
    for what, tests in rows:
        named = re.findall(r"`((?:contract/)?test_\w+\.py)(?:::(\w+))?`", tests)
        assert named, what
        for file, function in named:
            source = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert not function or f"\ndef {function}(" in source, f"{file}::{function}"


# ------------------------------------------------------------------------------------- options


def default_text(value: object) -> str:
    return str(value) if hasattr(value, "name") else repr(value)


@pytest.mark.parametrize(
    ("page", "kind", "without"),
    [
        ("consumer.md", PushConsumerOptions, None),
        ("pull-consumer.md", PullConsumerOptions, ClientOptions),
        ("producer.md", ProducerOptions, ClientOptions),
        ("producer.md", TransactionProducerOptions, ProducerOptions),
    ],
)
def test_option_tables(page: str, kind: Any, without: Any) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    match = re.search(rf"<!-- options: {kind.__name__} -->\n(.*?)<!-- /options -->", text, re.S)
    assert match
    rows = re.findall(r"^\| `(\w+)` \| ([\w-]+) \| (.*?) \| .+ \|$", match[1], re.M)
    documented = {name: (java, default.strip("`")) for name, java, default in rows}
    left_out = {field.name for field in fields(without)} if without else set()
    expected = {
        field.name: default_text(field.default)
        for field in fields(kind)
        if field.name not in left_out
    }
    missing = [f"| `{n}` | ? | `{d}` | ? |" for n, d in expected.items() if n not in documented]
    assert not missing, "docs/" + page + " lacks:\n" + "\n".join(missing)
    assert set(documented) == set(expected)
    for name, (java, default) in documented.items():
        if "set of" not in default:
            assert default == expected[name], name
        if java != "-":
            words = name.split("_")
            camel = words[0] + "".join(word.capitalize() for word in words[1:])
            # Java writes some of them in its own way.
            assert camel.lower().replace("millis", "mills") == java.lower().replace(
                "millis", "mills"
            ), name


def test_settings_of_the_embedded_broker() -> None:
    text = (ROOT / "docs" / "embedded-cluster.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", text.partition("## Settings")[2], re.M)
    known = {field.name: field.default for field in fields(BrokerConfig)}
    assert len(rows) >= 4
    for name, default in rows:
        assert name in known
        if "..." not in default:
            assert default == str(known[name]), name


# --------------------------------------------------------------------------------------- prose


def test_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.])(?:csrc|_core|[a-z]+)/\w+\.(?:py|pyx|c|h)\b", text))
    assert len(named) >= 12
    folders = (ROOT, ROOT / "rocketmq_fast")
    missing = [name for name in named if not any((folder / name).is_file() for folder in folders)]
    assert not missing


def test_public_names_in_the_documents_exist() -> None:
    for path in itertools.chain(DOCUMENTS, sorted((ROOT / "examples").glob("*.py"))):
        for name in re.findall(r"\brmq\.(\w+)", path.read_text(encoding="utf-8")):
            assert hasattr(rmq, name), f"{relative(path)}: rocketmq_fast has no {name}"
