#include "rmf_arrow.h"

#include "rmf_alloc.h"

/* Exported arrays are released on threads of the consumer. */
#if defined(_MSC_VER) && !defined(__clang__)
long _InterlockedIncrement(long volatile *value);
long _InterlockedDecrement(long volatile *value);
#pragma intrinsic(_InterlockedIncrement, _InterlockedDecrement)
#define RMF_COUNT_UP(counter) ((void)_InterlockedIncrement(counter))
#define RMF_COUNT_DOWN(counter) _InterlockedDecrement(counter)
#else
#define RMF_COUNT_UP(counter) ((void)__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED))
#define RMF_COUNT_DOWN(counter) __atomic_sub_fetch(counter, 1, __ATOMIC_ACQ_REL)
#endif

static const char *const RMF_FORMATS[] = {
    [RMF_VECTOR_INT32] = "i",   [RMF_VECTOR_INT64] = "l",  [RMF_VECTOR_TIMESTAMP_US] = "tsu:UTC",
    [RMF_VECTOR_TEXT] = "u",    [RMF_VECTOR_BINARY] = "z", [RMF_VECTOR_MAP] = "+m",
};

struct rmf_table *rmf_table_new(size_t count) {
    if (count > (SIZE_MAX - sizeof(struct rmf_table)) / sizeof(struct rmf_vector)) {
        return NULL;
    }
    struct rmf_table *table =
        rmf_alloc_zeroed(sizeof *table + count * sizeof(struct rmf_vector));
    if (table != NULL) {
        table->users = 1;
        table->count = count;
    }
    return table;
}

void rmf_table_release(struct rmf_table *table) {
    if (table == NULL || RMF_COUNT_DOWN(&table->users) != 0) {
        return;
    }
    for (size_t i = 0; i < table->count; i++) {
        rmf_vector_clear(&table->columns[i]);
    }
    rmf_vector_clear(&table->keys);
    rmf_vector_clear(&table->values);
    rmf_free(table);
}

size_t rmf_table_bytes(const struct rmf_table *table) {
    size_t bytes = 0;
    for (size_t i = 0; i < table->count; i++) {
        bytes += rmf_vector_bytes(&table->columns[i], table->rows);
        if (table->columns[i].type == RMF_VECTOR_MAP) {
            bytes += rmf_vector_bytes(&table->keys, table->entries);
            bytes += rmf_vector_bytes(&table->values, table->entries);
        }
    }
    return bytes;
}

/* ------------------------------------------------------------------------------------ arrays */

/* What an exported array owns: a use of the table, the list of its buffers, its children. A consumer
 * may move a child away, so each child has a block of its own for this. */
struct rmf_exported_array {
    struct rmf_table *table;
    const void *buffers[3];
    struct ArrowArray *child_list[]; /* then the children themselves */
};

static void rmf_array_release(struct ArrowArray *array) {
    struct rmf_exported_array *own = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        if (child->release != NULL) {
            child->release(child);
        }
    }
    rmf_table_release(own->table);
    rmf_free(own);
    array->release = NULL;
}

static enum rmf_status rmf_array_init(struct ArrowArray *out, struct rmf_table *table,
                                      size_t length, size_t nulls, size_t children) {
    memset(out, 0, sizeof *out);
    struct rmf_exported_array *own = rmf_alloc_zeroed(
        sizeof *own + children * (sizeof(struct ArrowArray *) + sizeof(struct ArrowArray)));
    if (own == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    RMF_COUNT_UP(&table->users);
    own->table = table;
    struct ArrowArray *first = (struct ArrowArray *)(void *)(own->child_list + children);
    for (size_t i = 0; i < children; i++) {
        own->child_list[i] = &first[i];
    }
    out->length = (int64_t)length;
    out->null_count = (int64_t)nulls;
    out->n_children = (int64_t)children;
    out->children = children == 0 ? NULL : own->child_list;
    out->buffers = own->buffers;
    out->private_data = own;
    out->release = rmf_array_release;
    return RMF_OK;
}

static enum rmf_status rmf_vector_export(struct rmf_table *table, const struct rmf_vector *vector,
                                         size_t rows, struct ArrowArray *out) {
    bool map = vector->type == RMF_VECTOR_MAP;
    enum rmf_status status = rmf_array_init(out, table, rows, vector->nulls, map ? 1 : 0);
    if (status != RMF_OK) {
        return status;
    }
    out->buffers[0] = vector->nulls == 0 ? NULL : vector->validity;
    if (vector->offsets == NULL) {
        out->n_buffers = 2;
        out->buffers[1] = vector->data;
        return RMF_OK;
    }
    out->buffers[1] = vector->offsets;
    if (!map) {
        out->n_buffers = 3;
        out->buffers[2] = vector->data;
        return RMF_OK;
    }
    out->n_buffers = 2;
    struct ArrowArray *entries = out->children[0];
    status = rmf_array_init(entries, table, table->entries, 0, 2);
    if (status == RMF_OK) {
        entries->n_buffers = 1;
        status = rmf_vector_export(table, &table->keys, table->entries, entries->children[0]);
    }
    if (status == RMF_OK) {
        status = rmf_vector_export(table, &table->values, table->entries, entries->children[1]);
    }
    if (status != RMF_OK) {
        out->release(out);
    }
    return status;
}

enum rmf_status rmf_table_export_array(struct rmf_table *table, struct ArrowArray *out) {
    enum rmf_status status = rmf_array_init(out, table, table->rows, 0, table->count);
    if (status != RMF_OK) {
        return status;
    }
    out->n_buffers = 1;
    for (size_t i = 0; status == RMF_OK && i < table->count; i++) {
        status = rmf_vector_export(table, &table->columns[i], table->rows, out->children[i]);
    }
    if (status != RMF_OK) {
        out->release(out);
    }
    return status;
}

/* ----------------------------------------------------------------------------------- schemas */

struct rmf_exported_schema {
    size_t children;
    struct ArrowSchema *child_list[]; /* then the children themselves */
};

static void rmf_schema_release(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        struct ArrowSchema *child = schema->children[i];
        if (child->release != NULL) {
            child->release(child);
        }
    }
    rmf_free(schema->private_data);
    schema->release = NULL;
}

static enum rmf_status rmf_schema_init(struct ArrowSchema *out, const char *name,
                                       const char *format, bool nullable, size_t children) {
    memset(out, 0, sizeof *out);
    struct rmf_exported_schema *own = rmf_alloc_zeroed(
        sizeof *own + children * (sizeof(struct ArrowSchema *) + sizeof(struct ArrowSchema)));
    if (own == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    own->children = children;
    struct ArrowSchema *first = (struct ArrowSchema *)(void *)(own->child_list + children);
    for (size_t i = 0; i < children; i++) {
        own->child_list[i] = &first[i];
    }
    out->format = format;
    out->name = name;
    out->flags = nullable ? ARROW_FLAG_NULLABLE : 0;
    out->n_children = (int64_t)children;
    out->children = children == 0 ? NULL : own->child_list;
    out->private_data = own;
    out->release = rmf_schema_release;
    return RMF_OK;
}

static enum rmf_status rmf_vector_export_schema(const struct rmf_vector *vector,
                                                struct ArrowSchema *out) {
    bool map = vector->type == RMF_VECTOR_MAP;
    enum rmf_status status =
        rmf_schema_init(out, vector->name, RMF_FORMATS[vector->type], true, map ? 1 : 0);
    if (status != RMF_OK || !map) {
        return status;
    }
    struct ArrowSchema *entries = out->children[0];
    status = rmf_schema_init(entries, "entries", "+s", false, 2);
    if (status == RMF_OK) {
        status = rmf_schema_init(entries->children[0], "key", "u", false, 0);
    }
    if (status == RMF_OK) {
        status = rmf_schema_init(entries->children[1], "value", "u", true, 0);
    }
    if (status != RMF_OK) {
        out->release(out);
    }
    return status;
}

enum rmf_status rmf_table_export_schema(const struct rmf_table *table, struct ArrowSchema *out) {
    enum rmf_status status = rmf_schema_init(out, "", "+s", false, table->count);
    if (status != RMF_OK) {
        return status;
    }
    for (size_t i = 0; status == RMF_OK && i < table->count; i++) {
        status = rmf_vector_export_schema(&table->columns[i], out->children[i]);
    }
    if (status != RMF_OK) {
        out->release(out);
    }
    return status;
}
