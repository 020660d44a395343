from libc.stdint cimport int32_t, int64_t, uint8_t

from logcore._batch cimport Header
from logcore._file cimport File
from logcore._index cimport OffsetIndex, TimeIndex


cdef class BatchFile:
    cdef readonly object file
    cdef File native                 # the same, if it is a compiled one: read without a call of Python

    cdef bytes read_bytes(self, int64_t position, int64_t size)
    cdef int64_t file_size(self) except -1
    cdef int64_t load(self, uint8_t* into, int64_t position, int64_t size) except -1
    cdef int find_header(self, int64_t offset, int64_t position, int64_t end, Header* header) except -1
    cdef object span(self, position, end)


cdef class Indexer:
    cdef OffsetIndex offsets
    cdef TimeIndex times
    cdef int32_t interval_bytes
    cdef readonly int64_t bytes_since_entry
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t max_timestamp_offset

    cdef int note_time(self, bint is_last) except -1
