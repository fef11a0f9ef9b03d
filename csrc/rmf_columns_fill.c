#include "rmf_columns_fill.h"

#include "rmf_host_text.h"

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
            status = rmf_vector_put_again(vector, row + i, fill->error);
        } else {
            status = rmf_vector_put_checked(vector, row + i, topic, fill->error);
        }
        previous = fill->round[i];
    }
    return status;
}

static enum rmf_status rmf_fill_brokers(struct rmf_fill *fill, struct rmf_vector *vector,
                                        size_t row) {
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; status == RMF_OK && i < fill->count; i++) {
        status = rmf_vector_put_optional(vector, row + i, fill->source->broker_name, fill->error);
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
            status = rmf_vector_put_again(vector, row + i, fill->error);
        } else {
            char text[RMF_HOST_TEXT_MAX];
            struct rmf_slice out = {(const uint8_t *)text, rmf_host_text(host, text)};
            status = rmf_vector_put(vector, row + i, out, fill->error);
        }
        before = host;
    }
    return status;
}

static enum rmf_status rmf_put_offset_id(struct rmf_fill *fill, struct rmf_vector *vector,
                                         size_t row, const struct rmf_message *m) {
    enum rmf_status status = rmf_vector_reserve(vector, RMF_OFFSET_ID_MAX, fill->error);
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
    struct rmf_entries *entries = fill->entries;
    struct rmf_vector *names = &fill->table->keys;
    struct rmf_vector *values = &fill->table->values;
    enum rmf_status status = RMF_OK;
    for (size_t i = 0; i < fill->count; i++, row++) {
        const struct rmf_message *m = fill->round[i];
        status = rmf_entries_read(entries, rmf_message_properties(m), map != NULL);
        if (map != NULL && status == RMF_OK) {
            /* Names and values together are shorter than the text they stand in. */
            size_t rows = fill->table->entries + entries->count;
            status = rmf_vector_reserve(names, entries->text.len, fill->error);
            if (status == RMF_OK) {
                status = rmf_vector_reserve(values, entries->text.len, fill->error);
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
            status = rmf_vector_put_optional(tags, row, tag, fill->error);
        }
        if (keys != NULL && status == RMF_OK) {
            status = rmf_vector_put_optional(keys, row, key, fill->error);
        }
        if (ids != NULL && status == RMF_OK) {
            status = id.ptr == NULL ? rmf_put_offset_id(fill, ids, row, m)
                                    : rmf_vector_put(ids, row, id, fill->error);
        }
        if (topics != NULL && status == RMF_OK) {
            status = topic.ptr == NULL
                         ? rmf_vector_put_checked(topics, row, rmf_message_topic(m), fill->error)
                         : rmf_vector_put(topics, row, topic, fill->error);
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

enum rmf_status rmf_fill_round(struct rmf_fill *fill) {
    size_t row = fill->table->rows;
    enum rmf_status status = rmf_fill_properties(fill, row);
    for (size_t i = 0; status == RMF_OK && i < fill->table->count; i++) {
        status = rmf_fill_column(fill, (enum rmf_column)fill->kinds[i],
                                 &fill->table->columns[i], row);
    }
    fill->table->rows += fill->count;
    fill->previous = fill->round[fill->count - 1];
    fill->count = 0;
    return status;
}

