"""Tag expressions, codes and masks."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libc.string cimport memset

from rocketmq_fast._core.c_common cimport rmf_alloc_array, rmf_free, rmf_slice
from rocketmq_fast._core.c_tags cimport (
    rmf_tag_code,
    rmf_tag_set_free,
    rmf_tag_set_matching,
    rmf_tag_set_new,
)
from rocketmq_fast._core.message cimport MessageBatch
from rocketmq_fast._core.text cimport utf8_of

import numpy as np

from rocketmq_fast.errors import ConfigError

cdef object _BOOL = np.dtype(np.bool_)

# What Java's String.trim removes: everything up to U+0020.
cdef str _TRIMMED = "".join(map(chr, range(0x21)))


def java_hash(str text not None):
    """Java's String.hashCode: signed 32 bits over UTF-16 units."""
    return <int32_t>rmf_tag_code(utf8_of(text))


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
                slices[i] = utf8_of(name)
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

    def filter(self, MessageBatch batch not None):
        """The messages that pass, by exact text: the batch itself when all do, else a new one over
        the same buffer, as `batch.retain(mask)` makes it."""
        cdef size_t count = batch._list.count
        cdef size_t i
        cdef size_t run
        cdef MessageBatch kept
        if self.matches_all:
            return batch
        i = rmf_tag_set_matching(self._set, batch._list.messages, count)
        if i == count:
            return batch
        kept = batch._empty_copy()
        kept._append_run(batch, 0, i)
        i += 1  # which did not pass
        while i < count:
            run = rmf_tag_set_matching(self._set, &batch._list.messages[i], count - i)
            kept._append_run(batch, i, i + run)
            i += run + 1
        return kept

    def mask(self, MessageBatch batch not None):
        """numpy bool array: which messages of the batch pass, by exact text."""
        cdef size_t count = batch._list.count
        cdef size_t i = 0
        cdef size_t run
        cdef bytearray found = bytearray(count)
        cdef char *out = PyByteArray_AS_STRING(found)
        if self.matches_all:
            memset(out, 1, count)
            return np.frombuffer(found, _BOOL)
        while i < count:
            run = rmf_tag_set_matching(self._set, &batch._list.messages[i], count - i)
            memset(out + i, 1, run)
            i += run + 1
        return np.frombuffer(found, _BOOL)

    def __repr__(self):
        return f"TagFilter({self.expression!r})"
