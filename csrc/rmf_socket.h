/* System calls on a non-blocking stream socket. POSIX; elsewhere RMF_SOCKET_SUPPORTED is 0 and
 * both functions fail with ENOSYS. */
#ifndef RMF_SOCKET_H
#define RMF_SOCKET_H

#include "rmf_frame.h"

#if defined(_WIN32)
#define RMF_SOCKET_SUPPORTED 0
#else
#define RMF_SOCKET_SUPPORTED 1
#endif

/* Most frames of one call. */
#define RMF_RECEIVE_FRAMES 64

struct rmf_received_frame {
    uint8_t *data; /* owned by the caller after the call: rmf_free */
    size_t size;
};

struct rmf_received {
    struct rmf_received_frame frames[RMF_RECEIVE_FRAMES];
    size_t frame_count;
    size_t bytes;     /* received by this call */
    int error_number; /* errno of the failed system call; "nothing waits" only when no byte came */
};

/* Receives and cuts in one go, for callers that let other threads run meanwhile: until nothing waits, a
 * block was not filled, `most` bytes came, RMF_RECEIVE_FRAMES frames are complete (more may be: the next
 * call takes them first), or an error. With `most` 0 it only takes what is complete. No byte and no
 * errno: the peer sends nothing more. `received` is filled whatever is returned: the frames that were
 * complete before an error are in it. RMF_OK, also when the system call failed; else what the splitter
 * says. */
RMF_MUST_CHECK enum rmf_status rmf_socket_receive(int socket, struct rmf_splitter *splitter,
                                                  size_t most, struct rmf_received *received,
                                                  struct rmf_error *error);

/* Sends what the socket takes at once. Returns the number of bytes; `error_number` is the errno, 0
 * without a failure. */
size_t rmf_socket_send(int socket, struct rmf_slice data, int *error_number);

#endif
