from libc.stddef cimport size_t
from libc.stdint cimport int32_t

from rocketmq_fast._core.c_common cimport rmf_slice
from rocketmq_fast._core.c_message cimport rmf_message

cdef extern from "rmf_tags.h" nogil:
    struct rmf_tag_set:
        pass

    int32_t rmf_tag_code(rmf_slice utf8)
    int32_t rmf_message_tag_code(const rmf_message *m)
    rmf_tag_set *rmf_tag_set_new(const rmf_slice *tags, size_t count)
    void rmf_tag_set_free(rmf_tag_set *set)
    bint rmf_tag_set_has(const rmf_tag_set *set, rmf_slice tag)
    size_t rmf_tag_set_matching(const rmf_tag_set *set, const rmf_message *messages, size_t count)
