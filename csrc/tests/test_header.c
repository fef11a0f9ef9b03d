/* JSON and compact headers. */
#include "harness.h"
#include "rmf_header.h"
#include "rmf_json.h"

static struct rmf_slice borrow(const uint8_t *data, size_t size) {
    return (struct rmf_slice){data, size};
}

static enum rmf_status decode_json_text(const char *text, struct rmf_header *header,
                                        struct rmf_error *error) {
    return rmf_header_decode_json(borrow((const uint8_t *)text, strlen(text)), header, error);
}

static void a_json_header_is_read(void) {
    struct rmf_header header;
    rmf_header_init(&header);
    CHECK_EQ(decode_json_text(" {\"code\":11,\"extFields\":{\"a\":\"1\",\"b\":2,\"c\":true,\"d\":null,"
                              "\"e\":\"\"},\"flag\":2,\"language\":\"GO\",\"opaque\":-5,"
                              "\"remark\":\"a\\n\\u00e9\\ud83d\\ude80\\ud800x\",\"version\":401,"
                              "\"x\":[{},[1,{\"a\":[]}]]} ",
                              &header, NULL),
             RMF_OK);
    CHECK_EQ(header.code, 11);
    CHECK_EQ(header.flag, 2);
    CHECK_EQ(header.language, 9);
    CHECK_EQ(header.opaque, -5);
    CHECK_EQ(header.version, 401);
    CHECK(header.has_remark);
    CHECK_BYTES(header.remark.ptr, header.remark.len,
                "a\n\xc3\xa9\xf0\x9f\x9a\x80\xef\xbf\xbdx");
    CHECK_EQ(header.ext_count, 4);
    CHECK_BYTES(header.ext[1].value.ptr, header.ext[1].value.len, "2");
    CHECK_BYTES(header.ext[2].value.ptr, header.ext[2].value.len, "true");
    CHECK_BYTES(header.ext[3].key.ptr, header.ext[3].key.len, "e");
    CHECK_EQ(header.ext[3].value.len, 0);
    /* Reuse starts from nothing. */
    CHECK_EQ(decode_json_text("{\"code\":1}", &header, NULL), RMF_OK);
    CHECK(!header.has_remark);
    CHECK_EQ(header.ext_count, 0);
    CHECK_EQ(header.language, RMF_LANGUAGE_JAVA);
    rmf_header_clear(&header);
}

static void a_wrong_json_header_is_refused_with_its_place(void) {
    static const struct {
        const char *text;
        enum rmf_status status;
        size_t position;
    } cases[] = {
        {"", RMF_ERR_SYNTAX, 0},
        {"null", RMF_ERR_SYNTAX, 0},
        {"{", RMF_ERR_SYNTAX, 1},
        {"{}", RMF_ERR_NUMBER, 2},
        {"{\"code\":}", RMF_ERR_NUMBER, 8},
        {"{\"code\":1", RMF_ERR_SYNTAX, 9},
        {"{\"code\":1}x", RMF_ERR_SYNTAX, 10},
        {"{\"code\":1.5}", RMF_ERR_NUMBER, 8},
        {"{\"code\":01}", RMF_ERR_SYNTAX, 9},
        {"{\"code\":4294967296}", RMF_ERR_NUMBER, 8},
        {"{\"code\":12345678901234567890}", RMF_ERR_NUMBER, 8},
        {"{\"code\":1,\"x\":--1}", RMF_ERR_SYNTAX, 14},
        {"{\"code\":1,\"x\":\"\x01\"}", RMF_ERR_SYNTAX, 15},
        {"{\"code\":1,\"extFields\":{\"a\":[]}}", RMF_ERR_SYNTAX, 27},
    };
    struct rmf_header header;
    rmf_header_init(&header);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rmf_error error;
        CHECK_EQ(decode_json_text(cases[i].text, &header, &error), cases[i].status);
        CHECK_EQ(error.position, cases[i].position);
        CHECK(decode_json_text(cases[i].text, &header, NULL) < 0);
    }
    rmf_header_clear(&header);
}

static void nesting_is_bounded(void) {
    char text[400];
    for (size_t depth = RMF_JSON_MAX_DEPTH; depth <= RMF_JSON_MAX_DEPTH + 1; depth++) {
        size_t used = (size_t)snprintf(text, sizeof text, "{\"code\":1,\"x\":");
        memset(text + used, '[', depth);
        memset(text + used + depth, ']', depth);
        memcpy(text + used + 2 * depth, "}", 2);
        struct rmf_header header;
        rmf_header_init(&header);
        CHECK_EQ(decode_json_text(text, &header, NULL),
                 depth <= RMF_JSON_MAX_DEPTH ? RMF_OK : RMF_ERR_DEPTH);
        rmf_header_clear(&header);
    }
}

static const uint8_t compact[] = {
    0x00, 0x69, 0x00, 0x01, 0x91, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0,   0,   2,   'h', 'i', 0, 0,
    0,    0x14, 0,    5,    't',  'o', 'p', 'i', 'c', 0, 0, 0, 2, 'T', '1', 0,   1,   'x', 0, 0,
    0,    0};

static void a_compact_header_is_read(void) {
    struct rmf_header header;
    rmf_header_init(&header);
    uint8_t *data = exact_copy(compact, sizeof compact);
    CHECK_EQ(rmf_header_decode_compact(borrow(data, sizeof compact), &header, NULL), RMF_OK);
    CHECK_EQ(header.code, 105);
    CHECK_EQ(header.version, 401);
    CHECK_EQ(header.opaque, 5);
    CHECK_BYTES(header.remark.ptr, header.remark.len, "hi");
    CHECK_EQ(header.ext_count, 1);
    CHECK_BYTES(header.ext[0].key.ptr, header.ext[0].key.len, "topic");
    CHECK_BYTES(header.ext[0].value.ptr, header.ext[0].value.len, "T1");
    free(data);
    rmf_header_clear(&header);
}

static void every_prefix_of_a_compact_header_is_refused(void) {
    struct rmf_header header;
    rmf_header_init(&header);
    for (size_t size = 0; size < sizeof compact; size++) {
        uint8_t *data = exact_copy(compact, size);
        struct rmf_error error;
        CHECK(rmf_header_decode_compact(borrow(data, size), &header, &error) < 0);
        CHECK(error.position <= size);
        free(data);
    }
    rmf_header_clear(&header);
}

static bool decode_and_encode(void) {
    struct rmf_header header;
    struct rmf_buffer out;
    rmf_header_init(&header);
    rmf_buffer_init(&out);
    char text[1500];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"code\":1,\"remark\":\"\\t\",\"extFields\":{");
    for (int i = 0; i < 40; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"k%d\":\"v\\u0001\"",
                                 i == 0 ? "" : ",", i);
    }
    (void)snprintf(text + used, sizeof text - used, "}}");
    enum rmf_status status = decode_json_text(text, &header, NULL);
    if (status == RMF_OK) {
        CHECK_EQ(header.ext_count, 40);
        status = rmf_header_encode_json(&header, &out);
    }
    struct rmf_header again;
    rmf_header_init(&again);
    if (status == RMF_OK) {
        status = rmf_header_decode_json(borrow(out.data, out.size), &again, NULL);
    }
    if (status == RMF_OK) {
        CHECK_EQ(again.ext_count, 40);
        CHECK_BYTES(again.ext[39].value.ptr, again.ext[39].value.len, "v\x01");
        CHECK_BYTES(again.remark.ptr, again.remark.len, "\t");
        out.size = 0;
        status = rmf_header_encode_compact(&header, &out, NULL);
    }
    if (status == RMF_OK) {
        status = rmf_header_decode_compact(borrow(out.data, out.size), &again, NULL);
    }
    if (status == RMF_OK) {
        CHECK_EQ(again.ext_count, 40);
        CHECK_BYTES(again.ext[39].key.ptr, again.ext[39].key.len, "k39");
    }
    CHECK(status == RMF_OK || status == RMF_ERR_NO_MEMORY);
    rmf_header_clear(&again);
    rmf_header_clear(&header);
    rmf_buffer_clear(&out);
    return status == RMF_OK;
}

static void headers_survive_each_failed_allocation(void) {
    each_allocation_fails(decode_and_encode);
}

static void what_does_not_fit_a_compact_header_is_refused(void) {
    struct rmf_header header;
    struct rmf_buffer out;
    struct rmf_error error;
    rmf_header_init(&header);
    rmf_buffer_init(&out);
    header.code = 32768;
    CHECK_EQ(rmf_header_encode_compact(&header, &out, &error), RMF_ERR_NUMBER);
    header.code = -32768;
    header.version = 32768;
    CHECK_EQ(rmf_header_encode_compact(&header, &out, &error), RMF_ERR_NUMBER);
    header.version = 401;
    uint8_t *key = malloc(40000);
    CHECK(key != NULL);
    memset(key, 'k', 40000);
    CHECK_EQ(rmf_header_add_ext(&header, borrow(key, 32768), borrow(key, 1)), RMF_OK);
    CHECK_EQ(rmf_header_encode_compact(&header, &out, &error), RMF_ERR_LENGTH);
    header.ext[0].key.len = 32767;
    CHECK_EQ(rmf_header_encode_compact(&header, &out, &error), RMF_OK);
    CHECK_EQ(out.size, 21 + 6 + 32767 + 1);
    free(key);
    rmf_header_clear(&header);
    rmf_buffer_clear(&out);
}

static void languages_have_names_and_numbers(void) {
    for (int32_t i = 0; i < RMF_LANGUAGE_COUNT; i++) {
        const char *name = rmf_language_name(i);
        CHECK(name != NULL);
        CHECK_EQ(rmf_language_of(borrow((const uint8_t *)name, strlen(name))), i);
    }
    CHECK(rmf_language_name(-1) == NULL);
    CHECK(rmf_language_name(RMF_LANGUAGE_COUNT) == NULL);
    CHECK_EQ(rmf_language_of(SLICE("")), RMF_LANGUAGE_UNKNOWN);
    CHECK_EQ(rmf_language_of(SLICE("JAV")), RMF_LANGUAGE_UNKNOWN);
}

const struct test tests[] = {
    {"a JSON header is read", a_json_header_is_read},
    {"a wrong JSON header is refused with its place", a_wrong_json_header_is_refused_with_its_place},
    {"nesting is bounded", nesting_is_bounded},
    {"a compact header is read", a_compact_header_is_read},
    {"every prefix of a compact header is refused", every_prefix_of_a_compact_header_is_refused},
    {"headers survive each failed allocation", headers_survive_each_failed_allocation},
    {"what does not fit a compact header is refused", what_does_not_fit_a_compact_header_is_refused},
    {"languages have names and numbers", languages_have_names_and_numbers},
    {NULL, NULL},
};
