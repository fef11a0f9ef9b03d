/* Remoting frames: an incremental splitter and the split of one frame into header and body.
 *
 *   offset       size  content
 *   0            4     length of everything after this field (4 + headerLen + bodyLen)
 *   4            1     serialize type of the header: 0 JSON, 1 ROCKETMQ
 *   5            3     headerLen, unsigned 24 bit
 *   8            h     header
 *   8 + h        rest  body
 *
 * Same layout in 4.x and 5.x (RemotingCommand.java, NettyDecoder.java). */
#ifndef RMF_FRAME_H
#define RMF_FRAME_H

#include "rmf_common.h"

#define RMF_FRAME_PREFIX_BYTES 4u
#define RMF_FRAME_FIXED_BYTES 8u
#define RMF_SERIALIZE_JSON 0
#define RMF_SERIALIZE_ROCKETMQ 1

/* Parts of one complete frame; everything is borrowed from the frame. */
struct rmf_frame_parts {
    uint8_t serialize_type;
    struct rmf_slice header;
    struct rmf_slice body;
};

/* Splits a whole frame, length prefix included. RMF_ERR_TRUNCATED, RMF_ERR_LENGTH (wrong length or
 * header length), RMF_ERR_MAGIC (unknown serialize type). */
RMF_MUST_CHECK enum rmf_status rmf_frame_split(const uint8_t *frame, size_t size,
                                               uint32_t max_frame_bytes,
                                               struct rmf_frame_parts *parts,
                                               struct rmf_error *error);

/* Writes length prefix, type and header length into `out` (8 bytes). RMF_ERR_LENGTH when header or
 * frame is too long to be announced. */
RMF_MUST_CHECK enum rmf_status rmf_frame_write_fixed(uint8_t serialize_type, size_t header_bytes,
                                                     size_t body_bytes, uint32_t max_frame_bytes,
                                                     uint8_t *out, struct rmf_error *error);

/* Cuts a byte stream into frames. The buffer grows with the bytes that arrive, never to the announced
 * length at once. After an error every call returns RMF_ERR_CORRUPT until rmf_splitter_reset.
 * Not thread-safe: one connection, one splitter. */
struct rmf_splitter;

/* Owns: free with rmf_splitter_free. NULL when out of memory. */
struct rmf_splitter *rmf_splitter_new(uint32_t max_frame_bytes);
void rmf_splitter_free(struct rmf_splitter *splitter);
void rmf_splitter_reset(struct rmf_splitter *splitter);

/* Bytes that were received and are not part of a taken frame. */
size_t rmf_splitter_pending(const struct rmf_splitter *splitter);

/* Lends room for received bytes (at least 1 byte); valid until the next call on the splitter. */
RMF_MUST_CHECK enum rmf_status rmf_splitter_reserve(struct rmf_splitter *splitter,
                                                    uint8_t **room, size_t *room_bytes,
                                                    struct rmf_error *error);
/* Says how many bytes of the lent room were filled. */
RMF_MUST_CHECK enum rmf_status rmf_splitter_commit(struct rmf_splitter *splitter, size_t bytes,
                                                   struct rmf_error *error);

/* Takes the next complete frame: on RMF_OK the caller owns `frame` (rmf_free) of `frame_bytes`.
 * RMF_NEED_MORE when none is complete. A frame received into its own block is handed over without
 * a copy. */
RMF_MUST_CHECK enum rmf_status rmf_splitter_take(struct rmf_splitter *splitter, uint8_t **frame,
                                                 size_t *frame_bytes, struct rmf_error *error);

#endif
