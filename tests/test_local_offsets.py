"""The store of local offsets: what it remembers, where, for whom, and from how many threads."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Callable
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
    encode_offsets,
    path_part,
)
from rocketmq_fast.consumer.offsets import OffsetStore
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
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
    content,
    put,
    seeded,
)

# ------------------------------------------------------------------------------------ memory


def test_is_an_offset_store(make_store: Make) -> None:
    store: OffsetStore = make_store()
    store.update(A0, 5, increase_only=True)
    store.update(A0, 3, increase_only=True)
    assert store.in_memory(A0) == 5
    store.update(A0, 3, increase_only=False)
    assert (store.in_memory(A0), store.in_memory(A1)) == (3, None)
    assert store.read(A0) is None  # nothing was persisted
    assert store.in_memory(A0) is None


@pytest.mark.parametrize("offset", [-1, -2, MAX_OFFSET + 1])
def test_what_is_no_offset_is_refused(make_store: Make, offset: int) -> None:
    with pytest.raises(ValueError, match="no progress"):
        make_store().update(A0, offset, increase_only=True)


def test_progress_outlives_the_store(make_store: Make) -> None:
    store = make_store()
    put(store, OLD)
    store.close()
    again = make_store()
    assert [again.read(queue) for queue in (A0, A1, B0)] == [1, 2, None]
    assert (again.in_memory(A1), again.in_memory(B0)) == (2, None)
    again.remove(A1)
    assert (again.in_memory(A1), again.read(A1)) == (None, 2)


def test_only_the_given_queues_are_written_and_the_others_keep_theirs(make_store: Make) -> None:
    store = make_store()
    put(store, OLD)
    for queue in (A0, A1, B0):
        store.update(queue, 50, increase_only=True)
    store.persist_now([A0])
    assert content(store) == {A0: 50, A1: 2}
    store.remove(A1)
    store.persist_now([A1, B0])
    assert content(store) == {A0: 50, A1: 2, B0: 50}


def test_unchanged_progress_is_not_written(make_store: Make) -> None:
    store = make_store()
    put(store, OLD)
    before = os.stat(store.path)
    put(store, OLD)
    store.persist([])
    store.persist_now([B0])
    assert os.stat(store.path) == before


def test_offsets_can_go_back_when_told(make_store: Make) -> None:
    store = make_store()
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


def test_files_and_directories_are_private(make_store: Make) -> None:
    store = seeded(make_store)
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
def test_a_linked_directory_is_refused(make_store: Make, tmp_path: Path, level: int) -> None:
    store = make_store(load=False)
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


# ------------------------------------------------------------------------ several at one file


def test_a_second_store_is_refused_until_the_first_is_closed(make_store: Make) -> None:
    first = make_store()
    put(first, OLD)
    with pytest.raises(OffsetFileError, match=r"another consumer of this process.*instance_name"):
        make_store()
    make_store(group="another")
    make_store("10.1.2.3@another")
    put(first, {B0: 5})  # the lock of the first is as it was
    assert child_says(first) == f"process {os.getpid()}"
    first.close()
    assert make_store().read(A0) == 1


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


def test_the_lock_ends_with_the_process_and_with_the_store(make_store: Make) -> None:
    store = make_store()
    assert child_says(store) == f"process {os.getpid()}"
    store.close()
    assert child_says(store) == ""
    make_store().close()
    dropped = make_store("10.1.2.3@dropped", load=False)
    path = dropped.path
    assert path.name == "offsets.json"


def test_a_store_that_was_dropped_gives_the_lock_back(tmp_path: Path) -> None:
    LocalFileOffsetStore(CLIENT, GROUP, tmp_path).load()
    second = LocalFileOffsetStore(CLIENT, GROUP, tmp_path)
    second.load()
    second.close()


def test_a_forked_child_does_not_write_its_parents_file(make_store: Make) -> None:
    store = make_store()
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


def test_what_others_write_is_taken_over(make_store: Make) -> None:
    """An operator or Java's client, which knows no lock."""
    store = make_store()
    put(store, OLD)
    store.path.write_bytes(encode_offsets({A0: 500, B0: 70}))
    assert [store.read(queue) for queue in (A0, A1, B0)] == [500, 2, 70]
    store.path.write_bytes(encode_offsets({B0: 71}))
    put(store, {A0: 501})
    assert content(store) == {A0: 501, A1: 2, B0: 71}


# ------------------------------------------------------------------------------------ threads


def test_persist_does_no_io_and_the_writer_ends(
    make_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
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


def test_close_waits_for_what_is_being_written(make_store: Make) -> None:
    for round_number in range(20):
        store = make_store()
        store.update(A0, round_number, increase_only=False)
        store.persist([A0])
        store.close()
        assert content(store) == {A0: round_number}
        assert not [t for t in threading.enumerate() if t.name.startswith("rocketmq-offsets")]


def test_a_write_that_never_ends_holds_nobody_for_ever(
    make_store: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
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
    make_store: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    store = make_store()
    store.update(A0, 5, increase_only=True)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    store.persist([A0])
    monkeypatch.undo()
    assert "can't start new thread" in caplog.text
    store.close()
    assert content(store) == {A0: 5}


def test_many_threads(make_store: Make) -> None:
    store = make_store()
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
    make_store: Make, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
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
    make_store: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = make_store()
    monkeypatch.setattr(offset_file, "os", Syscalls({"fsync": refuse}))
    put(store, OLD)
    store.close()
    assert "offsets of 2 queues were not stored" in caplog.text
    assert not store.path.exists()
