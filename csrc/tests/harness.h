/* What the C tests share: checks that stop the program, and a heap whose Nth allocation can be made to
 * fail. Each test program defines `tests` and gets its main from harness.c. */
#ifndef RMF_TEST_HARNESS_H
#define RMF_TEST_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);            \
            abort();                                                                             \
        }                                                                                        \
    } while (0)

#define CHECK_EQ(found, expected)                                                                \
    do {                                                                                         \
        long long found_ = (long long)(found);                                                   \
        long long expected_ = (long long)(expected);                                             \
        if (found_ != expected_) {                                                               \
            fprintf(stderr, "%s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__, #found,    \
                    found_, expected_);                                                          \
            abort();                                                                             \
        }                                                                                        \
    } while (0)

#define CHECK_BYTES(ptr, size, text)                                                             \
    do {                                                                                         \
        CHECK_EQ(size, sizeof(text) - 1);                                                        \
        CHECK(memcmp(ptr, text, sizeof(text) - 1) == 0);                                         \
    } while (0)

/* A borrowed literal as struct rmf_slice; needs rmf_common.h. */
#define SLICE(text) ((struct rmf_slice){(const uint8_t *)(text), sizeof(text) - 1})

struct test {
    const char *name;
    void (*run)(void);
};

/* Ends with {NULL, NULL}. */
extern const struct test tests[];

/* Allocation number `n` from now on (0 = the next one) and all later ones fail; -1 = none fails. */
void heap_fail_at(long n);
/* While paused, no allocation fails and none is counted: for the checks of a test. */
void heap_fail_at_paused(bool paused);
/* Blocks that were allocated and not freed yet. */
long heap_live(void);
/* Largest number of bytes held at once since heap_reset_peak. */
size_t heap_peak(void);
void heap_reset_peak(void);

/* Runs `run` with the first, the second, ... allocation failing until it gets through. `run` returns
 * true when it succeeded; it must free all in both cases. Checks that nothing leaks and that at least
 * one failure was seen. */
void each_allocation_fails(bool (*run)(void));

/* A block of exactly `size` bytes, so that AddressSanitizer sees the first byte beyond it. Not counted
 * by heap_live. */
uint8_t *exact_copy(const void *data, size_t size);

#endif
