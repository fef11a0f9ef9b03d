"""The producer's side of the codec: properties, batch bodies, unique ids, checksums."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memset

from rocketmq_fast._core.c_buffer cimport rmf_buffer, rmf_buffer_clear, rmf_buffer_init
from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice
from rocketmq_fast._core.c_crc32 cimport rmf_crc32_body, rmf_crc32_kernel
from rocketmq_fast._core.c_encode cimport (
    RMF_UNIQUE_ID_CHARS,
    rmf_encode_element_begin,
    rmf_encode_element_end,
    rmf_encode_property,
    rmf_encode_unique_id,
)
from rocketmq_fast._core.c_properties cimport rmf_properties_next, rmf_property
from rocketmq_fast._core.status cimport check
from rocketmq_fast._core.text cimport checked_utf8, text_of

import os
import time

from rocketmq_fast.errors import MessageDecodeError, MessageEncodeError


cdef int _append_properties(rmf_buffer *out, size_t start, dict properties) except -1:
    cdef rmf_error error
    cdef rmf_slice key
    cdef rmf_slice text
    memset(&error, 0, sizeof(error))
    for name, value in properties.items():
        key = checked_utf8(name, "property name", MessageEncodeError)
        text = checked_utf8(value, f"property {name!r}", MessageEncodeError)
        check(rmf_encode_property(out, start, key, text, &error), &error, MessageEncodeError)
    return 0


def encode_properties(dict properties not None):
    """Property string of a message, as UTF-8 bytes, without a last separator (as 4.9.4 writes it).

    Raises MessageEncodeError when a name or value is no str or holds U+0001 or U+0002.
    """
    cdef rmf_buffer out
    rmf_buffer_init(&out)
    try:
        _append_properties(&out, 0, properties)
        return PyBytes_FromStringAndSize(<const char *>out.data, <Py_ssize_t>out.size)
    finally:
        rmf_buffer_clear(&out)


def decode_properties(bytes data not None):
    """Properties of a message: entries without name or value are dropped, later duplicates win."""
    cdef rmf_slice text
    cdef rmf_property entry
    cdef size_t pos = 0
    cdef dict table = {}
    text.ptr = <const uint8_t *>PyBytes_AS_STRING(data)
    text.len = <size_t>PyBytes_GET_SIZE(data)
    while rmf_properties_next(text, &pos, &entry):
        table[text_of(entry.name)] = text_of(entry.value)
    return table


def encode_batch(elements):
    """Body of a batch send from (flag, body, properties) triples, body any buffer, properties a dict.

    Raises MessageEncodeError for properties over 32767 bytes or that cannot be written.
    """
    cdef rmf_buffer out
    cdef rmf_error error
    cdef rmf_slice body_slice
    cdef Py_buffer view
    cdef size_t start = 0
    cdef size_t properties_start = 0
    memset(&error, 0, sizeof(error))
    rmf_buffer_init(&out)
    try:
        for flag, body, properties in elements:
            PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
            try:
                body_slice.ptr = <const uint8_t *>view.buf
                body_slice.len = <size_t>view.len
                check(rmf_encode_element_begin(&out, flag, body_slice, &start, &properties_start,
                                               &error), &error, MessageEncodeError)
            finally:
                PyBuffer_Release(&view)
            _append_properties(&out, properties_start, properties)
            check(rmf_encode_element_end(&out, start, properties_start, &error), &error,
                  MessageEncodeError)
        return PyBytes_FromStringAndSize(<const char *>out.data, <Py_ssize_t>out.size)
    finally:
        rmf_buffer_clear(&out)


cdef class UniqueIdGenerator:
    """Makes unique ids of messages. One per process; made anew in a forked child.

    `ip` is 4 bytes. Thread-safe under the GIL: the counter is drawn in one step.
    """

    cdef uint8_t _prefix[10]
    cdef uint32_t _counter
    cdef double _month_start
    cdef double _month_end

    def __cinit__(self, bytes ip not None):
        cdef int i
        if PyBytes_GET_SIZE(ip) != 4:
            raise MessageEncodeError(f"an id holds 4 address bytes, not {len(ip)}")
        prefix = ip + (os.getpid() & 0xFFFF).to_bytes(2, "big") + os.urandom(4)
        for i in range(10):
            self._prefix[i] = prefix[i]
        self._counter = 0
        self._month_end = 0

    cdef int _new_month(self, double now) except -1:
        # Java counts from midnight, local time, of the first day of the current month.
        t = time.localtime(now)
        self._month_start = time.mktime((t.tm_year, t.tm_mon, 1, 0, 0, 0, 0, 0, -1))
        self._month_end = time.mktime((t.tm_year, t.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))
        return 0

    def create(self):
        """A new id, 32 hex digits."""
        cdef char text[RMF_UNIQUE_ID_CHARS]
        cdef double now = time.time()
        cdef uint32_t counter = self._counter
        self._counter = counter + 1
        if now >= self._month_end or now < self._month_start:
            self._new_month(now)
        rmf_encode_unique_id(self._prefix, <uint32_t>((now - self._month_start) * 1000.0),
                             <uint16_t>counter, text)
        return PyUnicode_DecodeASCII(text, RMF_UNIQUE_ID_CHARS, NULL)


def crc32(data):
    """Body checksum of a stored message: CRC-32 with the top bit cleared, 0 for no bytes."""
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        crc = rmf_crc32_body(<const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return crc


def crc32_kernel():
    """Which CRC kernel this machine runs."""
    return (<bytes>rmf_crc32_kernel()).decode("ascii")
