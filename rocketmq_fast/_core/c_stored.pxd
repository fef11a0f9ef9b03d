# Declarations of csrc/rmf_stored.h.

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice, rmf_status

cdef extern from "rmf_stored.h" nogil:
    enum:
        RMF_INDEX_ENTRY_BYTES
        RMF_STORED_MAX_BYTES
        RMF_STORED_TOPIC_MAX_BYTES

    struct rmf_stored_fields:
        rmf_slice topic
        rmf_slice body
        rmf_slice properties
        rmf_slice more_properties
        rmf_slice born_host
        rmf_slice store_host
        int64_t queue_offset
        int64_t position
        int64_t born_timestamp_ms
        int64_t store_timestamp_ms
        int64_t prepared_transaction_offset
        int32_t queue_id
        int32_t flag
        int32_t sys_flag
        int32_t reconsume_times
        uint32_t body_crc
        uint32_t total_size

    struct rmf_index_limits:
        size_t max_count
        size_t max_bytes
        size_t disk_count
        size_t disk_bytes
        int64_t disk_position

    struct rmf_index_run:
        int64_t position
        int64_t size

    struct rmf_index_selection:
        size_t scanned
        size_t count
        size_t bytes
        size_t runs

    rmf_status rmf_stored_measure(const rmf_stored_fields *fields, size_t *total,
                                  rmf_error *error)
    void rmf_stored_write_unsafe(const rmf_stored_fields *fields, size_t total,
                                 int64_t tags_code, uint8_t *out, uint8_t *index)
    int64_t rmf_stored_tags_code(rmf_slice properties)
    bint rmf_stored_property(rmf_slice properties, rmf_slice name, rmf_slice *value)
    rmf_status rmf_stored_read(const uint8_t *data, size_t size, bint check_crc,
                               rmf_stored_fields *fields, rmf_error *error)
    rmf_status rmf_stored_batch_measure(const rmf_stored_fields *common, rmf_slice batch,
                                        size_t *count, size_t *total, rmf_error *error)
    void rmf_stored_batch_write_unsafe(const rmf_stored_fields *common, rmf_slice batch,
                                       uint8_t *out, uint8_t *index)
    void rmf_index_select(const uint8_t *entries, size_t entry_count, const int32_t *codes,
                          size_t code_count, const rmf_index_limits *limits,
                          rmf_index_run *runs, rmf_index_selection *selection)
