"""Text between str objects and the C units."""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from rocketmq_fast._core.c_common cimport rmf_slice

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef inline str text_of(rmf_slice utf8):
    # Peers send UTF-8; a stray byte must not cost the whole answer.
    return PyUnicode_DecodeUTF8(<const char *>utf8.ptr, <Py_ssize_t>utf8.len, "replace")


cdef inline rmf_slice utf8_of(str text) except *:
    """The UTF-8 form that the str object caches, borrowed from it. UnicodeEncodeError for a lone
    surrogate."""
    cdef rmf_slice out
    cdef Py_ssize_t size = 0
    out.ptr = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
    out.len = <size_t>size
    return out


cdef inline rmf_slice checked_utf8(object text, str what, object error_class) except *:
    """As utf8_of for anything that a caller may have given; `error_class` tells what is wrong."""
    if not isinstance(text, str):
        raise error_class(f"{what} is {type(text).__name__}, not str")
    try:
        return utf8_of(text)
    except UnicodeEncodeError as error:
        raise error_class(f"{what} holds a lone surrogate") from error
