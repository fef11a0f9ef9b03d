/* Reading of UTF-8 that may be malformed, the way Java and Python replace it: each maximal broken part
 * of a sequence counts as one U+FFFD (Unicode 15, section 3.9, "substitution of maximal subparts"). */
#ifndef RMF_UTF8_H
#define RMF_UTF8_H

#include "rmf_common.h"

#define RMF_UTF8_REPLACEMENT 0xFFFDu

/* The code point at *pos, which moves behind it. `*valid` is cleared for a malformed part. */
static inline uint32_t rmf_utf8_next(struct rmf_slice text, size_t *pos, bool *valid) {
    uint8_t lead = text.ptr[*pos];
    *pos += 1;
    if (lead < 0x80) {
        return lead;
    }
    uint32_t point;
    int more;
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
        point = lead & 0x1Fu;
        more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        point = lead & 0x0Fu;
        more = 2;
        low = lead == 0xE0 ? 0xA0 : 0x80;  /* no overlong forms */
        high = lead == 0xED ? 0x9F : 0xBF; /* no surrogates */
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        point = lead & 0x07u;
        more = 3;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF;
    } else {
        *valid = false;
        return RMF_UTF8_REPLACEMENT;
    }
    for (int i = 0; i < more; i++) {
        if (*pos == text.len || text.ptr[*pos] < low || text.ptr[*pos] > high) {
            *valid = false;
            return RMF_UTF8_REPLACEMENT;
        }
        point = point << 6 | (text.ptr[*pos] & 0x3Fu);
        *pos += 1;
        low = 0x80;
        high = 0xBF;
    }
    return point;
}

/* Whether the text is ASCII; eight bytes at a time. */
bool rmf_utf8_is_ascii(struct rmf_slice text);

/* Whether the text is well-formed UTF-8. */
bool rmf_utf8_is_valid(struct rmf_slice text);

/* Size of the text with every malformed part replaced. */
size_t rmf_utf8_replaced_bytes(struct rmf_slice text);

/* Writes that form; `out` has room for rmf_utf8_replaced_bytes. */
void rmf_utf8_write_replaced(struct rmf_slice text, uint8_t *out);

/* Encodes a code point; `out` has room for 4 bytes. Returns the length. */
size_t rmf_utf8_write(uint32_t point, uint8_t *out);

#endif
