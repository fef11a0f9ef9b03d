from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from rocketmq_fast._core.c_frame cimport rmf_splitter
from rocketmq_fast._core.c_header cimport rmf_header


cdef class FrameBuffer:
    """Owner of one received frame; whatever points into the frame holds this object."""

    cdef uint8_t *data
    cdef size_t size


cdef class RemotingCommand:
    cdef public int code
    cdef public int version
    cdef public int opaque
    cdef public int flag
    cdef public int serialize_type
    cdef int _language
    cdef public object remark
    cdef public dict ext_fields
    cdef object _body
    cdef FrameBuffer _frame
    cdef const uint8_t *_body_ptr
    cdef size_t _body_len


cdef class FrameSplitter:
    cdef rmf_splitter *_splitter
    cdef rmf_header _header
    cdef unsigned int _max_frame
    cdef int _error_number  # of a receive that brought bytes before it failed
    cdef size_t _pending
    cdef readonly object failure

    cdef int _check_usable(self) except -1
    cdef RemotingCommand _command_from(self, uint8_t *data, size_t size)
    cdef bint _receive_once(self, int fd, size_t most, size_t *bytes, list commands) except -1
    cdef list _drain(self)
