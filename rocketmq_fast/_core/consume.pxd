from libc.stdint cimport int64_t

from rocketmq_fast._core.message cimport MessageBatch
from rocketmq_fast._core.queue cimport ProcessQueue


cdef class ConsumeContext:
    cdef readonly object message_queue
    cdef public int ack_index
    cdef public int delay_level_when_next_consume


cdef class OrderlyContext:
    cdef public object message_queue
    cdef public bint auto_commit
    cdef public object suspend_current_queue_time_millis


cdef class QueueState:
    cdef readonly object message_queue
    cdef readonly ProcessQueue process_queue
    cdef public bint dropped
    cdef public bint releasing
    cdef public double locked_until


cdef class Chunk:
    cdef readonly QueueState queue
    cdef readonly MessageBatch batch
    cdef readonly size_t next
    cdef readonly size_t end
    cdef readonly size_t batch_size


cdef class ConsumeWorker:
    cdef readonly Chunk chunk
    cdef readonly size_t start
    cdef readonly size_t stop
    cdef readonly double since
    cdef readonly long long calls
    cdef readonly long long succeeded
    cdef readonly double seconds
    cdef size_t _done_start
    cdef size_t _done_stop
    cdef QueueState _queue
    cdef int64_t _committed

    cdef int _acknowledge(self, Chunk chunk) except -1
    cdef int _tell_commit(self) except -1
