#include "rmf_properties.h"

#include "rmf_bits.h"

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

#define RMF_BLOCK_BYTES 16u

/* Bit i: a[i] and b[i], i below RMF_BLOCK_BYTES, have these values. */
static uint32_t rmf_block_pairs(const uint8_t *a, uint8_t value_of_a, const uint8_t *b,
                                uint8_t value_of_b) {
#if defined(__SSE2__) || defined(_M_X64)
    __m128i in_a = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(const void *)a),
                                  _mm_set1_epi8((char)value_of_a));
    __m128i in_b = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(const void *)b),
                                  _mm_set1_epi8((char)value_of_b));
    return (uint32_t)_mm_movemask_epi8(_mm_and_si128(in_a, in_b));
#else
    uint32_t pairs = 0;
    for (uint32_t i = 0; i < RMF_BLOCK_BYTES; i++) {
        pairs |= (uint32_t)(a[i] == value_of_a && b[i] == value_of_b) << i;
    }
    return pairs;
#endif
}

/* A message has some six properties and is asked for one of them, so entries are not split: what is
 * looked for is the name's first byte with a name end at the right distance. */
bool rmf_properties_find(struct rmf_slice text, const char *name, size_t name_len,
                         struct rmf_slice *value) {
    if (text.len <= name_len) {
        return false;
    }
    bool found = false;
    size_t places = text.len - name_len; /* where an entry of this name can begin */
    uint8_t first = (uint8_t)name[0];
    for (size_t at = 0; at < places; at += RMF_BLOCK_BYTES) {
        size_t block = at;
        uint32_t pairs;
        if (places < RMF_BLOCK_BYTES) {
            pairs = 0;
            for (uint32_t i = 0; i < places; i++) {
                pairs |= (uint32_t)(text.ptr[i] == first &&
                                    text.ptr[i + name_len] == RMF_PROPERTY_NAME_END)
                         << i;
            }
        } else {
            if (places - at < RMF_BLOCK_BYTES) {
                block = places - RMF_BLOCK_BYTES; /* some places of it were looked at before */
            }
            pairs = rmf_block_pairs(text.ptr + block, first, text.ptr + block + name_len,
                                    RMF_PROPERTY_NAME_END);
            pairs &= ~(uint32_t)rmf_low_bits(at - block);
        }
        for (; pairs != 0; pairs &= pairs - 1) {
            const uint8_t *start = text.ptr + block + rmf_lowest_bit(pairs);
            if ((start != text.ptr && start[-1] != RMF_PROPERTY_END) ||
                memcmp(start, name, name_len) != 0) {
                continue;
            }
            start += name_len + 1;
            size_t rest = text.len - (size_t)(start - text.ptr);
            const uint8_t *end = memchr(start, RMF_PROPERTY_END, rest);
            size_t len = end == NULL ? rest : (size_t)(end - start);
            if (len > 0) {
                value->ptr = start;
                value->len = len;
                found = true;
            }
        }
    }
    return found;
}
