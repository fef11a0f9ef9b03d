#include "rmf_queue.h"

#include "rmf_alloc.h"

#define RMF_NO_OWNER UINT32_MAX

/* A batch with messages in the queue. Free and released entries are chained by index. */
struct rmf_owner {
    void *object;
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
            owners[i - 1].object = NULL;
            owners[i - 1].live = 0;
            owners[i - 1].next = queue->free_owner;
            queue->free_owner = i - 1;
        }
        queue->owners = owners;
        queue->owner_count = count;
    }
    uint32_t at = queue->free_owner;
    queue->free_owner = queue->owners[at].next;
    queue->owners[at].object = object;
    queue->owners[at].live = 0;
    return at;
}

/* Entries of an owner left the queue (an rmf_offset_dropped). */
static void rmf_owner_drop(void *context, uint32_t at, uint32_t entries, int64_t body_bytes) {
    struct rmf_queue *queue = context;
    struct rmf_owner *owner = &queue->owners[at];
    queue->body_bytes -= body_bytes;
    owner->live -= entries;
    if (owner->live == 0) {
        owner->next = queue->released_owner;
        queue->released_owner = at;
    }
}

static void rmf_owner_drop_message(struct rmf_queue *queue, const struct rmf_offset_entry *entry) {
    rmf_owner_drop(queue, entry->owner, 1, entry->body_bytes);
}

static struct rmf_offset_run rmf_run_of_messages(const struct rmf_message *messages,
                                                 size_t count) {
    struct rmf_offset_run run = {&messages->queue_offset, sizeof *messages, count};
    return run;
}

void *rmf_queue_next_released(struct rmf_queue *queue) {
    if (queue->released_owner == RMF_NO_OWNER) {
        return NULL;
    }
    uint32_t at = queue->released_owner;
    struct rmf_owner *owner = &queue->owners[at];
    void *object = owner->object;
    queue->released_owner = owner->next;
    owner->object = NULL;
    owner->next = queue->free_owner;
    queue->free_owner = at;
    return object;
}

enum rmf_status rmf_queue_put(struct rmf_queue *queue, void *object,
                              const struct rmf_message *messages, size_t count, size_t *inserted,
                              bool *dispatch) {
    if (count > UINT32_MAX) {
        return RMF_ERR_ARGUMENT;
    }
    uint32_t at = rmf_owner_new(queue, object);
    if (at == RMF_NO_OWNER) {
        return RMF_ERR_NO_MEMORY;
    }
    struct rmf_owner *owner = &queue->owners[at];
    size_t done = 0;
    int64_t bytes = 0;
    enum rmf_status status = RMF_OK;
    if (count > 0) {
        status = rmf_offset_map_insert_run(&queue->waiting, rmf_run_of_messages(messages, count),
                                           &messages->body_len, at, &done, &owner->live, &bytes);
    }
    queue->body_bytes += bytes;
    if (status < 0) {
        /* Take back what this call inserted, and only that: an offset that was there before belongs to
         * another owner and goes back into the slot it had, which needs no memory. */
        while (done > 0) {
            done -= 1;
            struct rmf_offset_entry entry;
            if (rmf_offset_map_remove(&queue->waiting, messages[done].queue_offset, &entry)) {
                if (entry.owner == at) {
                    owner->live -= 1;
                    queue->body_bytes -= entry.body_bytes;
                } else {
                    status = rmf_offset_map_insert(&queue->waiting, messages[done].queue_offset,
                                                   &entry);
                    (void)status;
                }
            }
        }
        owner->object = NULL;
        owner->next = queue->free_owner;
        queue->free_owner = at;
        return RMF_ERR_NO_MEMORY;
    }
    int64_t newest;
    if (rmf_offset_map_last(&queue->waiting, &newest) && newest > queue->largest) {
        queue->largest = newest;
    }
    *inserted = owner->live;
    if (owner->live == 0) {
        owner->object = NULL;
        owner->next = queue->free_owner;
        queue->free_owner = at;
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

static int64_t rmf_queue_after_removal(const struct rmf_queue *queue) {
    int64_t first;
    struct rmf_offset_entry entry;
    return rmf_offset_map_first(&queue->waiting, &first, &entry)
               ? first
               : rmf_offset_after(queue->largest);
}

static int64_t rmf_queue_remove_run(struct rmf_queue *queue, struct rmf_offset_run run) {
    if (queue->waiting.count == 0) {
        return RMF_QUEUE_NO_OFFSET;
    }
    rmf_offset_map_remove_run(&queue->waiting, run, rmf_owner_drop, queue);
    return rmf_queue_after_removal(queue);
}

int64_t rmf_queue_remove(struct rmf_queue *queue, const int64_t *offsets, size_t count) {
    struct rmf_offset_run run = {offsets, sizeof *offsets, count};
    return rmf_queue_remove_run(queue, run);
}

int64_t rmf_queue_remove_messages(struct rmf_queue *queue, const struct rmf_message *messages,
                                  size_t count) {
    return rmf_queue_remove_run(queue, rmf_run_of_messages(messages, count));
}

int64_t rmf_queue_take(struct rmf_queue *queue, size_t limit, struct rmf_queue_item *items) {
    int64_t count = 0;
    while ((size_t)count < limit) {
        int64_t offset;
        struct rmf_offset_entry entry;
        if (!rmf_offset_map_first(&queue->waiting, &offset, &entry)) {
            break;
        }
        struct rmf_offset_entry replaced;
        if (rmf_offset_map_remove(&queue->taken, offset, &replaced)) {
            rmf_owner_drop_message(queue, &replaced); /* put again while taken: the newer one wins */
        }
        enum rmf_status status = rmf_offset_map_insert(&queue->taken, offset, &entry);
        if (status < 0) {
            return count > 0 ? count : status;
        }
        if (!rmf_offset_map_remove(&queue->waiting, offset, &entry)) {
            return RMF_ERR_ARGUMENT; /* the first entry is always there */
        }
        items[count].offset = offset;
        items[count].owner = queue->owners[entry.owner].object;
        items[count].index = entry.index;
        count += 1;
    }
    if (count == 0) {
        queue->consuming = false;
    }
    return count;
}

static void rmf_queue_drop_all(struct rmf_queue *queue, struct rmf_offset_map *map) {
    int64_t offset;
    struct rmf_offset_entry entry;
    while (rmf_offset_map_first(map, &offset, &entry) &&
           rmf_offset_map_remove(map, offset, &entry)) {
        rmf_owner_drop_message(queue, &entry);
    }
}

int64_t rmf_queue_commit(struct rmf_queue *queue) {
    int64_t last;
    if (!rmf_offset_map_last(&queue->taken, &last)) {
        return RMF_QUEUE_NO_OFFSET;
    }
    rmf_queue_drop_all(queue, &queue->taken);
    return rmf_offset_after(last);
}

/* A taken message whose offset was put again meanwhile is dropped in favour of the waiting one. */
static enum rmf_status rmf_queue_put_back(struct rmf_queue *queue, int64_t offset) {
    struct rmf_offset_entry entry;
    if (!rmf_offset_map_remove(&queue->taken, offset, &entry)) {
        return RMF_OK;
    }
    enum rmf_status status = rmf_offset_map_insert(&queue->waiting, offset, &entry);
    if (status == RMF_NEED_MORE) {
        rmf_owner_drop_message(queue, &entry);
        return RMF_OK;
    }
    if (status != RMF_OK) {
        enum rmf_status undo = rmf_offset_map_insert(&queue->taken, offset, &entry);
        (void)undo; /* its slot was freed just now */
    }
    return status;
}

enum rmf_status rmf_queue_rollback(struct rmf_queue *queue) {
    int64_t offset;
    struct rmf_offset_entry entry;
    while (rmf_offset_map_first(&queue->taken, &offset, &entry)) {
        enum rmf_status status = rmf_queue_put_back(queue, offset);
        if (status != RMF_OK) {
            return status;
        }
    }
    return RMF_OK;
}

enum rmf_status rmf_queue_make_consume_again(struct rmf_queue *queue, const int64_t *offsets,
                                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        enum rmf_status status = rmf_queue_put_back(queue, offsets[i]);
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
    struct rmf_offset_entry entry;
    if (!rmf_offset_map_first(&queue->waiting, &item->offset, &entry)) {
        return false;
    }
    item->owner = queue->owners[entry.owner].object;
    item->index = entry.index;
    return true;
}

size_t rmf_queue_count(const struct rmf_queue *queue) {
    return queue->waiting.count + queue->taken.count;
}

size_t rmf_queue_taken_count(const struct rmf_queue *queue) { return queue->taken.count; }

int64_t rmf_queue_body_bytes(const struct rmf_queue *queue) { return queue->body_bytes; }

static int64_t rmf_map_min(const struct rmf_offset_map *map) {
    int64_t offset;
    struct rmf_offset_entry entry;
    return rmf_offset_map_first(map, &offset, &entry) ? offset : RMF_QUEUE_NO_OFFSET;
}

static int64_t rmf_map_max(const struct rmf_offset_map *map) {
    int64_t offset;
    return rmf_offset_map_last(map, &offset) ? offset : RMF_QUEUE_NO_OFFSET;
}

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

bool rmf_queue_check(const struct rmf_queue *queue, const char **reason) {
    if (!rmf_offset_map_check(&queue->waiting, reason) ||
        !rmf_offset_map_check(&queue->taken, reason)) {
        return false;
    }
    uint64_t live = 0;
    for (uint32_t i = 0; i < queue->owner_count; i++) {
        live += queue->owners[i].live;
        if (queue->owners[i].live > 0 && queue->owners[i].object == NULL) {
            *reason = "a message has no owner";
            return false;
        }
    }
    if (live != rmf_queue_count(queue)) {
        *reason = "owners and messages do not add up";
        return false;
    }
    if (rmf_queue_count(queue) == 0 && queue->body_bytes != 0) {
        *reason = "an empty queue has bytes";
        return false;
    }
    return true;
}
