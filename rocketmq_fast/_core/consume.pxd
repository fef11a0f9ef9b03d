from rocketmq_fast._core.message cimport MessageBatch
from rocketmq_fast._core.queue cimport ProcessQueue


cdef class ConsumeContext:
    cdef readonly object message_queue
    cdef public int ack_index
    cdef public int delay_level_when_next_consume


cdef class QueueState:
    cdef readonly object message_queue
    cdef readonly ProcessQueue process_queue
    cdef public bint dropped


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
    cdef readonly double seconds
    cdef size_t _done_start
    cdef size_t _done_stop

    cdef int _acknowledge(self, Chunk chunk) except -1
