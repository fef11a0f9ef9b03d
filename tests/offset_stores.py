"""Stores of local offsets for tests: what they begin with, and system calls that fail at will."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore
from rocketmq_fast.consumer.offset_file import decode_offsets
from rocketmq_fast.model import MessageQueue

CLIENT = "10.1.2.3@DEFAULT"
GROUP = "golden-group"
A0, A1, B0 = (MessageQueue("TopicTest", *where) for where in (("a", 0), ("a", 1), ("b", 0)))
OLD = {A0: 1, A1: 2}
NEW = {A0: 10, A1: 2, B0: 30}
CALLS = frozenset(
    "open write fsync close link replace unlink lstat read fstat ftruncate".split()
)  # fmt: skip

Make = Callable[..., LocalFileOffsetStore]


def put(store: LocalFileOffsetStore, offsets: dict[MessageQueue, int]) -> None:
    for queue, offset in offsets.items():
        store.update(queue, offset, increase_only=False)
    store.persist_now(offsets)


def content(store: LocalFileOffsetStore) -> dict[MessageQueue, int]:
    return decode_offsets(store.path.read_bytes())


def backup_of(store: LocalFileOffsetStore) -> Path:
    return store.path.with_name("offsets.json.bak")


def seeded(make_store: Make) -> LocalFileOffsetStore:
    """A store that was closed: OLD in the file, the version before it in the .bak."""
    store = make_store()
    put(store, {A0: 0, A1: 2})
    put(store, {A0: 1})
    store.close()
    assert (content(store), decode_offsets(backup_of(store).read_bytes())[A0]) == (OLD, 0)
    return store


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
