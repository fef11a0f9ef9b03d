"""Messages as Arrow columns, handed over through the Arrow C data interface."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t

from rocketmq_fast._core.c_arrow cimport (
    ArrowArray,
    ArrowSchema,
    rmf_table,
    rmf_table_bytes,
    rmf_table_export_array,
    rmf_table_export_schema,
    rmf_table_new,
    rmf_table_release,
)
from rocketmq_fast._core.c_columns cimport (
    RMF_COLUMN_COUNT,
    RMF_COLUMN_MAX_BYTES,
    rmf_column_name,
    rmf_columns_append,
    rmf_columns_bytes,
    rmf_columns_decode,
    rmf_columns_finish,
    rmf_columns_free,
    rmf_columns_new,
    rmf_columns_rows,
    rmf_columns_source,
)
from rocketmq_fast._core.c_common cimport (
    RMF_ERR_LENGTH,
    RMF_NEED_MORE,
    RMF_OK,
    rmf_alloc,
    rmf_error,
    rmf_free,
    rmf_slice,
    rmf_status,
)
from rocketmq_fast._core.message cimport MessageBatch
from rocketmq_fast._core.text cimport utf8_of

import difflib

import numpy as np

from rocketmq_fast._core.message import decode_messages
from rocketmq_fast.errors import CodecError, ConfigError

# Below so many messages, or bytes, the work takes less time than another thread needs to take the GIL and give
# it back.
cdef size_t RELEASE_GIL_MESSAGES = 256
cdef size_t RELEASE_GIL_BYTES = 1 << 18

COLUMNS = tuple([rmf_column_name(i).decode("ascii") for i in range(RMF_COLUMN_COUNT)])
cdef dict _KINDS = {name: kind for kind, name in enumerate(COLUMNS)}


cdef void _drop_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    rmf_free(schema)


cdef void _drop_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    rmf_free(array)


cdef class ArrowBatch:
    """Rows as Arrow columns: pyarrow.record_batch(batch), polars.DataFrame(batch) and the like.

    The memory is shared with everything that was made of it, and freed with the last of these; so a
    batch can be handed over several times. `errors` lists (position, queue_offset or None, reason) of
    messages that could not be decoded. Immutable, so threads may share it.
    """

    def __cinit__(self):
        self.errors = []
        self._table = rmf_table_new(0)
        if self._table == NULL:
            raise MemoryError("Arrow batch")

    def __init__(self):
        raise TypeError("ArrowBatch objects come from decode_arrow and ArrowBuilder.finish")

    def __dealloc__(self):
        rmf_table_release(self._table)

    def __len__(self):
        return self._table.rows

    @property
    def num_rows(self):
        """Number of messages."""
        return self._table.rows

    @property
    def nbytes(self):
        """Bytes of the columns."""
        return rmf_table_bytes(self._table)

    def __arrow_c_schema__(self):
        """PyCapsule of an ArrowSchema: a struct with a field for each column."""
        cdef ArrowSchema *schema = <ArrowSchema *>rmf_alloc(sizeof(ArrowSchema))
        if schema == NULL:
            raise MemoryError("Arrow schema")
        schema.release = NULL
        capsule = PyCapsule_New(schema, "arrow_schema", _drop_schema)
        if rmf_table_export_schema(self._table, schema) != RMF_OK:
            raise MemoryError("Arrow schema")
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        """PyCapsules of an ArrowSchema and an ArrowArray.

        The columns have one type each, so a requested schema changes nothing, as the interface allows.
        """
        cdef ArrowArray *array
        schema_capsule = self.__arrow_c_schema__()
        array = <ArrowArray *>rmf_alloc(sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError("Arrow array")
        array.release = NULL
        capsule = PyCapsule_New(array, "arrow_array", _drop_array)
        if rmf_table_export_array(self._table, array) != RMF_OK:
            raise MemoryError("Arrow array")
        return schema_capsule, capsule

    def __repr__(self):
        bad = f", {len(self.errors)} undecodable" if self.errors else ""
        return f"<ArrowBatch of {self._table.rows} messages, {self.nbytes} bytes{bad}>"


cdef class ArrowBuilder:
    """Collects messages of many batches in columns.

    `columns` are names out of COLUMNS in any order, None for all; a column that is not asked for costs
    nothing. Raises ConfigError for an unknown or repeated name. Threads may share a builder.
    """

    def __cinit__(self, columns=None):
        cdef uint8_t kinds[RMF_COLUMN_COUNT]
        cdef size_t count = 0
        self._errors = []
        self.columns = COLUMNS if columns is None else _checked(columns)
        for name in self.columns:
            kinds[count] = <uint8_t>count if columns is None else _KINDS[name]
            count += 1
        self._columns = rmf_columns_new(kinds, count, RMF_COLUMN_MAX_BYTES)
        if self._columns == NULL:
            raise MemoryError("Arrow columns")

    def __dealloc__(self):
        rmf_columns_free(self._columns)

    def append(self, MessageBatch batch not None, broker_name=None, start_offset=None,
               end_offset=None, mask=None):
        """Append the messages with a queue offset in [start_offset, end_offset), None = open, whose
        place in the boolean `mask` is true. Returns how many these were.

        `broker_name` stands in for a batch that knows none. Raises CodecError, with nothing appended,
        when a column would pass the 2 GiB that Arrow's 32-bit offsets can tell.
        """
        cdef rmf_columns_source source
        cdef rmf_error error
        cdef rmf_status status
        cdef size_t appended = 0
        cdef const uint8_t[::1] keep
        source.messages = batch._list.messages
        source.count = batch._list.count
        source.restore_topic = batch.restore_topic
        source.start = INT64_MIN if start_offset is None else <int64_t>start_offset
        source.end = INT64_MAX if end_offset is None else <int64_t>end_offset
        source.mask = NULL
        if mask is not None:
            keep = np.ascontiguousarray(mask, dtype=np.bool_).view(np.uint8)
            if <size_t>keep.shape[0] != batch._list.count:
                raise ValueError(f"mask of length {keep.shape[0]} for {batch._list.count} messages")
            if batch._list.count:
                source.mask = &keep[0]
        broker = batch.broker_name if broker_name is None else broker_name
        source.broker_name = _broker(broker)
        if batch._list.count >= RELEASE_GIL_MESSAGES:
            # `batch`, `mask` and `broker` are held by this call; the lock guards the columns.
            with nogil, self._lock:
                status = rmf_columns_append(self._columns, &source, &appended, &error)
        else:
            with self._lock:
                status = rmf_columns_append(self._columns, &source, &appended, &error)
        self._check(status, &error)
        if batch.errors:
            self._errors.extend(batch.errors)
        return appended

    cdef int _check(self, rmf_status status, const rmf_error *error) except -1:
        if status == RMF_ERR_LENGTH:
            name = (<bytes>error.field).decode("ascii")
            raise CodecError(f"column {name} would hold {error.value} bytes, an Arrow batch takes "
                             f"{error.limit}: put fewer messages into one")
        if status < 0:
            raise MemoryError("Arrow columns")
        return 0

    cdef bint _decode(self, rmf_slice buffer, bint check_crc, rmf_slice broker_name) except -1:
        """Append plain messages without an index of them; whether these were all there are."""
        cdef rmf_error error
        cdef rmf_status status
        cdef size_t position = 0
        if buffer.len >= RELEASE_GIL_BYTES:
            # decode_arrow holds the buffer and the name, and nobody else has this builder.
            with nogil:
                status = rmf_columns_decode(self._columns, buffer, check_crc, broker_name,
                                            &position, &error)
        else:
            status = rmf_columns_decode(self._columns, buffer, check_crc, broker_name, &position,
                                        &error)
        self._check(status, &error)
        return status == RMF_NEED_MORE

    @property
    def num_rows(self):
        """Messages appended since the last finish."""
        with self._lock:
            return rmf_columns_rows(self._columns)

    @property
    def nbytes(self):
        """Bytes of the columns appended since the last finish."""
        with self._lock:
            return rmf_columns_bytes(self._columns)

    def finish(self):
        """The rows as an ArrowBatch, with the errors of all appended batches; starts anew."""
        cdef ArrowBatch done = ArrowBatch.__new__(ArrowBatch)
        cdef rmf_table *table = NULL
        cdef rmf_status status
        with self._lock:
            status = rmf_columns_finish(self._columns, &table)
        if status != RMF_OK:
            raise MemoryError("Arrow columns")
        rmf_table_release(done._table)
        done._table = table
        done.errors, self._errors = self._errors, []
        return done

    def __repr__(self):
        return f"<ArrowBuilder of {len(self.columns)} columns, {self.num_rows} messages>"


cdef rmf_slice _broker(object name) except *:
    """The name's own UTF-8, NULL for None; borrowed from it."""
    cdef rmf_slice out
    out.ptr = NULL
    out.len = 0
    return out if name is None else utf8_of(name)


cdef tuple _checked(columns):
    """Column names, known and different."""
    names = tuple([columns] if isinstance(columns, str) else columns)
    for name in names:
        if name not in COLUMNS:
            near = difflib.get_close_matches(str(name), COLUMNS, 1, 0.0)
            raise ConfigError(f"unknown column {name!r}; did you mean {near[0]!r}?")
    if len(set(names)) != len(names):
        raise ConfigError(f"a column is named twice in {list(names)}")
    return names


def decode_arrow(buffer, *, columns=None, broker_name=None, bint decompress=True,
                 bint check_crc=False, size_t max_body=32 << 20):
    """Decode the messages of a pull body to an ArrowBatch.

    As decode_messages, without an object for any message: what cannot be decoded stands in `errors`.
    `columns` as in ArrowBuilder; `broker_name` fills its column. The buffer is not needed afterwards.
    """
    cdef ArrowBuilder builder = ArrowBuilder(columns)
    cdef rmf_slice broker = _broker(broker_name)
    cdef Py_buffer view
    cdef rmf_slice data
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data.ptr = <const uint8_t *>view.buf
        data.len = <size_t>view.len
        if builder._decode(data, check_crc, broker):
            return builder.finish()
    finally:
        PyBuffer_Release(&view)
    # Something has to be inflated, unwrapped or reported.
    builder = ArrowBuilder(builder.columns)
    builder.append(decode_messages(buffer, decompress=decompress, check_crc=check_crc,
                                   max_body=max_body), broker_name)
    return builder.finish()
