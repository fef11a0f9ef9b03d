#include "rmf_queue.h"

#include <string.h>

#include "rmf_alloc.h"
#include "rmf_offset_map.h"

#define RMF_NO_OWNER UINT32_MAX

/* A batch with messages in the queue. Free and released entries are chained by index. */
struct rmf_owner {
    void *object;
    const struct rmf_message *messages;
    int64_t body_bytes; /* of the live messages */
    uint32_t live;
    uint32_t next;
};

struct rmf_queue {
    struct rmf_offset_map waiting;
    struct rmf_offset_map taken;
    int64_t body_bytes;
    int64_t largest; /* ever inserted since the last clear */
    bool consuming;
    struct rmf_owner *owners;
    uint32_t owner_count;
    uint32_t free_owner;     /* chain of unused entries */
    uint32_t released_owner; /* chain of entries whose object the caller has to release */
};

struct rmf_queue *rmf_queue_new(void) {
    struct rmf_queue *queue = rmf_alloc_zeroed(sizeof *queue);
    if (queue != NULL) {
        queue->largest = -1;
        queue->free_owner = RMF_NO_OWNER;
        queue->released_owner = RMF_NO_OWNER;
    }
    return queue;
}

void rmf_queue_free(struct rmf_queue *queue) {
    if (queue != NULL) {
        rmf_offset_map_clear(&queue->waiting);
        rmf_offset_map_clear(&queue->taken);
        rmf_free(queue->owners);
        rmf_free(queue);
    }
}

static uint32_t rmf_owner_new(struct rmf_queue *queue, void *object) {
    if (queue->free_owner == RMF_NO_OWNER) {
        uint32_t count = queue->owner_count == 0 ? 8 : queue->owner_count * 2;
        if (count <= queue->owner_count) {
            return RMF_NO_OWNER;
        }
        struct rmf_owner *owners = rmf_realloc_array(queue->owners, count, sizeof *owners);
        if (owners == NULL) {
            return RMF_NO_OWNER;
        }
        for (uint32_t i = count; i > queue->owner_count; i--) {
            memset(&owners[i - 1], 0, sizeof owners[i - 1]);
            owners[i - 1].next = queue->free_owner;
            queue->free_owner = i - 1;
        }
        queue->owners = owners;
        queue->owner_count = count;
    }
    uint32_t at = queue->free_owner;
    queue->free_owner = queue->owners[at].next;
    queue->owners[at].object = object;
    return at;
}

static void rmf_owner_free(struct rmf_queue *queue, uint32_t at) {
    memset(&queue->owners[at], 0, sizeof queue->owners[at]);
    queue->owners[at].next = queue->free_owner;
    queue->free_owner = at;
}

/* Body bytes of what is present in a run. */
static int64_t rmf_run_bytes(const struct rmf_message *messages, const struct rmf_offset_run *run) {
    int64_t bytes = 0;
    uint32_t index = run->index;
    for (uint64_t known = run->known; known != 0; known &= known - 1) {
        if ((run->present & rmf_bit(rmf_lowest_bit(known))) != 0) {
            bytes += messages[index].body_len;
        }
        index += 1;
    }
    return bytes;
}

/* What is present in *gone left the queue. */
static void rmf_queue_drop(struct rmf_queue *queue, const struct rmf_offset_run *gone) {
    struct rmf_owner *owner = &queue->owners[gone->owner];
    owner->live -= rmf_bit_count(gone->present);
    /* The last messages of a batch take what is left: no need to look at each of them. */
    int64_t bytes =
        owner->live == 0 ? owner->body_bytes : rmf_run_bytes(owner->messages, gone);
    owner->body_bytes -= bytes;
    queue->body_bytes -= bytes;
    if (owner->live == 0) {
        owner->next = queue->released_owner;
        queue->released_owner = gone->owner;
    }
}

/* Removes the offsets of a window from one of the maps. */
static void rmf_queue_drop_window(struct rmf_queue *queue, struct rmf_offset_map *map,
                                  struct rmf_offset_window window) {
    struct rmf_offset_run gone;
    while (rmf_offset_map_cut(map, &window, &gone)) {
        rmf_queue_drop(queue, &gone);
    }
}

/* The window that begins with offsets[0], `stride` bytes apart, as far as they ascend. *used: how many
 * of the `count`, at least 1, are in it. */
static struct rmf_offset_window rmf_window_of_offsets(const int64_t *offsets, size_t stride,
                                                      size_t count, size_t *used) {
    struct rmf_offset_window window = {*offsets, 1};
    int64_t last = *offsets;
    size_t n = 1;
    for (; n < count; n++) {
        int64_t offset;
        memcpy(&offset, (const uint8_t *)offsets + n * stride, sizeof offset);
        uint64_t bit = (uint64_t)offset - (uint64_t)window.base;
        if (offset <= last || bit >= RMF_WORD_BITS) {
            break;
        }
        window.bits |= rmf_bit((uint32_t)bit);
        last = offset;
    }
    *used = n;
    return window;
}

/* The same for the messages at..stop of a list, which is not read when it has no gaps. */
static struct rmf_offset_window rmf_window_of_messages(const struct rmf_message_list *list,
                                                       size_t at, size_t stop, size_t *used) {
    if (list->gaps) {
        return rmf_window_of_offsets(&list->messages[at].queue_offset, sizeof list->messages[at],
                                     stop - at, used);
    }
    size_t count = stop - at < RMF_WORD_BITS ? stop - at : RMF_WORD_BITS;
    struct rmf_offset_window window = {list->first_offset + (int64_t)at, rmf_low_bits(count)};
    *used = count;
    return window;
}

void *rmf_queue_next_released(struct rmf_queue *queue) {
    if (queue->released_owner == RMF_NO_OWNER) {
        return NULL;
    }
    uint32_t at = queue->released_owner;
    struct rmf_owner *owner = &queue->owners[at];
    void *object = owner->object;
    queue->released_owner = owner->next;
    rmf_owner_free(queue, at);
    return object;
}

/* Inserts a list on behalf of an owner that has nothing yet; on failure some of it may be in. */
static enum rmf_status rmf_queue_put_list(struct rmf_queue *queue, uint32_t at,
                                          const struct rmf_message_list *list) {
    struct rmf_owner *owner = &queue->owners[at];
    uint32_t live = 0;
    int64_t bytes = list->body_bytes;
    size_t used;
    for (size_t index = 0; index < list->count; index += used) {
        struct rmf_offset_window window = rmf_window_of_messages(list, index, list->count, &used);
        struct rmf_offset_run run = {window.base, window.bits, window.bits, at, (uint32_t)index};
        uint64_t inserted;
        enum rmf_status status = rmf_offset_map_insert(&queue->waiting, &run, &inserted);
        if (status != RMF_OK) {
            return status;
        }
        live += rmf_bit_count(inserted);
        if (inserted != run.present) {
            run.present &= ~inserted;
            bytes -= rmf_run_bytes(list->messages, &run);
        }
    }
    owner->messages = list->messages;
    owner->live = live;
    owner->body_bytes = bytes;
    queue->body_bytes += bytes;
    return RMF_OK;
}

enum rmf_status rmf_queue_put(struct rmf_queue *queue, void *object,
                              const struct rmf_message_list *list, size_t *inserted,
                              bool *dispatch) {
    if (list->count > UINT32_MAX) {
        return RMF_ERR_ARGUMENT;
    }
    uint32_t at = rmf_owner_new(queue, object);
    if (at == RMF_NO_OWNER) {
        return RMF_ERR_NO_MEMORY;
    }
    enum rmf_status status = rmf_queue_put_list(queue, at, list);
    if (status != RMF_OK) {
        rmf_offset_map_remove_owner(&queue->waiting, at);
        rmf_owner_free(queue, at);
        return status;
    }
    const struct rmf_offset_run *last = rmf_offset_map_last(&queue->waiting);
    if (last != NULL && rmf_offset_run_high(last) > queue->largest) {
        queue->largest = rmf_offset_run_high(last);
    }
    *inserted = queue->owners[at].live;
    if (*inserted == 0) {
        rmf_owner_free(queue, at);
    }
    *dispatch = queue->waiting.count > 0 && !queue->consuming;
    if (*dispatch) {
        queue->consuming = true;
    }
    return RMF_OK;
}

/* Offsets come from the wire: one at the end of the range has no successor. */
static int64_t rmf_offset_after(int64_t offset) {
    return offset == INT64_MAX ? offset : offset + 1;
}

static int64_t rmf_map_min(const struct rmf_offset_map *map) {
    const struct rmf_offset_run *run = rmf_offset_map_first(map);
    return run == NULL ? RMF_QUEUE_NO_OFFSET : rmf_offset_run_low(run);
}

static int64_t rmf_map_max(const struct rmf_offset_map *map) {
    const struct rmf_offset_run *run = rmf_offset_map_last(map);
    return run == NULL ? RMF_QUEUE_NO_OFFSET : rmf_offset_run_high(run);
}

static int64_t rmf_queue_after_removal(const struct rmf_queue *queue) {
    return queue->waiting.count > 0 ? rmf_map_min(&queue->waiting)
                                    : rmf_offset_after(queue->largest);
}

int64_t rmf_queue_remove(struct rmf_queue *queue, const int64_t *offsets, size_t count) {
    if (queue->waiting.count == 0) {
        return RMF_QUEUE_NO_OFFSET;
    }
    size_t used;
    for (size_t i = 0; i < count; i += used) {
        rmf_queue_drop_window(
            queue, &queue->waiting,
            rmf_window_of_offsets(offsets + i, sizeof *offsets, count - i, &used));
    }
    return rmf_queue_after_removal(queue);
}

int64_t rmf_queue_remove_messages(struct rmf_queue *queue, const struct rmf_message_list *list,
                                  size_t start, size_t stop) {
    if (queue->waiting.count == 0) {
        return RMF_QUEUE_NO_OFFSET;
    }
    size_t used;
    for (size_t i = start; i < stop; i += used) {
        rmf_queue_drop_window(queue, &queue->waiting,
                              rmf_window_of_messages(list, i, stop, &used));
    }
    return rmf_queue_after_removal(queue);
}

/* The lowest bits of a run's, `limit` at most. */
static uint64_t rmf_first_bits(uint64_t bits, size_t limit) {
    uint64_t above = bits;
    for (size_t n = 0; above != 0 && n < limit; n++) {
        above &= above - 1;
    }
    return bits & ~above;
}

int64_t rmf_queue_take(struct rmf_queue *queue, size_t limit, struct rmf_queue_item *items) {
    int64_t count = 0;
    while ((size_t)count < limit) {
        const struct rmf_offset_run *first = rmf_offset_map_first(&queue->waiting);
        if (first == NULL) {
            break;
        }
        struct rmf_offset_run run = *first;
        run.present = rmf_first_bits(run.present, limit - (size_t)count);
        struct rmf_offset_window window = {run.base, run.present};
        rmf_queue_drop_window(queue, &queue->taken, window); /* put again while taken: the newer wins */
        uint64_t inserted;
        enum rmf_status status = rmf_offset_map_insert(&queue->taken, &run, &inserted);
        if (status != RMF_OK) {
            return count > 0 ? count : status;
        }
        struct rmf_offset_run moved;
        while (rmf_offset_map_cut(&queue->waiting, &window, &moved)) {
        }
        for (uint64_t bits = run.present; bits != 0; bits &= bits - 1) {
            uint32_t bit = rmf_lowest_bit(bits);
            items[count].offset = run.base + (int64_t)bit;
            items[count].owner = queue->owners[run.owner].object;
            items[count].index = rmf_offset_run_index(&run, bit);
            count += 1;
        }
    }
    if (count == 0) {
        queue->consuming = false;
    }
    return count;
}

static void rmf_queue_drop_all(struct rmf_queue *queue, struct rmf_offset_map *map) {
    const struct rmf_offset_run *first;
    while ((first = rmf_offset_map_first(map)) != NULL) {
        struct rmf_offset_window window = {first->base, first->present};
        rmf_queue_drop_window(queue, map, window);
    }
}

int64_t rmf_queue_commit(struct rmf_queue *queue) {
    if (queue->taken.count == 0) {
        return RMF_QUEUE_NO_OFFSET;
    }
    int64_t last = rmf_map_max(&queue->taken);
    rmf_queue_drop_all(queue, &queue->taken);
    return rmf_offset_after(last);
}

/* A taken message whose offset was put again meanwhile is dropped in favour of the waiting one. */
static enum rmf_status rmf_queue_put_back(struct rmf_queue *queue,
                                          struct rmf_offset_window window) {
    struct rmf_offset_run run;
    while (rmf_offset_map_find(&queue->taken, &window, &run)) {
        uint64_t inserted;
        enum rmf_status status = rmf_offset_map_insert(&queue->waiting, &run, &inserted);
        if (status != RMF_OK) {
            return status;
        }
        struct rmf_offset_window back = {run.base, run.present};
        struct rmf_offset_run moved;
        while (rmf_offset_map_cut(&queue->taken, &back, &moved)) {
        }
        run.present &= ~inserted;
        if (run.present != 0) {
            rmf_queue_drop(queue, &run);
        }
    }
    return RMF_OK;
}

enum rmf_status rmf_queue_rollback(struct rmf_queue *queue) {
    const struct rmf_offset_run *first;
    while ((first = rmf_offset_map_first(&queue->taken)) != NULL) {
        struct rmf_offset_window window = {first->base, first->present};
        enum rmf_status status = rmf_queue_put_back(queue, window);
        if (status != RMF_OK) {
            return status;
        }
    }
    return RMF_OK;
}

enum rmf_status rmf_queue_make_consume_again(struct rmf_queue *queue, const int64_t *offsets,
                                             size_t count) {
    size_t used;
    for (size_t i = 0; i < count; i += used) {
        enum rmf_status status = rmf_queue_put_back(
            queue, rmf_window_of_offsets(offsets + i, sizeof *offsets, count - i, &used));
        if (status != RMF_OK) {
            return status;
        }
    }
    return RMF_OK;
}

void rmf_queue_clear(struct rmf_queue *queue) {
    rmf_queue_drop_all(queue, &queue->waiting);
    rmf_queue_drop_all(queue, &queue->taken);
    queue->largest = -1;
}

bool rmf_queue_first(const struct rmf_queue *queue, struct rmf_queue_item *item) {
    const struct rmf_offset_run *run = rmf_offset_map_first(&queue->waiting);
    if (run == NULL) {
        return false;
    }
    item->offset = rmf_offset_run_low(run);
    item->owner = queue->owners[run->owner].object;
    item->index = rmf_offset_run_index(run, rmf_lowest_bit(run->present));
    return true;
}

size_t rmf_queue_count(const struct rmf_queue *queue) {
    return queue->waiting.count + queue->taken.count;
}

size_t rmf_queue_taken_count(const struct rmf_queue *queue) { return queue->taken.count; }

int64_t rmf_queue_body_bytes(const struct rmf_queue *queue) { return queue->body_bytes; }

int64_t rmf_queue_span(const struct rmf_queue *queue) {
    uint64_t span = (uint64_t)rmf_map_max(&queue->waiting) - (uint64_t)rmf_map_min(&queue->waiting);
    return span > INT64_MAX ? INT64_MAX : (int64_t)span;
}

int64_t rmf_queue_min_offset(const struct rmf_queue *queue) { return rmf_map_min(&queue->waiting); }
int64_t rmf_queue_max_offset(const struct rmf_queue *queue) { return rmf_map_max(&queue->waiting); }
int64_t rmf_queue_taken_min_offset(const struct rmf_queue *queue) {
    return rmf_map_min(&queue->taken);
}
int64_t rmf_queue_taken_max_offset(const struct rmf_queue *queue) {
    return rmf_map_max(&queue->taken);
}

/* Whether the offsets of a map are those of its owners' messages; adds what it holds to the sums. */
static bool rmf_queue_check_map(const struct rmf_queue *queue, const struct rmf_offset_map *map,
                                int64_t *body_bytes, const char **reason) {
    if (!rmf_offset_map_check(map, reason)) {
        return false;
    }
    const struct rmf_offset_run *run = rmf_offset_map_first(map);
    while (run != NULL) {
        if (run->owner >= queue->owner_count || queue->owners[run->owner].object == NULL) {
            *reason = "a message has no owner";
            return false;
        }
        const struct rmf_message *messages = queue->owners[run->owner].messages;
        *body_bytes += rmf_run_bytes(messages, run);
        for (uint64_t bits = run->present; bits != 0; bits &= bits - 1) {
            uint32_t bit = rmf_lowest_bit(bits);
            if (messages[rmf_offset_run_index(run, bit)].queue_offset !=
                run->base + (int64_t)bit) {
                *reason = "an offset is not that of its message";
                return false;
            }
        }
        int64_t high = rmf_offset_run_high(run);
        run = high == INT64_MAX ? NULL : rmf_offset_map_from(map, high + 1);
    }
    return true;
}

bool rmf_queue_check(const struct rmf_queue *queue, const char **reason) {
    int64_t body_bytes = 0;
    if (!rmf_queue_check_map(queue, &queue->waiting, &body_bytes, reason) ||
        !rmf_queue_check_map(queue, &queue->taken, &body_bytes, reason)) {
        return false;
    }
    uint64_t live = 0;
    int64_t owned_bytes = 0;
    for (uint32_t i = 0; i < queue->owner_count; i++) {
        live += queue->owners[i].live;
        owned_bytes += queue->owners[i].body_bytes;
    }
    if (live != rmf_queue_count(queue)) {
        *reason = "owners and messages do not add up";
        return false;
    }
    if (body_bytes != queue->body_bytes || owned_bytes != queue->body_bytes) {
        *reason = "the body bytes do not add up";
        return false;
    }
    return true;
}
