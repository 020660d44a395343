from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class Index:
    cdef object memory               # None: closed
    cdef Py_buffer view
    cdef uint8_t* data
    cdef int entry_bytes
    cdef readonly int64_t base_offset
    cdef readonly Py_ssize_t entry_count
    cdef readonly Py_ssize_t entries_max
    cdef readonly bint is_writable

    cdef int open(self, memory, base_offset, entry_count, bint is_writable, int entry_bytes) except -1
    cdef int take(self, memory) except -1
    cdef int check_open(self) except -1
    cdef int check_writable(self) except -1
    cdef int64_t offset_at(self, Py_ssize_t entry) noexcept
    cdef int64_t timestamp_at(self, Py_ssize_t entry) noexcept
    cdef int32_t position_at(self, Py_ssize_t entry) noexcept
    cdef Py_ssize_t find(self, int64_t target, bint by_timestamp) noexcept
    cdef int write(self, const uint8_t* entry) except -1
    cdef int32_t relative(self, int64_t offset) except? -1
    cdef object damage(self, str what, object got, object wanted, Py_ssize_t entry)
    cdef int check_entries(self) except -1


cdef class OffsetIndex(Index):
    cdef object made(self, Py_ssize_t entry)
    cdef int put(self, int64_t offset, int32_t position) except -1


cdef class TimeIndex(Index):
    cdef object made(self, Py_ssize_t entry)
    cdef bint put(self, int64_t timestamp, int64_t offset, bint is_last) except -1
