/* Records as a broker makes them, and the selection of index entries for a pull. */
#include "harness.h"
#include "rmf_cursor.h"
#include "rmf_message.h"
#include "rmf_stored.h"
#include "rmf_tags.h"

static const uint8_t v4[8] = {127, 0, 0, 1, 0, 0, 0x2a, 0x9f};
static const uint8_t v6[20] = {0x20, 1, 0xd, 0xb8, [15] = 1, [18] = 1, [19] = 2};

static struct rmf_stored_fields some_fields(void) {
    struct rmf_stored_fields fields;
    memset(&fields, 0, sizeof fields);
    fields.topic = SLICE("TopicTest");
    fields.body = SLICE("hello-wire");
    fields.properties = SLICE("TAGS\x01TagA");
    fields.more_properties = SLICE("CLUSTER\x01" "c");
    fields.born_host = (struct rmf_slice){v6, sizeof v6};
    fields.store_host = (struct rmf_slice){v4, sizeof v4};
    fields.queue_offset = 77;
    fields.position = 123456789012;
    fields.born_timestamp_ms = 1700000000000;
    fields.store_timestamp_ms = 1700000000010;
    fields.prepared_transaction_offset = -1;
    fields.queue_id = 3;
    fields.flag = -9;
    fields.sys_flag = 0x20 | 0x4; /* the host bits are corrected */
    fields.reconsume_times = 2;
    return fields;
}

static void a_written_record_is_read_by_consumer_and_broker(void) {
    struct rmf_stored_fields fields = some_fields();
    size_t total;
    CHECK_EQ(rmf_stored_measure(&fields, &total, NULL), RMF_OK);
    uint8_t *record = malloc(total);
    uint8_t *index = malloc(RMF_INDEX_ENTRY_BYTES);
    CHECK(record != NULL && index != NULL);
    rmf_stored_write_unsafe(&fields, total, 2598919, record, index);

    struct rmf_message m;
    struct rmf_message_fault fault;
    size_t next;
    CHECK_EQ(rmf_message_decode((struct rmf_slice){record, total}, 0, true, &m, &next, &fault),
             RMF_OK);
    CHECK_EQ(next, total);
    CHECK_EQ(m.queue_offset, 77);
    CHECK_EQ(rmf_message_commit_log_offset(&m), 123456789012);
    CHECK_EQ(rmf_message_queue_id(&m), 3);
    CHECK_EQ(rmf_message_flag(&m), -9);
    CHECK_EQ(rmf_message_sys_flag(&m), 0x10 | 0x4);
    CHECK_EQ(rmf_message_reconsume_times(&m), 2);
    CHECK_EQ(rmf_message_prepared_transaction_offset(&m), -1);
    CHECK_EQ(rmf_message_tag_code(&m), 2598919);
    struct rmf_slice value;
    CHECK(rmf_message_find_property(&m, "CLUSTER", 7, &value));
    CHECK_BYTES(value.ptr, value.len, "c");

    struct rmf_stored_fields again;
    CHECK_EQ(rmf_stored_read(record, total, true, &again, NULL), RMF_OK);
    CHECK_EQ(again.position, fields.position);
    CHECK_EQ(again.total_size, total);
    CHECK_EQ(rmf_load_be64_unsafe(index), 123456789012);
    CHECK_EQ(rmf_load_be32_unsafe(index + 8), total);
    CHECK_EQ(rmf_load_be64_unsafe(index + 12), 2598919);

    for (size_t size = 0; size < total; size++) {
        uint8_t *shorter = exact_copy(record, size);
        CHECK_EQ(rmf_stored_read(shorter, size, true, &again, NULL), RMF_NEED_MORE);
        free(shorter);
    }
    struct rmf_error error;
    size_t body_at = (size_t)(again.body.ptr - record);
    record[body_at] ^= 1;
    CHECK_EQ(rmf_stored_read(record, total, true, &again, &error), RMF_ERR_CRC);
    record[body_at] ^= 1;
    record[4] = 0;
    CHECK_EQ(rmf_stored_read(record, total, false, &again, &error), RMF_ERR_MAGIC);
    free(record);
    free(index);
}

static void what_cannot_be_stored_is_refused(void) {
    struct rmf_stored_fields fields = some_fields();
    struct rmf_error error;
    size_t total;
    uint8_t *text = malloc(40000);
    CHECK(text != NULL);
    memset(text, 'x', 40000);
    fields.topic = (struct rmf_slice){text, 0};
    CHECK_EQ(rmf_stored_measure(&fields, &total, &error), RMF_ERR_LENGTH);
    fields.topic.len = 128;
    CHECK_EQ(rmf_stored_measure(&fields, &total, &error), RMF_ERR_LENGTH);
    fields.topic.len = 127;
    CHECK_EQ(rmf_stored_measure(&fields, &total, &error), RMF_OK);
    fields.properties = (struct rmf_slice){text, 32767 - fields.more_properties.len - 1};
    CHECK_EQ(rmf_stored_measure(&fields, &total, &error), RMF_OK);
    fields.properties.len++;
    CHECK_EQ(rmf_stored_measure(&fields, &total, &error), RMF_ERR_LENGTH);
    fields = some_fields();
    fields.born_host.len = 4;
    CHECK_EQ(rmf_stored_measure(&fields, &total, &error), RMF_ERR_LENGTH);
    fields = some_fields();
    fields.body.len = SIZE_MAX;
    CHECK_EQ(rmf_stored_measure(&fields, &total, &error), RMF_ERR_LENGTH);
    free(text);
}

static void a_batch_becomes_one_record_per_element(void) {
    static const char batch_text[] =
        "\x00\x00\x00\x1b\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\x02hi\0\x03"
        "A\x01" "b\x00\x00\x00\x16\0\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0";
    struct rmf_stored_fields common = some_fields();
    uint8_t *copy = exact_copy(batch_text, 49);
    size_t count;
    size_t total;
    CHECK_EQ(rmf_stored_batch_measure(&common, (struct rmf_slice){copy, 49}, &count, &total, NULL),
             RMF_OK);
    CHECK_EQ(count, 2);
    uint8_t *records = malloc(total);
    uint8_t *index = malloc(2 * RMF_INDEX_ENTRY_BYTES);
    CHECK(records != NULL && index != NULL);
    rmf_stored_batch_write_unsafe(&common, (struct rmf_slice){copy, 49}, records, index);
    size_t position = 0;
    for (int i = 0; i < 2; i++) {
        struct rmf_message m;
        struct rmf_message_fault fault;
        size_t start = position;
        CHECK_EQ(rmf_message_decode((struct rmf_slice){records, total}, position, true, &m,
                                    &position, &fault),
                 RMF_OK);
        CHECK_EQ(m.queue_offset, 77 + i);
        CHECK_EQ(rmf_message_commit_log_offset(&m), 123456789012 + (int64_t)start);
        CHECK_EQ(rmf_message_flag(&m), i == 0 ? 7 : -1);
        struct rmf_slice value;
        CHECK(rmf_message_find_property(&m, "CLUSTER", 7, &value));
    }
    CHECK_EQ(position, total);
    free(records);
    free(index);
    for (size_t size = 1; size < 49; size++) {
        uint8_t *shorter = exact_copy(batch_text, size);
        enum rmf_status status = rmf_stored_batch_measure(
            &common, (struct rmf_slice){shorter, size}, &count, &total, NULL);
        CHECK(size == 27 ? status == RMF_OK : status < 0);
        free(shorter);
    }
    free(copy);
}

static void put_entry(uint8_t *at, int64_t position, uint32_t size, int64_t code) {
    rmf_store_be64_unsafe(at, (uint64_t)position);
    rmf_store_be32_unsafe(at + 8, size);
    rmf_store_be64_unsafe(at + 12, (uint64_t)code);
}

static void a_pull_stops_at_its_limits_and_skips_other_tags(void) {
    uint8_t *entries = malloc(10 * RMF_INDEX_ENTRY_BYTES);
    CHECK(entries != NULL);
    for (int i = 0; i < 10; i++) {
        put_entry(entries + i * 20, 1000 + i * 100 + (i >= 5 ? 50 : 0), 100, i % 2);
    }
    struct rmf_index_run runs[10];
    struct rmf_index_selection s;
    struct rmf_index_limits limits = {32, 1 << 20, 8, 1 << 16, 0};
    rmf_index_select(entries, 10, NULL, 0, &limits, runs, &s);
    CHECK_EQ(s.scanned, 10);
    CHECK_EQ(s.count, 10);
    CHECK_EQ(s.bytes, 1000);
    CHECK_EQ(s.runs, 2);
    CHECK_EQ(runs[0].position, 1000);
    CHECK_EQ(runs[0].size, 500);
    CHECK_EQ(runs[1].position, 1550);
    limits.max_count = 3;
    rmf_index_select(entries, 10, NULL, 0, &limits, runs, &s);
    CHECK_EQ(s.count, 3);
    CHECK_EQ(s.scanned, 3);
    limits.max_count = 0; /* the first message is always given */
    limits.max_bytes = 0;
    rmf_index_select(entries, 10, NULL, 0, &limits, runs, &s);
    CHECK_EQ(s.count, 1);
    limits = (struct rmf_index_limits){32, 250, 8, 1 << 16, 0};
    rmf_index_select(entries, 10, NULL, 0, &limits, runs, &s);
    CHECK_EQ(s.count, 2);
    limits = (struct rmf_index_limits){32, 1 << 20, 4, 1 << 16, INT64_MAX};
    rmf_index_select(entries, 10, NULL, 0, &limits, runs, &s);
    CHECK_EQ(s.count, 4);
    limits = (struct rmf_index_limits){32, 1 << 20, 8, 1 << 16, 0};
    static const int32_t one = 1;
    rmf_index_select(entries, 10, &one, 1, &limits, runs, &s);
    CHECK_EQ(s.count, 5);
    CHECK_EQ(s.scanned, 10);
    CHECK_EQ(s.runs, 5);
    static const int32_t none = 9;
    rmf_index_select(entries, 10, &none, 1, &limits, runs, &s);
    CHECK_EQ(s.count, 0);
    CHECK_EQ(s.scanned, 10);
    rmf_index_select(entries, 0, NULL, 0, &limits, runs, &s);
    CHECK_EQ(s.scanned, 0);
    free(entries);
}

static void entries_at_the_end_of_the_number_range_do_not_overflow(void) {
    uint8_t *entries = malloc(2 * RMF_INDEX_ENTRY_BYTES);
    CHECK(entries != NULL);
    put_entry(entries, INT64_MAX, UINT32_MAX, 0);
    put_entry(entries + 20, INT64_MAX, UINT32_MAX, 0);
    struct rmf_index_run runs[2];
    struct rmf_index_selection s;
    struct rmf_index_limits limits = {32, SIZE_MAX, 8, SIZE_MAX, 0};
    rmf_index_select(entries, 2, NULL, 0, &limits, runs, &s);
    CHECK(s.runs >= 1);
    free(entries);
}

static void the_tag_code_is_that_of_the_last_tag(void) {
    CHECK_EQ(rmf_stored_tags_code(SLICE("")), 0);
    CHECK_EQ(rmf_stored_tags_code(SLICE("TAGS\x01TagA")), 2598919);
    CHECK_EQ(rmf_stored_tags_code(SLICE("TAGS\x01TagA\x02TAGS\x01TagB\x02")), 2598920);
    CHECK_EQ(rmf_stored_tags_code(SLICE("TAGS\x01\x02XTAGS\x01TagB")), 0);
    CHECK_EQ(rmf_stored_tags_code(SLICE("TAGS\x01\xe4\xb8\xad\xe6\x96\x87")), 646394);
}

const struct test tests[] = {
    {"a written record is read by consumer and broker",
     a_written_record_is_read_by_consumer_and_broker},
    {"what cannot be stored is refused", what_cannot_be_stored_is_refused},
    {"a batch becomes one record per element", a_batch_becomes_one_record_per_element},
    {"a pull stops at its limits and skips other tags",
     a_pull_stops_at_its_limits_and_skips_other_tags},
    {"entries at the end of the number range do not overflow",
     entries_at_the_end_of_the_number_range_do_not_overflow},
    {"the tag code is that of the last tag", the_tag_code_is_that_of_the_last_tag},
    {NULL, NULL},
};
