#include "rmf_tags.h"

#include <string.h>

#include "rmf_alloc.h"
#include "rmf_utf8.h"

int32_t rmf_tag_code(struct rmf_slice utf8) {
    uint32_t hash = 0;
    size_t pos = 0;
    while (pos < utf8.len) {
        bool valid = true;
        uint32_t point = rmf_utf8_next(utf8, &pos, &valid);
        if (point >= 0x10000) {
            hash = hash * 31u + (0xD800u + ((point - 0x10000u) >> 10));
            point = 0xDC00u + ((point - 0x10000u) & 0x3FFu);
        }
        hash = hash * 31u + point;
    }
    return (int32_t)hash;
}

int32_t rmf_message_tag_code(const struct rmf_message *m) {
    struct rmf_slice tags;
    return rmf_message_find_property(m, "TAGS", 4, &tags) ? rmf_tag_code(tags) : 0;
}

/* Subscriptions name a handful of tags, so a scan over (length, text) is the whole index. A bitmap of
 * lengths turns most non-members away first. */
struct rmf_tag_set {
    size_t count;
    uint64_t lengths; /* bit n: some tag has length n (63: or more) */
    struct rmf_slice *tags;
    uint8_t *text;
};

static uint64_t rmf_length_bit(size_t len) { return (uint64_t)1 << (len < 63 ? len : 63); }

struct rmf_tag_set *rmf_tag_set_new(const struct rmf_slice *tags, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (tags[i].len > SIZE_MAX - bytes) {
            return NULL;
        }
        bytes += tags[i].len;
    }
    struct rmf_tag_set *set = rmf_alloc_zeroed(sizeof *set);
    if (set == NULL) {
        return NULL;
    }
    set->tags = rmf_alloc_array(count, sizeof *set->tags);
    set->text = rmf_alloc(bytes);
    if (set->tags == NULL || set->text == NULL) {
        rmf_tag_set_free(set);
        return NULL;
    }
    uint8_t *to = set->text;
    for (size_t i = 0; i < count; i++) {
        if (tags[i].len > 0) {
            memcpy(to, tags[i].ptr, tags[i].len);
        }
        set->tags[i].ptr = to;
        set->tags[i].len = tags[i].len;
        set->lengths |= rmf_length_bit(tags[i].len);
        to += tags[i].len;
    }
    set->count = count;
    return set;
}

void rmf_tag_set_free(struct rmf_tag_set *set) {
    if (set != NULL) {
        rmf_free(set->tags);
        rmf_free(set->text);
        rmf_free(set);
    }
}

size_t rmf_tag_set_count(const struct rmf_tag_set *set) { return set->count; }

bool rmf_tag_set_has(const struct rmf_tag_set *set, struct rmf_slice tag) {
    if ((set->lengths & rmf_length_bit(tag.len)) == 0) {
        return false;
    }
    for (size_t i = 0; i < set->count; i++) {
        const struct rmf_slice *one = &set->tags[i];
        /* Tags of one topic differ at the end rather than at the start. */
        if (one->len == tag.len &&
            (tag.len == 0 || (one->ptr[tag.len - 1] == tag.ptr[tag.len - 1] &&
                              memcmp(one->ptr, tag.ptr, tag.len) == 0))) {
            return true;
        }
    }
    return false;
}

size_t rmf_tag_set_matching(const struct rmf_tag_set *set, const struct rmf_message *messages,
                            size_t count) {
    size_t i = 0;
    struct rmf_slice tag;
    while (i < count && rmf_message_find_property(&messages[i], "TAGS", 4, &tag) &&
           rmf_tag_set_has(set, tag)) {
        i += 1;
    }
    return i;
}
