/* Writes a decoded header in both forms and reads it back. */
#ifndef RMF_FUZZ_HEADER_AGAIN_H
#define RMF_FUZZ_HEADER_AGAIN_H

#include "fuzz.h"
#include "rmf_header.h"

static inline void check_same_text(struct rmf_slice a, struct rmf_slice b) {
    CHECK_EQ(a.len, b.len);
    CHECK(a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline void header_again(const struct rmf_header *header) {
    struct rmf_header again;
    struct rmf_buffer out;
    rmf_header_init(&again);
    rmf_buffer_init(&out);
    CHECK_EQ(rmf_header_encode_json(header, &out), RMF_OK);
    CHECK_EQ(rmf_header_decode_json((struct rmf_slice){out.data, out.size}, &again, NULL), RMF_OK);
    CHECK_EQ(again.code, header->code);
    CHECK_EQ(again.version, header->version);
    CHECK_EQ(again.opaque, header->opaque);
    CHECK_EQ(again.flag, header->flag);
    CHECK_EQ(again.has_remark, header->has_remark);
    check_same_text(again.remark, header->remark);
    CHECK_EQ(again.ext_count, header->ext_count);
    size_t texts = 0;
    for (size_t i = 0; i < again.ext_count; i++) {
        check_same_text(again.ext[i].key, header->ext[i].key);
        check_same_text(again.ext[i].value, header->ext[i].value);
        texts += again.ext[i].key.len > 0 && again.ext[i].value.len > 0 ? 1 : 0;
    }
    out.size = 0;
    if (rmf_header_encode_compact(header, &out, NULL) == RMF_OK) {
        CHECK_EQ(rmf_header_decode_compact((struct rmf_slice){out.data, out.size}, &again, NULL),
                 RMF_OK);
        CHECK_EQ(again.code, header->code);
        CHECK_EQ(again.opaque, header->opaque);
        CHECK_EQ(again.ext_count, texts);
    }
    rmf_header_clear(&again);
    rmf_buffer_clear(&out);
}

#endif
