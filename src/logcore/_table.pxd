from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from logcore._arrow cimport ArrowArray, ArrowSchema, Imported
from logcore._columns cimport Columns


cdef enum Kind:
    KIND_NULL          # a column of nulls, or no column
    KIND_BINARY
    KIND_LARGE
    KIND_VIEW
    KIND_FIXED


# Rows of bytes in one of Arrow's layouts. `first` is the array's offset: row i lies at first + i.
cdef struct BytesInput:
    Kind kind
    int64_t first
    const uint8_t* validity
    const uint8_t* data
    const uint8_t* data_end
    const int32_t* ends32
    const int64_t* ends64
    const uint64_t* views
    const void** buffers
    const int64_t* buffer_sizes
    int64_t buffer_count
    int64_t width


cdef struct HeadersInput:
    bint given
    int64_t first
    const uint8_t* validity
    const int32_t* ends32      # of a list or map
    const int64_t* ends64      # of a large list
    int64_t entries            # how many the children hold
    const uint8_t* entries_validity
    int64_t entries_first
    BytesInput name
    BytesInput value


cdef struct Rows:
    int64_t count
    const int64_t* offsets     # NULL: numbered
    const int64_t* timestamps  # NULL: all now_ms
    BytesInput key
    BytesInput value
    HeadersInput headers


cdef enum:
    SIZE_NULL = -1
    SIZE_BAD = -2              # the producer's own memory contradicts itself


cdef inline bint is_valid(const uint8_t* bitmap, int64_t index) noexcept nogil:
    return bitmap == NULL or bitmap[index >> 3] >> (index & 7) & 1


# Where the bytes of a row lie, and how many may be read there.
cdef struct Span:
    const uint8_t* data
    ptrdiff_t room


cdef class Table:
    cdef Rows rows
    cdef list kept, names

    cdef int add_struct(self, Imported imported, int64_t now_ms) except -1
    cdef int add_columns(self, Columns columns) except -1
    cdef int add_field(
        self, str name, const ArrowSchema* schema, const ArrowArray* given, int64_t offset, int64_t length, int64_t now_ms,
    ) except -1


cdef int64_t bytes_at(const BytesInput* column, int64_t row, Span* span) noexcept nogil
cdef int64_t data_bytes(const BytesInput* column, int64_t count) noexcept nogil
cdef list tables_of(object columns, int64_t now_ms)
