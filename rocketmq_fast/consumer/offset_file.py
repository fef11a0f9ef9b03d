"""The offset file of a broadcasting group: Java's format, replaced atomically, damage recognised.

Both names, the file and the `.bak` beside it with the version before, hold a complete version at
all times. A file that is empty, cut, garbage, somebody else's or no regular file is never trusted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

from rocketmq_fast.errors import BodyError, RocketMQError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol import fastjson

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

FILE_NAME = "offsets.json"
# More than 100,000 queues; what is larger was not written by an offset store.
MAX_FILE_BYTES = 16 << 20
MAX_OFFSET = 2**63 - 1

_READ_BYTES = 1 << 20
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
# Without O_NONBLOCK a named pipe in place of the file would hold the open for ever.
_READ_FLAGS = os.O_RDONLY | _FLAGS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | _FLAGS
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})

# What client ids and groups are made of; Windows has no ':' and '|' in names of files.
_PLAIN = re.compile(r"[A-Za-z0-9_@#%|:+=,\[\]-][A-Za-z0-9_@#%|:+=,\[\]. -]{0,254}")
_PLAIN_WINDOWS = re.compile(
    r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)(?:\.|\Z))"
    r"[A-Za-z0-9_@#%+=,\[\]-][A-Za-z0-9_@#%+=,\[\]. -]{0,254}"
)

_Signature = tuple[int, int, int, int]


class OffsetFileError(RocketMQError):
    """The offset file cannot be used: it and its .bak are damaged, or another process has it."""


def path_part(text: str, *, windows: bool = os.name == "nt") -> str:
    """The name of the directory for a client id or group: Java's, which is the text itself.

    A text that is no safe name (path separators, "..", too long) becomes one of its own, with a
    '~' that plain names do not have, so that two texts never share a directory.
    """
    plain = _PLAIN_WINDOWS if windows else _PLAIN
    if plain.fullmatch(text) and text[-1] not in ". ":
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    kept = re.sub(r"[^A-Za-z0-9_@#-]", "_", text)[:100]
    return f"{kept}~{digest}"


# ------------------------------------------------------------------------------------ format


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The file as Java's client writes it, in the order of the queues."""
    entries = ",".join(f"{_key(queue)}:{offsets[queue]}" for queue in sorted(offsets))
    return f'{{\n\t"offsetTable":{{{entries}\n\t}}\n}}'.encode("utf-8", "replace")


def _key(queue: MessageQueue) -> str:
    broker, topic = fastjson.dumps(queue.broker_name), fastjson.dumps(queue.topic)
    return (
        f'{{\n\t\t\t"brokerName":{broker},\n\t\t\t"queueId":{queue.queue_id},'
        f'\n\t\t\t"topic":{topic}\n\t\t}}'
    )


def decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    """The offsets in a file's content. Fields and keys that are not ours are passed over.

    Raises BodyError when it is damaged: an offset that is not understood must not become "none".
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BodyError(f"not UTF-8: {error.reason}", error.start) from None
    value = fastjson.loads(text)
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise BodyError("there is no offsetTable")
    offsets = {}
    for key, offset in table.items():
        try:
            queue = fastjson.queue_of_key(key)
        except BodyError as error:
            logger.warning("an entry of the offset table is passed over: %s", error)
            continue
        if isinstance(offset, str) and offset.isascii() and offset.isdigit() and len(offset) < 20:
            offset = int(offset)
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise BodyError(f"the offset of {queue} is no integer")
        if not 0 <= offset <= MAX_OFFSET:
            raise BodyError(f"the offset of {queue} is out of range")
        offsets[queue] = offset
    if table and not offsets:
        raise BodyError("no entry of the offset table is one of a queue")
    return offsets


# -------------------------------------------------------------------------------------- file


class OffsetFile:
    """One offsets.json and what lies beside it. Not for several threads at a time."""

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        self._base = directory
        self._folders = [directory / path_part(client_id)]
        self._folders.append(self._folders[0] / path_part(group))
        self.path = self._folders[1] / FILE_NAME
        self.backup = self.path.with_name(FILE_NAME + ".bak")
        self._temporary = self.path.with_name(FILE_NAME + ".tmp")
        self._new_backup = self.path.with_name(FILE_NAME + ".bak.tmp")
        self._lock = FileLock(self.path.with_name(FILE_NAME + ".lock"))
        # Of the version that was read or written last; None where there was none to trust.
        self._signature: _Signature | None = None

    # ------------------------------------------------------------------------- directories

    def prepare(self) -> None:
        """Create the directories, private ones. Raises OSError, OffsetFileError."""
        self._base.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self._base, *self._folders):
            folder.mkdir(mode=0o700, exist_ok=True)
        for folder in self._folders:
            status = os.lstat(folder)
            if stat.S_ISLNK(status.st_mode):
                raise OffsetFileError(f"{folder} is a symbolic link; offsets are not kept there")
            if not _is_trusted_owner(status):
                raise OffsetFileError(f"{folder} belongs to user {status.st_uid}")

    def lock(self) -> None:
        """Keep other processes out until `unlock`. Raises OSError, OffsetFileError when in use."""
        self._lock.acquire()

    def unlock(self) -> None:
        """Let others in."""
        self._lock.release()

    # --------------------------------------------------------------------------------- read

    def read(self) -> dict[MessageQueue, int]:
        """What is stored; nothing without a file and a .bak.

        Raises OffsetFileError when something is there and neither can be trusted.
        """
        self._signature = None
        problems = []
        damaged = False
        for path in (self.path, self.backup):
            try:
                found = _read(path)
            except (OSError, BodyError, _Untrusted) as error:
                damaged = True
                problems.append(f"{path}: {_reason(error)}")
                continue
            if found is None:
                problems.append(f"{path}: there is none")
                continue
            offsets, signature = found
            if path is self.path:
                self._signature = signature
            else:
                logger.warning("offsets come from the version before: %s", problems[0])
            return offsets
        if damaged:
            raise OffsetFileError(
                f"the stored offsets cannot be trusted: {'; '.join(problems)}. Repair one, or move"
                " both away to begin as a group without offsets"
            )
        return {}

    def read_if_changed(self) -> dict[MessageQueue, int] | None:
        """What somebody else wrote since we read or wrote; None when nobody did.

        A file that is gone or damaged counts as not changed: what we hold is better.
        """
        try:
            if _signature_of(os.lstat(self.path)) == self._signature:
                return None
        except FileNotFoundError:
            self._signature = None
            return None
        was_trusted, self._signature = self._signature is not None, None
        try:
            found = _read(self.path)
        except (OSError, BodyError, _Untrusted) as error:
            if was_trusted:
                logger.warning(
                    "%s was damaged while in use, and is replaced: %s", self.path, _reason(error)
                )
            return None
        if found is None:
            return None
        self._signature = found[1]
        return found[0]

    # -------------------------------------------------------------------------------- write

    def replace(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store a new version, and wait until it is on the disk.

        Raises OSError; then the old version is still there, or the new one is in its place without
        being known to be on the disk.
        """
        try:
            signature = self._write_new(self._temporary, encode_offsets(offsets))
            # A damaged file must not push out the good .bak.
            if self._signature is not None:
                self._back_up()
            os.replace(self._temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            raise
        self._signature = signature
        self._sync_directory()

    def _write_new(self, path: Path, data: bytes) -> _Signature:
        self._discard(path)  # of a process that was killed
        fd = os.open(path, _NEW_FLAGS, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
            return _signature_of(os.fstat(fd))
        finally:
            os.close(fd)

    def _back_up(self) -> None:
        """Give the present version the second name too."""
        self._discard(self._new_backup)
        try:
            os.link(self.path, self._new_backup)
        except OSError:  # a file system without hard links
            self._write_new(self._new_backup, self.path.read_bytes())
        os.replace(self._new_backup, self.backup)

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def _sync_directory(self) -> None:
        """Make the new names durable, where the file system knows how."""
        if os.name == "nt":
            return
        fd = os.open(self.path.parent, os.O_RDONLY | _FLAGS)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise
        finally:
            os.close(fd)


class _Untrusted(Exception):
    """A file that is not used, and why."""


def _read(path: Path) -> tuple[dict[MessageQueue, int], _Signature] | None:
    """Content of a file, None without one. Raises OSError, BodyError, _Untrusted."""
    try:
        fd = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _Untrusted("it is a symbolic link") from None
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _Untrusted("it is no regular file")
        if not _is_trusted_owner(status):
            raise _Untrusted(f"it belongs to user {status.st_uid}")
        parts: list[bytes] = []
        size = 0
        while part := os.read(fd, _READ_BYTES):
            parts.append(part)
            size += len(part)
            if size > MAX_FILE_BYTES:
                raise _Untrusted(f"it is larger than {MAX_FILE_BYTES} bytes")
    finally:
        os.close(fd)
    if not size:
        raise _Untrusted("it is empty")
    return decode_offsets(b"".join(parts)), _signature_of(status)


def _signature_of(status: os.stat_result) -> _Signature:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _is_trusted_owner(status: os.stat_result) -> bool:
    return os.name == "nt" or status.st_uid in (0, os.geteuid())


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


# -------------------------------------------------------------------------------------- lock


class FileLock:
    """Keeps a second store, of this process or another one, from a file.

    A POSIX record lock: a forked child does not hold it, and it ends with the process. It is lost
    when any descriptor of the file is closed, so only this class opens it, and stores of one
    process are kept apart by a table. Without fcntl there is only the table.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._release: Callable[[], object] | None = None

    def acquire(self) -> None:
        """Take it. Raises OffsetFileError when somebody has it, OSError where locks fail."""
        if self._release is not None:
            return
        key = os.path.realpath(self._path)
        with _held_guard:
            if _held.get(key) == os.getpid():
                raise self._in_use("another consumer of this process")
            fd = self._lock_file()
            _held[key] = os.getpid()
        # A store that is dropped without close gives the lock back too.
        finalizer = weakref.finalize(self, _unlock, key, fd)
        finalizer.atexit = False
        self._release = finalizer

    def _lock_file(self) -> int:
        fd = os.open(self._path, _LOCK_FLAGS, 0o600)
        try:
            if sys.platform != "win32":
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                os.close(fd)
                raise
            owner = os.read(fd, 20).decode("ascii", "replace").strip()
            os.close(fd)
            raise self._in_use(f"process {owner or '?'}") from None
        with contextlib.suppress(OSError):  # it only tells a person who has the lock
            os.ftruncate(fd, 0)
            os.write(fd, b"%d\n" % os.getpid())
        return fd

    def _in_use(self, by: str) -> OffsetFileError:
        return OffsetFileError(
            f"{self._path.with_name(FILE_NAME)} is in use by {by}; consumers of one broadcasting"
            " group on one host need an instance_name of their own each"
        )

    def release(self) -> None:
        """Give it back."""
        release, self._release = self._release, None
        if release is not None:
            release()


# Path and process of each lock that is held. A forked child inherits the table, not the locks.
_held: dict[str, int] = {}
_held_guard = threading.Lock()


def _unlock(key: str, fd: int) -> None:
    # In this order: once the entry is gone another store may take the lock, and it would lose it
    # when this descriptor is closed.
    os.close(fd)
    _held.pop(key, None)
