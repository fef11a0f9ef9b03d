#include "rmf_encode.h"

#include <string.h>

#include "rmf_cursor.h"
#include "rmf_properties.h"

#define RMF_ELEMENT_FIXED_BYTES 20u /* up to the body */

static bool rmf_has_separator(struct rmf_slice text) {
    return text.len > 0 && (memchr(text.ptr, RMF_PROPERTY_NAME_END, text.len) != NULL ||
                            memchr(text.ptr, RMF_PROPERTY_END, text.len) != NULL);
}

enum rmf_status rmf_encode_property(struct rmf_buffer *out, size_t start, struct rmf_slice name,
                                    struct rmf_slice value, struct rmf_error *error) {
    if (rmf_has_separator(name) || rmf_has_separator(value)) {
        return rmf_fail(error, RMF_ERR_SYNTAX, "property without U+0001 and U+0002",
                        out->size - start, 0, 0);
    }
    if (name.len > SIZE_MAX / 4 || value.len > SIZE_MAX / 4) {
        return rmf_fail(error, RMF_ERR_NO_MEMORY, "property", out->size - start, 0, 0);
    }
    enum rmf_status status = rmf_buffer_reserve(out, name.len + value.len + 2);
    if (status != RMF_OK) {
        return rmf_fail(error, status, "property", out->size - start, 0, 0);
    }
    uint8_t *to = out->data + out->size;
    if (out->size > start) {
        *to++ = RMF_PROPERTY_END;
    }
    if (name.len > 0) {
        memcpy(to, name.ptr, name.len);
        to += name.len;
    }
    *to++ = RMF_PROPERTY_NAME_END;
    if (value.len > 0) {
        memcpy(to, value.ptr, value.len);
        to += value.len;
    }
    out->size = (size_t)(to - out->data);
    return RMF_OK;
}

enum rmf_status rmf_encode_element_begin(struct rmf_buffer *out, int32_t flag,
                                         struct rmf_slice body, size_t *start,
                                         size_t *properties_start, struct rmf_error *error) {
    if (body.len > INT32_MAX / 2) {
        return rmf_fail(error, RMF_ERR_LENGTH, "body", out->size, (int64_t)body.len, INT32_MAX / 2);
    }
    enum rmf_status status = rmf_buffer_reserve(out, RMF_ELEMENT_FIXED_BYTES + body.len + 2);
    if (status != RMF_OK) {
        return rmf_fail(error, status, "batch element", out->size, 0, 0);
    }
    uint8_t *to = out->data + out->size;
    memset(to, 0, 12);
    rmf_store_be32_unsafe(to + 12, (uint32_t)flag);
    rmf_store_be32_unsafe(to + 16, (uint32_t)body.len);
    if (body.len > 0) {
        memcpy(to + RMF_ELEMENT_FIXED_BYTES, body.ptr, body.len);
    }
    rmf_store_be16_unsafe(to + RMF_ELEMENT_FIXED_BYTES + body.len, 0);
    *start = out->size;
    out->size += RMF_ELEMENT_FIXED_BYTES + body.len + 2;
    *properties_start = out->size;
    return RMF_OK;
}

enum rmf_status rmf_encode_element_end(struct rmf_buffer *out, size_t start,
                                       size_t properties_start, struct rmf_error *error) {
    size_t properties = out->size - properties_start;
    if (properties > RMF_PROPERTIES_MAX_BYTES) {
        return rmf_fail(error, RMF_ERR_LENGTH, "properties", properties_start, (int64_t)properties,
                        RMF_PROPERTIES_MAX_BYTES);
    }
    rmf_store_be32_unsafe(out->data + start, (uint32_t)(out->size - start));
    rmf_store_be16_unsafe(out->data + properties_start - 2, (uint16_t)properties);
    return RMF_OK;
}

void rmf_encode_unique_id(const uint8_t *prefix10, uint32_t month_ms, uint16_t counter, char *out) {
    static const char HEX[] = "0123456789ABCDEF";
    uint8_t bytes[RMF_UNIQUE_ID_CHARS / 2];
    memcpy(bytes, prefix10, 10);
    rmf_store_be32_unsafe(bytes + 10, month_ms);
    rmf_store_be16_unsafe(bytes + 14, counter);
    for (size_t i = 0; i < sizeof bytes; i++) {
        out[2 * i] = HEX[bytes[i] >> 4];
        out[2 * i + 1] = HEX[bytes[i] & 0xF];
    }
}
