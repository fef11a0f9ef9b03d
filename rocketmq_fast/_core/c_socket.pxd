from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from rocketmq_fast._core.c_common cimport rmf_error, rmf_slice, rmf_status
from rocketmq_fast._core.c_frame cimport rmf_splitter

cdef extern from "rmf_socket.h" nogil:
    enum:
        RMF_RECEIVE_FRAMES
        RMF_SOCKET_SUPPORTED

    struct rmf_received_frame:
        uint8_t *data
        size_t size

    struct rmf_received:
        rmf_received_frame *frames  # an array of RMF_RECEIVE_FRAMES
        size_t frame_count
        size_t bytes
        int error_number

    rmf_status rmf_socket_receive(int socket, rmf_splitter *splitter, size_t most,
                                  rmf_received *received, rmf_error *error)
    size_t rmf_socket_send(int socket, rmf_slice data, int *error_number)
