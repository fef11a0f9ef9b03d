from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from rocketmq_fast._core.c_common cimport rmf_slice
from rocketmq_fast._core.c_message cimport rmf_message
from rocketmq_fast._core.c_message_list cimport rmf_message_list


cdef class MessageBatch:
    cdef rmf_message_list _list
    cdef object _owner
    cdef Py_buffer _view
    cdef bint _has_view
    cdef size_t _special
    cdef list _bodies
    cdef dict _retried
    cdef readonly list errors
    cdef public object broker_name
    cdef public long long min_offset
    cdef public long long max_offset
    cdef public bint restore_topic

    cdef int _decode(self, const uint8_t *data, size_t size, bint check_crc, bint decompress,
                     size_t max_body) except -1
    cdef int _expand(self, const uint8_t *data, bint decompress, size_t max_body) except -1
    cdef int _append(self, const rmf_message *message) except -1
    cdef int _append_run(self, MessageBatch source, size_t start, size_t stop) except -1
    cdef MessageBatch _empty_copy(self)
    cdef MessageExt _message_at(self, size_t index)
    cdef list _messages_between(self, size_t start, size_t stop)
    cdef object _column(self, int kind)


cdef class MessageExt:
    cdef MessageBatch _batch
    cdef rmf_message *_m
    cdef object _body
    cdef object _properties

    cdef object _find(self, const char *name, size_t name_len)


cpdef MessageBatch decode_command(object command, bint check_crc, size_t max_body)
