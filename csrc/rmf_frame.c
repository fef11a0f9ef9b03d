#include "rmf_frame.h"

#include <string.h>

#include "rmf_alloc.h"
#include "rmf_cursor.h"

/* Room for the bytes of one receive call while frames are small. */
#define RMF_SPLITTER_SHARED_BYTES (128u * 1024u)
/* A frame at least this long is received into a block of its own, which is then handed over. */
#define RMF_SPLITTER_OWN_BYTES (96u * 1024u)

static enum rmf_status rmf_frame_check_length(const uint8_t *prefix, uint32_t max_frame_bytes,
                                              size_t *frame_bytes, struct rmf_error *error) {
    int32_t length = (int32_t)rmf_load_be32_unsafe(prefix);
    int64_t limit = (int64_t)max_frame_bytes - RMF_FRAME_PREFIX_BYTES;
    if (length < 4 || length > limit) {
        return rmf_fail(error, RMF_ERR_LENGTH, "frame length", 0, length, limit);
    }
    *frame_bytes = (size_t)length + RMF_FRAME_PREFIX_BYTES;
    return RMF_OK;
}

enum rmf_status rmf_frame_split(const uint8_t *frame, size_t size, uint32_t max_frame_bytes,
                                struct rmf_frame_parts *parts, struct rmf_error *error) {
    struct rmf_cursor cursor = rmf_cursor_of(frame, size);
    const uint8_t *fixed;
    if (!rmf_cursor_bytes(&cursor, RMF_FRAME_FIXED_BYTES, &fixed)) {
        return rmf_fail(error, RMF_ERR_TRUNCATED, "frame", 0, (int64_t)size,
                        RMF_FRAME_FIXED_BYTES);
    }
    size_t frame_bytes;
    enum rmf_status status = rmf_frame_check_length(fixed, max_frame_bytes, &frame_bytes, error);
    if (status != RMF_OK) {
        return status;
    }
    if (frame_bytes != size) {
        return rmf_fail(error, RMF_ERR_LENGTH, "frame length", 0, (int64_t)frame_bytes - 4,
                        (int64_t)size - 4);
    }
    uint32_t type_and_length = rmf_load_be32_unsafe(fixed + 4);
    uint8_t type = (uint8_t)(type_and_length >> 24);
    if (type != RMF_SERIALIZE_JSON && type != RMF_SERIALIZE_ROCKETMQ) {
        return rmf_fail(error, RMF_ERR_MAGIC, "serialize type", 4, type, RMF_SERIALIZE_ROCKETMQ);
    }
    size_t header_bytes = type_and_length & 0xFFFFFFu;
    const uint8_t *header;
    if (header_bytes > RMF_HEADER_MAX_BYTES) {
        return rmf_fail(error, RMF_ERR_LENGTH, "header length", 5, (int64_t)header_bytes,
                        RMF_HEADER_MAX_BYTES);
    }
    if (!rmf_cursor_bytes(&cursor, header_bytes, &header)) {
        return rmf_fail(error, RMF_ERR_LENGTH, "header length", 5, (int64_t)header_bytes,
                        (int64_t)(size - RMF_FRAME_FIXED_BYTES));
    }
    parts->serialize_type = type;
    parts->header.ptr = header;
    parts->header.len = header_bytes;
    parts->body.ptr = header + header_bytes;
    parts->body.len = rmf_cursor_left(&cursor);
    return RMF_OK;
}

enum rmf_status rmf_frame_write_fixed(uint8_t serialize_type, size_t header_bytes,
                                      size_t body_bytes, uint32_t max_frame_bytes, uint8_t *out,
                                      struct rmf_error *error) {
    if (header_bytes > RMF_HEADER_MAX_BYTES) {
        return rmf_fail(error, RMF_ERR_LENGTH, "header length", 5, (int64_t)header_bytes,
                        RMF_HEADER_MAX_BYTES);
    }
    if (max_frame_bytes < RMF_FRAME_FIXED_BYTES + header_bytes ||
        body_bytes > max_frame_bytes - RMF_FRAME_FIXED_BYTES - header_bytes) {
        return rmf_fail(error, RMF_ERR_LENGTH, "frame length", 0, (int64_t)body_bytes,
                        (int64_t)max_frame_bytes);
    }
    rmf_store_be32_unsafe(out, (uint32_t)(4 + header_bytes + body_bytes));
    rmf_store_be32_unsafe(out + 4, ((uint32_t)serialize_type << 24) | (uint32_t)header_bytes);
    return RMF_OK;
}

struct rmf_splitter {
    uint8_t *data; /* owned */
    size_t capacity;
    size_t start; /* first byte of the frame at hand */
    size_t end;   /* end of the received bytes */
    uint32_t max_frame_bytes;
    bool corrupt;
};

struct rmf_splitter *rmf_splitter_new(uint32_t max_frame_bytes) {
    struct rmf_splitter *splitter = rmf_alloc_zeroed(sizeof *splitter);
    if (splitter != NULL) {
        splitter->max_frame_bytes = max_frame_bytes;
    }
    return splitter;
}

void rmf_splitter_free(struct rmf_splitter *splitter) {
    if (splitter != NULL) {
        rmf_free(splitter->data);
        rmf_free(splitter);
    }
}

void rmf_splitter_reset(struct rmf_splitter *splitter) {
    rmf_free(splitter->data);
    splitter->data = NULL;
    splitter->capacity = 0;
    splitter->start = 0;
    splitter->end = 0;
    splitter->corrupt = false;
}

size_t rmf_splitter_pending(const struct rmf_splitter *splitter) {
    return splitter->end - splitter->start;
}

/* Length of the frame at hand; RMF_NEED_MORE while its prefix is incomplete. */
static enum rmf_status rmf_splitter_frame_bytes(struct rmf_splitter *splitter, size_t *frame_bytes,
                                                struct rmf_error *error) {
    if (splitter->corrupt) {
        return rmf_fail(error, RMF_ERR_CORRUPT, "splitter", 0, 0, 0);
    }
    if (splitter->end - splitter->start < RMF_FRAME_PREFIX_BYTES) {
        return RMF_NEED_MORE;
    }
    enum rmf_status status = rmf_frame_check_length(splitter->data + splitter->start,
                                                    splitter->max_frame_bytes, frame_bytes, error);
    if (status != RMF_OK) {
        splitter->corrupt = true;
    }
    return status;
}

enum rmf_status rmf_splitter_reserve(struct rmf_splitter *splitter, uint8_t **room,
                                     size_t *room_bytes, struct rmf_error *error) {
    size_t have = splitter->end - splitter->start;
    size_t frame_bytes = 0;
    enum rmf_status status = rmf_splitter_frame_bytes(splitter, &frame_bytes, error);
    if (status < 0) {
        return status;
    }
    if (status == RMF_OK && frame_bytes >= RMF_SPLITTER_OWN_BYTES && have < frame_bytes) {
        /* A long frame fills a block that starts with it and ends with it. The block doubles as bytes
         * arrive, so that an announced length alone costs nothing. */
        size_t wanted = have + 1;
        if (splitter->start > 0) {
            memmove(splitter->data, splitter->data + splitter->start, have);
            splitter->start = 0;
            splitter->end = have;
        }
        if (splitter->capacity < wanted || splitter->capacity > frame_bytes) {
            size_t capacity = have * 2;
            if (capacity < 2 * RMF_SPLITTER_SHARED_BYTES) {
                capacity = 2 * RMF_SPLITTER_SHARED_BYTES;
            }
            if (capacity > frame_bytes) {
                capacity = frame_bytes;
            }
            uint8_t *data = rmf_realloc_array(splitter->data, capacity, 1);
            if (data == NULL) {
                return rmf_fail(error, RMF_ERR_NO_MEMORY, "frame", 0, (int64_t)capacity, 0);
            }
            splitter->data = data;
            splitter->capacity = capacity;
        }
    } else if (splitter->capacity - splitter->end < RMF_SPLITTER_SHARED_BYTES / 4) {
        size_t wanted = RMF_SPLITTER_SHARED_BYTES;
        if (have > 0 && splitter->start > 0) {
            memmove(splitter->data, splitter->data + splitter->start, have);
        }
        splitter->start = 0;
        splitter->end = have;
        if (splitter->capacity - have < wanted / 4) {
            size_t capacity = have + wanted;
            uint8_t *data = rmf_realloc_array(splitter->data, capacity, 1);
            if (data == NULL) {
                return rmf_fail(error, RMF_ERR_NO_MEMORY, "frame", 0, (int64_t)capacity, 0);
            }
            splitter->data = data;
            splitter->capacity = capacity;
        }
    }
    *room = splitter->data + splitter->end;
    *room_bytes = splitter->capacity - splitter->end;
    return RMF_OK;
}

enum rmf_status rmf_splitter_commit(struct rmf_splitter *splitter, size_t bytes,
                                    struct rmf_error *error) {
    if (splitter->corrupt) {
        return rmf_fail(error, RMF_ERR_CORRUPT, "splitter", 0, 0, 0);
    }
    if (bytes > splitter->capacity - splitter->end) {
        return rmf_fail(error, RMF_ERR_ARGUMENT, "committed bytes", 0, (int64_t)bytes,
                        (int64_t)(splitter->capacity - splitter->end));
    }
    splitter->end += bytes;
    return RMF_OK;
}

enum rmf_status rmf_splitter_take(struct rmf_splitter *splitter, uint8_t **frame,
                                  size_t *frame_bytes, struct rmf_error *error) {
    size_t size = 0;
    enum rmf_status status = rmf_splitter_frame_bytes(splitter, &size, error);
    if (status != RMF_OK) {
        return status;
    }
    size_t have = splitter->end - splitter->start;
    if (have < size) {
        return RMF_NEED_MORE;
    }
    if (splitter->start == 0 && have == size && splitter->capacity - size <= size / 8) {
        *frame = splitter->data;
        splitter->data = NULL;
        splitter->capacity = 0;
        splitter->end = 0;
    } else {
        uint8_t *copy = rmf_alloc(size);
        if (copy == NULL) {
            return rmf_fail(error, RMF_ERR_NO_MEMORY, "frame", 0, (int64_t)size, 0);
        }
        memcpy(copy, splitter->data + splitter->start, size);
        *frame = copy;
        splitter->start += size;
        if (splitter->start == splitter->end) {
            splitter->start = 0;
            splitter->end = 0;
        }
    }
    *frame_bytes = size;
    return RMF_OK;
}
