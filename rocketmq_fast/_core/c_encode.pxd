from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t

from rocketmq_fast._core.c_buffer cimport rmf_buffer
from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice, rmf_status

cdef extern from "rmf_encode.h" nogil:
    enum:
        RMF_UNIQUE_ID_CHARS

    rmf_status rmf_encode_property(rmf_buffer *out, size_t start, rmf_slice name, rmf_slice value,
                                   rmf_error *error)
    rmf_status rmf_encode_element_begin(rmf_buffer *out, int32_t flag, rmf_slice body,
                                        size_t *start, size_t *properties_start, rmf_error *error)
    rmf_status rmf_encode_element_end(rmf_buffer *out, size_t start, size_t properties_start,
                                      rmf_error *error)
    void rmf_encode_unique_id(const uint8_t *prefix10, uint32_t month_ms, uint16_t counter,
                              char *out)
