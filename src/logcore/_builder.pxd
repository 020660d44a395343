from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from logcore._buffer cimport Memory, Source
from logcore._bytes cimport likely
from logcore._columns cimport VIEW_INLINE_MAX, Columns

cdef enum:
    CHUNK_BYTES_MAX = 0x7FFFFFFF     # int32 offsets, and int32 positions in a view


cdef struct BytesSink:
    bint wanted
    uint8_t* data          # binary layout
    int32_t* ends          # binary layout: ends[0] is 0, ends[i + 1] the end of value i
    uint64_t* words        # view layout: two words a value
    uint8_t* validity      # all ones until a null clears its bit
    int64_t used           # bytes in data
    int64_t nulls


cdef struct Sink:
    int64_t rows
    int64_t* offset        # NULL: not wanted
    int64_t* timestamp
    int32_t* timestamp_type
    BytesSink key
    BytesSink value
    bint is_view
    const uint8_t* view_base
    uint32_t view_index


cdef struct HeaderSink:
    int32_t* ends          # of the list: one more than rows
    int64_t entries
    BytesSink name
    BytesSink value


cdef class BytesBuilder:
    cdef Memory memory, ends, words, bitmap
    cdef Py_ssize_t room

    cdef int reserve(self, BytesSink* sink, Py_ssize_t rows, int64_t data_bytes, bint is_view) except -1
    cdef object column(self, BytesSink* sink, Py_ssize_t rows, bint is_view, bint is_text, list sources)


cdef class Builder:
    cdef Sink sink
    cdef HeaderSink entries
    cdef tuple names
    cdef bint want_headers
    cdef Memory offset, timestamp, timestamp_type, list_ends
    cdef BytesBuilder key, value, header_name, header_value
    cdef Py_ssize_t room
    cdef list sources
    cdef Py_ssize_t origin           # where the chunk begins in the buffer

    @staticmethod
    cdef Builder new(tuple names, bint is_view)

    cdef int reserve(self, int64_t rows, int64_t data_bytes) except -1
    cdef bint has_room(self, int64_t rows, int64_t data_bytes) noexcept nogil
    cdef int add_headers(self, const uint8_t* pos, const uint8_t* end, int64_t first_row, int64_t total) except -1
    cdef void no_headers(self, int64_t first_row) noexcept nogil
    cdef int look_at(self, Source source) except -1
    cdef void look_back(self) noexcept
    cdef Columns finish(self, str layout)


cdef void put_null(BytesSink* sink, int64_t row, bint is_view) noexcept nogil
cdef void put_view_near_end(uint64_t* view, const uint8_t* data, int64_t size) noexcept nogil
cdef void put_bytes(
    BytesSink* sink, int64_t row, const uint8_t* data, int64_t size, const uint8_t* end, const Sink* rows,
) noexcept nogil


cdef inline void put_view(
    uint64_t* view, const uint8_t* data, int64_t size, const uint8_t* end, uint32_t index, const uint8_t* base,
) noexcept nogil:
    """Write Arrow's 16-byte view of `data`; bytes up to `end` may be read."""
    cdef uint64_t low, high
    cdef uint32_t prefix
    if size > VIEW_INLINE_MAX:
        memcpy(&prefix, data, 4)
        view[0] = <uint64_t>size | <uint64_t>prefix << 32
        view[1] = <uint64_t>index | <uint64_t>(data - base) << 32
    elif likely(end - data >= 16):
        # Load past the value and mask, rather than branch on each length.
        memcpy(&low, data, 8)
        memcpy(&high, data + 8, 8)
        if size < 8:
            low &= (<uint64_t>1 << (8 * size)) - 1
            high = 0
        else:
            high &= (<uint64_t>1 << (8 * (size - 8))) - 1
        view[0] = <uint64_t>size | low << 32
        view[1] = low >> 32 | high << 32
    else:
        put_view_near_end(view, data, size)
