/* Stored messages, as the body of a pull, view or query answer holds them, one after another.
 *
 * B = 8 (IPv4) or 20 (IPv6) by sysFlag 0x10, S = 8 or 20 by 0x20.
 *   offset      size  field                              versions
 *   0           4     total size                         V1, V2
 *   4           4     magic 0xDAA320A7 V1, 0xDAA320AB V2 (5.x: topics over 127 bytes)
 *   8           4     body CRC                           V1, V2
 *   12          4     queue id
 *   16          4     flag
 *   20          8     queue offset
 *   28          8     commit log offset
 *   36          4     sysFlag
 *   40          8     born timestamp, ms
 *   48          B     born host: address, 4-byte port
 *   48+B        8     store timestamp, ms
 *   56+B        S     store host
 *   56+B+S      4     reconsume times
 *   60+B+S      8     prepared transaction offset
 *   68+B+S      4+n   body length, body
 *   72+B+S+n    1+t   topic length, topic                V1 (V2: 2+t)
 *   73+B+S+n+t  2+p   properties length, properties
 *
 * An inner batch (5.x, sysFlag 0x80 and 0x40) stores several messages as one; its body holds elements:
 *   0 total size 4, magic 4, CRC 4, flag 4, body length 4, body n, properties length 2, properties p */
#ifndef RMF_MESSAGE_H
#define RMF_MESSAGE_H

#include "rmf_common.h"
#include "rmf_cursor.h"
#include "rmf_properties.h"

#define RMF_MESSAGE_MAGIC_V1 (-626843481)
#define RMF_MESSAGE_MAGIC_V2 (-626843477)
#define RMF_MESSAGE_MAGIC_BLANK (-875286124)
#define RMF_MESSAGE_MIN_BYTES 91u
#define RMF_BATCH_ELEMENT_MIN_BYTES 22u

#define RMF_SYS_COMPRESSED 0x1
#define RMF_SYS_BORN_V6 0x10
#define RMF_SYS_STORE_V6 0x20
#define RMF_SYS_NEED_UNWRAP 0x40
#define RMF_SYS_INNER_BATCH 0x80
#define RMF_SYS_COMPRESSION_MASK 0x700

/* Where each part of one delivered message is. `head` points to the stored message (for a message of an
 * inner batch: to the outer one); body and properties may lie elsewhere, once unwrapped or inflated.
 * 56 bytes a message: part of the memory bound of cached messages. */
struct rmf_message {
    const uint8_t *head;
    const uint8_t *body;
    const uint8_t *properties;
    const uint8_t *element; /* the element of an inner batch, else NULL */
    int64_t queue_offset;
    uint32_t body_len;
    uint32_t topic_pos; /* of the topic text, from head */
    uint16_t topic_len;
    uint16_t properties_len;
    uint8_t host_bytes; /* B + S */
    uint8_t inflated;   /* body is not the stored one */
};

/* One message that could not be decoded. */
struct rmf_message_fault {
    struct rmf_error error; /* position: from the start of the buffer */
    size_t message_position;
    int64_t queue_offset; /* -1 when it could not be read */
    bool resumable;       /* the size field was plausible: the next message follows */
};

/* Decodes the message at `position` of the buffer. RMF_OK: *message is filled and *next is the position
 * of the following message. RMF_NEED_MORE: a blank filler or the end; nothing follows. Else *fault is
 * filled; when it is resumable, *next is the position after the bad message.
 * `check_crc` compares the stored checksum with the stored body. */
RMF_MUST_CHECK enum rmf_status rmf_message_decode(struct rmf_slice buffer, size_t position,
                                                  bool check_crc, struct rmf_message *message,
                                                  size_t *next, struct rmf_message_fault *fault);

/* Decodes the element at `position` of an inner batch's body (or of a producer's batch body), whose
 * outer message is `outer`, with queue offset `queue_offset`. As rmf_message_decode. */
RMF_MUST_CHECK enum rmf_status rmf_batch_element_decode(struct rmf_slice body, size_t position,
                                                        const struct rmf_message *outer,
                                                        int64_t queue_offset,
                                                        struct rmf_message *message, size_t *next,
                                                        struct rmf_error *error);

/* Fields at fixed places, of a message that rmf_message_decode accepted. */
static inline int32_t rmf_message_i32(const struct rmf_message *m, size_t offset) {
    return (int32_t)rmf_load_be32_unsafe(m->head + offset);
}

static inline int64_t rmf_message_i64(const struct rmf_message *m, size_t offset) {
    return (int64_t)rmf_load_be64_unsafe(m->head + offset);
}

static inline int32_t rmf_message_store_size(const struct rmf_message *m) {
    return rmf_message_i32(m, 0);
}
static inline int32_t rmf_message_body_crc(const struct rmf_message *m) {
    return rmf_message_i32(m, 8);
}
static inline int32_t rmf_message_queue_id(const struct rmf_message *m) {
    return rmf_message_i32(m, 12);
}
static inline int32_t rmf_message_flag(const struct rmf_message *m) {
    return m->element == NULL ? rmf_message_i32(m, 16)
                              : (int32_t)rmf_load_be32_unsafe(m->element + 12);
}
static inline int64_t rmf_message_commit_log_offset(const struct rmf_message *m) {
    return rmf_message_i64(m, 28);
}
static inline int32_t rmf_message_sys_flag(const struct rmf_message *m) {
    return rmf_message_i32(m, 36);
}
static inline int64_t rmf_message_born_timestamp_ms(const struct rmf_message *m) {
    return rmf_message_i64(m, 40);
}
static inline size_t rmf_message_born_host_bytes(const struct rmf_message *m) {
    return (rmf_message_sys_flag(m) & RMF_SYS_BORN_V6) != 0 ? 20 : 8;
}
static inline struct rmf_slice rmf_message_born_host(const struct rmf_message *m) {
    struct rmf_slice host = {m->head + 48, rmf_message_born_host_bytes(m)};
    return host;
}
static inline int64_t rmf_message_store_timestamp_ms(const struct rmf_message *m) {
    return rmf_message_i64(m, 48 + rmf_message_born_host_bytes(m));
}
static inline struct rmf_slice rmf_message_store_host(const struct rmf_message *m) {
    size_t born = rmf_message_born_host_bytes(m);
    struct rmf_slice host = {m->head + 56 + born, m->host_bytes - born};
    return host;
}
/* Java's reader leaves these two at 0 for a message of an inner batch. */
static inline int32_t rmf_message_reconsume_times(const struct rmf_message *m) {
    return m->element == NULL ? rmf_message_i32(m, 56u + m->host_bytes) : 0;
}
static inline int64_t rmf_message_prepared_transaction_offset(const struct rmf_message *m) {
    return m->element == NULL ? rmf_message_i64(m, 60u + m->host_bytes) : 0;
}
static inline struct rmf_slice rmf_message_topic(const struct rmf_message *m) {
    struct rmf_slice topic = {m->head + m->topic_pos, m->topic_len};
    return topic;
}
static inline struct rmf_slice rmf_message_body(const struct rmf_message *m) {
    struct rmf_slice body = {m->body, m->body_len};
    return body;
}
static inline struct rmf_slice rmf_message_properties(const struct rmf_message *m) {
    struct rmf_slice properties = {m->properties, m->properties_len};
    return properties;
}
/* Whether the stored body must be inflated before use. */
static inline bool rmf_message_is_compressed(const struct rmf_message *m) {
    return (rmf_message_sys_flag(m) & RMF_SYS_COMPRESSED) != 0;
}
static inline bool rmf_message_is_inner_batch(const struct rmf_message *m) {
    int32_t both = RMF_SYS_INNER_BATCH | RMF_SYS_NEED_UNWRAP;
    return m->element == NULL && (rmf_message_sys_flag(m) & both) == both;
}

static inline bool rmf_message_find_property(const struct rmf_message *m, const char *name,
                                             size_t name_len, struct rmf_slice *value) {
    return rmf_properties_find(rmf_message_properties(m), name, name_len, value);
}

/* Upper-case hex of store host and commit log offset; `out` has room for 56 bytes. Returns 32 or 56. */
size_t rmf_message_offset_id(const struct rmf_message *m, char *out);

#endif
