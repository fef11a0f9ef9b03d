/* A pull body: every byte belongs to one message or fault, all parts lie inside the buffer, every accessor
 * can be read. Inner batches are walked too. The first byte chooses the CRC check. */
#include "fuzz.h"
#include "rmf_message.h"
#include "rmf_tags.h"

static bool inside(struct rmf_slice outer, struct rmf_slice part) {
    return part.ptr >= outer.ptr && part.len <= outer.len &&
           (size_t)(part.ptr - outer.ptr) <= outer.len - part.len;
}

static uint64_t sum_of(struct rmf_slice part) {
    uint64_t sum = part.len;
    for (size_t i = 0; i < part.len; i++) {
        sum = sum * 31 + part.ptr[i];
    }
    return sum;
}

static uint64_t check_message(struct rmf_slice buffer, const struct rmf_message *m) {
    char id[56];
    size_t id_length = rmf_message_offset_id(m, id);
    CHECK(id_length == 32 || id_length == 56);
    CHECK(inside(buffer, rmf_message_topic(m)));
    CHECK(inside(buffer, rmf_message_body(m)));
    CHECK(inside(buffer, rmf_message_properties(m)));
    CHECK(inside(buffer, rmf_message_born_host(m)));
    CHECK(inside(buffer, rmf_message_store_host(m)));
    struct rmf_slice value = {NULL, 0};
    (void)rmf_message_find_property(m, "KEYS", 4, &value);
    uint64_t sum = (uint64_t)rmf_message_tag_code(m) + value.len;
    sum += (uint64_t)rmf_message_store_size(m) ^ (uint64_t)rmf_message_body_crc(m) ^
           (uint64_t)rmf_message_queue_id(m) ^ (uint64_t)rmf_message_flag(m) ^
           (uint64_t)rmf_message_commit_log_offset(m) ^ (uint64_t)rmf_message_born_timestamp_ms(m) ^
           (uint64_t)rmf_message_store_timestamp_ms(m) ^
           (uint64_t)rmf_message_reconsume_times(m) ^
           (uint64_t)rmf_message_prepared_transaction_offset(m);
    return sum + sum_of(rmf_message_topic(m)) + sum_of(rmf_message_body(m)) +
           sum_of(rmf_message_properties(m));
}

static void check_inner_batch(struct rmf_slice buffer, const struct rmf_message *outer) {
    struct rmf_slice body = rmf_message_body(outer);
    size_t position = 0;
    for (int64_t i = 0;; i++) {
        struct rmf_message message;
        struct rmf_error error;
        size_t next;
        enum rmf_status status = rmf_batch_element_decode(body, position, outer, i, &message, &next,
                                                          &error);
        if (status != RMF_OK) {
            CHECK(status == RMF_NEED_MORE ? position == body.len : error.position <= body.len);
            return;
        }
        CHECK_EQ(message.queue_offset, i);
        CHECK(next > position && next <= body.len);
        CHECK(!rmf_message_is_inner_batch(&message));
        (void)check_message(buffer, &message);
        position = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    struct rmf_slice buffer = {data + 1, size - 1};
    bool check_crc = (data[0] & 1) != 0;
    size_t position = 0;
    for (;;) {
        struct rmf_message message;
        struct rmf_message_fault fault;
        size_t next = position;
        enum rmf_status status =
            rmf_message_decode(buffer, position, check_crc, &message, &next, &fault);
        if (status == RMF_NEED_MORE) {
            return 0;
        }
        if (status != RMF_OK) {
            CHECK_EQ(fault.error.status, status);
            CHECK_EQ(fault.message_position, position);
            CHECK(fault.error.position >= position && fault.error.position <= buffer.len);
            CHECK(fault.error.field != NULL);
            if (!fault.resumable) {
                return 0;
            }
        }
        CHECK(next > position && next <= buffer.len);
        if (status == RMF_OK) {
            (void)check_message(buffer, &message);
            if (rmf_message_is_inner_batch(&message)) {
                check_inner_batch(buffer, &message);
            }
        }
        position = next;
    }
}
