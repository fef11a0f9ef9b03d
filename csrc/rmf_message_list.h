/* The decoded messages of one buffer, in a growing array, and what the process queue wants to know of
 * them as a whole: collected while they are appended, when each is in the cache anyway. */
#ifndef RMF_MESSAGE_LIST_H
#define RMF_MESSAGE_LIST_H

#include "rmf_common.h"
#include "rmf_message.h"

/* Value type: zeroed, use, rmf_message_list_clear. */
struct rmf_message_list {
    struct rmf_message *messages;
    size_t count;
    size_t capacity;
    int64_t first_offset; /* of messages[0], when there is one */
    int64_t body_bytes;   /* of all */
    bool gaps;            /* the offsets are not first_offset, first_offset + 1, ... */
};

/* Makes room for one more. RMF_ERR_NO_MEMORY leaves the list as it was. */
RMF_MUST_CHECK enum rmf_status rmf_message_list_grow(struct rmf_message_list *list);

/* Copies *message to the end. RMF_ERR_NO_MEMORY leaves the list as it was. */
RMF_MUST_CHECK static inline enum rmf_status
rmf_message_list_append(struct rmf_message_list *list, const struct rmf_message *message) {
    if (RMF_UNLIKELY(list->count == list->capacity)) {
        enum rmf_status status = rmf_message_list_grow(list);
        if (status != RMF_OK) {
            return status;
        }
    }
    int64_t offset = message->queue_offset;
    if (list->count == 0) {
        list->first_offset = offset;
    } else if (offset < list->first_offset ||
               (uint64_t)offset - (uint64_t)list->first_offset != list->count) {
        list->gaps = true;
    }
    list->body_bytes += message->body_len;
    list->messages[list->count] = *message;
    list->count += 1;
    return RMF_OK;
}

/* Gives back most of what is allocated and not used. */
void rmf_message_list_shrink(struct rmf_message_list *list);
/* Drops all memory. */
void rmf_message_list_clear(struct rmf_message_list *list);

#endif
