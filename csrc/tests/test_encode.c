/* What producers write. */
#include "harness.h"
#include "rmf_encode.h"
#include "rmf_message.h"

static void properties_are_joined_by_separators(void) {
    struct rmf_buffer out;
    rmf_buffer_init(&out);
    CHECK_EQ(rmf_buffer_append(&out, "xx", 2), RMF_OK);
    CHECK_EQ(rmf_encode_property(&out, 2, SLICE("a"), SLICE("b"), NULL), RMF_OK);
    CHECK_EQ(rmf_encode_property(&out, 2, SLICE("c"), SLICE(""), NULL), RMF_OK);
    CHECK_EQ(rmf_encode_property(&out, 2, SLICE("d"), SLICE("e f"), NULL), RMF_OK);
    CHECK_BYTES(out.data, out.size, "xxa\x01" "b\x02" "c\x01\x02" "d\x01" "e f");
    rmf_buffer_clear(&out);
}

static void separators_inside_are_refused(void) {
    struct rmf_buffer out;
    struct rmf_error error;
    rmf_buffer_init(&out);
    CHECK_EQ(rmf_encode_property(&out, 0, SLICE("a\x01"), SLICE("b"), &error), RMF_ERR_SYNTAX);
    CHECK_EQ(rmf_encode_property(&out, 0, SLICE("a\x02"), SLICE("b"), &error), RMF_ERR_SYNTAX);
    CHECK_EQ(rmf_encode_property(&out, 0, SLICE("a"), SLICE("\x01" "b"), &error), RMF_ERR_SYNTAX);
    CHECK_EQ(rmf_encode_property(&out, 0, SLICE("a"), SLICE("b\x02"), &error), RMF_ERR_SYNTAX);
    CHECK_EQ(out.size, 0);
    rmf_buffer_clear(&out);
}

static bool write_two_elements(void) {
    struct rmf_buffer out;
    rmf_buffer_init(&out);
    enum rmf_status status = RMF_OK;
    for (int i = 0; status == RMF_OK && i < 2; i++) {
        size_t start;
        size_t properties;
        status = rmf_encode_element_begin(&out, 7 + i, SLICE("hi"), &start, &properties, NULL);
        if (status == RMF_OK) {
            status = rmf_encode_property(&out, properties, SLICE("A"), SLICE("b"), NULL);
        }
        if (status == RMF_OK) {
            status = rmf_encode_element_end(&out, start, properties, NULL);
        }
    }
    CHECK(status == RMF_OK || status == RMF_ERR_NO_MEMORY);
    if (status == RMF_OK) {
        struct rmf_slice body = {out.data, out.size};
        struct rmf_message outer;
        struct rmf_message m;
        struct rmf_error error;
        size_t position = 0;
        memset(&outer, 0, sizeof outer);
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(rmf_batch_element_decode(body, position, &outer, i, &m, &position, &error),
                     RMF_OK);
            CHECK_EQ(rmf_message_flag(&m), 7 + i);
            CHECK_BYTES(m.body, m.body_len, "hi");
        }
        CHECK_EQ(position, out.size);
    }
    rmf_buffer_clear(&out);
    return status == RMF_OK;
}

static void elements_survive_each_failed_allocation(void) {
    each_allocation_fails(write_two_elements);
}

static void properties_over_their_limit_are_refused(void) {
    struct rmf_buffer out;
    struct rmf_error error;
    uint8_t *text = malloc(40000);
    CHECK(text != NULL);
    memset(text, 'x', 40000);
    for (size_t length = 32765; length <= 32766; length++) {
        size_t start;
        size_t properties;
        rmf_buffer_init(&out);
        CHECK_EQ(rmf_encode_element_begin(&out, 0, SLICE(""), &start, &properties, &error), RMF_OK);
        CHECK_EQ(rmf_encode_property(&out, properties, SLICE("A"),
                                     (struct rmf_slice){text, length + 1 - 1}, &error),
                 RMF_OK);
        bool fits = out.size - properties <= 32767;
        CHECK_EQ(rmf_encode_element_end(&out, start, properties, &error),
                 fits ? RMF_OK : RMF_ERR_LENGTH);
        CHECK_EQ(fits, length == 32765);
        rmf_buffer_clear(&out);
    }
    free(text);
}

static void a_unique_id_spells_its_parts(void) {
    static const uint8_t prefix[10] = {127, 0, 0, 1, 0x12, 0x34, 0xDE, 0xAD, 0xBE, 0xEF};
    char *id = malloc(RMF_UNIQUE_ID_CHARS);
    CHECK(id != NULL);
    rmf_encode_unique_id(prefix, 0x01020304, 0xFFFE, id);
    CHECK_BYTES(id, RMF_UNIQUE_ID_CHARS, "7F0000011234DEADBEEF01020304FFFE");
    free(id);
}

const struct test tests[] = {
    {"properties are joined by separators", properties_are_joined_by_separators},
    {"separators inside are refused", separators_inside_are_refused},
    {"elements survive each failed allocation", elements_survive_each_failed_allocation},
    {"properties over their limit are refused", properties_over_their_limit_are_refused},
    {"a unique id spells its parts", a_unique_id_spells_its_parts},
    {NULL, NULL},
};
