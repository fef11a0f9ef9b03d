#include "rmf_offset_map.h"

#include <string.h>

#include "rmf_alloc.h"

#define RMF_LEAF_RUNS 16u

struct rmf_offset_leaf {
    uint32_t begin; /* runs[begin..end) are there, ascending, at least one */
    uint32_t end;
    int32_t height;
    struct rmf_offset_leaf *left;
    struct rmf_offset_leaf *right;
    struct rmf_offset_leaf *parent;
    struct rmf_offset_leaf *prev;
    struct rmf_offset_leaf *next;
    struct rmf_offset_run runs[RMF_LEAF_RUNS];
};

/* A run in the map. */
struct rmf_offset_place {
    struct rmf_offset_leaf *leaf;
    uint32_t slot;
};

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
    leaf->begin = 0;
    leaf->end = 0;
    return leaf;
}

/* -------------------------------------------------------------------------------- the runs */

static int64_t rmf_leaf_low(const struct rmf_offset_leaf *leaf) {
    return rmf_offset_run_low(&leaf->runs[leaf->begin]);
}

static int64_t rmf_leaf_high(const struct rmf_offset_leaf *leaf) {
    return rmf_offset_run_high(&leaf->runs[leaf->end - 1]);
}

/* The first run that reaches up to `offset`; false when all end below it. */
static bool rmf_seek(const struct rmf_offset_map *map, int64_t offset,
                     struct rmf_offset_place *place) {
    if (map->last == NULL || rmf_leaf_high(map->last) < offset) {
        return false;
    }
    struct rmf_offset_leaf *leaf = map->hint;
    if (leaf == NULL || rmf_leaf_high(leaf) < offset ||
        (leaf != map->first && offset < rmf_leaf_low(leaf))) {
        struct rmf_offset_leaf *node = map->root;
        leaf = map->last;
        while (node != NULL) {
            if (rmf_leaf_high(node) < offset) {
                node = node->right;
            } else {
                leaf = node;
                node = node->left;
            }
        }
    }
    uint32_t low = leaf->begin;
    uint32_t high = leaf->end - 1;
    if (rmf_offset_run_high(&leaf->runs[low]) < offset) { /* else at the front, as a rule */
        low += 1;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (rmf_offset_run_high(&leaf->runs[middle]) < offset) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    place->leaf = leaf;
    place->slot = low;
    return true;
}

/* The bits of a window at `from`, as far as a window at `to` has them. */
static uint64_t rmf_rebase(uint64_t bits, int64_t from, int64_t to) {
    if (from >= to) {
        uint64_t up = (uint64_t)from - (uint64_t)to;
        return up < RMF_WORD_BITS ? bits << up : 0;
    }
    uint64_t down = (uint64_t)to - (uint64_t)from;
    return down < RMF_WORD_BITS ? bits >> down : 0;
}

/* Of a window at `base`, the bits of offsets below `offset`, which is not below base. */
static uint64_t rmf_bits_below(int64_t base, int64_t offset) {
    return rmf_low_bits((uint64_t)offset - (uint64_t)base);
}

/* Whether two runs tell of the same messages, so that their bits can stand in one. */
static bool rmf_same_messages(const struct rmf_offset_run *a, const struct rmf_offset_run *b) {
    return a->base == b->base && a->owner == b->owner && a->known == b->known &&
           a->index == b->index;
}

/* Puts a run in front of slot `slot`, which may be the end, of a leaf. */
static enum rmf_status rmf_leaf_insert(struct rmf_offset_map *map, struct rmf_offset_leaf *leaf,
                                       uint32_t slot, const struct rmf_offset_run *run) {
    if (leaf->begin == 0 && leaf->end == RMF_LEAF_RUNS) {
        struct rmf_offset_leaf *upper = rmf_fresh_leaf(map);
        if (upper == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        /* At the very end a leaf stays full: more of a flow will come behind it. */
        bool behind_all = leaf == map->last && slot == leaf->end;
        uint32_t kept = behind_all ? RMF_LEAF_RUNS : RMF_LEAF_RUNS / 2;
        upper->end = RMF_LEAF_RUNS - kept;
        memcpy(upper->runs, leaf->runs + kept, upper->end * sizeof *run);
        leaf->end = kept;
        if (behind_all) {
            upper->runs[0] = *run;
            upper->end = 1;
        }
        rmf_link_after(map, leaf, upper);
        if (behind_all) {
            return RMF_OK;
        }
        if (slot > kept) {
            leaf = upper;
            slot -= kept;
        }
    }
    bool down = leaf->begin > 0 && (leaf->end == RMF_LEAF_RUNS || slot == leaf->begin);
    if (down) {
        memmove(leaf->runs + leaf->begin - 1, leaf->runs + leaf->begin,
                (slot - leaf->begin) * sizeof *run);
        leaf->begin -= 1;
        slot -= 1;
    } else {
        memmove(leaf->runs + slot + 1, leaf->runs + slot, (leaf->end - slot) * sizeof *run);
        leaf->end += 1;
    }
    leaf->runs[slot] = *run;
    return RMF_OK;
}

static void rmf_leaf_remove(struct rmf_offset_map *map, struct rmf_offset_leaf *leaf,
                            uint32_t slot) {
    if (slot == leaf->begin) {
        leaf->begin += 1;
    } else {
        leaf->end -= 1;
        memmove(leaf->runs + slot, leaf->runs + slot + 1,
                (leaf->end - slot) * sizeof leaf->runs[0]);
    }
    if (leaf->begin == leaf->end) {
        rmf_unlink(map, leaf);
    }
}

/* Inserts a run whose range touches no other, in front of `place` (NULL: behind all). */
static enum rmf_status rmf_place_run(struct rmf_offset_map *map, struct rmf_offset_place *place,
                                     const struct rmf_offset_run *run) {
    struct rmf_offset_run *before = NULL;
    struct rmf_offset_leaf *prev = map->last;
    if (place != NULL) {
        struct rmf_offset_run *behind = &place->leaf->runs[place->slot];
        if (rmf_same_messages(behind, run)) {
            behind->present |= run->present;
            return RMF_OK;
        }
        prev = place->slot == place->leaf->begin ? place->leaf->prev : place->leaf;
    }
    if (prev != NULL) {
        uint32_t slot = place != NULL && prev == place->leaf ? place->slot : prev->end;
        before = &prev->runs[slot - 1];
        if (rmf_same_messages(before, run)) {
            before->present |= run->present;
            return RMF_OK;
        }
    }
    if (place != NULL) {
        return rmf_leaf_insert(map, place->leaf, place->slot, run);
    }
    if (prev != NULL) {
        return rmf_leaf_insert(map, prev, prev->end, run);
    }
    struct rmf_offset_leaf *only = rmf_fresh_leaf(map);
    if (only == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    only->runs[0] = *run;
    only->end = 1;
    rmf_link_after(map, NULL, only);
    return RMF_OK;
}

/* Makes room in a run for an offset between two of its own: what lies above becomes a run of its own. */
static enum rmf_status rmf_split_run(struct rmf_offset_map *map, struct rmf_offset_place place,
                                     int64_t offset) {
    struct rmf_offset_run *run = &place.leaf->runs[place.slot];
    struct rmf_offset_run upper = *run;
    uint64_t below = rmf_bits_below(run->base, offset);
    upper.present &= ~below;
    run->present &= below;
    enum rmf_status status = rmf_leaf_insert(map, place.leaf, place.slot + 1, &upper);
    if (status != RMF_OK) {
        run->present |= upper.present;
    }
    return status;
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

enum rmf_status rmf_offset_map_insert(struct rmf_offset_map *map, const struct rmf_offset_run *run,
                                      uint64_t *inserted) {
    uint64_t left = run->present;
    uint64_t fresh = 0;
    while (left != 0) {
        struct rmf_offset_place place;
        struct rmf_offset_run piece = *run;
        piece.present = left;
        int64_t low = rmf_offset_run_low(&piece);
        bool behind_all = !rmf_seek(map, low, &place);
        if (!behind_all) {
            const struct rmf_offset_run *old = &place.leaf->runs[place.slot];
            int64_t old_low = rmf_offset_run_low(old);
            if (low < old_low) {
                piece.present &= rmf_bits_below(run->base, old_low);
            } else {
                uint64_t there = rmf_rebase(old->present, old->base, run->base);
                if ((left & ~there) != left) {
                    left &= ~there;
                    continue;
                }
                /* All between two offsets of the old run: nothing is there yet. */
                if (!rmf_same_messages(old, run)) {
                    enum rmf_status status = rmf_split_run(map, place, low);
                    if (status != RMF_OK) {
                        goto undo;
                    }
                    continue;
                }
                piece.present &= rmf_bits_below(run->base, rmf_offset_run_high(old));
            }
        }
        if (rmf_place_run(map, behind_all ? NULL : &place, &piece) != RMF_OK) {
            goto undo;
        }
        map->count += rmf_bit_count(piece.present);
        fresh |= piece.present;
        left &= ~piece.present;
    }
    *inserted = fresh;
    return RMF_OK;
undo:;
    struct rmf_offset_window done = {run->base, fresh};
    struct rmf_offset_run gone;
    while (rmf_offset_map_cut(map, &done, &gone)) {
    }
    return RMF_ERR_NO_MEMORY;
}

/* The place of the next run with offsets of *left, and which of its bits these are. */
static bool rmf_find(const struct rmf_offset_map *map, struct rmf_offset_window *left,
                     struct rmf_offset_place *place, uint64_t *bits) {
    while (left->bits != 0) {
        if (!rmf_seek(map, left->base + (int64_t)rmf_lowest_bit(left->bits), place)) {
            break;
        }
        const struct rmf_offset_run *run = &place->leaf->runs[place->slot];
        uint64_t hit = left->bits & rmf_rebase(run->present, run->base, left->base);
        /* All up to the end of the run is dealt with, there or not. */
        int64_t high = rmf_offset_run_high(run);
        left->bits &= ~rmf_low_bits((uint64_t)high - (uint64_t)left->base);
        left->bits &= ~hit;
        if (hit != 0) {
            *bits = rmf_rebase(hit, left->base, run->base);
            return true;
        }
    }
    left->bits = 0;
    return false;
}

bool rmf_offset_map_find(const struct rmf_offset_map *map, struct rmf_offset_window *left,
                         struct rmf_offset_run *found) {
    struct rmf_offset_place place;
    uint64_t bits;
    if (!rmf_find(map, left, &place, &bits)) {
        return false;
    }
    *found = place.leaf->runs[place.slot];
    found->present = bits;
    return true;
}

bool rmf_offset_map_cut(struct rmf_offset_map *map, struct rmf_offset_window *left,
                        struct rmf_offset_run *gone) {
    struct rmf_offset_place place;
    uint64_t bits;
    if (!rmf_find(map, left, &place, &bits)) {
        return false;
    }
    struct rmf_offset_run *run = &place.leaf->runs[place.slot];
    *gone = *run;
    gone->present = bits;
    run->present &= ~bits;
    map->count -= rmf_bit_count(bits);
    map->hint = place.leaf;
    if (run->present == 0) {
        rmf_leaf_remove(map, place.leaf, place.slot);
    }
    return true;
}

void rmf_offset_map_remove_owner(struct rmf_offset_map *map, uint32_t owner) {
    struct rmf_offset_leaf *leaf = map->first;
    while (leaf != NULL) {
        struct rmf_offset_leaf *next = leaf->next;
        uint32_t begin = leaf->begin;
        for (uint32_t slot = leaf->end; slot > begin; slot--) {
            const struct rmf_offset_run *run = &leaf->runs[slot - 1];
            if (run->owner == owner) {
                map->count -= rmf_bit_count(run->present);
                rmf_leaf_remove(map, leaf, slot - 1);
            }
        }
        leaf = next;
    }
}

const struct rmf_offset_run *rmf_offset_map_first(const struct rmf_offset_map *map) {
    return map->first == NULL ? NULL : &map->first->runs[map->first->begin];
}

const struct rmf_offset_run *rmf_offset_map_from(const struct rmf_offset_map *map, int64_t offset) {
    struct rmf_offset_place place;
    return rmf_seek(map, offset, &place) ? &place.leaf->runs[place.slot] : NULL;
}

const struct rmf_offset_run *rmf_offset_map_last(const struct rmf_offset_map *map) {
    return map->last == NULL ? NULL : &map->last->runs[map->last->end - 1];
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

static const char *rmf_check_run(const struct rmf_offset_run *run) {
    if (run->present == 0 || (run->present & ~run->known) != 0 || (run->known & 1) == 0) {
        return "a run has wrong bits";
    }
    if (run->base > INT64_MAX - (int64_t)rmf_highest_bit(run->known)) {
        return "a run passes the largest offset";
    }
    return NULL;
}

bool rmf_offset_map_check(const struct rmf_offset_map *map, const char **reason) {
    size_t count = 0;
    size_t leaves = 0;
    const struct rmf_offset_leaf *prev = NULL;
    const struct rmf_offset_run *before = NULL;
    *reason = NULL;
    for (const struct rmf_offset_leaf *leaf = map->first; leaf != NULL; leaf = leaf->next) {
        leaves += 1;
        if (leaf->prev != prev) {
            *reason = "the list of leaves is broken";
        }
        if (leaf->begin >= leaf->end || leaf->end > RMF_LEAF_RUNS) {
            *reason = "a leaf is empty or overfull";
            return false;
        }
        for (uint32_t i = leaf->begin; i < leaf->end; i++) {
            const struct rmf_offset_run *run = &leaf->runs[i];
            const char *wrong = rmf_check_run(run);
            if (wrong != NULL) {
                *reason = wrong;
                return false;
            }
            if (before != NULL && rmf_offset_run_high(before) >= rmf_offset_run_low(run)) {
                *reason = "runs overlap";
            }
            count += rmf_bit_count(run->present);
            before = run;
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
