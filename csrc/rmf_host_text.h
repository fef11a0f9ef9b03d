/* Hosts and ids of stored messages as text. */
#ifndef RMF_HOST_TEXT_H
#define RMF_HOST_TEXT_H

#include <string.h>

#include "rmf_common.h"
#include "rmf_cursor.h"

/* "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:4294967295" fits. */
#define RMF_HOST_TEXT_MAX 64
/* 20 bytes of an IPv6 host and 8 of the log offset, in hex. */
#define RMF_OFFSET_ID_MAX 56

/* Writes a stored host (4 or 16 bytes of address, 4 of port) as "ip:port" or "[ip]:port", the address
 * as inet_ntop has it. Returns the length. */
size_t rmf_host_text(struct rmf_slice host, char *out);

/* Four bytes as eight upper-case hex digits, all at once. */
static inline void rmf_hex4(const uint8_t *bytes, uint8_t *out) {
    uint64_t x = rmf_load_be32_unsafe(bytes);
    x = (x | x << 16) & 0x0000FFFF0000FFFFu;
    x = (x | x << 8) & 0x00FF00FF00FF00FFu;
    x = (x | x << 4) & 0x0F0F0F0F0F0F0F0Fu; /* one digit a byte */
    uint64_t letters = (x + 0x0606060606060606u) >> 4 & 0x0101010101010101u;
    rmf_store_be64_unsafe(out, x + 0x3030303030303030u + letters * ('A' - '0' - 10));
}

#endif
