"""The sparse indexes of a segment: offset -> position in the .log, and timestamp -> offset.

    .index       0 int32  offset - base offset        the last offset of a batch
                 4 int32  position                    where that batch begins in the .log
    .timeindex   0 int64  timestamp                   the largest in the segment up to here
                 8 int32  offset - base offset        the last offset of the batch that has it

Big-endian, each larger than the one before. A segment has an entry about every index.interval.bytes; between two
entries the log itself is scanned.

An index is handed memory and knows no file. While its segment is written to, that is a mapping longer than the entries,
with zeros behind the last one; the count of entries is here, not in the memory. Entries are read from the memory's
view() and written by its write(): a store into a mapping of a sparse file ends the process when the disk is full, a
write() says so. An index that is only read can be handed plain bytes. Whoever reads beside a writer in another process hands in bytes: a mapping of a file that shrinks would
end the process too.

Calls hold the GIL, so a reader sees the index before an append or after it. Kafka: AbstractIndex, OffsetIndex, TimeIndex.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from logcore._arguments cimport check_range, close_type
from logcore._bytes cimport add64, load32, load64, store32, store64, sub64

from collections import namedtuple

import cython

from logcore.errors import CorruptIndex, CorruptionReason, UsageError

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    POSITION = 4                     # in an entry of the offset index
    TIME_OFFSET = 8                  # in an entry of the time index
    # Look-ups are mostly near the end. Searched first, the last pages stay in memory and the others stay out of it.
    WARM_BYTES = 8192

OffsetPosition = namedtuple("OffsetPosition", ("offset", "position"))
OffsetPosition.__doc__ = "An entry of an offset index: a batch's last offset, and where the batch begins."
TimestampOffset = namedtuple("TimestampOffset", ("timestamp", "offset"))
TimestampOffset.__doc__ = "An entry of a time index: the largest timestamp so far, and the offset of its batch."


@cython.no_gc_clear    # the collector would take the buffer's owner away before __dealloc__ gives the buffer back
cdef class Index:
    """What both indexes are: entries of one size in memory that is lent.

    Holds a buffer of `memory` from construction to close(). resize() takes the new one before it lets go of the old one,
    so that a thread which searches meanwhile finds its entries in either.
    """

    def __dealloc__(self):
        if self.memory is not None:
            PyBuffer_Release(&self.view)

    cdef int open(self, memory, base_offset, entry_count, bint is_writable, int entry_bytes) except -1:
        self.base_offset = check_range("base_offset", base_offset, 0, 0x7FFFFFFFFFFFFFFF)
        self.entry_bytes = entry_bytes
        self.is_writable = is_writable
        self.take(memory)
        self.entry_count = self.entries_max if entry_count is None else check_range(
            "entry_count", entry_count, 0, self.entries_max)
        return 0

    cdef int take(self, memory) except -1:
        """Look at the memory as it is now; what was looked at before is let go of last."""
        cdef Py_buffer view, old = self.view
        cdef bint is_held = self.memory is not None
        PyObject_GetBuffer(memory.view() if hasattr(memory, "view") else memory, &view, PyBUF_SIMPLE)
        self.view = view
        self.memory = memory
        self.data = <uint8_t*>self.view.buf
        self.entries_max = self.view.len // self.entry_bytes
        self.entry_count = min(self.entry_count, self.entries_max)
        if is_held:
            PyBuffer_Release(&old)
        return 0

    cdef int check_open(self) except -1:
        if self.memory is None:
            raise UsageError("index", where=f"base offset {self.base_offset}", got="a call", wanted="none after close()")
        return 0

    cdef int check_writable(self) except -1:
        self.check_open()
        if not self.is_writable:
            raise UsageError("index", where=f"base offset {self.base_offset}", got="a write", wanted="a writable index")
        return 0

    cdef int64_t offset_at(self, Py_ssize_t entry) noexcept:
        cdef uint8_t* at = self.data + entry * self.entry_bytes
        return add64(self.base_offset, load32(at if self.entry_bytes == OFFSET_ENTRY_BYTES else at + TIME_OFFSET))

    cdef int32_t position_at(self, Py_ssize_t entry) noexcept:
        return load32(self.data + entry * OFFSET_ENTRY_BYTES + POSITION)

    cdef int64_t timestamp_at(self, Py_ssize_t entry) noexcept:
        return load64(self.data + entry * TIME_ENTRY_BYTES)

    cdef Py_ssize_t find(self, int64_t target, bint by_timestamp) noexcept:
        """The last entry that is at most `target`, or -1."""
        cdef Py_ssize_t low = 0, high = self.entry_count - 1, middle, warm
        if high < 0:
            return -1
        warm = high - WARM_BYTES // self.entry_bytes
        if warm > 0:
            if (self.timestamp_at(warm) if by_timestamp else self.offset_at(warm)) <= target:
                low = warm
            else:
                high = warm - 1
        # Entries before `low` are at most the target; those behind `high` are more.
        while low <= high:
            middle = low + (high - low) // 2
            if (self.timestamp_at(middle) if by_timestamp else self.offset_at(middle)) <= target:
                low = middle + 1
            else:
                high = middle - 1
        return low - 1

    cdef int32_t relative(self, int64_t offset) except? -1:
        """`offset` as an entry has it."""
        cdef int64_t delta = sub64(offset, self.base_offset)
        if offset < self.base_offset or delta > 0x7FFFFFFF:
            raise UsageError("offset of an index entry", got=offset,
                             wanted=f"{self.base_offset} to {<object>self.base_offset + 0x7FFFFFFF}")
        return <int32_t>delta

    cdef int write(self, const uint8_t* entry) except -1:
        """Add an entry that was checked. When the memory cannot write it, there is none."""
        self.memory.write(self.entry_count * self.entry_bytes,
                          PyBytes_FromStringAndSize(<const char*>entry, self.entry_bytes))
        self.entry_count += 1
        return 0

    def fits(self, offset) -> bool:
        """Whether `offset` lies within the 2^31 that an entry can tell from the base offset."""
        return self.base_offset <= offset <= <object>self.base_offset + 0x7FFFFFFF

    @property
    def size_in_bytes(self):
        """The bytes of its entries; the memory may have more."""
        return self.entry_count * self.entry_bytes

    def truncate_to(self, offset) -> None:
        """Keep the entries before `offset`."""
        cdef int64_t bound = check_range("offset", offset, 0, 0x7FFFFFFFFFFFFFFF)
        self.check_writable()
        self.entry_count = self.find(bound - 1, False) + 1

    def clear(self) -> None:
        """Forget every entry. The memory keeps its size."""
        self.check_writable()
        self.entry_count = 0

    def resize(self, size_in_bytes) -> bool:
        """Give the memory this size, rounded down to whole entries; says whether it had another.

        Entries are kept, or cut where it has no room for them. The memory's own resize() does the work.
        """
        cdef Py_ssize_t wanted = check_range("size_in_bytes", size_in_bytes, 0, 0x7FFFFFFF)
        self.check_writable()
        wanted -= wanted % self.entry_bytes
        if wanted == self.view.len:
            return False
        # Entries that are to go are forgotten first: nobody may touch what the file no longer has.
        self.entry_count = min(self.entry_count, wanted // self.entry_bytes)
        try:
            self.memory.resize(wanted)
        finally:
            self.take(self.memory)
        return True

    def trim(self) -> bool:
        """Cut the memory to the entries it holds: what a segment does that is written to no more."""
        return self.resize(self.size_in_bytes)

    def flush(self) -> None:
        """Make the entries durable, by the memory's own flush()."""
        self.check_writable()
        self.memory.flush()

    def close(self) -> None:
        """Let go of the memory and close it, if it can be closed. Every other call fails from here on."""
        if self.memory is None:
            return
        memory, self.memory, self.data = self.memory, None, NULL
        PyBuffer_Release(&self.view)
        if hasattr(memory, "close"):
            memory.close()

    def __len__(self):
        return self.entry_count

    def __repr__(self):
        state = "closed" if self.memory is None else f"{self.entry_count} of {self.entries_max} entries"
        return f"{type(self).__name__}(base_offset={self.base_offset}, {state})"

    cdef object damage(self, str what, object got, object wanted, Py_ssize_t entry):
        reason = CorruptionReason.ENTRY_SIZE if what == "size" else CorruptionReason.ENTRY_ORDER
        return CorruptIndex(what, reason=reason, got=got, wanted=wanted, position=entry * self.entry_bytes)

    cdef int check_entries(self) except -1:
        """Kafka's sanity check, which looks at both ends and at nothing between."""
        self.check_open()
        if self.view.len % self.entry_bytes:
            raise self.damage("size", self.view.len, f"a multiple of {self.entry_bytes}",
                              self.view.len // self.entry_bytes)
        if self.entry_count and self.offset_at(self.entry_count - 1) < self.base_offset:
            raise self.damage("last offset", self.offset_at(self.entry_count - 1), f"at least {self.base_offset}",
                              self.entry_count - 1)
        return 0

    def check_invariants(self) -> None:
        """Walk all entries, and raise CorruptIndex at the first that is not above the one before."""
        cdef Py_ssize_t entry
        self.check_open()
        for entry in range(1, self.entry_count):
            if self.offset_at(entry) < self.offset_at(entry - 1) or (
                    self.entry_bytes == OFFSET_ENTRY_BYTES and self.offset_at(entry) == self.offset_at(entry - 1)):
                raise self.damage("offset", self.offset_at(entry), f"more than {self.offset_at(entry - 1)}", entry)
            if self.entry_bytes == TIME_ENTRY_BYTES and self.timestamp_at(entry) <= self.timestamp_at(entry - 1):
                raise self.damage("timestamp", self.timestamp_at(entry), f"more than {self.timestamp_at(entry - 1)}", entry)


@cython.final
@cython.no_gc_clear
cdef class OffsetIndex(Index):
    """Offset -> position of the batch that may hold it.

    memory: any bytes to look into; or a MappedFile, or something with its methods, which can be written to
    entry_count: how many entries it has (default: all that fit)

    >>> OffsetIndex(bytes.fromhex("00000009 00000000 00000013 00001068"), 100).lookup(115)
    OffsetPosition(offset=109, position=0)
    """

    def __cinit__(self, memory, base_offset, *, entry_count=None, is_writable=False):
        self.open(memory, base_offset, entry_count, is_writable, OFFSET_ENTRY_BYTES)

    cdef object made(self, Py_ssize_t entry):
        return OffsetPosition(self.offset_at(entry), self.position_at(entry))

    @property
    def is_full(self):
        """Whether there is no room for another entry."""
        return self.entry_count >= self.entries_max

    @property
    def last_offset(self):
        """The offset of the last entry; the base offset, if there is none."""
        self.check_open()
        return self.offset_at(self.entry_count - 1) if self.entry_count else self.base_offset

    def entry(self, number):
        """Entry `number`, from 0."""
        self.check_open()
        return self.made(check_range("entry", number, 0, self.entry_count - 1))

    def lookup(self, offset):
        """The last entry at or below `offset`; (base offset, 0) if there is none: then scan from the start."""
        cdef Py_ssize_t found
        self.check_open()
        found = self.find(check_range("offset", offset, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF), False)
        return OffsetPosition(self.base_offset, 0) if found < 0 else self.made(found)

    def upper_bound(self, position, size):
        """The first entry at or behind byte `position` + `size` of the log, or None."""
        cdef int64_t bound = check_range("position", position, 0, 0x7FFFFFFF)
        cdef Py_ssize_t low = 0, high = self.entry_count, middle
        self.check_open()
        bound += check_range("size", size, 0, 0x7FFFFFFF)
        while low < high:
            middle = low + (high - low) // 2
            if self.position_at(middle) < bound:
                low = middle + 1
            else:
                high = middle
        return None if low == self.entry_count else self.made(low)

    def append(self, offset, position) -> None:
        """Add an entry; offsets must increase."""
        offset = check_range("offset", offset, 0, 0x7FFFFFFFFFFFFFFF)
        position = check_range("position", position, 0, 0x7FFFFFFF)
        self.check_writable()
        self.put(offset, position)

    cdef int put(self, int64_t offset, int32_t position) except -1:
        cdef uint8_t entry[OFFSET_ENTRY_BYTES]
        if self.entry_count >= self.entries_max:
            raise UsageError("offset index", where=f"base offset {self.base_offset}",
                             got=f"an entry more than its {self.entries_max}", wanted="a new segment when it is full")
        if self.entry_count and offset <= self.offset_at(self.entry_count - 1):
            raise UsageError("offset of an index entry", got=offset,
                             wanted=f"more than {self.offset_at(self.entry_count - 1)}")
        store32(entry, self.relative(offset))
        store32(entry + POSITION, position)
        return self.write(entry)

    def check(self) -> None:
        """Raise CorruptIndex if the size or the last entry cannot be right: what Kafka looks at when it opens one."""
        self.check_entries()


@cython.final
@cython.no_gc_clear
cdef class TimeIndex(Index):
    """Timestamp -> offset from which on it has to be looked for.

    The last place is kept free for the entry that a segment gets when it is written to no more.

    >>> TimeIndex(bytes.fromhex("0000018bcfe56800 00000009"), 100).lookup(1700000000400)
    TimestampOffset(timestamp=1700000000000, offset=109)
    """

    def __cinit__(self, memory, base_offset, *, entry_count=None, is_writable=False):
        self.open(memory, base_offset, entry_count, is_writable, TIME_ENTRY_BYTES)

    cdef object made(self, Py_ssize_t entry):
        return TimestampOffset(self.timestamp_at(entry), self.offset_at(entry))

    @property
    def is_full(self):
        """Whether the next entry would take the last place."""
        return self.entry_count >= self.entries_max - 1

    @property
    def last_entry(self):
        """The last entry; (-1, base offset), if there is none."""
        self.check_open()
        return self.made(self.entry_count - 1) if self.entry_count else TimestampOffset(-1, self.base_offset)

    def entry(self, number):
        """Entry `number`, from 0."""
        self.check_open()
        return self.made(check_range("entry", number, 0, self.entry_count - 1))

    def lookup(self, timestamp):
        """The last entry at or below `timestamp`; (-1, base offset) if there is none: then scan from the start."""
        cdef Py_ssize_t found
        self.check_open()
        found = self.find(check_range("timestamp", timestamp, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF), True)
        return TimestampOffset(-1, self.base_offset) if found < 0 else self.made(found)

    def append(self, timestamp, offset, *, is_last=False) -> bool:
        """Add an entry if `timestamp` is larger than the last one; says whether it was.

        Both may repeat and neither may go back: callers give the largest timestamp so far. `is_last` takes the place
        that is kept free.
        """
        timestamp = check_range("timestamp", timestamp, -1, 0x7FFFFFFFFFFFFFFF)
        offset = check_range("offset", offset, 0, 0x7FFFFFFFFFFFFFFF)
        self.check_writable()
        return self.put(timestamp, offset, is_last)

    cdef bint put(self, int64_t timestamp, int64_t offset, bint is_last) except -1:
        cdef uint8_t entry[TIME_ENTRY_BYTES]
        cdef int64_t last_timestamp = -1, last_offset = self.base_offset
        if self.entry_count >= self.entries_max - (0 if is_last else 1):
            raise UsageError("time index", where=f"base offset {self.base_offset}",
                             got=f"an entry more than its {self.entries_max}", wanted="a new segment when it is full")
        if self.entry_count:
            last_timestamp = self.timestamp_at(self.entry_count - 1)
            last_offset = self.offset_at(self.entry_count - 1)
            if offset < last_offset:
                raise UsageError("offset of an index entry", got=offset, wanted=f"at least {last_offset}")
            if timestamp < last_timestamp:
                raise UsageError("timestamp of an index entry", got=timestamp, wanted=f"at least {last_timestamp}")
        if timestamp <= last_timestamp:
            return False
        store64(entry, timestamp)
        store32(entry + TIME_OFFSET, self.relative(offset))
        self.write(entry)
        return True

    def check(self) -> None:
        """Raise CorruptIndex if the size or the entries at both ends cannot be right, as Kafka does when it opens one."""
        self.check_entries()
        if self.entry_count and self.timestamp_at(self.entry_count - 1) < self.timestamp_at(0):
            raise self.damage("last timestamp", self.timestamp_at(self.entry_count - 1),
                              f"at least {self.timestamp_at(0)}", self.entry_count - 1)


close_type(Index, "OffsetIndex(…) or TimeIndex(…)")
