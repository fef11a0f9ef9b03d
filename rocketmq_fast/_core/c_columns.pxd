from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from rocketmq_fast._core.c_arrow cimport rmf_table
from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice, rmf_status
from rocketmq_fast._core.c_message cimport rmf_message

cdef extern from "rmf_columns.h" nogil:
    enum:
        RMF_COLUMN_COUNT
        RMF_COLUMN_MAX_BYTES

    struct rmf_columns:
        pass

    struct rmf_columns_source:
        const rmf_message *messages
        size_t count
        const uint8_t *mask
        int64_t start
        int64_t end
        rmf_slice broker_name
        bint restore_topic

    const char *rmf_column_name(size_t column)
    rmf_columns *rmf_columns_new(const uint8_t *columns, size_t count, size_t max_bytes)
    void rmf_columns_free(rmf_columns *columns)
    size_t rmf_columns_rows(const rmf_columns *columns)
    size_t rmf_columns_bytes(const rmf_columns *columns)
    rmf_status rmf_columns_append(rmf_columns *columns, const rmf_columns_source *source,
                                  size_t *appended, rmf_error *error)
    rmf_status rmf_columns_decode(rmf_columns *columns, rmf_slice buffer, bint check_crc,
                                  rmf_slice broker_name, size_t *position, rmf_error *error)
    rmf_status rmf_columns_finish(rmf_columns *columns, rmf_table **table)
