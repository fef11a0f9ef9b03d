/* Property strings of messages: name \x01 value \x02 name \x01 value, with or without a last \x02.
 *
 * Rules of Java's reader (MessageDecoder.string2messageProperties): an entry ends at \x02, its name at
 * the first \x01; entries without a name or without a value are dropped; of duplicates the last wins. */
#ifndef RMF_PROPERTIES_H
#define RMF_PROPERTIES_H

#include <string.h>

#include "rmf_common.h"

#define RMF_PROPERTY_NAME_END 0x01
#define RMF_PROPERTY_END 0x02

struct rmf_property {
    struct rmf_slice name;
    struct rmf_slice value;
};

/* Steps to the next usable entry at or after *pos, which moves behind it. False at the end. */
static inline bool rmf_properties_next(struct rmf_slice text, size_t *pos,
                                       struct rmf_property *out) {
    while (*pos < text.len) {
        const uint8_t *start = text.ptr + *pos;
        size_t rest = text.len - *pos;
        const uint8_t *end = memchr(start, RMF_PROPERTY_END, rest);
        size_t entry = end == NULL ? rest : (size_t)(end - start);
        *pos += entry + (end == NULL ? 0 : 1);
        const uint8_t *mark = memchr(start, RMF_PROPERTY_NAME_END, entry);
        if (mark == NULL || mark == start || mark == start + entry - 1) {
            continue;
        }
        out->name.ptr = start;
        out->name.len = (size_t)(mark - start);
        out->value.ptr = mark + 1;
        out->value.len = entry - out->name.len - 1;
        return true;
    }
    return false;
}

/* The value that a reader of the whole string would end up with for `name`, which is not empty and holds
 * neither \x01 nor \x02. False without one; *value is written only when there is one. */
bool rmf_properties_find(struct rmf_slice text, const char *name, size_t name_len,
                         struct rmf_slice *value);

#endif
