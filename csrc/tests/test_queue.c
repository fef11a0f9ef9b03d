/* The process queue: recorded vectors, owners, failing allocations. */
#include "harness.h"
#include "rmf_queue.h"

#define MANY 400u

/* The lists of a test: a queue reads them as long as one of their messages is in it. */
static struct rmf_message_list lists[64];
static size_t used_lists;

static const struct rmf_message_list *fresh_list(const int64_t *offsets, size_t count,
                                                 uint32_t body) {
    CHECK(used_lists < sizeof lists / sizeof lists[0] && count <= MANY);
    struct rmf_message_list *list = &lists[used_lists++];
    struct rmf_message message;
    memset(&message, 0, sizeof message);
    heap_fail_at_paused(true);
    for (size_t i = 0; i < count; i++) {
        message.queue_offset = offsets[i];
        message.body_len = body;
        CHECK_EQ(rmf_message_list_append(list, &message), RMF_OK);
    }
    heap_fail_at_paused(false);
    return list;
}

static const struct rmf_message_list *run(int64_t first, size_t count, uint32_t body) {
    int64_t offsets[MANY];
    for (size_t i = 0; i < count && i < MANY; i++) {
        offsets[i] = first + (int64_t)i;
    }
    return fresh_list(offsets, count, body);
}

static bool put(struct rmf_queue *queue, void *owner, int64_t first, size_t count, uint32_t body,
                size_t *inserted) {
    bool dispatch = false;
    CHECK_EQ(rmf_queue_put(queue, owner, run(first, count, body), inserted, &dispatch), RMF_OK);
    return dispatch;
}

static size_t put_offsets(struct rmf_queue *queue, void *owner, const int64_t *offsets,
                          size_t count, uint32_t body) {
    bool dispatch;
    size_t inserted;
    CHECK_EQ(rmf_queue_put(queue, owner, fresh_list(offsets, count, body), &inserted, &dispatch),
             RMF_OK);
    return inserted;
}

static void check_sound(const struct rmf_queue *queue) {
    const char *reason = NULL;
    if (!rmf_queue_check(queue, &reason)) {
        fprintf(stderr, "%s\n", reason);
        abort();
    }
}

static void drain(struct rmf_queue *queue) {
    rmf_queue_clear(queue);
    while (rmf_queue_next_released(queue) != NULL) {
    }
    CHECK_EQ(rmf_queue_count(queue), 0);
    CHECK_EQ(rmf_queue_body_bytes(queue), 0);
    rmf_queue_free(queue);
    while (used_lists > 0) {
        rmf_message_list_clear(&lists[--used_lists]);
    }
}

static void removals_give_the_recorded_minimum_offsets(void) {
    struct rmf_queue *queue = rmf_queue_new();
    CHECK(queue != NULL);
    int owner;
    size_t inserted;
    CHECK(put(queue, &owner, 10, 3, 5, &inserted));
    CHECK_EQ(inserted, 3);
    CHECK_EQ(rmf_queue_body_bytes(queue), 15);
    CHECK_EQ(rmf_queue_span(queue), 2);
    CHECK(!put(queue, &owner, 13, 1, 5, &inserted));
    int64_t eleven = 11;
    int64_t ten = 10;
    int64_t rest[] = {12, 13};
    CHECK_EQ(rmf_queue_remove(queue, &eleven, 1), 10);
    CHECK_EQ(rmf_queue_remove(queue, &ten, 1), 12);
    CHECK_EQ(rmf_queue_remove(queue, rest, 2), 14);
    CHECK_EQ(rmf_queue_remove(queue, rest, 2), RMF_QUEUE_NO_OFFSET);
    drain(queue);
}

static void takes_and_commits_give_the_recorded_offsets(void) {
    struct rmf_queue *queue = rmf_queue_new();
    CHECK(queue != NULL);
    int owner;
    size_t inserted;
    struct rmf_queue_item items[4];
    int64_t seven = 7;
    CHECK(put(queue, &owner, 5, 3, 1, &inserted));
    CHECK_EQ(rmf_queue_take(queue, 2, items), 2);
    CHECK_EQ(items[0].offset, 5);
    CHECK(items[1].owner == &owner && items[1].index == 1);
    CHECK_EQ(rmf_queue_span(queue), 0);
    CHECK_EQ(rmf_queue_count(queue), 3);
    CHECK_EQ(rmf_queue_commit(queue), 7);
    CHECK_EQ(rmf_queue_count(queue), 1);
    CHECK_EQ(rmf_queue_take(queue, 2, items), 1);
    CHECK_EQ(rmf_queue_make_consume_again(queue, &seven, 1), RMF_OK);
    CHECK_EQ(rmf_queue_min_offset(queue), 7);
    CHECK_EQ(rmf_queue_taken_count(queue), 0);
    CHECK_EQ(rmf_queue_take(queue, 4, items), 1);
    CHECK_EQ(rmf_queue_rollback(queue), RMF_OK);
    CHECK_EQ(rmf_queue_min_offset(queue), 7);
    CHECK_EQ(rmf_queue_take(queue, 1, items), 1);
    CHECK_EQ(rmf_queue_commit(queue), 8);
    CHECK_EQ(rmf_queue_take(queue, 1, items), 0);
    CHECK(put(queue, &owner, 9, 1, 1, &inserted));
    CHECK_EQ(rmf_queue_commit(queue), RMF_QUEUE_NO_OFFSET);
    check_sound(queue);
    drain(queue);
}

static void an_owner_is_released_with_its_last_message(void) {
    struct rmf_queue *queue = rmf_queue_new();
    CHECK(queue != NULL);
    int first;
    int second;
    size_t inserted;
    struct rmf_queue_item item;
    CHECK(put(queue, &first, 1, 3, 9, &inserted));
    CHECK(!put(queue, &second, 3, 2, 9, &inserted));
    CHECK_EQ(inserted, 1);
    CHECK(!put(queue, &second, 1, 4, 9, &inserted));
    CHECK_EQ(inserted, 0);
    CHECK(rmf_queue_next_released(queue) == NULL);
    int64_t offsets[] = {1, 2, 3};
    CHECK_EQ(rmf_queue_remove(queue, offsets, 2), 3);
    CHECK(rmf_queue_next_released(queue) == NULL);
    CHECK_EQ(rmf_queue_remove(queue, offsets, 3), 4);
    CHECK(rmf_queue_next_released(queue) == &first);
    CHECK(rmf_queue_next_released(queue) == NULL);
    CHECK(rmf_queue_first(queue, &item));
    CHECK(item.owner == &second && item.offset == 4);
    CHECK_EQ(rmf_queue_take(queue, 1, &item), 1);
    CHECK_EQ(rmf_queue_commit(queue), 5);
    CHECK(rmf_queue_next_released(queue) == &second);
    CHECK(!rmf_queue_first(queue, &item));
    check_sound(queue);
    drain(queue);
}

static void an_offset_put_again_while_taken_counts_once_they_meet(void) {
    for (int meet = 0; meet < 3; meet++) {
        struct rmf_queue *queue = rmf_queue_new();
        CHECK(queue != NULL);
        int old;
        int fresh;
        size_t inserted;
        struct rmf_queue_item item;
        int64_t five = 5;
        CHECK(put(queue, &old, 5, 1, 10, &inserted));
        CHECK_EQ(rmf_queue_take(queue, 1, &item), 1);
        CHECK(!put(queue, &fresh, 5, 1, 3, &inserted));
        CHECK_EQ(rmf_queue_count(queue), 2);
        if (meet == 0) {
            CHECK_EQ(rmf_queue_take(queue, 1, &item), 1);
            CHECK(item.owner == &fresh);
        } else if (meet == 1) {
            CHECK_EQ(rmf_queue_rollback(queue), RMF_OK);
        } else {
            CHECK_EQ(rmf_queue_make_consume_again(queue, &five, 1), RMF_OK);
        }
        CHECK_EQ(rmf_queue_count(queue), 1);
        CHECK_EQ(rmf_queue_body_bytes(queue), 3);
        check_sound(queue);
        CHECK(rmf_queue_next_released(queue) == &old);
        drain(queue);
    }
}

/* Every operation; after a failed one the queue is sound and holds what it held. */
static bool use_everything(void) {
    struct rmf_queue *queue = rmf_queue_new();
    if (queue == NULL) {
        return false;
    }
    bool ok = true;
    bool dispatch;
    size_t inserted;
    int owners[40];
    struct rmf_queue_item items[100];
    for (int i = 0; ok && i < 40; i++) {
        int64_t first = (i * 7 % 40) * 50;
        size_t count = rmf_queue_count(queue);
        int64_t bytes = rmf_queue_body_bytes(queue);
        enum rmf_status status = rmf_queue_put(queue, &owners[i], run(first, 70, 3), &inserted,
                                               &dispatch);
        ok = status == RMF_OK;
        CHECK(ok || (rmf_queue_count(queue) == count && rmf_queue_body_bytes(queue) == bytes));
        check_sound(queue);
        if (ok && i % 5 == 4) {
            count = rmf_queue_count(queue);
            int64_t taken = rmf_queue_take(queue, 100, items);
            ok = taken == 100;
            CHECK(taken > 0 || taken == RMF_ERR_NO_MEMORY);
            CHECK_EQ(rmf_queue_count(queue), count);
            check_sound(queue);
            if (ok && i % 2 == 0) {
                ok = rmf_queue_rollback(queue) == RMF_OK;
                CHECK_EQ(rmf_queue_count(queue), count);
                check_sound(queue);
            } else if (ok) {
                CHECK(rmf_queue_commit(queue) > 0);
            }
        }
        if (ok && i % 7 == 6) {
            (void)rmf_queue_remove_messages(queue, run(i * 13, 60, 0), 0, 60);
            check_sound(queue);
        }
    }
    drain(queue);
    return ok;
}

static void the_queue_survives_each_failed_allocation(void) {
    each_allocation_fails(use_everything);
}

static void the_largest_offset_is_the_last_word_in_any_order(void) {
    struct rmf_queue *queue = rmf_queue_new();
    CHECK(queue != NULL);
    int owner;
    size_t inserted;
    CHECK(put(queue, &owner, 100, 2, 1, &inserted));
    CHECK(!put(queue, &owner, 50, 2, 1, &inserted));
    int64_t offsets[] = {101, 50, 100, 51};
    CHECK_EQ(rmf_queue_remove(queue, offsets, 1), 50);
    CHECK_EQ(rmf_queue_remove(queue, offsets + 1, 2), 51);
    CHECK_EQ(rmf_queue_remove(queue, offsets + 3, 1), 102);
    drain(queue);
}

static void offsets_at_the_end_of_the_number_range_do_not_overflow(void) {
    struct rmf_queue *queue = rmf_queue_new();
    CHECK(queue != NULL);
    int owner;
    size_t inserted;
    struct rmf_queue_item items[3];
    (void)put(queue, &owner, INT64_MAX, 1, 1, &inserted);
    (void)put(queue, &owner, -5, 1, 1, &inserted);
    (void)put(queue, &owner, INT64_MIN, 1, 1, &inserted);
    (void)rmf_queue_span(queue);
    check_sound(queue);
    CHECK_EQ(rmf_queue_take(queue, 3, items), 3);
    (void)rmf_queue_commit(queue);
    (void)put(queue, &owner, INT64_MAX, 1, 1, &inserted);
    int64_t last = INT64_MAX;
    (void)rmf_queue_remove(queue, &last, 1);
    check_sound(queue);
    drain(queue);
}

/* Batches in the gaps of another one, as a filtered pull leaves them, and over its ends. */
static void batches_that_interleave_keep_their_own_messages(void) {
    struct rmf_queue *queue = rmf_queue_new();
    CHECK(queue != NULL);
    int64_t even[100];
    int64_t odd[100];
    for (int i = 0; i < 100; i++) {
        even[i] = 2 * i;
        odd[i] = 2 * i + 1;
    }
    int owners[3];
    CHECK_EQ(put_offsets(queue, &owners[0], even, 100, 10), 100);
    CHECK_EQ(put_offsets(queue, &owners[1], odd, 100, 3), 100);
    size_t inserted;
    CHECK(!put(queue, &owners[2], 150, 100, 1, &inserted));
    CHECK_EQ(inserted, 50);
    CHECK_EQ(rmf_queue_body_bytes(queue), 1000 + 300 + 50);
    check_sound(queue);
    /* A part of each: 30 even ones, 30 odd ones, none of the last. */
    CHECK_EQ(rmf_queue_remove_messages(queue, run(20, 60, 99), 0, 60), 0);
    CHECK_EQ(rmf_queue_body_bytes(queue), 1000 + 300 + 50 - 30 * 13);
    check_sound(queue);
    struct rmf_queue_item items[30];
    CHECK_EQ(rmf_queue_take(queue, 30, items), 30);
    for (int i = 0; i < 30; i++) {
        int64_t offset = i < 20 ? i : i + 60;
        CHECK_EQ(items[i].offset, offset);
        CHECK(items[i].owner == &owners[offset % 2]);
        CHECK_EQ(items[i].index, offset / 2);
    }
    check_sound(queue);
    CHECK_EQ(rmf_queue_rollback(queue), RMF_OK);
    check_sound(queue);
    CHECK_EQ(rmf_queue_remove(queue, even, 100), 1);
    CHECK(rmf_queue_next_released(queue) == &owners[0]);
    CHECK_EQ(rmf_queue_remove(queue, odd, 100), 200);
    CHECK(rmf_queue_next_released(queue) == &owners[1]);
    CHECK_EQ(rmf_queue_body_bytes(queue), 50);
    drain(queue);
}

/* The size is exact while a batch leaves in parts, whatever its messages weigh. */
static void the_bytes_of_a_part_are_those_of_its_messages(void) {
    for (int gaps = 0; gaps < 2; gaps++) {
        struct rmf_queue *queue = rmf_queue_new();
        CHECK(queue != NULL);
        struct rmf_message_list *list = &lists[used_lists++];
        struct rmf_message message;
        memset(&message, 0, sizeof message);
        int64_t left = 0;
        for (uint32_t i = 0; i < 200; i++) {
            message.queue_offset = (int64_t)i * (gaps + 1);
            message.body_len = i * i;
            left += i * i;
            CHECK_EQ(rmf_message_list_append(list, &message), RMF_OK);
        }
        CHECK_EQ(list->gaps, gaps == 1);
        size_t inserted;
        bool dispatch;
        int owner;
        CHECK_EQ(rmf_queue_put(queue, &owner, list, &inserted, &dispatch), RMF_OK);
        for (size_t start = 0; start < 200; start += 25) {
            CHECK_EQ(rmf_queue_body_bytes(queue), left);
            check_sound(queue);
            for (size_t i = start; i < start + 25; i++) {
                left -= (int64_t)(i * i);
            }
            (void)rmf_queue_remove_messages(queue, list, start, start + 25);
        }
        CHECK_EQ(rmf_queue_body_bytes(queue), 0);
        CHECK(rmf_queue_next_released(queue) == &owner);
        drain(queue);
    }
}

/* What is not in order, or twice, in one batch: the first of equal offsets counts. */
static void a_batch_in_any_order_is_held(void) {
    struct rmf_queue *queue = rmf_queue_new();
    CHECK(queue != NULL);
    int64_t offsets[] = {9, 8, 9, INT64_MAX, 7, INT64_MAX - 1, INT64_MAX, 7, 10};
    int owner;
    CHECK_EQ(put_offsets(queue, &owner, offsets, 9, 2), 6);
    CHECK_EQ(rmf_queue_body_bytes(queue), 12);
    check_sound(queue);
    struct rmf_queue_item items[6];
    static const uint32_t indexes[] = {4, 1, 0, 8, 5, 3};
    CHECK_EQ(rmf_queue_take(queue, 6, items), 6);
    for (int i = 0; i < 6; i++) {
        CHECK_EQ(items[i].index, indexes[i]);
    }
    CHECK_EQ(rmf_queue_make_consume_again(queue, offsets, 9), RMF_OK);
    CHECK_EQ(rmf_queue_taken_count(queue), 0);
    CHECK_EQ(rmf_queue_remove(queue, offsets, 9), INT64_MAX);
    CHECK(rmf_queue_next_released(queue) == &owner);
    drain(queue);
}

const struct test tests[] = {
    {"removals give the recorded minimum offsets", removals_give_the_recorded_minimum_offsets},
    {"takes and commits give the recorded offsets", takes_and_commits_give_the_recorded_offsets},
    {"an owner is released with its last message", an_owner_is_released_with_its_last_message},
    {"an offset put again while taken counts once they meet",
     an_offset_put_again_while_taken_counts_once_they_meet},
    {"the queue survives each failed allocation", the_queue_survives_each_failed_allocation},
    {"the largest offset is the last word in any order",
     the_largest_offset_is_the_last_word_in_any_order},
    {"offsets at the end of the number range do not overflow",
     offsets_at_the_end_of_the_number_range_do_not_overflow},
    {"batches that interleave keep their own messages",
     batches_that_interleave_keep_their_own_messages},
    {"the bytes of a part are those of its messages",
     the_bytes_of_a_part_are_those_of_its_messages},
    {"a batch in any order is held", a_batch_in_any_order_is_held},
    {NULL, NULL},
};
