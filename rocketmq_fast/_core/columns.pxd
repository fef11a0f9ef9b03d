cimport cython

from rocketmq_fast._core.c_arrow cimport rmf_table
from rocketmq_fast._core.c_columns cimport rmf_columns


cdef class ArrowBatch:
    cdef rmf_table *_table
    cdef readonly list errors


cdef class ArrowBuilder:
    cdef rmf_columns *_columns
    cdef cython.pymutex _lock
    cdef list _errors
    cdef readonly tuple columns
