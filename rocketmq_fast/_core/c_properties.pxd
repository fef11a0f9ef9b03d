from libc.stddef cimport size_t

from rocketmq_fast._core.c_common cimport rmf_slice

cdef extern from "rmf_properties.h" nogil:
    struct rmf_property:
        rmf_slice name
        rmf_slice value

    bint rmf_properties_next(rmf_slice text, size_t *pos, rmf_property *out)
