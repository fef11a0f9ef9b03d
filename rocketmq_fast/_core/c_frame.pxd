from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice, rmf_status

cdef extern from "rmf_frame.h" nogil:
    enum:
        RMF_FRAME_FIXED_BYTES
        RMF_SERIALIZE_JSON
        RMF_SERIALIZE_ROCKETMQ

    struct rmf_frame_parts:
        uint8_t serialize_type
        rmf_slice header
        rmf_slice body

    rmf_status rmf_frame_split(const uint8_t *frame, size_t size, uint32_t max_frame_bytes,
                               rmf_frame_parts *parts, rmf_error *error)
    rmf_status rmf_frame_write_fixed(uint8_t serialize_type, size_t header_bytes,
                                     size_t body_bytes, uint32_t max_frame_bytes, uint8_t *out,
                                     rmf_error *error)

    struct rmf_splitter:
        pass

    rmf_splitter *rmf_splitter_new(uint32_t max_frame_bytes)
    void rmf_splitter_free(rmf_splitter *splitter)
    void rmf_splitter_reset(rmf_splitter *splitter)
    size_t rmf_splitter_pending(const rmf_splitter *splitter)
    rmf_status rmf_splitter_reserve(rmf_splitter *splitter, uint8_t **room, size_t *room_bytes,
                                    rmf_error *error)
    rmf_status rmf_splitter_commit(rmf_splitter *splitter, size_t bytes, rmf_error *error)
    rmf_status rmf_splitter_take(rmf_splitter *splitter, uint8_t **frame, size_t *frame_bytes,
                                 rmf_error *error)
