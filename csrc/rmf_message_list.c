#include "rmf_message_list.h"

#include "rmf_alloc.h"

/* What a broker hands out at most unless it was told otherwise. */
#define RMF_USUAL_COUNT 32u

enum rmf_status rmf_message_list_grow(struct rmf_message_list *list) {
    size_t capacity = list->capacity == 0 ? RMF_USUAL_COUNT : list->capacity * 2;
    struct rmf_message *grown = rmf_realloc_array(list->messages, capacity, sizeof *grown);
    if (grown == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    list->messages = grown;
    list->capacity = capacity;
    return RMF_OK;
}

void rmf_message_list_shrink(struct rmf_message_list *list) {
    /* Cached messages should cost little more than their bytes; the list is part of that. */
    if (list->capacity > list->count + list->count / 4 + 8) {
        struct rmf_message *exact =
            rmf_realloc_array(list->messages, list->count, sizeof *exact);
        if (exact != NULL) {
            list->messages = exact;
            list->capacity = list->count;
        }
    }
}

void rmf_message_list_clear(struct rmf_message_list *list) {
    rmf_free(list->messages);
    struct rmf_message_list empty = {0};
    *list = empty;
}
