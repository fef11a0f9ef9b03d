/* Tag codes and tag filters.
 *
 * The code of a tag is Java's String.hashCode of its text: h = 31 h + unit over UTF-16 units, wrapped to
 * signed 32 bits. Brokers filter by code; codes collide, so a consumer filters again by exact text. */
#ifndef RMF_TAGS_H
#define RMF_TAGS_H

#include "rmf_common.h"
#include "rmf_message.h"

/* Hash of UTF-8 text. Malformed bytes count as U+FFFD, as Java's decoder reads them. */
int32_t rmf_tag_code(struct rmf_slice utf8);

/* Code of the TAGS property, 0 without one: what the broker's index holds. */
int32_t rmf_message_tag_code(const struct rmf_message *m);

/* A set of tag texts. Opaque; immutable once built, so any number of threads may match. */
struct rmf_tag_set;

/* Copies the texts. NULL when out of memory. Owns: free with rmf_tag_set_free. */
struct rmf_tag_set *rmf_tag_set_new(const struct rmf_slice *tags, size_t count);
void rmf_tag_set_free(struct rmf_tag_set *set);
size_t rmf_tag_set_count(const struct rmf_tag_set *set);

/* Exact membership. */
bool rmf_tag_set_has(const struct rmf_tag_set *set, struct rmf_slice tag);

/* How many of the messages at the front have a tag of the set: the index of the first that has none. */
size_t rmf_tag_set_matching(const struct rmf_tag_set *set, const struct rmf_message *messages,
                            size_t count);

#endif
