#include "rmf_columns.h"

#include "rmf_alloc.h"
#include "rmf_entries.h"
#include "rmf_host_text.h"
#include "rmf_utf8.h"

/* Messages per round: what a round reads stays in the first cache while column after column is filled. */
#define RMF_ROUND 16
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

/* How much a vector of the last table held: the next one starts with that room. */
struct rmf_room {
    size_t bytes;
    size_t rows;
};

struct rmf_columns {
    struct rmf_table *table; /* NULL until something is appended */
    size_t max_bytes;
    size_t count;
    uint8_t kinds[RMF_COLUMN_COUNT];
    int8_t places[RMF_COLUMN_COUNT]; /* of a kind in the table; -1 = absent */
    struct rmf_room rooms[RMF_COLUMN_COUNT];
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

static size_t rmf_vector_width(const struct rmf_vector *vector) {
    switch (vector->type) {
    case RMF_VECTOR_INT32:
        return 4;
    case RMF_VECTOR_INT64:
    case RMF_VECTOR_TIMESTAMP_US:
        return 8;
    default:
        return 0;
    }
}

static enum rmf_status rmf_vector_grow_rows(struct rmf_vector *vector, size_t rows) {
    size_t capacity = vector->row_capacity + vector->row_capacity / 2;
    if (capacity < rows) {
        capacity = rows;
    }
    size_t width = rmf_vector_width(vector);
    if (width != 0) {
        uint8_t *data = rmf_realloc_array(vector->data, capacity, width);
        if (data == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        vector->data = data;
    } else {
        int32_t *offsets = rmf_realloc_array(vector->offsets, capacity + 1, sizeof *offsets);
        if (offsets == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        vector->offsets = offsets;
        offsets[0] = 0;
    }
    if (vector->validity != NULL) {
        size_t had = vector->row_capacity / 8 + 1;
        uint8_t *validity = rmf_realloc_array(vector->validity, capacity / 8 + 1, 1);
        if (validity == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        memset(validity + had, 0xFF, capacity / 8 + 1 - had);
        vector->validity = validity;
    }
    vector->row_capacity = capacity;
    return RMF_OK;
}

static inline enum rmf_status rmf_vector_reserve_rows(struct rmf_vector *vector, size_t rows) {
    return RMF_LIKELY(rows <= vector->row_capacity) ? RMF_OK : rmf_vector_grow_rows(vector, rows);
}

static enum rmf_status rmf_vector_grow_bytes(struct rmf_vector *vector, size_t wanted) {
    size_t capacity = vector->capacity + vector->capacity / 2;
    if (capacity < wanted) {
        capacity = wanted;
    }
    uint8_t *data = rmf_realloc_array(vector->data, capacity, 1);
    if (data == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    vector->data = data;
    vector->capacity = capacity;
    return RMF_OK;
}

/* Room for `extra` more bytes of text, within the bound of the column. */
static inline enum rmf_status rmf_vector_reserve(struct rmf_vector *vector, size_t extra,
                                                 size_t max_bytes, struct rmf_error *error) {
    if (RMF_UNLIKELY(extra > max_bytes - vector->size)) {
        return rmf_fail(error, RMF_ERR_LENGTH, vector->name, 0, (int64_t)(vector->size + extra),
                        (int64_t)max_bytes);
    }
    return RMF_LIKELY(extra <= vector->capacity - vector->size)
               ? RMF_OK
               : rmf_vector_grow_bytes(vector, vector->size + extra);
}

static enum rmf_status rmf_vector_set_null(struct rmf_vector *vector, size_t row) {
    if (vector->validity == NULL) {
        size_t bytes = vector->row_capacity / 8 + 1;
        vector->validity = rmf_alloc(bytes);
        if (vector->validity == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        memset(vector->validity, 0xFF, bytes);
    }
    vector->validity[row / 8] &= (uint8_t)~(1u << row % 8);
    vector->nulls += 1;
    return RMF_OK;
}

/* `least` rows at least, or as much as the vector of the last table held. */
static enum rmf_status rmf_vector_init(struct rmf_vector *vector, const char *name,
                                       enum rmf_vector_type type, const struct rmf_room *room,
                                       size_t least) {
    vector->name = name;
    vector->type = type;
    size_t rows = room->rows > least ? room->rows : least;
    enum rmf_status status = rmf_vector_grow_rows(vector, rows);
    if (status == RMF_OK && (type == RMF_VECTOR_TEXT || type == RMF_VECTOR_BINARY)) {
        size_t bytes = least * RMF_FIRST_TEXT;
        status = rmf_vector_grow_bytes(vector, room->bytes > bytes ? room->bytes : bytes);
    }
    return status;
}

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
                                 RMF_COLUMNS[kind].type, &columns->rooms[i], least);
    }
    if (status == RMF_OK && columns->places[RMF_COLUMN_PROPERTIES] >= 0) {
        least *= RMF_FIRST_ENTRIES;
        status = rmf_vector_init(&table->keys, "properties", RMF_VECTOR_TEXT,
                                 &columns->map_rooms[0], least);
        if (status == RMF_OK) {
            status = rmf_vector_init(&table->values, "properties", RMF_VECTOR_TEXT,
                                     &columns->map_rooms[1], least);
        }
    }
    if (status != RMF_OK) {
        rmf_table_release(table);
        return status;
    }
    columns->table = table;
    return RMF_OK;
}

static struct rmf_room rmf_room_of(const struct rmf_vector *vector, size_t rows) {
    struct rmf_room room = {vector->size + vector->size / 16, rows + rows / 16};
    return room;
}

enum rmf_status rmf_columns_finish(struct rmf_columns *columns, struct rmf_table **table) {
    enum rmf_status status = rmf_columns_begin(columns, 0);
    if (status != RMF_OK) {
        return status;
    }
    struct rmf_table *done = columns->table;
    for (size_t i = 0; i < done->count; i++) {
        columns->rooms[i] = rmf_room_of(&done->columns[i], done->rows);
    }
    columns->map_rooms[0] = rmf_room_of(&done->keys, done->entries);
    columns->map_rooms[1] = rmf_room_of(&done->values, done->entries);
    columns->table = NULL;
    *table = done;
    return RMF_OK;
}

/* ---------------------------------------------------------------------------------- filling */

/* One append: where the rows go, and what the rounds share. */
struct rmf_fill {
    struct rmf_columns *columns;
    struct rmf_table *table;
    const struct rmf_columns_source *source;
    struct rmf_error *error;
    const struct rmf_message *round[RMF_ROUND];
    size_t count; /* of the round */
    const struct rmf_message *previous; /* in this append; NULL at its first message */
};

static inline struct rmf_vector *rmf_fill_vector(const struct rmf_fill *fill, int kind) {
    int place = fill->columns->places[kind];
    return place < 0 ? NULL : &fill->table->columns[place];
}

/* memcpy for texts, which are short: without a call up to 32 bytes. */
static inline void rmf_copy_text(uint8_t *to, const uint8_t *from, size_t len) {
    if (len > 32) {
        memcpy(to, from, len);
    } else if (len >= 16) {
        memcpy(to, from, 16);
        memcpy(to + len - 16, from + len - 16, 16);
    } else if (len >= 8) {
        memcpy(to, from, 8);
        memcpy(to + len - 8, from + len - 8, 8);
    } else if (len >= 4) {
        memcpy(to, from, 4);
        memcpy(to + len - 4, from + len - 4, 4);
    } else {
        for (size_t i = 0; i < len; i++) {
            to[i] = from[i];
        }
    }
}

/* Appends a text that is known to be valid to row `row`. */
static inline enum rmf_status rmf_put(struct rmf_fill *fill, struct rmf_vector *vector, size_t row,
                                      struct rmf_slice text) {
    enum rmf_status status =
        rmf_vector_reserve(vector, text.len, fill->columns->max_bytes, fill->error);
    if (RMF_UNLIKELY(status != RMF_OK)) {
        return status;
    }
    rmf_copy_text(vector->data + vector->size, text.ptr, text.len);
    vector->size += text.len;
    vector->offsets[row + 1] = (int32_t)vector->size;
    return RMF_OK;
}

static enum rmf_status rmf_put_null(struct rmf_vector *vector, size_t row) {
    vector->offsets[row + 1] = (int32_t)vector->size;
    return rmf_vector_set_null(vector, row);
}

static inline enum rmf_status rmf_put_optional(struct rmf_fill *fill, struct rmf_vector *vector,
                                               size_t row, struct rmf_slice text) {
    return text.ptr == NULL ? rmf_put_null(vector, row) : rmf_put(fill, vector, row, text);
}

/* Appends a text that may be malformed. */
static enum rmf_status rmf_put_checked(struct rmf_fill *fill, struct rmf_vector *vector,
                                       size_t row, struct rmf_slice text) {
    if (rmf_utf8_is_valid(text)) {
        return rmf_put(fill, vector, row, text);
    }
    size_t bytes = rmf_utf8_replaced_bytes(text);
    enum rmf_status status =
        rmf_vector_reserve(vector, bytes, fill->columns->max_bytes, fill->error);
    if (status != RMF_OK) {
        return status;
    }
    rmf_utf8_write_replaced(text, vector->data + vector->size);
    vector->size += bytes;
    vector->offsets[row + 1] = (int32_t)vector->size;
    return RMF_OK;
}

/* Appends the text of the row before once more. */
static inline enum rmf_status rmf_put_again(struct rmf_fill *fill, struct rmf_vector *vector,
                                            size_t row) {
    size_t len = vector->size - (size_t)vector->offsets[row - 1];
    enum rmf_status status =
        rmf_vector_reserve(vector, len, fill->columns->max_bytes, fill->error);
    if (RMF_UNLIKELY(status != RMF_OK)) {
        return status;
    }
    rmf_copy_text(vector->data + vector->size, vector->data + vector->size - len, len);
    vector->size += len;
    vector->offsets[row + 1] = (int32_t)vector->size;
    return RMF_OK;
}

static inline bool rmf_slices_equal(struct rmf_slice a, struct rmf_slice b) {
    return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0;
}

static enum rmf_status rmf_fill_topics(struct rmf_fill *fill, struct rmf_vector *vector,
                                       size_t row) {
    /* One buffer nearly always holds one topic. */
    const struct rmf_message *previous = fill->previous;
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; status == RMF_OK && i < fill->count; i++) {
        struct rmf_slice topic = rmf_message_topic(fill->round[i]);
        if (RMF_LIKELY(previous != NULL && rmf_slices_equal(topic, rmf_message_topic(previous)))) {
            status = rmf_put_again(fill, vector, row + i);
        } else {
            status = rmf_put_checked(fill, vector, row + i, topic);
        }
        previous = fill->round[i];
    }
    return status;
}

static enum rmf_status rmf_fill_brokers(struct rmf_fill *fill, struct rmf_vector *vector,
                                        size_t row) {
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; status == RMF_OK && i < fill->count; i++) {
        status = rmf_put_optional(fill, vector, row + i, fill->source->broker_name);
    }
    return status;
}

static enum rmf_status rmf_fill_hosts(struct rmf_fill *fill, struct rmf_vector *vector, size_t row,
                                      struct rmf_slice (*host_of)(const struct rmf_message *)) {
    struct rmf_slice before = {NULL, 0};
    if (fill->previous != NULL) {
        before = host_of(fill->previous);
    }
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; status == RMF_OK && i < fill->count; i++) {
        struct rmf_slice host = host_of(fill->round[i]);
        if (RMF_LIKELY(before.ptr != NULL && rmf_slices_equal(host, before))) {
            status = rmf_put_again(fill, vector, row + i);
        } else {
            char text[RMF_HOST_TEXT_MAX];
            struct rmf_slice out = {(const uint8_t *)text, rmf_host_text(host, text)};
            status = rmf_put(fill, vector, row + i, out);
        }
        before = host;
    }
    return status;
}

static enum rmf_status rmf_put_offset_id(struct rmf_fill *fill, struct rmf_vector *vector,
                                         size_t row, const struct rmf_message *m) {
    enum rmf_status status = rmf_vector_reserve(vector, RMF_OFFSET_ID_MAX,
                                                fill->columns->max_bytes, fill->error);
    if (RMF_UNLIKELY(status != RMF_OK)) {
        return status;
    }
    struct rmf_slice host = rmf_message_store_host(m);
    uint8_t *to = vector->data + vector->size;
    for (size_t at = 0; at < host.len; at += 4) {
        rmf_hex4(host.ptr + at, to + 2 * at);
    }
    to += 2 * host.len;
    rmf_hex4(m->head + 28, to);
    rmf_hex4(m->head + 32, to + 8);
    vector->size += 2 * host.len + 16;
    vector->offsets[row + 1] = (int32_t)vector->size;
    return RMF_OK;
}

static enum rmf_status rmf_fill_offset_ids(struct rmf_fill *fill, struct rmf_vector *vector,
                                           size_t row) {
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; status == RMF_OK && i < fill->count; i++) {
        status = rmf_put_offset_id(fill, vector, row + i, fill->round[i]);
    }
    return status;
}

static enum rmf_status rmf_fill_bodies(struct rmf_fill *fill, struct rmf_vector *vector,
                                       size_t row) {
    /* rmf_columns_append made the room, and checked the bound, for all bodies at once. */
    uint8_t *data = vector->data;
    size_t size = vector->size;
    for (size_t i = 0; i < fill->count; i++) {
        const struct rmf_message *m = fill->round[i];
        if (RMF_LIKELY(m->body_len != 0)) {
            memcpy(data + size, m->body, m->body_len);
        }
        size += m->body_len;
        vector->offsets[row + i + 1] = (int32_t)size;
    }
    vector->size = size;
    return RMF_OK;
}

static enum rmf_status rmf_fill_times(struct rmf_fill *fill, struct rmf_vector *vector, size_t row,
                                      int64_t (*time_of)(const struct rmf_message *)) {
    int64_t *to = (int64_t *)(void *)vector->data + row;
    for (size_t i = 0; i < fill->count; i++) {
        int64_t ms = time_of(fill->round[i]);
        bool fits = ms <= INT64_MAX / 1000 && ms >= INT64_MIN / 1000;
        to[i] = fits ? ms * 1000 : 0;
        if (RMF_UNLIKELY(!fits)) {
            enum rmf_status status = rmf_vector_set_null(vector, row + i);
            if (status != RMF_OK) {
                return status;
            }
        }
    }
    return RMF_OK;
}

/* The columns that come out of the property string, all in one scan of it. */
static enum rmf_status rmf_fill_properties(struct rmf_fill *fill, size_t row) {
    struct rmf_vector *tags = rmf_fill_vector(fill, RMF_COLUMN_TAGS);
    struct rmf_vector *keys = rmf_fill_vector(fill, RMF_COLUMN_KEYS);
    struct rmf_vector *ids = rmf_fill_vector(fill, RMF_COLUMN_MSG_ID);
    struct rmf_vector *map = rmf_fill_vector(fill, RMF_COLUMN_PROPERTIES);
    struct rmf_vector *topics =
        fill->source->restore_topic ? rmf_fill_vector(fill, RMF_COLUMN_TOPIC) : NULL;
    if (tags == NULL && keys == NULL && ids == NULL && map == NULL && topics == NULL) {
        return RMF_OK;
    }
    struct rmf_entries *entries = &fill->columns->entries;
    struct rmf_vector *names = &fill->table->keys;
    struct rmf_vector *values = &fill->table->values;
    size_t max_bytes = fill->columns->max_bytes;
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; i < fill->count; i++, row++) {
        const struct rmf_message *m = fill->round[i];
        status = rmf_entries_read(entries, rmf_message_properties(m), map != NULL);
        if (map != NULL && status == RMF_OK) {
            /* Names and values together are shorter than the text they stand in. */
            size_t rows = fill->table->entries + entries->count;
            status = rmf_vector_reserve(names, entries->text.len, max_bytes, fill->error);
            if (status == RMF_OK) {
                status = rmf_vector_reserve(values, entries->text.len, max_bytes, fill->error);
            }
            if (status == RMF_OK) {
                status = rmf_vector_reserve_rows(names, rows);
            }
            if (status == RMF_OK) {
                status = rmf_vector_reserve_rows(values, rows);
            }
        }
        if (status != RMF_OK) {
            return status;
        }
        struct rmf_slice tag = {NULL, 0};
        struct rmf_slice key = {NULL, 0};
        struct rmf_slice id = {NULL, 0};
        struct rmf_slice topic = {NULL, 0};
        const uint8_t *text = entries->text.ptr;
        for (size_t n = 0; n < entries->count; n++) {
            const struct rmf_entry *entry = &entries->items[n];
            const uint8_t *name = text + entry->start;
            size_t name_len = entry->mark - entry->start;
            struct rmf_slice value = {text + entry->mark + 1, entry->end - entry->mark - 1u};
            switch (name_len) {
            case 4:
                if (memcmp(name, "TAGS", 4) == 0) {
                    tag = value;
                } else if (memcmp(name, "KEYS", 4) == 0) {
                    key = value;
                }
                break;
            case 8:
                if (memcmp(name, "UNIQ_KEY", 8) == 0) {
                    id = value;
                }
                break;
            case 11:
                if (memcmp(name, "RETRY_TOPIC", 11) == 0) {
                    topic = value;
                }
                break;
            default:
                break;
            }
            if (map != NULL) {
                rmf_copy_text(names->data + names->size, name, name_len);
                names->size += name_len;
                rmf_copy_text(values->data + values->size, value.ptr, value.len);
                values->size += value.len;
                size_t place = fill->table->entries + n + 1;
                names->offsets[place] = (int32_t)names->size;
                values->offsets[place] = (int32_t)values->size;
            }
        }
        if (map != NULL) {
            fill->table->entries += entries->count;
            map->offsets[row + 1] = (int32_t)fill->table->entries;
        }
        if (tags != NULL) {
            status = rmf_put_optional(fill, tags, row, tag);
        }
        if (keys != NULL && status == RMF_OK) {
            status = rmf_put_optional(fill, keys, row, key);
        }
        if (ids != NULL && status == RMF_OK) {
            status = id.ptr == NULL ? rmf_put_offset_id(fill, ids, row, m)
                                    : rmf_put(fill, ids, row, id);
        }
        if (topics != NULL && status == RMF_OK) {
            status = topic.ptr == NULL
                         ? rmf_put_checked(fill, topics, row, rmf_message_topic(m))
                         : rmf_put(fill, topics, row, topic);
        }
        if (status != RMF_OK) {
            return status;
        }
    }
    return RMF_OK;
}

static enum rmf_status rmf_fill_column(struct rmf_fill *fill, enum rmf_column kind,
                                       struct rmf_vector *vector, size_t row) {
#define RMF_FILL(type, function)                                                                 \
    do {                                                                                         \
        type *to_ = (type *)(void *)vector->data + row;                                          \
        for (size_t i = 0; i < fill->count; i++) {                                               \
            to_[i] = function(fill->round[i]);                                                   \
        }                                                                                        \
    } while (0)

    switch (kind) {
    case RMF_COLUMN_TOPIC:
        return fill->source->restore_topic ? RMF_OK : rmf_fill_topics(fill, vector, row);
    case RMF_COLUMN_BROKER_NAME:
        return rmf_fill_brokers(fill, vector, row);
    case RMF_COLUMN_BODY:
        return rmf_fill_bodies(fill, vector, row);
    case RMF_COLUMN_OFFSET_MSG_ID:
        return rmf_fill_offset_ids(fill, vector, row);
    case RMF_COLUMN_BORN_TIMESTAMP:
        return rmf_fill_times(fill, vector, row, rmf_message_born_timestamp_ms);
    case RMF_COLUMN_STORE_TIMESTAMP:
        return rmf_fill_times(fill, vector, row, rmf_message_store_timestamp_ms);
    case RMF_COLUMN_BORN_HOST:
        return rmf_fill_hosts(fill, vector, row, rmf_message_born_host);
    case RMF_COLUMN_STORE_HOST:
        return rmf_fill_hosts(fill, vector, row, rmf_message_store_host);
    case RMF_COLUMN_QUEUE_OFFSET: {
        int64_t *to = (int64_t *)(void *)vector->data + row;
        for (size_t i = 0; i < fill->count; i++) {
            to[i] = fill->round[i]->queue_offset;
        }
        return RMF_OK;
    }
    case RMF_COLUMN_QUEUE_ID:
        RMF_FILL(int32_t, rmf_message_queue_id);
        return RMF_OK;
    case RMF_COLUMN_SYS_FLAG:
        RMF_FILL(int32_t, rmf_message_sys_flag);
        return RMF_OK;
    case RMF_COLUMN_FLAG:
        RMF_FILL(int32_t, rmf_message_flag);
        return RMF_OK;
    case RMF_COLUMN_RECONSUME_TIMES:
        RMF_FILL(int32_t, rmf_message_reconsume_times);
        return RMF_OK;
    case RMF_COLUMN_STORE_SIZE:
        RMF_FILL(int32_t, rmf_message_store_size);
        return RMF_OK;
    case RMF_COLUMN_BODY_CRC:
        RMF_FILL(int32_t, rmf_message_body_crc);
        return RMF_OK;
    case RMF_COLUMN_COMMIT_LOG_OFFSET:
        RMF_FILL(int64_t, rmf_message_commit_log_offset);
        return RMF_OK;
    case RMF_COLUMN_PREPARED_TRANSACTION_OFFSET:
        RMF_FILL(int64_t, rmf_message_prepared_transaction_offset);
        return RMF_OK;
    default: /* tags, keys, msgId, properties: rmf_fill_properties */
        return RMF_OK;
    }
#undef RMF_FILL
}

static enum rmf_status rmf_fill_round(struct rmf_fill *fill) {
    size_t row = fill->table->rows;
    enum rmf_status status = rmf_fill_properties(fill, row);
    for (size_t i = 0; status == RMF_OK && i < fill->columns->count; i++) {
        status = rmf_fill_column(fill, (enum rmf_column)fill->columns->kinds[i],
                                 &fill->table->columns[i], row);
    }
    fill->table->rows += fill->count;
    fill->previous = fill->round[fill->count - 1];
    fill->count = 0;
    return status;
}

/* ---------------------------------------------------------------------------------- append */

/* Room for what a vector will hold when `part` of `whole` is done; a sixteenth more, as the next
 * messages may be longer. Only a forecast, which `limit` keeps harmless where the first messages are
 * unlike the others: without it the vector grows step by step. */
static enum rmf_status rmf_vector_forecast(struct rmf_vector *vector, size_t part, size_t whole,
                                           size_t limit, size_t max_bytes) {
    double expected = (double)vector->size * (double)whole / (double)part * 1.0625;
    size_t bytes = expected < (double)limit ? (size_t)expected : limit;
    if (bytes > max_bytes || bytes <= vector->capacity) {
        return RMF_OK;
    }
    return rmf_vector_grow_bytes(vector, bytes);
}

static enum rmf_status rmf_rows_forecast(struct rmf_vector *vector, size_t rows, size_t part,
                                         size_t whole, size_t limit) {
    double expected = (double)rows * (double)whole / (double)part * 1.0625;
    size_t wanted = expected < (double)limit ? (size_t)expected : limit;
    return rmf_vector_reserve_rows(vector, wanted);
}

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
        status = rmf_rows_forecast(vector, table->rows, part, whole, rows);
        if (status == RMF_OK && vector->offsets != NULL && vector->type != RMF_VECTOR_MAP) {
            status = rmf_vector_forecast(vector, part, whole, limit, columns->max_bytes);
        }
    }
    if (columns->places[RMF_COLUMN_PROPERTIES] < 0) {
        return status;
    }
    struct rmf_vector *vectors[] = {&table->keys, &table->values};
    for (size_t i = 0; status == RMF_OK && i < 2; i++) {
        status = rmf_vector_forecast(vectors[i], part, whole, limit, columns->max_bytes);
        if (status == RMF_OK) {
            status = rmf_rows_forecast(vectors[i], table->entries, part, whole, whole / 3);
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

/* Everything back to `rows` rows. */
static void rmf_vector_cut(struct rmf_vector *vector, size_t written, size_t rows) {
    if (vector->offsets != NULL && vector->type != RMF_VECTOR_MAP) {
        vector->size = (size_t)vector->offsets[rows];
    }
    if (vector->validity != NULL) {
        for (size_t row = rows; row < written; row++) {
            uint8_t bit = (uint8_t)(1u << row % 8);
            vector->nulls -= (vector->validity[row / 8] & bit) == 0;
            vector->validity[row / 8] |= bit;
        }
    }
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
    struct rmf_fill fill = {.columns = columns, .table = table, .source = source, .error = error};
    struct rmf_vector *bodies = rmf_fill_vector(&fill, RMF_COLUMN_BODY);
    if (bodies != NULL) {
        status = rmf_vector_reserve(bodies, body_bytes, columns->max_bytes, error);
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
