from libc.stdint cimport int32_t, int64_t, uint8_t

from logcore._batch cimport Header, Place
from logcore._buffer cimport Source
from logcore._legacy cimport MessageSet


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


cdef class RecordIterator:
    cdef Batch batch
    cdef Source payload
    cdef const uint8_t* start       # positions in errors count from here
    cdef const uint8_t* pos
    cdef const uint8_t* end
    cdef int32_t left
    cdef Header header              # a copy, so that stored_timestamps can clear a bit of it
    cdef MessageSet messages        # magic 0 and 1; then `left` stays 0
    cdef Py_ssize_t next_index      # of messages

    @staticmethod
    cdef RecordIterator new(Batch batch, bint stored_timestamps, int64_t first_offset, bint is_of_log)
    cdef Record next_record(self)   # None: there are no more
    cdef int begin(self, int64_t first_offset, bint is_of_log) except -1
    cdef bint pass_to(self, Place* place, int64_t first_offset, bint is_of_log) noexcept nogil
    cdef Record next_message(self)
    cdef object refusal(self, const uint8_t* record)
