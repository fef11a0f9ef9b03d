/* A pull reader for the JSON of remoting headers, bounded in depth, and the writer of JSON strings.
 * Strict JSON only: the dialect that fastjson writes into bodies is read elsewhere. */
#ifndef RMF_JSON_H
#define RMF_JSON_H

#include "rmf_buffer.h"
#include "rmf_common.h"
#include "rmf_cursor.h"

struct rmf_json {
    struct rmf_cursor cursor;
    struct rmf_buffer *text; /* borrowed; unescaped strings are appended. Its capacity must not be less
                                than size + the JSON's length, so that it never moves while slices
                                point into it. */
};

static inline struct rmf_json rmf_json_of(struct rmf_slice bytes, struct rmf_buffer *text) {
    struct rmf_json json = {rmf_cursor_of(bytes.ptr, bytes.len), text};
    return json;
}

/* The next significant byte, 0 at the end. */
uint8_t rmf_json_peek(struct rmf_json *json);

/* Each function consumes what it names, white space before it included. Errors: RMF_ERR_SYNTAX,
 * RMF_ERR_NUMBER, RMF_ERR_DEPTH. */
RMF_MUST_CHECK enum rmf_status rmf_json_object_begin(struct rmf_json *json, bool *more,
                                                     struct rmf_error *error);
/* After a member: `more` tells whether another one follows. */
RMF_MUST_CHECK enum rmf_status rmf_json_object_next(struct rmf_json *json, bool *more,
                                                    struct rmf_error *error);
/* A member name and its colon. */
RMF_MUST_CHECK enum rmf_status rmf_json_key(struct rmf_json *json, struct rmf_slice *key,
                                            struct rmf_error *error);
/* Borrows: the slice points into the input or into `text`. */
RMF_MUST_CHECK enum rmf_status rmf_json_string(struct rmf_json *json, struct rmf_slice *out,
                                               struct rmf_error *error);
RMF_MUST_CHECK enum rmf_status rmf_json_integer(struct rmf_json *json, int64_t *out,
                                                struct rmf_error *error);
RMF_MUST_CHECK enum rmf_status rmf_json_literal(struct rmf_json *json, const char *literal,
                                                struct rmf_error *error);
/* A string's text, or the raw text of a number or boolean; null sets `is_null`. */
RMF_MUST_CHECK enum rmf_status rmf_json_scalar_text(struct rmf_json *json, struct rmf_slice *out,
                                                    bool *is_null, struct rmf_error *error);
/* Any value. */
RMF_MUST_CHECK enum rmf_status rmf_json_skip(struct rmf_json *json, struct rmf_error *error);
/* Nothing but white space is left. */
RMF_MUST_CHECK enum rmf_status rmf_json_end(struct rmf_json *json, struct rmf_error *error);

/* Appends a quoted, escaped JSON string. Non-ASCII bytes go out as they are (UTF-8). */
RMF_MUST_CHECK enum rmf_status rmf_json_write_string(struct rmf_buffer *out, struct rmf_slice text);

#endif
