/* Tag codes, tag sets, and UTF-8 that may be malformed. */
#include "harness.h"
#include "rmf_tags.h"
#include "rmf_utf8.h"

static void recorded_tags_have_the_recorded_code(void) {
    CHECK_EQ(rmf_tag_code(SLICE("")), 0);
    CHECK_EQ(rmf_tag_code(SLICE("TagA")), 2598919);
    CHECK_EQ(rmf_tag_code(SLICE("TagB")), 2598920);
    CHECK_EQ(rmf_tag_code(SLICE("\xe4\xb8\xad\xe6\x96\x87")), 646394);
    CHECK_EQ(rmf_tag_code(SLICE("\xf0\x9f\x9a\x80")), 1773027);
    CHECK_EQ(rmf_tag_code(SLICE("polygenelubricants")), INT32_MIN);
    CHECK_EQ(rmf_tag_code(SLICE("Aa")), rmf_tag_code(SLICE("BB")));
}

static void a_set_matches_exact_texts_only(void) {
    struct rmf_slice tags[] = {SLICE("Aa"), SLICE("TagA"), SLICE("\xe4\xbd\xa0"),
                               SLICE("a tag whose text is a good deal longer than sixty-three bytes "
                                     "and still a tag")};
    struct rmf_tag_set *set = rmf_tag_set_new(tags, 4);
    CHECK(set != NULL);
    CHECK_EQ(rmf_tag_set_count(set), 4);
    for (size_t i = 0; i < 4; i++) {
        CHECK(rmf_tag_set_has(set, tags[i]));
        struct rmf_slice shorter = {tags[i].ptr, tags[i].len - 1};
        CHECK(!rmf_tag_set_has(set, shorter));
    }
    CHECK(!rmf_tag_set_has(set, SLICE("BB")));
    CHECK(!rmf_tag_set_has(set, SLICE("")));
    CHECK(!rmf_tag_set_has(set, (struct rmf_slice){NULL, 0}));
    rmf_tag_set_free(set);
    rmf_tag_set_free(NULL);
}

static void an_empty_set_matches_nothing(void) {
    struct rmf_tag_set *set = rmf_tag_set_new(NULL, 0);
    CHECK(set != NULL);
    CHECK(!rmf_tag_set_has(set, SLICE("")));
    CHECK(!rmf_tag_set_has(set, SLICE("TagA")));
    rmf_tag_set_free(set);
}

static bool make_a_set(void) {
    struct rmf_slice tags[] = {SLICE("A"), SLICE("B")};
    struct rmf_tag_set *set = rmf_tag_set_new(tags, 2);
    bool ok = set != NULL;
    rmf_tag_set_free(set);
    return ok;
}

static void a_set_survives_each_failed_allocation(void) { each_allocation_fails(make_a_set); }

static void malformed_parts_are_replaced_one_by_one(void) {
    static const struct {
        const char *text;
        size_t length;
        size_t replaced;
    } cases[] = {
        {"\x80", 1, 3},
        {"\xc3", 1, 3},
        {"\xc3(", 2, 4},
        {"\xc0\xaf", 2, 6},
        {"\xe2\x82", 2, 3},
        {"\xe0\x9f\x80", 3, 9},
        {"\xed\xa0\x80", 3, 9},
        {"\xf0\x9f\x9a", 3, 3},
        {"\xf4\x90\x80\x80", 4, 12},
        {"\xf5\x80", 2, 6},
        {"ok\xff!", 4, 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t *copy = exact_copy(cases[i].text, cases[i].length);
        struct rmf_slice text = {copy, cases[i].length};
        CHECK(!rmf_utf8_is_valid(text));
        CHECK(!rmf_utf8_is_ascii(text));
        CHECK_EQ(rmf_utf8_replaced_bytes(text), cases[i].replaced);
        uint8_t out[12];
        rmf_utf8_write_replaced(text, out);
        CHECK(rmf_utf8_is_valid((struct rmf_slice){out, cases[i].replaced}));
        free(copy);
    }
}

static void every_code_point_survives_writing(void) {
    for (uint32_t point = 0; point < 0x110000; point += point < 0x900 ? 1 : 97) {
        if (point >= 0xD800 && point < 0xE000) {
            continue;
        }
        uint8_t out[4];
        struct rmf_slice text = {out, rmf_utf8_write(point, out)};
        size_t pos = 0;
        bool valid = true;
        CHECK_EQ(rmf_utf8_next(text, &pos, &valid), point);
        CHECK(valid && pos == text.len);
    }
}

static void ascii_is_seen_at_every_length(void) {
    uint8_t bytes[40];
    memset(bytes, 'a', sizeof bytes);
    for (size_t size = 0; size < sizeof bytes; size++) {
        uint8_t *copy = exact_copy(bytes, size);
        struct rmf_slice text = {copy, size};
        CHECK(rmf_utf8_is_ascii(text));
        for (size_t i = 0; i < size; i++) {
            copy[i] = 0x80;
            CHECK(!rmf_utf8_is_ascii(text));
            copy[i] = 'a';
        }
        free(copy);
    }
}

const struct test tests[] = {
    {"recorded tags have the recorded code", recorded_tags_have_the_recorded_code},
    {"a set matches exact texts only", a_set_matches_exact_texts_only},
    {"an empty set matches nothing", an_empty_set_matches_nothing},
    {"a set survives each failed allocation", a_set_survives_each_failed_allocation},
    {"malformed parts are replaced one by one", malformed_parts_are_replaced_one_by_one},
    {"every code point survives writing", every_code_point_survives_writing},
    {"ascii is seen at every length", ascii_is_seen_at_every_length},
    {NULL, NULL},
};
