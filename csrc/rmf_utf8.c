#include "rmf_utf8.h"

#include <string.h>

bool rmf_utf8_is_ascii(struct rmf_slice text) {
    size_t pos = 0;
    while (text.len - pos >= 8) {
        uint64_t word;
        memcpy(&word, text.ptr + pos, 8);
        if ((word & 0x8080808080808080u) != 0) {
            return false;
        }
        pos += 8;
    }
    while (pos < text.len) {
        if (text.ptr[pos] >= 0x80) {
            return false;
        }
        pos += 1;
    }
    return true;
}

bool rmf_utf8_is_valid(struct rmf_slice text) {
    if (rmf_utf8_is_ascii(text)) {
        return true;
    }
    bool valid = true;
    size_t pos = 0;
    while (valid && pos < text.len) {
        (void)rmf_utf8_next(text, &pos, &valid);
    }
    return valid;
}

size_t rmf_utf8_write(uint32_t point, uint8_t *out) {
    if (point < 0x80) {
        out[0] = (uint8_t)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (uint8_t)(0xC0 | point >> 6);
        out[1] = (uint8_t)(0x80 | (point & 0x3F));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (uint8_t)(0xE0 | point >> 12);
        out[1] = (uint8_t)(0x80 | (point >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (point & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | point >> 18);
    out[1] = (uint8_t)(0x80 | (point >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (point >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (point & 0x3F));
    return 4;
}

size_t rmf_utf8_replaced_bytes(struct rmf_slice text) {
    size_t bytes = 0;
    size_t pos = 0;
    while (pos < text.len) {
        bool valid = true;
        size_t start = pos;
        (void)rmf_utf8_next(text, &pos, &valid);
        bytes += valid ? pos - start : 3;
    }
    return bytes;
}

void rmf_utf8_write_replaced(struct rmf_slice text, uint8_t *out) {
    size_t pos = 0;
    while (pos < text.len) {
        bool valid = true;
        out += rmf_utf8_write(rmf_utf8_next(text, &pos, &valid), out);
    }
}
