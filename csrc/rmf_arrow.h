/* Finished columns, and how they leave: the Arrow C data interface.
 *
 * A table owns the memory of its columns and counts who uses it: the object that made it and every
 * exported array, child arrays that a consumer moved away included. The last one frees it, on any
 * thread and without an interpreter. */
#ifndef RMF_ARROW_H
#define RMF_ARROW_H

#include "rmf_common.h"
#include "rmf_vector.h"

/* The two structs of the interface, under the guard that all projects which define them share. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

struct rmf_table {
    volatile long users;
    size_t rows;
    size_t count;
    size_t entries; /* of the map column */
    struct rmf_vector keys;
    struct rmf_vector values;
    struct rmf_vector columns[];
};

/* Owns: a table with zeroed columns and one user. NULL when out of memory. */
struct rmf_table *rmf_table_new(size_t count);

/* Gives up one use; NULL is allowed. */
void rmf_table_release(struct rmf_table *table);

/* Bytes of Arrow data in the table. */
size_t rmf_table_bytes(const struct rmf_table *table);

/* Fills `out` with a struct array over the table, which it shares: one more user. RMF_ERR_NO_MEMORY
 * leaves out->release NULL. */
RMF_MUST_CHECK enum rmf_status rmf_table_export_array(struct rmf_table *table,
                                                      struct ArrowArray *out);

/* Fills `out` with the matching schema; it needs the table no longer. As rmf_table_export_array. */
RMF_MUST_CHECK enum rmf_status rmf_table_export_schema(const struct rmf_table *table,
                                                       struct ArrowSchema *out);

#endif
