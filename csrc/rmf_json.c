#include "rmf_json.h"

#include <string.h>

#include "rmf_utf8.h"

uint8_t rmf_json_peek(struct rmf_json *json) {
    struct rmf_cursor *c = &json->cursor;
    while (c->pos < c->size) {
        uint8_t byte = c->base[c->pos];
        if (byte != ' ' && byte != '\t' && byte != '\n' && byte != '\r') {
            return byte;
        }
        c->pos += 1;
    }
    return 0;
}

static enum rmf_status rmf_json_syntax(const struct rmf_json *json, const char *expected,
                                       struct rmf_error *error) {
    int64_t found = json->cursor.pos < json->cursor.size ? json->cursor.base[json->cursor.pos] : -1;
    return rmf_fail(error, RMF_ERR_SYNTAX, expected, json->cursor.pos, found, 0);
}

/* Consumes `byte` when it is the next significant one. */
static bool rmf_json_accept(struct rmf_json *json, uint8_t byte) {
    if (rmf_json_peek(json) != byte) {
        return false;
    }
    json->cursor.pos += 1;
    return true;
}

enum rmf_status rmf_json_object_begin(struct rmf_json *json, bool *more, struct rmf_error *error) {
    if (!rmf_json_accept(json, '{')) {
        return rmf_json_syntax(json, "JSON object", error);
    }
    *more = !rmf_json_accept(json, '}');
    return RMF_OK;
}

enum rmf_status rmf_json_object_next(struct rmf_json *json, bool *more, struct rmf_error *error) {
    if (rmf_json_accept(json, ',')) {
        *more = true;
        return RMF_OK;
    }
    if (rmf_json_accept(json, '}')) {
        *more = false;
        return RMF_OK;
    }
    return rmf_json_syntax(json, "JSON ',' or '}'", error);
}

enum rmf_status rmf_json_key(struct rmf_json *json, struct rmf_slice *key,
                             struct rmf_error *error) {
    enum rmf_status status = rmf_json_string(json, key, error);
    if (status == RMF_OK && !rmf_json_accept(json, ':')) {
        return rmf_json_syntax(json, "JSON ':'", error);
    }
    return status;
}

static bool rmf_json_hex4(struct rmf_json *json, uint32_t *out) {
    const uint8_t *digits;
    uint32_t value = 0;
    if (!rmf_cursor_bytes(&json->cursor, 4, &digits)) {
        return false;
    }
    for (int i = 0; i < 4; i++) {
        uint8_t d = digits[i];
        if (d >= '0' && d <= '9') {
            d = (uint8_t)(d - '0');
        } else if (d >= 'a' && d <= 'f') {
            d = (uint8_t)(d - 'a' + 10);
        } else if (d >= 'A' && d <= 'F') {
            d = (uint8_t)(d - 'A' + 10);
        } else {
            return false;
        }
        value = value << 4 | d;
    }
    *out = value;
    return true;
}

/* The cursor stands behind "\u". A lone surrogate becomes U+FFFD. */
static enum rmf_status rmf_json_unicode_escape(struct rmf_json *json, uint8_t *out, size_t *written,
                                               struct rmf_error *error) {
    uint32_t point;
    if (!rmf_json_hex4(json, &point)) {
        return rmf_json_syntax(json, "JSON \\u escape", error);
    }
    if (point >= 0xD800 && point < 0xDC00) {
        size_t back = json->cursor.pos;
        const uint8_t *next;
        uint32_t low = 0;
        bool paired = rmf_cursor_bytes(&json->cursor, 2, &next) && next[0] == '\\' &&
                      next[1] == 'u' && rmf_json_hex4(json, &low) && low >= 0xDC00 && low < 0xE000;
        if (paired) {
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        } else {
            json->cursor.pos = back;
            point = 0xFFFD;
        }
    } else if (point >= 0xDC00 && point < 0xE000) {
        point = 0xFFFD;
    }
    *written = rmf_utf8_write(point, out);
    return RMF_OK;
}

static enum rmf_status rmf_json_unescape(struct rmf_json *json, size_t start,
                                         struct rmf_slice *out, struct rmf_error *error) {
    struct rmf_cursor *c = &json->cursor;
    /* The input from `start` bounds what is written; the owner of `text` reserved it (see header). */
    if (json->text->capacity - json->text->size < c->size - start) {
        return rmf_fail(error, RMF_ERR_ARGUMENT, "text buffer", start, 0, 0);
    }
    uint8_t *begin = json->text->data + json->text->size;
    uint8_t *to = begin;
    c->pos = start;
    for (;;) {
        uint8_t byte;
        if (!rmf_cursor_u8(c, &byte)) {
            return rmf_json_syntax(json, "end of JSON string", error);
        }
        if (byte == '"') {
            break;
        }
        if (byte < 0x20) {
            c->pos -= 1;
            return rmf_json_syntax(json, "JSON string character", error);
        }
        if (byte != '\\') {
            *to++ = byte;
            continue;
        }
        if (!rmf_cursor_u8(c, &byte)) {
            return rmf_json_syntax(json, "JSON escape", error);
        }
        size_t written = 1;
        switch (byte) {
        case '"':
        case '\\':
        case '/':
            *to = byte;
            break;
        case 'b':
            *to = '\b';
            break;
        case 'f':
            *to = '\f';
            break;
        case 'n':
            *to = '\n';
            break;
        case 'r':
            *to = '\r';
            break;
        case 't':
            *to = '\t';
            break;
        case 'u': {
            uint8_t utf8[4];
            enum rmf_status status = rmf_json_unicode_escape(json, utf8, &written, error);
            if (status != RMF_OK) {
                return status;
            }
            memcpy(to, utf8, written);
            break;
        }
        default:
            c->pos -= 1;
            return rmf_json_syntax(json, "JSON escape", error);
        }
        to += written;
    }
    out->ptr = begin;
    out->len = (size_t)(to - begin);
    json->text->size += out->len;
    return RMF_OK;
}

enum rmf_status rmf_json_string(struct rmf_json *json, struct rmf_slice *out,
                                struct rmf_error *error) {
    if (!rmf_json_accept(json, '"')) {
        return rmf_json_syntax(json, "JSON string", error);
    }
    struct rmf_cursor *c = &json->cursor;
    size_t start = c->pos;
    while (c->pos < c->size) {
        uint8_t byte = c->base[c->pos];
        if (byte == '"') {
            out->ptr = c->base + start;
            out->len = c->pos - start;
            c->pos += 1;
            return RMF_OK;
        }
        if (byte == '\\') {
            return rmf_json_unescape(json, start, out, error);
        }
        if (byte < 0x20) {
            return rmf_json_syntax(json, "JSON string character", error);
        }
        c->pos += 1;
    }
    return rmf_json_syntax(json, "end of JSON string", error);
}

static size_t rmf_json_digits(const struct rmf_cursor *c, size_t from) {
    size_t at = from;
    while (at < c->size && c->base[at] >= '0' && c->base[at] <= '9') {
        at++;
    }
    return at - from;
}

/* Length of the number at the cursor, 0 when there is none: -? (0 | [1-9] digits) fraction? exponent?. */
static size_t rmf_json_number_length(const struct rmf_cursor *c, bool *is_integer) {
    size_t at = c->pos;
    if (at < c->size && c->base[at] == '-') {
        at++;
    }
    size_t digits = rmf_json_digits(c, at);
    if (digits == 0) {
        return 0;
    }
    at += c->base[at] == '0' ? 1 : digits;
    *is_integer = true;
    if (at < c->size && c->base[at] == '.') {
        digits = rmf_json_digits(c, at + 1);
        if (digits == 0) {
            return 0;
        }
        at += 1 + digits;
        *is_integer = false;
    }
    if (at < c->size && (c->base[at] == 'e' || c->base[at] == 'E')) {
        size_t sign = at + 1 < c->size && (c->base[at + 1] == '+' || c->base[at + 1] == '-') ? 1 : 0;
        digits = rmf_json_digits(c, at + 1 + sign);
        if (digits == 0) {
            return 0;
        }
        at += 1 + sign + digits;
        *is_integer = false;
    }
    return at - c->pos;
}

enum rmf_status rmf_json_integer(struct rmf_json *json, int64_t *out, struct rmf_error *error) {
    (void)rmf_json_peek(json);
    struct rmf_cursor *c = &json->cursor;
    bool is_integer = false;
    size_t length = rmf_json_number_length(c, &is_integer);
    size_t first = c->pos;
    size_t end = c->pos + length;
    bool negative = length > 0 && c->base[first] == '-';
    first += negative ? 1 : 0;
    if (!is_integer || length == 0 || end - first > 18) {
        return rmf_fail(error, RMF_ERR_NUMBER, "JSON number", c->pos, 0, 0);
    }
    int64_t value = 0;
    for (size_t at = first; at < end; at++) {
        value = value * 10 + (c->base[at] - '0');
    }
    c->pos = end;
    *out = negative ? -value : value;
    return RMF_OK;
}

enum rmf_status rmf_json_literal(struct rmf_json *json, const char *literal,
                                 struct rmf_error *error) {
    (void)rmf_json_peek(json);
    size_t len = strlen(literal);
    const uint8_t *bytes;
    size_t start = json->cursor.pos;
    if (!rmf_cursor_bytes(&json->cursor, len, &bytes) || memcmp(bytes, literal, len) != 0) {
        json->cursor.pos = start;
        return rmf_json_syntax(json, literal, error);
    }
    return RMF_OK;
}

static enum rmf_status rmf_json_number_text(struct rmf_json *json, struct rmf_slice *out,
                                            struct rmf_error *error) {
    struct rmf_cursor *c = &json->cursor;
    bool is_integer;
    size_t length = rmf_json_number_length(c, &is_integer);
    if (length == 0) {
        return rmf_json_syntax(json, "JSON value", error);
    }
    out->ptr = c->base + c->pos;
    out->len = length;
    c->pos += length;
    return RMF_OK;
}

enum rmf_status rmf_json_scalar_text(struct rmf_json *json, struct rmf_slice *out, bool *is_null,
                                     struct rmf_error *error) {
    uint8_t first = rmf_json_peek(json);
    *is_null = false;
    if (first == '"') {
        return rmf_json_string(json, out, error);
    }
    const char *literal = first == 't' ? "true" : first == 'f' ? "false" : first == 'n' ? "null" : NULL;
    if (literal == NULL) {
        return rmf_json_number_text(json, out, error);
    }
    size_t start = json->cursor.pos;
    enum rmf_status status = rmf_json_literal(json, literal, error);
    if (status == RMF_OK) {
        *is_null = first == 'n';
        out->ptr = json->cursor.base + start;
        out->len = strlen(literal);
    }
    return status;
}

/* Walks any value without recursion: `closers` is the stack of open brackets. */
enum rmf_status rmf_json_skip(struct rmf_json *json, struct rmf_error *error) {
    uint8_t closers[RMF_JSON_MAX_DEPTH];
    size_t depth = 0;
    size_t text_size = json->text->size;
    enum rmf_status status;
    for (;;) {
        uint8_t first = rmf_json_peek(json);
        if (first == '{' || first == '[') {
            if (depth == RMF_JSON_MAX_DEPTH) {
                return rmf_fail(error, RMF_ERR_DEPTH, "JSON value", json->cursor.pos,
                                (int64_t)depth + 1, RMF_JSON_MAX_DEPTH);
            }
            json->cursor.pos += 1;
            uint8_t closer = first == '{' ? '}' : ']';
            closers[depth++] = closer;
            if (!rmf_json_accept(json, closer)) {
                if (closer == '}') {
                    struct rmf_slice key;
                    status = rmf_json_key(json, &key, error);
                    if (status != RMF_OK) {
                        return status;
                    }
                }
                continue; /* the first element */
            }
            depth -= 1;
        } else {
            struct rmf_slice value;
            bool is_null;
            status = rmf_json_scalar_text(json, &value, &is_null, error);
            if (status != RMF_OK) {
                return status;
            }
        }
        json->text->size = text_size; /* skipped strings need no room */
        /* a value is complete: close what ends here, or go on with the next element */
        while (depth > 0) {
            uint8_t closer = closers[depth - 1];
            if (rmf_json_accept(json, closer)) {
                depth -= 1;
                continue;
            }
            if (!rmf_json_accept(json, ',')) {
                return rmf_json_syntax(json, "JSON ',' or bracket", error);
            }
            if (closer == '}') {
                struct rmf_slice key;
                status = rmf_json_key(json, &key, error);
                if (status != RMF_OK) {
                    return status;
                }
            }
            break;
        }
        if (depth == 0) {
            return RMF_OK;
        }
    }
}

enum rmf_status rmf_json_end(struct rmf_json *json, struct rmf_error *error) {
    (void)rmf_json_peek(json);
    if (rmf_cursor_left(&json->cursor) != 0) {
        return rmf_json_syntax(json, "end of JSON", error);
    }
    return RMF_OK;
}

enum rmf_status rmf_json_write_string(struct rmf_buffer *out, struct rmf_slice text) {
    static const char HEX[] = "0123456789abcdef";
    if (text.len > (SIZE_MAX - 2) / 6) {
        return RMF_ERR_NO_MEMORY;
    }
    enum rmf_status status = rmf_buffer_reserve(out, text.len * 6 + 2);
    if (status != RMF_OK) {
        return status;
    }
    uint8_t *to = out->data + out->size;
    *to++ = '"';
    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = text.ptr[i];
        if (byte == '"' || byte == '\\') {
            *to++ = '\\';
            *to++ = byte;
        } else if (byte < 0x20 || byte == 0x7F) {
            *to++ = '\\';
            *to++ = 'u';
            *to++ = '0';
            *to++ = '0';
            *to++ = (uint8_t)HEX[byte >> 4];
            *to++ = (uint8_t)HEX[byte & 0xF];
        } else {
            *to++ = byte;
        }
    }
    *to++ = '"';
    out->size = (size_t)(to - out->data);
    return RMF_OK;
}
