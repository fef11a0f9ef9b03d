from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from rocketmq_fast._core.c_common cimport rmf_status

cdef extern from "rmf_arrow.h" nogil:
    struct ArrowSchema:
        const char *format
        void (*release)(ArrowSchema *) noexcept nogil

    struct ArrowArray:
        int64_t length
        void (*release)(ArrowArray *) noexcept nogil

    struct rmf_table:
        size_t rows

    rmf_table *rmf_table_new(size_t count)
    void rmf_table_release(rmf_table *table)
    size_t rmf_table_bytes(const rmf_table *table)
    rmf_status rmf_table_export_array(rmf_table *table, ArrowArray *out)
    rmf_status rmf_table_export_schema(const rmf_table *table, ArrowSchema *out)
