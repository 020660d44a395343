from libc.stdint cimport int64_t, uint8_t

from logcore._batch cimport Header
from logcore._buffer cimport Source


cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers

    @staticmethod
    cdef Record new(int64_t offset, int64_t timestamp, object key, object value, tuple headers)


cdef class Batch:
    cdef Header header
    cdef Source source
    cdef int64_t bytes_max
    cdef int64_t shift

    @staticmethod
    cdef Batch new(Source source, const Header* header, int64_t bytes_max, int64_t shift)
    cdef Source payload(self)
