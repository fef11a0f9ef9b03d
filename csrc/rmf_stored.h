/* Stored messages as a broker makes them: the record of the commit log, the 20-byte index entry of a
 * queue, and the selection of entries for one pull. No I/O, no allocation: the caller gives the memory.
 *
 * Record (version 1), B and S = 8 (IPv4) or 20 (IPv6) bytes of host:
 *
 *   offset      size  field
 *   0           4     total size
 *   4           4     magic 0xDAA320A7; version 2 (0xDAA320AB, read only) has a 2-byte topic length
 *   8           4     CRC-32 of the body, top bit cleared
 *   12          4     queue id
 *   16          4     flag of the user
 *   20          8     queue offset
 *   28          8     position in the commit log
 *   36          4     system flag: 0x10 born host is IPv6, 0x20 store host is IPv6
 *   40          8     born timestamp, ms
 *   48          B     born host: address, port in 4 bytes
 *   48+B        8     store timestamp, ms
 *   56+B        S     store host
 *   56+B+S      4     reconsume times
 *   60+B+S      8     offset of the prepared transaction
 *   68+B+S      4+n   body
 *   72+B+S+n    1+t   topic
 *   ...         2+p   properties, at most 32767 bytes
 *
 * Index entry: position (8), total size (4), tag code or delivery time in ms (8). */
#ifndef RMF_STORED_H
#define RMF_STORED_H

#include "rmf_common.h"

#define RMF_STORED_MAGIC_V1 0xDAA320A7u
#define RMF_STORED_MAGIC_V2 0xDAA320ABu
#define RMF_STORED_FIXED_BYTES 91u /* both hosts IPv4, nothing in body, topic and properties */
#define RMF_STORED_TOPIC_MAX_BYTES 127u
/* A record holds one body, which came in one frame, and its properties. */
#define RMF_STORED_MAX_BYTES (32u << 20)
#define RMF_STORED_BORN_V6 0x10
#define RMF_STORED_STORE_V6 0x20
#define RMF_INDEX_ENTRY_BYTES 20u
/* An element of a batch body: size, magic, CRC, flag, body length, properties length. */
#define RMF_BATCH_ELEMENT_FIXED_BYTES 22u

/* What goes into, or came out of, a record. All pointers are borrowed. */
struct rmf_stored_fields {
    struct rmf_slice topic;
    struct rmf_slice body;
    struct rmf_slice properties;
    /* Appended to `properties` when writing (empty when reading): what the broker adds. */
    struct rmf_slice more_properties;
    struct rmf_slice born_host;  /* 8 or 20 bytes */
    struct rmf_slice store_host; /* 8 or 20 bytes */
    int64_t queue_offset;
    int64_t position;
    int64_t born_timestamp_ms;
    int64_t store_timestamp_ms;
    int64_t prepared_transaction_offset;
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag; /* the host bits are set from the hosts when writing */
    int32_t reconsume_times;
    uint32_t body_crc;   /* read only */
    uint32_t total_size; /* read only */
};

/* Bytes that the record takes. Borrows all.
 * RMF_ERR_LENGTH: topic, host or properties of a wrong length, or the record over its limit. */
RMF_MUST_CHECK enum rmf_status rmf_stored_measure(const struct rmf_stored_fields *fields,
                                                  size_t *total, struct rmf_error *error);

/* Writes the record into out[0..total), where total is what rmf_stored_measure gave for the same
 * fields, and its index entry with `tags_code` into index[0..20). */
void rmf_stored_write_unsafe(const struct rmf_stored_fields *fields, size_t total,
                             int64_t tags_code, uint8_t *out, uint8_t *index);

/* Tag code of a property string: Java's hash of the whole TAGS text, 0 without one. Borrows. */
int64_t rmf_stored_tags_code(struct rmf_slice properties);

/* Finds the last non-empty value of `name`, as Java's reader would. Borrows; false when absent. */
bool rmf_stored_property(struct rmf_slice properties, struct rmf_slice name,
                         struct rmf_slice *value);

/* Reads one record from the start of `data`. `fields` borrows from it.
 * RMF_NEED_MORE: the record is longer than `size`.
 * RMF_ERR_MAGIC, RMF_ERR_LENGTH, RMF_ERR_CRC (only with check_crc): not a record. */
RMF_MUST_CHECK enum rmf_status rmf_stored_read(const uint8_t *data, size_t size, bool check_crc,
                                               struct rmf_stored_fields *fields,
                                               struct rmf_error *error);

/* Checks the elements of a batch body and counts what storing them takes: `count` records of
 * `total` bytes, each made from `common` (all but body, properties and flag). Borrows all.
 * RMF_ERR_LENGTH, RMF_ERR_TRUNCATED: a malformed element; error->position is its offset. */
RMF_MUST_CHECK enum rmf_status rmf_stored_batch_measure(const struct rmf_stored_fields *common,
                                                        struct rmf_slice batch, size_t *count,
                                                        size_t *total, struct rmf_error *error);

/* Writes the records of a measured batch one after another into out[0..total) and their entries into
 * index[0..20 * count). Queue offsets and positions go up from those of `common`. */
void rmf_stored_batch_write_unsafe(const struct rmf_stored_fields *common, struct rmf_slice batch,
                                   uint8_t *out, uint8_t *index);

struct rmf_index_limits {
    size_t max_count;
    size_t max_bytes;
    size_t disk_count; /* bounds for entries that lie below disk_position */
    size_t disk_bytes;
    int64_t disk_position;
};

struct rmf_index_run {
    int64_t position;
    int64_t size;
};

struct rmf_index_selection {
    size_t scanned; /* entries looked at: the next pull starts behind them */
    size_t count;
    size_t bytes;
    size_t runs;
};

/* Picks entries for one pull, as the 4.9.4 broker: the bounds are looked at before each entry but the
 * first taken. `codes` (sorted) filters by the low 32 bits of the tag code; NULL takes all. Entries
 * that lie one behind another in the log share a run. Writes at most `entry_count` runs. */
void rmf_index_select(const uint8_t *entries, size_t entry_count, const int32_t *codes,
                      size_t code_count, const struct rmf_index_limits *limits,
                      struct rmf_index_run *runs, struct rmf_index_selection *selection);

#endif
