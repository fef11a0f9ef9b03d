"""Offsets of a broadcasting group: each member keeps its own, in a file on its host."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from rocketmq_fast.consumer.offset_file import MAX_OFFSET, OffsetFile, OffsetFileError
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue

logger = logging.getLogger(__name__)

# How long a caller waits for a write that is under way, and how often a lasting failure is logged.
WAIT_SECONDS = 10.0
LOG_SECONDS = 60.0


def default_directory() -> Path:
    """Where Java's client keeps the files: `.rocketmq_offsets` in the home directory."""
    try:
        return Path.home() / ".rocketmq_offsets"
    except RuntimeError as error:
        raise ConfigError(f"local_offset_store_dir is not set, and {error}") from error


class LocalFileOffsetStore:
    """Offsets of a broadcasting group in `<directory>/<client id>/<group>/offsets.json`.

    The place and the format are those of Java's client, so either goes on where the other ended.
    `load` first, `close` at the end. In between the file is locked: two processes would overwrite
    each other's progress, so the second one gets an OffsetFileError and needs an instance_name, or
    a directory, of its own. Java's client does not know the lock; values that it or an operator
    writes meanwhile are taken over for the queues that this store does not advance itself.

    `persist` leaves the work to a thread that lives as long as there is something to write. What
    cannot be written (disk full, read-only home) is logged and tried again with the next
    `persist`; the version before stays. Queues that were not persisted keep what the file has.
    All methods may be called from any thread.
    """

    def __init__(
        self, client_id: str, group: str, directory: str | os.PathLike[str] | None = None
    ) -> None:
        base = default_directory() if directory is None else Path(directory).expanduser()
        self._group = group
        self._file = OffsetFile(base, client_id, group)
        self._process = os.getpid()
        # Guards the tables; never held during I/O.
        self._lock = threading.Lock()
        self._offsets: dict[MessageQueue, int] = {}
        self._pending: dict[MessageQueue, int] = {}
        self._stored: dict[MessageQueue, int] = {}
        self._writer: threading.Thread | None = None
        self._closed = False
        # Guards the file; the tables' lock is taken inside it.
        self._file_lock = threading.Lock()
        self._loaded = False
        self._lock_warned = False
        self._failures = 0
        self._last_error: Exception | None = None
        self._logged_at = -LOG_SECONDS

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def failures(self) -> int:
        """Writes that failed since the last one that did not."""
        return self._failures

    @property
    def last_error(self) -> Exception | None:
        """Why the last write failed; None when it did not."""
        return self._last_error

    # ----------------------------------------------------------------------------- lifecycle

    def load(self) -> None:
        """Lock the file and read it; before anything else, and again after `close`.

        Raises OffsetFileError when the file and its .bak are damaged, or another store has them.
        """
        with self._file_lock:
            with self._lock:
                self._closed = False
            self._load()

    def _load(self) -> None:
        try:
            self._file.prepare()
        except OSError as error:
            # A home that cannot be written is no reason not to consume.
            logger.warning(
                "offsets of group %s may not be stored in %s: %s", self._group, self.path, error
            )
        else:
            self._lock_file()
        try:
            stored = self._file.read()
        except OffsetFileError:
            self._file.unlock()
            raise
        with self._lock:
            self._stored = stored
        self._loaded = True

    def _lock_file(self) -> None:
        try:
            self._file.lock()
        except OSError as error:
            if not self._lock_warned:
                logger.warning("%s is used without a lock: %s", self.path, error)
            self._lock_warned = True

    def close(self) -> None:
        """Store what waits and unlock the file. May be repeated; `load` begins anew."""
        with self._lock:
            self._closed = True
            writer = self._writer
        if writer is not None and writer is not threading.current_thread():
            writer.join(WAIT_SECONDS)
        if os.getpid() == self._process:
            self._flush()  # also what no thread could be started for
        if not self._file_lock.acquire(timeout=WAIT_SECONDS):
            logger.error("%s stays locked, a write to it does not end", self.path)
            return
        try:
            self._loaded = False
            self._file.unlock()
            with self._lock:
                lost = len(self._pending)
                self._pending.clear()
        finally:
            self._file_lock.release()
        if lost:
            logger.error("offsets of %d queues were not stored in %s", lost, self.path)

    # -------------------------------------------------------------------------------- memory

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note progress in memory."""
        if not 0 <= offset <= MAX_OFFSET:
            raise ValueError(f"offset {offset} of {queue} is no progress")
        with self._lock:
            known = self._offsets.get(queue)
            if known is None or not increase_only or offset > known:
                self._offsets[queue] = offset

    def in_memory(self, queue: MessageQueue) -> int | None:
        """What `update` noted last."""
        return self._offsets.get(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget the value in memory; the file keeps its own."""
        with self._lock:
            self._offsets.pop(queue, None)

    # ---------------------------------------------------------------------------------- file

    def read(self, queue: MessageQueue) -> int | None:
        """What is stored, or waits to be; becomes the value in memory. None: nothing is stored.

        Raises OffsetFileError as `load` does, when that was not called.
        """
        if not self._file_lock.acquire(timeout=WAIT_SECONDS):
            raise OffsetFileError(f"{self.path}: a write to it does not end")
        try:
            if not self._loaded:
                self._load()
            self._take_over()
        finally:
            self._file_lock.release()
        with self._lock:
            offset = self._pending.get(queue, self._stored.get(queue))
            if offset is None:
                self._offsets.pop(queue, None)
            else:
                self._offsets[queue] = offset
        return offset

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Have what changed of these queues stored soon. Does no I/O."""
        if not self._may_write():
            return
        with self._lock:
            self._note(queues)
            if not self._pending or self._writer is not None:
                return
            writer = self._writer = threading.Thread(
                target=self._write_behind, name=f"rocketmq-offsets-{self._group}", daemon=True
            )
        try:
            writer.start()
        except RuntimeError as error:  # no more threads, or the interpreter ends
            with self._lock:
                self._writer = None
            logger.warning("offsets of group %s are stored later: %s", self._group, error)

    def persist_now(self, queues: Iterable[MessageQueue]) -> None:
        """Store what changed of these queues, and what waits, and wait for it.

        Failures are logged.
        """
        if not self._may_write():
            return
        with self._lock:
            self._note(queues)
        self._flush()

    def _may_write(self) -> bool:
        if os.getpid() != self._process:
            # The parent goes on writing, and a lock may have been copied while it was held.
            logger.warning("%s is not written by a forked process", self.path)
            return False
        if self._closed:
            logger.warning("%s is closed; offsets that come now are not stored", self.path)
            return False
        return True

    def _note(self, queues: Iterable[MessageQueue]) -> None:
        """Take the values that are to be stored, as they are now. Under the lock."""
        offsets, stored, pending = self._offsets, self._stored, self._pending
        for queue in queues:
            offset = offsets.get(queue)
            if offset is None:
                continue
            if stored.get(queue) != offset:
                pending[queue] = offset
            elif pending:
                pending.pop(queue, None)

    def _write_behind(self) -> None:
        stored = True
        while True:
            with self._lock:
                if not stored or not self._pending:
                    self._writer = None
                    return
            stored = self._flush()

    def _flush(self) -> bool:
        """Write what waits. Returns whether nothing waits because of a failure."""
        if not self._file_lock.acquire(timeout=WAIT_SECONDS):
            self._failed(TimeoutError("a write does not end"))
            return False
        try:
            with self._lock:
                batch = dict(self._pending)
                if not batch:
                    return True
            try:
                self._write(batch)
            except (OSError, OffsetFileError) as error:
                self._failed(error)
                return False
            if self._failures:
                logger.info("%s is stored again after %d failures", self.path, self._failures)
            self._failures, self._last_error, self._logged_at = 0, None, -LOG_SECONDS
            return True
        finally:
            self._file_lock.release()

    def _write(self, batch: Mapping[MessageQueue, int]) -> None:
        if not self._loaded:
            self._load()  # else it would replace what nobody has read
        self._file.prepare()
        self._lock_file()
        self._take_over()
        table = {**self._stored, **batch}
        self._file.replace(table)
        with self._lock:
            self._stored = table
            for queue, offset in batch.items():
                if self._pending.get(queue) == offset:
                    del self._pending[queue]

    def _take_over(self) -> None:
        """Learn what somebody else wrote. Under the lock of the file."""
        written = self._file.read_if_changed()
        if written is not None:
            logger.info("%s was changed by somebody else, which is taken over", self.path)
            with self._lock:
                self._stored = {**self._stored, **written}

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        now = time.monotonic()
        same = type(error) is type(self._last_error) and str(error) == str(self._last_error)
        self._last_error = error
        if same and now - self._logged_at < LOG_SECONDS:
            return
        self._logged_at = now
        logger.error(
            "offsets of group %s were not stored in %s: %s; they are tried again",
            self._group,
            self.path,
            error,
        )
