from collections.abc import Iterable
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

ENTRY_BYTES: int

class CodeSet:
    """A sorted set of tag codes, the form in which the native filter wants a subscription."""

    def __init__(self, codes: Iterable[int]) -> None: ...
    def __len__(self) -> int: ...

class StoredMessage:
    """The fields of one record, as stored: the body is neither inflated nor decoded."""

    @property
    def topic_bytes(self) -> bytes: ...
    @property
    def topic(self) -> str: ...
    @property
    def properties(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...
    @property
    def born_host(self) -> bytes: ...
    @property
    def store_host(self) -> bytes: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def born_timestamp(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def total_size(self) -> int: ...

def assemble_message(
    body: Buffer,
    *,
    topic: bytes,
    properties: bytes,
    born_host: bytes,
    store_host: bytes,
    queue_id: int,
    queue_offset: int,
    position: int,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    store_timestamp: int,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    tags_code: int | None = None,
) -> tuple[bytes, bytes]:
    """Return (record, index entry) of one message."""

def assemble_batch(
    batch: Buffer,
    *,
    topic: bytes,
    more_properties: bytes,
    born_host: bytes,
    store_host: bytes,
    queue_id: int,
    queue_offset: int,
    position: int,
    sys_flag: int,
    born_timestamp: int,
    store_timestamp: int,
    reconsume_times: int = 0,
) -> tuple[bytes, bytes]:
    """Return (records, index entries) of the elements of a batch body."""

def read_stored(data: bytes, check_crc: bool = False) -> StoredMessage:
    """Return the record at the start of data."""

def scan_log(
    data: bytes, position: int, check_crc: bool, schedule_topic: bytes, delays: list[int]
) -> tuple[int, list[tuple[str, int, int, bytes, int]], str | None]:
    """Index the records of a piece of the log that starts at position."""

def find_key(
    data: bytes, topic: bytes, key: bytes, begin_ms: int, end_ms: int
) -> tuple[int, list[tuple[int, int]]]:
    """Find the records of a topic in a piece of the log that have key as a key or unique key."""

def select_entries(
    entries: Buffer,
    codes: CodeSet | None,
    max_count: int,
    max_bytes: int,
    disk_count: int,
    disk_bytes: int,
    disk_position: int,
) -> tuple[int, int, int, list[tuple[int, int]]]:
    """Pick index entries for a pull: (scanned, count, bytes, [(position, size)])."""

def gather(span: bytes, start: int, runs: list[tuple[int, int]]) -> bytes:
    """Join the runs [(position, size)], all inside a piece of the log that begins at start."""

def offset_ids(host: bytes, entries: bytes) -> str:
    """Return the offset message ids of index entries, joined by commas."""
