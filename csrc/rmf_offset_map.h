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
/* Offsets of a batch: `count` of them, `stride` bytes apart, aligned. */
struct rmf_offset_run {
    const int64_t *first;
    size_t stride;
    size_t count;
};

/* What left the map: so many entries of one owner, with so many body bytes. */
typedef void rmf_offset_dropped(void *context, uint32_t owner, uint32_t entries, int64_t body_bytes);

/* Inserts a batch; entry i gets body_bytes[i] (same stride as the offsets), `owner` and index i. Offsets
 * that are there already are left alone. *done: how many were looked at, less than count only on
 * RMF_ERR_NO_MEMORY. *inserted and *inserted_bytes: what was new. Written on every outcome. */
RMF_MUST_CHECK enum rmf_status rmf_offset_map_insert_run(struct rmf_offset_map *map,
                                                         struct rmf_offset_run run,
                                                         const uint32_t *body_bytes, uint32_t owner,
                                                         size_t *done, uint32_t *inserted,
                                                         int64_t *inserted_bytes);
/* Removes a batch; absent offsets are ignored. Reports what left, owner by owner. */
void rmf_offset_map_remove_run(struct rmf_offset_map *map, struct rmf_offset_run run,
                               rmf_offset_dropped *dropped, void *context);

/* Smallest and largest; false when empty. */
RMF_MUST_CHECK bool rmf_offset_map_first(const struct rmf_offset_map *map, int64_t *offset,
                                         struct rmf_offset_entry *entry);
RMF_MUST_CHECK bool rmf_offset_map_last(const struct rmf_offset_map *map, int64_t *offset);

/* Walks every invariant; false and a reason when one is broken. For tests. */
bool rmf_offset_map_check(const struct rmf_offset_map *map, const char **reason);

#endif
