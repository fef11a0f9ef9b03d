/* Frames and the splitter of a stream. */
#include "harness.h"
#include "rmf_alloc.h"
#include "rmf_frame.h"

#define MAX RMF_FRAME_MAX_BYTES_DEFAULT

/* A frame with an empty JSON header of `header` bytes and a body of `body` bytes, both of one letter. */
static uint8_t *make_frame(size_t header, size_t body, uint8_t fill, size_t *size) {
    *size = RMF_FRAME_FIXED_BYTES + header + body;
    uint8_t *frame = malloc(*size);
    CHECK(frame != NULL);
    struct rmf_error error;
    CHECK_EQ(rmf_frame_write_fixed(RMF_SERIALIZE_JSON, header, body, MAX, frame, &error), RMF_OK);
    memset(frame + RMF_FRAME_FIXED_BYTES, fill, header + body);
    return frame;
}

/* Feeds bytes in pieces of at most `step`; RMF_OK or the first error. */
static enum rmf_status feed(struct rmf_splitter *splitter, const uint8_t *data, size_t size,
                            size_t step) {
    size_t done = 0;
    while (done < size) {
        uint8_t *room;
        size_t room_bytes;
        enum rmf_status status = rmf_splitter_reserve(splitter, &room, &room_bytes, NULL);
        if (status != RMF_OK) {
            return status;
        }
        CHECK(room_bytes > 0);
        size_t count = size - done < step ? size - done : step;
        count = count < room_bytes ? count : room_bytes;
        memcpy(room, data + done, count);
        status = rmf_splitter_commit(splitter, count, NULL);
        if (status != RMF_OK) {
            return status;
        }
        done += count;
    }
    return RMF_OK;
}

static void a_frame_splits_into_header_and_body(void) {
    size_t size;
    uint8_t *frame = make_frame(3, 5, 'x', &size);
    struct rmf_frame_parts parts;
    CHECK_EQ(rmf_frame_split(frame, size, MAX, &parts, NULL), RMF_OK);
    CHECK_EQ(parts.serialize_type, RMF_SERIALIZE_JSON);
    CHECK_BYTES(parts.header.ptr, parts.header.len, "xxx");
    CHECK_BYTES(parts.body.ptr, parts.body.len, "xxxxx");
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *shorter = exact_copy(frame, cut);
        CHECK(rmf_frame_split(shorter, cut, MAX, &parts, NULL) < 0);
        free(shorter);
    }
    free(frame);
}

static void a_wrong_frame_is_refused_with_its_place(void) {
    static const struct {
        const char *bytes;
        enum rmf_status status;
        size_t position;
    } cases[] = {
        {"\x00\x00\x00\x03\x00\x00\x00\x00", RMF_ERR_LENGTH, 0},
        {"\xff\xff\xff\xff\x00\x00\x00\x00", RMF_ERR_LENGTH, 0},
        {"\x80\x00\x00\x00\x00\x00\x00\x00", RMF_ERR_LENGTH, 0},
        {"\x00\xff\xff\xfd\x00\x00\x00\x00", RMF_ERR_LENGTH, 0},
        {"\x00\x00\x00\x05\x00\x00\x00\x00", RMF_ERR_LENGTH, 0},
        {"\x00\x00\x00\x04\x02\x00\x00\x00", RMF_ERR_MAGIC, 4},
        {"\x00\x00\x00\x04\xff\x00\x00\x00", RMF_ERR_MAGIC, 4},
        {"\x00\x00\x00\x04\x00\x00\x00\x01", RMF_ERR_LENGTH, 5},
        {"\x00\x00\x00\x04\x01\xff\xff\xff", RMF_ERR_LENGTH, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rmf_frame_parts parts;
        struct rmf_error error;
        uint8_t *frame = exact_copy(cases[i].bytes, 8);
        CHECK_EQ(rmf_frame_split(frame, 8, MAX, &parts, &error), cases[i].status);
        CHECK_EQ(error.status, cases[i].status);
        CHECK_EQ(error.position, cases[i].position);
        CHECK(error.field != NULL);
        free(frame);
    }
}

static void a_frame_over_its_limit_is_not_announced(void) {
    uint8_t out[8];
    CHECK_EQ(rmf_frame_write_fixed(0, 10, MAX - 18, MAX, out, NULL), RMF_OK);
    CHECK_EQ(rmf_frame_write_fixed(0, 10, MAX - 17, MAX, out, NULL), RMF_ERR_LENGTH);
    CHECK_EQ(rmf_frame_write_fixed(0, 10, SIZE_MAX, MAX, out, NULL), RMF_ERR_LENGTH);
    CHECK_EQ(rmf_frame_write_fixed(0, RMF_HEADER_MAX_BYTES, 0, MAX, out, NULL), RMF_OK);
    CHECK_EQ(rmf_frame_write_fixed(0, RMF_HEADER_MAX_BYTES + 1, 0, MAX, out, NULL), RMF_ERR_LENGTH);
    CHECK_EQ(rmf_frame_write_fixed(0, SIZE_MAX, 0, MAX, out, NULL), RMF_ERR_LENGTH);
    CHECK_EQ(rmf_frame_write_fixed(0, 0, 0, 7, out, NULL), RMF_ERR_LENGTH);
}

/* Sends frames of many sizes in pieces of `step`, taking after each piece or only at the end. */
static bool send_frames(size_t step, bool take_at_once) {
    static const size_t bodies[] = {0,     1,      100,    98295,  98296,  98297,
                                    70000, 131072, 262144, 700000, 300000, 3};
    const size_t count = sizeof bodies / sizeof bodies[0];
    struct rmf_splitter *splitter = rmf_splitter_new(MAX);
    if (splitter == NULL) {
        return false;
    }
    bool ok = true;
    size_t taken = 0;
    for (size_t i = 0; ok && i <= count; i++) {
        size_t size = 0;
        uint8_t *frame = i < count ? make_frame(0, bodies[i], (uint8_t)('a' + i), &size) : NULL;
        size_t done = 0;
        while (ok && (done < size || i == count)) {
            size_t piece = size - done < step ? size - done : step;
            ok = feed(splitter, frame + done, piece, step) == RMF_OK;
            done += piece;
            while (ok && (take_at_once || i == count)) {
                uint8_t *found;
                size_t found_bytes;
                enum rmf_status status = rmf_splitter_take(splitter, &found, &found_bytes, NULL);
                if (status == RMF_NEED_MORE) {
                    break;
                }
                if (status != RMF_OK) {
                    CHECK_EQ(status, RMF_ERR_NO_MEMORY);
                    ok = false;
                    break;
                }
                CHECK(taken < count);
                CHECK_EQ(found_bytes, bodies[taken] + 8);
                for (size_t k = 8; k < found_bytes; k += found_bytes / 50 + 1) {
                    CHECK_EQ(found[k], 'a' + taken);
                }
                CHECK(found_bytes == 8 || found[found_bytes - 1] == 'a' + taken);
                rmf_free(found);
                taken++;
            }
            if (i == count) {
                break;
            }
        }
        free(frame);
    }
    CHECK(!ok || taken == count);
    CHECK(!ok || rmf_splitter_pending(splitter) == 0);
    rmf_splitter_free(splitter);
    return ok;
}

static void a_stream_gives_its_frames_in_any_pieces(void) {
    static const size_t steps[] = {1009, 8192, 65536, 131072, 200003, 1u << 22};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        CHECK(send_frames(steps[i], true));
        CHECK(send_frames(steps[i], false));
    }
}

static bool send_in_large_pieces(void) { return send_frames(200003, true); }
static bool send_and_take_late(void) { return send_frames(1u << 22, false); }

static void a_splitter_survives_each_failed_allocation(void) {
    each_allocation_fails(send_in_large_pieces);
    each_allocation_fails(send_and_take_late);
}

static void a_failed_take_can_be_repeated(void) {
    size_t size;
    uint8_t *frame = make_frame(2, 20, 'q', &size);
    struct rmf_splitter *splitter = rmf_splitter_new(MAX);
    CHECK(splitter != NULL);
    CHECK_EQ(feed(splitter, frame, size, size), RMF_OK);
    uint8_t *found;
    size_t found_bytes;
    heap_fail_at(0);
    CHECK_EQ(rmf_splitter_take(splitter, &found, &found_bytes, NULL), RMF_ERR_NO_MEMORY);
    heap_fail_at(-1);
    CHECK_EQ(rmf_splitter_take(splitter, &found, &found_bytes, NULL), RMF_OK);
    CHECK_EQ(found_bytes, size);
    CHECK(memcmp(found, frame, size) == 0);
    rmf_free(found);
    rmf_splitter_free(splitter);
    free(frame);
}

static void an_announced_length_alone_costs_nothing(void) {
    struct rmf_splitter *splitter = rmf_splitter_new(MAX);
    CHECK(splitter != NULL);
    heap_reset_peak();
    CHECK_EQ(feed(splitter, (const uint8_t *)"\x00\xff\xff\xfc", 4, 4), RMF_OK);
    uint8_t *room;
    size_t room_bytes;
    CHECK_EQ(rmf_splitter_reserve(splitter, &room, &room_bytes, NULL), RMF_OK);
    CHECK(heap_peak() < 1u << 20);
    rmf_splitter_free(splitter);
}

static void a_corrupt_stream_is_refused_until_reset(void) {
    struct rmf_splitter *splitter = rmf_splitter_new(MAX);
    CHECK(splitter != NULL);
    uint8_t *frame;
    size_t frame_bytes;
    uint8_t *room;
    size_t room_bytes;
    CHECK_EQ(feed(splitter, (const uint8_t *)"\xff\xff\xff\xff", 4, 4), RMF_OK);
    CHECK_EQ(rmf_splitter_take(splitter, &frame, &frame_bytes, NULL), RMF_ERR_LENGTH);
    CHECK_EQ(rmf_splitter_take(splitter, &frame, &frame_bytes, NULL), RMF_ERR_CORRUPT);
    CHECK_EQ(rmf_splitter_reserve(splitter, &room, &room_bytes, NULL), RMF_ERR_CORRUPT);
    CHECK_EQ(rmf_splitter_commit(splitter, 0, NULL), RMF_ERR_CORRUPT);
    rmf_splitter_reset(splitter);
    CHECK_EQ(rmf_splitter_pending(splitter), 0);
    size_t size;
    uint8_t *good = make_frame(0, 1, 'g', &size);
    CHECK_EQ(feed(splitter, good, size, 1), RMF_OK);
    CHECK_EQ(rmf_splitter_take(splitter, &frame, &frame_bytes, NULL), RMF_OK);
    rmf_free(frame);
    free(good);
    rmf_splitter_free(splitter);
    rmf_splitter_free(NULL);
}

static void more_than_the_lent_room_is_refused(void) {
    struct rmf_splitter *splitter = rmf_splitter_new(MAX);
    CHECK(splitter != NULL);
    CHECK_EQ(rmf_splitter_commit(splitter, 1, NULL), RMF_ERR_ARGUMENT);
    uint8_t *room;
    size_t room_bytes;
    CHECK_EQ(rmf_splitter_reserve(splitter, &room, &room_bytes, NULL), RMF_OK);
    CHECK_EQ(rmf_splitter_commit(splitter, room_bytes + 1, NULL), RMF_ERR_ARGUMENT);
    CHECK_EQ(rmf_splitter_pending(splitter), 0);
    rmf_splitter_free(splitter);
}

const struct test tests[] = {
    {"a frame splits into header and body", a_frame_splits_into_header_and_body},
    {"a wrong frame is refused with its place", a_wrong_frame_is_refused_with_its_place},
    {"a frame over its limit is not announced", a_frame_over_its_limit_is_not_announced},
    {"a stream gives its frames in any pieces", a_stream_gives_its_frames_in_any_pieces},
    {"a splitter survives each failed allocation", a_splitter_survives_each_failed_allocation},
    {"a failed take can be repeated", a_failed_take_can_be_repeated},
    {"an announced length alone costs nothing", an_announced_length_alone_costs_nothing},
    {"a corrupt stream is refused until reset", a_corrupt_stream_is_refused_until_reset},
    {"more than the lent room is refused", more_than_the_lent_room_is_refused},
    {NULL, NULL},
};
