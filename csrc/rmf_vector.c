#include "rmf_vector.h"

#include "rmf_alloc.h"
#include "rmf_utf8.h"

static size_t rmf_vector_width(const struct rmf_vector *vector) {
    switch (vector->type) {
    case RMF_VECTOR_INT32:
        return 4;
    case RMF_VECTOR_INT64:
    case RMF_VECTOR_TIMESTAMP_US:
        return 8;
    default:
        return 0;
    }
}

void rmf_vector_clear(struct rmf_vector *vector) {
    rmf_free(vector->data);
    rmf_free(vector->offsets);
    rmf_free(vector->validity);
}

size_t rmf_vector_bytes(const struct rmf_vector *vector, size_t rows) {
    size_t bytes = vector->validity == NULL ? 0 : (rows + 7) / 8;
    switch (vector->type) {
    case RMF_VECTOR_INT32:
        return bytes + rows * 4;
    case RMF_VECTOR_INT64:
    case RMF_VECTOR_TIMESTAMP_US:
        return bytes + rows * 8;
    default:
        return bytes + vector->size + (rows + 1) * 4;
    }
}

enum rmf_status rmf_vector_grow_rows(struct rmf_vector *vector, size_t rows) {
    size_t capacity = vector->row_capacity + vector->row_capacity / 2;
    if (capacity < rows) {
        capacity = rows;
    }
    size_t width = rmf_vector_width(vector);
    if (width != 0) {
        uint8_t *data = rmf_realloc_array(vector->data, capacity, width);
        if (data == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        vector->data = data;
    } else {
        int32_t *offsets = rmf_realloc_array(vector->offsets, capacity + 1, sizeof *offsets);
        if (offsets == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        vector->offsets = offsets;
        offsets[0] = 0;
    }
    if (vector->validity != NULL) {
        size_t had = vector->row_capacity / 8 + 1;
        uint8_t *validity = rmf_realloc_array(vector->validity, capacity / 8 + 1, 1);
        if (validity == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        memset(validity + had, 0xFF, capacity / 8 + 1 - had);
        vector->validity = validity;
    }
    vector->row_capacity = capacity;
    return RMF_OK;
}

enum rmf_status rmf_vector_grow_bytes(struct rmf_vector *vector, size_t wanted) {
    size_t capacity = vector->capacity + vector->capacity / 2;
    if (capacity < wanted) {
        capacity = wanted;
    }
    uint8_t *data = rmf_realloc_array(vector->data, capacity, 1);
    if (data == NULL) {
        return RMF_ERR_NO_MEMORY;
    }
    vector->data = data;
    vector->capacity = capacity;
    return RMF_OK;
}

enum rmf_status rmf_vector_init(struct rmf_vector *vector, const char *name,
                                enum rmf_vector_type type, size_t max_bytes,
                                const struct rmf_room *room, size_t least, size_t least_bytes) {
    vector->name = name;
    vector->type = type;
    vector->max_bytes = max_bytes;
    enum rmf_status status = rmf_vector_grow_rows(vector, room->rows > least ? room->rows : least);
    if (status == RMF_OK && (type == RMF_VECTOR_TEXT || type == RMF_VECTOR_BINARY)) {
        size_t bytes = least * least_bytes;
        status = rmf_vector_grow_bytes(vector, room->bytes > bytes ? room->bytes : bytes);
    }
    return status;
}

struct rmf_room rmf_vector_room(const struct rmf_vector *vector, size_t rows) {
    struct rmf_room room = {vector->size + vector->size / 16, rows + rows / 16};
    return room;
}

enum rmf_status rmf_vector_forecast(struct rmf_vector *vector, size_t part, size_t whole,
                                    size_t limit) {
    double expected = (double)vector->size * (double)whole / (double)part * 1.0625;
    size_t bytes = expected < (double)limit ? (size_t)expected : limit;
    if (bytes > vector->max_bytes || bytes <= vector->capacity) {
        return RMF_OK;
    }
    return rmf_vector_grow_bytes(vector, bytes);
}

enum rmf_status rmf_vector_forecast_rows(struct rmf_vector *vector, size_t rows, size_t part,
                                         size_t whole, size_t limit) {
    double expected = (double)rows * (double)whole / (double)part * 1.0625;
    size_t wanted = expected < (double)limit ? (size_t)expected : limit;
    return rmf_vector_reserve_rows(vector, wanted);
}

enum rmf_status rmf_vector_set_null(struct rmf_vector *vector, size_t row) {
    if (vector->validity == NULL) {
        size_t bytes = vector->row_capacity / 8 + 1;
        vector->validity = rmf_alloc(bytes);
        if (vector->validity == NULL) {
            return RMF_ERR_NO_MEMORY;
        }
        memset(vector->validity, 0xFF, bytes);
    }
    vector->validity[row / 8] &= (uint8_t)~(1u << row % 8);
    vector->nulls += 1;
    return RMF_OK;
}

void rmf_vector_cut(struct rmf_vector *vector, size_t written, size_t rows) {
    if (vector->offsets != NULL && vector->type != RMF_VECTOR_MAP) {
        vector->size = (size_t)vector->offsets[rows];
    }
    if (vector->validity != NULL) {
        for (size_t row = rows; row < written; row++) {
            uint8_t bit = (uint8_t)(1u << row % 8);
            vector->nulls -= (vector->validity[row / 8] & bit) == 0;
            vector->validity[row / 8] |= bit;
        }
    }
}

enum rmf_status rmf_vector_put_null(struct rmf_vector *vector, size_t row) {
    vector->offsets[row + 1] = (int32_t)vector->size;
    return rmf_vector_set_null(vector, row);
}

enum rmf_status rmf_vector_put_checked(struct rmf_vector *vector, size_t row,
                                       struct rmf_slice text, struct rmf_error *error) {
    if (rmf_utf8_is_valid(text)) {
        return rmf_vector_put(vector, row, text, error);
    }
    size_t bytes = rmf_utf8_replaced_bytes(text);
    enum rmf_status status = rmf_vector_reserve(vector, bytes, error);
    if (status != RMF_OK) {
        return status;
    }
    rmf_utf8_write_replaced(text, vector->data + vector->size);
    vector->size += bytes;
    vector->offsets[row + 1] = (int32_t)vector->size;
    return RMF_OK;
}
