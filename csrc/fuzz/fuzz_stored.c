/* Records and batch bodies as the embedded broker reads and writes them: a record that was read can be
 * written again, a batch that was measured fills exactly what was measured, and the decoder of consumers
 * reads both. The rest of the input serves as an index file. */
#include "fuzz.h"
#include "rmf_message.h"
#include "rmf_stored.h"

static void check_written(const uint8_t *record, size_t size, size_t count) {
    struct rmf_slice buffer = {record, size};
    size_t position = 0;
    for (size_t i = 0; i < count; i++) {
        struct rmf_message message;
        struct rmf_message_fault fault;
        CHECK_EQ(rmf_message_decode(buffer, position, true, &message, &position, &fault), RMF_OK);
    }
    CHECK_EQ(position, size);
}

static void write_again(const struct rmf_stored_fields *fields) {
    size_t total;
    if (rmf_stored_measure(fields, &total, NULL) != RMF_OK) {
        return; /* version 2 allows longer topics than are written */
    }
    uint8_t *record = malloc(total);
    uint8_t *index = malloc(RMF_INDEX_ENTRY_BYTES);
    CHECK(record != NULL && index != NULL);
    rmf_stored_write_unsafe(fields, total, rmf_stored_tags_code(fields->properties), record, index);
    check_written(record, total, 1);
    struct rmf_stored_fields again;
    CHECK_EQ(rmf_stored_read(record, total, true, &again, NULL), RMF_OK);
    CHECK_EQ(again.queue_offset, fields->queue_offset);
    CHECK_EQ(again.total_size, total);
    free(record);
    free(index);
}

static void store_batch(struct rmf_slice batch) {
    static const uint8_t host[20] = {127, 0, 0, 1, 0, 0, 0x2a, 0x9f};
    struct rmf_stored_fields common;
    memset(&common, 0, sizeof common);
    common.topic = SLICE("Topic");
    common.more_properties = SLICE("CLUSTER\x01" "DefaultCluster");
    common.born_host = (struct rmf_slice){host, 8};
    common.store_host = (struct rmf_slice){host, 20};
    size_t count;
    size_t total;
    struct rmf_error error;
    if (rmf_stored_batch_measure(&common, batch, &count, &total, &error) != RMF_OK) {
        CHECK(error.position <= batch.len);
        return;
    }
    CHECK(count <= batch.len / 22);
    uint8_t *records = malloc(total == 0 ? 1 : total);
    uint8_t *index = malloc(count == 0 ? 1 : count * RMF_INDEX_ENTRY_BYTES);
    CHECK(records != NULL && index != NULL);
    rmf_stored_batch_write_unsafe(&common, batch, records, index);
    check_written(records, total, count);
    free(records);
    free(index);
}

static void select_from_index(const uint8_t *data, size_t size) {
    static const int32_t codes[] = {-5, 0, 2598919};
    size_t count = size / RMF_INDEX_ENTRY_BYTES;
    struct rmf_index_run *runs = malloc((count == 0 ? 1 : count) * sizeof *runs);
    CHECK(runs != NULL);
    struct rmf_index_limits limits = {32, 262144, 8, 65536, 1000};
    for (size_t code_count = 0; code_count <= 3; code_count += 3) {
        struct rmf_index_selection selection;
        rmf_index_select(data, count, code_count == 0 ? NULL : codes, code_count, &limits, runs,
                         &selection);
        CHECK(selection.scanned <= count);
        CHECK(selection.count <= selection.scanned);
        CHECK(selection.runs <= selection.count);
    }
    free(runs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rmf_stored_fields fields;
    struct rmf_error error;
    for (int check_crc = 0; check_crc <= 1; check_crc++) {
        if (rmf_stored_read(data, size, check_crc != 0, &fields, &error) == RMF_OK) {
            CHECK(fields.total_size <= size);
            write_again(&fields);
        }
    }
    store_batch((struct rmf_slice){data, size});
    select_from_index(data, size);
    return 0;
}
