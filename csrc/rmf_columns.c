#include "rmf_columns.h"

#include "rmf_alloc.h"
#include "rmf_columns_fill.h"

/* Room of a first table: rows, bytes of a text, entries of a map. */
#define RMF_FIRST_ROWS 256
#define RMF_FIRST_TEXT 24
#define RMF_FIRST_ENTRIES 6
/* Messages that rmf_columns_decode indexes at a time. */
#define RMF_DECODE_STEP 64
/* A step reads its messages out of order, which no hardware prefetcher follows. */
#define RMF_PREFETCH_AHEAD_BYTES 16384u

#if defined(__GNUC__)
#define RMF_PREFETCH(address) __builtin_prefetch(address)
#else
#define RMF_PREFETCH(address) ((void)(address))
#endif

static const struct {
    const char *name;
    enum rmf_vector_type type;
} RMF_COLUMNS[RMF_COLUMN_COUNT] = {
    [RMF_COLUMN_TOPIC] = {"topic", RMF_VECTOR_TEXT},
    [RMF_COLUMN_BROKER_NAME] = {"brokerName", RMF_VECTOR_TEXT},
    [RMF_COLUMN_QUEUE_ID] = {"queueId", RMF_VECTOR_INT32},
    [RMF_COLUMN_QUEUE_OFFSET] = {"queueOffset", RMF_VECTOR_INT64},
    [RMF_COLUMN_TAGS] = {"tags", RMF_VECTOR_TEXT},
    [RMF_COLUMN_KEYS] = {"keys", RMF_VECTOR_TEXT},
    [RMF_COLUMN_BODY] = {"body", RMF_VECTOR_BINARY},
    [RMF_COLUMN_MSG_ID] = {"msgId", RMF_VECTOR_TEXT},
    [RMF_COLUMN_OFFSET_MSG_ID] = {"offsetMsgId", RMF_VECTOR_TEXT},
    [RMF_COLUMN_BORN_TIMESTAMP] = {"bornTimestamp", RMF_VECTOR_TIMESTAMP_US},
    [RMF_COLUMN_STORE_TIMESTAMP] = {"storeTimestamp", RMF_VECTOR_TIMESTAMP_US},
    [RMF_COLUMN_BORN_HOST] = {"bornHost", RMF_VECTOR_TEXT},
    [RMF_COLUMN_STORE_HOST] = {"storeHost", RMF_VECTOR_TEXT},
    [RMF_COLUMN_SYS_FLAG] = {"sysFlag", RMF_VECTOR_INT32},
    [RMF_COLUMN_FLAG] = {"flag", RMF_VECTOR_INT32},
    [RMF_COLUMN_RECONSUME_TIMES] = {"reconsumeTimes", RMF_VECTOR_INT32},
    [RMF_COLUMN_STORE_SIZE] = {"storeSize", RMF_VECTOR_INT32},
    [RMF_COLUMN_BODY_CRC] = {"bodyCRC", RMF_VECTOR_INT32},
    [RMF_COLUMN_COMMIT_LOG_OFFSET] = {"commitLogOffset", RMF_VECTOR_INT64},
    [RMF_COLUMN_PREPARED_TRANSACTION_OFFSET] = {"preparedTransactionOffset", RMF_VECTOR_INT64},
    [RMF_COLUMN_PROPERTIES] = {"properties", RMF_VECTOR_MAP},
};

const char *rmf_column_name(size_t column) {
    return column < RMF_COLUMN_COUNT ? RMF_COLUMNS[column].name : "";
}

struct rmf_columns {
    struct rmf_table *table; /* NULL until something is appended */
    size_t max_bytes;
    size_t count;
    uint8_t kinds[RMF_COLUMN_COUNT];
    int8_t places[RMF_COLUMN_COUNT];         /* of a kind in the table; -1 = absent */
    struct rmf_room rooms[RMF_COLUMN_COUNT]; /* of the last table */
    struct rmf_room map_rooms[2];
    struct rmf_entries entries;
};

struct rmf_columns *rmf_columns_new(const uint8_t *kinds, size_t count, size_t max_bytes) {
    if (count > RMF_COLUMN_COUNT || max_bytes > RMF_COLUMN_MAX_BYTES) {
        return NULL;
    }
    struct rmf_columns *columns = rmf_alloc_zeroed(sizeof *columns);
    if (columns == NULL) {
        return NULL;
    }
    columns->max_bytes = max_bytes;
    columns->count = count;
    memset(columns->places, -1, sizeof columns->places);
    for (size_t i = 0; i < count; i++) {
        if (kinds[i] >= RMF_COLUMN_COUNT || columns->places[kinds[i]] >= 0) {
            rmf_free(columns);
            return NULL;
        }
        columns->kinds[i] = kinds[i];
        columns->places[kinds[i]] = (int8_t)i;
    }
    return columns;
}

void rmf_columns_free(struct rmf_columns *columns) {
    if (columns != NULL) {
        rmf_table_release(columns->table);
        rmf_entries_clear(&columns->entries);
        rmf_free(columns);
    }
}

size_t rmf_columns_rows(const struct rmf_columns *columns) {
    return columns->table == NULL ? 0 : columns->table->rows;
}

size_t rmf_columns_bytes(const struct rmf_columns *columns) {
    return columns->table == NULL ? 0 : rmf_table_bytes(columns->table);
}

/* ------------------------------------------------------------------------------------- room */

/* A table for `rows` messages to begin with. */
static enum rmf_status rmf_columns_begin(struct rmf_columns *columns, size_t rows) {
    if (columns->table != NULL) {
        return RMF_OK;
    }
    size_t least = rows < RMF_FIRST_ROWS ? rows + 1 : RMF_FIRST_ROWS;
    struct rmf_table *table = rmf_table_new(columns->count);
    if (table == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; status == RMF_OK && i < columns->count; i++) {
        uint8_t kind = columns->kinds[i];
        status = rmf_vector_init(&table->columns[i], RMF_COLUMNS[kind].name,
                                 RMF_COLUMNS[kind].type, columns->max_bytes, &columns->rooms[i],
                                 least, RMF_FIRST_TEXT);
    }
    if (status == RMF_OK && columns->places[RMF_COLUMN_PROPERTIES] >= 0) {
        least *= RMF_FIRST_ENTRIES;
        status = rmf_vector_init(&table->keys, "properties", RMF_VECTOR_TEXT, columns->max_bytes,
                                 &columns->map_rooms[0], least, RMF_FIRST_TEXT);
        if (status == RMF_OK) {
            status = rmf_vector_init(&table->values, "properties", RMF_VECTOR_TEXT,
                                     columns->max_bytes, &columns->map_rooms[1], least,
                                     RMF_FIRST_TEXT);
        }
    }
    if (status != RMF_OK) {
        rmf_table_release(table);
        return status;
    }
    columns->table = table;
    return RMF_OK;
}

enum rmf_status rmf_columns_finish(struct rmf_columns *columns, struct rmf_table **table) {
    enum rmf_status status = rmf_columns_begin(columns, 0);
    if (status != RMF_OK) {
        return status;
    }
    struct rmf_table *done = columns->table;
    for (size_t i = 0; i < done->count; i++) {
        columns->rooms[i] = rmf_vector_room(&done->columns[i], done->rows);
    }
    columns->map_rooms[0] = rmf_vector_room(&done->keys, done->entries);
    columns->map_rooms[1] = rmf_vector_room(&done->values, done->entries);
    columns->table = NULL;
    *table = done;
    return RMF_OK;
}

/* ---------------------------------------------------------------------------------- append */

enum rmf_status rmf_columns_forecast(struct rmf_columns *columns, size_t part, size_t whole) {
    struct rmf_table *table = columns->table;
    if (table == NULL || part == 0 || part >= whole) {
        return RMF_OK;
    }
    /* No column holds more than the input plus 64 bytes a message (ids and hosts as text), and an
     * entry of the map stands for three bytes of it. */
    size_t rows = whole / RMF_MESSAGE_MIN_BYTES + 1;
    size_t limit = whole + 64 * rows;
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; status == RMF_OK && i < table->count; i++) {
        struct rmf_vector *vector = &table->columns[i];
        status = rmf_vector_forecast_rows(vector, table->rows, part, whole, rows);
        if (status == RMF_OK && vector->offsets != NULL && vector->type != RMF_VECTOR_MAP) {
            status = rmf_vector_forecast(vector, part, whole, limit);
        }
    }
    if (columns->places[RMF_COLUMN_PROPERTIES] < 0) {
        return status;
    }
    struct rmf_vector *vectors[] = {&table->keys, &table->values};
    for (size_t i = 0; status == RMF_OK && i < 2; i++) {
        status = rmf_vector_forecast(vectors[i], part, whole, limit);
        if (status == RMF_OK) {
            status = rmf_vector_forecast_rows(vectors[i], table->entries, part, whole, whole / 3);
        }
    }
    return status;
}

static inline bool rmf_source_has(const struct rmf_columns_source *source, size_t i) {
    int64_t offset = source->messages[i].queue_offset;
    bool before_end = offset < source->end || source->end == INT64_MAX;
    return offset >= source->start && before_end &&
           (source->mask == NULL || source->mask[i] != 0);
}

static void rmf_columns_cut(struct rmf_columns *columns, size_t rows, size_t entries) {
    struct rmf_table *table = columns->table;
    for (size_t i = 0; i < columns->count; i++) {
        rmf_vector_cut(&table->columns[i], table->rows, rows);
    }
    if (columns->places[RMF_COLUMN_PROPERTIES] >= 0) {
        rmf_vector_cut(&table->keys, table->entries, entries);
        rmf_vector_cut(&table->values, table->entries, entries);
    }
    table->rows = rows;
    table->entries = entries;
}

enum rmf_status rmf_columns_append(struct rmf_columns *columns,
                                   const struct rmf_columns_source *source, size_t *appended,
                                   struct rmf_error *error) {
    size_t count = 0;
    size_t body_bytes = 0;
    for (size_t i = 0; i < source->count; i++) {
        if (rmf_source_has(source, i)) {
            count += 1;
            body_bytes += source->messages[i].body_len;
        }
    }
    if (count == 0) {
        *appended = 0;
        return RMF_OK;
    }
    enum rmf_status status = rmf_columns_begin(columns, count);
    if (status != RMF_OK) {
        return status;
    }
    struct rmf_table *table = columns->table;
    size_t rows = table->rows;
    size_t entries = table->entries;
    struct rmf_fill fill = {.table = table,
                            .kinds = columns->kinds,
                            .places = columns->places,
                            .entries = &columns->entries,
                            .source = source,
                            .error = error};
    struct rmf_vector *bodies = rmf_fill_vector(&fill, RMF_COLUMN_BODY);
    if (bodies != NULL) {
        status = rmf_vector_reserve(bodies, body_bytes, error);
    }
    for (size_t i = 0; status == RMF_OK && i < columns->count; i++) {
        status = rmf_vector_reserve_rows(&table->columns[i], rows + count);
    }
    for (size_t i = 0; status == RMF_OK && i < source->count; i++) {
        if (rmf_source_has(source, i)) {
            fill.round[fill.count] = &source->messages[i];
            fill.count += 1;
            if (fill.count == RMF_ROUND) {
                status = rmf_fill_round(&fill);
            }
        }
    }
    if (status == RMF_OK && fill.count != 0) {
        status = rmf_fill_round(&fill);
    }
    if (status != RMF_OK) {
        rmf_columns_cut(columns, rows, entries);
        return status;
    }
    *appended = count;
    return RMF_OK;
}

static inline void rmf_prefetch(struct rmf_slice buffer, size_t from, size_t to) {
    for (size_t at = from; at < to && at < buffer.len; at += 64) {
        RMF_PREFETCH(buffer.ptr + at);
    }
}

enum rmf_status rmf_columns_decode(struct rmf_columns *columns, struct rmf_slice buffer,
                                   bool check_crc, struct rmf_slice broker_name, size_t *position,
                                   struct rmf_error *error) {
    struct rmf_message messages[RMF_DECODE_STEP];
    struct rmf_columns_source source = {.messages = messages,
                                        .start = INT64_MIN,
                                        .end = INT64_MAX,
                                        .broker_name = broker_name};
    struct rmf_message_fault fault;
    enum rmf_status decoded = RMF_OK;
    size_t start = *position;
    bool plain = true;
    for (size_t step = 0; decoded == RMF_OK && plain; step++) {
        size_t at = *position;
        source.count = 0;
        while (source.count < RMF_DECODE_STEP) {
            size_t next = at;
            struct rmf_message *m = &messages[source.count];
            decoded = rmf_message_decode(buffer, at, check_crc, m, &next, &fault);
            plain = decoded != RMF_OK ||
                    !(rmf_message_is_compressed(m) || rmf_message_is_inner_batch(m));
            if (decoded != RMF_OK || !plain) {
                break;
            }
            source.count += 1;
            rmf_prefetch(buffer, at + RMF_PREFETCH_AHEAD_BYTES, next + RMF_PREFETCH_AHEAD_BYTES);
            at = next;
        }
        size_t appended;
        enum rmf_status status = rmf_columns_append(columns, &source, &appended, error);
        if (status == RMF_OK && step == 0 && source.count == RMF_DECODE_STEP) {
            status = rmf_columns_forecast(columns, at - start, buffer.len - start);
        }
        if (status != RMF_OK) {
            return status;
        }
        *position = at;
    }
    return decoded == RMF_NEED_MORE ? RMF_NEED_MORE : RMF_OK;
}
