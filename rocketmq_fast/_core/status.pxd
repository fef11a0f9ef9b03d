from rocketmq_fast._core.c_common cimport rmf_error, rmf_status

cdef str describe(const rmf_error *error)
cdef int check(rmf_status status, const rmf_error *error, object error_class) except -1
