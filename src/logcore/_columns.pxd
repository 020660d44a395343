from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from logcore._arrow cimport Export
from logcore._buffer cimport Memory

cdef enum:
    VIEW_INLINE_MAX = 12             # the longest value that Arrow's view layout holds in the view itself


cdef class BinaryColumn:
    cdef Py_ssize_t length
    cdef readonly Py_ssize_t null_count
    cdef readonly bint is_text
    cdef Memory memory
    cdef Memory ends
    cdef Memory bitmap              # None: nothing is null

    @staticmethod
    cdef BinaryColumn new()
    cdef Export export(self, bytes name, bint nullable)


cdef class ViewColumn:
    cdef Py_ssize_t length
    cdef readonly Py_ssize_t null_count
    cdef Memory words
    cdef Memory bitmap
    cdef list sources               # of Source; what the views point into
    cdef Memory sizes               # of the sources, as Arrow wants them: int64 each

    @staticmethod
    cdef ViewColumn new()
    cdef Export export(self, bytes name, bint nullable)


cdef class HeadersColumn:
    cdef Py_ssize_t length
    cdef Memory ends
    cdef readonly BinaryColumn names
    cdef readonly object values     # BinaryColumn or ViewColumn

    @staticmethod
    cdef HeadersColumn new()
    cdef Export export(self, bytes name, bint nullable)


cdef class Columns:
    cdef readonly tuple names
    cdef readonly str layout
    cdef readonly Py_ssize_t consumed
    cdef Py_ssize_t length
    cdef Py_ssize_t bytes_held
    cdef dict columns               # name -> Memory (integers) or one of the classes above; of the only chunk
    cdef tuple parts                # Columns, if there is more than one chunk

    @staticmethod
    cdef Columns new()
    cdef object integers(self, str name, object dtype)
    cdef object column(self, str name)
    cdef Export export(self)
