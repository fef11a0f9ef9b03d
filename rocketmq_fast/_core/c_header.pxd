from libc.stddef cimport size_t
from libc.stdint cimport int32_t

from rocketmq_fast._core.c_buffer cimport rmf_buffer
from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice, rmf_status

cdef extern from "rmf_header.h" nogil:
    enum:
        RMF_LANGUAGE_UNKNOWN
        RMF_LANGUAGE_COUNT

    struct rmf_ext_field:
        rmf_slice key
        rmf_slice value

    struct rmf_header:
        int32_t code
        int32_t language
        int32_t version
        int32_t opaque
        int32_t flag
        bint has_remark
        rmf_slice remark
        rmf_ext_field *ext
        size_t ext_count

    void rmf_header_init(rmf_header *header)
    void rmf_header_clear(rmf_header *header)
    const char *rmf_language_name(int32_t language)
    int32_t rmf_language_of(rmf_slice name)
    rmf_status rmf_header_decode_json(rmf_slice bytes, rmf_header *header, rmf_error *error)
    rmf_status rmf_header_decode_compact(rmf_slice bytes, rmf_header *header, rmf_error *error)
    rmf_status rmf_header_add_ext(rmf_header *header, rmf_slice key, rmf_slice value)
    rmf_status rmf_header_encode_json(const rmf_header *header, rmf_buffer *out)
    rmf_status rmf_header_encode_compact(const rmf_header *header, rmf_buffer *out,
                                         rmf_error *error)
