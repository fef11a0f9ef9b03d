#include "rmf_header.h"

#include <string.h>

#include "rmf_alloc.h"
#include "rmf_cursor.h"
#include "rmf_json.h"

static const char *const RMF_LANGUAGE_NAMES[RMF_LANGUAGE_COUNT] = {
    "JAVA", "CPP",  "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
    "OTHER", "HTTP", "GO",     "PHP",    "OMS",    "RUST",   "NODE_JS"};

const char *rmf_language_name(int32_t language) {
    return language >= 0 && language < RMF_LANGUAGE_COUNT ? RMF_LANGUAGE_NAMES[language] : NULL;
}

static bool rmf_slice_is(struct rmf_slice slice, const char *text) {
    size_t len = strlen(text);
    return slice.len == len && memcmp(slice.ptr, text, len) == 0;
}

int32_t rmf_language_of(struct rmf_slice name) {
    for (int32_t i = 0; i < RMF_LANGUAGE_COUNT; i++) {
        if (rmf_slice_is(name, RMF_LANGUAGE_NAMES[i])) {
            return i;
        }
    }
    return RMF_LANGUAGE_UNKNOWN;
}

void rmf_header_init(struct rmf_header *header) {
    memset(header, 0, sizeof *header);
    rmf_buffer_init(&header->text);
}

void rmf_header_clear(struct rmf_header *header) {
    rmf_free(header->ext);
    rmf_buffer_clear(&header->text);
    rmf_header_init(header);
}

static void rmf_header_restart(struct rmf_header *header) {
    header->code = 0;
    header->language = RMF_LANGUAGE_JAVA; /* what Java assumes of a header without one */
    header->version = 0;
    header->opaque = 0;
    header->flag = 0;
    header->has_remark = false;
    header->remark.ptr = NULL;
    header->remark.len = 0;
    header->ext_count = 0;
    header->text.size = 0;
}

enum rmf_status rmf_header_add_ext(struct rmf_header *header, struct rmf_slice key,
                                   struct rmf_slice value) {
    if (header->ext_count == header->ext_capacity) {
        size_t capacity = header->ext_capacity == 0 ? 16 : header->ext_capacity * 2;
        struct rmf_ext_field *ext = rmf_realloc_array(header->ext, capacity, sizeof *ext);
        if (ext == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        header->ext = ext;
        header->ext_capacity = capacity;
    }
    header->ext[header->ext_count].key = key;
    header->ext[header->ext_count].value = value;
    header->ext_count += 1;
    return RMF_OK;
}

/* ------------------------------------------------------------------------------------ JSON */

static enum rmf_status rmf_header_int(struct rmf_json *json, const char *field, int32_t *out,
                                      struct rmf_error *error) {
    size_t position = json->cursor.pos;
    int64_t value;
    enum rmf_status status = rmf_json_integer(json, &value, error);
    if (status != RMF_OK) {
        if (error != NULL) {
            error->field = field;
        }
        return status;
    }
    if (value < INT32_MIN || value > INT32_MAX) {
        return rmf_fail(error, RMF_ERR_NUMBER, field, position, value, INT32_MAX);
    }
    *out = (int32_t)value;
    return RMF_OK;
}

static enum rmf_status rmf_header_json_ext(struct rmf_json *json, struct rmf_header *header,
                                           struct rmf_error *error) {
    enum rmf_status status;
    if (rmf_json_peek(json) == 'n') {
        return rmf_json_literal(json, "null", error);
    }
    bool more;
    status = rmf_json_object_begin(json, &more, error);
    while (status == RMF_OK && more) {
        struct rmf_slice key;
        struct rmf_slice value;
        bool is_null = false;
        status = rmf_json_key(json, &key, error);
        if (status == RMF_OK) {
            status = rmf_json_scalar_text(json, &value, &is_null, error);
        }
        if (status == RMF_OK && !is_null) {
            status = rmf_header_add_ext(header, key, value);
            if (status != RMF_OK) {
                return rmf_fail(error, status, "extFields", json->cursor.pos, 0, 0);
            }
        }
        if (status == RMF_OK) {
            status = rmf_json_object_next(json, &more, error);
        }
    }
    return status;
}

static enum rmf_status rmf_header_json_member(struct rmf_json *json, struct rmf_slice key,
                                              struct rmf_header *header, bool *has_code,
                                              struct rmf_error *error) {
    if (rmf_slice_is(key, "code")) {
        *has_code = true;
        return rmf_header_int(json, "code", &header->code, error);
    }
    if (rmf_slice_is(key, "extFields")) {
        return rmf_header_json_ext(json, header, error);
    }
    if (rmf_slice_is(key, "flag")) {
        return rmf_header_int(json, "flag", &header->flag, error);
    }
    if (rmf_slice_is(key, "opaque")) {
        return rmf_header_int(json, "opaque", &header->opaque, error);
    }
    if (rmf_slice_is(key, "version")) {
        return rmf_header_int(json, "version", &header->version, error);
    }
    if (rmf_slice_is(key, "language")) {
        if (rmf_json_peek(json) == '"') {
            struct rmf_slice name;
            enum rmf_status status = rmf_json_string(json, &name, error);
            if (status == RMF_OK) {
                header->language = rmf_language_of(name);
            }
            return status;
        }
        if (rmf_json_peek(json) == 'n') {
            header->language = RMF_LANGUAGE_UNKNOWN;
            return rmf_json_literal(json, "null", error);
        }
        int32_t ordinal;
        enum rmf_status status = rmf_header_int(json, "language", &ordinal, error);
        if (status == RMF_OK) {
            header->language =
                ordinal >= 0 && ordinal < RMF_LANGUAGE_COUNT ? ordinal : RMF_LANGUAGE_UNKNOWN;
        }
        return status;
    }
    if (rmf_slice_is(key, "remark")) {
        bool is_null = false;
        enum rmf_status status = rmf_json_scalar_text(json, &header->remark, &is_null, error);
        if (status == RMF_OK) {
            header->has_remark = !is_null;
        }
        return status;
    }
    return rmf_json_skip(json, error); /* unknown keys are ignored, as Java does */
}

enum rmf_status rmf_header_decode_json(struct rmf_slice bytes, struct rmf_header *header,
                                       struct rmf_error *error) {
    rmf_header_restart(header);
    /* Unescaped text is never longer than the JSON it came from, so slices into it stay valid. */
    enum rmf_status status = rmf_buffer_reserve(&header->text, bytes.len);
    if (status != RMF_OK) {
        return rmf_fail(error, status, "header", 0, (int64_t)bytes.len, 0);
    }
    struct rmf_json json = rmf_json_of(bytes, &header->text);
    bool more;
    bool has_code = false;
    status = rmf_json_object_begin(&json, &more, error);
    while (status == RMF_OK && more) {
        struct rmf_slice key;
        status = rmf_json_key(&json, &key, error);
        if (status == RMF_OK) {
            status = rmf_header_json_member(&json, key, header, &has_code, error);
        }
        if (status == RMF_OK) {
            status = rmf_json_object_next(&json, &more, error);
        }
    }
    if (status == RMF_OK) {
        status = rmf_json_end(&json, error);
    }
    if (status == RMF_OK && !has_code) {
        return rmf_fail(error, RMF_ERR_NUMBER, "code", bytes.len, 0, 0);
    }
    return status;
}

static enum rmf_status rmf_append_text(struct rmf_buffer *out, const char *text) {
    return rmf_buffer_append(out, text, strlen(text));
}

static enum rmf_status rmf_append_json_int(struct rmf_buffer *out, const char *prefix,
                                           int32_t value) {
    char digits[12];
    size_t used = sizeof digits;
    uint32_t rest = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    do {
        digits[--used] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (value < 0) {
        digits[--used] = '-';
    }
    enum rmf_status status = rmf_append_text(out, prefix);
    if (status == RMF_OK) {
        status = rmf_buffer_append(out, digits + used, sizeof digits - used);
    }
    return status;
}

/* Keys in the order Java writes them, so that frames compare as text in a trace. */
enum rmf_status rmf_header_encode_json(const struct rmf_header *header, struct rmf_buffer *out) {
    enum rmf_status status = rmf_append_json_int(out, "{\"code\":", header->code);
    if (status == RMF_OK && header->ext_count > 0) {
        status = rmf_append_text(out, ",\"extFields\":{");
        for (size_t i = 0; status == RMF_OK && i < header->ext_count; i++) {
            if (i > 0) {
                status = rmf_buffer_append_byte(out, ',');
            }
            if (status == RMF_OK) {
                status = rmf_json_write_string(out, header->ext[i].key);
            }
            if (status == RMF_OK) {
                status = rmf_buffer_append_byte(out, ':');
            }
            if (status == RMF_OK) {
                status = rmf_json_write_string(out, header->ext[i].value);
            }
        }
        if (status == RMF_OK) {
            status = rmf_buffer_append_byte(out, '}');
        }
    }
    if (status == RMF_OK) {
        status = rmf_append_json_int(out, ",\"flag\":", header->flag);
    }
    const char *language = rmf_language_name(header->language);
    if (status == RMF_OK && language != NULL) {
        status = rmf_append_text(out, ",\"language\":\"");
        if (status == RMF_OK) {
            status = rmf_append_text(out, language);
        }
        if (status == RMF_OK) {
            status = rmf_buffer_append_byte(out, '"');
        }
    }
    if (status == RMF_OK) {
        status = rmf_append_json_int(out, ",\"opaque\":", header->opaque);
    }
    if (status == RMF_OK && header->has_remark) {
        status = rmf_append_text(out, ",\"remark\":");
        if (status == RMF_OK) {
            status = rmf_json_write_string(out, header->remark);
        }
    }
    if (status == RMF_OK) {
        status = rmf_append_text(out, ",\"serializeTypeCurrentRPC\":\"JSON\"");
    }
    if (status == RMF_OK) {
        status = rmf_append_json_int(out, ",\"version\":", header->version);
    }
    if (status == RMF_OK) {
        status = rmf_buffer_append_byte(out, '}');
    }
    return status;
}

/* --------------------------------------------------------------------------------- compact */

/* A length-prefixed run of bytes inside the cursor. */
static enum rmf_status rmf_compact_run(struct rmf_cursor *cursor, int64_t length, const char *field,
                                       struct rmf_slice *out, struct rmf_error *error) {
    size_t len;
    if (!rmf_wire_len(length, rmf_cursor_left(cursor), &len)) {
        return rmf_fail(error, RMF_ERR_LENGTH, field, cursor->pos, length,
                        (int64_t)rmf_cursor_left(cursor));
    }
    const uint8_t *ptr;
    if (!rmf_cursor_bytes(cursor, len, &ptr)) {
        return rmf_fail(error, RMF_ERR_TRUNCATED, field, cursor->pos, length, 0);
    }
    out->ptr = ptr;
    out->len = len;
    return RMF_OK;
}

enum rmf_status rmf_header_decode_compact(struct rmf_slice bytes, struct rmf_header *header,
                                          struct rmf_error *error) {
    rmf_header_restart(header);
    struct rmf_cursor cursor = rmf_cursor_of(bytes.ptr, bytes.len);
    int16_t code;
    uint8_t language;
    int16_t version;
    int32_t remark_len;
    if (!rmf_cursor_i16(&cursor, &code) || !rmf_cursor_u8(&cursor, &language) ||
        !rmf_cursor_i16(&cursor, &version) || !rmf_cursor_i32(&cursor, &header->opaque) ||
        !rmf_cursor_i32(&cursor, &header->flag) || !rmf_cursor_i32(&cursor, &remark_len)) {
        return rmf_fail(error, RMF_ERR_TRUNCATED, "header", cursor.pos, (int64_t)bytes.len, 21);
    }
    header->code = code;
    header->language = language < RMF_LANGUAGE_COUNT ? language : RMF_LANGUAGE_UNKNOWN;
    header->version = version;
    enum rmf_status status =
        rmf_compact_run(&cursor, remark_len, "remark length", &header->remark, error);
    if (status != RMF_OK) {
        return status;
    }
    header->has_remark = header->remark.len > 0;
    int32_t ext_len;
    if (!rmf_cursor_i32(&cursor, &ext_len)) {
        return rmf_fail(error, RMF_ERR_TRUNCATED, "ext length", cursor.pos, (int64_t)bytes.len, 0);
    }
    struct rmf_slice block;
    status = rmf_compact_run(&cursor, ext_len, "ext length", &block, error);
    if (status != RMF_OK) {
        return status;
    }
    size_t block_start = cursor.pos - block.len;
    struct rmf_cursor ext = rmf_cursor_of(block.ptr, block.len);
    while (rmf_cursor_left(&ext) > 0) {
        int16_t key_len;
        int32_t value_len;
        struct rmf_slice key;
        struct rmf_slice value;
        if (!rmf_cursor_i16(&ext, &key_len)) {
            status = rmf_fail(error, RMF_ERR_TRUNCATED, "ext key length", ext.pos, 0, 0);
        } else {
            status = rmf_compact_run(&ext, key_len, "ext key length", &key, error);
        }
        if (status == RMF_OK) {
            if (!rmf_cursor_i32(&ext, &value_len)) {
                status = rmf_fail(error, RMF_ERR_TRUNCATED, "ext value length", ext.pos, 0, 0);
            } else {
                status = rmf_compact_run(&ext, value_len, "ext value length", &value, error);
            }
        }
        if (status != RMF_OK) {
            if (error != NULL) {
                error->position += block_start;
            }
            return status;
        }
        if (key.len > 0 && value.len > 0) {
            status = rmf_header_add_ext(header, key, value);
            if (status != RMF_OK) {
                return rmf_fail(error, status, "extFields", block_start + ext.pos, 0, 0);
            }
        }
    }
    return RMF_OK;
}

enum rmf_status rmf_header_encode_compact(const struct rmf_header *header, struct rmf_buffer *out,
                                          struct rmf_error *error) {
    if (header->code < INT16_MIN || header->code > INT16_MAX) {
        return rmf_fail(error, RMF_ERR_NUMBER, "code", 0, header->code, INT16_MAX);
    }
    if (header->version < INT16_MIN || header->version > INT16_MAX) {
        return rmf_fail(error, RMF_ERR_NUMBER, "version", 3, header->version, INT16_MAX);
    }
    size_t remark_len = header->has_remark ? header->remark.len : 0;
    size_t ext_len = 0;
    for (size_t i = 0; i < header->ext_count; i++) {
        if (header->ext[i].key.len > INT16_MAX) {
            return rmf_fail(error, RMF_ERR_LENGTH, "ext key length", 0,
                            (int64_t)header->ext[i].key.len, INT16_MAX);
        }
        if (header->ext[i].value.len > RMF_HEADER_MAX_BYTES) {
            return rmf_fail(error, RMF_ERR_LENGTH, "ext value length", 0,
                            (int64_t)header->ext[i].value.len, RMF_HEADER_MAX_BYTES);
        }
        ext_len += 6 + header->ext[i].key.len + header->ext[i].value.len;
    }
    if (remark_len > RMF_HEADER_MAX_BYTES || ext_len > RMF_HEADER_MAX_BYTES) {
        return rmf_fail(error, RMF_ERR_LENGTH, "header length", 0, (int64_t)(remark_len + ext_len),
                        RMF_HEADER_MAX_BYTES);
    }
    size_t total = 21 + remark_len + ext_len;
    enum rmf_status status = rmf_buffer_reserve(out, total);
    if (status != RMF_OK) {
        return rmf_fail(error, status, "header", 0, (int64_t)total, 0);
    }
    uint8_t *p = out->data + out->size;
    rmf_store_be16_unsafe(p, (uint16_t)header->code);
    p[2] = header->language == RMF_LANGUAGE_UNKNOWN ? 7 /* OTHER */ : (uint8_t)header->language;
    rmf_store_be16_unsafe(p + 3, (uint16_t)header->version);
    rmf_store_be32_unsafe(p + 5, (uint32_t)header->opaque);
    rmf_store_be32_unsafe(p + 9, (uint32_t)header->flag);
    rmf_store_be32_unsafe(p + 13, (uint32_t)remark_len);
    p += 17;
    if (remark_len > 0) {
        memcpy(p, header->remark.ptr, remark_len);
        p += remark_len;
    }
    rmf_store_be32_unsafe(p, (uint32_t)ext_len);
    p += 4;
    for (size_t i = 0; i < header->ext_count; i++) {
        const struct rmf_ext_field *field = &header->ext[i];
        rmf_store_be16_unsafe(p, (uint16_t)field->key.len);
        p += 2;
        if (field->key.len > 0) {
            memcpy(p, field->key.ptr, field->key.len);
            p += field->key.len;
        }
        rmf_store_be32_unsafe(p, (uint32_t)field->value.len);
        p += 4;
        if (field->value.len > 0) {
            memcpy(p, field->value.ptr, field->value.len);
            p += field->value.len;
        }
    }
    out->size += total;
    return RMF_OK;
}
