/* A compact header: what was read survives being written, in either form, and read again. */
#include "fuzz.h"
#include "header_again.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct rmf_header header;
    struct rmf_error error;
    rmf_header_init(&header);
    enum rmf_status status =
        rmf_header_decode_compact((struct rmf_slice){data, size}, &header, &error);
    if (status == RMF_OK) {
        header_again(&header);
    } else {
        CHECK(status < 0);
        CHECK(error.position <= size);
        CHECK(error.field != NULL);
    }
    rmf_header_clear(&header);
    return 0;
}
