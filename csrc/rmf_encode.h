/* The producer's side: property strings, elements of a batch body, unique ids.
 *
 * Batch element (body of request 320, MessageDecoder.encodeMessage):
 *   0  4  total size = 22 + body + properties
 *   4  4  magic, 0
 *   8  4  CRC, 0
 *   12 4  flag
 *   16 4  body length, body
 *   ..  2  properties length, properties */
#ifndef RMF_ENCODE_H
#define RMF_ENCODE_H

#include "rmf_buffer.h"
#include "rmf_common.h"

/* Appends name \x01 value, with \x02 between it and an earlier one that begins at `start` or later.
 * RMF_ERR_SYNTAX when name or value holds a separator, RMF_ERR_NO_MEMORY. */
RMF_MUST_CHECK enum rmf_status rmf_encode_property(struct rmf_buffer *out, size_t start,
                                                   struct rmf_slice name, struct rmf_slice value,
                                                   struct rmf_error *error);

/* Begins a batch element; returns where it starts through *start. The properties are appended by
 * rmf_encode_property with the *properties_start given here, then rmf_encode_element_end. */
RMF_MUST_CHECK enum rmf_status rmf_encode_element_begin(struct rmf_buffer *out, int32_t flag,
                                                        struct rmf_slice body, size_t *start,
                                                        size_t *properties_start,
                                                        struct rmf_error *error);
/* Fills in the lengths. RMF_ERR_LENGTH when the properties are over 32767 bytes. */
RMF_MUST_CHECK enum rmf_status rmf_encode_element_end(struct rmf_buffer *out, size_t start,
                                                      size_t properties_start,
                                                      struct rmf_error *error);

/* 32 upper-case hex digits: ip (4 bytes), pid (2), a per-process constant (4), ms since the start of
 * the month (4), counter (2), as Java's MessageClientIDSetter. */
#define RMF_UNIQUE_ID_CHARS 32
void rmf_encode_unique_id(const uint8_t *prefix10, uint32_t month_ms, uint16_t counter, char *out);

#endif
