"""Stored messages of a pull answer: a batch of views over one buffer."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from rocketmq_fast._core.c_common cimport (
    RMF_NEED_MORE,
    RMF_OK,
    rmf_error,
    rmf_slice,
    rmf_status,
)
from rocketmq_fast._core.c_message cimport (
    RMF_SYS_COMPRESSION_MASK,
    rmf_batch_element_decode,
    rmf_message,
    rmf_message_body_crc,
    rmf_message_born_host,
    rmf_message_born_timestamp_ms,
    rmf_message_commit_log_offset,
    rmf_message_decode,
    rmf_message_fault,
    rmf_message_find_property,
    rmf_message_flag,
    rmf_message_is_compressed,
    rmf_message_is_inner_batch,
    rmf_message_offset_id,
    rmf_message_prepared_transaction_offset,
    rmf_message_properties,
    rmf_message_queue_id,
    rmf_message_reconsume_times,
    rmf_message_store_host,
    rmf_message_store_size,
    rmf_message_store_timestamp_ms,
    rmf_message_sys_flag,
    rmf_message_topic,
)
from rocketmq_fast._core.c_message_list cimport (
    rmf_message_list,
    rmf_message_list_append,
    rmf_message_list_clear,
    rmf_message_list_shrink,
)
from rocketmq_fast._core.c_properties cimport rmf_properties_next, rmf_property
from rocketmq_fast._core.c_tags cimport rmf_message_tag_code
from rocketmq_fast._core.frame cimport RemotingCommand
from rocketmq_fast._core.status cimport describe
from rocketmq_fast._core.text cimport text_of

import socket

import numpy as np

from rocketmq_fast._core.inflate import inflate
from rocketmq_fast.errors import MessageDecodeError

# Below this size a decode takes less time than another thread needs to take the GIL and give it back.
cdef size_t RELEASE_GIL_BYTES = 1 << 18
# Inflated bytes per decoded buffer, in units of max_body.
cdef size_t INFLATED_BODIES_MAX = 4

cdef enum:
    COLUMN_QUEUE_OFFSET
    COLUMN_QUEUE_ID
    COLUMN_COMMIT_LOG_OFFSET
    COLUMN_BODY_SIZE
    COLUMN_STORE_SIZE
    COLUMN_BORN_TIMESTAMP
    COLUMN_STORE_TIMESTAMP
    COLUMN_SYS_FLAG
    COLUMN_FLAG
    COLUMN_RECONSUME_TIMES
    COLUMN_TAG_CODE


cdef tuple _host(rmf_slice host):
    """(ip, port) of address bytes and a 4-byte port."""
    cdef const uint8_t *p = host.ptr
    cdef size_t ip_len = host.len - 4
    cdef uint32_t port = ((<uint32_t>p[ip_len] << 24) | (<uint32_t>p[ip_len + 1] << 16)
                          | (<uint32_t>p[ip_len + 2] << 8) | p[ip_len + 3])
    if ip_len == 4:
        return (f"{p[0]}.{p[1]}.{p[2]}.{p[3]}", port)
    return (socket.inet_ntop(socket.AF_INET6, p[:16]), port)


cdef int64_t _value(const rmf_message *m, int kind) noexcept nogil:
    if kind == COLUMN_QUEUE_OFFSET:
        return m.queue_offset
    if kind == COLUMN_QUEUE_ID:
        return rmf_message_queue_id(m)
    if kind == COLUMN_COMMIT_LOG_OFFSET:
        return rmf_message_commit_log_offset(m)
    if kind == COLUMN_BODY_SIZE:
        return m.body_len
    if kind == COLUMN_STORE_SIZE:
        return rmf_message_store_size(m)
    if kind == COLUMN_BORN_TIMESTAMP:
        return rmf_message_born_timestamp_ms(m)
    if kind == COLUMN_STORE_TIMESTAMP:
        return rmf_message_store_timestamp_ms(m)
    if kind == COLUMN_SYS_FLAG:
        return rmf_message_sys_flag(m)
    if kind == COLUMN_FLAG:
        return rmf_message_flag(m)
    if kind == COLUMN_RECONSUME_TIMES:
        return rmf_message_reconsume_times(m)
    return rmf_message_tag_code(m)


cdef class MessageBatch:
    """The messages of one buffer, as a sequence of MessageExt views that are made when asked for.

    Holds the buffer; the views hold the batch. `errors` lists (position, queue_offset or None, reason)
    of messages that could not be decoded. Numeric columns are int64 arrays of the batch's length.
    Immutable once decoded, so threads may share it.
    """

    def __cinit__(self):
        self.errors = []
        self.min_offset = -1
        self.max_offset = -1

    def __dealloc__(self):
        rmf_message_list_clear(&self._list)
        if self._has_view:
            PyBuffer_Release(&self._view)

    cdef int _append(self, const rmf_message *message) except -1:
        if rmf_message_list_append(&self._list, message) != RMF_OK:
            raise MemoryError("message index")
        return 0

    cdef int _decode(self, const uint8_t *data, size_t size, bint check_crc, bint decompress,
                     size_t max_body) except -1:
        """Index `data`, which the batch's owner keeps alive."""
        cdef rmf_slice buffer
        cdef rmf_message_fault fault
        cdef rmf_status status
        cdef size_t position = 0
        buffer.ptr = data
        buffer.len = size
        while True:
            if size - position >= RELEASE_GIL_BYTES:
                # The batch is not shared yet and `data` is held by the caller's owner object.
                with nogil:
                    status = _index(self, buffer, &position, check_crc, &fault)
            else:
                status = _index(self, buffer, &position, check_crc, &fault)
            if status == RMF_NEED_MORE:
                break
            if status == RMF_OK:
                raise MemoryError("message index")
            self.errors.append((fault.message_position, _known_offset(fault.queue_offset),
                                describe(&fault.error)))
            if not fault.resumable:
                break
        if self._special:
            self._expand(data, decompress, max_body)
        rmf_message_list_shrink(&self._list)
        return 0

    cdef int _expand(self, const uint8_t *data, bint decompress, size_t max_body) except -1:
        """Inflate compressed bodies and unwrap inner batches: rebuilds the index."""
        cdef rmf_message_list stored = self._list
        cdef size_t budget = max_body * INFLATED_BODIES_MAX
        cdef size_t cap
        cdef size_t i
        cdef rmf_message *m
        cdef bytes body
        memset(&self._list, 0, sizeof(self._list))
        self._bodies = []
        try:
            for i in range(stored.count):
                m = &stored.messages[i]
                if rmf_message_is_compressed(m) and decompress:
                    cap = max_body if max_body < budget else budget
                    try:
                        body = inflate(
                            rmf_message_sys_flag(m) & RMF_SYS_COMPRESSION_MASK,
                            PyMemoryView_FromMemory(<char *>m.body, m.body_len, PyBUF_READ),
                            cap)
                    except MessageDecodeError as error:
                        self.errors.append((m.head - data, _known_offset(m.queue_offset),
                                            str(error)))
                        continue
                    budget -= <size_t>PyBytes_GET_SIZE(body)
                    self._bodies.append(body)
                    m.body = <const uint8_t *>PyBytes_AS_STRING(body)
                    m.body_len = <uint32_t>PyBytes_GET_SIZE(body)
                    m.inflated = 1
                if rmf_message_is_inner_batch(m) and (decompress
                                                      or not rmf_message_is_compressed(m)):
                    _unwrap(self, data, m)
                else:
                    self._append(m)
        finally:
            rmf_message_list_clear(&stored)
        self.errors.sort(key=_error_position)
        return 0

    @cython.final
    cdef MessageExt _message_at(self, size_t index):
        cdef MessageExt message = MessageExt.__new__(MessageExt)
        message._batch = self
        message._m = &self._list.messages[index]
        return message

    @cython.final
    cdef list _messages_between(self, size_t start, size_t stop):
        cdef list messages = PyList_New(<Py_ssize_t>(stop - start))
        cdef MessageExt message
        cdef size_t i
        for i in range(start, stop):
            message = self._message_at(i)
            Py_INCREF(message)  # the list's, which PyList_SET_ITEM hands over
            PyList_SET_ITEM(messages, <Py_ssize_t>(i - start), message)
        return messages

    def __len__(self):
        return self._list.count

    def __getitem__(self, index):
        cdef Py_ssize_t i
        if isinstance(index, slice):
            return [self._message_at(<size_t>i) for i in range(*index.indices(self._list.count))]
        i = index
        if i < 0:
            i += <Py_ssize_t>self._list.count
        if i < 0 or i >= <Py_ssize_t>self._list.count:
            raise IndexError(f"message {index} of a batch of {self._list.count}")
        return self._message_at(<size_t>i)

    def __iter__(self):
        cdef size_t i
        for i in range(self._list.count):
            yield self._message_at(i)

    def to_list(self):
        """All messages, as a list of views."""
        return self._messages_between(0, self._list.count)

    cdef MessageBatch _empty_copy(self):
        """A batch over the same buffer, for some of the messages."""
        cdef MessageBatch copy = MessageBatch.__new__(MessageBatch)
        copy._owner = self  # which holds the buffer and the inflated bodies
        copy.errors = self.errors
        copy.broker_name = self.broker_name
        copy.min_offset = self.min_offset
        copy.max_offset = self.max_offset
        copy.restore_topic = self.restore_topic
        return copy

    cdef int _append_run(self, MessageBatch source, size_t start, size_t stop) except -1:
        cdef size_t i
        for i in range(start, stop):
            self._append(&source._list.messages[i])
        return 0

    def retain(self, mask):
        """A batch of the messages whose place in the boolean `mask` is true; shares the buffer."""
        cdef const uint8_t[::1] keep = np.ascontiguousarray(mask, dtype=np.bool_).view(np.uint8)
        cdef MessageBatch kept
        cdef size_t i
        if <size_t>keep.shape[0] != self._list.count:
            raise ValueError(f"mask of length {keep.shape[0]} for {self._list.count} messages")
        kept = self._empty_copy()
        for i in range(self._list.count):
            if keep[i]:
                kept._append(&self._list.messages[i])
        return kept

    cdef object _column(self, int kind):
        array = np.empty(self._list.count, dtype=np.int64)
        cdef int64_t[::1] out = array
        cdef size_t i
        for i in range(self._list.count):
            out[i] = _value(&self._list.messages[i], kind)
        return array

    @property
    def queue_offsets(self):
        """Offset in the queue."""
        return self._column(COLUMN_QUEUE_OFFSET)

    @property
    def queue_ids(self):
        """Queue id."""
        return self._column(COLUMN_QUEUE_ID)

    @property
    def commit_log_offsets(self):
        """Physical position in the broker's log."""
        return self._column(COLUMN_COMMIT_LOG_OFFSET)

    @property
    def body_sizes(self):
        """Bytes of the body, inflated where it was compressed."""
        return self._column(COLUMN_BODY_SIZE)

    @property
    def store_sizes(self):
        """Bytes of the stored message."""
        return self._column(COLUMN_STORE_SIZE)

    @property
    def born_timestamps(self):
        """Milliseconds since the epoch, producer's clock."""
        return self._column(COLUMN_BORN_TIMESTAMP)

    @property
    def store_timestamps(self):
        """Milliseconds since the epoch, broker's clock."""
        return self._column(COLUMN_STORE_TIMESTAMP)

    @property
    def sys_flags(self):
        """System flags, as stored."""
        return self._column(COLUMN_SYS_FLAG)

    @property
    def flags(self):
        """User flags."""
        return self._column(COLUMN_FLAG)

    @property
    def reconsume_times(self):
        """How often each message was sent back."""
        return self._column(COLUMN_RECONSUME_TIMES)

    @property
    def tag_codes(self):
        """Java hash of each tag, 0 without one."""
        return self._column(COLUMN_TAG_CODE)

    @property
    def body_bytes(self):
        """Sum of the body sizes."""
        return self._list.body_bytes

    def __repr__(self):
        bad = f", {len(self.errors)} undecodable" if self.errors else ""
        return f"<MessageBatch of {self._list.count} messages{bad}>"


cdef object _known_offset(int64_t offset):
    """What an entry of `errors` says: a negative offset is no place in a queue."""
    return None if offset < 0 else offset


def _error_position(entry):
    return entry[0]


cdef rmf_status _index(MessageBatch batch, rmf_slice buffer, size_t *position, bint check_crc,
                       rmf_message_fault *fault) noexcept nogil:
    """Index messages until the end (RMF_NEED_MORE), a fault, or no memory (RMF_OK)."""
    cdef rmf_message message
    cdef rmf_status status
    cdef size_t next = 0
    while True:
        status = rmf_message_decode(buffer, position[0], check_crc, &message, &next, fault)
        if status != RMF_OK:
            if status != RMF_NEED_MORE and fault.resumable:
                position[0] = next
            return status
        if rmf_message_list_append(&batch._list, &message) != RMF_OK:
            return RMF_OK
        batch._special += (rmf_message_is_compressed(&message)
                           or rmf_message_is_inner_batch(&message))
        position[0] = next


cdef int _unwrap(MessageBatch batch, const uint8_t *data, const rmf_message *outer) except -1:
    """Append the messages of an inner batch. An element's offset is the outer offset plus its rank
    (MessageDecoder.decodeMessage, 5.3.3)."""
    cdef rmf_slice body
    cdef rmf_message element
    cdef rmf_error error
    cdef rmf_status status
    cdef size_t position = 0
    cdef size_t next = 0
    cdef int64_t rank = 0
    body.ptr = outer.body
    body.len = outer.body_len
    while True:
        status = rmf_batch_element_decode(body, position, outer, outer.queue_offset + rank,
                                          &element, &next, &error)
        if status == RMF_NEED_MORE:
            return 0
        if status != RMF_OK:
            batch.errors.append((outer.head - data, _known_offset(outer.queue_offset + rank),
                                 f"inner batch: {describe(&error)}"))
            return 0
        batch._append(&element)
        rank += 1
        position = next


def decode_messages(buffer, *, bint decompress=True, bint check_crc=False,
                    size_t max_body=32 << 20):
    """Decode the messages of a pull body.

    Never raises for what the buffer holds: a message that cannot be decoded stands in the batch's
    `errors`, its neighbours are in the batch. With `decompress`, bodies are inflated, each to at most
    `max_body` bytes and all together to at most four times that; without, they stay as stored.
    The buffer must not change while the batch lives.
    """
    cdef MessageBatch batch = MessageBatch.__new__(MessageBatch)
    PyObject_GetBuffer(buffer, &batch._view, PyBUF_SIMPLE)
    batch._has_view = True
    batch._decode(<const uint8_t *>batch._view.buf, <size_t>batch._view.len, check_crc, decompress,
                  max_body)
    return batch


cpdef MessageBatch decode_command(object command, bint check_crc, size_t max_body):
    """As decode_messages for the body of a received command, whose frame the batch then holds."""
    cdef RemotingCommand answer = command
    cdef MessageBatch batch
    if answer._frame is None:
        return decode_messages(answer.body, check_crc=check_crc, max_body=max_body)
    batch = MessageBatch.__new__(MessageBatch)
    batch._owner = answer._frame
    batch._decode(answer._body_ptr, answer._body_len, check_crc, True, max_body)
    return batch


def count_reconsume(MessageExt message not None):
    """Count one more failed try of a message, where the broker does not count it."""
    cdef MessageBatch batch = message._batch
    cdef size_t place = <size_t>message._m
    if batch._retried is None:
        batch._retried = {}
    batch._retried[place] = batch._retried.get(place, 0) + 1


@cython.freelist(128)
cdef class MessageExt:
    """One received message: a read-only view into its batch, which it keeps alive.

    `detach` gives a copy that does not. Hosts are (ip, port) tuples, timestamps milliseconds since the
    epoch. Threads may share a message.
    """

    def __init__(self):
        raise TypeError("MessageExt objects come from decode_messages")

    cdef object _find(self, const char *name, size_t name_len):
        cdef rmf_slice value
        if rmf_message_find_property(self._m, name, name_len, &value):
            return text_of(value)
        return None

    def get_property(self, str name not None, default=None):
        """Value of one property without building the whole table."""
        cdef bytes utf8 = name.encode("utf-8", "surrogatepass")
        if not utf8 or b"\x01" in utf8 or b"\x02" in utf8:
            return default  # no property has such a name
        value = self._find(PyBytes_AS_STRING(utf8), <size_t>PyBytes_GET_SIZE(utf8))
        return default if value is None else value

    @property
    def topic(self):
        """Topic; for a message that a consumer got from its retry topic, the original one."""
        if self._batch.restore_topic:
            original = self._find(b"RETRY_TOPIC", 11)
            if original is not None:
                return original
        return text_of(rmf_message_topic(self._m))

    @property
    def queue_id(self):
        """Id of the queue the message was stored in."""
        return rmf_message_queue_id(self._m)

    @property
    def flag(self):
        """The user's flag."""
        return rmf_message_flag(self._m)

    @property
    def queue_offset(self):
        """Offset in its queue."""
        return self._m.queue_offset

    @property
    def commit_log_offset(self):
        """Physical position in the broker's log."""
        return rmf_message_commit_log_offset(self._m)

    @property
    def sys_flag(self):
        """System flag bits, as stored."""
        return rmf_message_sys_flag(self._m)

    @property
    def born_timestamp(self):
        """When the producer made it, ms."""
        return rmf_message_born_timestamp_ms(self._m)

    @property
    def born_host(self):
        """The producer's (ip, port), as the broker saw it."""
        return _host(rmf_message_born_host(self._m))

    @property
    def store_timestamp(self):
        """When the broker stored it, ms."""
        return rmf_message_store_timestamp_ms(self._m)

    @property
    def store_host(self):
        """The broker's (ip, port)."""
        return _host(rmf_message_store_host(self._m))

    @property
    def reconsume_times(self):
        """How often the message was sent back, or tried again here because that failed."""
        cdef int times = rmf_message_reconsume_times(self._m)
        if self._batch._retried is not None:
            times += self._batch._retried.get(<size_t>self._m, 0)
        return times

    @property
    def prepared_transaction_offset(self):
        """Log offset of the half message, 0 for an ordinary one."""
        return rmf_message_prepared_transaction_offset(self._m)

    @property
    def store_size(self):
        """Bytes of the stored message."""
        return rmf_message_store_size(self._m)

    @property
    def body_crc(self):
        """CRC-32 of the stored body, top bit cleared."""
        return rmf_message_body_crc(self._m)

    @property
    def body(self):
        """The body, inflated; b"" when there is none."""
        if self._body is None:
            self._body = PyBytes_FromStringAndSize(<const char *>self._m.body,
                                                   <Py_ssize_t>self._m.body_len)
        return self._body

    @property
    def properties(self):
        """All properties, as a dict that is built once."""
        cdef rmf_slice text
        cdef rmf_property entry
        cdef size_t pos = 0
        cdef dict table
        if self._properties is None:
            text = rmf_message_properties(self._m)
            table = {}
            while rmf_properties_next(text, &pos, &entry):
                table[text_of(entry.name)] = text_of(entry.value)
            self._properties = table
        return self._properties

    @property
    def tags(self):
        """The tag, or None."""
        return self._find(b"TAGS", 4)

    @property
    def keys(self):
        """The keys, separated by blanks, or None."""
        return self._find(b"KEYS", 4)

    @property
    def delay_time_level(self):
        """Delay level the message was sent with, 0 without one."""
        level = self._find(b"DELAY", 5)
        try:
            return 0 if level is None else int(level)
        except ValueError:
            return 0  # Java would throw here; a damaged property must not cost the message

    @property
    def transaction_id(self):
        """UNIQ_KEY of a transactional message, else None."""
        if self._find(b"TRAN_MSG", 8) == "true":
            return self._find(b"UNIQ_KEY", 8)
        return None

    @property
    def msg_id(self):
        """The producer's unique id, else the offset id."""
        unique = self._find(b"UNIQ_KEY", 8)
        return self.offset_msg_id if unique is None else unique

    @property
    def offset_msg_id(self):
        """Id made of store host and commit log offset, 32 or 56 hex digits."""
        cdef char text[56]
        cdef size_t used = rmf_message_offset_id(self._m, text)
        return PyUnicode_DecodeASCII(text, <Py_ssize_t>used, NULL)

    @property
    def broker_name(self):
        """Name of the broker it was pulled from; None for a message decoded without a consumer."""
        return self._batch.broker_name

    @property
    def min_offset(self):
        """Smallest offset of the queue at the time of the pull, -1 when unknown."""
        return self._batch.min_offset

    @property
    def max_offset(self):
        """End of the queue at the time of the pull, -1 when unknown."""
        return self._batch.max_offset

    def detach(self):
        """A copy that owns its bytes and does not keep the batch alive."""
        cdef rmf_message *m = self._m
        cdef rmf_slice topic = rmf_message_topic(m)
        cdef size_t fixed = 68 + m.host_bytes
        cdef size_t element = 16 if m.element != NULL else 0
        cdef size_t size = fixed + topic.len + element + m.properties_len + m.body_len
        cdef bytes data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
        cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(data)
        cdef rmf_message copy = m[0]
        cdef MessageBatch batch = MessageBatch.__new__(MessageBatch)
        copy.head = to
        memcpy(to, m.head, fixed)
        to += fixed
        copy.topic_pos = <uint32_t>fixed
        if topic.len:
            memcpy(to, topic.ptr, topic.len)
            to += topic.len
        if element:
            copy.element = to
            memcpy(to, m.element, element)
            to += element
        copy.properties = to
        if m.properties_len:
            memcpy(to, m.properties, m.properties_len)
            to += m.properties_len
        copy.body = to
        if m.body_len:
            memcpy(to, m.body, m.body_len)
        batch._owner = data
        batch.broker_name = self._batch.broker_name
        batch.min_offset = self._batch.min_offset
        batch.max_offset = self._batch.max_offset
        batch.restore_topic = self._batch.restore_topic
        batch._append(&copy)
        return batch._message_at(0)

    def __repr__(self):
        return (f"<MessageExt {self.topic} broker={self.broker_name} queue={self.queue_id} "
                f"offset={self.queue_offset} id={self.msg_id} {self._m.body_len} bytes>")
