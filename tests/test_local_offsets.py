"""The local offset file: Java's format, never half a version, never trusted when damaged."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketmq_fast.consumer import local_offsets, offset_file
from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore
from rocketmq_fast.consumer.offset_file import (
    MAX_OFFSET,
    OffsetFileError,
    decode_offsets,
    encode_offsets,
    path_part,
)
from rocketmq_fast.consumer.offsets import OffsetStore
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.errors import BodyError, ConfigError
from rocketmq_fast.model import MessageQueue
from tests import golden_data
from tests.apache.java import produce, run_java
from tests.require import require

CLIENT = "10.1.2.3@DEFAULT"
GROUP = "golden-group"
A0, A1, B0 = (MessageQueue("TopicTest", *where) for where in (("a", 0), ("a", 1), ("b", 0)))
OLD = {A0: 1, A1: 2}
NEW = {A0: 10, A1: 2, B0: 30}
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

Make = Callable[..., LocalFileOffsetStore]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Stores below tmp_path, loaded unless told; closed at the end."""
    made = []

    def build(client: str = CLIENT, group: str = GROUP, *, load: bool = True) -> Any:
        store = LocalFileOffsetStore(client, group, tmp_path / "offsets")
        made.append(store)
        if load:
            store.load()
        return store

    yield build
    for store in made:
        store.close()


def put(store: LocalFileOffsetStore, offsets: dict[MessageQueue, int]) -> None:
    for queue, offset in offsets.items():
        store.update(queue, offset, increase_only=False)
    store.persist_now(offsets)


def content(store: LocalFileOffsetStore) -> dict[MessageQueue, int]:
    return decode_offsets(store.path.read_bytes())


def backup_of(store: LocalFileOffsetStore) -> Path:
    return store.path.with_name("offsets.json.bak")


def seeded(make: Make) -> LocalFileOffsetStore:
    """A store that was closed: OLD in the file, the version before it in the .bak."""
    store = make()
    put(store, {A0: 0, A1: 2})
    put(store, {A0: 1})
    store.close()
    assert (content(store), decode_offsets(backup_of(store).read_bytes())[A0]) == (OLD, 0)
    return store


# ------------------------------------------------------------------------------------ memory


def test_is_an_offset_store(make: Make) -> None:
    store: OffsetStore = make()
    store.update(A0, 5, increase_only=True)
    store.update(A0, 3, increase_only=True)
    assert store.in_memory(A0) == 5
    store.update(A0, 3, increase_only=False)
    assert (store.in_memory(A0), store.in_memory(A1)) == (3, None)
    assert store.read(A0) is None  # nothing was persisted
    assert store.in_memory(A0) is None


@pytest.mark.parametrize("offset", [-1, -2, MAX_OFFSET + 1])
def test_what_is_no_offset_is_refused(make: Make, offset: int) -> None:
    with pytest.raises(ValueError, match="no progress"):
        make().update(A0, offset, increase_only=True)


def test_progress_outlives_the_store(make: Make) -> None:
    store = make()
    put(store, OLD)
    store.close()
    again = make()
    assert [again.read(queue) for queue in (A0, A1, B0)] == [1, 2, None]
    assert (again.in_memory(A1), again.in_memory(B0)) == (2, None)
    again.remove(A1)
    assert (again.in_memory(A1), again.read(A1)) == (None, 2)


def test_only_the_given_queues_are_written_and_the_others_keep_theirs(make: Make) -> None:
    store = make()
    put(store, OLD)
    for queue in (A0, A1, B0):
        store.update(queue, 50, increase_only=True)
    store.persist_now([A0])
    assert content(store) == {A0: 50, A1: 2}
    store.remove(A1)
    store.persist_now([A1, B0])
    assert content(store) == {A0: 50, A1: 2, B0: 50}


def test_unchanged_progress_is_not_written(make: Make) -> None:
    store = make()
    put(store, OLD)
    before = os.stat(store.path)
    put(store, OLD)
    store.persist([])
    store.persist_now([B0])
    assert os.stat(store.path) == before


def test_offsets_can_go_back_when_told(make: Make) -> None:
    store = make()
    put(store, {A0: 100})
    put(store, {A0: 7})
    assert content(store) == {A0: 7}


# --------------------------------------------------------------------------------- directory


def test_place_is_the_one_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    place = LocalFileOffsetStore(CLIENT, "%RETRY%g|x-1").path
    assert place == tmp_path / ".rocketmq_offsets" / CLIENT / "%RETRY%g|x-1" / "offsets.json"
    assert LocalFileOffsetStore("c", "g", "~/there").path == tmp_path / "there/c/g/offsets.json"


def test_without_a_home_the_directory_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigError, match="local_offset_store_dir"):
        LocalFileOffsetStore("c", "g")


def test_files_and_directories_are_private(make: Make) -> None:
    store = seeded(make)
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for folder in list(store.path.parents)[:3]:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    names = {path.name for path in store.path.parent.iterdir()}
    assert names == {"offsets.json", "offsets.json.bak", "offsets.json.lock"}


@pytest.mark.parametrize(
    "text",
    [CLIENT, "[fe80::1]@DEFAULT", "10.0.0.1@1001#12", "NS%group", "10.0.0.1@my app", "a" * 255],
)
def test_usual_names_are_kept(text: str) -> None:
    assert path_part(text, windows=False) == text


@given(st.text(max_size=300))
@example("")
@example(".")
@example("..")
@example("../../etc")
@example("a/b")
@example("a\0b")
@example("\ud800")
@example("x. ")
@example("CON")
@example("~root")
def test_no_name_leaves_the_directory(text: str) -> None:
    for windows in (False, True):
        part = path_part(text, windows=windows)
        assert part
        assert len(part.encode()) <= 255
        assert not set(part) & set("/\\\0")
        assert part not in (".", "..")
        assert not part.startswith(".")
        assert not windows or part.upper() != "CON"
        assert os.path.normpath(os.path.join("/base", part)) == f"/base/{part}"
        if not windows and part != text:
            assert "~" in part  # which plain names have not


def test_unsafe_names_do_not_meet() -> None:
    texts = ["a/b", "a_b", "a\\b", "a~b", "..", ".", "", "a" * 256, "a" * 257, "a/b "]
    assert len({path_part(text) for text in texts}) == len(texts)


@pytest.mark.parametrize("level", [0, 1])
def test_a_linked_directory_is_refused(make: Make, tmp_path: Path, level: int) -> None:
    store = make(load=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    linked = store.path.parents[level]
    linked.parent.mkdir(parents=True)
    linked.symlink_to(elsewhere)
    with pytest.raises(OffsetFileError, match="symbolic link"):
        store.load()
    store.update(A0, 5, increase_only=True)
    store.persist_now([A0])
    assert isinstance(store.last_error, OffsetFileError)
    assert not [path for path in elsewhere.rglob("*") if path.is_file()]


# ------------------------------------------------------------------------------------ damage


def test_nothing_there_is_no_error(make: Make) -> None:
    store = make()
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
    make: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = seeded(make)
    DAMAGE[name](store.path)
    again = make()
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
def test_a_damaged_pair_is_an_error_that_names_both(make: Make, name: str) -> None:
    store = seeded(make)
    before = {path: path.stat().st_mtime_ns for path in store.path.parent.iterdir()}
    backup_of(store).write_bytes(b"")
    DAMAGE[name](store.path)
    again = make(load=False)
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
def test_a_damaged_file_without_another_is_an_error(make: Make, name: str) -> None:
    store = seeded(make)
    backup_of(store).unlink()
    DAMAGE[name](store.path)
    with pytest.raises(OffsetFileError, match="there is none"):
        make()


def test_only_the_version_before_is_left(make: Make) -> None:
    store = seeded(make)
    store.path.unlink()
    again = make()
    assert again.read(A0) == 0
    put(again, {A0: 9})
    assert content(again) == {A0: 9, A1: 2}


def test_a_file_of_another_user_is_not_trusted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded(make)
    real = os.fstat

    def foreign(fd: int) -> os.stat_result:
        status = list(real(fd))
        status[4] = 12345
        return os.stat_result(status)

    monkeypatch.setattr(offset_file, "os", Syscalls({"fstat": foreign}))
    with pytest.raises(OffsetFileError, match="belongs to user 12345"):
        make()


def test_a_file_that_cannot_be_opened_is_not_taken_for_none(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = seeded(make)

    def denied(path: Any, flags: int, mode: int = 0o777) -> int:
        if Path(path).name in ("offsets.json", "offsets.json.bak"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return os.open(path, flags, mode)

    monkeypatch.setattr(offset_file, "os", Syscalls({"open": denied}))
    with pytest.raises(OffsetFileError, match="Permission denied"):
        make()
    monkeypatch.undo()
    assert content(store) == OLD


def test_a_file_that_is_damaged_or_gone_while_in_use_is_written_anew(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    store = make()
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


# ------------------------------------------------------------------- the end at every system call

CALLS = frozenset(
    "open write fsync close link replace unlink lstat read fstat ftruncate".split()
)  # fmt: skip


class Syscalls:
    """The module `os` with some functions replaced; the others pass a hook first."""

    def __init__(
        self,
        replaced: dict[str, Callable[..., Any]] | None = None,
        hook: Callable[[str, Callable[..., Any], tuple[Any, ...]], Any] | None = None,
    ) -> None:
        self._replaced = replaced or {}
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name in self._replaced:
            return self._replaced[name]
        hook = self._hook
        if hook is None or name not in CALLS:
            return real
        return lambda *args: hook(name, real, args)


def killed_at(step: int, how: str, directory: Path) -> bool:
    """Write NEW in a child that is killed at one of its system calls. False: it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            store = LocalFileOffsetStore(CLIENT, GROUP, directory)
            store.load()
            count = 0

            def hook(name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
                nonlocal count
                count += 1
                if count != step:
                    return real(*args)
                try:
                    if how == "after":
                        real(*args)
                    elif how == "half" and name == "write":
                        real(args[0], args[1][: len(args[1]) // 2])
                finally:
                    os.kill(os.getpid(), signal.SIGKILL)
                return None

            vars(offset_file)["os"] = Syscalls(hook=hook)
            put(store, NEW)
        finally:
            os._exit(3 if store.last_error else 0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("how", ["before", "half", "after"])
def test_killed_at_every_system_call_of_a_write(make: Make, tmp_path: Path, how: str) -> None:
    store = seeded(make)
    before = {path: path.read_bytes() for path in (store.path, backup_of(store))}
    step = 1
    seen = set()
    while killed_at(step, how, tmp_path / "offsets"):
        kept = content(store)
        assert kept in (OLD, NEW), f"killed {how} call {step}"
        seen.add(kept == NEW)
        assert decode_offsets(backup_of(store).read_bytes())[A0] in (0, 1)
        # The next process goes on, whatever lies around.
        again = make()
        assert {queue: again.read(queue) for queue in kept} == kept
        put(again, {A0: 100})
        assert content(again)[A0] == 100
        again.close()
        for path, data in before.items():
            path.unlink()
            path.write_bytes(data)
        step += 1
    assert step > 12
    assert seen == {False, True}
    assert content(store) == NEW


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_failure_at_every_system_call_of_a_write(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    """Consuming goes on, the old or the new version is whole, and the next write brings it all."""
    store = make()
    put(store, {A0: 0, A1: 2})
    put(store, {A0: 1})
    calls: list[str] = []
    fail_at = 0

    def hook(name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        calls.append(name)
        if len(calls) == fail_at:
            if name == "close":
                real(*args)
            elif name == "write" and code == errno.ENOSPC:
                real(args[0], args[1][:3])
            raise OSError(code, os.strerror(code))
        return real(*args)

    monkeypatch.setattr(offset_file, "os", Syscalls(hook=hook))
    old = {A0: 1, A1: 2}
    failed = set()
    while True:
        fail_at += 1
        calls.clear()
        caplog.clear()
        new = {**old, A0: old[A0] + 1}
        put(store, new)
        if fail_at > len(calls):
            break
        found = content(store)
        assert found in (old, new), (fail_at, calls)
        assert decode_offsets(backup_of(store).read_bytes())[A1] == 2
        if store.last_error is None:
            assert found == new  # what failed was not needed
        else:
            failed.add(calls[fail_at - 1])
            assert store.failures == 1
            assert str(store.path) in caplog.text
            assert store.in_memory(A0) == new[A0]
            fail_at, held = 0, fail_at
            store.remove(A0)
            assert store.read(A0) == new[A0]  # what waits is what was consumed
            store.persist_now([])
            fail_at = held
            assert store.last_error is None
            assert content(store) == new
        assert not store.path.with_name("offsets.json.tmp").exists()
        old = new
    assert {"open", "write", "fsync", "replace"} <= failed
    assert not [name for name in os.listdir(store.path.parent) if name.endswith(".tmp")]


def test_new_content_is_on_the_disk_before_it_has_the_name(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make()
    put(store, OLD)
    seen: list[str] = []

    def hook(name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        seen.append(f"{name} {Path(args[-1]).name}" if name == "replace" else name)
        return real(*args)

    monkeypatch.setattr(offset_file, "os", Syscalls(hook=hook))
    put(store, NEW)
    order = [seen.index(step) for step in ("write", "fsync", "link", "replace offsets.json")]
    assert order == sorted(order)
    assert seen.index("replace offsets.json.bak") < order[-1]
    assert "fsync" in seen[order[-1] :]  # of the directory


def test_a_file_system_without_hard_links(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    store = make()
    put(store, OLD)
    monkeypatch.setattr(offset_file, "os", Syscalls({"link": refuse}))
    put(store, NEW)
    assert content(store) == NEW
    assert decode_offsets(backup_of(store).read_bytes()) == OLD
    assert store.last_error is None


def test_a_directory_that_cannot_be_synced_is_no_failure(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    store = make()
    monkeypatch.setattr(offset_file, "os", Syscalls({"fsync": fsync}))
    put(store, OLD)
    assert (store.last_error, content(store)) == (None, OLD)


def test_a_home_that_cannot_be_written(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    store = make(load=False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        store.load()
        assert store.read(A0) is None
        for offset in range(5):
            put(store, {A0: offset})
    assert store.failures == 5
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1  # not five
    put(store, {A1: 7})
    assert content(store) == {A0: 4, A1: 7}
    with pytest.raises(OffsetFileError, match="in use"):
        make()  # it was locked as soon as that was possible


def test_locks_that_do_not_work_are_no_failure(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    store = make()
    put(store, OLD)
    put(store, NEW)
    assert content(store) == NEW
    assert caplog.text.count("without a lock") == 1


# ------------------------------------------------------------------------ several at one file


def test_a_second_store_is_refused_until_the_first_is_closed(make: Make) -> None:
    first = make()
    put(first, OLD)
    with pytest.raises(OffsetFileError, match=r"another consumer of this process.*instance_name"):
        make()
    make(group="another")
    make("10.1.2.3@another")
    put(first, {B0: 5})  # the lock of the first is as it was
    assert child_says(first) == f"process {os.getpid()}"
    first.close()
    assert make().read(A0) == 1


def child_says(store: LocalFileOffsetStore) -> str:
    """Who has the file, as a process that wants it too is told; "" when it got it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            folder = store.path.parents[2]
            mine = LocalFileOffsetStore(CLIENT, GROUP, folder)
            try:
                mine.load()
            except OffsetFileError as error:
                found = re.search(r"in use by (process \d+|[\w ]+)", str(error))
                os.write(writer, found[1].encode() if found else b"?")
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode()
    os.waitpid(child, 0)
    return said


def test_the_lock_ends_with_the_process_and_with_the_store(make: Make) -> None:
    store = make()
    assert child_says(store) == f"process {os.getpid()}"
    store.close()
    assert child_says(store) == ""
    make().close()
    dropped = make("10.1.2.3@dropped", load=False)
    path = dropped.path
    assert path.name == "offsets.json"


def test_a_store_that_was_dropped_gives_the_lock_back(tmp_path: Path) -> None:
    LocalFileOffsetStore(CLIENT, GROUP, tmp_path).load()
    second = LocalFileOffsetStore(CLIENT, GROUP, tmp_path)
    second.load()
    second.close()


def test_a_forked_child_does_not_write_its_parents_file(make: Make) -> None:
    store = make()
    put(store, OLD)
    child = os.fork()
    if child == 0:
        try:
            store.update(A0, 99, increase_only=True)
            store.persist([A0])
            store.persist_now([A0])
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert content(store) == OLD
    put(store, NEW)
    assert content(store) == NEW


def test_what_others_write_is_taken_over(make: Make) -> None:
    """An operator or Java's client, which knows no lock."""
    store = make()
    put(store, OLD)
    store.path.write_bytes(encode_offsets({A0: 500, B0: 70}))
    assert [store.read(queue) for queue in (A0, A1, B0)] == [500, 2, 70]
    store.path.write_bytes(encode_offsets({B0: 71}))
    put(store, {A0: 501})
    assert content(store) == {A0: 501, A1: 2, B0: 71}


# ------------------------------------------------------------------------------------ threads


def test_persist_does_no_io_and_the_writer_ends(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make()
    put(store, OLD)
    entered, go_on = threading.Event(), threading.Event()
    caller = threading.get_ident()

    def hook(name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        assert threading.get_ident() != caller
        entered.set()
        assert go_on.wait(60)
        return real(*args)

    monkeypatch.setattr(offset_file, "os", Syscalls(hook=hook))
    queues = [MessageQueue("T", "b", number) for number in range(1000)]
    for offset in (1, 2, 3):  # the last ones while the first is being written
        for queue in queues:
            store.update(queue, offset, increase_only=True)
        store.persist(queues)
        assert entered.wait(60)
    assert store.in_memory(queues[0]) == 3
    writers = [t for t in threading.enumerate() if t.name == f"rocketmq-offsets-{GROUP}"]
    assert len(writers) == 1
    go_on.set()
    writers[0].join(60)
    assert not writers[0].is_alive()
    monkeypatch.undo()
    assert content(store) == {**OLD, **dict.fromkeys(queues, 3)}


def test_close_waits_for_what_is_being_written(make: Make) -> None:
    for round_number in range(20):
        store = make()
        store.update(A0, round_number, increase_only=False)
        store.persist([A0])
        store.close()
        assert content(store) == {A0: round_number}
        assert not [t for t in threading.enumerate() if t.name.startswith("rocketmq-offsets")]


def test_a_write_that_never_ends_holds_nobody_for_ever(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make()
    entered, go_on = threading.Event(), threading.Event()

    def hook(name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        entered.set()
        assert go_on.wait(60)
        return real(*args)

    monkeypatch.setattr(offset_file, "os", Syscalls(hook=hook))
    monkeypatch.setattr(local_offsets, "WAIT_SECONDS", 0.01)
    store.update(A0, 1, increase_only=True)
    store.persist([A0])
    assert entered.wait(60)
    store.update(A0, 2, increase_only=True)
    store.persist_now([A0])
    assert isinstance(store.last_error, TimeoutError)
    with pytest.raises(OffsetFileError, match="does not end"):
        store.read(A0)
    store.close()
    assert "stays locked" in caplog.text
    monkeypatch.undo()
    go_on.set()
    store.close()
    assert content(store)[A0] in (1, 2)


def test_no_thread_can_be_started(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    store = make()
    store.update(A0, 5, increase_only=True)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    store.persist([A0])
    monkeypatch.undo()
    assert "can't start new thread" in caplog.text
    store.close()
    assert content(store) == {A0: 5}


def test_many_threads(make: Make) -> None:
    store = make()
    queues = [MessageQueue("T", "b", number) for number in range(8)]
    barrier = threading.Barrier(len(queues))

    def work(queue: MessageQueue) -> None:
        barrier.wait(60)
        for offset in range(200):
            store.update(queue, offset, increase_only=True)
            if offset % 10 == 0:
                store.persist([queue])
            if offset % 70 == 0:
                store.persist_now([queue])
                assert (store.read(queue) or 0) >= 0

    threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    store.persist_now(queues)
    assert content(store) == dict.fromkeys(queues, 199)
    assert store.failures == 0


def test_after_close_nothing_is_written_and_load_begins_anew(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    store = make()
    put(store, OLD)
    store.close()
    store.close()
    put(store, {A0: 77})
    store.persist([A0])
    assert "is closed" in caplog.text
    assert content(store) == OLD
    store.load()
    assert store.read(A0) == 1
    put(store, NEW)
    assert content(store) == NEW


def test_what_could_not_be_written_before_close_is_told(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = make()
    monkeypatch.setattr(offset_file, "os", Syscalls({"fsync": refuse}))
    put(store, OLD)
    store.close()
    assert "offsets of 2 queues were not stored" in caplog.text
    assert not store.path.exists()


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
def test_java_goes_on_where_we_ended_and_back(make: Make) -> None:
    store = make()
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
    again = make()
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
