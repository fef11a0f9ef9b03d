/* A stream in pieces whose sizes come from the input: first byte says how pieces grow. The frames that
 * come out must be those of the same stream in one piece. */
#include "fuzz.h"
#include "rmf_alloc.h"
#include "rmf_frame.h"

#define MAX_FRAME (1u << 20)

/* Feeds and takes; adds up what came out. Returns the status that ended it. */
static enum rmf_status split(const uint8_t *data, size_t size, struct dice *pieces, uint64_t *sum) {
    struct rmf_splitter *splitter = rmf_splitter_new(MAX_FRAME);
    CHECK(splitter != NULL);
    enum rmf_status status = RMF_OK;
    size_t done = 0;
    size_t taken = 0;
    *sum = 0;
    while (status >= 0 && done < size) {
        uint8_t *room;
        size_t room_bytes;
        struct rmf_error error;
        status = rmf_splitter_reserve(splitter, &room, &room_bytes, &error);
        if (status < 0) {
            break;
        }
        CHECK(room_bytes > 0);
        size_t piece = size - done;
        if (pieces != NULL) {
            size_t wanted = dice_byte(pieces);
            wanted = wanted < 128 ? wanted + 1 : (wanted - 127) * 512;
            piece = piece < wanted ? piece : wanted;
        }
        piece = piece < room_bytes ? piece : room_bytes;
        memcpy(room, data + done, piece);
        CHECK_EQ(rmf_splitter_commit(splitter, piece, &error), RMF_OK);
        done += piece;
        for (;;) {
            uint8_t *frame;
            size_t frame_bytes;
            status = rmf_splitter_take(splitter, &frame, &frame_bytes, &error);
            if (status != RMF_OK) {
                break;
            }
            taken += frame_bytes;
            CHECK(frame_bytes >= 8 && frame_bytes <= MAX_FRAME);
            struct rmf_frame_parts parts;
            if (rmf_frame_split(frame, frame_bytes, MAX_FRAME, &parts, &error) == RMF_OK) {
                CHECK_EQ(8 + parts.header.len + parts.body.len, frame_bytes);
            }
            for (size_t i = 0; i < frame_bytes; i++) {
                *sum = *sum * 31 + frame[i];
            }
            rmf_free(frame);
        }
        if (status >= 0) {
            CHECK_EQ(taken + rmf_splitter_pending(splitter), done);
        }
    }
    if (status < 0) {
        uint8_t *room;
        size_t room_bytes;
        CHECK_EQ(rmf_splitter_reserve(splitter, &room, &room_bytes, NULL), RMF_ERR_CORRUPT);
        rmf_splitter_reset(splitter);
        CHECK_EQ(rmf_splitter_reserve(splitter, &room, &room_bytes, NULL), RMF_OK);
    }
    rmf_splitter_free(splitter);
    return status < 0 ? RMF_ERR_CORRUPT : RMF_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dice pieces = {data, size};
    uint64_t whole;
    uint64_t cut;
    enum rmf_status first = split(data, size, NULL, &whole);
    enum rmf_status second = split(data, size, &pieces, &cut);
    CHECK_EQ(first, second);
    CHECK(whole == cut);
    return 0;
}
