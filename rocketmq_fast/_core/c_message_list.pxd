from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from rocketmq_fast._core.c_common cimport rmf_status
from rocketmq_fast._core.c_message cimport rmf_message

cdef extern from "rmf_message_list.h" nogil:
    struct rmf_message_list:
        rmf_message *messages
        size_t count
        size_t capacity
        int64_t first_offset
        int64_t body_bytes
        bint gaps

    rmf_status rmf_message_list_append(rmf_message_list *list, const rmf_message *message)
    void rmf_message_list_shrink(rmf_message_list *list)
    void rmf_message_list_clear(rmf_message_list *list)
