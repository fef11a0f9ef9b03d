/* A growable byte buffer for output. Value type: rmf_buffer_init, use, rmf_buffer_clear. */
#ifndef RMF_BUFFER_H
#define RMF_BUFFER_H

#include "rmf_common.h"

struct rmf_buffer {
    uint8_t *data; /* owned */
    size_t size;
    size_t capacity;
};

void rmf_buffer_init(struct rmf_buffer *buffer);
void rmf_buffer_clear(struct rmf_buffer *buffer);

/* Makes room for `extra` more bytes. RMF_ERR_NO_MEMORY leaves the content as it was. */
RMF_MUST_CHECK enum rmf_status rmf_buffer_reserve(struct rmf_buffer *buffer, size_t extra);
RMF_MUST_CHECK enum rmf_status rmf_buffer_append(struct rmf_buffer *buffer, const void *data,
                                                 size_t size);
RMF_MUST_CHECK enum rmf_status rmf_buffer_append_byte(struct rmf_buffer *buffer, uint8_t byte);

#endif
