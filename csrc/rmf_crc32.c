#include "rmf_crc32.h"

#include <string.h>

#include "rmf_crc32_table.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define RMF_CRC32_X86 1
#include <immintrin.h>
#endif

static inline uint32_t rmf_load_le32_unsafe(const uint8_t *p) {
    return (uint32_t)p[0] | ((uint32_t)p[1] << 8) | ((uint32_t)p[2] << 16) |
           ((uint32_t)p[3] << 24);
}

/* Takes and returns the inverted register, so that kernels chain. */
static uint32_t rmf_crc32_update_portable(uint32_t crc, const uint8_t *data, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ rmf_load_le32_unsafe(data);
        uint32_t high = rmf_load_le32_unsafe(data + 4);
        crc = RMF_CRC32_TABLE[7][low & 0xFF] ^ RMF_CRC32_TABLE[6][(low >> 8) & 0xFF] ^
              RMF_CRC32_TABLE[5][(low >> 16) & 0xFF] ^ RMF_CRC32_TABLE[4][low >> 24] ^
              RMF_CRC32_TABLE[3][high & 0xFF] ^ RMF_CRC32_TABLE[2][(high >> 8) & 0xFF] ^
              RMF_CRC32_TABLE[1][(high >> 16) & 0xFF] ^ RMF_CRC32_TABLE[0][high >> 24];
        data += 8;
        size -= 8;
    }
    while (size > 0) {
        crc = (crc >> 8) ^ RMF_CRC32_TABLE[0][(crc ^ *data) & 0xFF];
        data += 1;
        size -= 1;
    }
    return crc;
}

uint32_t rmf_crc32_portable(uint32_t crc, const uint8_t *data, size_t size) {
    return ~rmf_crc32_update_portable(~crc, data, size);
}

#ifdef RMF_CRC32_X86
/* Carry-less multiplication folds four 16-byte lanes at a time. The constants are x^n mod P for the
 * distances of the folds, bit-reflected: 512 +- 32 bits (four lanes), 128 +- 32 bits (one lane), 64 bits,
 * and the Barrett pair; they follow from the polynomial (Gopal et al., "Fast CRC Computation Using
 * PCLMULQDQ", 2009). `size` must be a multiple of 16 and at least 64. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t rmf_crc32_update_clmul(
    uint32_t crc, const uint8_t *data, size_t size) {
    const __m128i k_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i k_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i k_barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i mask32 = _mm_setr_epi32(-1, 0, -1, 0);

    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(data + 0));
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(data + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(data + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(data + 48));
    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)crc));
    data += 64;
    size -= 64;

    while (size >= 64) {
        __m128i a_low = _mm_clmulepi64_si128(a, k_four, 0x00);
        __m128i b_low = _mm_clmulepi64_si128(b, k_four, 0x00);
        __m128i c_low = _mm_clmulepi64_si128(c, k_four, 0x00);
        __m128i d_low = _mm_clmulepi64_si128(d, k_four, 0x00);
        a = _mm_clmulepi64_si128(a, k_four, 0x11);
        b = _mm_clmulepi64_si128(b, k_four, 0x11);
        c = _mm_clmulepi64_si128(c, k_four, 0x11);
        d = _mm_clmulepi64_si128(d, k_four, 0x11);
        a = _mm_xor_si128(_mm_xor_si128(a, a_low),
                          _mm_loadu_si128((const __m128i *)(const void *)(data + 0)));
        b = _mm_xor_si128(_mm_xor_si128(b, b_low),
                          _mm_loadu_si128((const __m128i *)(const void *)(data + 16)));
        c = _mm_xor_si128(_mm_xor_si128(c, c_low),
                          _mm_loadu_si128((const __m128i *)(const void *)(data + 32)));
        d = _mm_xor_si128(_mm_xor_si128(d, d_low),
                          _mm_loadu_si128((const __m128i *)(const void *)(data + 48)));
        data += 64;
        size -= 64;
    }

    /* four lanes into one */
    __m128i low = _mm_clmulepi64_si128(a, k_one, 0x00);
    a = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(a, k_one, 0x11), low), b);
    low = _mm_clmulepi64_si128(a, k_one, 0x00);
    a = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(a, k_one, 0x11), low), c);
    low = _mm_clmulepi64_si128(a, k_one, 0x00);
    a = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(a, k_one, 0x11), low), d);

    while (size >= 16) {
        low = _mm_clmulepi64_si128(a, k_one, 0x00);
        a = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(a, k_one, 0x11), low),
                          _mm_loadu_si128((const __m128i *)(const void *)data));
        data += 16;
        size -= 16;
    }

    /* 128 bits to 64, 64 to 32 by Barrett reduction */
    __m128i t = _mm_clmulepi64_si128(a, k_one, 0x10);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), t);
    t = _mm_srli_si128(a, 4);
    a = _mm_clmulepi64_si128(_mm_and_si128(a, mask32), k_64, 0x00);
    a = _mm_xor_si128(a, t);
    t = _mm_clmulepi64_si128(_mm_and_si128(a, mask32), k_barrett, 0x10);
    t = _mm_clmulepi64_si128(_mm_and_si128(t, mask32), k_barrett, 0x00);
    a = _mm_xor_si128(a, t);
    return (uint32_t)_mm_extract_epi32(a, 1);
}

static inline bool rmf_crc32_has_clmul(void) {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#endif

uint32_t rmf_crc32(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
#ifdef RMF_CRC32_X86
    if (size >= 64 && rmf_crc32_has_clmul()) {
        size_t folded = size & ~(size_t)15;
        crc = rmf_crc32_update_clmul(crc, data, folded);
        data += folded;
        size -= folded;
    }
#endif
    return ~rmf_crc32_update_portable(crc, data, size);
}

const char *rmf_crc32_kernel(void) {
#ifdef RMF_CRC32_X86
    if (rmf_crc32_has_clmul()) {
        return "pclmulqdq";
    }
#endif
    return "slice-by-8";
}
