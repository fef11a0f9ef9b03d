#include "rmf_message.h"

#include "rmf_crc32.h"

#define RMF_MESSAGE_FIXED_BYTES 68u /* up to the body length, without the two hosts */

/* Fills a fault. `at` counts from the message's start. */
static enum rmf_status rmf_fault(struct rmf_message_fault *fault, enum rmf_status status,
                                 const char *field, size_t start, size_t at, int64_t value,
                                 int64_t limit) {
    return rmf_fail(&fault->error, status, field, start + at, value, limit);
}

/* All fields, in order; the cursor ends behind the properties. It covers at most the message. */
static enum rmf_status rmf_message_decode_parts(struct rmf_cursor *cursor, size_t start,
                                                struct rmf_message *m,
                                                struct rmf_message_fault *fault) {
    size_t total = cursor->size;
    const uint8_t *fixed;
    int32_t body_len;
    if (!rmf_cursor_bytes(cursor, 48, &fixed)) {
        return rmf_fault(fault, RMF_ERR_TRUNCATED, "message", start, cursor->pos, (int64_t)total,
                         RMF_MESSAGE_MIN_BYTES);
    }
    bool v2 = (int32_t)rmf_load_be32_unsafe(fixed + 4) == RMF_MESSAGE_MAGIC_V2;
    int32_t sys_flag = (int32_t)rmf_load_be32_unsafe(fixed + 36);
    m->head = fixed;
    m->element = NULL;
    m->inflated = 0;
    m->queue_offset = (int64_t)rmf_load_be64_unsafe(fixed + 20);
    fault->queue_offset = m->queue_offset;
    m->host_bytes = (uint8_t)(((sys_flag & RMF_SYS_BORN_V6) != 0 ? 20 : 8) +
                              ((sys_flag & RMF_SYS_STORE_V6) != 0 ? 20 : 8));
    const uint8_t *middle; /* hosts, store timestamp, reconsume times, prepared transaction offset */
    if (!rmf_cursor_bytes(cursor, RMF_MESSAGE_FIXED_BYTES - 48u + m->host_bytes, &middle) ||
        !rmf_cursor_i32(cursor, &body_len)) {
        return rmf_fault(fault, RMF_ERR_TRUNCATED, "message", start, cursor->pos, (int64_t)total,
                         (int64_t)RMF_MESSAGE_FIXED_BYTES + 4 + m->host_bytes);
    }
    size_t len;
    if (!rmf_wire_len(body_len, rmf_cursor_left(cursor), &len) ||
        !rmf_cursor_bytes(cursor, len, &m->body)) {
        return rmf_fault(fault, RMF_ERR_LENGTH, "body length", start, cursor->pos - 4, body_len,
                         (int64_t)rmf_cursor_left(cursor));
    }
    m->body_len = (uint32_t)len;

    int64_t topic_len;
    size_t topic_at = cursor->pos;
    if (v2) {
        int16_t wide;
        if (!rmf_cursor_i16(cursor, &wide)) {
            return rmf_fault(fault, RMF_ERR_TRUNCATED, "topic length", start, topic_at, 0, 0);
        }
        topic_len = wide;
    } else {
        uint8_t narrow;
        if (!rmf_cursor_u8(cursor, &narrow)) {
            return rmf_fault(fault, RMF_ERR_TRUNCATED, "topic length", start, topic_at, 0, 0);
        }
        topic_len = (int8_t)narrow;
    }
    const uint8_t *topic;
    size_t topic_pos = cursor->pos;
    if (!rmf_wire_len(topic_len, rmf_cursor_left(cursor), &len) ||
        !rmf_cursor_bytes(cursor, len, &topic)) {
        return rmf_fault(fault, RMF_ERR_LENGTH, "topic length", start, topic_at, topic_len,
                         (int64_t)rmf_cursor_left(cursor));
    }
    m->topic_pos = (uint32_t)topic_pos;
    m->topic_len = (uint16_t)len;

    int16_t properties_len;
    size_t properties_at = cursor->pos;
    if (!rmf_cursor_i16(cursor, &properties_len)) {
        return rmf_fault(fault, RMF_ERR_TRUNCATED, "properties length", start, properties_at, 0, 0);
    }
    if (!rmf_wire_len(properties_len, rmf_cursor_left(cursor), &len) ||
        !rmf_cursor_bytes(cursor, len, &m->properties)) {
        return rmf_fault(fault, RMF_ERR_LENGTH, "properties length", start, properties_at,
                         properties_len, (int64_t)rmf_cursor_left(cursor));
    }
    m->properties_len = (uint16_t)len;
    return RMF_OK;
}

/* Whether a message could begin at `position`, or the data ends there. */
static bool rmf_message_plausible_at(struct rmf_slice buffer, size_t position) {
    if (position == buffer.len) {
        return true;
    }
    if (position > buffer.len || buffer.len - position < 8) {
        return false;
    }
    const uint8_t *p = buffer.ptr + position;
    int32_t magic = (int32_t)rmf_load_be32_unsafe(p + 4);
    size_t size;
    if (magic == RMF_MESSAGE_MAGIC_BLANK) {
        return true;
    }
    return (magic == RMF_MESSAGE_MAGIC_V1 || magic == RMF_MESSAGE_MAGIC_V2) &&
           rmf_wire_len((int32_t)rmf_load_be32_unsafe(p), buffer.len - position, &size) &&
           size >= RMF_MESSAGE_MIN_BYTES;
}

/* Decides where to go on behind a bad message of known magic: behind its announced size, or, when
 * nothing begins there, behind the end that its inner lengths lead to. Without this, one flipped bit in
 * a size field would cost every message behind it. */
static void rmf_message_find_next(struct rmf_slice buffer, size_t position, size_t announced,
                                  struct rmf_message_fault *fault, size_t *next) {
    if (announced > 0 && rmf_message_plausible_at(buffer, position + announced)) {
        *next = position + announced;
        fault->resumable = true;
        return;
    }
    struct rmf_cursor rest = rmf_cursor_of(buffer.ptr + position, buffer.len - position);
    struct rmf_message ignored;
    struct rmf_message_fault inner = *fault;
    enum rmf_status status = rmf_message_decode_parts(&rest, position, &ignored, &inner);
    if (status == RMF_OK && rmf_message_plausible_at(buffer, position + rest.pos)) {
        *next = position + rest.pos;
        fault->resumable = true;
        return;
    }
    if (announced > 0) {
        *next = position + announced;
        fault->resumable = true;
    }
}

enum rmf_status rmf_message_decode(struct rmf_slice buffer, size_t position, bool check_crc,
                                   struct rmf_message *message, size_t *next,
                                   struct rmf_message_fault *fault) {
    if (position >= buffer.len) {
        return RMF_NEED_MORE;
    }
    fault->message_position = position;
    fault->queue_offset = -1;
    fault->resumable = false;
    struct rmf_cursor cursor = rmf_cursor_of(buffer.ptr + position, buffer.len - position);
    size_t rest = cursor.size;
    int32_t total;
    int32_t magic;
    if (!rmf_cursor_i32(&cursor, &total) || !rmf_cursor_i32(&cursor, &magic)) {
        return rmf_fault(fault, RMF_ERR_TRUNCATED, "message", position, 0, (int64_t)rest,
                         RMF_MESSAGE_MIN_BYTES);
    }
    if (magic == RMF_MESSAGE_MAGIC_BLANK) {
        return RMF_NEED_MORE; /* filler at the end of a commit log file */
    }
    bool known = magic == RMF_MESSAGE_MAGIC_V1 || magic == RMF_MESSAGE_MAGIC_V2;
    size_t size = 0;
    bool sized = rmf_wire_len(total, rest, &size) && size >= RMF_MESSAGE_MIN_BYTES;
    enum rmf_status status;
    if (!known) {
        status = rmf_fault(fault, RMF_ERR_MAGIC, "message magic", position, 4, magic, 0);
        if (sized) {
            *next = position + size;
            fault->resumable = true;
        }
        return status;
    }
    if (!sized) {
        if (rest >= 28) {
            fault->queue_offset = (int64_t)rmf_load_be64_unsafe(buffer.ptr + position + 20);
        }
        status = rmf_fault(fault, RMF_ERR_LENGTH, "total size", position, 0, total, (int64_t)rest);
        rmf_message_find_next(buffer, position, 0, fault, next);
        return status;
    }
    cursor = rmf_cursor_of(buffer.ptr + position, size);
    status = rmf_message_decode_parts(&cursor, position, message, fault);
    if (status == RMF_OK && rmf_cursor_left(&cursor) != 0) {
        status = rmf_fault(fault, RMF_ERR_LENGTH, "total size", position, 0, total,
                           (int64_t)cursor.pos);
    }
    if (status != RMF_OK) {
        rmf_message_find_next(buffer, position, size, fault, next);
        return status;
    }
    *next = position + size;
    if (check_crc) {
        int32_t stored = rmf_message_body_crc(message);
        int32_t computed = (int32_t)rmf_crc32_body(message->body, message->body_len);
        if (stored != computed) {
            fault->resumable = true;
            return rmf_fault(fault, RMF_ERR_CRC, "body CRC", position, 8, stored, computed);
        }
    }
    return RMF_OK;
}

enum rmf_status rmf_batch_element_decode(struct rmf_slice body, size_t position,
                                         const struct rmf_message *outer, int64_t queue_offset,
                                         struct rmf_message *message, size_t *next,
                                         struct rmf_error *error) {
    if (position >= body.len) {
        return RMF_NEED_MORE;
    }
    struct rmf_cursor cursor = rmf_cursor_of(body.ptr + position, body.len - position);
    size_t rest = cursor.size;
    int32_t total;
    if (!rmf_cursor_i32(&cursor, &total)) {
        return rmf_fail(error, RMF_ERR_TRUNCATED, "batch element", position, (int64_t)rest,
                        RMF_BATCH_ELEMENT_MIN_BYTES);
    }
    size_t size;
    if (!rmf_wire_len(total, rest, &size) || size < RMF_BATCH_ELEMENT_MIN_BYTES) {
        return rmf_fail(error, RMF_ERR_LENGTH, "batch element size", position, total,
                        (int64_t)rest);
    }
    const uint8_t *fixed;
    const uint8_t *element_body;
    const uint8_t *properties;
    int32_t body_len;
    int16_t properties_len;
    size_t len;
    cursor = rmf_cursor_of(body.ptr + position, size);
    if (!rmf_cursor_bytes(&cursor, 16, &fixed) || !rmf_cursor_i32(&cursor, &body_len)) {
        return rmf_fail(error, RMF_ERR_TRUNCATED, "batch element", position, total, 0);
    }
    if (!rmf_wire_len(body_len, rmf_cursor_left(&cursor), &len) ||
        !rmf_cursor_bytes(&cursor, len, &element_body)) {
        return rmf_fail(error, RMF_ERR_LENGTH, "batch element body length", position + 16, body_len,
                        (int64_t)rmf_cursor_left(&cursor));
    }
    if (!rmf_cursor_i16(&cursor, &properties_len)) {
        return rmf_fail(error, RMF_ERR_TRUNCATED, "batch element properties length",
                        position + cursor.pos, total, 0);
    }
    size_t properties_size;
    if (!rmf_wire_len(properties_len, rmf_cursor_left(&cursor), &properties_size) ||
        !rmf_cursor_bytes(&cursor, properties_size, &properties) ||
        rmf_cursor_left(&cursor) != 0) {
        return rmf_fail(error, RMF_ERR_LENGTH, "batch element properties length",
                        position + 20 + len, properties_len, (int64_t)rmf_cursor_left(&cursor));
    }
    *message = *outer;
    message->element = fixed;
    message->body = element_body;
    message->body_len = (uint32_t)len;
    message->properties = properties;
    message->properties_len = (uint16_t)properties_size;
    message->queue_offset = queue_offset;
    message->inflated = 1;
    *next = position + size;
    return RMF_OK;
}

static size_t rmf_hex(const uint8_t *bytes, size_t count, char *out) {
    static const char HEX[] = "0123456789ABCDEF";
    for (size_t i = 0; i < count; i++) {
        out[2 * i] = HEX[bytes[i] >> 4];
        out[2 * i + 1] = HEX[bytes[i] & 0xF];
    }
    return 2 * count;
}

size_t rmf_message_offset_id(const struct rmf_message *m, char *out) {
    struct rmf_slice host = rmf_message_store_host(m);
    size_t used = rmf_hex(host.ptr, host.len, out);
    return used + rmf_hex(m->head + 28, 8, out + used);
}
