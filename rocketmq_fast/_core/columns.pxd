cimport cython

from rocketmq_fast._core.c_arrow cimport rmf_table
from rocketmq_fast._core.c_columns cimport rmf_columns
from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice, rmf_status


cdef class ArrowBatch:
    cdef rmf_table *_table
    cdef readonly list errors


cdef class ArrowBuilder:
    cdef rmf_columns *_columns
    cdef cython.pymutex _lock
    cdef list _errors
    cdef readonly tuple columns

    cdef int _check(self, rmf_status status, const rmf_error *error) except -1
    cdef bint _decode(self, rmf_slice buffer, bint check_crc, rmf_slice broker_name) except -1
