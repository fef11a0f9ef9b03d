/* The body of a batch send: what was read can be written again and read again. */
#include "fuzz.h"
#include "rmf_encode.h"
#include "rmf_message.h"

static void write_again(struct rmf_buffer *out, const struct rmf_message *m) {
    size_t start;
    size_t properties_start;
    struct rmf_property entry;
    struct rmf_slice properties = rmf_message_properties(m);
    size_t pos = 0;
    struct rmf_error error;
    CHECK_EQ(rmf_encode_element_begin(out, rmf_message_flag(m), rmf_message_body(m), &start,
                                      &properties_start, &error),
             RMF_OK);
    while (rmf_properties_next(properties, &pos, &entry)) {
        /* A value may hold a further \x01, which is read but never written. */
        enum rmf_status status =
            rmf_encode_property(out, properties_start, entry.name, entry.value, &error);
        CHECK(status == RMF_OK || status == RMF_ERR_SYNTAX);
    }
    CHECK_EQ(rmf_encode_element_end(out, start, properties_start, &error), RMF_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rmf_slice body = {data, size};
    struct rmf_message outer;
    struct rmf_message m;
    struct rmf_error error;
    struct rmf_buffer out;
    size_t position = 0;
    size_t count = 0;
    memset(&outer, 0, sizeof outer);
    rmf_buffer_init(&out);
    enum rmf_status status;
    while ((status = rmf_batch_element_decode(body, position, &outer, 0, &m, &position, &error)) ==
           RMF_OK) {
        write_again(&out, &m);
        count++;
        CHECK(count <= size / RMF_BATCH_ELEMENT_MIN_BYTES);
    }
    if (status == RMF_NEED_MORE) {
        CHECK_EQ(position, size);
    } else {
        CHECK(error.position <= size && error.field != NULL);
    }
    struct rmf_slice again = {out.data, out.size};
    position = 0;
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(rmf_batch_element_decode(again, position, &outer, 0, &m, &position, &error), RMF_OK);
    }
    CHECK_EQ(position, out.size);
    rmf_buffer_clear(&out);
    return 0;
}
