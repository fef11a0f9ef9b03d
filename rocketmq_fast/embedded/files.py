"""Files below the store directory: private, replaced atomically, names by allow-list."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

from rocketmq_fast.errors import RocketMQError

log = logging.getLogger(__name__)

_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}\Z")
_WINDOWS_TEXT = {"|": "~"}


class StoreError(RocketMQError):
    """The store directory cannot be used: in use, damaged, or out of space."""


def is_name(text: str) -> bool:
    """Tell whether text may be a topic or group, and so a part of a path below the store."""
    return _NAME.match(text) is not None


def directory_of(parent: Path, name: str) -> Path:
    """Return the directory of a topic below parent.

    Raises StoreError for a name that is not a topic: nothing outside the store is ever touched.
    """
    if not is_name(name):
        raise StoreError(f"{name!r} is not usable as a topic")
    if os.name == "nt":  # '|' is no file name there, '~' is no topic
        for bad, good in _WINDOWS_TEXT.items():
            name = name.replace(bad, good)
    return parent / name


def make_directory(path: Path) -> Path:
    """Create a private directory and its parents."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def open_file(path: Path, flags: int) -> int:
    """Open a store file, never through a symbolic link."""
    extra = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(path, flags | extra, 0o600)


if hasattr(os, "pread"):

    def read_at(fd: int, size: int, offset: int) -> bytes:
        """Read up to size bytes at an offset."""
        return os.pread(fd, size, offset)

    def write_at(fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write at an offset; returns how much was written."""
        return os.pwrite(fd, data, offset)

else:  # pragma: no cover - Windows; only the owner of a descriptor moves its position

    def read_at(fd: int, size: int, offset: int) -> bytes:
        """Read up to size bytes at an offset."""
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)

    def write_at(fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write at an offset; returns how much was written."""
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of data at an offset. Raises OSError when the disk does not take it."""
    done = write_at(fd, data, offset)
    if done < len(data):
        view = memoryview(data)
        while done < len(data):
            done += write_at(fd, view[done:], offset + done)


def sync_directory(path: Path) -> None:
    """Make created and renamed entries of a directory durable, where the system can."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Replace a file by a complete new version; the one before stays beside it as .bak.

    A reader finds the old or the new content, never a part. Raises OSError.
    """
    temporary = path.with_name(path.name + ".tmp")
    backup = path.with_name(path.name + ".bak")
    fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, data, 0)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    if path.exists():
        with contextlib.suppress(FileNotFoundError):
            backup.unlink()
        # A file system without hard links goes without the copy; the replacement is atomic anyway.
        with contextlib.suppress(OSError):
            os.link(path, backup)
    temporary.replace(path)
    if durable:
        sync_directory(path.parent)


def save_json(path: Path, value: object, *, durable: bool) -> None:
    """Replace a JSON file atomically."""
    text = json.dumps(value, indent="\t", sort_keys=True, ensure_ascii=False)
    replace_file(path, text.encode(), durable=durable)


def load_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or in its .bak when that is damaged; None without both.

    Raises StoreError when something is there and nothing of it can be read.
    """
    damage: str | None = None
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            value = json.loads(candidate.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read: %s", candidate, error)
            damage = damage or f"{candidate}: {error}"
            continue
        if isinstance(value, dict):
            return value
        damage = damage or f"{candidate}: not a JSON object"
    if damage is not None:
        raise StoreError(damage)
    return None


class Snapshot:
    """A JSON file's next content, taken on one thread and written on another."""

    def __init__(self, path: Path, content: dict[str, Any], *, durable: bool) -> None:
        self._path = path
        self._content = content
        self._durable = durable

    def save(self) -> None:
        """Write the file. Raises OSError."""
        save_json(self._path, self._content, durable=self._durable)


class StoreLock:
    """Keeps a second cluster out of a store directory for as long as it is held."""

    def __init__(self, path: Path) -> None:
        self._fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.name == "nt":  # pragma: no cover
                import msvcrt

                msvcrt.locking(self._fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
            else:
                import fcntl

                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise StoreError(f"store {path.parent} is in use by another cluster") from error

    def release(self) -> None:
        """Let others in."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
