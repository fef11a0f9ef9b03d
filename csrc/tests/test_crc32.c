/* Body checksums. */
#include "harness.h"
#include "rmf_crc32.h"

static uint32_t bit_by_bit(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        }
    }
    return ~crc;
}

static void recorded_bodies_have_the_recorded_checksum(void) {
    CHECK_EQ(rmf_crc32_body((const uint8_t *)"123456789", 9), 1274296614);
    CHECK_EQ(rmf_crc32_body((const uint8_t *)"hello-wire", 10), 768658287);
    CHECK_EQ(rmf_crc32_body(NULL, 0), 0);
    CHECK_EQ(rmf_crc32(0, NULL, 0), 0);
}

static void every_length_and_alignment_agrees_with_the_definition(void) {
    uint8_t bytes[600];
    uint32_t random = 12345;
    for (size_t i = 0; i < sizeof bytes; i++) {
        random = random * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(random >> 24);
    }
    for (size_t size = 0; size <= 520; size++) {
        for (size_t start = 0; start < 17; start += size % 4 + 1) {
            uint8_t *data = exact_copy(bytes + start, size);
            uint32_t expected = bit_by_bit(0, data, size);
            CHECK_EQ(rmf_crc32(0, data, size), expected);
            CHECK_EQ(rmf_crc32_portable(0, data, size), expected);
            free(data);
        }
    }
}

static void a_checksum_continues_over_pieces(void) {
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * i);
    }
    uint32_t expected = bit_by_bit(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t crc = rmf_crc32(0, bytes, cut);
        CHECK_EQ(rmf_crc32(crc, bytes + cut, sizeof bytes - cut), expected);
    }
}

static void the_kernel_has_a_name(void) { CHECK(strlen(rmf_crc32_kernel()) > 0); }

const struct test tests[] = {
    {"recorded bodies have the recorded checksum", recorded_bodies_have_the_recorded_checksum},
    {"every length and alignment agrees with the definition",
     every_length_and_alignment_agrees_with_the_definition},
    {"a checksum continues over pieces", a_checksum_continues_over_pieces},
    {"the kernel has a name", the_kernel_has_a_name},
    {NULL, NULL},
};
