from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice, rmf_status

cdef extern from "rmf_message.h" nogil:
    struct rmf_message:
        const uint8_t *head
        const uint8_t *body
        const uint8_t *properties
        const uint8_t *element
        int64_t queue_offset
        uint32_t body_len
        uint32_t topic_pos
        uint16_t topic_len
        uint16_t properties_len
        uint8_t host_bytes
        uint8_t inflated

    struct rmf_message_fault:
        rmf_error error
        size_t message_position
        int64_t queue_offset
        bint resumable

    enum:
        RMF_SYS_COMPRESSION_MASK

    rmf_status rmf_message_decode(rmf_slice buffer, size_t position, bint check_crc,
                                  rmf_message *message, size_t *next, rmf_message_fault *fault)
    rmf_status rmf_batch_element_decode(rmf_slice body, size_t position, const rmf_message *outer,
                                        int64_t queue_offset, rmf_message *message, size_t *next,
                                        rmf_error *error)
    int32_t rmf_message_store_size(const rmf_message *m)
    int32_t rmf_message_body_crc(const rmf_message *m)
    int32_t rmf_message_queue_id(const rmf_message *m)
    int32_t rmf_message_flag(const rmf_message *m)
    int64_t rmf_message_commit_log_offset(const rmf_message *m)
    int32_t rmf_message_sys_flag(const rmf_message *m)
    int64_t rmf_message_born_timestamp_ms(const rmf_message *m)
    rmf_slice rmf_message_born_host(const rmf_message *m)
    int64_t rmf_message_store_timestamp_ms(const rmf_message *m)
    rmf_slice rmf_message_store_host(const rmf_message *m)
    int32_t rmf_message_reconsume_times(const rmf_message *m)
    int64_t rmf_message_prepared_transaction_offset(const rmf_message *m)
    rmf_slice rmf_message_topic(const rmf_message *m)
    rmf_slice rmf_message_body(const rmf_message *m)
    rmf_slice rmf_message_properties(const rmf_message *m)
    bint rmf_message_is_compressed(const rmf_message *m)
    bint rmf_message_is_inner_batch(const rmf_message *m)
    bint rmf_message_find_property(const rmf_message *m, const char *name, size_t name_len,
                                   rmf_slice *value)
    size_t rmf_message_offset_id(const rmf_message *m, char *out)
