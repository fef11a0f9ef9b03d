"""The commit log: records of all topics one behind another, in segment files."""

from __future__ import annotations

import itertools
import logging
import os
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING

from rocketmq_fast.embedded.files import (
    StoreError,
    make_directory,
    open_file,
    read_at,
    sync_directory,
    write_all,
)

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

_OPEN_SEGMENTS = 64


class CommitLog:
    """Positions run through all segments without a gap; a segment's name is its first position.

    A record never crosses segments. Owned by one thread; only take_dirty() hands out something that
    another thread may use.
    """

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self._directory = make_directory(directory)
        self._segment_bytes = segment_bytes
        self._starts: list[int] = []
        self._open: OrderedDict[int, int] = OrderedDict()
        self._dirty: set[int] = set()
        self._directory_dirty = False
        self.start = 0
        self.end = 0
        self._load()

    def _path(self, start: int) -> Path:
        return self._directory / f"{start:020d}"

    def _load(self) -> None:
        sizes = {
            int(path.name): path.stat().st_size
            for path in self._directory.iterdir()
            if path.name.isdigit() and len(path.name) == 20
        }
        starts = sorted(sizes)
        for before, after in itertools.pairwise(starts):
            if before + sizes[before] != after:
                raise StoreError(
                    f"commit log {self._directory}: segment {before} ends at "
                    f"{before + sizes[before]}, the next one starts at {after}"
                )
        self._starts = starts
        self.start = starts[0] if starts else 0
        self.end = starts[-1] + sizes[starts[-1]] if starts else 0

    def _fd(self, start: int) -> int:
        fd = self._open.get(start)
        if fd is not None:
            self._open.move_to_end(start)
            return fd
        fd = open_file(self._path(start), os.O_RDWR | os.O_CREAT)
        self._open[start] = fd
        if len(self._open) > _OPEN_SEGMENTS:
            old = next(iter(self._open))
            if old in self._dirty:
                os.fsync(self._open[old])
                self._dirty.discard(old)
            os.close(self._open.pop(old))
        return fd

    def _segment(self, position: int) -> int:
        """Return the index of the segment that holds a position."""
        return bisect_right(self._starts, position) - 1

    def segment_end(self, position: int) -> int:
        """Return where the segment that holds a position ends."""
        index = self._segment(position)
        return self._starts[index + 1] if index + 1 < len(self._starts) else self.end

    def append(self, data: bytes) -> None:
        """Write records at the end. Raises StoreError, and leaves the log as it was, on failure."""
        if not self._starts or (
            self.end > self._starts[-1]
            and self.end + len(data) - self._starts[-1] > self._segment_bytes
        ):
            self._starts.append(self.end)
            self._directory_dirty = True
        start = self._starts[-1]
        try:
            fd = self._fd(start)
            write_all(fd, data, self.end - start)
        except OSError as error:
            self._undo(start)
            raise StoreError(f"commit log {self._directory}: {error.strerror}") from error
        self._dirty.add(start)
        self.end += len(data)

    def _undo(self, start: int) -> None:
        """Cut off what a failed write left, so that the next record follows the last whole one."""
        try:
            os.truncate(self._path(start), self.end - start)
        except OSError as error:
            # The next append writes at the same place, and recovery cuts what no record covers.
            log.warning("commit log segment %d: cannot cut a failed write: %s", start, error)

    def read(self, position: int, size: int) -> bytes:
        """Return up to size bytes at a position; fewer only at the end of its segment.

        Raises StoreError for a position outside the log.
        """
        if not self.start <= position < self.end:
            raise StoreError(f"position {position} is not in the log [{self.start}, {self.end})")
        start = self._starts[self._segment(position)]
        size = min(size, self.segment_end(position) - position)
        try:
            return read_at(self._fd(start), size, position - start)
        except OSError as error:
            raise StoreError(f"commit log segment {start}: {error.strerror}") from error

    def read_all(self, position: int, size: int) -> bytes:
        """Return exactly size bytes, from as many segments as they lie in. Raises StoreError."""
        data = self.read(position, size)
        if len(data) == size:
            return data
        parts = [data]
        done = len(data)
        while done < size and data:
            data = self.read(position + done, size - done)
            parts.append(data)
            done += len(data)
        if done < size:
            raise StoreError(f"the log ends {size - done} bytes too early at {position + done}")
        return b"".join(parts)

    def truncate(self, end: int) -> None:
        """Drop everything from a position on."""
        while self._starts and self._starts[-1] >= end and len(self._starts) > 1:
            self._drop(self._starts.pop())
        if self._starts:
            os.truncate(self._fd(self._starts[-1]), end - self._starts[-1])
        self.end = end

    def delete_before(self, position: int) -> int:
        """Delete whole segments below a position, never the last; returns the new start."""
        while len(self._starts) > 1 and self._starts[1] <= position:
            self._drop(self._starts.pop(0))
        self.start = self._starts[0] if self._starts else self.end
        return self.start

    def segment_starts(self) -> list[int]:
        """Return the first positions of all segments."""
        return list(self._starts)

    def modified(self, start: int) -> float:
        """Return when a segment was last written, in seconds since the epoch."""
        return self._path(start).stat().st_mtime

    def _drop(self, start: int) -> None:
        fd = self._open.pop(start, None)
        if fd is not None:
            os.close(fd)
        self._dirty.discard(start)
        self._path(start).unlink(missing_ok=True)

    def take_dirty(self) -> Unsynced:
        """Return what was written since the last call; its sync() may run on any thread."""
        fds = [os.dup(self._fd(start)) for start in sorted(self._dirty)]
        self._dirty.clear()
        directory = self._directory if self._directory_dirty else None
        self._directory_dirty = False
        return Unsynced(fds, directory)

    def close(self) -> None:
        """Close the files without syncing them."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()


class Unsynced:
    """Descriptors of its own of files that were written and are not durable yet."""

    def __init__(self, fds: list[int], directory: Path | None = None) -> None:
        self.fds = fds
        self._directory = directory

    def sync(self) -> None:
        """Make it durable. Raises OSError; the descriptors are closed in any case."""
        try:
            for fd in self.fds:
                os.fsync(fd)
            if self._directory is not None:
                sync_directory(self._directory)
        finally:
            self.close()

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            os.close(fd)
        self.fds = []
