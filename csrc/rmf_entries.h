/* The entries of one property string, found in one scan: for readers that want all of them.
 *
 * The same rules as rmf_properties.h; the text is made valid UTF-8 first, which changes neither
 * separators nor the bounds of entries. Value type: zeroed, use, rmf_entries_clear. */
#ifndef RMF_ENTRIES_H
#define RMF_ENTRIES_H

#include "rmf_common.h"

/* Positions in the text: name = [start, mark), value = [mark + 1, end). */
struct rmf_entry {
    uint32_t start;
    uint32_t mark;
    uint32_t end;
};

struct rmf_entries {
    struct rmf_slice text;   /* borrowed from the caller, or the repaired text below */
    struct rmf_entry *items; /* owned */
    size_t count;
    size_t capacity;
    uint8_t *repaired; /* owned */
    size_t repaired_capacity;
    struct rmf_named_entry *order; /* owned */
    size_t order_capacity;
};

void rmf_entries_clear(struct rmf_entries *entries);

/* Reads `text`, which is borrowed until the next read. With `unique`, of entries with equal names only
 * the last one stays. RMF_ERR_NO_MEMORY. */
RMF_MUST_CHECK enum rmf_status rmf_entries_read(struct rmf_entries *entries,
                                                struct rmf_slice text, bool unique);

#endif
