from libc.stdint cimport int64_t, uint8_t, uint64_t

from logcore._batch cimport CODEC_MASK, CONTROL, TRANSACTIONAL, Header
from logcore._buffer cimport Source
from logcore._bytes cimport CACHE_LINE_BYTES, likely, prefetch, sub64, unlikely
from logcore._siphash cimport Digest, siphash128_of


cdef extern from * nogil:
    """
    static inline uint64_t lc_scale64(uint64_t fraction, uint64_t range) {
        return (uint64_t)((unsigned __int128)fraction * range >> 64);
    }
    """
    uint64_t scale "lc_scale64"(uint64_t fraction, uint64_t range)    # fraction / 2^64 of the range


# 24 bytes. All zeros: an empty slot, whose offset then reads as the -1 of an absent key.
cdef struct Slot:
    uint64_t low
    uint64_t high
    uint64_t offset_after      # the offset + 1


cdef struct Table:
    Slot* slots
    uint64_t slot_count
    uint64_t used              # <= slot_count
    uint64_t seed_low
    uint64_t seed_high
    uint64_t* superseded       # a bit for each offset from `first_offset` on: a later one took its place
    uint64_t noted_count       # how many offsets have one; 0: there are none
    int64_t first_offset


cdef enum:
    SLOT_BYTES = 24
    NOTED_PER_SLOT = 8         # offsets that have a bit
    # So many keys are hashed before the first of them is looked up: meanwhile the memory of their slots is on its way.
    KEYS_AHEAD = 32


cdef inline Digest digest_of(const Table* table, const uint8_t* key, int64_t size) noexcept nogil:
    """The digest of a key, and its slot asked for."""
    cdef Digest digest = siphash128_of(table.seed_low, table.seed_high, key, <size_t>size)
    cdef const uint8_t* slot = <const uint8_t*>&table.slots[scale(digest.low, table.slot_count)]
    prefetch(slot)
    prefetch(slot + CACHE_LINE_BYTES)      # it may reach into the next, and the entry may lie there
    return digest


cdef inline uint64_t distance_from_home(const Table* table, uint64_t at) noexcept nogil:
    """How many slots the entry at `at` lies behind the one that its digest asks for."""
    cdef uint64_t home = scale(table.slots[at].low, table.slot_count)
    return at - home if likely(at >= home) else at + table.slot_count - home


cdef inline int64_t find_offset(const Table* table, Digest digest) noexcept nogil:
    """The offset of the key with this digest, or -1."""
    cdef uint64_t at = scale(digest.low, table.slot_count)
    cdef uint64_t distance = 0
    cdef const Slot* slot
    while distance < table.slot_count:
        slot = &table.slots[at]
        if (slot.low == digest.low and slot.high == digest.high) or slot.offset_after == 0:
            return <int64_t>(slot.offset_after - 1)
        if distance_from_home(table, at) < distance:
            return -1      # it would have been put here
        at += 1
        if unlikely(at == table.slot_count):
            at = 0
        distance += 1
    return -1


cdef inline bint is_noted(const Table* table, int64_t offset) noexcept nogil:
    """Whether the offset has a bit: then is_superseded() tells of its record what find_offset() would tell of its key."""
    return <uint64_t>sub64(offset, table.first_offset) < table.noted_count


cdef inline bint is_superseded(const Table* table, int64_t offset) noexcept nogil:
    cdef uint64_t bit = <uint64_t>(offset - table.first_offset)
    return table.superseded[bit >> 6] >> (bit & 63) & 1


cdef inline void supersede(Table* table, int64_t offset, int64_t by) noexcept nogil:
    cdef uint64_t bit
    if offset < by and is_noted(table, offset):
        bit = <uint64_t>(offset - table.first_offset)
        table.superseded[bit >> 6] |= <uint64_t>1 << (bit & 63)


cdef inline void put_offset(Table* table, Digest digest, int64_t offset) noexcept nogil:
    """Set the offset, which is 0 or more, of the key with this digest. At least one slot is empty.

    An entry goes before the first one that lies nearer to its home, and pushes the others on. So the distances of all
    entries stay short and alike, also in a table that is nearly full, and a search knows early when to give up.
    """
    cdef uint64_t at = scale(digest.low, table.slot_count)
    cdef uint64_t distance = 0, there
    cdef Slot carried, taken
    cdef Slot* slot
    carried.low, carried.high, carried.offset_after = digest.low, digest.high, <uint64_t>offset + 1
    while True:
        slot = &table.slots[at]
        if slot.offset_after == 0:
            slot[0] = carried
            table.used += 1
            return
        if slot.low == carried.low and slot.high == carried.high:
            supersede(table, <int64_t>(slot.offset_after - 1), offset)
            slot.offset_after = carried.offset_after
            return
        there = distance_from_home(table, at)
        if there < distance:
            taken = slot[0]
            slot[0] = carried
            carried = taken
            distance = there
        at += 1
        if unlikely(at == table.slot_count):
            at = 0
        distance += 1


cdef class OffsetMap:
    cdef Table table
    cdef readonly int64_t latest_offset
    cdef Py_ssize_t users      # -1: one that writes; else how many read

    cdef int begin_reading(self) except -1
    cdef int begin_writing(self) except -1
    cdef void end(self) noexcept


cdef inline bint is_plain(const Header* header) noexcept nogil:
    """Whether the batch can be walked without Python: magic 2, not compressed, outside transactions."""
    return header.magic == 2 and not header.attributes & (CODEC_MASK | TRANSACTIONAL | CONTROL)


cdef bint is_worth_the_gil(Source source, Py_ssize_t position) noexcept
