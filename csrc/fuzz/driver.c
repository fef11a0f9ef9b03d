/* Drives a fuzz entry without libFuzzer: replays a corpus, then mutates it.
 *
 *   entry CORPUS_DIR [--iterations N] [--seconds N] [--seed N] [--crash FILE]
 *   entry FILE...                replays the files and stops
 *
 * Entry and library are compiled with -fsanitize-coverage=trace-pc, this file without: an input that
 * reaches a pair of branches that no other reached is kept and mutated further. The input at hand is
 * written to the crash file when a sanitizer or a check stops the program, or when one input takes
 * longer than RMF_FUZZ_HANG_SECONDS. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define MAX_BYTES 65536u
#define MAX_CORPUS 4096u
#define EDGES 65536u
#ifndef RMF_FUZZ_HANG_SECONDS
#define RMF_FUZZ_HANG_SECONDS 20u
#endif

struct input {
    uint8_t *data;
    size_t size;
};

static struct input corpus[MAX_CORPUS];
static size_t corpus_count;
static size_t seeds_count;
static uint8_t seen[EDGES];
static uint8_t hits[EDGES];
static uintptr_t last_place;
static size_t edges_count;
static uint64_t state;

static uint8_t current[MAX_BYTES];
static size_t current_size;
static const char *crash_path = "crash-input";
static const char *what = "crash";

void __sanitizer_cov_trace_pc(void);
void __sanitizer_set_death_callback(void (*callback)(void));

/* Edges are hashed into a table, with the place that was left behind as part of the key. */
void __sanitizer_cov_trace_pc(void) {
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    uintptr_t key = (place ^ last_place) * 0x9E3779B97F4A7C15u;
    hits[key >> 48] = 1;
    last_place = place >> 1;
}

static void save_current(void) {
    FILE *file = fopen(crash_path, "wb");
    if (file != NULL) {
        (void)fwrite(current, 1, current_size, file);
        (void)fclose(file);
    }
    fprintf(stderr, "%s: %zu bytes of input written to %s\n", what, current_size, crash_path);
}

static void on_signal(int number) {
    what = number == SIGALRM ? "hang" : "abort";
    save_current();
    _exit(1);
}

static uint64_t next_random(void) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static size_t below(size_t bound) { return bound == 0 ? 0 : (size_t)(next_random() % bound); }

/* Runs the input at hand in a block of its exact size; true when it reached a new edge. */
static bool run_current(void) {
    memset(hits, 0, sizeof hits);
    last_place = 0;
    uint8_t *copy = exact_copy(current, current_size);
    (void)LLVMFuzzerTestOneInput(copy, current_size);
    free(copy);
    CHECK_EQ(heap_live(), 0);
    bool fresh = false;
    for (size_t i = 0; i < EDGES; i++) {
        if (hits[i] != 0 && seen[i] == 0) {
            seen[i] = 1;
            edges_count++;
            fresh = true;
        }
    }
    return fresh;
}

static void keep_current(void) {
    if (corpus_count < MAX_CORPUS) {
        corpus[corpus_count].data = exact_copy(current, current_size);
        corpus[corpus_count].size = current_size;
        corpus_count++;
    }
}

static void insert_bytes(size_t at, const uint8_t *data, size_t size) {
    if (size > MAX_BYTES - current_size) {
        size = MAX_BYTES - current_size;
    }
    memmove(current + at + size, current + at, current_size - at);
    memmove(current + at, data, size);
    current_size += size;
}

/* Values that break length checks, as big-endian integers of 1, 2, 4 and 8 bytes. */
static void write_interesting(void) {
    static const int64_t values[] = {0,     1,     -1,         2,          127,        128,
                                     255,   256,   32767,      32768,      65535,      65536,
                                     91,    4,     0x7FFFFFFF, -0x7FFFFFFF - 1LL,
                                     0x7FFFFFFFFFFFFFFF, 16777212, 16777213};
    size_t width = (size_t)1 << below(4);
    if (current_size < width) {
        return;
    }
    size_t at = below(current_size - width + 1);
    uint64_t value = (uint64_t)values[below(sizeof values / sizeof values[0])];
    if (below(3) == 0) {
        value = current_size + below(5) - 2;
    }
    for (size_t i = 0; i < width; i++) {
        current[at + i] = (uint8_t)(value >> (8 * (width - 1 - i)));
    }
}

static void mutate_once(void) {
    uint8_t bytes[64];
    size_t at = below(current_size + 1);
    switch (below(9)) {
    case 0:
        if (current_size > 0) {
            current[below(current_size)] ^= (uint8_t)(1u << below(8));
        }
        break;
    case 1:
        if (current_size > 0) {
            current[below(current_size)] = (uint8_t)next_random();
        }
        break;
    case 2:
    case 3:
        write_interesting();
        break;
    case 4:
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (uint8_t)next_random();
        }
        insert_bytes(at, bytes, 1 + below(8));
        break;
    case 5: { /* cut out */
        size_t size = below(current_size - at + 1);
        size = below(4) == 0 ? size : (size < 8 ? size : 8);
        memmove(current + at, current + at + size, current_size - at - size);
        current_size -= size;
        break;
    }
    case 6:
        current_size = at;
        break;
    case 7: { /* repeat a piece */
        size_t size = below(current_size - at + 1);
        size = size < sizeof bytes ? size : sizeof bytes;
        memcpy(bytes, current + at, size);
        insert_bytes(below(current_size + 1), bytes, size);
        break;
    }
    default: { /* a piece of another input */
        const struct input *other = &corpus[below(corpus_count)];
        size_t from = below(other->size + 1);
        size_t size = below(other->size - from + 1);
        insert_bytes(at, other->data + from, size);
        break;
    }
    }
}

static void load_current(const struct input *input) {
    current_size = input->size;
    if (current_size > 0) {
        memcpy(current, input->data, current_size);
    }
}

static void read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    current_size = fread(current, 1, MAX_BYTES, file);
    (void)fclose(file);
    (void)run_current();
    keep_current();
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void read_directory(const char *path) {
    DIR *directory = opendir(path);
    if (directory == NULL) {
        perror(path);
        exit(2);
    }
    static char *names[MAX_CORPUS];
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL && count < MAX_CORPUS) {
        if (entry->d_name[0] != '.') {
            size_t size = strlen(path) + strlen(entry->d_name) + 2;
            names[count] = malloc(size);
            CHECK(names[count] != NULL);
            (void)snprintf(names[count], size, "%s/%s", path, entry->d_name);
            count++;
        }
    }
    (void)closedir(directory);
    /* The order decides what a seed gives. */
    qsort(names, count, sizeof names[0], by_name);
    for (size_t i = 0; i < count; i++) {
        read_file(names[i]);
        free(names[i]);
    }
}

static double now(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    unsigned long long iterations = 0;
    double seconds = 0;
    bool mutate = false;
    __sanitizer_set_death_callback(save_current);
    (void)signal(SIGABRT, on_signal);
    (void)signal(SIGALRM, on_signal);
    state = 1;
    (void)alarm(RMF_FUZZ_HANG_SECONDS);
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        struct stat info;
        if (more && strcmp(argv[i], "--iterations") == 0) {
            iterations = strtoull(argv[++i], NULL, 10);
            mutate = true;
        } else if (more && strcmp(argv[i], "--seconds") == 0) {
            seconds = strtod(argv[++i], NULL);
            mutate = true;
        } else if (more && strcmp(argv[i], "--seed") == 0) {
            state = strtoull(argv[++i], NULL, 10);
        } else if (more && strcmp(argv[i], "--crash") == 0) {
            crash_path = argv[++i];
        } else if (stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode)) {
            read_directory(argv[i]);
        } else {
            read_file(argv[i]);
        }
    }
    seeds_count = corpus_count;
    current_size = 0;
    (void)run_current();
    keep_current();
    unsigned long long done = 0;
    double end = now() + seconds;
    while (mutate && (iterations == 0 || done < iterations)) {
        if (done % 256 == 0) {
            (void)alarm(RMF_FUZZ_HANG_SECONDS);
            if (seconds > 0 && now() >= end) {
                break;
            }
        }
        load_current(&corpus[below(corpus_count)]);
        for (size_t n = 1 + below(6); n > 0; n--) {
            mutate_once();
        }
        if (run_current()) {
            keep_current();
        }
        done++;
    }
    printf("engine gcc-driver, seeds %zu, mutations %llu, kept %zu, edges %zu\n", seeds_count, done,
           corpus_count - seeds_count - 1, edges_count);
    for (size_t i = 0; i < corpus_count; i++) {
        free(corpus[i].data);
    }
    return seeds_count > 0 ? 0 : 1;
}
