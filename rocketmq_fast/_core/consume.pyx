"""The inner loops of consumption: messages that wait, listener calls, acknowledgements."""

cimport cython
from cpython.time cimport monotonic
from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t

from rocketmq_fast._core.message cimport MessageBatch, MessageExt
from rocketmq_fast._core.queue cimport ProcessQueue

from rocketmq_fast.model import ConsumeStatus, OrderlyStatus

cdef object _SUCCESS = ConsumeStatus.CONSUME_SUCCESS
cdef object _IN_ORDER = OrderlyStatus.SUCCESS

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


@cython.freelist(16)
cdef class OrderlyContext:
    """What an orderly listener is told, and may change, about one call.

    auto_commit: False leaves the commit to COMMIT; then ROLLBACK gives everything since the last
        commit again.
    suspend_current_queue_time_millis: how long SUSPEND and ROLLBACK wait; -1: the option's value.
    """

    def __cinit__(self, message_queue):
        self.message_queue = message_queue
        self.auto_commit = True
        self.suspend_current_queue_time_millis = -1


cdef class QueueState:
    """The part of an assigned queue that the loops look at: its messages, and whether it is lost.

    Orderly: `releasing`, it is to be given up once nobody is on it; `locked_until`, the monotonic time
    up to which the broker's lock is relied on. Subclasses add `on_removed(offset)`, called after an
    acknowledgement with the offset to commit.
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
    def topic(self):
        """The queue's; of retries, the retry topic."""
        return self.queue.message_queue.topic

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
    """One worker's way through chunks, or through queues in order.

    `calls`, `succeeded` (messages) and `seconds` count since the worker was made. On a chunk, `since` is
    the monotonic time at which the running listener call began, 0.0 between calls; `chunk`, `start`,
    `stop` say what it works on.
    """

    def __cinit__(self):
        self._committed = -1

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
        self._tell_commit()

    def consume(self, Chunk chunk not None, listener, on_failure, stopping):
        """Claim batches of the chunk and call the listener until none is left.

        Ends early when the queue is dropped or stopping() is true. A result that is not plain success
        goes to on_failure(chunk, start, stop, messages, status, context, error), which settles these
        messages and counts what succeeded of them.
        """
        cdef MessageBatch batch = chunk.batch
        cdef QueueState queue = chunk.queue
        cdef ConsumeContext context
        cdef list messages
        cdef size_t start
        cdef size_t stop
        cdef double now = monotonic()
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
                now = monotonic()
                if queue.dropped:
                    break  # the result is void: another member has the queue now
                if status is _SUCCESS and context.ack_index >= <int>(stop - start) - 1:
                    self._done_stop = stop
                    self.succeeded += <long long>(stop - start)
                else:
                    self._acknowledge(chunk)
                    on_failure(chunk, start, stop, messages, status, context, error)
                    self._done_start = stop
                    self._done_stop = stop
                    now = monotonic()
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

    cdef int _tell_commit(self) except -1:
        """Report the offset up to which messages were committed in order."""
        cdef QueueState queue = self._queue
        cdef int64_t offset = self._committed
        if queue is None or offset < 0:
            return 0
        if not queue.dropped:
            queue.on_removed(offset)
        # Only now: a worker that finds nothing to tell may give the queue up. Twice does no harm.
        if self._committed == offset:
            self._committed = -1
        return 0

    def consume_in_order(self, QueueState queue not None, size_t batch_size, listener, settle, pause):
        """Take messages in offset order and call the listener until none is left.

        pause(now) is asked first, then every GATHER_SECONDS, and when the queue is to be released or its
        lock has run out. A result that is not plain success goes to settle(queue, messages, context,
        status, error). Whatever the two return, other than None, ends the turn and is returned. None
        is returned when nothing is left, or the queue is lost.
        """
        cdef OrderlyContext context
        cdef list messages
        cdef object status
        cdef object error
        cdef object wait = None
        cdef double begun
        cdef double now = monotonic()
        cdef double asked = now - 1.0
        self._queue = queue
        self._committed = -1
        try:
            while not queue.dropped:
                if now - asked > GATHER_SECONDS or queue.releasing or now >= queue.locked_until:
                    self._tell_commit()
                    asked = now
                    wait = pause(now)
                    if wait is not None:
                        break
                messages = queue.process_queue.take(batch_size)
                if not messages:
                    break
                context = OrderlyContext.__new__(OrderlyContext, queue.message_queue)
                error = None
                begun = now
                try:
                    status = listener(messages, context)
                except BaseException as raised:  # a listener must not take the worker down
                    status = None
                    error = raised
                now = monotonic()
                self.calls += 1
                self.seconds += now - begun
                if queue.dropped:
                    break  # the result is void: the lock, or the offset, was lost meanwhile
                if status is _IN_ORDER and context.auto_commit:
                    self.succeeded += <long long>len(messages)
                    self._committed = queue.process_queue.commit()
                else:
                    self._tell_commit()
                    wait = settle(queue, messages, context, status, error)
                    if wait is not None:
                        break
                    now = monotonic()  # a lock may have run out meanwhile
        finally:
            self._tell_commit()
            self._queue = None
        return wait
