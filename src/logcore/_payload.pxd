from libc.stdint cimport int64_t

from logcore._batch cimport Header
from logcore._buffer cimport Source

cdef enum:
    DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

cdef int64_t decompressed_limit(object max_decompressed_bytes) except -1
cdef Source decompressed(Source source, const Header* header, Py_ssize_t skip, Py_ssize_t size, int64_t bytes_max, int64_t shift)
