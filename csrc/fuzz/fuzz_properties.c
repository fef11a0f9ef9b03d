/* A property string: entries lie inside it and are usable; a find agrees with a walk. Its text as tag and
 * as UTF-8: the hash of malformed text is the hash of the replaced text. */
#include "fuzz.h"
#include "rmf_properties.h"
#include "rmf_tags.h"
#include "rmf_utf8.h"

static void check_text(struct rmf_slice text) {
    size_t bytes = rmf_utf8_replaced_bytes(text);
    CHECK(bytes <= 3 * text.len);
    uint8_t *replaced = malloc(bytes == 0 ? 1 : bytes);
    CHECK(replaced != NULL);
    rmf_utf8_write_replaced(text, replaced);
    struct rmf_slice fixed = {replaced, bytes};
    CHECK(rmf_utf8_is_valid(fixed));
    CHECK_EQ(rmf_tag_code(text), rmf_tag_code(fixed));
    if (rmf_utf8_is_valid(text)) {
        CHECK_EQ(bytes, text.len);
        CHECK(bytes == 0 || memcmp(replaced, text.ptr, bytes) == 0);
    }
    CHECK(!rmf_utf8_is_ascii(text) || rmf_utf8_is_valid(text));
    free(replaced);
}

/* The value of a name is that of its last entry. */
static void check_find(struct rmf_slice text, const char *name, size_t name_len) {
    struct rmf_property entry;
    struct rmf_slice expected = {NULL, 0};
    struct rmf_slice value = {NULL, 0};
    size_t pos = 0;
    while (rmf_properties_next(text, &pos, &entry)) {
        if (entry.name.len == name_len && memcmp(entry.name.ptr, name, name_len) == 0) {
            expected = entry.value;
        }
    }
    CHECK_EQ(rmf_properties_find(text, name, name_len, &value), expected.ptr != NULL);
    CHECK(value.ptr == expected.ptr && value.len == expected.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rmf_slice text = {data, size};
    struct rmf_property entry;
    struct rmf_slice last = {NULL, 0};
    size_t pos = 0;
    size_t count = 0;
    while (rmf_properties_next(text, &pos, &entry)) {
        CHECK(entry.name.len > 0 && entry.value.len > 0);
        CHECK(entry.name.ptr >= data && entry.value.ptr + entry.value.len <= data + size);
        CHECK(memchr(entry.name.ptr, RMF_PROPERTY_NAME_END, entry.name.len) == NULL);
        CHECK(memchr(entry.value.ptr, RMF_PROPERTY_END, entry.value.len) == NULL);
        check_text(entry.value);
        if (count == 0 || (last.len == entry.name.len &&
                           memcmp(last.ptr, entry.name.ptr, last.len) == 0)) {
            last = entry.name;
        }
        count++;
        CHECK(count <= size / 3 + 1);
    }
    check_find(text, "TAGS", 4);
    check_find(text, "a", 1);
    if (count > 0) {
        check_find(text, (const char *)last.ptr, last.len);
    }
    check_text(text);
    struct rmf_tag_set *set = rmf_tag_set_new(&text, 1);
    CHECK(set != NULL);
    CHECK(rmf_tag_set_has(set, text));
    if (size > 0) {
        struct rmf_slice shorter = {data, size - 1};
        CHECK(!rmf_tag_set_has(set, shorter));
    }
    rmf_tag_set_free(set);
    return 0;
}
