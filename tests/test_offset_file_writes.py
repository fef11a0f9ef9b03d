"""Writes of the local offset file: never half a version, whichever system call fails."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_fast.consumer import offset_file
from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore
from rocketmq_fast.consumer.offset_file import (
    OffsetFileError,
    decode_offsets,
)
from tests.offset_stores import (
    A0,
    A1,
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
def test_killed_at_every_system_call_of_a_write(make_store: Make, tmp_path: Path, how: str) -> None:
    store = seeded(make_store)
    before = {path: path.read_bytes() for path in (store.path, backup_of(store))}
    step = 1
    seen = set()
    while killed_at(step, how, tmp_path / "offsets"):
        kept = content(store)
        assert kept in (OLD, NEW), f"killed {how} call {step}"
        seen.add(kept == NEW)
        assert decode_offsets(backup_of(store).read_bytes())[A0] in (0, 1)
        # The next process goes on, whatever lies around.
        again = make_store()
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
    make_store: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    """Consuming goes on, the old or the new version is whole, and the next write brings it all."""
    store = make_store()
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
    make_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
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


def test_a_file_system_without_hard_links(
    make_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    store = make_store()
    put(store, OLD)
    monkeypatch.setattr(offset_file, "os", Syscalls({"link": refuse}))
    put(store, NEW)
    assert content(store) == NEW
    assert decode_offsets(backup_of(store).read_bytes()) == OLD
    assert store.last_error is None


def test_a_directory_that_cannot_be_synced_is_no_failure(
    make_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    store = make_store()
    monkeypatch.setattr(offset_file, "os", Syscalls({"fsync": fsync}))
    put(store, OLD)
    assert (store.last_error, content(store)) == (None, OLD)


def test_a_home_that_cannot_be_written(
    make_store: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    store = make_store(load=False)
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
        make_store()  # it was locked as soon as that was possible


def test_locks_that_do_not_work_are_no_failure(
    make_store: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    store = make_store()
    put(store, OLD)
    put(store, NEW)
    assert content(store) == NEW
    assert caplog.text.count("without a lock") == 1
