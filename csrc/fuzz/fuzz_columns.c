/* A pull body to Arrow columns. Three bytes choose the columns, one the bound of a column and the range;
 * then the messages. The same rows appended in two parts give the same columns. */
#include "../tests/arrow_walk.h"
#include "fuzz.h"
#include "rmf_columns.h"

#define MESSAGES 200u

static size_t decode(struct rmf_slice buffer, struct rmf_message *messages) {
    size_t position = 0;
    size_t count = 0;
    while (count < MESSAGES) {
        struct rmf_message_fault fault;
        enum rmf_status status =
            rmf_message_decode(buffer, position, false, &messages[count], &position, &fault);
        if (status == RMF_NEED_MORE || (status != RMF_OK && !fault.resumable)) {
            break;
        }
        count += status == RMF_OK ? 1 : 0;
    }
    return count;
}

/* Appends in parts of `step`; false when a part did not fit. */
static bool build(const uint8_t *kinds, size_t kind_count, size_t bound,
                  struct rmf_columns_source source, size_t step, uint64_t *sum, size_t *rows) {
    struct rmf_columns *columns = rmf_columns_new(kinds, kind_count, bound);
    CHECK(columns != NULL);
    bool fits = true;
    size_t count = source.count;
    const struct rmf_message *messages = source.messages;
    *rows = 0;
    for (size_t at = 0; at < count; at += step) {
        struct rmf_error error;
        size_t appended = 0;
        source.messages = messages + at;
        source.count = count - at < step ? count - at : step;
        enum rmf_status status = rmf_columns_append(columns, &source, &appended, &error);
        if (status != RMF_OK) {
            CHECK_EQ(status, RMF_ERR_LENGTH);
            fits = false;
        } else {
            CHECK(appended <= source.count);
            *rows += appended;
        }
        CHECK_EQ(rmf_columns_rows(columns), *rows);
    }
    struct rmf_table *table;
    CHECK_EQ(rmf_columns_finish(columns, &table), RMF_OK);
    CHECK_EQ(table->rows, *rows);
    *sum = walk_table(table);
    rmf_table_release(table);
    rmf_columns_free(columns);
    return fits;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct rmf_message messages[MESSAGES];
    struct dice dice = {data, size};
    uint32_t wanted = dice_byte(&dice);
    wanted |= dice_u16(&dice) << 8;
    uint8_t shape = dice_byte(&dice);
    uint8_t kinds[RMF_COLUMN_COUNT];
    size_t kind_count = 0;
    for (size_t i = 0; i < RMF_COLUMN_COUNT; i++) {
        if ((wanted >> i & 1) != 0) {
            kinds[kind_count++] = (uint8_t)i;
        }
    }
    struct rmf_columns_source source;
    memset(&source, 0, sizeof source);
    source.messages = messages;
    source.count = decode((struct rmf_slice){dice.data, dice.size}, messages);
    source.start = (shape & 1) != 0 ? 10 : INT64_MIN;
    source.end = INT64_MAX;
    source.restore_topic = (shape & 2) != 0;
    if ((shape & 4) != 0) {
        source.broker_name = SLICE("broker-a");
    }
    size_t bound = (shape & 8) != 0 ? (size_t)(shape >> 4) * 64 : RMF_COLUMN_MAX_BYTES;
    uint64_t whole;
    uint64_t parts;
    size_t whole_rows;
    size_t parts_rows;
    bool fits = build(kinds, kind_count, bound, source, MESSAGES, &whole, &whole_rows);
    (void)build(kinds, kind_count, bound, source, 3, &parts, &parts_rows);
    CHECK(parts_rows >= whole_rows);
    if (fits) {
        CHECK_EQ(parts_rows, whole_rows);
        CHECK(parts == whole);
    }
    return 0;
}
