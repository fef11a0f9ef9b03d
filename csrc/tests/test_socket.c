/* Receiving from and sending to a socket pair. */
#define _POSIX_C_SOURCE 200809L

#include "harness.h"
#include "rmf_alloc.h"
#include "rmf_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX RMF_FRAME_MAX_BYTES_DEFAULT

struct pair {
    int ours, theirs;
    struct rmf_splitter *splitter;
    struct rmf_received got;
};

static struct pair open_pair(void) {
    struct pair pair;
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    for (int i = 0; i < 2; i++) {
        int room = 1 << 18; /* macOS gives a few KiB unasked */
        CHECK_EQ(setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        CHECK_EQ(setsockopt(ends[i], SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
        CHECK_EQ(fcntl(ends[i], F_SETFL, fcntl(ends[i], F_GETFL) | O_NONBLOCK), 0);
    }
    pair.ours = ends[0];
    pair.theirs = ends[1];
    pair.splitter = rmf_splitter_new(MAX);
    CHECK(pair.splitter != NULL);
    return pair;
}

static void free_frames(struct pair *pair) {
    for (size_t i = 0; i < pair->got.frame_count; i++) {
        rmf_free(pair->got.frames[i].data);
    }
    pair->got.frame_count = 0;
}

static void close_pair(struct pair *pair) {
    free_frames(pair);
    rmf_splitter_free(pair->splitter);
    close(pair->ours);
    if (pair->theirs >= 0) {
        close(pair->theirs);
    }
}

static void write_frames(int socket, size_t count, size_t body) {
    size_t size = RMF_FRAME_FIXED_BYTES + body;
    uint8_t *frame = calloc(1, size);
    CHECK(frame != NULL);
    CHECK_EQ(rmf_frame_write_fixed(RMF_SERIALIZE_JSON, 0, body, MAX, frame, NULL), RMF_OK);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(write(socket, frame, size), (long long)size);
    }
    free(frame);
}

static void nothing_waits(void) {
    struct pair pair = open_pair();
    CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1 << 20, &pair.got, NULL), RMF_OK);
    CHECK_EQ(pair.got.bytes, 0);
    CHECK_EQ(pair.got.frame_count, 0);
    CHECK(pair.got.error_number == EAGAIN || pair.got.error_number == EWOULDBLOCK);
    close_pair(&pair);
}

static void frames_then_the_end(void) {
    struct pair pair = open_pair();
    write_frames(pair.theirs, 3, 10);
    CHECK_EQ(write(pair.theirs, "\0\0", 2), 2);
    CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1 << 20, &pair.got, NULL), RMF_OK);
    CHECK_EQ(pair.got.bytes, 3 * 18 + 2);
    CHECK_EQ(pair.got.frame_count, 3);
    CHECK_EQ(pair.got.frames[2].size, 18);
    CHECK_EQ(pair.got.error_number, 0);
    CHECK_EQ(rmf_splitter_pending(pair.splitter), 2);
    free_frames(&pair);
    close(pair.theirs);
    pair.theirs = -1;
    CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1 << 20, &pair.got, NULL), RMF_OK);
    CHECK_EQ(pair.got.bytes, 0);
    CHECK_EQ(pair.got.error_number, 0); /* the end */
    close_pair(&pair);
}

static void more_frames_than_one_call_holds(void) {
    struct pair pair = open_pair();
    size_t total = 0;
    size_t most = 1 << 20;
    write_frames(pair.theirs, 150, 1);
    do {
        CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, most, &pair.got, NULL), RMF_OK);
        CHECK_EQ(pair.got.bytes, most > 0 ? 150 * 9 : 0);
        total += pair.got.frame_count;
        most = 0;
        free_frames(&pair);
    } while (total < 150 && total % RMF_RECEIVE_FRAMES == 0);
    CHECK_EQ(total, 150);
    close_pair(&pair);
}

static void frames_before_a_corruption_are_kept(void) {
    struct pair pair = open_pair();
    struct rmf_error error;
    write_frames(pair.theirs, 2, 4);
    CHECK_EQ(write(pair.theirs, "\xff\xff\xff\xff", 4), 4);
    CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1 << 20, &pair.got, &error),
             RMF_ERR_LENGTH);
    CHECK_EQ(pair.got.frame_count, 2);
    free_frames(&pair);
    CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1 << 20, &pair.got, &error),
             RMF_ERR_CORRUPT);
    close_pair(&pair);
}

static void no_more_than_asked_for(void) {
    struct pair pair = open_pair();
    write_frames(pair.theirs, 1, 100000);
    CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1, &pair.got, NULL), RMF_OK);
    size_t received = pair.got.bytes;
    while (pair.got.frame_count == 0) {
        CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1, &pair.got, NULL), RMF_OK);
        CHECK_EQ(pair.got.error_number, 0);
        received += pair.got.bytes;
    }
    CHECK_EQ(received, 100008);
    close_pair(&pair);
}

static void a_failed_allocation_is_told(void) {
    struct pair pair = open_pair();
    write_frames(pair.theirs, 1, 50);
    heap_fail_at(0);
    CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1 << 20, &pair.got, NULL),
             RMF_ERR_NO_MEMORY);
    heap_fail_at(-1);
    CHECK_EQ(pair.got.frame_count, 0);
    CHECK_EQ(rmf_socket_receive(pair.ours, pair.splitter, 1 << 20, &pair.got, NULL), RMF_OK);
    CHECK_EQ(pair.got.frame_count, 1);
    close_pair(&pair);
}

static void what_does_not_fit_is_not_sent(void) {
    struct pair pair = open_pair();
    size_t size = 8u << 20;
    uint8_t *data = calloc(1, size);
    CHECK(data != NULL);
    int number;
    size_t sent = rmf_socket_send(pair.ours, (struct rmf_slice){data, size}, &number);
    CHECK(sent > 0 && sent < size);
    CHECK_EQ(number, 0);
    CHECK_EQ(rmf_socket_send(pair.ours, (struct rmf_slice){data, size}, &number), 0);
    CHECK(number == EAGAIN || number == EWOULDBLOCK);
    close(pair.theirs);
    pair.theirs = -1;
    CHECK_EQ(rmf_socket_send(pair.ours, (struct rmf_slice){data, 1}, &number), 0);
    CHECK_EQ(number, EPIPE); /* and no signal */
    free(data);
    close_pair(&pair);
}

const struct test tests[] = {
    {"nothing waits", nothing_waits},
    {"frames, then the end", frames_then_the_end},
    {"more frames than one call holds", more_frames_than_one_call_holds},
    {"frames before a corruption are kept", frames_before_a_corruption_are_kept},
    {"no more than asked for", no_more_than_asked_for},
    {"a failed allocation is told", a_failed_allocation_is_told},
    {"what does not fit is not sent", what_does_not_fit_is_not_sent},
    {NULL, NULL},
};
