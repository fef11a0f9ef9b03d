/* The process queue: messages that were pulled and not yet acknowledged, of one message queue.
 *
 * Two ordered maps, as in Java's ProcessQueue: `waiting` (msgTreeMap) and `taken`
 * (consumingMsgOrderlyTreeMap, used by orderly consumption only). Not thread-safe; the binding locks. */
#ifndef RMF_QUEUE_H
#define RMF_QUEUE_H

#include "rmf_common.h"
#include "rmf_message_list.h"

#define RMF_QUEUE_NO_OFFSET (-1)

struct rmf_queue;

/* Owns: free with rmf_queue_free, after every owner was drained. NULL when out of memory. */
struct rmf_queue *rmf_queue_new(void);
void rmf_queue_free(struct rmf_queue *queue);

/* Inserts the messages of a list, which `owner` keeps as it is until it is released. *inserted: how many
 * offsets were new (when 0, the owner is not kept). *dispatch: nobody was consuming and something waits
 * now (orderly: submit a task). RMF_ERR_NO_MEMORY leaves the queue as it was. */
RMF_MUST_CHECK enum rmf_status rmf_queue_put(struct rmf_queue *queue, void *owner,
                                             const struct rmf_message_list *list, size_t *inserted,
                                             bool *dispatch);

/* Removes waiting messages by offset; absent ones are ignored. Returns the offset to commit: the
 * smallest one left, or the largest ever inserted plus one when none is left; RMF_QUEUE_NO_OFFSET when
 * the queue was empty before. */
int64_t rmf_queue_remove(struct rmf_queue *queue, const int64_t *offsets, size_t count);
/* The same for the messages start..stop of a list. */
int64_t rmf_queue_remove_messages(struct rmf_queue *queue, const struct rmf_message_list *list,
                                  size_t start, size_t stop);

struct rmf_queue_item {
    int64_t offset;
    void *owner; /* borrowed: alive while the message is in the queue */
    uint32_t index;
};

/* Moves up to `limit` smallest messages from waiting to taken. Returns how many; 0 ends consuming.
 * RMF_ERR_NO_MEMORY as a negative count, nothing moved past it. */
RMF_MUST_CHECK int64_t rmf_queue_take(struct rmf_queue *queue, size_t limit,
                                      struct rmf_queue_item *items);
/* Drops the taken messages. Returns the largest taken offset plus one, RMF_QUEUE_NO_OFFSET if none. */
int64_t rmf_queue_commit(struct rmf_queue *queue);
/* Moves all taken messages back. */
RMF_MUST_CHECK enum rmf_status rmf_queue_rollback(struct rmf_queue *queue);
/* Moves these taken messages back. Others are ignored. */
RMF_MUST_CHECK enum rmf_status rmf_queue_make_consume_again(struct rmf_queue *queue,
                                                            const int64_t *offsets, size_t count);
void rmf_queue_clear(struct rmf_queue *queue);

/* Smallest waiting message; false when none waits. */
RMF_MUST_CHECK bool rmf_queue_first(const struct rmf_queue *queue, struct rmf_queue_item *item);

size_t rmf_queue_count(const struct rmf_queue *queue); /* waiting and taken */
size_t rmf_queue_taken_count(const struct rmf_queue *queue);
int64_t rmf_queue_body_bytes(const struct rmf_queue *queue);
int64_t rmf_queue_span(const struct rmf_queue *queue);       /* of the waiting ones */
int64_t rmf_queue_min_offset(const struct rmf_queue *queue); /* waiting; RMF_QUEUE_NO_OFFSET */
int64_t rmf_queue_max_offset(const struct rmf_queue *queue);
int64_t rmf_queue_taken_min_offset(const struct rmf_queue *queue);
int64_t rmf_queue_taken_max_offset(const struct rmf_queue *queue);

/* An owner none of whose messages is left; the caller releases it. NULL when there is none. */
void *rmf_queue_next_released(struct rmf_queue *queue);

bool rmf_queue_check(const struct rmf_queue *queue, const char **reason);

#endif
