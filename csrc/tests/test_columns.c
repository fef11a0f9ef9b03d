/* Columns of messages, the Arrow structs over them, property entries, hosts as text. */
#include "harness.h"
#include "rmf_alloc.h"
#include "rmf_columns.h"
#include "rmf_entries.h"
#include "rmf_host_text.h"

static const uint8_t all[RMF_COLUMN_COUNT] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10,
                                              11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

/* Appends `size` low bytes of `value`, most significant first. */
static uint8_t *put(uint8_t *to, uint64_t value, int size) {
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) {
        *to++ = (uint8_t)(value >> shift);
    }
    return to;
}

static uint8_t *put_text(uint8_t *to, const char *text) {
    size_t len = strlen(text);
    memcpy(to, text, len);
    return to + len;
}

/* One stored message; returns its end. */
static uint8_t *put_message(uint8_t *start, int64_t offset, const char *topic, const char *body,
                            const char *properties) {
    uint8_t *p = put(start + 4, 0xDAA320A7u, 4);
    p = put(p, 77, 4);                /* CRC */
    p = put(p, 3, 4);                 /* queue id */
    p = put(p, (uint64_t)-5, 4);      /* flag */
    p = put(p, (uint64_t)offset, 8);  /* queue offset */
    p = put(p, 0x1234567890ABu, 8);   /* commit log offset */
    p = put(p, 0, 4);                 /* sysFlag */
    p = put(p, 1700000000000u, 8);    /* born */
    p = put(p, 0x7F000001u, 4);
    p = put(p, 55296, 4);
    p = put(p, 1700000000001u, 8);    /* stored */
    p = put(p, 0xC0A80001u, 4);
    p = put(p, 10911, 4);
    p = put(p, 2, 4);                 /* reconsume times */
    p = put(p, 9, 8);                 /* prepared transaction offset */
    p = put_text(put(p, strlen(body), 4), body);
    p = put_text(put(p, strlen(topic), 1), topic);
    p = put_text(put(p, strlen(properties), 2), properties);
    (void)put(start, (uint64_t)(p - start), 4);
    return p;
}

#define MESSAGES 40

/* Messages 0.. of a buffer of exact size; the caller frees *data. */
static size_t make(struct rmf_message *messages, uint8_t **data) {
    uint8_t *block = malloc(MESSAGES * 400);
    CHECK(block != NULL);
    uint8_t *end = block;
    for (int i = 0; i < MESSAGES; i++) {
        const char *properties = "";
        if (i % 4 == 1) {
            properties = "TAGS\1TagA\2KEYS\1k1 k2\2UNIQ_KEY\1" "0123456789ABCDEF\2";
        } else if (i % 4 == 2) {
            properties = "a\1b\2TAGS\1x\377\2RETRY_TOPIC\1Original\2TAGS\1y\2a\1c";
        } else if (i % 4 == 3) {
            properties = "k\377\1first\2k\376\1second\2\1no name\2novalue\1\2nothing\2";
        }
        end = put_message(end, 100 + i, i == 7 ? "Other\303" : "TopicTest", i == 5 ? "" : "a body",
                          properties);
    }
    size_t size = (size_t)(end - block);
    *data = exact_copy(block, size);
    free(block);
    struct rmf_slice buffer = {*data, size};
    struct rmf_message_fault fault;
    size_t position = 0;
    size_t count = 0;
    while (rmf_message_decode(buffer, position, false, &messages[count], &position, &fault) ==
           RMF_OK) {
        count++;
    }
    CHECK_EQ(count, MESSAGES);
    return count;
}

static struct rmf_columns_source source_of(const struct rmf_message *messages, size_t count) {
    struct rmf_columns_source source = {.messages = messages,
                                        .count = count,
                                        .start = INT64_MIN,
                                        .end = INT64_MAX,
                                        .broker_name = SLICE("broker-a")};
    return source;
}

static struct rmf_slice text_at(const struct ArrowArray *array, size_t row) {
    const int32_t *offsets = array->buffers[1];
    const uint8_t *data = array->buffers[2];
    struct rmf_slice text = {data + offsets[row], (size_t)(offsets[row + 1] - offsets[row])};
    return text;
}

static bool is_null(const struct ArrowArray *array, size_t row) {
    const uint8_t *validity = array->buffers[0];
    return validity != NULL && (validity[row / 8] >> row % 8 & 1) == 0;
}

#define CHECK_TEXT(column, row, expected)                                                        \
    do {                                                                                         \
        struct rmf_slice text_ = text_at(array.children[column], row);                           \
        CHECK_BYTES(text_.ptr, text_.len, expected);                                             \
    } while (0)

static void messages_become_columns(void) {
    struct rmf_message messages[MESSAGES];
    uint8_t *data;
    size_t count = make(messages, &data);
    struct rmf_columns *columns = rmf_columns_new(all, RMF_COLUMN_COUNT, RMF_COLUMN_MAX_BYTES);
    struct rmf_columns_source source = source_of(messages, count);
    size_t appended = 0;
    CHECK_EQ(rmf_columns_append(columns, &source, &appended, NULL), RMF_OK);
    CHECK_EQ(appended, MESSAGES);
    CHECK_EQ(rmf_columns_rows(columns), MESSAGES);
    size_t bytes = rmf_columns_bytes(columns);
    CHECK(bytes > 0);
    struct rmf_table *table;
    CHECK_EQ(rmf_columns_finish(columns, &table), RMF_OK);
    CHECK_EQ(rmf_columns_rows(columns), 0);
    CHECK_EQ(rmf_table_bytes(table), bytes);
    rmf_columns_free(columns);

    struct ArrowArray array;
    struct ArrowSchema schema;
    CHECK_EQ(rmf_table_export_array(table, &array), RMF_OK);
    CHECK_EQ(rmf_table_export_schema(table, &schema), RMF_OK);
    rmf_table_release(table); /* the array holds it */
    CHECK_EQ(array.length, MESSAGES);
    CHECK_EQ(array.n_children, RMF_COLUMN_COUNT);
    CHECK_EQ(schema.n_children, RMF_COLUMN_COUNT);
    CHECK(strcmp(schema.children[6]->format, "z") == 0);
    CHECK(strcmp(schema.children[9]->format, "tsu:UTC") == 0);
    CHECK(strcmp(schema.children[20]->children[0]->children[1]->name, "value") == 0);
    CHECK_TEXT(RMF_COLUMN_TOPIC, 0, "TopicTest");
    CHECK_TEXT(RMF_COLUMN_TOPIC, 7, "Other\357\277\275");
    CHECK_TEXT(RMF_COLUMN_TOPIC, 39, "TopicTest");
    CHECK_TEXT(RMF_COLUMN_BROKER_NAME, 20, "broker-a");
    CHECK_EQ(((const int32_t *)array.children[RMF_COLUMN_QUEUE_ID]->buffers[1])[39], 3);
    CHECK_EQ(((const int32_t *)array.children[RMF_COLUMN_FLAG]->buffers[1])[1], -5);
    CHECK_EQ(((const int64_t *)array.children[RMF_COLUMN_QUEUE_OFFSET]->buffers[1])[39], 139);
    CHECK_EQ(((const int64_t *)array.children[RMF_COLUMN_BORN_TIMESTAMP]->buffers[1])[0],
             1700000000000000);
    CHECK_EQ(array.children[RMF_COLUMN_TAGS]->null_count, 20);
    CHECK(is_null(array.children[RMF_COLUMN_TAGS], 0));
    CHECK(!is_null(array.children[RMF_COLUMN_TAGS], 1));
    CHECK_TEXT(RMF_COLUMN_TAGS, 1, "TagA");
    CHECK_TEXT(RMF_COLUMN_TAGS, 2, "y");
    CHECK_EQ(array.children[RMF_COLUMN_KEYS]->null_count, 30);
    CHECK_TEXT(RMF_COLUMN_KEYS, 5, "k1 k2");
    CHECK_TEXT(RMF_COLUMN_BODY, 5, "");
    CHECK_TEXT(RMF_COLUMN_BODY, 6, "a body");
    CHECK_TEXT(RMF_COLUMN_MSG_ID, 1, "0123456789ABCDEF");
    CHECK_TEXT(RMF_COLUMN_MSG_ID, 0, "C0A8000100002A9F00001234567890AB");
    CHECK_TEXT(RMF_COLUMN_OFFSET_MSG_ID, 1, "C0A8000100002A9F00001234567890AB");
    CHECK_TEXT(RMF_COLUMN_BORN_HOST, 17, "127.0.0.1:55296");
    CHECK_TEXT(RMF_COLUMN_STORE_HOST, 0, "192.168.0.1:10911");
    CHECK(array.children[RMF_COLUMN_BODY]->buffers[0] == NULL);

    const struct ArrowArray *map = array.children[RMF_COLUMN_PROPERTIES];
    const int32_t *entries = map->buffers[1];
    CHECK_EQ(entries[1] - entries[0], 0);
    CHECK_EQ(entries[2] - entries[1], 3);
    CHECK_EQ(entries[3] - entries[2], 3); /* the last of two TAGS and of two a */
    CHECK_EQ(entries[4] - entries[3], 1); /* names that are equal once they are valid */
    struct rmf_slice value = text_at(map->children[0]->children[1], (size_t)entries[3]);
    CHECK_BYTES(value.ptr, value.len, "second");
    CHECK_EQ(map->children[0]->length, entries[MESSAGES]);

    array.release(&array);
    CHECK(array.release == NULL);
    schema.release(&schema);
    CHECK(schema.release == NULL);
    free(data);
}

static void a_moved_child_keeps_its_memory(void) {
    struct rmf_message messages[MESSAGES];
    uint8_t *data;
    struct rmf_columns *columns = rmf_columns_new(all, RMF_COLUMN_COUNT, RMF_COLUMN_MAX_BYTES);
    struct rmf_columns_source source = source_of(messages, make(messages, &data));
    size_t appended;
    struct rmf_table *table;
    struct ArrowArray first;
    struct ArrowArray second;
    CHECK_EQ(rmf_columns_append(columns, &source, &appended, NULL), RMF_OK);
    CHECK_EQ(rmf_columns_finish(columns, &table), RMF_OK);
    CHECK_EQ(rmf_table_export_array(table, &first), RMF_OK);
    CHECK_EQ(rmf_table_export_array(table, &second), RMF_OK);
    rmf_table_release(table);
    rmf_columns_free(columns);
    struct ArrowArray moved = *first.children[RMF_COLUMN_BODY];
    first.children[RMF_COLUMN_BODY]->release = NULL;
    first.release(&first);
    second.release(&second);
    struct rmf_slice body = text_at(&moved, 39);
    CHECK_BYTES(body.ptr, body.len, "a body");
    moved.release(&moved);
    free(data);
}

static void range_and_mask_select(void) {
    struct rmf_message messages[MESSAGES];
    uint8_t *data;
    const uint8_t kinds[] = {RMF_COLUMN_QUEUE_OFFSET, RMF_COLUMN_TOPIC};
    struct rmf_columns *columns = rmf_columns_new(kinds, 2, RMF_COLUMN_MAX_BYTES);
    struct rmf_columns_source source = source_of(messages, make(messages, &data));
    uint8_t mask[MESSAGES] = {0};
    mask[3] = mask[4] = mask[38] = 1;
    source.mask = mask;
    source.start = 104;
    source.end = 139;
    source.restore_topic = true;
    size_t appended;
    CHECK_EQ(rmf_columns_append(columns, &source, &appended, NULL), RMF_OK);
    CHECK_EQ(appended, 2);
    source.start = 138;
    source.end = 138;
    CHECK_EQ(rmf_columns_append(columns, &source, &appended, NULL), RMF_OK);
    CHECK_EQ(appended, 0);
    struct rmf_table *table;
    struct ArrowArray array;
    CHECK_EQ(rmf_columns_finish(columns, &table), RMF_OK);
    CHECK_EQ(rmf_table_export_array(table, &array), RMF_OK);
    const int64_t *offsets = array.children[0]->buffers[1];
    CHECK_EQ(offsets[0], 104);
    CHECK_EQ(offsets[1], 138);
    CHECK_TEXT(1, 0, "TopicTest");
    CHECK_TEXT(1, 1, "Original");
    array.release(&array);
    rmf_table_release(table);
    rmf_columns_free(columns);
    free(data);
}

static void a_full_column_leaves_the_builder_as_it_was(void) {
    struct rmf_message messages[MESSAGES];
    uint8_t *data;
    struct rmf_columns *columns = rmf_columns_new(all, RMF_COLUMN_COUNT, 2000);
    struct rmf_columns_source source = source_of(messages, make(messages, &data));
    struct rmf_error error = {0};
    size_t appended;
    CHECK_EQ(rmf_columns_append(columns, &source, &appended, &error), RMF_OK);
    size_t bytes = rmf_columns_bytes(columns);
    CHECK_EQ(rmf_columns_append(columns, &source, &appended, &error), RMF_ERR_LENGTH);
    CHECK(error.field != NULL);
    CHECK_EQ(error.limit, 2000);
    CHECK_EQ(rmf_columns_rows(columns), MESSAGES);
    CHECK_EQ(rmf_columns_bytes(columns), bytes);
    source.count = 3;
    CHECK_EQ(rmf_columns_append(columns, &source, &appended, &error), RMF_OK);
    struct rmf_table *table;
    struct ArrowArray array;
    CHECK_EQ(rmf_columns_finish(columns, &table), RMF_OK);
    CHECK_EQ(rmf_table_export_array(table, &array), RMF_OK);
    CHECK_EQ(array.length, MESSAGES + 3);
    CHECK_EQ(array.children[RMF_COLUMN_TAGS]->null_count, 21);
    CHECK_TEXT(RMF_COLUMN_TAGS, MESSAGES + 1, "TagA");
    CHECK(is_null(array.children[RMF_COLUMN_TAGS], MESSAGES));
    array.release(&array);
    rmf_table_release(table);
    rmf_columns_free(columns);
    free(data);
}

/* `count` plain messages, then a blank filler; the caller frees *data. */
static size_t make_plain(int count, uint8_t **data) {
    uint8_t *block = malloc((size_t)count * 200 + 8);
    CHECK(block != NULL);
    uint8_t *end = block;
    for (int i = 0; i < count; i++) {
        end = put_message(end, i, "TopicTest", i % 3 == 0 ? "" : "some body",
                          i % 5 == 0 ? "" : "TAGS\1TagA\2other\1value\2");
    }
    end = put(put(end, 8, 4), 0xCBD43194u, 4);
    size_t size = (size_t)(end - block);
    *data = exact_copy(block, size);
    free(block);
    return size;
}

static void plain_messages_need_no_index(void) {
    uint8_t *data;
    size_t size = make_plain(1000, &data);
    struct rmf_slice buffer = {data, size};
    struct rmf_columns *columns = rmf_columns_new(all, RMF_COLUMN_COUNT, RMF_COLUMN_MAX_BYTES);
    size_t position = 0;
    CHECK_EQ(rmf_columns_decode(columns, buffer, false, SLICE("b"), &position, NULL),
             RMF_NEED_MORE);
    CHECK_EQ(position, size - 8);
    struct rmf_table *table;
    struct ArrowArray array;
    CHECK_EQ(rmf_columns_finish(columns, &table), RMF_OK);
    CHECK_EQ(rmf_table_export_array(table, &array), RMF_OK);
    CHECK_EQ(array.length, 1000);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(((const int64_t *)array.children[RMF_COLUMN_QUEUE_OFFSET]->buffers[1])[i], i);
        CHECK(is_null(array.children[RMF_COLUMN_TAGS], (size_t)i) == (i % 5 == 0));
    }
    CHECK_TEXT(RMF_COLUMN_BODY, 998, "some body");
    array.release(&array);
    rmf_table_release(table);

    /* A wrong checksum, a compressed message and a wrong magic end it before that message. */
    size_t one = (size_t)rmf_load_be32_unsafe(data);
    position = 0;
    CHECK_EQ(rmf_columns_decode(columns, buffer, true, SLICE("b"), &position, NULL), RMF_OK);
    CHECK_EQ(position, 0);
    data[one + 39] = RMF_SYS_COMPRESSED;
    CHECK_EQ(rmf_columns_decode(columns, buffer, false, SLICE("b"), &position, NULL), RMF_OK);
    CHECK_EQ(position, one);
    data[one + 4] = 0;
    CHECK_EQ(rmf_columns_decode(columns, buffer, false, SLICE("b"), &position, NULL), RMF_OK);
    CHECK_EQ(position, one);
    CHECK_EQ(rmf_columns_rows(columns), 1);
    rmf_columns_free(columns);
    free(data);
}

static bool decode_many(void) {
    uint8_t *data;
    size_t size = make_plain(300, &data);
    struct rmf_columns *columns = rmf_columns_new(all, RMF_COLUMN_COUNT, RMF_COLUMN_MAX_BYTES);
    size_t position = 0;
    bool done = columns != NULL &&
                rmf_columns_decode(columns, (struct rmf_slice){data, size}, false, SLICE("b"),
                                   &position, NULL) == RMF_NEED_MORE;
    CHECK(!done || rmf_columns_rows(columns) == 300);
    rmf_columns_free(columns);
    free(data);
    return done;
}

static bool append_and_export(void) {
    struct rmf_message messages[MESSAGES];
    uint8_t *data;
    struct rmf_columns_source source = source_of(messages, make(messages, &data));
    struct rmf_columns *columns = rmf_columns_new(all, RMF_COLUMN_COUNT, RMF_COLUMN_MAX_BYTES);
    struct rmf_table *table = NULL;
    size_t appended = 0;
    bool done = columns != NULL;
    for (int i = 0; done && i < 3; i++) {
        size_t rows = rmf_columns_rows(columns);
        done = rmf_columns_append(columns, &source, &appended, NULL) == RMF_OK;
        CHECK_EQ(rmf_columns_rows(columns), rows + (done ? MESSAGES : 0));
    }
    done = done && rmf_columns_finish(columns, &table) == RMF_OK;
    rmf_columns_free(columns);
    if (done) {
        struct ArrowArray array;
        struct ArrowSchema schema;
        bool exported = rmf_table_export_array(table, &array) == RMF_OK;
        bool described = rmf_table_export_schema(table, &schema) == RMF_OK;
        CHECK(exported == (array.release != NULL));
        CHECK(described == (schema.release != NULL));
        if (exported) {
            array.release(&array);
        }
        if (described) {
            schema.release(&schema);
        }
        done = exported && described;
    }
    rmf_table_release(table);
    free(data);
    return done;
}

static void no_memory_is_reported_and_nothing_leaks(void) {
    each_allocation_fails(append_and_export);
    each_allocation_fails(decode_many);
}

static void wrong_projections_are_refused(void) {
    const uint8_t twice[] = {1, 1};
    const uint8_t unknown[] = {RMF_COLUMN_COUNT};
    CHECK(rmf_columns_new(twice, 2, 10) == NULL);
    CHECK(rmf_columns_new(unknown, 1, 10) == NULL);
    CHECK(rmf_columns_new(all, RMF_COLUMN_COUNT + 1, 10) == NULL);
    CHECK(strcmp(rmf_column_name(RMF_COLUMN_COUNT), "") == 0);
    CHECK(strcmp(rmf_column_name(RMF_COLUMN_BODY_CRC), "bodyCRC") == 0);
    struct rmf_columns *none = rmf_columns_new(all, 0, RMF_COLUMN_MAX_BYTES);
    struct rmf_table *table;
    CHECK_EQ(rmf_columns_finish(none, &table), RMF_OK);
    CHECK_EQ(rmf_table_bytes(table), 0);
    rmf_table_release(table);
    rmf_columns_free(none);
}

/* The entries of any text are those of rmf_properties_next, and with `unique` the last of each name. */
static void entries_agree_with_the_other_reader(void) {
    static const char alphabet[] = "\1\2\1\2aab\303\251";
    struct rmf_entries entries = {0};
    uint32_t state = 12345;
    for (int round = 0; round < 20000; round++) {
        uint8_t text[200];
        size_t len = round % 130 == 0 ? 200 : (size_t)round % 67;
        for (size_t i = 0; i < len; i++) {
            state = state * 1664525u + 1013904223u;
            text[i] = (uint8_t)alphabet[(state >> 16) % (sizeof alphabet - 1)];
        }
        uint8_t *exact = exact_copy(text, len);
        struct rmf_slice slice = {exact, len};
        CHECK_EQ(rmf_entries_read(&entries, slice, false), RMF_OK);
        struct rmf_property property;
        size_t pos = 0;
        for (size_t i = 0; i < entries.count; i++) {
            const struct rmf_entry *entry = &entries.items[i];
            CHECK(rmf_properties_next(entries.text, &pos, &property));
            CHECK(property.name.ptr == entries.text.ptr + entry->start);
            CHECK_EQ(property.name.len, entry->mark - entry->start);
            CHECK(property.value.ptr == entries.text.ptr + entry->mark + 1);
            CHECK_EQ(property.value.len, entry->end - entry->mark - 1);
        }
        CHECK(!rmf_properties_next(entries.text, &pos, &property));
        CHECK_EQ(rmf_entries_read(&entries, slice, true), RMF_OK);
        for (size_t i = 0; i < entries.count; i++) {
            const struct rmf_entry *entry = &entries.items[i];
            struct rmf_slice last = {NULL, 0};
            CHECK(rmf_properties_find(entries.text, (const char *)entries.text.ptr + entry->start,
                                      entry->mark - entry->start, &last));
            CHECK(last.ptr == entries.text.ptr + entry->mark + 1);
        }
        free(exact);
    }
    rmf_entries_clear(&entries);
}

static void many_entries_take_no_square_of_time(void) {
    size_t len = 32767;
    uint8_t *text = malloc(len);
    CHECK(text != NULL);
    for (size_t i = 0; i < len; i++) {
        text[i] = (uint8_t)"a\1b\2"[i % 4];
    }
    struct rmf_entries entries = {0};
    struct rmf_slice slice = {text, len};
    for (int round = 0; round < 200; round++) {
        CHECK_EQ(rmf_entries_read(&entries, slice, true), RMF_OK);
        CHECK_EQ(entries.count, 1);
    }
    rmf_entries_clear(&entries);
    free(text);
}

static void hosts_are_written_as_everybody_writes_them(void) {
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } cases[] = {
        {"\300\250\0\1\0\0\x2A\x9F", 8, "192.168.0.1:10911"},
        {"\377\377\377\377\377\377\377\377", 8, "255.255.255.255:4294967295"},
        {"\0\0\0\0\0\0\0\0", 8, "0.0.0.0:0"},
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\7", 20, "[::1]:7"},
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\7", 20, "[::]:7"},
        {"\x20\1\r\270\0\0\0\0\0\1\0\0\0\0\0\1\0\0\0\7", 20, "[2001:db8::1:0:0:1]:7"},
        {"\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\7", 20, "[1::1:0:0:0]:7"},
        {"\0\1\0\2\0\3\0\4\0\5\0\6\0\0\0\0\0\0\0\7", 20, "[1:2:3:4:5:6::]:7"},
        {"\0\1\0\0\0\3\0\4\0\5\0\6\0\7\0\0\0\0\0\7", 20, "[1:0:3:4:5:6:7:0]:7"},
        {"\0\0\0\0\0\0\0\0\0\0\377\377\1\2\3\4\0\0\0\7", 20, "[::ffff:1.2.3.4]:7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t *exact = exact_copy(cases[i].bytes, cases[i].len);
        char text[RMF_HOST_TEXT_MAX];
        size_t len = rmf_host_text((struct rmf_slice){exact, cases[i].len}, text);
        CHECK_EQ(len, strlen(cases[i].text));
        CHECK(memcmp(text, cases[i].text, len) == 0);
        free(exact);
    }
    for (uint32_t value = 0; value < 70000; value += 7) {
        uint8_t bytes[4] = {(uint8_t)(value * 97u), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                            (uint8_t)value};
        uint8_t hex[8];
        char expected[9];
        rmf_hex4(bytes, hex);
        (void)snprintf(expected, sizeof expected, "%02X%02X%02X%02X", bytes[0], bytes[1], bytes[2],
                       bytes[3]);
        CHECK(memcmp(hex, expected, 8) == 0);
    }
}

const struct test tests[] = {
    {"messages_become_columns", messages_become_columns},
    {"a_moved_child_keeps_its_memory", a_moved_child_keeps_its_memory},
    {"range_and_mask_select", range_and_mask_select},
    {"a_full_column_leaves_the_builder_as_it_was", a_full_column_leaves_the_builder_as_it_was},
    {"plain_messages_need_no_index", plain_messages_need_no_index},
    {"no_memory_is_reported_and_nothing_leaks", no_memory_is_reported_and_nothing_leaks},
    {"wrong_projections_are_refused", wrong_projections_are_refused},
    {"entries_agree_with_the_other_reader", entries_agree_with_the_other_reader},
    {"many_entries_take_no_square_of_time", many_entries_take_no_square_of_time},
    {"hosts_are_written_as_everybody_writes_them", hosts_are_written_as_everybody_writes_them},
    {NULL, NULL},
};
