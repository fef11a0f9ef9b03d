/* Sets of up to 64 small numbers, as the bits of a word. */
#ifndef RMF_BITS_H
#define RMF_BITS_H

#include <stdint.h>

#define RMF_WORD_BITS 64u

static inline uint64_t rmf_bit(uint32_t at) { return (uint64_t)1 << at; }

/* The lowest `count` bits. */
static inline uint64_t rmf_low_bits(uint64_t count) {
    return count >= RMF_WORD_BITS ? UINT64_MAX : rmf_bit((uint32_t)count) - 1;
}

static inline uint32_t rmf_bit_count(uint64_t bits) {
    /* Neighbouring fields are added, of 1, 2 and 4 bits; the product adds up the bytes. */
    bits -= (bits >> 1) & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (uint32_t)((bits * 0x0101010101010101u) >> 56);
}

/* Of a word that is not 0. */
static inline uint32_t rmf_lowest_bit(uint64_t bits) {
#if defined(__GNUC__) || defined(__clang__)
    return (uint32_t)__builtin_ctzll(bits);
#else
    return rmf_bit_count((bits & (~bits + 1)) - 1);
#endif
}

static inline uint32_t rmf_highest_bit(uint64_t bits) {
#if defined(__GNUC__) || defined(__clang__)
    return 63u - (uint32_t)__builtin_clzll(bits);
#else
    uint32_t at = 63;
    while ((bits >> 63) == 0) {
        bits <<= 1;
        at -= 1;
    }
    return at;
#endif
}

#endif
