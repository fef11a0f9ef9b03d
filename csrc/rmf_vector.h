/* One column of an Arrow table while it grows: values or texts, offsets, validity.
 *
 * Memory grows by half at least. Rows and bytes are reserved first and written then; a row is written
 * once. What is behind the last row can be cut off again. */
#ifndef RMF_VECTOR_H
#define RMF_VECTOR_H

#include <string.h>

#include "rmf_common.h"

enum rmf_vector_type {
    RMF_VECTOR_INT32,
    RMF_VECTOR_INT64,
    RMF_VECTOR_TIMESTAMP_US, /* UTC */
    RMF_VECTOR_TEXT,
    RMF_VECTOR_BINARY,
    RMF_VECTOR_MAP /* of text to text; the entries are vectors of their own */
};

struct rmf_vector {
    enum rmf_vector_type type;
    const char *name;  /* string constant */
    uint8_t *data;     /* owned: values, or the bytes of texts */
    size_t size;       /* bytes in use, for texts and binaries */
    size_t capacity;   /* bytes */
    size_t max_bytes;  /* bound of size */
    int32_t *offsets;  /* owned: texts, binaries, maps: rows + 1 */
    uint8_t *validity; /* owned; NULL as long as nothing is null */
    size_t nulls;
    size_t row_capacity;
};

/* How much a vector held: another one can start with that room. */
struct rmf_room {
    size_t bytes;
    size_t rows;
};

/* A zeroed vector becomes one with room for `least` rows, or as much as `room` says. `least_bytes` a
 * row for texts. RMF_ERR_NO_MEMORY; rmf_vector_clear is right in both cases. */
RMF_MUST_CHECK enum rmf_status rmf_vector_init(struct rmf_vector *vector, const char *name,
                                               enum rmf_vector_type type, size_t max_bytes,
                                               const struct rmf_room *room, size_t least,
                                               size_t least_bytes);
void rmf_vector_clear(struct rmf_vector *vector);

/* Bytes of Arrow data of the first `rows` rows. */
size_t rmf_vector_bytes(const struct rmf_vector *vector, size_t rows);

/* A sixteenth more than what is used. */
struct rmf_room rmf_vector_room(const struct rmf_vector *vector, size_t rows);

/* Makes room for so many rows, or bytes, in all. RMF_ERR_NO_MEMORY leaves the vector as it was. */
RMF_MUST_CHECK enum rmf_status rmf_vector_grow_rows(struct rmf_vector *vector, size_t rows);
RMF_MUST_CHECK enum rmf_status rmf_vector_grow_bytes(struct rmf_vector *vector, size_t wanted);

/* Makes room for what the vector will hold once `part` of `whole` has become all; a sixteenth more, as
 * the rest may be longer. Only a forecast, which `limit` keeps harmless where the beginning is unlike
 * the rest: without it the vector grows step by step. */
RMF_MUST_CHECK enum rmf_status rmf_vector_forecast(struct rmf_vector *vector, size_t part,
                                                   size_t whole, size_t limit);
RMF_MUST_CHECK enum rmf_status rmf_vector_forecast_rows(struct rmf_vector *vector, size_t rows,
                                                        size_t part, size_t whole, size_t limit);

/* Marks a row, which is within the reserved ones, as null. RMF_ERR_NO_MEMORY. */
RMF_MUST_CHECK enum rmf_status rmf_vector_set_null(struct rmf_vector *vector, size_t row);

/* Everything back to `rows` of the `written` rows. */
void rmf_vector_cut(struct rmf_vector *vector, size_t written, size_t rows);

/* As rmf_vector_put for a text that may be malformed: writes it with the bad parts replaced. */
RMF_MUST_CHECK enum rmf_status rmf_vector_put_checked(struct rmf_vector *vector, size_t row,
                                                      struct rmf_slice text,
                                                      struct rmf_error *error);

RMF_MUST_CHECK enum rmf_status rmf_vector_put_null(struct rmf_vector *vector, size_t row);

static inline enum rmf_status rmf_vector_reserve_rows(struct rmf_vector *vector, size_t rows) {
    return RMF_LIKELY(rows <= vector->row_capacity) ? RMF_OK : rmf_vector_grow_rows(vector, rows);
}

/* Room for `extra` more bytes of text. RMF_ERR_LENGTH, which names the column, beyond its bound. */
static inline enum rmf_status rmf_vector_reserve(struct rmf_vector *vector, size_t extra,
                                                 struct rmf_error *error) {
    if (RMF_UNLIKELY(extra > vector->max_bytes - vector->size)) {
        return rmf_fail(error, RMF_ERR_LENGTH, vector->name, 0, (int64_t)(vector->size + extra),
                        (int64_t)vector->max_bytes);
    }
    return RMF_LIKELY(extra <= vector->capacity - vector->size)
               ? RMF_OK
               : rmf_vector_grow_bytes(vector, vector->size + extra);
}

/* memcpy for texts, which are short: without a call up to 32 bytes. */
static inline void rmf_copy_text(uint8_t *to, const uint8_t *from, size_t len) {
    if (len > 32) {
        memcpy(to, from, len);
    } else if (len >= 16) {
        memcpy(to, from, 16);
        memcpy(to + len - 16, from + len - 16, 16);
    } else if (len >= 8) {
        memcpy(to, from, 8);
        memcpy(to + len - 8, from + len - 8, 8);
    } else if (len >= 4) {
        memcpy(to, from, 4);
        memcpy(to + len - 4, from + len - 4, 4);
    } else {
        for (size_t i = 0; i < len; i++) {
            to[i] = from[i];
        }
    }
}

/* Writes a text that is known to be valid to row `row`, which is reserved and follows the last one. */
static inline enum rmf_status rmf_vector_put(struct rmf_vector *vector, size_t row,
                                             struct rmf_slice text, struct rmf_error *error) {
    enum rmf_status status = rmf_vector_reserve(vector, text.len, error);
    if (RMF_UNLIKELY(status != RMF_OK)) {
        return status;
    }
    rmf_copy_text(vector->data + vector->size, text.ptr, text.len);
    vector->size += text.len;
    vector->offsets[row + 1] = (int32_t)vector->size;
    return RMF_OK;
}

/* The same; no text (ptr NULL) is null. */
static inline enum rmf_status rmf_vector_put_optional(struct rmf_vector *vector, size_t row,
                                                      struct rmf_slice text,
                                                      struct rmf_error *error) {
    return text.ptr == NULL ? rmf_vector_put_null(vector, row)
                            : rmf_vector_put(vector, row, text, error);
}

/* Writes the text of the row before once more. */
static inline enum rmf_status rmf_vector_put_again(struct rmf_vector *vector, size_t row,
                                                   struct rmf_error *error) {
    size_t len = vector->size - (size_t)vector->offsets[row - 1];
    enum rmf_status status = rmf_vector_reserve(vector, len, error);
    if (RMF_UNLIKELY(status != RMF_OK)) {
        return status;
    }
    rmf_copy_text(vector->data + vector->size, vector->data + vector->size - len, len);
    vector->size += len;
    vector->offsets[row + 1] = (int32_t)vector->size;
    return RMF_OK;
}

#endif
