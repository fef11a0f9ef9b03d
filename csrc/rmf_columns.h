/* Messages to Arrow columns: any projection, filled batch after batch, without a call into Python.
 *
 * Column                        Arrow type            null when
 *   topic                       utf8                  never
 *   brokerName                  utf8                  the caller knows no broker
 *   queueId                     int32                 never
 *   queueOffset                 int64                 never
 *   tags, keys                  utf8                  the property is missing
 *   body                        binary                never
 *   msgId                       utf8                  never: UNIQ_KEY, else the offset id
 *   offsetMsgId                 utf8                  never
 *   bornTimestamp, storeTimestamp  timestamp[us, UTC] milliseconds that do not fit as microseconds
 *   bornHost, storeHost         utf8                  never: "1.2.3.4:10911", "[2001:db8::1]:10911"
 *   sysFlag, flag, reconsumeTimes, storeSize, bodyCRC  int32  never
 *   commitLogOffset, preparedTransactionOffset  int64  never
 *   properties                  map<utf8, utf8>       never; of equal names the last one is kept
 *
 * Text is valid UTF-8: malformed parts are replaced as rmf_utf8.h says. */
#ifndef RMF_COLUMNS_H
#define RMF_COLUMNS_H

#include "rmf_arrow.h"
#include "rmf_common.h"
#include "rmf_message.h"

enum rmf_column {
    RMF_COLUMN_TOPIC,
    RMF_COLUMN_BROKER_NAME,
    RMF_COLUMN_QUEUE_ID,
    RMF_COLUMN_QUEUE_OFFSET,
    RMF_COLUMN_TAGS,
    RMF_COLUMN_KEYS,
    RMF_COLUMN_BODY,
    RMF_COLUMN_MSG_ID,
    RMF_COLUMN_OFFSET_MSG_ID,
    RMF_COLUMN_BORN_TIMESTAMP,
    RMF_COLUMN_STORE_TIMESTAMP,
    RMF_COLUMN_BORN_HOST,
    RMF_COLUMN_STORE_HOST,
    RMF_COLUMN_SYS_FLAG,
    RMF_COLUMN_FLAG,
    RMF_COLUMN_RECONSUME_TIMES,
    RMF_COLUMN_STORE_SIZE,
    RMF_COLUMN_BODY_CRC,
    RMF_COLUMN_COMMIT_LOG_OFFSET,
    RMF_COLUMN_PREPARED_TRANSACTION_OFFSET,
    RMF_COLUMN_PROPERTIES,
    RMF_COLUMN_COUNT
};

/* Arrow's text and binary columns count their bytes in 32 signed bits. */
#define RMF_COLUMN_MAX_BYTES 2147483647u

struct rmf_columns;

/* What to append. All memory is borrowed for the call. */
struct rmf_columns_source {
    const struct rmf_message *messages;
    size_t count;
    const uint8_t *mask;           /* `count` bytes, zero = leave out; NULL = all */
    int64_t start;                 /* only queue offsets in [start, end); */
    int64_t end;                   /* INT64_MAX = no end */
    struct rmf_slice broker_name;  /* valid UTF-8; ptr NULL = unknown */
    bool restore_topic;            /* RETRY_TOPIC, where present, is the topic */
};

/* The name of a column, "" for no column. */
const char *rmf_column_name(size_t column);

/* Owns: a builder of `count` different columns in this order. `max_bytes` bounds the bytes of each text
 * or binary column: RMF_COLUMN_MAX_BYTES but in tests. NULL when out of memory or a column is wrong. */
struct rmf_columns *rmf_columns_new(const uint8_t *columns, size_t count, size_t max_bytes);
void rmf_columns_free(struct rmf_columns *columns);

size_t rmf_columns_rows(const struct rmf_columns *columns);
size_t rmf_columns_bytes(const struct rmf_columns *columns);

/* Appends the selected messages, all or none; *appended is their number. Errors: RMF_ERR_NO_MEMORY;
 * RMF_ERR_LENGTH when a column would pass its bound (error->field names it). */
RMF_MUST_CHECK enum rmf_status rmf_columns_append(struct rmf_columns *columns,
                                                  const struct rmf_columns_source *source,
                                                  size_t *appended, struct rmf_error *error);

/* The rows so far came out of `part` of `whole` input bytes: makes room for the rest, so that long
 * columns are not moved again and again. RMF_ERR_NO_MEMORY loses nothing. */
RMF_MUST_CHECK enum rmf_status rmf_columns_forecast(struct rmf_columns *columns, size_t part,
                                                    size_t whole);

/* Decodes messages from *position of the buffer on and appends them, in steps that stay in the cache,
 * as long as they are plain: RMF_NEED_MORE at the end. RMF_OK with *position before a message that has
 * to be inflated or unwrapped first, or that cannot be decoded. Errors: as rmf_columns_append. */
RMF_MUST_CHECK enum rmf_status rmf_columns_decode(struct rmf_columns *columns,
                                                  struct rmf_slice buffer, bool check_crc,
                                                  struct rmf_slice broker_name, size_t *position,
                                                  struct rmf_error *error);

/* Moves the rows out as a table, which the caller releases; the builder starts anew.
 * RMF_ERR_NO_MEMORY leaves it as it was. */
RMF_MUST_CHECK enum rmf_status rmf_columns_finish(struct rmf_columns *columns,
                                                  struct rmf_table **table);

#endif
