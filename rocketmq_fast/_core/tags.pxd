from rocketmq_fast._core.c_tags cimport rmf_tag_set


cdef class TagFilter:
    cdef rmf_tag_set *_set
    cdef readonly str expression
    cdef readonly frozenset tags
    cdef readonly frozenset codes
    cdef readonly bint matches_all
