/* Stored messages, inner batches, properties. */
#include "harness.h"
#include "rmf_message.h"
#include "rmf_tags.h"

/* Recorded on a 4.9.4 broker: topic WPFactProbe, body hello-wire. */
static const char recorded_hex[] =
    "000000c5daa320a72dd0cb6f00000000000000000000000000000000000000005f66922400000000000001a1fa"
    "1566507f0000010000d800000001a1fa15665a7f00000100002a9f0000000000000000000000000000000a6865"
    "6c6c6f2d776972650b57504661637450726f626500554b455953016b31206b3202554e49515f4b455901374630"
    "303030303130304130313842344141433230303030303030303030303102434c55535445520144656661756c74"
    "436c757374657202544147530154616741";
#define RECORDED_BYTES 197u

static uint8_t *from_hex(const char *hex, size_t *size) {
    *size = strlen(hex) / 2;
    uint8_t *bytes = malloc(*size);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < *size; i++) {
        unsigned value;
        CHECK_EQ(sscanf(hex + 2 * i, "%2x", &value), 1);
        bytes[i] = (uint8_t)value;
    }
    return bytes;
}

static uint8_t *recorded(void) {
    size_t size;
    uint8_t *bytes = from_hex(recorded_hex, &size);
    CHECK_EQ(size, RECORDED_BYTES);
    return bytes;
}

static void a_recorded_message_has_the_recorded_fields(void) {
    uint8_t *data = recorded();
    struct rmf_slice buffer = {data, RECORDED_BYTES};
    struct rmf_message m;
    struct rmf_message_fault fault;
    size_t next = 0;
    CHECK_EQ(rmf_message_decode(buffer, 0, true, &m, &next, &fault), RMF_OK);
    CHECK_EQ(next, RECORDED_BYTES);
    CHECK_BYTES(m.body, m.body_len, "hello-wire");
    struct rmf_slice topic = rmf_message_topic(&m);
    CHECK_BYTES(topic.ptr, topic.len, "WPFactProbe");
    CHECK_EQ(rmf_message_store_size(&m), RECORDED_BYTES);
    CHECK_EQ(rmf_message_body_crc(&m), 768658287);
    CHECK_EQ(rmf_message_commit_log_offset(&m), 1600557604);
    CHECK_EQ(rmf_message_born_timestamp_ms(&m), 1795197068880);
    CHECK_EQ(rmf_message_store_timestamp_ms(&m), 1795197068890);
    CHECK_EQ(m.queue_offset, 0);
    CHECK_EQ(rmf_message_tag_code(&m), 2598919);
    CHECK(!rmf_message_is_compressed(&m));
    CHECK(!rmf_message_is_inner_batch(&m));
    struct rmf_slice value;
    CHECK(rmf_message_find_property(&m, "KEYS", 4, &value));
    CHECK_BYTES(value.ptr, value.len, "k1 k2");
    CHECK(!rmf_message_find_property(&m, "KEY", 3, &value));
    char id[56];
    CHECK_EQ(rmf_message_offset_id(&m, id), 32);
    CHECK(memcmp(id, "7F00000100002A9F000000005F669224", 32) == 0);
    CHECK_EQ(rmf_message_decode(buffer, next, true, &m, &next, &fault), RMF_NEED_MORE);
    free(data);
}

static void every_prefix_of_a_message_is_a_fault(void) {
    uint8_t *data = recorded();
    for (size_t size = 1; size < RECORDED_BYTES; size++) {
        uint8_t *copy = exact_copy(data, size);
        for (int right_size = 0; right_size <= (size >= 4 ? 1 : 0); right_size++) {
            if (right_size != 0) {
                rmf_store_be32_unsafe(copy, (uint32_t)size);
            }
            struct rmf_message m;
            struct rmf_message_fault fault;
            size_t next = 0;
            CHECK(rmf_message_decode((struct rmf_slice){copy, size}, 0, false, &m, &next,
                                     &fault) < 0);
            CHECK(fault.error.position <= size);
            if (fault.resumable) {
                CHECK_EQ(next, size);
            }
        }
        free(copy);
    }
    free(data);
}

static void every_changed_byte_is_read_or_refused(void) {
    uint8_t *data = recorded();
    for (size_t at = 0; at < RECORDED_BYTES; at++) {
        for (unsigned value = 0; value < 256; value += 5) {
            uint8_t *copy = exact_copy(data, RECORDED_BYTES);
            copy[at] = (uint8_t)value;
            struct rmf_slice buffer = {copy, RECORDED_BYTES};
            struct rmf_message m;
            struct rmf_message_fault fault;
            size_t next = 0;
            enum rmf_status status = rmf_message_decode(buffer, 0, true, &m, &next, &fault);
            if (status == RMF_OK) {
                char id[56];
                (void)rmf_message_offset_id(&m, id);
                (void)rmf_message_tag_code(&m);
                (void)rmf_message_prepared_transaction_offset(&m);
                CHECK_EQ(next, RECORDED_BYTES);
            }
            free(copy);
        }
    }
    free(data);
}

static void a_wrong_checksum_is_a_fault_only_when_asked_for(void) {
    uint8_t *data = recorded();
    struct rmf_slice buffer = {data, RECORDED_BYTES};
    struct rmf_message m;
    struct rmf_message_fault fault;
    size_t next = 0;
    data[89] ^= 1; /* a byte of the body */
    CHECK_EQ(rmf_message_decode(buffer, 0, false, &m, &next, &fault), RMF_OK);
    CHECK_EQ(rmf_message_decode(buffer, 0, true, &m, &next, &fault), RMF_ERR_CRC);
    CHECK(fault.resumable);
    CHECK_EQ(next, RECORDED_BYTES);
    CHECK_EQ(fault.queue_offset, 0);
    free(data);
}

static void an_unknown_magic_is_stepped_over_and_a_blank_ends(void) {
    uint8_t *data = recorded();
    uint8_t *two = malloc(2 * RECORDED_BYTES);
    CHECK(two != NULL);
    memcpy(two, data, RECORDED_BYTES);
    memcpy(two + RECORDED_BYTES, data, RECORDED_BYTES);
    struct rmf_slice buffer = {two, 2 * RECORDED_BYTES};
    struct rmf_message m;
    struct rmf_message_fault fault;
    size_t next = 0;
    rmf_store_be32_unsafe(two + 4, 0xDAA320A8u);
    CHECK_EQ(rmf_message_decode(buffer, 0, true, &m, &next, &fault), RMF_ERR_MAGIC);
    CHECK_EQ(fault.error.position, 4);
    CHECK(fault.resumable);
    CHECK_EQ(next, RECORDED_BYTES);
    CHECK_EQ(rmf_message_decode(buffer, next, true, &m, &next, &fault), RMF_OK);
    rmf_store_be32_unsafe(two + 4, (uint32_t)RMF_MESSAGE_MAGIC_BLANK);
    CHECK_EQ(rmf_message_decode(buffer, 0, true, &m, &next, &fault), RMF_NEED_MORE);
    free(two);
    free(data);
}

static void elements_of_an_inner_batch_take_the_rest_from_the_outer_message(void) {
    static const char elements[] = "\x00\x00\x00\x1b\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\x02hi\0\x03"
                                   "A\x01"
                                   "b\x00\x00\x00\x16\0\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0";
    uint8_t *data = recorded();
    struct rmf_message outer;
    struct rmf_message m;
    struct rmf_message_fault fault;
    struct rmf_error error;
    size_t next = 0;
    CHECK_EQ(rmf_message_decode((struct rmf_slice){data, RECORDED_BYTES}, 0, true, &outer, &next,
                                &fault),
             RMF_OK);
    uint8_t *copy = exact_copy(elements, 49);
    struct rmf_slice body = {copy, 49};
    CHECK_EQ(rmf_batch_element_decode(body, 0, &outer, 70, &m, &next, &error), RMF_OK);
    CHECK_EQ(next, 27);
    CHECK_BYTES(m.body, m.body_len, "hi");
    CHECK_EQ(rmf_message_flag(&m), 7);
    CHECK_EQ(m.queue_offset, 70);
    CHECK_EQ(rmf_message_commit_log_offset(&m), 1600557604);
    CHECK_EQ(rmf_message_tag_code(&m), 0);
    struct rmf_slice value;
    CHECK(rmf_message_find_property(&m, "A", 1, &value));
    CHECK_BYTES(value.ptr, value.len, "b");
    CHECK_EQ(rmf_batch_element_decode(body, next, &outer, 71, &m, &next, &error), RMF_OK);
    CHECK_EQ(rmf_message_flag(&m), -1);
    CHECK_EQ(m.body_len, 0);
    CHECK_EQ(rmf_batch_element_decode(body, next, &outer, 72, &m, &next, &error), RMF_NEED_MORE);
    free(copy);
    for (size_t size = 1; size < 27; size++) {
        copy = exact_copy(elements, size);
        CHECK(rmf_batch_element_decode((struct rmf_slice){copy, size}, 0, &outer, 0, &m, &next,
                                       &error) < 0);
        if (size >= 4) {
            rmf_store_be32_unsafe(copy, (uint32_t)size);
            CHECK(rmf_batch_element_decode((struct rmf_slice){copy, size}, 0, &outer, 0, &m, &next,
                                           &error) < 0);
        }
        CHECK(error.position <= size);
        free(copy);
    }
    free(data);
}

static void properties_follow_the_rules_of_java(void) {
    static const struct {
        const char *text;
        const char *value; /* of "a", NULL for none */
        size_t count;
    } cases[] = {
        {"", NULL, 0},
        {"a\x01" "b", "b", 1},
        {"a\x01" "b\x02", "b", 1},
        {"a\x01" "b\x02" "a\x01" "c", "c", 2},
        {"a\x01" "b\x01" "c\x02", "b\x01" "c", 1},
        {"a\x01\x02" "a\x01" "x", "x", 1},
        {"a\x01" "x\x02" "a\x01", "x", 1},
        {"\x01" "b", NULL, 0},
        {"a", NULL, 0},
        {"\x02\x02\x02", NULL, 0},
        {"aa\x01" "b", NULL, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = strlen(cases[i].text);
        uint8_t *copy = exact_copy(cases[i].text, size);
        struct rmf_slice text = {copy, size};
        struct rmf_property entry;
        size_t pos = 0;
        size_t count = 0;
        while (rmf_properties_next(text, &pos, &entry)) {
            count++;
        }
        CHECK_EQ(count, cases[i].count);
        struct rmf_slice value;
        bool found = rmf_properties_find(text, "a", 1, &value);
        CHECK_EQ(found, cases[i].value != NULL);
        CHECK(!found || (value.len == strlen(cases[i].value) &&
                         memcmp(value.ptr, cases[i].value, value.len) == 0));
        free(copy);
    }
}

const struct test tests[] = {
    {"a recorded message has the recorded fields", a_recorded_message_has_the_recorded_fields},
    {"every prefix of a message is a fault", every_prefix_of_a_message_is_a_fault},
    {"every changed byte is read or refused", every_changed_byte_is_read_or_refused},
    {"a wrong checksum is a fault only when asked for",
     a_wrong_checksum_is_a_fault_only_when_asked_for},
    {"an unknown magic is stepped over and a blank ends",
     an_unknown_magic_is_stepped_over_and_a_blank_ends},
    {"elements of an inner batch take the rest from the outer message",
     elements_of_an_inner_batch_take_the_rest_from_the_outer_message},
    {"properties follow the rules of Java", properties_follow_the_rules_of_java},
    {NULL, NULL},
};
