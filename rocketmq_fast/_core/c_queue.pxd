from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t

from rocketmq_fast._core.c_common cimport rmf_status
from rocketmq_fast._core.c_message_list cimport rmf_message_list

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint rmf_bool "bool"

cdef extern from "rmf_queue.h" nogil:
    struct rmf_queue:
        pass

    struct rmf_queue_item:
        int64_t offset
        void *owner
        uint32_t index

    enum:
        RMF_QUEUE_NO_OFFSET

    rmf_queue *rmf_queue_new()
    void rmf_queue_free(rmf_queue *queue)
    rmf_status rmf_queue_put(rmf_queue *queue, void *owner, const rmf_message_list *list,
                             size_t *inserted, rmf_bool *dispatch)
    int64_t rmf_queue_remove(rmf_queue *queue, const int64_t *offsets, size_t count)
    int64_t rmf_queue_remove_messages(rmf_queue *queue, const rmf_message_list *list, size_t start,
                                      size_t stop)
    int64_t rmf_queue_take(rmf_queue *queue, size_t limit, rmf_queue_item *items)
    int64_t rmf_queue_commit(rmf_queue *queue)
    rmf_status rmf_queue_rollback(rmf_queue *queue)
    rmf_status rmf_queue_make_consume_again(rmf_queue *queue, const int64_t *offsets, size_t count)
    void rmf_queue_clear(rmf_queue *queue)
    bint rmf_queue_first(const rmf_queue *queue, rmf_queue_item *item)
    size_t rmf_queue_count(const rmf_queue *queue)
    size_t rmf_queue_taken_count(const rmf_queue *queue)
    int64_t rmf_queue_body_bytes(const rmf_queue *queue)
    int64_t rmf_queue_span(const rmf_queue *queue)
    int64_t rmf_queue_min_offset(const rmf_queue *queue)
    int64_t rmf_queue_max_offset(const rmf_queue *queue)
    int64_t rmf_queue_taken_min_offset(const rmf_queue *queue)
    int64_t rmf_queue_taken_max_offset(const rmf_queue *queue)
    void *rmf_queue_next_released(rmf_queue *queue)
    bint rmf_queue_check(const rmf_queue *queue, const char **reason)
