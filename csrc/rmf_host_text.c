#include "rmf_host_text.h"

static size_t rmf_decimal(uint32_t value, char *out) {
    char digits[10];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    for (size_t i = 0; i < count; i++) {
        out[i] = digits[count - 1 - i];
    }
    return count;
}

static size_t rmf_ipv4_text(const uint8_t *ip, char *out) {
    size_t used = 0;
    for (int i = 0; i < 4; i++) {
        if (i != 0) {
            out[used++] = '.';
        }
        used += rmf_decimal(ip[i], out + used);
    }
    return used;
}

static size_t rmf_word_text(uint32_t word, char *out) {
    static const char HEX[] = "0123456789abcdef";
    size_t used = 0;
    for (int shift = 12; shift >= 0; shift -= 4) {
        uint32_t digit = word >> shift & 0xFu;
        if (used != 0 || digit != 0 || shift == 0) {
            out[used++] = HEX[digit];
        }
    }
    return used;
}

/* RFC 5952: the first longest run of two or more zero words becomes "::". Mapped and compatible IPv4
 * addresses end in dotted form. */
static size_t rmf_ipv6_text(const uint8_t *ip, char *out) {
    uint32_t words[8];
    for (int i = 0; i < 8; i++) {
        words[i] = rmf_load_be16_unsafe(ip + 2 * i);
    }
    int best = -1;
    int best_len = 1;
    for (int i = 0; i < 8; i++) {
        int end = i;
        while (end < 8 && words[end] == 0) {
            end++;
        }
        if (end - i > best_len) {
            best = i;
            best_len = end - i;
        }
    }
    bool dotted = best == 0 && (best_len == 6 || (best_len == 5 && words[5] == 0xFFFF));
    size_t used = 0;
    for (int i = 0; i < 8; i++) {
        if (i == best) {
            out[used++] = ':';
            i += best_len - 1;
            if (i == 7) {
                out[used++] = ':';
            }
            continue;
        }
        if (i != 0) {
            out[used++] = ':';
        }
        if (i == 6 && dotted) {
            return used + rmf_ipv4_text(ip + 12, out + used);
        }
        used += rmf_word_text(words[i], out + used);
    }
    return used;
}

size_t rmf_host_text(struct rmf_slice host, char *out) {
    size_t ip_len = host.len - 4;
    size_t used = 0;
    if (ip_len == 4) {
        used = rmf_ipv4_text(host.ptr, out);
    } else {
        out[used++] = '[';
        used += rmf_ipv6_text(host.ptr, out + used);
        out[used++] = ']';
    }
    out[used++] = ':';
    return used + rmf_decimal(rmf_load_be32_unsafe(host.ptr + ip_len), out + used);
}
