cimport cython
from libc.stdint cimport int64_t

from rocketmq_fast._core.c_queue cimport rmf_queue
from rocketmq_fast._core.message cimport MessageBatch


cdef class ProcessQueue:
    cdef rmf_queue *_queue
    cdef cython.pymutex _lock

    cdef int64_t remove_run(self, MessageBatch batch, size_t start, size_t stop) except? -2
    cdef int _release(self) except -1
