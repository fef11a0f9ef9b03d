/* Walks an exported array with its schema and checks what a consumer relies on: lengths, buffers,
 * offsets that ascend, text that is UTF-8, no key twice in a map. */
#ifndef RMF_TEST_ARROW_WALK_H
#define RMF_TEST_ARROW_WALK_H

#include "harness.h"
#include "rmf_arrow.h"
#include "rmf_utf8.h"

static inline bool row_is_valid(const struct ArrowArray *array, int64_t row) {
    const uint8_t *bits = array->buffers[0];
    return bits == NULL || (bits[row / 8] >> (row % 8) & 1) != 0;
}

static inline struct rmf_slice text_at(const struct ArrowArray *array, int64_t row) {
    const int32_t *offsets = array->buffers[1];
    const uint8_t *data = array->buffers[2];
    struct rmf_slice text = {data + offsets[row], (size_t)(offsets[row + 1] - offsets[row])};
    return text;
}

static inline void walk_offsets(const struct ArrowArray *array) {
    const int32_t *offsets = array->buffers[1];
    CHECK(offsets != NULL);
    CHECK_EQ(offsets[0], 0);
    for (int64_t i = 0; i < array->length; i++) {
        CHECK(offsets[i] <= offsets[i + 1]);
    }
}

static inline uint64_t walk_column(const struct ArrowArray *array,
                                   const struct ArrowSchema *schema) {
    uint64_t sum = 0;
    int64_t nulls = 0;
    CHECK(array->release != NULL && schema->release != NULL);
    CHECK_EQ(array->offset, 0);
    CHECK(array->dictionary == NULL && schema->dictionary == NULL);
    CHECK_EQ(array->n_children, schema->n_children);
    for (int64_t i = 0; i < array->length; i++) {
        nulls += row_is_valid(array, i) ? 0 : 1;
    }
    CHECK_EQ(array->null_count, nulls);
    switch (schema->format[0]) {
    case 'i':
        CHECK_EQ(array->n_buffers, 2);
        for (int64_t i = 0; i < array->length; i++) {
            sum += (uint32_t)((const int32_t *)array->buffers[1])[i];
        }
        break;
    case 'l':
    case 't':
        CHECK_EQ(array->n_buffers, 2);
        for (int64_t i = 0; i < array->length; i++) {
            sum += (uint64_t)((const int64_t *)array->buffers[1])[i];
        }
        break;
    case 'u':
    case 'z':
        CHECK_EQ(array->n_buffers, 3);
        walk_offsets(array);
        for (int64_t i = 0; i < array->length; i++) {
            struct rmf_slice text = text_at(array, i);
            CHECK(schema->format[0] == 'z' || rmf_utf8_is_valid(text));
            for (size_t k = 0; k < text.len; k++) {
                sum = sum * 31 + text.ptr[k];
            }
        }
        break;
    case '+': {
        CHECK(strcmp(schema->format, "+m") == 0);
        CHECK_EQ(array->n_buffers, 2);
        CHECK_EQ(array->n_children, 1);
        walk_offsets(array);
        const struct ArrowArray *entries = array->children[0];
        const struct ArrowSchema *fields = schema->children[0];
        const int32_t *offsets = array->buffers[1];
        CHECK(strcmp(fields->format, "+s") == 0);
        CHECK_EQ(entries->length, offsets[array->length]);
        CHECK_EQ(entries->n_children, 2);
        CHECK_EQ(fields->n_children, 2);
        for (int k = 0; k < 2; k++) {
            CHECK_EQ(entries->children[k]->length, entries->length);
            CHECK_EQ(entries->children[k]->null_count, 0);
            sum += walk_column(entries->children[k], fields->children[k]);
        }
        for (int64_t row = 0; row < array->length; row++) {
            CHECK(offsets[row + 1] - offsets[row] < 20000);
            for (int32_t i = offsets[row]; i < offsets[row + 1] && i < offsets[row] + 60; i++) {
                struct rmf_slice key = text_at(entries->children[0], i);
                CHECK(key.len > 0);
                CHECK(text_at(entries->children[1], i).len > 0);
                for (int32_t other = offsets[row]; other < i; other++) {
                    struct rmf_slice before = text_at(entries->children[0], other);
                    CHECK(before.len != key.len || memcmp(before.ptr, key.ptr, key.len) != 0);
                }
            }
        }
        break;
    }
    default:
        CHECK(!"a known format");
    }
    return sum;
}

/* Exports a table, walks it, and releases it: a child moved away first is released last. */
static inline uint64_t walk_table(struct rmf_table *table) {
    struct ArrowArray array;
    struct ArrowSchema schema;
    CHECK_EQ(rmf_table_export_array(table, &array), RMF_OK);
    CHECK_EQ(rmf_table_export_schema(table, &schema), RMF_OK);
    CHECK(strcmp(schema.format, "+s") == 0);
    CHECK_EQ(array.n_children, schema.n_children);
    CHECK_EQ(array.n_buffers, 1);
    CHECK_EQ(array.null_count, 0);
    uint64_t sum = (uint64_t)array.length;
    for (int64_t i = 0; i < array.n_children; i++) {
        CHECK_EQ(array.children[i]->length, array.length);
        sum = sum * 1000003u + walk_column(array.children[i], schema.children[i]);
    }
    struct ArrowArray moved;
    memset(&moved, 0, sizeof moved);
    if (array.n_children > 0) {
        moved = *array.children[array.n_children - 1];
        array.children[array.n_children - 1]->release = NULL;
    }
    array.release(&array);
    CHECK(array.release == NULL);
    if (moved.release != NULL) {
        (void)walk_column(&moved, schema.children[schema.n_children - 1]);
        moved.release(&moved);
    }
    schema.release(&schema);
    CHECK(schema.release == NULL);
    return sum;
}

#endif
