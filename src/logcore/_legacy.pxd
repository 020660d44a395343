from libc.stdint cimport int8_t, int64_t, uint8_t

from logcore._batch cimport Header
from logcore._buffer cimport Source
from logcore._fault cimport Fault


# A v0 or v1 message; sizes are -1 for null, offset and timestamp are those a reader sees.
cdef struct Message:
    int64_t offset
    int64_t timestamp
    int64_t key_size
    int64_t value_size
    const uint8_t* key
    const uint8_t* value
    const uint8_t* start       # of its offset field
    int8_t magic
    uint8_t attributes


cdef class MessageSet:
    """The messages of one v0/v1 batch; points into `source`, which it keeps alive."""
    cdef Source source
    cdef Message* messages
    cdef Py_ssize_t count
    cdef Py_ssize_t room

    cdef Message* add(self) except NULL


cdef MessageSet open_messages(Source source, const Header* header, int64_t bytes_max, int64_t shift)
cdef bytes encode_message(int64_t offset, int64_t timestamp, bytes key, bytes value, int magic, uint8_t attributes)
cdef uint8_t* put_message(
    uint8_t* start, int64_t offset, int64_t timestamp, const uint8_t* key, int64_t key_size, const uint8_t* value,
    int64_t value_size, int magic, uint8_t attributes,
) noexcept nogil
cdef bytes encode_messages(list rows, int magic, int codec, int level, int64_t append_time)
