/* Status codes, the error record and the limits that every unit shares.
 *
 * Functions that can fail return enum rmf_status: RMF_OK, RMF_NEED_MORE (an incremental decoder wants
 * more bytes) or a negative error. Out-parameters come last and are written only on RMF_OK. A caller
 * that wants details passes a struct rmf_error; NULL is allowed everywhere. */
#ifndef RMF_COMMON_H
#define RMF_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define RMF_MUST_CHECK __attribute__((warn_unused_result))
#define RMF_LIKELY(x) __builtin_expect(!!(x), 1)
#define RMF_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define RMF_MUST_CHECK
#define RMF_LIKELY(x) (x)
#define RMF_UNLIKELY(x) (x)
#endif

enum rmf_status {
    RMF_OK = 0,
    RMF_NEED_MORE = 1,
    RMF_ERR_NO_MEMORY = -1,
    RMF_ERR_TRUNCATED = -2, /* fewer bytes than a fixed part needs */
    RMF_ERR_LENGTH = -3,    /* a length field is negative, over its limit or past the end */
    RMF_ERR_MAGIC = -4,     /* unknown magic or serialize type */
    RMF_ERR_SYNTAX = -5,    /* malformed JSON or property text */
    RMF_ERR_NUMBER = -6,    /* a number is missing, malformed or out of range */
    RMF_ERR_CRC = -7,       /* body does not match its checksum */
    RMF_ERR_CORRUPT = -8,   /* a decoder that met corruption refuses input until it is reset */
    RMF_ERR_DEPTH = -9,     /* nesting deeper than allowed */
    RMF_ERR_ARGUMENT = -10  /* the caller broke the contract of the function */
};

/* Where and why a decoder refused its input. `field` is a string constant. */
struct rmf_error {
    enum rmf_status status;
    size_t position; /* byte offset in the decoder's input */
    int64_t value;   /* the offending value, when there is one */
    int64_t limit;   /* the bound it broke, when there is one */
    const char *field;
};

/* A borrowed run of bytes. */
struct rmf_slice {
    const uint8_t *ptr;
    size_t len;
};

/* Frames: the decoder limit of Java's NettyDecoder counts the 4 length bytes too. */
#define RMF_FRAME_MAX_BYTES_DEFAULT 16777216u
/* A legal 32 KiB property string makes a header of about 75 KB once it is JSON-escaped. */
#define RMF_HEADER_MAX_BYTES (1u << 20)
#define RMF_JSON_MAX_DEPTH 64
#define RMF_PROPERTIES_MAX_BYTES 32767

static inline enum rmf_status rmf_fail(struct rmf_error *error, enum rmf_status status,
                                       const char *field, size_t position, int64_t value,
                                       int64_t limit) {
    if (error != NULL) {
        error->status = status;
        error->field = field;
        error->position = position;
        error->value = value;
        error->limit = limit;
    }
    return status;
}

#endif
