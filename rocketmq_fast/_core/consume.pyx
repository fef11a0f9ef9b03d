"""The inner loop of concurrent consumption: messages of a pull, listener calls, acknowledgements."""

cimport cython
from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t

from rocketmq_fast._core.message cimport MessageBatch, MessageExt
from rocketmq_fast._core.queue cimport ProcessQueue

import time

from rocketmq_fast.model import ConsumeStatus

cdef object _SUCCESS = ConsumeStatus.CONSUME_SUCCESS
cdef object _monotonic = time.monotonic

# Acknowledgements of calls this fast are gathered; a slower listener's progress is kept call by call.
cdef double GATHER_SECONDS = 0.002


@cython.freelist(16)
cdef class ConsumeContext:
    """What a concurrent listener is told, and may change, about one call.

    message_queue: where the messages came from.
    ack_index: after success, the index of the last message that counts as consumed; those behind it
        are sent back. -1: none.
    delay_level_when_next_consume: -1 dead-letter at once, 0 the broker decides, 1..18 that level.
    """

    def __init__(self, message_queue):
        self.message_queue = message_queue
        self.ack_index = INT_MAX


cdef class QueueState:
    """The part of an assigned queue that the loop looks at: its messages, and whether it is lost.

    Subclasses add `on_removed(offset)`, called after an acknowledgement with the offset to commit.
    """

    def __init__(self, message_queue):
        self.message_queue = message_queue
        self.process_queue = ProcessQueue()
        self.dropped = False

    def on_removed(self, offset):
        """Called after messages were acknowledged; -1 when nothing was waiting."""
        raise TypeError(f"{type(self).__name__} does not take acknowledgements")


cdef class Chunk:
    """Messages of one pull that wait for the listener. Workers claim them from the front,
    `batch_size` for a call.

    Claims are made under the lock of the service or, with a GIL, within one C call.
    """

    def __init__(self, QueueState queue not None, MessageBatch batch not None, size_t start,
                 size_t end, size_t batch_size):
        self.queue = queue
        self.batch = batch
        self.next = start
        self.end = end
        self.batch_size = batch_size if batch_size > 0 else 1

    @property
    def left(self):
        """Messages that nobody claimed yet."""
        return self.end - self.next

    @property
    def calls_left(self):
        """Listener calls that nobody claimed yet; none for a queue that was lost."""
        if self.queue.dropped:
            return 0
        return (self.end - self.next + self.batch_size - 1) // self.batch_size

    def give_up(self):
        """Let nobody claim what is left. Returns how many messages that is."""
        cdef size_t left = self.end - self.next
        self.end = self.next
        return left


cdef class ConsumeWorker:
    """One worker's way through chunks. `since` is the monotonic time at which the running listener
    call began, 0.0 between calls; `chunk`, `start`, `stop` say what it works on.
    """

    cdef int _acknowledge(self, Chunk chunk) except -1:
        """Remove what was consumed from the queue, and report the offset to commit."""
        cdef size_t start = self._done_start
        cdef size_t stop = self._done_stop
        cdef int64_t offset
        if start == stop:
            return 0
        self._done_start = stop  # before anything that could let another thread in here
        offset = chunk.queue.process_queue.remove_run(chunk.batch, start, stop)
        if not chunk.queue.dropped:
            chunk.queue.on_removed(offset)
        return 0

    def flush(self):
        """Acknowledge what was gathered. For other threads: the worker itself may be held up by a
        listener call, and what it did before must not wait for that."""
        cdef Chunk chunk = self.chunk
        if chunk is not None:
            self._acknowledge(chunk)

    def count(self, long long calls, double seconds):
        """Add listener calls that were made elsewhere."""
        self.calls += calls
        self.seconds += seconds

    def consume(self, Chunk chunk not None, listener, on_failure, stopping):
        """Claim batches of the chunk and call the listener until none is left.

        Ends early when the queue is dropped or stopping() is true. A result that is not plain success
        goes to on_failure(chunk, start, stop, messages, status, context, error), which settles these
        messages. Returns the number of messages claimed.
        """
        cdef MessageBatch batch = chunk.batch
        cdef QueueState queue = chunk.queue
        cdef ConsumeContext context
        cdef list messages
        cdef size_t claimed = 0
        cdef size_t start
        cdef size_t stop
        cdef double now = _monotonic()
        cdef double flushed = now
        cdef object status
        cdef object error
        self.chunk = chunk
        self._done_start = 0
        self._done_stop = 0
        try:
            while chunk.next < chunk.end and not queue.dropped:
                start = chunk.next
                stop = start + chunk.batch_size
                if stop > chunk.end:
                    stop = chunk.end
                chunk.next = stop
                claimed += stop - start
                if start != self._done_stop:
                    self._acknowledge(chunk)  # another worker claimed what lies between
                    self._done_start = start
                    self._done_stop = start
                messages = batch._messages_between(start, stop)
                # Without the arguments of a call: with one message a call, that is a tenth of it.
                context = ConsumeContext.__new__(ConsumeContext)
                context.message_queue = queue.message_queue
                context.ack_index = INT_MAX
                self.start = start
                self.stop = stop
                self.since = now
                error = None
                try:
                    status = listener(messages, context)
                except BaseException as raised:  # a listener must not take the worker down
                    status = None
                    error = raised
                self.since = 0.0
                self.calls += 1
                now = _monotonic()
                if queue.dropped:
                    break  # the result is void: another member has the queue now
                if status is _SUCCESS and context.ack_index >= <int>(stop - start) - 1:
                    self._done_stop = stop
                else:
                    self._acknowledge(chunk)
                    on_failure(chunk, start, stop, messages, status, context, error)
                    self._done_start = stop
                    self._done_stop = stop
                    now = _monotonic()
                if now - flushed > GATHER_SECONDS:
                    self._acknowledge(chunk)
                    self.seconds += now - flushed
                    flushed = now
                    if stopping():
                        break
        finally:
            self._acknowledge(chunk)
            self.chunk = None
            self.seconds += now - flushed
        return claimed
