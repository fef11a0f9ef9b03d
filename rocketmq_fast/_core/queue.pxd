from libc.stdint cimport int64_t

from rocketmq_fast._core.c_queue cimport rmf_queue
from rocketmq_fast._core.message cimport MessageBatch

cdef extern from *:
    """
    /* With a GIL an operation, which never releases it, is one step already: a lock would only cost
     * (40 ns a call on CPython 3.11, as much as a batch of messages). Without one it takes a PyMutex. */
    #ifdef Py_GIL_DISABLED
    typedef PyMutex rmf_guard;
    #define rmf_guard_lock(guard) PyMutex_Lock(guard)
    #define rmf_guard_unlock(guard) PyMutex_Unlock(guard)
    #else
    typedef char rmf_guard;
    #define rmf_guard_lock(guard) ((void)(guard))
    #define rmf_guard_unlock(guard) ((void)(guard))
    #endif
    """
    ctypedef char rmf_guard
    void rmf_guard_lock(rmf_guard *guard)
    void rmf_guard_unlock(rmf_guard *guard)


cdef class ProcessQueue:
    cdef rmf_queue *_queue
    cdef rmf_guard _guard

    cpdef list take(self, size_t limit)
    cpdef int64_t commit(self) except? -2
    cdef int64_t remove_run(self, MessageBatch batch, size_t start, size_t stop) except? -2
    cdef int _release(self, void *owner) except -1
