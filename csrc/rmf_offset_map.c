#include "rmf_offset_map.h"

#include <string.h>

#include "rmf_alloc.h"

#define RMF_LEAF_SLOTS 64u

struct rmf_offset_leaf {
    uint64_t present; /* bit i: slot i holds an entry */
    uint32_t used;    /* slots 0..used-1 have an offset, ascending; removed ones keep theirs */
    int32_t height;
    struct rmf_offset_leaf *left;
    struct rmf_offset_leaf *right;
    struct rmf_offset_leaf *parent;
    struct rmf_offset_leaf *prev;
    struct rmf_offset_leaf *next;
    int64_t offsets[RMF_LEAF_SLOTS];
    struct rmf_offset_entry entries[RMF_LEAF_SLOTS];
};

static inline uint32_t rmf_lowest_bit(uint64_t bits) {
#if defined(__GNUC__) || defined(__clang__)
    return (uint32_t)__builtin_ctzll(bits);
#else
    uint32_t at = 0;
    while ((bits & 1) == 0) {
        bits >>= 1;
        at += 1;
    }
    return at;
#endif
}

static inline uint32_t rmf_highest_bit(uint64_t bits) {
#if defined(__GNUC__) || defined(__clang__)
    return 63u - (uint32_t)__builtin_clzll(bits);
#else
    uint32_t at = 63;
    while ((bits >> 63) == 0) {
        bits <<= 1;
        at -= 1;
    }
    return at;
#endif
}

static inline uint64_t rmf_bit(uint32_t slot) { return (uint64_t)1 << slot; }

/* --------------------------------------------------------- the balanced tree over the leaves */

static int32_t rmf_height(const struct rmf_offset_leaf *leaf) {
    return leaf == NULL ? 0 : leaf->height;
}

static void rmf_update_height(struct rmf_offset_leaf *leaf) {
    int32_t left = rmf_height(leaf->left);
    int32_t right = rmf_height(leaf->right);
    leaf->height = (left > right ? left : right) + 1;
}

/* Puts `child` (or nothing) where `leaf` hangs. */
static void rmf_replace(struct rmf_offset_map *map, struct rmf_offset_leaf *leaf,
                        struct rmf_offset_leaf *child) {
    if (leaf->parent == NULL) {
        map->root = child;
    } else if (leaf->parent->left == leaf) {
        leaf->parent->left = child;
    } else {
        leaf->parent->right = child;
    }
    if (child != NULL) {
        child->parent = leaf->parent;
    }
}

static struct rmf_offset_leaf *rmf_rotate_left(struct rmf_offset_map *map,
                                               struct rmf_offset_leaf *leaf) {
    struct rmf_offset_leaf *up = leaf->right;
    rmf_replace(map, leaf, up);
    leaf->right = up->left;
    if (up->left != NULL) {
        up->left->parent = leaf;
    }
    up->left = leaf;
    leaf->parent = up;
    rmf_update_height(leaf);
    rmf_update_height(up);
    return up;
}

static struct rmf_offset_leaf *rmf_rotate_right(struct rmf_offset_map *map,
                                                struct rmf_offset_leaf *leaf) {
    struct rmf_offset_leaf *up = leaf->left;
    rmf_replace(map, leaf, up);
    leaf->left = up->right;
    if (up->right != NULL) {
        up->right->parent = leaf;
    }
    up->right = leaf;
    leaf->parent = up;
    rmf_update_height(leaf);
    rmf_update_height(up);
    return up;
}

/* Restores the AVL balance from `leaf` up to the root. */
static void rmf_rebalance(struct rmf_offset_map *map, struct rmf_offset_leaf *leaf) {
    while (leaf != NULL) {
        int32_t before = leaf->height;
        int32_t balance = rmf_height(leaf->left) - rmf_height(leaf->right);
        if (balance > 1) {
            if (rmf_height(leaf->left->left) < rmf_height(leaf->left->right)) {
                rmf_rotate_left(map, leaf->left);
            }
            leaf = rmf_rotate_right(map, leaf);
        } else if (balance < -1) {
            if (rmf_height(leaf->right->right) < rmf_height(leaf->right->left)) {
                rmf_rotate_right(map, leaf->right);
            }
            leaf = rmf_rotate_left(map, leaf);
        } else {
            rmf_update_height(leaf);
            if (leaf->height == before) {
                return; /* nothing changes above */
            }
        }
        leaf = leaf->parent;
    }
}

/* Links `fresh` behind `leaf` (NULL: before all). Its place follows from the order alone. */
static void rmf_link_after(struct rmf_offset_map *map, struct rmf_offset_leaf *leaf,
                           struct rmf_offset_leaf *fresh) {
    struct rmf_offset_leaf *next = leaf == NULL ? map->first : leaf->next;
    fresh->left = NULL;
    fresh->right = NULL;
    fresh->parent = NULL;
    fresh->height = 1;
    fresh->prev = leaf;
    fresh->next = next;
    if (leaf != NULL) {
        leaf->next = fresh;
    } else {
        map->first = fresh;
    }
    if (next != NULL) {
        next->prev = fresh;
    } else {
        map->last = fresh;
    }
    if (map->root == NULL) {
        map->root = fresh;
        return;
    }
    if (leaf != NULL && leaf->right == NULL) {
        leaf->right = fresh;
        fresh->parent = leaf;
    } else { /* the in-order successor has no left child then */
        next->left = fresh;
        fresh->parent = next;
    }
    rmf_rebalance(map, fresh->parent);
}

static void rmf_unlink(struct rmf_offset_map *map, struct rmf_offset_leaf *leaf) {
    struct rmf_offset_leaf *from;
    if (leaf->left == NULL || leaf->right == NULL) {
        from = leaf->parent;
        rmf_replace(map, leaf, leaf->left != NULL ? leaf->left : leaf->right);
    } else {
        struct rmf_offset_leaf *next = leaf->next; /* leftmost of the right subtree */
        if (next->parent == leaf) {
            from = next;
        } else {
            from = next->parent;
            rmf_replace(map, next, next->right);
            next->right = leaf->right;
            next->right->parent = next;
        }
        rmf_replace(map, leaf, next);
        next->left = leaf->left;
        next->left->parent = next;
        next->height = leaf->height;
    }
    if (leaf->prev != NULL) {
        leaf->prev->next = leaf->next;
    } else {
        map->first = leaf->next;
    }
    if (leaf->next != NULL) {
        leaf->next->prev = leaf->prev;
    } else {
        map->last = leaf->prev;
    }
    if (map->hint == leaf) {
        map->hint = leaf->next;
    }
    rmf_rebalance(map, from);
    if (map->spare == NULL) {
        map->spare = leaf;
    } else {
        rmf_free(leaf);
    }
}

static struct rmf_offset_leaf *rmf_fresh_leaf(struct rmf_offset_map *map) {
    struct rmf_offset_leaf *leaf = map->spare;
    if (leaf != NULL) {
        map->spare = NULL;
    } else {
        leaf = rmf_alloc(sizeof *leaf);
        if (leaf == NULL) {
            return NULL;
        }
    }
    leaf->present = 0;
    leaf->used = 0;
    return leaf;
}

/* ------------------------------------------------------------------------------- the slots */

static bool rmf_leaf_covers(const struct rmf_offset_leaf *leaf, int64_t offset) {
    return leaf->offsets[0] <= offset && (leaf->next == NULL || offset < leaf->next->offsets[0]);
}

/* The last leaf that starts at or below `offset`; the first leaf when there is none. */
static struct rmf_offset_leaf *rmf_find_leaf(struct rmf_offset_map *map, int64_t offset) {
    struct rmf_offset_leaf *leaf = map->hint;
    if (leaf != NULL) {
        if (rmf_leaf_covers(leaf, offset)) {
            return leaf;
        }
        if (leaf->next != NULL && rmf_leaf_covers(leaf->next, offset)) {
            return leaf->next;
        }
    }
    if (map->last->offsets[0] <= offset) {
        return map->last;
    }
    struct rmf_offset_leaf *found = map->first;
    leaf = map->root;
    while (leaf != NULL) {
        if (leaf->offsets[0] <= offset) {
            found = leaf;
            leaf = leaf->right;
        } else {
            leaf = leaf->left;
        }
    }
    return found;
}

/* First slot whose offset is not below `offset`. */
static uint32_t rmf_leaf_lower_bound(const struct rmf_offset_leaf *leaf, int64_t offset) {
    if (leaf->used > 0 && offset >= leaf->offsets[0]) {
        /* Offsets without gaps are the rule, and then the slot follows from the first one. */
        uint64_t guess = (uint64_t)offset - (uint64_t)leaf->offsets[0];
        if (guess < leaf->used && leaf->offsets[guess] == offset) {
            return (uint32_t)guess;
        }
    }
    uint32_t low = 0;
    uint32_t high = leaf->used;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (leaf->offsets[middle] < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Drops the removed slots. */
static void rmf_leaf_compact(struct rmf_offset_leaf *leaf) {
    uint32_t to = 0;
    for (uint32_t from = 0; from < leaf->used; from++) {
        if ((leaf->present & rmf_bit(from)) != 0) {
            leaf->offsets[to] = leaf->offsets[from];
            leaf->entries[to] = leaf->entries[from];
            to += 1;
        }
    }
    leaf->used = to;
    leaf->present = to == 64 ? UINT64_MAX : rmf_bit(to) - 1;
}

static void rmf_leaf_append(struct rmf_offset_leaf *leaf, int64_t offset,
                            const struct rmf_offset_entry *entry) {
    leaf->offsets[leaf->used] = offset;
    leaf->entries[leaf->used] = *entry;
    leaf->present |= rmf_bit(leaf->used);
    leaf->used += 1;
}

/* Moves the upper half of a full leaf into a new one behind it. */
static struct rmf_offset_leaf *rmf_leaf_split(struct rmf_offset_map *map,
                                              struct rmf_offset_leaf *leaf) {
    struct rmf_offset_leaf *upper = rmf_fresh_leaf(map);
    if (upper == NULL) {
        return NULL;
    }
    const uint32_t half = RMF_LEAF_SLOTS / 2;
    memcpy(upper->offsets, leaf->offsets + half, half * sizeof leaf->offsets[0]);
    memcpy(upper->entries, leaf->entries + half, half * sizeof leaf->entries[0]);
    upper->used = half;
    upper->present = rmf_bit(half) - 1;
    leaf->used = half;
    leaf->present = rmf_bit(half) - 1;
    rmf_link_after(map, leaf, upper);
    return upper;
}

/* ------------------------------------------------------------------------------- interface */

void rmf_offset_map_init(struct rmf_offset_map *map) { memset(map, 0, sizeof *map); }

void rmf_offset_map_clear(struct rmf_offset_map *map) {
    struct rmf_offset_leaf *leaf = map->first;
    while (leaf != NULL) {
        struct rmf_offset_leaf *next = leaf->next;
        rmf_free(leaf);
        leaf = next;
    }
    rmf_free(map->spare);
    rmf_offset_map_init(map);
}

enum rmf_status rmf_offset_map_insert(struct rmf_offset_map *map, int64_t offset,
                                      const struct rmf_offset_entry *entry) {
    struct rmf_offset_leaf *last = map->last;
    if (last == NULL || offset > last->offsets[last->used - 1]) {
        if (last == NULL || last->used == RMF_LEAF_SLOTS) {
            struct rmf_offset_leaf *fresh = rmf_fresh_leaf(map);
            if (fresh == NULL) {
                return RMF_ERR_NO_MEMORY;
            }
            rmf_leaf_append(fresh, offset, entry);
            rmf_link_after(map, last, fresh);
        } else {
            rmf_leaf_append(last, offset, entry);
        }
        map->count += 1;
        return RMF_OK;
    }
    struct rmf_offset_leaf *leaf = rmf_find_leaf(map, offset);
    uint32_t slot = rmf_leaf_lower_bound(leaf, offset);
    if (slot < leaf->used && leaf->offsets[slot] == offset) {
        if ((leaf->present & rmf_bit(slot)) != 0) {
            return RMF_NEED_MORE;
        }
        leaf->entries[slot] = *entry;
        leaf->present |= rmf_bit(slot);
        map->count += 1;
        return RMF_OK;
    }
    if (leaf->used == RMF_LEAF_SLOTS) {
        if (leaf->present == UINT64_MAX) {
            struct rmf_offset_leaf *upper = rmf_leaf_split(map, leaf);
            if (upper == NULL) {
                return RMF_ERR_NO_MEMORY;
            }
            if (offset > upper->offsets[0]) {
                leaf = upper;
            }
        } else {
            rmf_leaf_compact(leaf);
        }
        slot = rmf_leaf_lower_bound(leaf, offset);
    }
    uint32_t moved = leaf->used - slot;
    memmove(leaf->offsets + slot + 1, leaf->offsets + slot, moved * sizeof leaf->offsets[0]);
    memmove(leaf->entries + slot + 1, leaf->entries + slot, moved * sizeof leaf->entries[0]);
    uint64_t below = rmf_bit(slot) - 1;
    leaf->present = (leaf->present & below) | rmf_bit(slot) | ((leaf->present & ~below) << 1);
    leaf->offsets[slot] = offset;
    leaf->entries[slot] = *entry;
    leaf->used += 1;
    map->count += 1;
    return RMF_OK;
}

bool rmf_offset_map_remove(struct rmf_offset_map *map, int64_t offset,
                           struct rmf_offset_entry *entry) {
    if (map->count == 0) {
        return false;
    }
    struct rmf_offset_leaf *leaf = rmf_find_leaf(map, offset);
    uint32_t slot = rmf_leaf_lower_bound(leaf, offset);
    if (slot == leaf->used || leaf->offsets[slot] != offset ||
        (leaf->present & rmf_bit(slot)) == 0) {
        return false;
    }
    *entry = leaf->entries[slot];
    leaf->present &= ~rmf_bit(slot);
    map->count -= 1;
    map->hint = leaf;
    if (leaf->present == 0) {
        rmf_unlink(map, leaf);
    }
    return true;
}

/* One after another without a call per message: the flow of a consumer is appends and removals in offset
 * order, whose places follow from the one before. */
static inline int64_t rmf_run_offset(const struct rmf_offset_run *run, size_t i) {
    int64_t offset;
    memcpy(&offset, (const uint8_t *)run->first + i * run->stride, sizeof offset);
    return offset;
}

enum rmf_status rmf_offset_map_insert_run(struct rmf_offset_map *map, struct rmf_offset_run run,
                                          const uint32_t *body_bytes, uint32_t owner, size_t *done,
                                          uint32_t *inserted, int64_t *inserted_bytes) {
    enum rmf_status status = RMF_OK;
    uint32_t added = 0;
    int64_t bytes = 0;
    size_t i = 0;
    while (i < run.count) {
        struct rmf_offset_leaf *last = map->last;
        uint32_t used = last == NULL ? RMF_LEAF_SLOTS : last->used;
        uint32_t used_before = used;
        int64_t newest = used == RMF_LEAF_SLOTS ? 0 : last->offsets[used - 1];
        while (used < RMF_LEAF_SLOTS && i < run.count) {
            int64_t offset = rmf_run_offset(&run, i);
            if (offset <= newest) {
                break;
            }
            uint32_t size;
            memcpy(&size, (const uint8_t *)body_bytes + i * run.stride, sizeof size);
            last->offsets[used] = offset;
            last->entries[used].body_bytes = size;
            last->entries[used].owner = owner;
            last->entries[used].index = (uint32_t)i;
            bytes += size;
            newest = offset;
            used += 1;
            i += 1;
        }
        if (used > used_before) {
            uint32_t fresh = used - used_before;
            uint64_t mask = fresh == 64 ? UINT64_MAX : (rmf_bit(fresh) - 1) << used_before;
            last->present |= mask;
            last->used = used;
            map->count += fresh;
            added += fresh;
            continue;
        }
        struct rmf_offset_entry entry = {0, owner, (uint32_t)i};
        memcpy(&entry.body_bytes, (const uint8_t *)body_bytes + i * run.stride,
               sizeof entry.body_bytes);
        status = rmf_offset_map_insert(map, rmf_run_offset(&run, i), &entry);
        if (status < 0) {
            break;
        }
        if (status == RMF_OK) {
            added += 1;
            bytes += entry.body_bytes;
        }
        status = RMF_OK;
        i += 1;
    }
    *done = i;
    *inserted = added;
    *inserted_bytes = bytes;
    return status;
}

/* Slot of `offset` in the leaf when present, RMF_LEAF_SLOTS otherwise. `likely` is looked at first. */
static inline uint32_t rmf_leaf_find(const struct rmf_offset_leaf *leaf, uint32_t likely,
                                     int64_t offset) {
    uint32_t slot = likely;
    if (slot >= leaf->used || leaf->offsets[slot] != offset) {
        slot = rmf_leaf_lower_bound(leaf, offset);
        if (slot == leaf->used || leaf->offsets[slot] != offset) {
            return RMF_LEAF_SLOTS;
        }
    }
    return (leaf->present & rmf_bit(slot)) != 0 ? slot : RMF_LEAF_SLOTS;
}

void rmf_offset_map_remove_run(struct rmf_offset_map *map, struct rmf_offset_run run,
                               rmf_offset_dropped *dropped, void *context) {
    uint32_t owner = 0;
    uint32_t entries = 0;
    int64_t bytes = 0;
    size_t i = 0;
    while (i < run.count && map->count > 0) {
        struct rmf_offset_leaf *leaf = rmf_find_leaf(map, rmf_run_offset(&run, i));
        int64_t end = leaf->next == NULL ? INT64_MAX : leaf->next->offsets[0];
        uint32_t slot = 0;
        uint32_t gone = 0;
        size_t before = i;
        map->hint = leaf;
        /* All that falls into this leaf; a run that jumps back looks its leaf up again. */
        do {
            int64_t offset = rmf_run_offset(&run, i);
            if (offset < leaf->offsets[0] || (offset >= end && leaf->next != NULL)) {
                break;
            }
            i += 1;
            uint32_t found = rmf_leaf_find(leaf, slot, offset);
            if (found == RMF_LEAF_SLOTS) {
                continue;
            }
            const struct rmf_offset_entry *entry = &leaf->entries[found];
            if (entries > 0 && entry->owner != owner) {
                dropped(context, owner, entries, bytes);
                entries = 0;
                bytes = 0;
            }
            owner = entry->owner;
            entries += 1;
            bytes += entry->body_bytes;
            leaf->present &= ~rmf_bit(found);
            gone += 1;
            slot = found + 1;
        } while (i < run.count);
        map->count -= gone;
        if (leaf->present == 0) {
            rmf_unlink(map, leaf);
        } else if (i == before) {
            i += 1; /* below the first leaf: absent */
        }
    }
    if (entries > 0) {
        dropped(context, owner, entries, bytes);
    }
}

bool rmf_offset_map_first(const struct rmf_offset_map *map, int64_t *offset,
                          struct rmf_offset_entry *entry) {
    if (map->first == NULL) {
        return false;
    }
    uint32_t slot = rmf_lowest_bit(map->first->present);
    *offset = map->first->offsets[slot];
    *entry = map->first->entries[slot];
    return true;
}

bool rmf_offset_map_last(const struct rmf_offset_map *map, int64_t *offset) {
    if (map->last == NULL) {
        return false;
    }
    *offset = map->last->offsets[rmf_highest_bit(map->last->present)];
    return true;
}

static int32_t rmf_check_tree(const struct rmf_offset_leaf *leaf, size_t *leaves,
                              const char **reason) {
    if (leaf == NULL) {
        return 0;
    }
    *leaves += 1;
    if ((leaf->left != NULL && leaf->left->parent != leaf) ||
        (leaf->right != NULL && leaf->right->parent != leaf)) {
        *reason = "a child does not know its parent";
    }
    int32_t left = rmf_check_tree(leaf->left, leaves, reason);
    int32_t right = rmf_check_tree(leaf->right, leaves, reason);
    int32_t height = (left > right ? left : right) + 1;
    if (left - right > 1 || right - left > 1) {
        *reason = "the tree is out of balance";
    }
    if (leaf->height != height) {
        *reason = "a height is wrong";
    }
    return height;
}

bool rmf_offset_map_check(const struct rmf_offset_map *map, const char **reason) {
    size_t count = 0;
    size_t leaves = 0;
    const struct rmf_offset_leaf *prev = NULL;
    *reason = NULL;
    for (const struct rmf_offset_leaf *leaf = map->first; leaf != NULL; leaf = leaf->next) {
        leaves += 1;
        if (leaf->prev != prev) {
            *reason = "the list of leaves is broken";
        }
        if (leaf->used == 0 || leaf->used > RMF_LEAF_SLOTS || leaf->present == 0) {
            *reason = "a leaf is empty or overfull";
            return false;
        }
        if (leaf->used < RMF_LEAF_SLOTS && leaf->present >> leaf->used != 0) {
            *reason = "an unused slot is marked present";
        }
        for (uint32_t i = 1; i < leaf->used; i++) {
            if (leaf->offsets[i - 1] >= leaf->offsets[i]) {
                *reason = "offsets of a leaf are not ascending";
            }
        }
        if (prev != NULL && prev->offsets[prev->used - 1] >= leaf->offsets[0]) {
            *reason = "leaves overlap";
        }
        for (uint64_t bits = leaf->present; bits != 0; bits &= bits - 1) {
            count += 1;
        }
        prev = leaf;
    }
    size_t in_tree = 0;
    (void)rmf_check_tree(map->root, &in_tree, reason);
    if (map->last != prev || in_tree != leaves) {
        *reason = "tree and list hold different leaves";
    }
    if (count != map->count) {
        *reason = "the count is wrong";
    }
    return *reason == NULL;
}
