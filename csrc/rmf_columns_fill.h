/* Inside of rmf_columns: some messages at a time, column after column. */
#ifndef RMF_COLUMNS_FILL_H
#define RMF_COLUMNS_FILL_H

#include "rmf_arrow.h"
#include "rmf_columns.h"
#include "rmf_entries.h"

/* Messages per round: what a round reads stays in the first cache while column after column is filled. */
#define RMF_ROUND 16

/* One append: where the rows go, and what its rounds share. Everything is borrowed. */
struct rmf_fill {
    struct rmf_table *table;
    const uint8_t *kinds; /* of the table's columns */
    const int8_t *places; /* of a kind in the table; -1 = absent */
    struct rmf_entries *entries;
    const struct rmf_columns_source *source;
    struct rmf_error *error;
    const struct rmf_message *previous; /* in this append; NULL at its first message */
    size_t count;                       /* of the round */
    const struct rmf_message *round[RMF_ROUND];
};

static inline struct rmf_vector *rmf_fill_vector(const struct rmf_fill *fill, int kind) {
    int place = fill->places[kind];
    return place < 0 ? NULL : &fill->table->columns[place];
}

/* Writes the messages of the round, for which the caller has reserved rows and room for the bodies,
 * and empties it. The table's rows count them in any case. Errors: as rmf_columns_append. */
RMF_MUST_CHECK enum rmf_status rmf_fill_round(struct rmf_fill *fill);

#endif
