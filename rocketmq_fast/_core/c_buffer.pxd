from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from rocketmq_fast._core.c_common cimport rmf_status

cdef extern from "rmf_buffer.h" nogil:
    struct rmf_buffer:
        uint8_t *data
        size_t size
        size_t capacity

    void rmf_buffer_init(rmf_buffer *buffer)
    void rmf_buffer_clear(rmf_buffer *buffer)
    rmf_status rmf_buffer_reserve(rmf_buffer *buffer, size_t extra)
    rmf_status rmf_buffer_append(rmf_buffer *buffer, const void *data, size_t size)
