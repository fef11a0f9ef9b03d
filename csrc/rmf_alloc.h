/* The one door to the heap. Sizes are checked for overflow before they reach the allocator, and a
 * failed grow leaves the old block as it was. Test builds (RMF_TEST_ALLOC) route through functions of
 * the test program, which can make the Nth allocation fail. */
#ifndef RMF_ALLOC_H
#define RMF_ALLOC_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef RMF_TEST_ALLOC
void *rmf_test_malloc(size_t size);
void *rmf_test_realloc(void *block, size_t size);
void rmf_test_free(void *block);
#define RMF_RAW_MALLOC rmf_test_malloc
#define RMF_RAW_REALLOC rmf_test_realloc
#define RMF_RAW_FREE rmf_test_free
#else
#define RMF_RAW_MALLOC malloc
#define RMF_RAW_REALLOC realloc
#define RMF_RAW_FREE free
#endif

/* Owns: the caller frees with rmf_free. NULL when out of memory. Never returns NULL for size 0. */
static inline void *rmf_alloc(size_t size) { return RMF_RAW_MALLOC(size == 0 ? 1 : size); }

/* As rmf_alloc for count * size bytes; NULL when the product overflows. */
static inline void *rmf_alloc_array(size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    return rmf_alloc(count * size);
}

/* Zeroed memory for one object. */
static inline void *rmf_alloc_zeroed(size_t size) {
    void *block = rmf_alloc(size);
    if (block != NULL) {
        memset(block, 0, size);
    }
    return block;
}

/* Moves `block` into a block of count * size bytes. On NULL the old block is still the caller's. */
static inline void *rmf_realloc_array(void *block, size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    size_t bytes = count * size;
    return RMF_RAW_REALLOC(block, bytes == 0 ? 1 : bytes);
}

static inline void rmf_free(void *block) { RMF_RAW_FREE(block); }

#endif
