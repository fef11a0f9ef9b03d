#include "harness.h"

static long fail_at = -1;
static bool failed;
static bool paused;
static long live;
static size_t held;
static size_t peak;

void heap_fail_at(long n) {
    fail_at = n;
    failed = false;
}

void heap_fail_at_paused(bool now_paused) { paused = now_paused; }

long heap_live(void) { return live; }
size_t heap_peak(void) { return peak; }
void heap_reset_peak(void) { peak = held; }

static bool refuse(void) {
    if (paused || fail_at < 0) {
        return false;
    }
    if (fail_at == 0) {
        failed = true;
        return true;
    }
    fail_at--;
    return false;
}

/* Each block carries its size in front, for heap_peak. 16 bytes keep the alignment of malloc. */
#define FRONT 16u

static void *start(uint8_t *block, size_t size) {
    if (block == NULL) {
        return NULL;
    }
    memcpy(block, &size, sizeof size);
    live++;
    held += size;
    peak = held > peak ? held : peak;
    return block + FRONT;
}

static uint8_t *stop(void *block) {
    uint8_t *front = (uint8_t *)block - FRONT;
    size_t size;
    memcpy(&size, front, sizeof size);
    live--;
    held -= size;
    return front;
}

void *rmf_test_malloc(size_t size);
void *rmf_test_realloc(void *block, size_t size);
void rmf_test_free(void *block);

void *rmf_test_malloc(size_t size) {
    if (refuse() || size > SIZE_MAX - FRONT) {
        return NULL;
    }
    return start(malloc(size + FRONT), size);
}

/* Always moves, so that a pointer kept over a grow is found. */
void *rmf_test_realloc(void *block, size_t size) {
    if (block == NULL) {
        return rmf_test_malloc(size);
    }
    size_t old;
    memcpy(&old, (uint8_t *)block - FRONT, sizeof old);
    uint8_t *fresh = rmf_test_malloc(size);
    if (fresh != NULL) {
        memcpy(fresh, block, old < size ? old : size);
        free(stop(block));
    }
    return fresh;
}

void rmf_test_free(void *block) {
    if (block != NULL) {
        free(stop(block));
    }
}

void each_allocation_fails(bool (*run)(void)) {
    long before = live;
    for (long n = 0;; n++) {
        heap_fail_at(n);
        bool succeeded = run();
        bool hit = failed;
        heap_fail_at(-1);
        CHECK_EQ(live, before);
        if (!hit) {
            CHECK(succeeded);
            CHECK(n > 0);
            return;
        }
        CHECK(n < 100000);
    }
}

uint8_t *exact_copy(const void *data, size_t size) {
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    CHECK(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    return copy;
}

#ifndef RMF_FUZZ
/* The units are compiled for the fuzz driver too, which counts the edges that call this. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {}

int main(void) {
    int count = 0;
    for (const struct test *test = tests; test->name != NULL; test++) {
        fprintf(stderr, "%s\n", test->name);
        test->run();
        CHECK_EQ(live, 0);
        count++;
    }
    printf("%d tests\n", count);
    return count > 0 ? 0 : 1;
}
#endif
