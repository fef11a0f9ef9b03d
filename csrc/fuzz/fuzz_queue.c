/* Operations on a process queue, driven by bytes, against a plain table; one allocation in the course of
 * it may fail. Offsets are those of a small table, at a scale that the input chooses. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dice dice = {data, size};
    static const int64_t scales[] = {1, 1, 3, (INT64_MAX - 1) / (int64_t)OFFSETS};
    scale = scales[dice_byte(&dice) % 4];
    uint8_t failing = dice_byte(&dice);
    struct rmf_queue *queue = rmf_queue_new();
    struct model *model = calloc(1, sizeof *model);
    CHECK(queue != NULL && model != NULL);
    model->largest = -1;
    int owner;
    int64_t offsets[128];
    struct rmf_message messages[128];
    struct rmf_queue_item items[128];
    memset(messages, 0, sizeof messages);
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
            for (size_t i = 0; i < count; i++) {
                messages[i].queue_offset = offsets[i] * scale;
                messages[i].body_len = body;
            }
            enum rmf_status status =
                rmf_queue_put(queue, &owner, messages, count, &inserted, &dispatch);
            CHECK(status == RMF_OK || status == RMF_ERR_NO_MEMORY);
            size_t fresh = 0;
            for (size_t i = 0; status == RMF_OK && i < count; i++) {
                if (!model->waiting[offsets[i]]) {
                    model->waiting[offsets[i]] = true;
                    model->waiting_body[offsets[i]] = body;
                    model->largest = model->largest > offsets[i] ? model->largest : offsets[i];
                    fresh++;
                }
            }
            CHECK(status != RMF_OK || inserted == fresh);
            heap_fail_at(status == RMF_OK ? -1 : dice_byte(&dice));
            break;
        }
        case 3:
        case 4: {
            count = some_offsets(&dice, offsets, 127);
            bool empty = first_of(model->waiting) < 0;
            for (size_t i = 0; i < count; i++) {
                model->waiting[offsets[i]] = false;
                offsets[i] *= scale;
            }
            int64_t first = first_of(model->waiting);
            int64_t expected = first < 0 ? model->largest * scale + 1 : first * scale;
            CHECK_EQ(rmf_queue_remove(queue, offsets, count), empty ? -1 : expected);
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
        if (round % 8 == 0 || dice.size < 16) {
            compare(queue, model);
        }
    }
    compare(queue, model);
    heap_fail_at(-1);
    rmf_queue_clear(queue);
    while (rmf_queue_next_released(queue) != NULL) {
    }
    rmf_queue_free(queue);
    free(model);
    return 0;
}
