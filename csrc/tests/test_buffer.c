/* Heap door, cursor and output buffer. */
#include "harness.h"
#include "rmf_alloc.h"
#include "rmf_buffer.h"
#include "rmf_cursor.h"

static void a_product_that_overflows_is_refused(void) {
    CHECK(rmf_alloc_array(SIZE_MAX / 2, 3) == NULL);
    CHECK(rmf_alloc_array(SIZE_MAX, SIZE_MAX) == NULL);
    void *block = rmf_alloc_array(3, 0);
    CHECK(block != NULL);
    CHECK(rmf_realloc_array(block, SIZE_MAX / 2, 3) == NULL);
    rmf_free(block);
    rmf_free(NULL);
}

static void a_read_that_does_not_fit_does_not_move(void) {
    uint8_t *data = exact_copy("\x80\x00\x00\x00\x00\x00\x00\x01", 8);
    uint8_t u8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    const uint8_t *bytes;
    for (size_t size = 0; size <= 8; size++) {
        struct rmf_cursor c = rmf_cursor_of(data, size);
        CHECK(rmf_cursor_i64(&c, &i64) == (size >= 8));
        c.pos = 0;
        CHECK(rmf_cursor_i32(&c, &i32) == (size >= 4));
        c.pos = 0;
        CHECK(rmf_cursor_i16(&c, &i16) == (size >= 2));
        c.pos = 0;
        CHECK(rmf_cursor_u8(&c, &u8) == (size >= 1));
        c.pos = 0;
        CHECK(!rmf_cursor_bytes(&c, size + 1, &bytes));
        CHECK(!rmf_cursor_bytes(&c, SIZE_MAX, &bytes));
        CHECK_EQ(c.pos, 0);
        CHECK(rmf_cursor_bytes(&c, size, &bytes));
        CHECK_EQ(rmf_cursor_left(&c), 0);
        CHECK(!rmf_cursor_u8(&c, &u8));
    }
    struct rmf_cursor c = rmf_cursor_of(data, 8);
    CHECK(rmf_cursor_i64(&c, &i64));
    CHECK_EQ(i64, INT64_MIN + 1);
    c.pos = 0;
    CHECK(rmf_cursor_i32(&c, &i32));
    CHECK_EQ(i32, INT32_MIN);
    c.pos = 0;
    CHECK(rmf_cursor_i16(&c, &i16));
    CHECK_EQ(i16, INT16_MIN);
    c.pos = 0;
    CHECK(rmf_cursor_u8(&c, &u8));
    CHECK_EQ(u8, 0x80);
    free(data);
}

static void a_wire_length_is_taken_only_within_its_limit(void) {
    size_t out = 77;
    CHECK(!rmf_wire_len(-1, 100, &out));
    CHECK(!rmf_wire_len(INT64_MIN, SIZE_MAX, &out));
    CHECK(!rmf_wire_len(101, 100, &out));
    CHECK_EQ(out, 77);
    CHECK(rmf_wire_len(100, 100, &out));
    CHECK_EQ(out, 100);
    CHECK(rmf_wire_len(0, 0, &out));
    CHECK_EQ(out, 0);
}

static void stored_integers_are_loaded_again(void) {
    uint8_t *data = exact_copy("        ", 8);
    rmf_store_be16_unsafe(data, 0xFFFE);
    CHECK_EQ(rmf_load_be16_unsafe(data), 0xFFFE);
    rmf_store_be32_unsafe(data, 0x80000001u);
    CHECK_EQ(rmf_load_be32_unsafe(data), 0x80000001u);
    rmf_store_be64_unsafe(data, 0x8000000000000001u);
    CHECK(rmf_load_be64_unsafe(data) == 0x8000000000000001u);
    CHECK_EQ(data[0], 0x80);
    CHECK_EQ(data[7], 1);
    free(data);
}

static bool append_much(void) {
    struct rmf_buffer buffer;
    rmf_buffer_init(&buffer);
    bool ok = true;
    for (int i = 0; ok && i < 3000; i++) {
        size_t before = buffer.size;
        enum rmf_status status = i % 3 == 0 ? rmf_buffer_append_byte(&buffer, (uint8_t)i)
                                            : rmf_buffer_append(&buffer, "abcde", 5);
        ok = status == RMF_OK;
        CHECK(ok || status == RMF_ERR_NO_MEMORY);
        CHECK(ok || buffer.size == before);
        CHECK(buffer.size <= buffer.capacity);
    }
    rmf_buffer_clear(&buffer);
    CHECK_EQ(buffer.size, 0);
    return ok;
}

static void a_buffer_grows_or_stays_as_it_was(void) { each_allocation_fails(append_much); }

static void a_buffer_keeps_what_was_appended(void) {
    struct rmf_buffer buffer;
    rmf_buffer_init(&buffer);
    CHECK_EQ(rmf_buffer_append(&buffer, NULL, 0), RMF_OK);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(rmf_buffer_append_byte(&buffer, (uint8_t)(i * 7)), RMF_OK);
    }
    CHECK_EQ(buffer.size, 1000);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(buffer.data[i], (uint8_t)(i * 7));
    }
    CHECK_EQ(rmf_buffer_reserve(&buffer, SIZE_MAX), RMF_ERR_NO_MEMORY);
    CHECK_EQ(rmf_buffer_reserve(&buffer, SIZE_MAX / 2), RMF_ERR_NO_MEMORY);
    CHECK_EQ(buffer.size, 1000);
    rmf_buffer_clear(&buffer);
}

const struct test tests[] = {
    {"a product that overflows is refused", a_product_that_overflows_is_refused},
    {"a read that does not fit does not move", a_read_that_does_not_fit_does_not_move},
    {"a wire length is taken only within its limit", a_wire_length_is_taken_only_within_its_limit},
    {"stored integers are loaded again", stored_integers_are_loaded_again},
    {"a buffer grows or stays as it was", a_buffer_grows_or_stays_as_it_was},
    {"a buffer keeps what was appended", a_buffer_keeps_what_was_appended},
    {NULL, NULL},
};
