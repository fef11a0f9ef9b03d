/* The ordered map of offsets against a plain table. */
#include "harness.h"
#include "rmf_offset_map.h"

#define OFFSETS 1500u

struct table {
    bool present[OFFSETS];
    uint32_t value[OFFSETS];
    size_t count;
};

static uint32_t state;

static uint32_t random_below(uint32_t bound) {
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 4) * bound >> 28);
}

static void check_same(const struct rmf_offset_map *map, const struct table *table, int64_t scale) {
    const char *reason = NULL;
    if (!rmf_offset_map_check(map, &reason)) {
        fprintf(stderr, "%s\n", reason);
        abort();
    }
    CHECK_EQ(map->count, table->count);
    int64_t first = -1;
    int64_t last = -1;
    for (size_t i = 0; i < OFFSETS; i++) {
        if (table->present[i]) {
            first = first < 0 ? (int64_t)i : first;
            last = (int64_t)i;
        }
    }
    int64_t offset;
    struct rmf_offset_entry entry;
    CHECK_EQ(rmf_offset_map_first(map, &offset, &entry), table->count > 0);
    CHECK(table->count == 0 || (offset == first * scale && entry.index == table->value[first]));
    CHECK_EQ(rmf_offset_map_last(map, &offset), table->count > 0);
    CHECK(table->count == 0 || offset == last * scale);
}

static void insert(struct rmf_offset_map *map, struct table *table, size_t at, int64_t scale) {
    uint32_t value = random_below(1u << 20);
    struct rmf_offset_entry entry = {value, value, value};
    enum rmf_status status = rmf_offset_map_insert(map, (int64_t)at * scale, &entry);
    CHECK_EQ(status, table->present[at] ? RMF_NEED_MORE : RMF_OK);
    if (!table->present[at]) {
        table->present[at] = true;
        table->value[at] = value;
        table->count++;
    }
}

static void take_out(struct rmf_offset_map *map, struct table *table, size_t at, int64_t scale) {
    struct rmf_offset_entry entry;
    CHECK_EQ(rmf_offset_map_remove(map, (int64_t)at * scale, &entry), table->present[at]);
    if (table->present[at]) {
        CHECK_EQ(entry.index, table->value[at]);
        CHECK_EQ(entry.body_bytes, table->value[at]);
        table->present[at] = false;
        table->count--;
    }
}

/* Runs of inserts and removals whose place and direction change. */
static void mixed(uint32_t seed, int64_t scale) {
    struct rmf_offset_map map;
    struct table *table = calloc(1, sizeof *table);
    CHECK(table != NULL);
    rmf_offset_map_init(&map);
    state = seed;
    for (int round = 0; round < 120; round++) {
        size_t at = random_below(OFFSETS);
        size_t step = random_below(3) == 0 ? random_below(97) + 1 : 1;
        bool backwards = random_below(3) == 0;
        bool inserting = random_below(8) < (round % 40 < 20 ? 6u : 2u);
        for (size_t n = random_below(300); n > 0; n--) {
            if (inserting) {
                insert(&map, table, at, scale);
            } else {
                take_out(&map, table, at, scale);
            }
            at = (backwards ? at + OFFSETS - step : at + step) % OFFSETS;
        }
        check_same(&map, table, scale);
    }
    rmf_offset_map_clear(&map);
    memset(table, 0, sizeof *table);
    check_same(&map, table, scale);
    insert(&map, table, 7, scale);
    check_same(&map, table, scale);
    rmf_offset_map_clear(&map);
    free(table);
}

static void the_map_holds_what_a_table_holds(void) {
    for (uint32_t seed = 1; seed <= 12; seed++) {
        mixed(seed, 1);
        mixed(seed, INT64_MAX / OFFSETS);
    }
}

struct dropped {
    uint32_t entries;
    int64_t bytes;
};

static void count_dropped(void *context, uint32_t owner, uint32_t entries, int64_t body_bytes) {
    struct dropped *dropped = context;
    CHECK(owner < 7);
    CHECK(entries > 0);
    dropped->entries += entries;
    dropped->bytes += body_bytes;
}

/* As mixed, in whole runs: ascending, descending, with gaps, with repeated offsets. */
static void mixed_runs(uint32_t seed) {
    struct rmf_offset_map map;
    struct table *table = calloc(1, sizeof *table);
    CHECK(table != NULL);
    rmf_offset_map_init(&map);
    state = seed;
    for (uint32_t round = 0; round < 300; round++) {
        struct {
            int64_t offset;
            uint32_t body;
            uint32_t other;
        } items[200];
        size_t count = random_below(200);
        size_t at = random_below(OFFSETS);
        size_t step = random_below(2) == 0 ? 1 : random_below(70);
        bool backwards = random_below(3) == 0;
        for (size_t i = 0; i < count; i++) {
            items[i].offset = (int64_t)at;
            items[i].body = (uint32_t)i;
            at = (backwards ? at + OFFSETS - step : at + step) % OFFSETS;
        }
        struct rmf_offset_run run = {&items[0].offset, sizeof items[0], count};
        if (count > 0 && random_below(8) < (round % 60 < 30 ? 6u : 2u)) {
            size_t done;
            uint32_t inserted;
            int64_t bytes;
            CHECK_EQ(rmf_offset_map_insert_run(&map, run, &items[0].body, round % 7, &done,
                                               &inserted, &bytes),
                     RMF_OK);
            CHECK_EQ(done, count);
            for (size_t i = 0; i < count; i++) {
                size_t place = (size_t)items[i].offset;
                if (!table->present[place]) {
                    table->present[place] = true;
                    table->value[place] = (uint32_t)i;
                    table->count++;
                    inserted--;
                    bytes -= (int64_t)i;
                }
            }
            CHECK_EQ(inserted, 0);
            CHECK_EQ(bytes, 0);
        } else {
            struct dropped dropped = {0, 0};
            rmf_offset_map_remove_run(&map, run, count_dropped, &dropped);
            for (size_t i = 0; i < count; i++) {
                size_t place = (size_t)items[i].offset;
                if (table->present[place]) {
                    table->present[place] = false;
                    table->count--;
                    dropped.entries--;
                    dropped.bytes -= table->value[place];
                }
            }
            CHECK_EQ(dropped.entries, 0);
            CHECK_EQ(dropped.bytes, 0);
        }
        check_same(&map, table, 1);
    }
    rmf_offset_map_clear(&map);
    free(table);
}

static void runs_do_what_single_calls_do(void) {
    for (uint32_t seed = 1; seed <= 20; seed++) {
        mixed_runs(seed);
    }
}

static void a_steady_flow_allocates_nothing(void) {
    struct rmf_offset_map map;
    struct rmf_offset_entry entry = {0, 0, 0};
    rmf_offset_map_init(&map);
    int64_t next = 0;
    for (; next < 1000; next++) {
        CHECK_EQ(rmf_offset_map_insert(&map, next, &entry), RMF_OK);
    }
    for (; next < 2000; next++) { /* settles the spare leaf */
        CHECK(rmf_offset_map_remove(&map, next - 1000, &entry));
        CHECK_EQ(rmf_offset_map_insert(&map, next, &entry), RMF_OK);
    }
    heap_fail_at(0);
    for (; next < 100000; next++) {
        CHECK(rmf_offset_map_remove(&map, next - 1000, &entry));
        CHECK_EQ(rmf_offset_map_insert(&map, next, &entry), RMF_OK);
    }
    heap_fail_at(-1);
    rmf_offset_map_clear(&map);
}

static bool insert_in_random_order(void) {
    struct rmf_offset_map map;
    struct rmf_offset_entry entry = {1, 2, 3};
    const char *reason;
    rmf_offset_map_init(&map);
    state = 5;
    bool ok = true;
    for (int i = 0; ok && i < 600; i++) {
        int64_t offset = random_below(10000);
        size_t before = map.count;
        enum rmf_status status = rmf_offset_map_insert(&map, offset, &entry);
        ok = status >= 0;
        CHECK(ok || status == RMF_ERR_NO_MEMORY);
        CHECK(ok || map.count == before);
        CHECK(rmf_offset_map_check(&map, &reason));
    }
    rmf_offset_map_clear(&map);
    return ok;
}

static void the_map_survives_each_failed_allocation(void) {
    each_allocation_fails(insert_in_random_order);
}

static void an_empty_map_has_nothing(void) {
    struct rmf_offset_map map;
    struct rmf_offset_entry entry;
    int64_t offset;
    const char *reason;
    rmf_offset_map_init(&map);
    CHECK(!rmf_offset_map_first(&map, &offset, &entry));
    CHECK(!rmf_offset_map_last(&map, &offset));
    CHECK(!rmf_offset_map_remove(&map, 0, &entry));
    CHECK(rmf_offset_map_check(&map, &reason));
    rmf_offset_map_clear(&map);
}

const struct test tests[] = {
    {"the map holds what a table holds", the_map_holds_what_a_table_holds},
    {"runs do what single calls do", runs_do_what_single_calls_do},
    {"a steady flow allocates nothing", a_steady_flow_allocates_nothing},
    {"the map survives each failed allocation", the_map_survives_each_failed_allocation},
    {"an empty map has nothing", an_empty_map_has_nothing},
    {NULL, NULL},
};
