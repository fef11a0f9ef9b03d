/* Bounds-checked reading and writing of big-endian bytes. Every byte that comes from the wire is read
 * through a cursor: a read that does not fit returns false and does not move. */
#ifndef RMF_CURSOR_H
#define RMF_CURSOR_H

#include <string.h>

#include "rmf_common.h"

struct rmf_cursor {
    const uint8_t *base; /* borrowed */
    size_t pos;
    size_t size;
};

static inline struct rmf_cursor rmf_cursor_of(const uint8_t *data, size_t size) {
    struct rmf_cursor cursor = {data, 0, size};
    return cursor;
}

static inline size_t rmf_cursor_left(const struct rmf_cursor *c) { return c->size - c->pos; }

/* Loads from memory that the caller has already checked. */
static inline uint16_t rmf_load_be16_unsafe(const uint8_t *p) {
    return (uint16_t)((p[0] << 8) | p[1]);
}

static inline uint32_t rmf_load_be32_unsafe(const uint8_t *p) {
    return ((uint32_t)p[0] << 24) | ((uint32_t)p[1] << 16) | ((uint32_t)p[2] << 8) | p[3];
}

static inline uint64_t rmf_load_be64_unsafe(const uint8_t *p) {
    return ((uint64_t)rmf_load_be32_unsafe(p) << 32) | rmf_load_be32_unsafe(p + 4);
}

static inline void rmf_store_be16_unsafe(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void rmf_store_be32_unsafe(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static inline void rmf_store_be64_unsafe(uint8_t *p, uint64_t v) {
    rmf_store_be32_unsafe(p, (uint32_t)(v >> 32));
    rmf_store_be32_unsafe(p + 4, (uint32_t)v);
}

static inline RMF_MUST_CHECK bool rmf_cursor_u8(struct rmf_cursor *c, uint8_t *out) {
    if (rmf_cursor_left(c) < 1) {
        return false;
    }
    *out = c->base[c->pos];
    c->pos += 1;
    return true;
}

static inline RMF_MUST_CHECK bool rmf_cursor_i16(struct rmf_cursor *c, int16_t *out) {
    if (rmf_cursor_left(c) < 2) {
        return false;
    }
    *out = (int16_t)rmf_load_be16_unsafe(c->base + c->pos);
    c->pos += 2;
    return true;
}

static inline RMF_MUST_CHECK bool rmf_cursor_i32(struct rmf_cursor *c, int32_t *out) {
    if (rmf_cursor_left(c) < 4) {
        return false;
    }
    *out = (int32_t)rmf_load_be32_unsafe(c->base + c->pos);
    c->pos += 4;
    return true;
}

static inline RMF_MUST_CHECK bool rmf_cursor_i64(struct rmf_cursor *c, int64_t *out) {
    if (rmf_cursor_left(c) < 8) {
        return false;
    }
    *out = (int64_t)rmf_load_be64_unsafe(c->base + c->pos);
    c->pos += 8;
    return true;
}

/* Borrows: `out` points into the cursor's memory. */
static inline RMF_MUST_CHECK bool rmf_cursor_bytes(struct rmf_cursor *c, size_t count,
                                                   const uint8_t **out) {
    if (rmf_cursor_left(c) < count) {
        return false;
    }
    *out = c->base + c->pos;
    c->pos += count;
    return true;
}

/* The only way from a signed wire length to a size: refuses negatives and anything over `limit`. */
static inline RMF_MUST_CHECK bool rmf_wire_len(int64_t value, size_t limit, size_t *out) {
    if (value < 0 || (uint64_t)value > limit) {
        return false;
    }
    *out = (size_t)value;
    return true;
}

#endif
