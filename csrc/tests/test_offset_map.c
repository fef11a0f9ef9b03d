/* The ordered map of offsets against a plain table. */
#include "harness.h"
#include "rmf_offset_map.h"

#define OFFSETS 1500u
#define NOTHING UINT32_MAX

/* Of each offset: owner and index of what is there. */
struct table {
    uint32_t owner[OFFSETS];
    uint32_t index[OFFSETS];
    size_t count;
};

static uint32_t state;
static int64_t origin; /* offset of the table's first entry */

static uint32_t random_below(uint32_t bound) {
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 4) * bound >> 28);
}

static struct table *new_table(void) {
    struct table *table = calloc(1, sizeof *table);
    CHECK(table != NULL);
    for (size_t i = 0; i < OFFSETS; i++) {
        table->owner[i] = NOTHING;
    }
    return table;
}

static size_t place_of(const struct rmf_offset_run *run, uint32_t bit) {
    return (size_t)(run->base + (int64_t)bit - origin);
}

/* A run is what the table has there. */
static void check_run(const struct rmf_offset_run *run, const struct table *table) {
    for (uint64_t bits = run->present; bits != 0; bits &= bits - 1) {
        uint32_t bit = rmf_lowest_bit(bits);
        CHECK_EQ(table->owner[place_of(run, bit)], run->owner);
        CHECK_EQ(table->index[place_of(run, bit)], rmf_offset_run_index(run, bit));
    }
}

static void check_same(const struct rmf_offset_map *map, const struct table *table) {
    const char *reason = NULL;
    if (!rmf_offset_map_check(map, &reason)) {
        fprintf(stderr, "%s\n", reason);
        abort();
    }
    CHECK_EQ(map->count, table->count);
    size_t seen = 0;
    const struct rmf_offset_run *run = rmf_offset_map_first(map);
    while (run != NULL) {
        check_run(run, table);
        seen += rmf_bit_count(run->present);
        int64_t high = rmf_offset_run_high(run);
        if (run == rmf_offset_map_last(map)) {
            break;
        }
        run = rmf_offset_map_from(map, high + 1);
        CHECK(run != NULL && rmf_offset_run_low(run) > high);
    }
    CHECK_EQ(seen, table->count);
    CHECK_EQ(rmf_offset_map_last(map) == NULL, table->count == 0);
}

/* A run of any shape: dense, with gaps, or of few offsets far apart, inside the table. */
static struct rmf_offset_run random_run(uint32_t owner) {
    uint32_t at = random_below(OFFSETS);
    struct rmf_offset_run run = {origin + at, 1, 1, owner, random_below(1000)};
    uint32_t most = OFFSETS - at < 64 ? OFFSETS - at : 64;
    uint32_t length = random_below(most) + 1;
    uint32_t chance = random_below(4);
    for (uint32_t bit = 1; bit < length; bit++) {
        if (chance == 0 || random_below(4) < chance) {
            run.known |= rmf_bit(bit);
        }
    }
    run.present = run.known;
    return run;
}

static void insert(struct rmf_offset_map *map, struct table *table,
                   const struct rmf_offset_run *run) {
    uint64_t inserted;
    CHECK_EQ(rmf_offset_map_insert(map, run, &inserted), RMF_OK);
    uint64_t expected = 0;
    for (uint64_t bits = run->present; bits != 0; bits &= bits - 1) {
        uint32_t bit = rmf_lowest_bit(bits);
        size_t place = place_of(run, bit);
        if (table->owner[place] == NOTHING) {
            expected |= rmf_bit(bit);
            table->owner[place] = run->owner;
            table->index[place] = rmf_offset_run_index(run, bit);
            table->count++;
        }
    }
    CHECK(inserted == expected);
}

static void cut(struct rmf_offset_map *map, struct table *table, struct rmf_offset_window window) {
    struct rmf_offset_window left = window;
    struct rmf_offset_window search = window;
    struct rmf_offset_run gone;
    struct rmf_offset_run found;
    while (rmf_offset_map_find(map, &search, &found)) {
        CHECK(rmf_offset_map_cut(map, &left, &gone));
        CHECK(memcmp(&gone, &found, sizeof gone) == 0);
        search = left;
        CHECK(gone.present != 0);
        check_run(&gone, table);
        for (uint64_t bits = gone.present; bits != 0; bits &= bits - 1) {
            size_t place = place_of(&gone, rmf_lowest_bit(bits));
            CHECK((window.bits & rmf_bit((uint32_t)(origin + (int64_t)place - window.base))) != 0);
            table->owner[place] = NOTHING;
            table->count--;
        }
    }
    CHECK(!rmf_offset_map_cut(map, &left, &gone));
    for (uint64_t bits = window.bits; bits != 0; bits &= bits - 1) {
        int64_t place = window.base - origin + (int64_t)rmf_lowest_bit(bits);
        CHECK(table->owner[place] == NOTHING);
    }
}

static void mixed(uint32_t seed) {
    struct rmf_offset_map map;
    struct table *table = new_table();
    rmf_offset_map_init(&map);
    state = seed;
    for (uint32_t round = 0; round < 1200; round++) {
        struct rmf_offset_run run = random_run(round);
        if (random_below(8) < (round % 120 < 60 ? 6u : 2u)) {
            insert(&map, table, &run);
        } else {
            struct rmf_offset_window window = {run.base, run.known};
            cut(&map, table, window);
        }
        if (round % 97 == 0 && round > 0) {
            uint32_t owner = round - random_below(50);
            rmf_offset_map_remove_owner(&map, owner);
            for (size_t i = 0; i < OFFSETS; i++) {
                if (table->owner[i] == owner) {
                    table->owner[i] = NOTHING;
                    table->count--;
                }
            }
        }
        check_same(&map, table);
    }
    rmf_offset_map_clear(&map);
    free(table);
    table = new_table();
    check_same(&map, table);
    struct rmf_offset_run run = random_run(0);
    insert(&map, table, &run);
    check_same(&map, table);
    rmf_offset_map_clear(&map);
    free(table);
}

static void the_map_holds_what_a_table_holds(void) {
    static const int64_t origins[] = {0, -700, INT64_MIN, INT64_MAX - (int64_t)OFFSETS + 1};
    for (uint32_t seed = 1; seed <= 12; seed++) {
        origin = origins[seed % 4];
        mixed(seed);
    }
    origin = 0;
}

/* Single offsets, as few others will come: forwards, backwards, from the middle. */
static void runs_of_one_offset_are_held_in_any_order(void) {
    for (int order = 0; order < 3; order++) {
        struct rmf_offset_map map;
        struct table *table = new_table();
        rmf_offset_map_init(&map);
        for (uint32_t i = 0; i < OFFSETS; i++) {
            uint32_t at = order == 0 ? i : order == 1 ? OFFSETS - 1 - i : i * 7 % OFFSETS;
            struct rmf_offset_run run = {at, 1, 1, i, i};
            insert(&map, table, &run);
            if (i % 50 == 0) {
                check_same(&map, table);
            }
        }
        CHECK_EQ(map.count, OFFSETS);
        for (uint32_t i = 0; i < OFFSETS; i++) {
            struct rmf_offset_window window = {i * 11 % OFFSETS, 1};
            cut(&map, table, window);
            if (i % 50 == 0) {
                check_same(&map, table);
            }
        }
        check_same(&map, table);
        rmf_offset_map_clear(&map);
        free(table);
    }
}

static uint32_t runs_in(const struct rmf_offset_map *map) {
    uint32_t runs = 0;
    const struct rmf_offset_run *run = rmf_offset_map_first(map);
    while (run != NULL) {
        runs++;
        run = rmf_offset_map_from(map, rmf_offset_run_high(run) + 1);
    }
    return runs;
}

static void the_parts_of_a_run_grow_together_again(void) {
    struct rmf_offset_map map;
    struct rmf_offset_run whole = {10, 0xFF, 0xFF, 1, 0};
    struct rmf_offset_run before = {9, 1, 1, 2, 0};
    struct rmf_offset_run behind = {18, 1, 1, 3, 0};
    uint64_t inserted;
    rmf_offset_map_init(&map);
    CHECK_EQ(rmf_offset_map_insert(&map, &before, &inserted), RMF_OK);
    CHECK_EQ(rmf_offset_map_insert(&map, &behind, &inserted), RMF_OK);
    static const uint64_t parts[] = {0x10, 0x81, 0x42, 0x2C};
    for (size_t i = 0; i < 4; i++) {
        struct rmf_offset_run part = whole;
        part.present = parts[i];
        CHECK_EQ(rmf_offset_map_insert(&map, &part, &inserted), RMF_OK);
        CHECK(inserted == parts[i]);
        CHECK_EQ(runs_in(&map), 3);
    }
    struct rmf_offset_window window = {10, 0xFF};
    struct rmf_offset_run gone;
    CHECK(rmf_offset_map_cut(&map, &window, &gone));
    CHECK(memcmp(&gone, &whole, sizeof gone) == 0);
    rmf_offset_map_clear(&map);
}

static void a_steady_flow_allocates_nothing(void) {
    struct rmf_offset_map map;
    struct rmf_offset_run gone;
    uint64_t inserted;
    rmf_offset_map_init(&map);
    for (int64_t next = 0; next < 100000; next += 32) {
        struct rmf_offset_run run = {next, UINT32_MAX, UINT32_MAX, 0, 0};
        struct rmf_offset_window window = {next - 3200, UINT32_MAX};
        CHECK_EQ(rmf_offset_map_insert(&map, &run, &inserted), RMF_OK);
        CHECK_EQ(rmf_offset_map_cut(&map, &window, &gone), next >= 3200);
        if (next == 32000) { /* the spare leaf is there by now */
            heap_fail_at(0);
        }
    }
    heap_fail_at(-1);
    rmf_offset_map_clear(&map);
}

static bool insert_in_random_order(void) {
    struct rmf_offset_map map;
    const char *reason;
    rmf_offset_map_init(&map);
    state = 5;
    bool ok = true;
    for (uint32_t i = 0; ok && i < 600; i++) {
        struct rmf_offset_run run = random_run(i);
        uint64_t inserted;
        size_t before = map.count;
        enum rmf_status status = rmf_offset_map_insert(&map, &run, &inserted);
        ok = status == RMF_OK;
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
    struct rmf_offset_run run;
    struct rmf_offset_window window = {0, UINT64_MAX};
    const char *reason;
    rmf_offset_map_init(&map);
    CHECK(rmf_offset_map_first(&map) == NULL);
    CHECK(rmf_offset_map_last(&map) == NULL);
    CHECK(rmf_offset_map_from(&map, INT64_MIN) == NULL);
    CHECK(!rmf_offset_map_cut(&map, &window, &run));
    CHECK(rmf_offset_map_check(&map, &reason));
    rmf_offset_map_clear(&map);
}

static void bits_are_counted(void) {
    state = 9;
    for (int round = 0; round < 1000; round++) {
        uint64_t bits = 0;
        uint32_t count = random_below(65);
        while (rmf_bit_count(bits) < count) {
            bits |= rmf_bit(random_below(64));
        }
        uint32_t found = 0;
        for (uint64_t left = bits; left != 0; left &= left - 1) {
            found++;
        }
        CHECK_EQ(found, count);
    }
    CHECK(rmf_low_bits(0) == 0 && rmf_low_bits(64) == UINT64_MAX && rmf_low_bits(3) == 7);
    CHECK_EQ(rmf_bit_count(UINT64_MAX), 64);
}

const struct test tests[] = {
    {"the map holds what a table holds", the_map_holds_what_a_table_holds},
    {"runs of one offset are held in any order", runs_of_one_offset_are_held_in_any_order},
    {"the parts of a run grow together again", the_parts_of_a_run_grow_together_again},
    {"a steady flow allocates nothing", a_steady_flow_allocates_nothing},
    {"the map survives each failed allocation", the_map_survives_each_failed_allocation},
    {"an empty map has nothing", an_empty_map_has_nothing},
    {"bits are counted", bits_are_counted},
    {NULL, NULL},
};
