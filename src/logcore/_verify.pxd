"""The checksum of a v2 batch, computed in strips just ahead of the records' parser.

A batch is fetched from memory once: the parser finds its bytes in the nearest cache, where the checksum has just read
them. Whoever walks records looks ahead when it has come to where the last look ended,
and takes in the rest when it is done; only then is `crc` the checksum of the batch.
"""

from libc.stdint cimport uint8_t, uint32_t

from logcore._batch cimport FIELDS_BEFORE_KEY_MAX
from logcore._checksum cimport crc32c_extend


cdef struct Verifier:
    const uint8_t* pos     # bytes before it are in crc
    const uint8_t* end
    uint32_t crc

cdef enum:
    STRIP_BYTES = 12288


cdef inline void verify_from(Verifier* verifier, const uint8_t* pos, const uint8_t* end) noexcept nogil:
    """Begin at `pos`; with `pos` == `end` there is nothing to verify."""
    verifier.pos = pos
    verifier.end = end
    verifier.crc = 0


cdef inline void verify_more(Verifier* verifier) noexcept nogil:
    """Take in another strip."""
    cdef Py_ssize_t size = verifier.end - verifier.pos
    if size > STRIP_BYTES + STRIP_BYTES // 2:
        size = STRIP_BYTES
    verifier.crc = crc32c_extend(verifier.crc, verifier.pos, <size_t>size)
    verifier.pos += size


cdef inline uint32_t verify_rest(Verifier* verifier) noexcept nogil:
    """Take in what is left, and return the checksum."""
    while verifier.pos < verifier.end:
        verify_more(verifier)
    return verifier.crc


cdef inline const uint8_t* look_ahead(Verifier* verifier, const uint8_t* pos, const uint8_t* end) noexcept nogil:
    """Checksum what the parser comes to next; returns up to where it may read without a look at the end."""
    while verifier.pos <= pos and verifier.pos < verifier.end:
        verify_more(verifier)
    if end - pos < FIELDS_BEFORE_KEY_MAX:
        return pos
    return min(verifier.pos, end - FIELDS_BEFORE_KEY_MAX + 1)
