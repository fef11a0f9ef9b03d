/* The list of decoded messages and what it says of them as a whole. */
#include "harness.h"
#include "rmf_message_list.h"

static void append(struct rmf_message_list *list, int64_t offset, uint32_t body) {
    struct rmf_message message;
    memset(&message, 0, sizeof message);
    message.queue_offset = offset;
    message.body_len = body;
    CHECK_EQ(rmf_message_list_append(list, &message), RMF_OK);
}

static void offsets_in_sequence_have_no_gaps(void) {
    static const int64_t firsts[] = {0, -3, 700, INT64_MIN, INT64_MAX - 99};
    for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
        struct rmf_message_list list = {0};
        for (int64_t i = 0; i < 100; i++) {
            append(&list, firsts[f] + i, (uint32_t)i);
        }
        CHECK(!list.gaps);
        CHECK_EQ(list.count, 100);
        CHECK_EQ(list.first_offset, firsts[f]);
        CHECK_EQ(list.body_bytes, 4950);
        CHECK_EQ(list.messages[99].queue_offset, firsts[f] + 99);
        rmf_message_list_clear(&list);
    }
}

static void other_offsets_have_gaps(void) {
    static const int64_t pairs[][2] = {
        {5, 5}, {5, 4}, {5, 7}, {INT64_MAX, INT64_MIN}, {INT64_MIN, INT64_MAX}, {0, INT64_MIN}};
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        struct rmf_message_list list = {0};
        append(&list, pairs[p][0], 1);
        CHECK(!list.gaps);
        append(&list, pairs[p][1], UINT32_MAX);
        CHECK(list.gaps);
        CHECK_EQ(list.first_offset, pairs[p][0]);
        CHECK_EQ(list.body_bytes, (int64_t)UINT32_MAX + 1);
        rmf_message_list_clear(&list);
        CHECK(list.count == 0 && !list.gaps && list.messages == NULL);
    }
}

static bool fill_and_shrink(void) {
    struct rmf_message_list list = {0};
    struct rmf_message message;
    memset(&message, 0, sizeof message);
    bool ok = true;
    for (size_t i = 0; ok && i < 170; i++) {
        message.queue_offset = (int64_t)i;
        message.body_len = 7;
        ok = rmf_message_list_append(&list, &message) == RMF_OK;
        CHECK_EQ(list.count, ok ? i + 1 : i);
        CHECK_EQ(list.body_bytes, (int64_t)list.count * 7);
    }
    size_t count = list.count;
    if (count > 0) {
        size_t capacity = list.capacity;
        rmf_message_list_shrink(&list); /* may fail, which changes nothing */
        CHECK(list.capacity == capacity || list.capacity == count);
        CHECK_EQ(list.count, count);
        CHECK_EQ(list.messages[count - 1].queue_offset, (int64_t)count - 1);
        ok = ok && list.capacity == count;
    }
    rmf_message_list_clear(&list);
    return ok;
}

static void the_list_survives_each_failed_allocation(void) {
    each_allocation_fails(fill_and_shrink);
}

const struct test tests[] = {
    {"offsets in sequence have no gaps", offsets_in_sequence_have_no_gaps},
    {"other offsets have gaps", other_offsets_have_gaps},
    {"the list survives each failed allocation", the_list_survives_each_failed_allocation},
    {NULL, NULL},
};
