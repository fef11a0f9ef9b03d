from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "rmf_crc32.h" nogil:
    uint32_t rmf_crc32(uint32_t crc, const uint8_t *data, size_t size)
    uint32_t rmf_crc32_body(const uint8_t *data, size_t size)
    const char *rmf_crc32_kernel()
