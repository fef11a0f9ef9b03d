"""The index of one queue: where in the commit log each of its messages is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rocketmq_fast._core.stored import ENTRY_BYTES
from rocketmq_fast.embedded.files import make_directory, open_file, read_at, write_all

if TYPE_CHECKING:
    from pathlib import Path

FILE_ENTRIES = 300_000
_KEEP_ENTRIES = 2048
_PAGE_ENTRIES = 4096


class ConsumeQueue:
    """Entries of 20 bytes, in files of 300,000; those appended lately are also in memory.

    `max_offset` is the next offset to be written. What was not saved is rebuilt from the log after
    a crash. Owned by one thread.
    """

    __slots__ = (
        "_base", "_directory", "_page", "_page_base", "_saved", "_tail", "max_offset",
        "min_offset", "queue_id", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, queue_id: int, directory: Path, min_offset: int = 0, max_offset: int = 0
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = min_offset
        self.max_offset = max_offset
        self._directory = directory
        self._base = max_offset
        self._saved = max_offset
        self._tail = bytearray()
        self._page_base = 0
        self._page = b""

    @property
    def unsaved(self) -> bool:
        """Whether entries are in memory only."""
        return self._saved < self.max_offset

    def append(self, entries: bytes) -> None:
        """Add entries at the end."""
        self._tail += entries
        self.max_offset += len(entries) // ENTRY_BYTES

    def reset(self, offset: int) -> None:
        """Forget everything and start again at an offset."""
        self.min_offset = self.max_offset = self._base = self._saved = offset
        self._tail.clear()
        self._page = b""
        self._truncate_files(offset)

    def entries(self, offset: int, count: int) -> bytes:
        """Return up to count entries from an offset in [min_offset, max_offset); at least one."""
        if offset >= self._base:
            start = (offset - self._base) * ENTRY_BYTES
            return bytes(self._tail[start : start + count * ENTRY_BYTES])
        at = (offset - self._page_base) * ENTRY_BYTES
        if not 0 <= at < len(self._page):
            self._load_page(offset)
            at = (offset - self._page_base) * ENTRY_BYTES
        return self._page[at : at + count * ENTRY_BYTES]

    def _load_page(self, offset: int) -> None:
        """Read a piece of a file, so that a reader who goes on finds the next entries in memory."""
        number = offset // FILE_ENTRIES
        count = min(_PAGE_ENTRIES, self._base - offset, (number + 1) * FILE_ENTRIES - offset)
        fd = open_file(self._path(number), os.O_RDONLY)
        try:
            self._page = read_at(
                fd, count * ENTRY_BYTES, (offset - number * FILE_ENTRIES) * ENTRY_BYTES
            )
        finally:
            os.close(fd)
        self._page_base = offset

    def _path(self, number: int) -> Path:
        return self._directory / f"{number * FILE_ENTRIES * ENTRY_BYTES:020d}"

    def save(self, unsynced: list[int] | None = None) -> None:
        """Write what is in memory only to the files. Raises OSError.

        The descriptors of the files go to `unsynced`, whose owner syncs and closes them.
        """
        if self._saved < self.max_offset:
            make_directory(self._directory)
        while self._saved < self.max_offset:
            number = self._saved // FILE_ENTRIES
            end = min(self.max_offset, (number + 1) * FILE_ENTRIES)
            start = (self._saved - self._base) * ENTRY_BYTES
            data = bytes(self._tail[start : (end - self._base) * ENTRY_BYTES])
            fd = open_file(self._path(number), os.O_WRONLY | os.O_CREAT)
            try:
                write_all(fd, data, (self._saved - number * FILE_ENTRIES) * ENTRY_BYTES)
                if unsynced is not None:
                    unsynced.append(os.dup(fd))
            finally:
                os.close(fd)
            self._saved = end
        surplus = len(self._tail) // ENTRY_BYTES - _KEEP_ENTRIES
        if surplus > _KEEP_ENTRIES:
            del self._tail[: surplus * ENTRY_BYTES]
            self._base += surplus

    def is_complete(self) -> bool:
        """Tell whether the files hold all entries up to max_offset, and cut off what is beyond."""
        for number in range(self.min_offset // FILE_ENTRIES, self.max_offset // FILE_ENTRIES + 1):
            needed = min(self.max_offset, (number + 1) * FILE_ENTRIES) - number * FILE_ENTRIES
            path = self._path(number)
            size = path.stat().st_size if path.exists() else 0
            if size < needed * ENTRY_BYTES:
                return False
        self._truncate_files(self.max_offset)
        return True

    def _truncate_files(self, offset: int) -> None:
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            if not path.name.isdigit():
                continue
            first = int(path.name) // ENTRY_BYTES
            if first >= offset:
                path.unlink()
            elif first + FILE_ENTRIES > offset:
                os.truncate(path, min(path.stat().st_size, (offset - first) * ENTRY_BYTES))

    def raise_min(self, min_offset: int) -> None:
        """Give up entries below an offset, whose messages are gone from the log."""
        self.min_offset = min(max(self.min_offset, min_offset), self.max_offset)
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            if path.name.isdigit():
                first = int(path.name) // ENTRY_BYTES
                if first + FILE_ENTRIES <= min(self.min_offset, self._saved):
                    path.unlink()
