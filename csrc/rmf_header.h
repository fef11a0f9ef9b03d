/* Remoting headers, in JSON and in the compact ROCKETMQ form.
 *
 * Compact form (RocketMQSerializable.java, 4.9.4 and 5.x):
 *   offset  size  field
 *   0       2     code (signed)
 *   2       1     language
 *   3       2     version
 *   5       4     opaque
 *   9       4     flag
 *   13      4     remark length, then r bytes (0 = no remark)
 *   17+r    4     byte length of the ext block, then entries:
 *                 key length 2, key, value length 4, value
 * A zero-length key or value reads back as missing. */
#ifndef RMF_HEADER_H
#define RMF_HEADER_H

#include "rmf_buffer.h"
#include "rmf_common.h"

#define RMF_LANGUAGE_UNKNOWN (-1)
#define RMF_LANGUAGE_JAVA 0
/* JAVA 0 ... RUST 12, NODE_JS 13 (LanguageCode.java, 5.3.3) */
#define RMF_LANGUAGE_COUNT 14

struct rmf_ext_field {
    struct rmf_slice key;
    struct rmf_slice value;
};

/* A decoded header. Slices point into `text`, which the header owns, or into the frame it was decoded
 * from, which must outlive them. Reused from frame to frame. */
struct rmf_header {
    int32_t code;
    int32_t language; /* LanguageCode ordinal or RMF_LANGUAGE_UNKNOWN */
    int32_t version;
    int32_t opaque;
    int32_t flag;
    bool has_remark;
    struct rmf_slice remark;
    struct rmf_ext_field *ext; /* owned; duplicates possible, the last one wins */
    size_t ext_count;
    size_t ext_capacity;
    struct rmf_buffer text; /* unescaped JSON strings */
};

void rmf_header_init(struct rmf_header *header);
void rmf_header_clear(struct rmf_header *header);

/* Name of a language ordinal, NULL when unknown. */
const char *rmf_language_name(int32_t language);
/* Ordinal of a language name, RMF_LANGUAGE_UNKNOWN when unknown. */
int32_t rmf_language_of(struct rmf_slice name);

/* Decode `bytes` into `header`, whose old content is dropped. Error positions count from the start of
 * the header. JSON: RMF_ERR_SYNTAX, RMF_ERR_NUMBER, RMF_ERR_DEPTH, RMF_ERR_NO_MEMORY. Compact:
 * RMF_ERR_TRUNCATED, RMF_ERR_LENGTH, RMF_ERR_NO_MEMORY. */
RMF_MUST_CHECK enum rmf_status rmf_header_decode_json(struct rmf_slice bytes,
                                                      struct rmf_header *header,
                                                      struct rmf_error *error);
RMF_MUST_CHECK enum rmf_status rmf_header_decode_compact(struct rmf_slice bytes,
                                                         struct rmf_header *header,
                                                         struct rmf_error *error);

/* Add one ext field to a header under construction; slices are borrowed. */
RMF_MUST_CHECK enum rmf_status rmf_header_add_ext(struct rmf_header *header, struct rmf_slice key,
                                                  struct rmf_slice value);

/* Append the encoded header to `out`. Compact: RMF_ERR_NUMBER when the code does not fit 16 bits,
 * RMF_ERR_LENGTH when a key is longer than 32767 bytes. */
RMF_MUST_CHECK enum rmf_status rmf_header_encode_json(const struct rmf_header *header,
                                                      struct rmf_buffer *out);
RMF_MUST_CHECK enum rmf_status rmf_header_encode_compact(const struct rmf_header *header,
                                                         struct rmf_buffer *out,
                                                         struct rmf_error *error);

#endif
