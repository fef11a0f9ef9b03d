from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

cdef extern from "rmf_common.h" nogil:
    enum rmf_status:
        RMF_OK
        RMF_NEED_MORE
        RMF_ERR_NO_MEMORY
        RMF_ERR_TRUNCATED
        RMF_ERR_LENGTH
        RMF_ERR_MAGIC
        RMF_ERR_SYNTAX
        RMF_ERR_NUMBER
        RMF_ERR_CRC
        RMF_ERR_CORRUPT
        RMF_ERR_DEPTH
        RMF_ERR_ARGUMENT

    struct rmf_error:
        rmf_status status
        size_t position
        int64_t value
        int64_t limit
        const char *field

    struct rmf_slice:
        const uint8_t *ptr
        size_t len

    enum:
        RMF_FRAME_MAX_BYTES_DEFAULT
        RMF_HEADER_MAX_BYTES
        RMF_PROPERTIES_MAX_BYTES

cdef extern from "rmf_alloc.h" nogil:
    void *rmf_alloc(size_t size)
    void *rmf_alloc_array(size_t count, size_t size)
    void *rmf_realloc_array(void *block, size_t count, size_t size)
    void rmf_free(void *block)
