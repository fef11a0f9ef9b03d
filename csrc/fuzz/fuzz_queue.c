/* Operations on a process queue, driven by bytes, against a plain table; one allocation in the course of
 * it may fail. Offsets are those of a small table, at a scale that the input chooses. A batch is freed as
 * soon as the queue gives it back. */
#include "fuzz.h"
#include "rmf_queue.h"

#define OFFSETS 512u

struct model {
    bool waiting[OFFSETS];
    bool taken[OFFSETS];
    uint8_t waiting_body[OFFSETS];
    uint8_t taken_body[OFFSETS];
    int64_t largest;
};

static int64_t scale;

static int64_t first_of(const bool *present) {
    for (size_t i = 0; i < OFFSETS; i++) {
        if (present[i]) {
            return (int64_t)i;
        }
    }
    return -1;
}

static int64_t last_of(const bool *present) {
    for (size_t i = OFFSETS; i > 0; i--) {
        if (present[i - 1]) {
            return (int64_t)i - 1;
        }
    }
    return -1;
}

static void compare(const struct rmf_queue *queue, const struct model *model) {
    const char *reason = NULL;
    if (!rmf_queue_check(queue, &reason)) {
        fprintf(stderr, "%s\n", reason);
        abort();
    }
    size_t waiting = 0;
    size_t taken = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < OFFSETS; i++) {
        waiting += model->waiting[i] ? 1 : 0;
        taken += model->taken[i] ? 1 : 0;
        bytes += model->waiting[i] ? model->waiting_body[i] : 0;
        bytes += model->taken[i] ? model->taken_body[i] : 0;
    }
    CHECK_EQ(rmf_queue_count(queue), waiting + taken);
    CHECK_EQ(rmf_queue_taken_count(queue), taken);
    CHECK_EQ(rmf_queue_body_bytes(queue), bytes);
    int64_t first = first_of(model->waiting);
    int64_t last = last_of(model->waiting);
    CHECK_EQ(rmf_queue_min_offset(queue), first < 0 ? -1 : first * scale);
    CHECK_EQ(rmf_queue_max_offset(queue), last < 0 ? -1 : last * scale);
    CHECK_EQ(rmf_queue_span(queue), (last - first) * scale);
}

static void put_back(struct model *model, size_t at) {
    if (model->taken[at]) {
        model->taken[at] = false;
        if (!model->waiting[at]) {
            model->waiting[at] = true;
            model->waiting_body[at] = model->taken_body[at];
        }
    }
}

/* Offsets start, start + step, ... inside the table. */
static size_t some_offsets(struct dice *dice, int64_t *offsets, size_t most) {
    size_t at = dice_u16(dice) % OFFSETS;
    size_t count = dice_byte(dice) % (most + 1);
    uint8_t shape = dice_byte(dice);
    size_t step = shape < 128 ? 1 : shape;
    if ((shape & 1) != 0) {
        step = OFFSETS - step % OFFSETS;
    }
    for (size_t i = 0; i < count; i++) {
        offsets[i] = (int64_t)at;
        at = (at + step) % OFFSETS;
    }
    return count;
}

/* A batch whose bodies weigh body, body + 1, ...: freed by free_batch. */
static struct rmf_message_list *new_batch(const int64_t *offsets, size_t count, uint8_t body) {
    struct rmf_message_list *list = calloc(1, sizeof *list);
    struct rmf_message message;
    CHECK(list != NULL);
    memset(&message, 0, sizeof message);
    heap_fail_at_paused(true);
    for (size_t i = 0; i < count; i++) {
        message.queue_offset = offsets[i] * scale;
        message.body_len = (uint8_t)(body + i);
        CHECK_EQ(rmf_message_list_append(list, &message), RMF_OK);
    }
    heap_fail_at_paused(false);
    return list;
}

static void free_batch(struct rmf_message_list *list) {
    rmf_message_list_clear(list);
    free(list);
}

static void free_released(struct rmf_queue *queue) {
    void *owner;
    while ((owner = rmf_queue_next_released(queue)) != NULL) {
        free_batch(owner);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dice dice = {data, size};
    static const int64_t scales[] = {1, 1, 3, (INT64_MAX - 1) / (int64_t)OFFSETS};
    scale = scales[dice_byte(&dice) % 4];
    uint8_t failing = dice_byte(&dice);
    struct rmf_queue *queue = rmf_queue_new();
    struct model *model = calloc(1, sizeof *model);
    CHECK(queue != NULL && model != NULL);
    model->largest = -1;
    int64_t offsets[128];
    struct rmf_queue_item items[128];
    heap_fail_at(failing < 64 ? failing : -1);
    for (int round = 0; dice.size > 0 && round < 120; round++) {
        uint8_t op = dice_byte(&dice);
        size_t count;
        switch (op % 8) {
        case 0:
        case 1:
        case 2: {
            size_t inserted;
            bool dispatch;
            uint8_t body = dice_byte(&dice);
            count = some_offsets(&dice, offsets, 127);
            struct rmf_message_list *list = new_batch(offsets, count, body);
            enum rmf_status status = rmf_queue_put(queue, list, list, &inserted, &dispatch);
            CHECK(status == RMF_OK || status == RMF_ERR_NO_MEMORY);
            size_t fresh = 0;
            for (size_t i = 0; status == RMF_OK && i < count; i++) {
                if (!model->waiting[offsets[i]]) {
                    model->waiting[offsets[i]] = true;
                    model->waiting_body[offsets[i]] = (uint8_t)(body + i);
                    model->largest = model->largest > offsets[i] ? model->largest : offsets[i];
                    fresh++;
                }
            }
            CHECK(status != RMF_OK || inserted == fresh);
            if (fresh == 0) {
                free_batch(list);
            }
            heap_fail_at(status == RMF_OK ? -1 : dice_byte(&dice));
            break;
        }
        case 3:
        case 4: {
            count = some_offsets(&dice, offsets, 127);
            bool empty = first_of(model->waiting) < 0;
            struct rmf_message_list *named = (op & 8) != 0 ? new_batch(offsets, count, 0) : NULL;
            for (size_t i = 0; i < count; i++) {
                model->waiting[offsets[i]] = false;
                offsets[i] *= scale;
            }
            int64_t first = first_of(model->waiting);
            int64_t expected = first < 0 ? model->largest * scale + 1 : first * scale;
            int64_t found = named == NULL
                                ? rmf_queue_remove(queue, offsets, count)
                                : rmf_queue_remove_messages(queue, named, 0, count);
            CHECK_EQ(found, empty ? -1 : expected);
            if (named != NULL) {
                free_batch(named);
            }
            break;
        }
        case 5: {
            int64_t taken = rmf_queue_take(queue, dice_byte(&dice) % 128, items);
            CHECK(taken >= 0 || taken == RMF_ERR_NO_MEMORY);
            for (int64_t i = 0; i < taken; i++) {
                int64_t at = first_of(model->waiting);
                CHECK_EQ(items[i].offset, at * scale);
                model->waiting[at] = false;
                model->taken[at] = true;
                model->taken_body[at] = model->waiting_body[at];
            }
            break;
        }
        case 6: {
            int64_t last = last_of(model->taken);
            CHECK_EQ(rmf_queue_commit(queue), last < 0 ? -1 : last * scale + 1);
            memset(model->taken, 0, sizeof model->taken);
            break;
        }
        default: {
            heap_fail_at(-1);
            if ((op & 8) != 0) {
                CHECK_EQ(rmf_queue_rollback(queue), RMF_OK);
                for (size_t i = 0; i < OFFSETS; i++) {
                    put_back(model, i);
                }
            } else {
                count = some_offsets(&dice, offsets, 127);
                for (size_t i = 0; i < count; i++) {
                    put_back(model, (size_t)offsets[i]);
                    offsets[i] *= scale;
                }
                CHECK_EQ(rmf_queue_make_consume_again(queue, offsets, count), RMF_OK);
            }
            break;
        }
        }
        free_released(queue);
        if (round % 8 == 0 || dice.size < 16) {
            compare(queue, model);
        }
    }
    compare(queue, model);
    heap_fail_at(-1);
    rmf_queue_clear(queue);
    free_released(queue);
    rmf_queue_free(queue);
    free(model);
    return 0;
}
