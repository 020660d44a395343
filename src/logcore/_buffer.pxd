from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

# Work on fewer bytes than this keeps the GIL: handing it over costs about as much as a checksum of this size.
cdef enum:
    GIL_RELEASE_BYTES = 8192


cdef class Source:
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef readonly Py_ssize_t size
    cdef bint held


cdef class Memory:
    cdef uint8_t* data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t exports
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]

    cdef int reserve(self, Py_ssize_t capacity) except -1
    cdef void shrink(self, Py_ssize_t size) noexcept

    @staticmethod
    cdef Memory new(Py_ssize_t capacity)


cdef class NewBytes:
    cdef PyObject* made
    cdef uint8_t* data
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity

    cdef uint8_t* reserve(self, Py_ssize_t more) except NULL
    cdef int resize(self, Py_ssize_t capacity) except -1
    cdef bytes finish(self)

    @staticmethod
    cdef NewBytes new(Py_ssize_t capacity)


cdef object changed_buffer()
cdef Source frozen(Source source)
cdef object byte_view(object buffer, Source source)
cdef uint8_t* writable(object buffer, str what, Py_buffer* view) except NULL
