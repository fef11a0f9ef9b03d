"""ProcessQueue: the messages of one queue that were pulled and are not acknowledged yet."""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from rocketmq_fast._core.c_common cimport rmf_alloc_array, rmf_free, rmf_status
from rocketmq_fast._core.c_queue cimport (
    rmf_bool,
    rmf_queue_body_bytes,
    rmf_queue_check,
    rmf_queue_clear,
    rmf_queue_commit,
    rmf_queue_count,
    rmf_queue_first,
    rmf_queue_free,
    rmf_queue_item,
    rmf_queue_make_consume_again,
    rmf_queue_max_offset,
    rmf_queue_min_offset,
    rmf_queue_new,
    rmf_queue_next_released,
    rmf_queue_put,
    rmf_queue_remove,
    rmf_queue_remove_messages,
    rmf_queue_rollback,
    rmf_queue_span,
    rmf_queue_take,
    rmf_queue_taken_count,
    rmf_queue_taken_max_offset,
    rmf_queue_taken_min_offset,
)
from rocketmq_fast._core.message cimport MessageBatch

import numpy as np


cdef object _offset_array(offsets):
    return np.ascontiguousarray(offsets, dtype=np.int64)


cdef class ProcessQueue:
    """Ordered map of queue offsets with count, bytes and span.

    Any number of threads may call it, with or without a GIL: every operation holds the queue's lock.
    Operations on a batch cost a few ns a message, so they keep the GIL; with one, they never wait.
    The queue keeps a batch alive as long as one of its messages is in it.
    """

    def __cinit__(self):
        self._queue = rmf_queue_new()
        if self._queue == NULL:
            raise MemoryError("process queue")

    def __dealloc__(self):
        if self._queue != NULL:
            rmf_queue_clear(self._queue)
            self._release(rmf_queue_next_released(self._queue))
            rmf_queue_free(self._queue)

    cdef int _release(self, void *owner) except -1:
        """Give back `owner` and every other batch that no message of the queue needs any more."""
        while owner != NULL:
            Py_DECREF(<object>owner)  # may run code of any kind, so never under the guard
            rmf_guard_lock(&self._guard)
            owner = rmf_queue_next_released(self._queue)
            rmf_guard_unlock(&self._guard)
        return 0

    def put(self, MessageBatch batch not None):
        """Insert the messages of a batch; offsets that are there already are left alone.

        Returns whether nobody was consuming and something waits now (an orderly task is due).
        """
        cdef size_t inserted = 0
        cdef rmf_bool dispatch = False
        cdef rmf_status status
        Py_INCREF(batch)  # on behalf of the queue
        rmf_guard_lock(&self._guard)
        status = rmf_queue_put(self._queue, <void *>batch, &batch._list, &inserted, &dispatch)
        rmf_guard_unlock(&self._guard)
        if status < 0:
            Py_DECREF(batch)
            raise MemoryError("process queue")
        if inserted == 0:
            Py_DECREF(batch)
        return dispatch

    cdef int64_t remove_run(self, MessageBatch batch, size_t start, size_t stop) except? -2:
        """Remove messages start..stop of a batch; the offset to commit, as `remove`."""
        cdef int64_t offset
        cdef void *released
        rmf_guard_lock(&self._guard)
        offset = rmf_queue_remove_messages(self._queue, &batch._list, start, stop)
        released = rmf_queue_next_released(self._queue)
        rmf_guard_unlock(&self._guard)
        self._release(released)
        return offset

    def remove_batch(self, MessageBatch batch not None, size_t start=0, stop=None):
        """As `remove` for messages start..stop of a batch."""
        cdef size_t end = batch._list.count if stop is None else <size_t>stop
        if start > end or end > batch._list.count:
            raise IndexError(f"messages {start}..{end} of a batch of {batch._list.count}")
        return self.remove_run(batch, start, end)

    def remove(self, offsets):
        """Remove these offsets; absent ones are ignored.

        Returns the offset to commit: the smallest one left, or the largest ever put plus one when none
        is left, or -1 when nothing was waiting before.
        """
        cdef void *released
        cdef const int64_t[::1] array = _offset_array(offsets)
        cdef size_t count = <size_t>array.shape[0]
        cdef int64_t offset
        rmf_guard_lock(&self._guard)
        offset = rmf_queue_remove(self._queue, &array[0] if count else NULL, count)
        released = rmf_queue_next_released(self._queue)
        rmf_guard_unlock(&self._guard)
        self._release(released)
        return offset

    cpdef list take(self, size_t limit):
        """List of up to `limit` messages with the smallest offsets, which count as taken now."""
        cdef rmf_queue_item *items
        cdef int64_t count
        cdef int64_t i
        cdef size_t waiting
        cdef void *released
        cdef list messages = []
        rmf_guard_lock(&self._guard)
        waiting = rmf_queue_count(self._queue)
        rmf_guard_unlock(&self._guard)
        if limit > waiting:
            limit = waiting
        items = <rmf_queue_item *>rmf_alloc_array(limit, sizeof(rmf_queue_item))
        if items == NULL:
            raise MemoryError("process queue")
        rmf_guard_lock(&self._guard)
        count = rmf_queue_take(self._queue, limit, items)
        for i in range(count):
            Py_INCREF(<object>items[i].owner)  # others may empty the queue meanwhile
        released = rmf_queue_next_released(self._queue)
        rmf_guard_unlock(&self._guard)
        try:
            self._release(released)  # of a message that was put again while it was taken
            if count < 0:
                raise MemoryError("process queue")
            for i in range(count):
                messages.append((<MessageBatch>items[i].owner)._message_at(items[i].index))
        finally:
            for i in range(count):
                Py_DECREF(<object>items[i].owner)
            rmf_free(items)
        return messages

    cpdef int64_t commit(self) except? -2:
        """Drop the taken messages. Returns the largest taken offset plus one, -1 when none was taken."""
        cdef void *released
        cdef int64_t offset
        rmf_guard_lock(&self._guard)
        offset = rmf_queue_commit(self._queue)
        released = rmf_queue_next_released(self._queue)
        rmf_guard_unlock(&self._guard)
        self._release(released)
        return offset

    def rollback(self):
        """Put all taken messages back among the waiting ones."""
        cdef void *released
        cdef rmf_status status
        rmf_guard_lock(&self._guard)
        status = rmf_queue_rollback(self._queue)
        released = rmf_queue_next_released(self._queue)
        rmf_guard_unlock(&self._guard)
        self._release(released)
        if status < 0:
            raise MemoryError("process queue")

    def make_consume_again(self, offsets):
        """Put these taken messages back among the waiting ones; others are ignored."""
        cdef void *released
        cdef const int64_t[::1] array = _offset_array(offsets)
        cdef size_t count = <size_t>array.shape[0]
        cdef rmf_status status
        rmf_guard_lock(&self._guard)
        status = rmf_queue_make_consume_again(self._queue, &array[0] if count else NULL, count)
        released = rmf_queue_next_released(self._queue)
        rmf_guard_unlock(&self._guard)
        self._release(released)
        if status < 0:
            raise MemoryError("process queue")

    def clear(self):
        """Forget everything, the largest offset included."""
        cdef void *released
        rmf_guard_lock(&self._guard)
        rmf_queue_clear(self._queue)
        released = rmf_queue_next_released(self._queue)
        rmf_guard_unlock(&self._guard)
        self._release(released)

    def first(self):
        """The waiting message with the smallest offset, or None."""
        cdef rmf_queue_item item
        cdef bint found
        cdef MessageBatch batch
        rmf_guard_lock(&self._guard)
        found = rmf_queue_first(self._queue, &item)
        if found:
            Py_INCREF(<object>item.owner)
        rmf_guard_unlock(&self._guard)
        if not found:
            return None
        batch = <MessageBatch>item.owner
        Py_DECREF(batch)  # `batch` holds a reference of its own
        return batch._message_at(item.index)

    @property
    def count(self):
        """Messages in the queue, waiting and taken."""
        cdef int64_t value
        rmf_guard_lock(&self._guard)
        value = <int64_t>rmf_queue_count(self._queue)
        rmf_guard_unlock(&self._guard)
        return value

    @property
    def taken_count(self):
        """Messages that `take` gave out."""
        cdef int64_t value
        rmf_guard_lock(&self._guard)
        value = <int64_t>rmf_queue_taken_count(self._queue)
        rmf_guard_unlock(&self._guard)
        return value

    @property
    def size(self):
        """Body bytes in the queue."""
        cdef int64_t value
        rmf_guard_lock(&self._guard)
        value = rmf_queue_body_bytes(self._queue)
        rmf_guard_unlock(&self._guard)
        return value

    @property
    def span(self):
        """Largest minus smallest waiting offset, 0 when none waits."""
        cdef int64_t value
        rmf_guard_lock(&self._guard)
        value = rmf_queue_span(self._queue)
        rmf_guard_unlock(&self._guard)
        return value

    @property
    def min_offset(self):
        """Smallest waiting offset, -1 when none waits."""
        cdef int64_t value
        rmf_guard_lock(&self._guard)
        value = rmf_queue_min_offset(self._queue)
        rmf_guard_unlock(&self._guard)
        return value

    @property
    def max_offset(self):
        """Largest waiting offset, -1 when none waits."""
        cdef int64_t value
        rmf_guard_lock(&self._guard)
        value = rmf_queue_max_offset(self._queue)
        rmf_guard_unlock(&self._guard)
        return value

    @property
    def taken_min_offset(self):
        """Smallest taken offset, -1 when none is taken."""
        cdef int64_t value
        rmf_guard_lock(&self._guard)
        value = rmf_queue_taken_min_offset(self._queue)
        rmf_guard_unlock(&self._guard)
        return value

    @property
    def taken_max_offset(self):
        """Largest taken offset, -1 when none is taken."""
        cdef int64_t value
        rmf_guard_lock(&self._guard)
        value = rmf_queue_taken_max_offset(self._queue)
        rmf_guard_unlock(&self._guard)
        return value

    def check(self):
        """Walk every invariant; raises AssertionError with the broken one. For tests."""
        cdef const char *reason = NULL
        cdef bint sound
        rmf_guard_lock(&self._guard)
        sound = rmf_queue_check(self._queue, &reason)
        rmf_guard_unlock(&self._guard)
        if not sound:
            raise AssertionError((<bytes>reason).decode("ascii"))

    def __len__(self):
        return self.count

    def __repr__(self):
        return (f"<ProcessQueue {self.count} messages, {self.size} bytes, "
                f"from {self.min_offset} to {self.max_offset}>")
