#include "rmf_buffer.h"

#include <string.h>

#include "rmf_alloc.h"

void rmf_buffer_init(struct rmf_buffer *buffer) {
    buffer->data = NULL;
    buffer->size = 0;
    buffer->capacity = 0;
}

void rmf_buffer_clear(struct rmf_buffer *buffer) {
    rmf_free(buffer->data);
    rmf_buffer_init(buffer);
}

enum rmf_status rmf_buffer_reserve(struct rmf_buffer *buffer, size_t extra) {
    if (RMF_LIKELY(buffer->capacity - buffer->size >= extra)) {
        return RMF_OK;
    }
    if (extra > SIZE_MAX / 2 - buffer->size) {
        return RMF_ERR_NO_MEMORY;
    }
    size_t wanted = buffer->size + extra;
    size_t capacity = buffer->capacity < 64 ? 64 : buffer->capacity + buffer->capacity / 2;
    if (capacity < wanted) {
        capacity = wanted;
    }
    uint8_t *data = rmf_realloc_array(buffer->data, capacity, 1);
    if (data == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return RMF_OK;
}

enum rmf_status rmf_buffer_append(struct rmf_buffer *buffer, const void *data, size_t size) {
    if (size == 0) {
        return RMF_OK; /* data may be NULL then, which memcpy does not allow */
    }
    enum rmf_status status = rmf_buffer_reserve(buffer, size);
    if (status != RMF_OK) {
        return status;
    }
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return RMF_OK;
}

enum rmf_status rmf_buffer_append_byte(struct rmf_buffer *buffer, uint8_t byte) {
    return rmf_buffer_append(buffer, &byte, 1);
}
