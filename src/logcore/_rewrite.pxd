from libc.stdint cimport int64_t, uint8_t

from logcore._batch cimport DELETE_HORIZON, Header
from logcore._legacy cimport Message

cdef enum:
    # What a record may take more than before: nine bytes of timestamp delta, four of its own length, rounded up. One of
    # magic 0 or 1 takes less than it did.
    GROWTH_MAX = 16


# A batch that is written anew.
cdef struct Rewrite:
    Header header              # what its header will be
    uint8_t* out               # where the next record goes
    bint is_begun
    int64_t last_offset        # of the records
    int64_t refused_offset     # of the one that does not fit behind it


cdef inline bint has_delete_horizon(const Header* header) noexcept nogil:
    return header.magic == 2 and header.attributes & DELETE_HORIZON != 0


cdef void begin_rewrite(Rewrite* made, const Header* original, int64_t horizon, int64_t count, uint8_t* out) noexcept nogil
cdef Py_ssize_t put_records(
    Rewrite* made, const uint8_t* pos, const uint8_t* end, const Header* original, const uint8_t* kept,
) noexcept nogil
cdef Py_ssize_t put_messages(
    Rewrite* made, const Message* messages, Py_ssize_t count, const uint8_t* kept,
) noexcept nogil
cdef void end_rewrite(Rewrite* made, const Header* original) noexcept nogil
cdef void write_emptied(uint8_t* batch, const Header* original) noexcept nogil
