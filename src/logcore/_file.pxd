from libc.stdint cimport int64_t, uint8_t


cdef class File:
    cdef public object path           # for errors; whoever renames the file sets it
    cdef readonly int64_t size       # where what is written ends
    cdef int64_t end                 # where the file ends: size <= end, but for a torn one
    cdef readonly bint is_writable
    cdef bint is_torn                # a failed append may have left something behind size
    cdef bint is_open
    cdef int fd
    cdef int users                   # calls that use the descriptor without the GIL

    cdef int descriptor(self, bint to_write) except -1
    cdef int64_t write_parts(self, list parts, int64_t at) except -1
    cdef int mend(self) except -1
    cdef int set_length(self, int64_t length) except -1
    cdef bytes read_bytes(self, int64_t position, int64_t size)
    cdef void leave(self) noexcept
    cdef int64_t read_into(self, uint8_t* into, int64_t position, int64_t size) except -1


cdef class Mapping:
    cdef uint8_t* address            # NULL: empty
    cdef int64_t size

    @staticmethod
    cdef Mapping new(File file)


cdef class MappedFile:
    cdef File file
    cdef Mapping mapping
    cdef readonly bint is_new
