/* CRC-32 (IEEE 802.3, as zlib's), the checksum of message bodies. */
#ifndef RMF_CRC32_H
#define RMF_CRC32_H

#include "rmf_common.h"

/* CRC of the bytes, continued from `crc` (0 to start). */
uint32_t rmf_crc32(uint32_t crc, const uint8_t *data, size_t size);

/* As rmf_crc32, without processor-specific instructions: the kernel every machine has. */
uint32_t rmf_crc32_portable(uint32_t crc, const uint8_t *data, size_t size);

/* Body checksum of a stored message: top bit cleared, 0 for no body (UtilAll.crc32 of the Java code). */
static inline uint32_t rmf_crc32_body(const uint8_t *data, size_t size) {
    return size == 0 ? 0 : rmf_crc32(0, data, size) & 0x7FFFFFFFu;
}

/* Name of the kernel rmf_crc32 uses on this machine. */
const char *rmf_crc32_kernel(void);

#endif
