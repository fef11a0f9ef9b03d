#define _POSIX_C_SOURCE 200809L

#include "rmf_socket.h"

#include <errno.h>

#if RMF_SOCKET_SUPPORTED

#include <sys/socket.h>
#include <sys/types.h>

/* Where it is missing, Python ignores the signal for the whole process. */
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

/* Takes what is complete, as far as there is room for it; RMF_NEED_MORE when nothing more is. */
static enum rmf_status rmf_socket_take(struct rmf_splitter *splitter, struct rmf_received *received,
                                        struct rmf_error *error) {
    while (received->frame_count < RMF_RECEIVE_FRAMES) {
        size_t at = received->frame_count;
        enum rmf_status status = rmf_splitter_take(splitter, &received->frames[at].data,
                                                   &received->frames[at].size, error);
        if (status != RMF_OK) {
            return status;
        }
        received->frame_count++;
    }
    return RMF_OK;
}

enum rmf_status rmf_socket_receive(int socket, struct rmf_splitter *splitter, size_t most,
                                   struct rmf_received *received, struct rmf_error *error) {
    received->frame_count = 0;
    received->bytes = 0;
    received->error_number = 0;
    for (;;) {
        /* First: more frames than fit into the last call may have been complete. */
        enum rmf_status status = rmf_socket_take(splitter, received, error);
        if (status != RMF_NEED_MORE) {
            return status;
        }
        if (received->bytes >= most) {
            return RMF_OK;
        }
        uint8_t *room;
        size_t room_bytes;
        status = rmf_splitter_reserve(splitter, &room, &room_bytes, error);
        if (status != RMF_OK) {
            return status;
        }
        ssize_t got;
        do {
            got = recv(socket, room, room_bytes, 0);
        } while (got < 0 && errno == EINTR);
        if (got <= 0) {
            bool drained = got < 0 && received->bytes > 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
            received->error_number = got < 0 && !drained ? errno : 0;
            return RMF_OK;
        }
        received->bytes += (size_t)got;
        status = rmf_splitter_commit(splitter, (size_t)got, error);
        if (status != RMF_OK) {
            return status;
        }
        if ((size_t)got < room_bytes) {
            status = rmf_socket_take(splitter, received, error);
            return status == RMF_NEED_MORE ? RMF_OK : status;
        }
    }
}

size_t rmf_socket_send(int socket, struct rmf_slice data, int *error_number) {
    ssize_t taken;
    do {
        taken = send(socket, data.ptr, data.len, MSG_NOSIGNAL);
    } while (taken < 0 && errno == EINTR);
    *error_number = taken < 0 ? errno : 0;
    return taken < 0 ? 0 : (size_t)taken;
}

#else

enum rmf_status rmf_socket_receive(int socket, struct rmf_splitter *splitter, size_t most,
                                   struct rmf_received *received, struct rmf_error *error) {
    (void)socket;
    (void)splitter;
    (void)most;
    (void)error;
    received->frame_count = 0;
    received->bytes = 0;
    received->error_number = ENOSYS;
    return RMF_OK;
}

size_t rmf_socket_send(int socket, struct rmf_slice data, int *error_number) {
    (void)socket;
    (void)data;
    *error_number = ENOSYS;
    return 0;
}

#endif
