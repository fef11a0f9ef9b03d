"""The local offset file: Java's format, never trusted when damaged."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketmq_fast.consumer import offset_file
from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore
from rocketmq_fast.consumer.offset_file import (
    MAX_OFFSET,
    OffsetFileError,
    decode_offsets,
    encode_offsets,
)
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.errors import BodyError
from rocketmq_fast.model import MessageQueue
from tests import golden_data
from tests.apache.java import produce, run_java
from tests.offset_stores import (
    A0,
    A1,
    B0,
    CLIENT,
    GROUP,
    NEW,
    OLD,
    Make,
    Syscalls,
    backup_of,
    content,
    put,
    seeded,
)
from tests.require import require

JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

# ------------------------------------------------------------------------------------ damage


def test_nothing_there_is_no_error(make_store: Make) -> None:
    store = make_store()
    assert store.read(A0) is None
    assert not store.path.exists()


def symlink(path: Path) -> None:
    target = path.with_name("target")
    path.rename(target)
    path.symlink_to(target)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "zero bytes": lambda path: path.write_bytes(b""),
    "truncated": lambda path: os.truncate(path, path.stat().st_size - 1),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbage": lambda path: path.write_bytes(b"\xff\xfe{}"),
    "no table": lambda path: path.write_bytes(b"{}"),
    "null table": lambda path: path.write_bytes(b'{"offsetTable":null}'),
    "list": lambda path: path.write_bytes(b'{"offsetTable":[]}'),
    "array": lambda path: path.write_bytes(b"[]"),
    "only foreign keys": lambda path: path.write_bytes(b'{"offsetTable":{"foo":1}}'),
    "fraction": lambda path: replace_in(path, b":1", b":1.5"),
    "negative": lambda path: replace_in(path, b":1", b":-1"),
    "too large": lambda path: replace_in(path, b":1", b":9223372036854775808"),
    "null offset": lambda path: replace_in(path, b":1", b":null"),
    "more behind": lambda path: path.write_bytes(path.read_bytes() * 2),
    "deep": lambda path: path.write_bytes(b'{"offsetTable":' * 100_000),
    "huge": lambda path: os.truncate(path, offset_file.MAX_FILE_BYTES + 1),
    "symbolic link": symlink,
    "named pipe": fifo,
    "directory": directory,
}


def replace_in(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    cut = data.index(old, data.index(b"topic"))
    path.write_bytes(data[:cut] + new + data[cut + len(old) :])


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_replaced_by_the_one_before(
    make_store: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = seeded(make_store)
    DAMAGE[name](store.path)
    again = make_store()
    assert (again.read(A0), again.read(A1)) == (0, 2)
    assert str(store.path) in caplog.text
    if name == "directory":
        return  # which no rename replaces; consuming goes on
    put(again, {B0: 30})
    assert content(again) == {A0: 0, A1: 2, B0: 30}
    # The damaged version must not have become the one before.
    assert decode_offsets(backup_of(again).read_bytes()) == {A0: 0, A1: 2}
    assert again.last_error is None


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_pair_is_an_error_that_names_both(make_store: Make, name: str) -> None:
    store = seeded(make_store)
    before = {path: path.stat().st_mtime_ns for path in store.path.parent.iterdir()}
    backup_of(store).write_bytes(b"")
    DAMAGE[name](store.path)
    again = make_store(load=False)
    attempts: list[Callable[[], object]] = [again.load, partial(again.read, A0), again.load]
    for attempt in attempts:
        with pytest.raises(OffsetFileError) as caught:
            attempt()
        assert str(store.path) in str(caught.value)
        assert f"{backup_of(store)}: it is empty" in str(caught.value)
    # Progress that comes all the same does not overwrite what an operator may want to repair.
    put(again, {B0: 30})
    assert isinstance(again.last_error, OffsetFileError)
    assert {path.name for path in before} <= {path.name for path in store.path.parent.iterdir()}
    assert backup_of(store).read_bytes() == b""


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_without_another_is_an_error(make_store: Make, name: str) -> None:
    store = seeded(make_store)
    backup_of(store).unlink()
    DAMAGE[name](store.path)
    with pytest.raises(OffsetFileError, match="there is none"):
        make_store()


def test_only_the_version_before_is_left(make_store: Make) -> None:
    store = seeded(make_store)
    store.path.unlink()
    again = make_store()
    assert again.read(A0) == 0
    put(again, {A0: 9})
    assert content(again) == {A0: 9, A1: 2}


def test_a_file_of_another_user_is_not_trusted(
    make_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded(make_store)
    real = os.fstat

    def foreign(fd: int) -> os.stat_result:
        status = list(real(fd))
        status[4] = 12345
        return os.stat_result(status)

    monkeypatch.setattr(offset_file, "os", Syscalls({"fstat": foreign}))
    with pytest.raises(OffsetFileError, match="belongs to user 12345"):
        make_store()


def test_a_file_that_cannot_be_opened_is_not_taken_for_none(
    make_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = seeded(make_store)

    def denied(path: Any, flags: int, mode: int = 0o777) -> int:
        if Path(path).name in ("offsets.json", "offsets.json.bak"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return os.open(path, flags, mode)

    monkeypatch.setattr(offset_file, "os", Syscalls({"open": denied}))
    with pytest.raises(OffsetFileError, match="Permission denied"):
        make_store()
    monkeypatch.undo()
    assert content(store) == OLD


def test_a_file_that_is_damaged_or_gone_while_in_use_is_written_anew(
    make_store: Make, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    put(store, OLD)
    harms: list[Callable[[Path], object]] = [DAMAGE["garbage"], symlink, fifo, Path.unlink]
    for harm in harms:
        harm(store.path)
        assert store.read(A1) == 2
        for _ in range(2):
            offset = (store.read(A0) or 0) + 1
            put(store, {A0: offset})
            assert content(store) == {A0: offset, A1: 2}
        assert decode_offsets(backup_of(store).read_bytes()) == {A0: offset - 1, A1: 2}
        assert not store.path.is_symlink()
    assert "damaged while in use" in caplog.text


# ------------------------------------------------------------------------------------ format

names = st.text(max_size=12)
tables = st.dictionaries(
    st.builds(MessageQueue, names, names, st.integers(0, 2**31 - 1)),
    st.integers(0, MAX_OFFSET),
    max_size=8,
)


@given(tables)
def test_what_is_written_is_read_back(offsets: dict[MessageQueue, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_no_prefix_of_a_file_is_taken_for_one() -> None:
    data = encode_offsets(NEW)
    for size in range(len(data)):
        with pytest.raises(BodyError):
            decode_offsets(data[:size])


@given(st.data())
def test_changed_bytes_give_offsets_or_an_error(data: st.DataObject) -> None:
    changed = bytearray(encode_offsets(NEW))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_offsets(bytes(changed))
    except BodyError:
        return
    assert all(0 <= offset <= MAX_OFFSET for offset in found.values())


@given(st.binary(max_size=80))
@example(b'{"offsetTable":{{"brokerName":"a","queueId":1e999,"topic":"T"}:1}}')
def test_any_bytes_give_offsets_or_an_error(data: bytes) -> None:
    try:
        decode_offsets(data)
    except BodyError:
        return


def test_tolerated_forms() -> None:
    queue = MessageQueue("T", "b", 3)
    for key in (
        '{"brokerName":"b","queueId":3,"topic":"T"}',
        '{"topic":"T","queueId":"3","brokerName":"b","newField":true}',
        "{topic:'T',queueId:3,brokerName:'b',}",
        r'"{\"brokerName\":\"b\",\"queueId\":3,\"topic\":\"T\"}"',
    ):
        for offset in ("7", '"7"'):
            text = f'{{"version":{{"a":[1]}},"offsetTable":{{{key}:{offset},"x":"y"}}}}'
            assert decode_offsets(text.encode("utf-8-sig")) == {queue: 7}
    assert decode_offsets(b'{"offsetTable":{}}') == {}


def entries(data: bytes) -> set[bytes]:
    """The entries of a file of Java or ours, byte for byte; their order is Java's hash order."""
    whole = re.fullmatch(rb'\{\n\t"offsetTable":\{(.*)\n\t\}\n\}', data, re.DOTALL)
    assert whole is not None
    return set(re.split(rb",(?=\{)", whole[1]))


def test_recorded_file_of_java() -> None:
    recorded = (golden_data.GOLDEN / golden_data.OFFSET_FILE).read_bytes()
    offsets = decode_offsets(recorded)
    assert offsets == {
        MessageQueue("TopicTest", "broker-a", 0): 12,
        MessageQueue("TopicTest", "broker-a", 1): 0,
        MessageQueue("TopicTest", "broker-b", 0): MAX_OFFSET,
        MessageQueue("%RETRY%golden-group", "broker-a", 0): 3,
        MessageQueue("Order_T|x-1", 'broker"q\\b', 11): 1234567890123,
    }
    assert entries(encode_offsets(offsets)) == entries(recorded)
    assert len(encode_offsets(offsets)) == len(recorded)


# --------------------------------------------------------------------------------------- Java


def java_store(folder: Path, **words: object) -> dict[str, Any]:
    require("java")
    return run_java(
        "LocalOffsets",
        {"clientIp": "10.1.2.3", "instanceName": "DEFAULT", "group": GROUP, **words},
        jvm_options=(*JVM, f"-Drocketmq.client.localOffsetStoreDir={folder}"),
    )


@pytest.mark.java
@pytest.mark.slow
def test_java_goes_on_where_we_ended_and_back(make_store: Make) -> None:
    store = make_store()
    folder = store.path.parents[2]
    ours = {
        MessageQueue("TopicTest", "broker-a", 0): 12,
        MessageQueue("%RETRY%golden-group", "broker-a", 0): 0,
        MessageQueue("Order_T|x-1", 'broker"q\\b', 11): MAX_OFFSET,
        MessageQueue("Thème", "Ωmega-😀", 2): 5,
    }
    put(store, ours)
    store.close()
    texts = {f"{q.topic}/{q.broker_name}/{q.queue_id}": offset for q, offset in ours.items()}
    read = java_store(folder, read=",".join([*texts, "TopicTest/broker-a/9"]))
    assert read == {"clientId": CLIENT, "offsets": {**texts, "TopicTest/broker-a/9": -1}}

    java_store(folder, set="TopicTest/broker-a/0:90,TopicTest/broker-z/3:4")
    again = make_store()
    assert again.read(MessageQueue("TopicTest", "broker-a", 0)) == 90
    assert again.read(MessageQueue("TopicTest", "broker-z", 3)) == 4


@pytest.mark.java
@pytest.mark.slow
def test_file_of_a_broadcasting_java_consumer(tmp_path: Path) -> None:
    require("java")
    with Cluster() as cluster:
        produce(cluster.namesrv_addr, "Broadcast", 40)
        got = run_java(
            "Consume",
            {
                "namesrv": cluster.namesrv_addr, "topic": "Broadcast", "group": "all",
                "count": 40, "from": "first", "broadcast": True, "timeout": 60,
            },
            jvm_options=(*JVM, f"-Drocketmq.client.localOffsetStoreDir={tmp_path}"),
        )  # fmt: skip
    assert got["messages"] == 40
    (path,) = tmp_path.glob("*/all/offsets.json")
    offsets = decode_offsets(path.read_bytes())
    assert sum(offsets.values()) == 40
    assert {f"{q.topic}/{q.broker_name}/{q.queue_id}": n for q, n in offsets.items() if n} == {
        name: count for name, count in got["queues"].items() if count
    }
    store = LocalFileOffsetStore(path.parts[-3], "all", tmp_path)
    store.load()
    assert {queue: store.read(queue) for queue in offsets} == offsets
    store.close()
