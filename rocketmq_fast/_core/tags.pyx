"""Tag expressions, codes and masks."""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from rocketmq_fast._core.c_common cimport rmf_alloc_array, rmf_free, rmf_slice
from rocketmq_fast._core.c_message cimport rmf_message_find_property
from rocketmq_fast._core.c_tags cimport (
    rmf_tag_code,
    rmf_tag_set_free,
    rmf_tag_set_has,
    rmf_tag_set_new,
)
from rocketmq_fast._core.message cimport MessageBatch

import numpy as np

from rocketmq_fast.errors import ConfigError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

# What Java's String.trim removes: everything up to U+0020.
cdef str _TRIMMED = "".join(map(chr, range(0x21)))


cdef rmf_slice _utf8(str text) except *:
    cdef rmf_slice out
    cdef Py_ssize_t size = 0
    out.ptr = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
    out.len = <size_t>size
    return out


def java_hash(str text not None):
    """Java's String.hashCode: signed 32 bits over UTF-16 units."""
    return <int32_t>rmf_tag_code(_utf8(text))


cdef class TagFilter:
    """A tag subscription: "*" for all, else tags separated by "||".

    `tags` and `codes` are empty for "*". As in Java, a blank expression of spaces matches nothing and
    one of separators only is refused. Raises ConfigError. Immutable, so threads may share it.
    """

    def __cinit__(self, expression="*"):
        cdef rmf_slice *slices
        cdef size_t i = 0
        if expression is None or expression == "":
            expression = "*"
        if not isinstance(expression, str):
            raise ConfigError(f"tag expression is {type(expression).__name__}, not str")
        self.expression = expression
        self.matches_all = expression == "*"
        pieces = [] if self.matches_all else [p for p in expression.split("||") if p]
        if not self.matches_all and not pieces:
            raise ConfigError(f"tag expression {expression!r} holds separators only")
        names = {piece.strip(_TRIMMED) for piece in pieces}
        names.discard("")
        try:
            self.codes = frozenset(java_hash(name) for name in names)
        except UnicodeEncodeError as error:
            raise ConfigError(f"tag expression {expression!r} holds a lone surrogate") from error
        self.tags = frozenset(names)
        slices = <rmf_slice *>rmf_alloc_array(len(self.tags), sizeof(rmf_slice))
        if slices == NULL:
            raise MemoryError("tag filter")
        try:
            for name in self.tags:
                slices[i] = _utf8(name)
                i += 1
            self._set = rmf_tag_set_new(slices, i)
        finally:
            rmf_free(slices)
        if self._set == NULL:
            raise MemoryError("tag filter")

    def __dealloc__(self):
        rmf_tag_set_free(self._set)

    def matches(self, tag):
        """Whether a message with this tag (None for none) passes."""
        if self.matches_all:
            return True
        return tag is not None and tag in self.tags

    def mask(self, MessageBatch batch not None):
        """numpy bool array: which messages of the batch pass, by exact text."""
        array = np.empty(batch._list.count, dtype=np.bool_)
        cdef uint8_t[::1] out = array.view(np.uint8)
        cdef rmf_slice tag
        cdef size_t i
        if self.matches_all:
            array.fill(True)
            return array
        for i in range(batch._list.count):
            out[i] = (rmf_message_find_property(&batch._list.messages[i], b"TAGS", 4, &tag)
                      and rmf_tag_set_has(self._set, tag))
        return array

    def __repr__(self):
        return f"TagFilter({self.expression!r})"
