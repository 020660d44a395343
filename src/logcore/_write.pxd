"""Writing a v2 record: the one place that knows its fields in order. Rows, columns and conversion inline it.

Measure first (a record begins with its own length), see that there is room, then put; headers are the caller's.
"""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from logcore._bytes cimport copy_short, likely, put_varint, varint_bytes, zigzag


# The varints of a record whose size is known.
cdef struct Measured:
    uint64_t body
    uint64_t timestamp
    uint64_t offset
    uint64_t key
    uint64_t value


cdef inline int64_t measure_record(
    Measured* measured, int64_t timestamp_delta, int64_t offset_delta, int64_t key_size, int64_t value_size,
    int64_t headers_size,
) noexcept nogil:
    """The bytes that a record takes; sizes are -1 for null, `headers_size` counts their number's varint in."""
    cdef int64_t body
    measured.timestamp = zigzag(timestamp_delta)
    measured.offset = zigzag(offset_delta)
    measured.key = zigzag(key_size)
    measured.value = zigzag(value_size)
    body = (1 + varint_bytes(measured.timestamp) + varint_bytes(measured.offset) + varint_bytes(measured.key)
            + varint_bytes(measured.value) + headers_size)
    if likely(key_size > 0):
        body += key_size
    if likely(value_size > 0):
        body += value_size
    measured.body = zigzag(body)
    return varint_bytes(measured.body) + body


cdef inline uint8_t* put_record(
    uint8_t* out, const Measured* measured, const uint8_t* key, int64_t key_size, ptrdiff_t key_room,
    const uint8_t* value, int64_t value_size, ptrdiff_t value_room,
) noexcept nogil:
    """Write a record up to its headers. The rooms say how much may be read at key and value; COPY_SLACK bytes behind
    the record may be written to if they exceed the sizes."""
    out = put_varint(out, measured.body)
    out[0] = 0
    out = put_varint(out + 1, measured.timestamp)
    out = put_varint(out, measured.offset)
    out = put_varint(out, measured.key)
    if likely(key_size > 0):
        copy_short(out, key, <size_t>key_size, key_room)
        out += key_size
    out = put_varint(out, measured.value)
    if likely(value_size > 0):
        copy_short(out, value, <size_t>value_size, value_room)
        out += value_size
    return out
