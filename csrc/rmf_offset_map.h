/* An ordered map from queue offset to a small entry.
 *
 * Offsets come almost sorted and leave near the front, so the map is a list of sorted leaves of 64 slots:
 * appending and removing near either end touch one leaf. A balanced tree over the leaves keeps every
 * other case at O(log n). A removed slot is a cleared bit; a leaf without set bits is given back. */
#ifndef RMF_OFFSET_MAP_H
#define RMF_OFFSET_MAP_H

#include "rmf_common.h"

struct rmf_offset_entry {
    uint32_t body_bytes;
    uint32_t owner; /* index of the batch in the queue's owner table */
    uint32_t index; /* of the message in that batch */
};

struct rmf_offset_leaf;

/* Value type: rmf_offset_map_init, use, rmf_offset_map_clear. Not thread-safe. */
struct rmf_offset_map {
    struct rmf_offset_leaf *root;
    struct rmf_offset_leaf *first;
    struct rmf_offset_leaf *last;
    struct rmf_offset_leaf *hint;  /* leaf of the last hit, often the next one too */
    struct rmf_offset_leaf *spare; /* one empty leaf, so that a steady flow allocates nothing */
    size_t count;
};

void rmf_offset_map_init(struct rmf_offset_map *map);
/* Drops all entries and all memory. */
void rmf_offset_map_clear(struct rmf_offset_map *map);

/* RMF_OK: inserted. RMF_NEED_MORE: the offset is there already; nothing changed. RMF_ERR_NO_MEMORY. */
RMF_MUST_CHECK enum rmf_status rmf_offset_map_insert(struct rmf_offset_map *map, int64_t offset,
                                                     const struct rmf_offset_entry *entry);
/* False when absent. */
RMF_MUST_CHECK bool rmf_offset_map_remove(struct rmf_offset_map *map, int64_t offset,
                                          struct rmf_offset_entry *entry);
/* Smallest and largest; false when empty. */
RMF_MUST_CHECK bool rmf_offset_map_first(const struct rmf_offset_map *map, int64_t *offset,
                                         struct rmf_offset_entry *entry);
RMF_MUST_CHECK bool rmf_offset_map_last(const struct rmf_offset_map *map, int64_t *offset);

/* Walks every invariant; false and a reason when one is broken. For tests. */
bool rmf_offset_map_check(const struct rmf_offset_map *map, const char **reason);

#endif
