#include "rmf_entries.h"

#include "rmf_alloc.h"
#include "rmf_properties.h"
#include "rmf_utf8.h"

#if defined(__SSE2__) && defined(__GNUC__)
#include <emmintrin.h>
#define RMF_ENTRIES_SSE2 1
#endif

#define RMF_ENTRY_MIN_BYTES 3u /* a name, the mark, a value; the last entry needs no end */
/* Up to here names are compared pair by pair, beyond they are sorted. */
#define RMF_PAIRS_MAX 32

struct rmf_named_entry {
    struct rmf_slice name;
    uint32_t index;
};

void rmf_entries_clear(struct rmf_entries *entries) {
    rmf_free(entries->items);
    rmf_free(entries->repaired);
    rmf_free(entries->order);
    memset(entries, 0, sizeof *entries);
}

static enum rmf_status rmf_entries_reserve(struct rmf_entries *entries, size_t count) {
    if (RMF_LIKELY(count <= entries->capacity)) {
        return RMF_OK;
    }
    struct rmf_entry *items = rmf_realloc_array(entries->items, count, sizeof *items);
    if (items == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    entries->items = items;
    entries->capacity = count;
    return RMF_OK;
}

#ifdef RMF_ENTRIES_SSE2

#define RMF_NO_MARK UINT32_MAX

/* Fills items, which have room. Returns whether the text is ASCII. */
static bool rmf_entries_split(struct rmf_entries *entries) {
    const uint8_t *text = entries->text.ptr;
    size_t len = entries->text.len;
    struct rmf_entry *out = entries->items;
    const __m128i name_end = _mm_set1_epi8(RMF_PROPERTY_NAME_END);
    const __m128i entry_end = _mm_set1_epi8(RMF_PROPERTY_END);
    uint32_t start = 0;
    uint32_t mark = RMF_NO_MARK;
    unsigned high = 0;
    for (size_t pos = 0; pos < len; pos += 16) {
        __m128i bytes;
        size_t left = len - pos;
        if (RMF_LIKELY(left >= 16)) {
            bytes = _mm_loadu_si128((const __m128i *)(const void *)(text + pos));
        } else {
            uint8_t last[16] = {0};
            memcpy(last, text + pos, left);
            bytes = _mm_loadu_si128((const __m128i *)(const void *)last);
        }
        unsigned ends = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, entry_end));
        unsigned both = ends | (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, name_end));
        high |= (unsigned)_mm_movemask_epi8(bytes);
        while (both != 0) {
            unsigned bit = both & (0u - both);
            uint32_t at = (uint32_t)pos + (uint32_t)__builtin_ctz(both);
            both ^= bit;
            if ((ends & bit) == 0) {
                mark = mark == RMF_NO_MARK ? at : mark;
                continue;
            }
            if (mark != RMF_NO_MARK && mark > start && mark + 1 < at) {
                *out++ = (struct rmf_entry){start, mark, at};
            }
            start = at + 1;
            mark = RMF_NO_MARK;
        }
    }
    if (mark != RMF_NO_MARK && mark > start && mark + 1 < len) {
        *out++ = (struct rmf_entry){start, mark, (uint32_t)len};
    }
    entries->count = (size_t)(out - entries->items);
    return high == 0;
}

#else

static bool rmf_entries_split(struct rmf_entries *entries) {
    struct rmf_property property;
    size_t pos = 0;
    size_t count = 0;
    while (rmf_properties_next(entries->text, &pos, &property)) {
        struct rmf_entry *entry = &entries->items[count++];
        entry->start = (uint32_t)(property.name.ptr - entries->text.ptr);
        entry->mark = entry->start + (uint32_t)property.name.len;
        entry->end = entry->mark + 1 + (uint32_t)property.value.len;
    }
    entries->count = count;
    return rmf_utf8_is_ascii(entries->text);
}

#endif

/* Copies the text with malformed parts replaced. */
static enum rmf_status rmf_entries_repair(struct rmf_entries *entries) {
    size_t bytes = rmf_utf8_replaced_bytes(entries->text);
    if (bytes > entries->repaired_capacity) {
        uint8_t *repaired = rmf_realloc_array(entries->repaired, bytes, 1);
        if (repaired == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        entries->repaired = repaired;
        entries->repaired_capacity = bytes;
    }
    rmf_utf8_write_replaced(entries->text, entries->repaired);
    entries->text.ptr = entries->repaired;
    entries->text.len = bytes;
    return rmf_entries_reserve(entries, bytes / RMF_ENTRY_MIN_BYTES + 1);
}

static struct rmf_slice rmf_entry_name(const struct rmf_entries *entries, size_t i) {
    const struct rmf_entry *entry = &entries->items[i];
    struct rmf_slice name = {entries->text.ptr + entry->start, entry->mark - entry->start};
    return name;
}

static bool rmf_same_name(const struct rmf_entries *entries, size_t a, size_t b) {
    struct rmf_slice left = rmf_entry_name(entries, a);
    struct rmf_slice right = rmf_entry_name(entries, b);
    return left.len == right.len && memcmp(left.ptr, right.ptr, left.len) == 0;
}

static int rmf_compare_names(const void *a, const void *b) {
    const struct rmf_named_entry *left = a;
    const struct rmf_named_entry *right = b;
    size_t common = left->name.len < right->name.len ? left->name.len : right->name.len;
    int order = memcmp(left->name.ptr, right->name.ptr, common);
    if (order != 0) {
        return order;
    }
    if (left->name.len != right->name.len) {
        return left->name.len < right->name.len ? -1 : 1;
    }
    return left->index < right->index ? -1 : 1;
}

/* Marks (end = 0) every entry that a later one of the same name replaces. */
static enum rmf_status rmf_entries_mark_replaced(struct rmf_entries *entries) {
    size_t count = entries->count;
    if (count <= RMF_PAIRS_MAX) {
        for (size_t i = 0; i < count; i++) {
            for (size_t later = i + 1; later < count; later++) {
                if (rmf_same_name(entries, i, later)) {
                    entries->items[i].end = 0;
                    break;
                }
            }
        }
        return RMF_OK;
    }
    if (count > entries->order_capacity) {
        struct rmf_named_entry *order = rmf_realloc_array(entries->order, count, sizeof *order);
        if (order == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        entries->order = order;
        entries->order_capacity = count;
    }
    for (size_t i = 0; i < count; i++) {
        entries->order[i].name = rmf_entry_name(entries, i);
        entries->order[i].index = (uint32_t)i;
    }
    qsort(entries->order, count, sizeof *entries->order, rmf_compare_names);
    for (size_t i = 0; i + 1 < count; i++) {
        if (rmf_same_name(entries, entries->order[i].index, entries->order[i + 1].index)) {
            entries->items[entries->order[i].index].end = 0;
        }
    }
    return RMF_OK;
}

/* A filter of 64 bits tells nearly always that all names differ: length, first and last byte. */
static bool rmf_names_may_repeat(const struct rmf_entries *entries) {
    uint64_t seen = 0;
    bool again = false;
    for (size_t i = 0; i < entries->count; i++) {
        struct rmf_slice name = rmf_entry_name(entries, i);
        uint32_t mix = (uint32_t)name.len * 7u + name.ptr[0] * 3u + name.ptr[name.len - 1] * 11u;
        uint64_t bit = (uint64_t)1 << (mix & 63u);
        again |= (seen & bit) != 0;
        seen |= bit;
    }
    return again;
}

static enum rmf_status rmf_entries_keep_last(struct rmf_entries *entries) {
    enum rmf_status status = rmf_entries_mark_replaced(entries);
    if (status != RMF_OK) {
        return status;
    }
    size_t kept = 0;
    for (size_t i = 0; i < entries->count; i++) {
        if (entries->items[i].end != 0) {
            entries->items[kept++] = entries->items[i];
        }
    }
    entries->count = kept;
    return RMF_OK;
}

enum rmf_status rmf_entries_read(struct rmf_entries *entries, struct rmf_slice text,
                                 bool unique) {
    entries->text = text;
    entries->count = 0;
    enum rmf_status status = rmf_entries_reserve(entries, text.len / RMF_ENTRY_MIN_BYTES + 1);
    if (status != RMF_OK) {
        return status;
    }
    if (RMF_UNLIKELY(!rmf_entries_split(entries)) && !rmf_utf8_is_valid(text)) {
        status = rmf_entries_repair(entries);
        if (status != RMF_OK) {
            return status;
        }
        (void)rmf_entries_split(entries);
    }
    if (unique && RMF_UNLIKELY(rmf_names_may_repeat(entries))) {
        return rmf_entries_keep_last(entries);
    }
    return RMF_OK;
}
