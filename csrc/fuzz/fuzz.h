/* What the fuzz entries share. An entry defines LLVMFuzzerTestOneInput, so libFuzzer can drive it;
 * driver.c drives it where only gcc is at hand. */
#ifndef RMF_FUZZ_H
#define RMF_FUZZ_H

#include "../tests/harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes decisions from the front of an input. */
struct dice {
    const uint8_t *data;
    size_t size;
};

static inline uint8_t dice_byte(struct dice *dice) {
    if (dice->size == 0) {
        return 0;
    }
    dice->size--;
    return *dice->data++;
}

static inline uint32_t dice_u16(struct dice *dice) {
    uint32_t high = dice_byte(dice);
    return high << 8 | dice_byte(dice);
}

#endif
