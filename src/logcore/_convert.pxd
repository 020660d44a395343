from libc.stdint cimport int8_t, int64_t, uint8_t

from logcore._batch cimport Header
from logcore._buffer cimport Memory, Source
from logcore._legacy cimport Message, MessageSet

# A record of any magic on its way from one batch to another; sizes are -1 for null.
cdef struct Item:
    int64_t offset
    int64_t timestamp
    int64_t key_size
    int64_t value_size
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers     # as they lie in a v2 record
    const uint8_t* end         # of the record's bytes
    int64_t header_count


# Where a walk over the records of an OpenBatch stands.
cdef struct Cursor:
    const Header* header
    const Message* messages    # NULL for magic 2
    const uint8_t* pos
    const uint8_t* end
    Py_ssize_t left


cdef class OpenBatch:
    cdef Header header
    cdef Source plain              # where the records lie: the caller's bytes, or decompressed ones
    cdef MessageSet messages       # None for magic 2
    cdef Py_ssize_t begin          # of the records in `plain`, for magic 2
    cdef Py_ssize_t end
    cdef int64_t shift

    cdef Py_ssize_t plain_bytes(self) noexcept
    cdef Py_ssize_t count(self) noexcept
    cdef Cursor cursor(self) noexcept
    cdef object refusal(self, const uint8_t* stopped, Py_ssize_t index)
    cdef int check_records(self) except -1


cdef enum Added:
    ADDED
    ADD_ORDER      # the offset is not above the last one, too far above the first, or negative below magic 2
    ADD_SIZE       # a batch has at most 2^31 - 1 bytes


cdef class BatchBuilder:
    cdef int8_t magic
    cdef int codec
    cdef int level
    cdef bint is_stamped           # LogAppendTime: every record's time is append_time
    cdef int64_t append_time
    cdef Header header             # of the batch; fields that depend on records are kept up to date
    cdef Memory memory
    cdef Py_ssize_t used           # with room for the header of a v2 batch

    cdef int reserve(self, Py_ssize_t plain_bytes, Py_ssize_t count) except -1
    cdef Added add(self, const Item* item, int64_t offset) noexcept nogil
    cdef Added add_all(self, OpenBatch opened, int64_t first_offset, int64_t floor) except *
    cdef int64_t plain_bytes(self) noexcept
    cdef bytes finish(self)

    @staticmethod
    cdef BatchBuilder new(int8_t magic, int codec, int level)


cdef OpenBatch open_batch(Source source, const Header* header, int64_t bytes_max, int64_t shift)
cdef bint next_item(Cursor* cursor, Item* item) noexcept nogil
cdef int64_t headers_size(const Item* item) noexcept nogil
cdef uint8_t* put_headers(uint8_t* out, const Item* item) noexcept nogil
