"""Checksums and hashes of Kafka's formats, callable without the GIL.

CRC-32C guards a v2 batch, CRC-32 a v0/v1 message, murmur2 chooses the partition of a key. The first two are in
checksum.h (why not the `crc32c` package alone: said there).
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

from logcore._arguments cimport check_range
from logcore._buffer cimport GIL_RELEASE_BYTES, Source

from logcore.errors import UsageError

cdef extern from "checksum.h" nogil:
    ctypedef struct Routine "lc_crc_routine":
        const char* name

    const Routine* lc_crc32c_routine
    size_t lc_crc32c_routines(const Routine** routines)
    void lc_checksum_init()
    uint32_t lc_crc32c(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t lc_crc32(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t lc_crc32c_shift(uint32_t crc, uint32_t size)
    uint32_t lc_crc32_shift(uint32_t crc, uint32_t size)

lc_checksum_init()


cdef uint32_t crc32c_of(const uint8_t* data, size_t size) noexcept nogil:
    return lc_crc32c(0, data, size)


cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil:
    return lc_crc32c(crc, data, size)


cdef uint32_t crc32_of(const uint8_t* data, size_t size) noexcept nogil:
    return lc_crc32(0, data, size)


cdef uint32_t crc_prefix(bint castagnoli, uint32_t prefix, const uint8_t* data, size_t size) noexcept nogil:
    """Extend the raw CRC of everything before `data`; begins with 0."""
    return ~lc_crc32c(~prefix, data, size) if castagnoli else ~lc_crc32(~prefix, data, size)


cdef uint32_t crc_of_middle(bint castagnoli, uint32_t before_begin, uint32_t before_end, uint32_t size) noexcept nogil:
    """The CRC of `size` bytes from the prefixes at their begin and end, without reading them."""
    return ~(before_end ^ (lc_crc32c_shift(~before_begin, size) if castagnoli else lc_crc32_shift(~before_begin, size)))


cdef int32_t murmur2_of(const uint8_t* data, size_t size) noexcept nogil:
    """Kafka's murmur2: 32 bits, its own seed, arithmetic modulo 2^32."""
    cdef uint32_t mixer = 0x5BD1E995
    cdef uint32_t hashed = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        memcpy(&word, data, 4)
        word *= mixer
        word ^= word >> 24
        word *= mixer
        hashed = (hashed * mixer) ^ word
        data += 4
        size -= 4
    if size:
        word = 0
        memcpy(&word, data, size)
        hashed = (hashed ^ word) * mixer
    hashed ^= hashed >> 13
    hashed *= mixer
    hashed ^= hashed >> 15
    return <int32_t>hashed


def crc32c_routines() -> list[str]:
    """The ways to compute CRC-32C that this machine has, slowest first."""
    cdef const Routine* routines[3]
    return [routines[index].name.decode() for index in range(lc_crc32c_routines(routines))]


def use_crc32c_routine(name: str) -> None:
    """Compute CRC-32C this way from now on, in every thread: for tests and benchmarks of the slower ones.

    Not while a call of the core runs.
    """
    global lc_crc32c_routine
    cdef const Routine* routines[3]
    cdef size_t index
    for index in range(lc_crc32c_routines(routines)):
        if routines[index].name.decode() == name:
            lc_crc32c_routine = routines[index]
            return
    raise UsageError("CRC-32C routine", got=name, wanted=", ".join(crc32c_routines()))


def crc32c(data, crc=0) -> int:
    """CRC-32C (Castagnoli) of `data`, continued from `crc`.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return _checksum(Source(data, "data"), crc, True)


def crc32(data, crc=0) -> int:
    """CRC-32 (zlib's) of `data`, continued from `crc`: the checksum of v0 and v1 messages.

    >>> hex(crc32(b"123456789"))
    '0xcbf43926'
    """
    return _checksum(Source(data, "data"), crc, False)


cdef _checksum(Source source, crc, bint castagnoli):
    crc = check_range("crc to continue from", crc, 0, 0xFFFFFFFF)
    cdef uint32_t seed = crc
    if source.size < GIL_RELEASE_BYTES:
        return lc_crc32c(seed, source.data, <size_t>source.size) if castagnoli \
            else lc_crc32(seed, source.data, <size_t>source.size)
    with nogil:
        if castagnoli:
            seed = lc_crc32c(seed, source.data, <size_t>source.size)
        else:
            seed = lc_crc32(seed, source.data, <size_t>source.size)
    return seed


def murmur2(key) -> int:
    """Kafka's murmur2 hash of `key`, as a signed 32-bit integer.

    >>> murmur2(b"21")
    -973932308
    """
    cdef Source source = Source(key, "key")
    return murmur2_of(source.data, <size_t>source.size)


def partition_for_key(key, partition_count) -> int:
    """The partition that Kafka's default partitioner gives `key` among `partition_count`.

    >>> partition_for_key(b"order-17", 6)
    3
    """
    partition_count = check_range("partition_count", partition_count, 1, 0x7FFFFFFF)
    cdef Source source = Source(key, "key")
    # The sign bit is masked, not negated: Java's abs() of the least int is negative.
    return (murmur2_of(source.data, <size_t>source.size) & 0x7FFFFFFF) % <int32_t>partition_count
