#include "rmf_stored.h"

#include <string.h>

#include "rmf_crc32.h"
#include "rmf_cursor.h"

#define PROPERTY_NAME_END 0x01
#define PROPERTY_END 0x02

static bool host_length_ok(size_t length) { return length == 8 || length == 20; }

/* A separator is missing where two property strings meet and the first has no trailing one. */
static bool needs_separator(struct rmf_slice first, struct rmf_slice more) {
    return first.len > 0 && more.len > 0 && first.ptr[first.len - 1] != PROPERTY_END;
}

static size_t properties_length(const struct rmf_stored_fields *fields) {
    return fields->properties.len + fields->more_properties.len +
           (needs_separator(fields->properties, fields->more_properties) ? 1 : 0);
}

enum rmf_status rmf_stored_measure(const struct rmf_stored_fields *fields, size_t *total,
                                   struct rmf_error *error) {
    if (fields->topic.len == 0 || fields->topic.len > RMF_STORED_TOPIC_MAX_BYTES) {
        return rmf_fail(error, RMF_ERR_LENGTH, "topic", 0, (int64_t)fields->topic.len,
                        RMF_STORED_TOPIC_MAX_BYTES);
    }
    if (!host_length_ok(fields->born_host.len) || !host_length_ok(fields->store_host.len)) {
        return rmf_fail(error, RMF_ERR_LENGTH, "host", 0, (int64_t)fields->born_host.len, 20);
    }
    size_t properties = properties_length(fields);
    if (properties > RMF_PROPERTIES_MAX_BYTES) {
        return rmf_fail(error, RMF_ERR_LENGTH, "properties", 0, (int64_t)properties,
                        RMF_PROPERTIES_MAX_BYTES);
    }
    if (fields->body.len > RMF_STORED_MAX_BYTES - 65536) {
        return rmf_fail(error, RMF_ERR_LENGTH, "body", 0, (int64_t)fields->body.len,
                        RMF_STORED_MAX_BYTES - 65536);
    }
    *total = RMF_STORED_FIXED_BYTES - 16 + fields->born_host.len + fields->store_host.len +
             fields->body.len + fields->topic.len + properties;
    return RMF_OK;
}

static uint8_t *put_bytes(uint8_t *out, struct rmf_slice bytes) {
    if (bytes.len > 0) {
        memcpy(out, bytes.ptr, bytes.len);
    }
    return out + bytes.len;
}

static uint8_t *put_be32(uint8_t *out, uint32_t value) {
    rmf_store_be32_unsafe(out, value);
    return out + 4;
}

static uint8_t *put_be64(uint8_t *out, int64_t value) {
    rmf_store_be64_unsafe(out, (uint64_t)value);
    return out + 8;
}

void rmf_stored_write_unsafe(const struct rmf_stored_fields *fields, size_t total,
                             int64_t tags_code, uint8_t *out, uint8_t *index) {
    int32_t sys_flag = fields->sys_flag & ~(RMF_STORED_BORN_V6 | RMF_STORED_STORE_V6);
    sys_flag |= fields->born_host.len == 20 ? RMF_STORED_BORN_V6 : 0;
    sys_flag |= fields->store_host.len == 20 ? RMF_STORED_STORE_V6 : 0;

    uint8_t *p = put_be32(out, (uint32_t)total);
    p = put_be32(p, RMF_STORED_MAGIC_V1);
    p = put_be32(p, rmf_crc32_body(fields->body.ptr, fields->body.len));
    p = put_be32(p, (uint32_t)fields->queue_id);
    p = put_be32(p, (uint32_t)fields->flag);
    p = put_be64(p, fields->queue_offset);
    p = put_be64(p, fields->position);
    p = put_be32(p, (uint32_t)sys_flag);
    p = put_be64(p, fields->born_timestamp_ms);
    p = put_bytes(p, fields->born_host);
    p = put_be64(p, fields->store_timestamp_ms);
    p = put_bytes(p, fields->store_host);
    p = put_be32(p, (uint32_t)fields->reconsume_times);
    p = put_be64(p, fields->prepared_transaction_offset);
    p = put_be32(p, (uint32_t)fields->body.len);
    p = put_bytes(p, fields->body);
    *p++ = (uint8_t)fields->topic.len;
    p = put_bytes(p, fields->topic);
    rmf_store_be16_unsafe(p, (uint16_t)properties_length(fields));
    p = put_bytes(p + 2, fields->properties);
    if (needs_separator(fields->properties, fields->more_properties)) {
        *p++ = PROPERTY_END;
    }
    put_bytes(p, fields->more_properties);

    index = put_be64(index, fields->position);
    index = put_be32(index, (uint32_t)total);
    put_be64(index, tags_code);
}

bool rmf_stored_property(struct rmf_slice properties, struct rmf_slice name,
                         struct rmf_slice *value) {
    const uint8_t *p = properties.ptr;
    size_t left = properties.len;
    bool found = false;
    while (left > 0) {
        const uint8_t *end = memchr(p, PROPERTY_END, left);
        size_t entry = end == NULL ? left : (size_t)(end - p);
        /* Java drops entries without a value; a later duplicate wins. */
        if (entry > name.len + 1 && p[name.len] == PROPERTY_NAME_END &&
            memcmp(p, name.ptr, name.len) == 0) {
            value->ptr = p + name.len + 1;
            value->len = entry - name.len - 1;
            found = true;
        }
        if (end == NULL) {
            break;
        }
        p += entry + 1;
        left -= entry + 1;
    }
    return found;
}

/* String.hashCode over the UTF-16 units of UTF-8 text. Ill-formed bytes count as U+FFFD, as Java's
 * decoder would replace them; a server refuses such text before it is stored. */
static int32_t java_hash(struct rmf_slice text) {
    uint32_t hash = 0;
    size_t i = 0;
    while (i < text.len) {
        uint8_t lead = text.ptr[i];
        uint32_t unit = lead;
        size_t more = lead < 0x80 ? 0 : lead < 0xC2 ? 4 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        if (lead >= 0xF5) {
            more = 4;
        }
        i++;
        if (more == 4) {
            unit = 0xFFFD;
        } else if (more > 0) {
            unit = lead & (0x3Fu >> more);
            size_t k = 0;
            while (k < more && i + k < text.len && (text.ptr[i + k] & 0xC0) == 0x80) {
                unit = (unit << 6) | (text.ptr[i + k] & 0x3Fu);
                k++;
            }
            i += k;
            if (k < more) {
                unit = 0xFFFD;
            }
        }
        if (unit >= 0x10000) {
            hash = hash * 31 + (0xD800 + ((unit - 0x10000) >> 10));
            unit = 0xDC00 + ((unit - 0x10000) & 0x3FF);
        }
        hash = hash * 31 + unit;
    }
    return (int32_t)hash;
}

int64_t rmf_stored_tags_code(struct rmf_slice properties) {
    static const uint8_t tags[4] = {'T', 'A', 'G', 'S'};
    struct rmf_slice name = {tags, sizeof tags};
    struct rmf_slice value = {NULL, 0};
    return rmf_stored_property(properties, name, &value) ? java_hash(value) : 0;
}

enum rmf_status rmf_stored_read(const uint8_t *data, size_t size, bool check_crc,
                                struct rmf_stored_fields *fields, struct rmf_error *error) {
    struct rmf_cursor c = rmf_cursor_of(data, size);
    int32_t total, magic, crc;
    if (!rmf_cursor_i32(&c, &total) || !rmf_cursor_i32(&c, &magic)) {
        return RMF_NEED_MORE;
    }
    if ((uint32_t)magic != RMF_STORED_MAGIC_V1 && (uint32_t)magic != RMF_STORED_MAGIC_V2) {
        return rmf_fail(error, RMF_ERR_MAGIC, "magic", 4, magic, 0);
    }
    size_t record;
    if (!rmf_wire_len(total, RMF_STORED_MAX_BYTES, &record) || record < RMF_STORED_FIXED_BYTES) {
        return rmf_fail(error, RMF_ERR_LENGTH, "totalSize", 0, total, RMF_STORED_MAX_BYTES);
    }
    if (record > size) {
        return RMF_NEED_MORE;
    }
    c.size = record;

    struct rmf_stored_fields f;
    memset(&f, 0, sizeof f);
    f.total_size = (uint32_t)record;
    bool ok = rmf_cursor_i32(&c, &crc) && rmf_cursor_i32(&c, &f.queue_id) &&
              rmf_cursor_i32(&c, &f.flag) && rmf_cursor_i64(&c, &f.queue_offset) &&
              rmf_cursor_i64(&c, &f.position) && rmf_cursor_i32(&c, &f.sys_flag) &&
              rmf_cursor_i64(&c, &f.born_timestamp_ms);
    f.born_host.len = (f.sys_flag & RMF_STORED_BORN_V6) != 0 ? 20 : 8;
    f.store_host.len = (f.sys_flag & RMF_STORED_STORE_V6) != 0 ? 20 : 8;
    int32_t body;
    ok = ok && rmf_cursor_bytes(&c, f.born_host.len, &f.born_host.ptr) &&
         rmf_cursor_i64(&c, &f.store_timestamp_ms) &&
         rmf_cursor_bytes(&c, f.store_host.len, &f.store_host.ptr) &&
         rmf_cursor_i32(&c, &f.reconsume_times) &&
         rmf_cursor_i64(&c, &f.prepared_transaction_offset) && rmf_cursor_i32(&c, &body);
    if (!ok) {
        return rmf_fail(error, RMF_ERR_LENGTH, "totalSize", 0, total, RMF_STORED_MAX_BYTES);
    }
    if (!rmf_wire_len(body, rmf_cursor_left(&c), &f.body.len) ||
        !rmf_cursor_bytes(&c, f.body.len, &f.body.ptr)) {
        return rmf_fail(error, RMF_ERR_LENGTH, "bodyLength", c.pos - 4, body,
                        (int64_t)rmf_cursor_left(&c));
    }
    if ((uint32_t)magic == RMF_STORED_MAGIC_V1) {
        uint8_t length = 0;
        ok = rmf_cursor_u8(&c, &length);
        f.topic.len = length;
    } else {
        int16_t length = 0;
        ok = rmf_cursor_i16(&c, &length) && length >= 0;
        f.topic.len = ok ? (size_t)length : 0;
    }
    if (!ok || !rmf_cursor_bytes(&c, f.topic.len, &f.topic.ptr)) {
        return rmf_fail(error, RMF_ERR_LENGTH, "topicLength", c.pos, (int64_t)f.topic.len,
                        (int64_t)rmf_cursor_left(&c));
    }
    int16_t properties = 0;
    if (!rmf_cursor_i16(&c, &properties) || properties < 0 ||
        !rmf_cursor_bytes(&c, (size_t)properties, &f.properties.ptr)) {
        return rmf_fail(error, RMF_ERR_LENGTH, "propertiesLength", c.pos, properties,
                        (int64_t)rmf_cursor_left(&c));
    }
    f.properties.len = (size_t)properties;
    if (rmf_cursor_left(&c) != 0) {
        return rmf_fail(error, RMF_ERR_LENGTH, "totalSize", 0, total, (int64_t)c.pos);
    }
    f.body_crc = (uint32_t)crc;
    if (check_crc && rmf_crc32_body(f.body.ptr, f.body.len) != f.body_crc) {
        return rmf_fail(error, RMF_ERR_CRC, "bodyCRC", 8, crc, 0);
    }
    *fields = f;
    return RMF_OK;
}

/* Reads the element at the cursor; the slices borrow from the batch body. */
static enum rmf_status read_element(struct rmf_cursor *c, struct rmf_stored_fields *element,
                                    struct rmf_error *error) {
    size_t start = c->pos;
    int32_t total, magic, crc, flag, body;
    int16_t properties;
    if (!rmf_cursor_i32(c, &total) || !rmf_cursor_i32(c, &magic) || !rmf_cursor_i32(c, &crc) ||
        !rmf_cursor_i32(c, &flag) || !rmf_cursor_i32(c, &body)) {
        return rmf_fail(error, RMF_ERR_TRUNCATED, "batch element", start,
                        (int64_t)(c->size - start), RMF_BATCH_ELEMENT_FIXED_BYTES);
    }
    if (!rmf_wire_len(body, rmf_cursor_left(c), &element->body.len) ||
        !rmf_cursor_bytes(c, element->body.len, &element->body.ptr)) {
        return rmf_fail(error, RMF_ERR_LENGTH, "batch body length", start, body,
                        (int64_t)rmf_cursor_left(c));
    }
    if (!rmf_cursor_i16(c, &properties) || properties < 0 ||
        !rmf_cursor_bytes(c, (size_t)properties, &element->properties.ptr)) {
        return rmf_fail(error, RMF_ERR_LENGTH, "batch properties length", start, 0,
                        (int64_t)rmf_cursor_left(c));
    }
    element->properties.len = (size_t)properties;
    element->flag = flag;
    if ((int64_t)(c->pos - start) != total) {
        return rmf_fail(error, RMF_ERR_LENGTH, "batch element size", start, total,
                        (int64_t)(c->pos - start));
    }
    return RMF_OK;
}

enum rmf_status rmf_stored_batch_measure(const struct rmf_stored_fields *common,
                                         struct rmf_slice batch, size_t *count, size_t *total,
                                         struct rmf_error *error) {
    struct rmf_stored_fields element = *common;
    struct rmf_cursor c = rmf_cursor_of(batch.ptr, batch.len);
    size_t messages = 0;
    size_t bytes = 0;
    while (rmf_cursor_left(&c) > 0) {
        size_t start = c.pos;
        size_t record;
        enum rmf_status status = read_element(&c, &element, error);
        if (status == RMF_OK) {
            status = rmf_stored_measure(&element, &record, error);
            if (status != RMF_OK && error != NULL) {
                error->position = start;
            }
        }
        if (status != RMF_OK) {
            return status;
        }
        if (bytes > SIZE_MAX / 2 - record) {
            return rmf_fail(error, RMF_ERR_LENGTH, "batch", start, (int64_t)record, 0);
        }
        messages++;
        bytes += record;
    }
    *count = messages;
    *total = bytes;
    return RMF_OK;
}

void rmf_stored_batch_write_unsafe(const struct rmf_stored_fields *common, struct rmf_slice batch,
                                   uint8_t *out, uint8_t *index) {
    struct rmf_stored_fields element = *common;
    struct rmf_cursor c = rmf_cursor_of(batch.ptr, batch.len);
    while (rmf_cursor_left(&c) > 0) {
        size_t record = 0;
        /* Measured before: neither call can fail on the same bytes. */
        if (read_element(&c, &element, NULL) != RMF_OK ||
            rmf_stored_measure(&element, &record, NULL) != RMF_OK) {
            return;
        }
        /* What the broker appends wins over the element, as a later duplicate does for readers. */
        int64_t code = rmf_stored_tags_code(element.more_properties);
        if (code == 0) {
            code = rmf_stored_tags_code(element.properties);
        }
        rmf_stored_write_unsafe(&element, record, code, out, index);
        out += record;
        index += RMF_INDEX_ENTRY_BYTES;
        element.position += (int64_t)record;
        element.queue_offset++;
    }
}

static bool code_in(const int32_t *codes, size_t count, int32_t code) {
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (codes[middle] == code) {
            return true;
        }
        if (codes[middle] < code) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return false;
}

void rmf_index_select(const uint8_t *entries, size_t entry_count, const int32_t *codes,
                      size_t code_count, const struct rmf_index_limits *limits,
                      struct rmf_index_run *runs, struct rmf_index_selection *selection) {
    struct rmf_index_selection s = {0, 0, 0, 0};
    for (size_t i = 0; i < entry_count; i++) {
        const uint8_t *entry = entries + i * RMF_INDEX_ENTRY_BYTES;
        int64_t position = (int64_t)rmf_load_be64_unsafe(entry);
        size_t size = rmf_load_be32_unsafe(entry + 8);
        if (s.count > 0) {
            bool disk = position < limits->disk_position;
            size_t max_bytes = disk ? limits->disk_bytes : limits->max_bytes;
            size_t max_count = limits->max_count;
            if (disk && limits->disk_count < max_count) {
                max_count = limits->disk_count;
            }
            if (s.count >= max_count || s.bytes + size > max_bytes) {
                break;
            }
        }
        s.scanned++;
        if (codes != NULL) {
            int32_t code = (int32_t)rmf_load_be32_unsafe(entry + 16);
            if (!code_in(codes, code_count, code)) {
                continue;
            }
        }
        /* Unsigned, because a damaged index may hold any number. */
        if (s.runs > 0 && (uint64_t)runs[s.runs - 1].position +
                                  (uint64_t)runs[s.runs - 1].size == (uint64_t)position) {
            runs[s.runs - 1].size += (int64_t)size;
        } else {
            runs[s.runs].position = position;
            runs[s.runs].size = (int64_t)size;
            s.runs++;
        }
        s.count++;
        s.bytes += size;
    }
    *selection = s;
}
