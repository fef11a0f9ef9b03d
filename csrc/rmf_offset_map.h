/* An ordered map of queue offsets to messages of batches, kept in runs.
 *
 * A run stands for the messages of one batch whose offsets fall into a window of 64; a default pull is
 * one run, with or without gaps. Runs come almost sorted and leave near the front, so the map is a list of
 * leaves with sorted runs: appending and removing near either end touch one leaf. A balanced tree over
 * the leaves keeps every other case at O(log n). The ranges of two runs never overlap: where batches
 * interleave, runs are split. Only inserting allocates. */
#ifndef RMF_OFFSET_MAP_H
#define RMF_OFFSET_MAP_H

#include "rmf_bits.h"
#include "rmf_common.h"

/* The offsets base + i for each set bit i. */
struct rmf_offset_window {
    int64_t base;
    uint64_t bits;
};

struct rmf_offset_run {
    int64_t base;
    uint64_t known;   /* bit i: the batch has a message with offset base + i; bit 0 is set */
    uint64_t present; /* those in the map, not 0 */
    uint32_t owner;   /* index of the batch in the queue's owner table */
    uint32_t index;   /* in the batch, of the message with offset base; the others follow one by one */
};

/* Place in the batch of the message with offset base + bit, a known one. */
static inline uint32_t rmf_offset_run_index(const struct rmf_offset_run *run, uint32_t bit) {
    return run->index + rmf_bit_count(run->known & rmf_low_bits(bit));
}

/* Smallest and largest offset that is present. */
static inline int64_t rmf_offset_run_low(const struct rmf_offset_run *run) {
    return run->base + (int64_t)rmf_lowest_bit(run->present);
}
static inline int64_t rmf_offset_run_high(const struct rmf_offset_run *run) {
    return run->base + (int64_t)rmf_highest_bit(run->present);
}

struct rmf_offset_leaf;

/* Value type: rmf_offset_map_init, use, rmf_offset_map_clear. Not thread-safe. */
struct rmf_offset_map {
    struct rmf_offset_leaf *root;
    struct rmf_offset_leaf *first;
    struct rmf_offset_leaf *last;
    struct rmf_offset_leaf *hint;  /* leaf of the last removal, often of the next one too */
    struct rmf_offset_leaf *spare; /* one empty leaf, so that a steady flow allocates nothing */
    size_t count;                  /* offsets */
};

void rmf_offset_map_init(struct rmf_offset_map *map);
/* Drops everything and all memory. */
void rmf_offset_map_clear(struct rmf_offset_map *map);

/* Inserts what is present in *run; offsets that are there already are left alone. *inserted: the bits
 * that were new, written on RMF_OK. RMF_ERR_NO_MEMORY: no offset was inserted. */
RMF_MUST_CHECK enum rmf_status rmf_offset_map_insert(struct rmf_offset_map *map,
                                                     const struct rmf_offset_run *run,
                                                     uint64_t *inserted);

/* Takes the offsets of *left out, run by run: each call removes those of one run, which *gone tells, and
 * drops from *left what it has dealt with. False when nothing more of them is in the map. */
RMF_MUST_CHECK bool rmf_offset_map_cut(struct rmf_offset_map *map, struct rmf_offset_window *left,
                                       struct rmf_offset_run *gone);
/* As rmf_offset_map_cut, but leaves in what it finds. */
RMF_MUST_CHECK bool rmf_offset_map_find(const struct rmf_offset_map *map,
                                        struct rmf_offset_window *left,
                                        struct rmf_offset_run *found);
/* Removes all that an owner has, by a walk over the whole map. */
void rmf_offset_map_remove_owner(struct rmf_offset_map *map, uint32_t owner);

/* Borrows the run with the smallest offset, the first one that reaches up to `offset`, the one with the
 * largest. NULL when there is none. */
const struct rmf_offset_run *rmf_offset_map_first(const struct rmf_offset_map *map);
const struct rmf_offset_run *rmf_offset_map_from(const struct rmf_offset_map *map, int64_t offset);
const struct rmf_offset_run *rmf_offset_map_last(const struct rmf_offset_map *map);

/* Walks every invariant; false and a reason when one is broken. For tests. */
bool rmf_offset_map_check(const struct rmf_offset_map *map, const char **reason);

#endif
