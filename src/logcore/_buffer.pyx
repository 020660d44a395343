"""How the core holds bytes: `Source` borrows a caller's buffer, `Memory` owns one of its own, `NewBytes` is a bytes object
that is still written to.

A Source keeps its exporter alive and unresizable for as long as it lives; everything that points into a caller's
bytes (a Batch, a view column) holds the Source. A Memory may grow only while nobody has a view of it.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc

from logcore._arguments cimport close_type

import cython

from logcore.errors import InvariantError, UsageError, UsageTypeError


cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    int resize_bytes "_PyBytes_Resize"(PyObject** bytes, Py_ssize_t size) except -1
    char* bytes_data "PyBytes_AS_STRING"(PyObject* bytes)


cdef extern from * nogil:
    """
    #include <stdlib.h>
    /* glibc hands out large blocks fresh from the kernel, whose page faults cost more than decoding into them, until
       it has seen one of that size freed; then it keeps and reuses them. Show it one at import: nothing is touched,
       so nothing is used. A program that has set the threshold itself (mallopt, MALLOC_MMAP_THRESHOLD_) keeps it. */
    static void lc_keep_large_blocks(void) {
    #ifdef __GLIBC__
        void *volatile block = malloc((32u << 20) - (64u << 10));
        free(block);
    #endif
    }
    """
    void keep_large_blocks "lc_keep_large_blocks"()

keep_large_blocks()


cdef _refuse(buffer, what, error, wanted):
    """The typed form of what Python's buffer protocol says of a buffer it cannot lend."""
    kind = type(buffer).__name__
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
        return UsageError(what, got=f"{kind}: {error}", wanted=wanted)
    return UsageTypeError(what, got=f"{kind}: {error}" if isinstance(error, BufferError) else kind, wanted=wanted)


cdef str _bytes_for(buffer, str what):
    """What was wanted instead of `buffer`, with the step that leads there from what people try first."""
    wanted = "bytes, or another contiguous buffer of bytes"
    if what == "buffer" and (isinstance(buffer, str) or hasattr(buffer, "__fspath__") or hasattr(buffer, "read")):
        return wanted + ": read the file first, as in Path(…).read_bytes()"
    return wanted + ': encode it, as in "…".encode()' if isinstance(buffer, str) else wanted


@cython.final
cdef class Source:
    """A caller's contiguous bytes, held from construction to deallocation."""

    def __cinit__(self, buffer, str what="buffer"):
        try:
            PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        except (TypeError, ValueError, BufferError) as error:
            raise _refuse(buffer, what, error, _bytes_for(buffer, what)) from None
        self.held = True
        self.data = <const uint8_t*>self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*>self.data, self.size, 1, flags)


@cython.final
cdef class Memory:
    """Bytes of our own, read-only to others."""

    @staticmethod
    cdef Memory new(Py_ssize_t capacity):
        cdef Memory self = Memory.__new__(Memory)
        self.reserve(capacity)
        return self

    cdef int reserve(self, Py_ssize_t capacity) except -1:
        """Room for `capacity` bytes; what was written stays."""
        cdef uint8_t* moved
        if capacity <= self.capacity and self.data != NULL:
            return 0
        if self.exports:
            raise InvariantError("memory grown while somebody looks at it")
        # malloc(0) may be NULL, which would read as failure here and as "no buffer" in Arrow.
        capacity = max(capacity, 64)
        moved = <uint8_t*>realloc(self.data, <size_t>capacity)
        if moved == NULL:
            raise MemoryError(f"{capacity} bytes for decoded records")
        self.data = moved
        self.capacity = capacity
        return 0

    cdef void shrink(self, Py_ssize_t size) noexcept:
        """Set the size and give back what lies behind it, if that is worth a call."""
        cdef uint8_t* moved
        self.size = size
        if self.capacity - size > 4096 and self.capacity - size > size >> 3 and not self.exports:
            moved = <uint8_t*>realloc(self.data, <size_t>max(size, 64))
            if moved != NULL:
                self.data = moved
                self.capacity = max(size, 64)

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1


close_type(Memory)


@cython.final
cdef class NewBytes:
    """A bytes object while it is written: the first `used` bytes are, and finish() hands them out."""

    @staticmethod
    cdef NewBytes new(Py_ssize_t capacity):
        cdef NewBytes self = NewBytes.__new__(NewBytes)
        self.made = new_bytes(NULL, capacity)
        self.data = <uint8_t*>bytes_data(self.made)
        self.capacity = capacity
        return self

    cdef uint8_t* reserve(self, Py_ssize_t more) except NULL:
        """Where the next bytes go, with room for `more`."""
        if more > self.capacity - self.used:
            self.resize(max(self.used + more, self.capacity + self.capacity // 2))
        return self.data + self.used

    cdef int resize(self, Py_ssize_t capacity) except -1:
        """What was written stays, and may move."""
        resize_bytes(&self.made, capacity)
        self.data = <uint8_t*>bytes_data(self.made)
        self.capacity = capacity
        return 0

    cdef bytes finish(self):
        """Cut off what was not used; nothing may be written any more."""
        cdef bytes made
        self.resize(self.used)
        made = <bytes>self.made
        Py_XDECREF(self.made)
        self.made, self.data, self.used, self.capacity = NULL, NULL, 0, 0
        return made

    def __dealloc__(self):
        Py_XDECREF(self.made)


close_type(NewBytes)


cdef object changed_buffer():
    """For a second walk over bytes that no longer say what the first found."""
    return UsageError("buffer", got="bytes that changed while they were read", wanted="a buffer left alone")


cdef Source frozen(Source source):
    """The same bytes where nobody can change them: for work that walks them more than once and trusts the first walk."""
    if PyBytes_CheckExact(<object>source.view.obj):
        return source
    return Source(PyBytes_FromStringAndSize(<const char*>source.data, source.size))


cdef object byte_view(object buffer, Source source):
    """`buffer`, which `source` holds, as a memoryview of bytes; read-only where Python cannot tell what it holds."""
    try:
        return memoryview(buffer).cast("B")
    except (TypeError, ValueError):   # numpy's dates; a shape with a 0 in it
        return memoryview(source)


cdef uint8_t* writable(object buffer, str what, Py_buffer* view) except NULL:
    """Take a writable view of `buffer`; the caller releases it in the same function."""
    try:
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    except (TypeError, ValueError, BufferError) as error:
        raise _refuse(buffer, what, error, "a writable contiguous buffer, such as a bytearray") from None
    if view.buf == NULL:
        PyBuffer_Release(view)
        raise UsageError(what, got="0 bytes", wanted="at least one batch")
    return <uint8_t*>view.buf
