"""Stored messages on the broker's side: assembled, read back, indexed and selected natively.

The work of a send or a pull is one call per request here, whatever the number of messages in it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from rocketmq_fast._core.c_common cimport (
    RMF_NEED_MORE,
    RMF_OK,
    rmf_error,
    rmf_slice,
    rmf_status,
)
from rocketmq_fast._core.c_stored cimport (
    RMF_INDEX_ENTRY_BYTES,
    rmf_index_limits,
    rmf_index_run,
    rmf_index_select,
    rmf_index_selection,
    rmf_stored_batch_measure,
    rmf_stored_batch_write_unsafe,
    rmf_stored_fields,
    rmf_stored_measure,
    rmf_stored_property,
    rmf_stored_read,
    rmf_stored_tags_code,
    rmf_stored_write_unsafe,
)
from rocketmq_fast._core.status cimport describe

from rocketmq_fast.errors import MessageDecodeError

# Below this many bytes, giving the GIL away costs more than assembling takes.
cdef size_t NOGIL_BYTES = 262144

ENTRY_BYTES = RMF_INDEX_ENTRY_BYTES


cdef inline rmf_slice slice_of(bytes data) noexcept:
    cdef rmf_slice s
    s.ptr = <const uint8_t *>PyBytes_AS_STRING(data)
    s.len = <size_t>PyBytes_GET_SIZE(data)
    return s


cdef inline bytes bytes_of(rmf_slice s):
    return PyBytes_FromStringAndSize(<const char *>s.ptr, <Py_ssize_t>s.len)


cdef object failure(const rmf_error *error, int64_t base):
    """Build the exception for a refused record, element or field."""
    return MessageDecodeError(describe(error), base + <int64_t>error.position)


cdef class CodeSet:
    """A sorted set of tag codes, the form in which the native filter wants a subscription."""

    cdef int32_t *codes
    cdef size_t count

    def __cinit__(self, codes):
        cdef list values = sorted({((int(code) + 0x80000000) & 0xFFFFFFFF) - 0x80000000
                                   for code in codes})
        self.count = <size_t>len(values)
        self.codes = <int32_t *>malloc((self.count + 1) * sizeof(int32_t))
        if self.codes == NULL:
            raise MemoryError
        cdef size_t i
        for i in range(self.count):
            self.codes[i] = <int32_t>values[i]

    def __dealloc__(self):
        free(self.codes)

    def __len__(self):
        return <Py_ssize_t>self.count


cdef int fill(rmf_stored_fields *f, bytes topic, bytes properties, bytes more_properties,
              bytes born_host, bytes store_host) except -1:
    memset(f, 0, sizeof(rmf_stored_fields))
    f.topic = slice_of(topic)
    f.properties = slice_of(properties)
    f.more_properties = slice_of(more_properties)
    f.born_host = slice_of(born_host)
    f.store_host = slice_of(store_host)
    return 0


def assemble_message(body, *, bytes topic not None, bytes properties not None,
                     bytes born_host not None, bytes store_host not None, int32_t queue_id,
                     int64_t queue_offset, int64_t position, int32_t flag, int32_t sys_flag,
                     int64_t born_timestamp, int64_t store_timestamp, int32_t reconsume_times=0,
                     int64_t prepared_transaction_offset=0, tags_code=None):
    """Return (record, index entry) of one message.

    Raises MessageDecodeError when a field is longer than the record can carry.
    """
    cdef rmf_stored_fields f
    cdef rmf_error error
    cdef size_t total = 0
    cdef bytes record, entry
    cdef Py_buffer view
    cdef uint8_t *out
    cdef uint8_t *index
    cdef int64_t code
    fill(&f, topic, properties, b"", born_host, store_host)
    f.queue_id = queue_id
    f.queue_offset = queue_offset
    f.position = position
    f.flag = flag
    f.sys_flag = sys_flag
    f.born_timestamp_ms = born_timestamp
    f.store_timestamp_ms = store_timestamp
    f.reconsume_times = reconsume_times
    f.prepared_transaction_offset = prepared_transaction_offset
    code = rmf_stored_tags_code(f.properties) if tags_code is None else <int64_t>tags_code
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        f.body.ptr = <const uint8_t *>view.buf
        f.body.len = <size_t>view.len
        if rmf_stored_measure(&f, &total, &error) != RMF_OK:
            raise failure(&error, 0)
        record = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>total)
        entry = PyBytes_FromStringAndSize(NULL, RMF_INDEX_ENTRY_BYTES)
        out = <uint8_t *>PyBytes_AS_STRING(record)
        index = <uint8_t *>PyBytes_AS_STRING(entry)
        if total < NOGIL_BYTES:
            rmf_stored_write_unsafe(&f, total, code, out, index)
        else:
            # The view keeps the body, the arguments keep the rest; nobody else knows record yet.
            with nogil:
                rmf_stored_write_unsafe(&f, total, code, out, index)
    finally:
        PyBuffer_Release(&view)
    return record, entry


def assemble_batch(batch, *, bytes topic not None, bytes more_properties not None,
                   bytes born_host not None, bytes store_host not None, int32_t queue_id,
                   int64_t queue_offset, int64_t position, int32_t sys_flag,
                   int64_t born_timestamp, int64_t store_timestamp, int32_t reconsume_times=0):
    """Return (records, index entries) of the elements of a batch body.

    Raises MessageDecodeError with the position of the first malformed element.
    """
    cdef rmf_stored_fields f
    cdef rmf_error error
    cdef rmf_slice elements
    cdef size_t total = 0
    cdef size_t count = 0
    cdef rmf_status status
    cdef bytes records, entries
    cdef Py_buffer view
    cdef uint8_t *out
    cdef uint8_t *index
    fill(&f, topic, b"", more_properties, born_host, store_host)
    f.queue_id = queue_id
    f.queue_offset = queue_offset
    f.position = position
    f.sys_flag = sys_flag
    f.born_timestamp_ms = born_timestamp
    f.store_timestamp_ms = store_timestamp
    f.reconsume_times = reconsume_times
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        elements.ptr = <const uint8_t *>view.buf
        elements.len = <size_t>view.len
        status = rmf_stored_batch_measure(&f, elements, &count, &total, &error)
        if status != RMF_OK:
            raise failure(&error, 0)
        records = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>total)
        entries = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(count * RMF_INDEX_ENTRY_BYTES))
        out = <uint8_t *>PyBytes_AS_STRING(records)
        index = <uint8_t *>PyBytes_AS_STRING(entries)
        if total < NOGIL_BYTES:
            rmf_stored_batch_write_unsafe(&f, elements, out, index)
        else:
            # The view keeps the batch, the arguments keep the rest; nobody else knows records yet.
            with nogil:
                rmf_stored_batch_write_unsafe(&f, elements, out, index)
    finally:
        PyBuffer_Release(&view)
    return records, entries


cdef class StoredMessage:
    """The fields of one record, as stored: the body is neither inflated nor decoded."""

    cdef readonly bytes topic_bytes
    cdef readonly bytes properties
    cdef readonly bytes body
    cdef readonly bytes born_host
    cdef readonly bytes store_host
    cdef readonly int queue_id
    cdef readonly int flag
    cdef readonly int sys_flag
    cdef readonly int reconsume_times
    cdef readonly int64_t queue_offset
    cdef readonly int64_t position
    cdef readonly int64_t born_timestamp
    cdef readonly int64_t store_timestamp
    cdef readonly int64_t prepared_transaction_offset
    cdef readonly Py_ssize_t total_size

    @property
    def topic(self):
        """Topic as text."""
        return self.topic_bytes.decode("utf-8", "replace")


def read_stored(bytes data not None, bint check_crc=False):
    """Return the record at the start of data.

    Raises MessageDecodeError when there is no whole record.
    """
    cdef rmf_stored_fields f
    cdef rmf_error error
    cdef rmf_slice s = slice_of(data)
    cdef rmf_status status = rmf_stored_read(s.ptr, s.len, check_crc, &f, &error)
    if status == RMF_NEED_MORE:
        raise MessageDecodeError(f"record is longer than the {len(data)} bytes given", position=0)
    if status != RMF_OK:
        raise failure(&error, 0)
    cdef StoredMessage m = StoredMessage.__new__(StoredMessage)
    m.topic_bytes = bytes_of(f.topic)
    m.properties = bytes_of(f.properties)
    m.body = bytes_of(f.body)
    m.born_host = bytes_of(f.born_host)
    m.store_host = bytes_of(f.store_host)
    m.queue_id = f.queue_id
    m.flag = f.flag
    m.sys_flag = f.sys_flag
    m.reconsume_times = f.reconsume_times
    m.queue_offset = f.queue_offset
    m.position = f.position
    m.born_timestamp = f.born_timestamp_ms
    m.store_timestamp = f.store_timestamp_ms
    m.prepared_transaction_offset = f.prepared_transaction_offset
    m.total_size = f.total_size
    return m


def scan_log(bytes data not None, int64_t position, bint check_crc, bytes schedule_topic not None,
             list delays not None):
    """Index the records of a piece of the log that starts at position.

    Returns (consumed, runs, reason): bytes of whole records, a list of (topic, queue id, first
    queue offset, index entries, last store timestamp) for neighbours of one queue, and why the
    scan stopped before the last byte: None for a record that is cut off by the end of the piece.
    Entries of the schedule topic carry the delivery time, from delays[queue id] in ms.
    """
    cdef rmf_slice s = slice_of(data)
    cdef rmf_slice schedule = slice_of(schedule_topic)
    cdef rmf_stored_fields f
    cdef rmf_error error
    cdef rmf_status status
    cdef size_t at = 0
    cdef list runs = []
    cdef bytes topic = None
    cdef bytearray entries = None
    cdef uint8_t entry[20]
    cdef int64_t first_offset = 0
    cdef int64_t next_offset = 0
    cdef int32_t queue_id = 0
    cdef int64_t stored_ms = 0
    cdef int64_t code
    cdef bint same
    reason = None
    while at < s.len:
        status = rmf_stored_read(s.ptr + at, s.len - at, check_crc, &f, &error)
        if status == RMF_NEED_MORE:
            break
        if status != RMF_OK:
            reason = str(failure(&error, position + <int64_t>at))
            break
        if f.position != position + <int64_t>at:
            reason = f"record says position {f.position} at {position + <int64_t>at}"
            break
        same = (
            topic is not None and queue_id == f.queue_id and next_offset == f.queue_offset
            and <size_t>PyBytes_GET_SIZE(topic) == f.topic.len
            and memcmp(PyBytes_AS_STRING(topic), f.topic.ptr, f.topic.len) == 0
        )
        if not same:
            if topic is not None:
                runs.append((topic.decode("utf-8", "replace"), queue_id, first_offset,
                             bytes(entries), stored_ms))
            topic = bytes_of(f.topic)
            entries = bytearray()
            queue_id = f.queue_id
            first_offset = f.queue_offset
        if f.topic.len == schedule.len and memcmp(f.topic.ptr, schedule.ptr, schedule.len) == 0 \
                and 0 <= f.queue_id < len(delays):
            code = f.store_timestamp_ms + <int64_t>delays[f.queue_id]
        else:
            code = rmf_stored_tags_code(f.properties)
        put_entry(entry, f.position, f.total_size, code)
        entries.extend(entry[:20])
        next_offset = f.queue_offset + 1
        stored_ms = f.store_timestamp_ms
        at += f.total_size
    if topic is not None:
        runs.append((topic.decode("utf-8", "replace"), queue_id, first_offset, bytes(entries),
                     stored_ms))
    return <int64_t>at, runs, reason


cdef void put_entry(uint8_t *out, int64_t position, uint32_t size, int64_t code) noexcept nogil:
    cdef int i
    for i in range(8):
        out[i] = <uint8_t>((<unsigned long long>position >> (8 * (7 - i))) & 0xFF)
        out[12 + i] = <uint8_t>((<unsigned long long>code >> (8 * (7 - i))) & 0xFF)
    for i in range(4):
        out[8 + i] = <uint8_t>((size >> (8 * (3 - i))) & 0xFF)


cdef bint has_key(rmf_slice keys, rmf_slice key) noexcept nogil:
    """Tell whether key is one of the words of keys."""
    cdef size_t start = 0
    cdef size_t i
    for i in range(keys.len + 1):
        if i == keys.len or keys.ptr[i] == 32:
            if i - start == key.len and memcmp(keys.ptr + start, key.ptr, key.len) == 0:
                return True
            start = i + 1
    return False


def find_key(bytes data not None, bytes topic not None, bytes key not None, int64_t begin_ms,
             int64_t end_ms):
    """Find the records of a topic in a piece of the log that have key as a key or unique key.

    Returns (consumed, [(position, size)]), in the order of the log. Raises MessageDecodeError when
    the piece does not start with records.
    """
    cdef rmf_slice s = slice_of(data)
    cdef rmf_slice wanted = slice_of(topic)
    cdef rmf_slice word = slice_of(key)
    cdef rmf_slice keys_name = slice_of(b"KEYS")
    cdef rmf_slice unique_name = slice_of(b"UNIQ_KEY")
    cdef rmf_slice value
    cdef rmf_stored_fields f
    cdef rmf_error error
    cdef rmf_status status = RMF_OK
    cdef size_t at = 0
    cdef bint hit
    cdef list found = []
    while at < s.len:
        # data is immutable and held by the caller; no Python object is touched until a hit.
        with nogil:
            hit = False
            while at < s.len and not hit:
                status = rmf_stored_read(s.ptr + at, s.len - at, False, &f, &error)
                if status != RMF_OK:
                    break
                at += f.total_size
                hit = (
                    f.topic.len == wanted.len
                    and memcmp(f.topic.ptr, wanted.ptr, wanted.len) == 0
                    and begin_ms <= f.store_timestamp_ms <= end_ms
                    and ((rmf_stored_property(f.properties, unique_name, &value)
                          and value.len == word.len
                          and memcmp(value.ptr, word.ptr, word.len) == 0)
                         or (rmf_stored_property(f.properties, keys_name, &value)
                             and has_key(value, word)))
                )
        if hit:
            found.append((f.position, <int64_t>f.total_size))
        if status == RMF_NEED_MORE:
            break
        if status != RMF_OK:
            raise failure(&error, <int64_t>at)
    return <int64_t>at, found


def select_entries(entries, CodeSet codes, Py_ssize_t max_count, Py_ssize_t max_bytes,
                   Py_ssize_t disk_count, Py_ssize_t disk_bytes, int64_t disk_position):
    """Pick index entries for a pull.

    Returns (scanned, count, bytes, [(position, size)]), the last with neighbours joined.
    """
    cdef rmf_index_limits limits
    cdef rmf_index_selection selection
    cdef rmf_index_run *runs
    cdef Py_buffer view
    cdef size_t count, i
    if max_count < 0 or max_bytes < 0 or disk_count < 0 or disk_bytes < 0:
        raise ValueError("limits of a selection are not negative")
    limits.max_count = <size_t>max_count
    limits.max_bytes = <size_t>max_bytes
    limits.disk_count = <size_t>disk_count
    limits.disk_bytes = <size_t>disk_bytes
    limits.disk_position = disk_position
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        count = <size_t>view.len // RMF_INDEX_ENTRY_BYTES
        runs = <rmf_index_run *>malloc((count + 1) * sizeof(rmf_index_run))
        if runs == NULL:
            raise MemoryError
        try:
            rmf_index_select(<const uint8_t *>view.buf, count,
                             NULL if codes is None else codes.codes,
                             0 if codes is None else codes.count, &limits, runs, &selection)
            found = [(runs[i].position, runs[i].size) for i in range(selection.runs)]
        finally:
            free(runs)
    finally:
        PyBuffer_Release(&view)
    return <Py_ssize_t>selection.scanned, <Py_ssize_t>selection.count, \
        <Py_ssize_t>selection.bytes, found


def gather(bytes span not None, int64_t start, list runs not None):
    """Join the runs [(position, size)], which lie inside a piece of the log that begins at start.

    Raises ValueError when a run does not lie inside.
    """
    cdef int64_t total = 0
    cdef int64_t position, size
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t length = PyBytes_GET_SIZE(span)
    for position, size in runs:
        if position < start or size < 0 or position - start > length - size:
            raise ValueError(f"run at {position} of {size} bytes lies outside the piece")
        total += size
    cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>total)
    for position, size in runs:
        memcpy(PyBytes_AS_STRING(out) + at, PyBytes_AS_STRING(span) + (position - start),
               <size_t>size)
        at += <Py_ssize_t>size
    return out


def offset_ids(bytes host not None, bytes entries not None):
    """Return the offset message ids of index entries, joined by commas."""
    cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // RMF_INDEX_ENTRY_BYTES
    cdef Py_ssize_t width = 2 * (PyBytes_GET_SIZE(host) + 8) + 1
    if count == 0:
        return ""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, count * width - 1)
    cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(out)
    cdef const uint8_t *digits = b"0123456789ABCDEF"
    cdef const uint8_t *h = <const uint8_t *>PyBytes_AS_STRING(host)
    cdef const uint8_t *e = <const uint8_t *>PyBytes_AS_STRING(entries)
    cdef Py_ssize_t i, k
    for i in range(count):
        if i > 0:
            p[0] = 44
            p += 1
        for k in range(PyBytes_GET_SIZE(host)):
            p[2 * k] = digits[h[k] >> 4]
            p[2 * k + 1] = digits[h[k] & 15]
        p += 2 * PyBytes_GET_SIZE(host)
        for k in range(8):
            p[2 * k] = digits[e[k] >> 4]
            p[2 * k + 1] = digits[e[k] & 15]
        p += 16
        e += RMF_INDEX_ENTRY_BYTES
    return out.decode("ascii")
