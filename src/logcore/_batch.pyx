"""The batch as a frame: its header, its checksum, and the bytes around it. No record is built here.

A buffer is a run of batches, each telling its own size; the last may be cut short, as a fetch or a crash leaves it.
That is an end, not damage: damage is a size, magic or checksum that no writer writes. Byte diagrams:
docs/internals/record-format.md. Leaves first (no GIL, no objects), then what Python sees.

Base offset and leader epoch lie outside the checksum, so a broker stamps them without touching it. Attributes and
max timestamp lie inside.
"""

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from logcore._arguments cimport check_optional, check_range, close_type
from logcore._buffer cimport Memory, Source, byte_view, writable
from logcore._bytes cimport (
    CACHE_LINE_BYTES, VARINT_BYTES_MAX, VARLONG_BYTES_MAX, Varint, load16, load32, load64, prefetch, read_varint,
    read_varint_there, store16, store32, store64, sub64, unlikely, unzigzag,
)
from logcore._checksum cimport crc32_of, crc32c_of, crc_of_middle, crc_prefix
from logcore._fault cimport (
    FAULT_BATCH_SIZE, FAULT_BATCH_TOO_LARGE, FAULT_COUNT_NEGATIVE, FAULT_COUNT_TOO_LARGE, FAULT_CRC,
    FAULT_HEADER_COUNT, FAULT_HEADER_KEY, FAULT_HEADER_VALUE, FAULT_KEY_LENGTH, FAULT_MAGIC, FAULT_NONE, FAULT_RECORD_LENGTH,
    FAULT_RECORD_TRUNCATED, FAULT_TRAILING_BYTES, FAULT_VALUE_LENGTH, FAULT_VARINT, Fault,
    corrupt_batch, fail,
)

import cython
import numpy as np

from logcore.errors import UsageError, UsageTypeError

if BATCH_HEADER_SIZE != 61:
    raise ImportError(f"a v2 batch header has 61 bytes, not {BATCH_HEADER_SIZE}")

cdef enum:
    # Positions inside a v0/v1 message, counted from the start of its log overhead.
    LEGACY_CRC = LOG_OVERHEAD
    LEGACY_ATTRIBUTES = MAGIC + 1
    LEGACY_TIMESTAMP = LEGACY_ATTRIBUTES + 1

    GRID_BYTES = 64
    WALK_AHEAD_BYTES = 512
    WALK_BYTES = 8          # a length, and what follows it
    # A search goes so far between two looks for a signal, such as Ctrl-C.
    SIGNAL_BYTES = 1 << 20

cdef Py_ssize_t HEADER_BYTES = <Py_ssize_t>sizeof(Header)

# The same fields in the same order as the packed struct Header.
HEADER_DTYPE = np.dtype([
    ("position", "i8"), ("base_offset", "i8"), ("last_offset", "i8"), ("base_timestamp", "i8"),
    ("max_timestamp", "i8"), ("producer_id", "i8"), ("size_in_bytes", "i4"), ("leader_epoch", "i4"),
    ("base_sequence", "i4"), ("count", "i4"), ("crc", "u4"), ("attributes", "i2"), ("producer_epoch", "i2"),
    ("magic", "i1"),
])
if HEADER_DTYPE.itemsize != sizeof(Header):
    raise ImportError(f"Header has {sizeof(Header)} bytes, its dtype {HEADER_DTYPE.itemsize}")


# ---------------------------------------------------------------------------------------------------- leaves

cdef Step read_header(
    const uint8_t* start, const uint8_t* pos, const uint8_t* end, int32_t batch_bytes_max, bint verify_crc,
    Header* header, Fault* fault,
) noexcept nogil:
    """Read the header of the batch at `pos` and, if asked, check its checksum.

    The order of checks is Kafka's: what can be told from a part of a batch is told before its end is missed.
    """
    cdef Py_ssize_t left = end - pos
    cdef int32_t size
    cdef int8_t magic
    if left < LOG_OVERHEAD:
        return STEP_END
    size = load32(pos + LENGTH)
    if size < LEGACY_SIZE_MIN:
        fail(fault, FAULT_BATCH_SIZE, LENGTH, size, LEGACY_SIZE_MIN)
        return STEP_FAULT
    if size > batch_bytes_max:
        fail(fault, FAULT_BATCH_TOO_LARGE, LENGTH, size, batch_bytes_max)
        return STEP_FAULT
    if left < SIZE_UP_TO_MAGIC:
        return STEP_END
    magic = <int8_t>pos[MAGIC]
    if magic < 0 or magic > 2:
        fail(fault, FAULT_MAGIC, MAGIC, magic, 2)
        return STEP_FAULT
    if size > left - LOG_OVERHEAD or size > <int32_t>0x7FFFFFFF - LOG_OVERHEAD:
        return STEP_END
    header.position = pos - start
    header.size_in_bytes = size + LOG_OVERHEAD
    header.magic = magic
    header.base_offset = load64(pos + BASE_OFFSET)
    if magic < 2:
        header.last_offset = header.base_offset
        header.crc = <uint32_t>load32(pos + LEGACY_CRC)
        header.attributes = pos[LEGACY_ATTRIBUTES]
        header.max_timestamp = load64(pos + LEGACY_TIMESTAMP) if magic == 1 else -1
        header.base_timestamp = header.max_timestamp
        header.producer_id = -1
        header.producer_epoch = -1
        header.base_sequence = -1
        header.leader_epoch = -1
        header.count = -1
        return STEP_FAULT if verify_crc and verify_checksum(pos, header, fault) else STEP_BATCH
    if header.size_in_bytes < BATCH_HEADER_SIZE:
        fail(fault, FAULT_BATCH_SIZE, LENGTH, size, BATCH_HEADER_SIZE - LOG_OVERHEAD)
        return STEP_FAULT
    header.leader_epoch = load32(pos + LEADER_EPOCH)
    header.crc = <uint32_t>load32(pos + CRC)
    header.attributes = load16(pos + ATTRIBUTES)
    header.last_offset = <int64_t>(<unsigned long long>header.base_offset + <unsigned long long>load32(pos + LAST_OFFSET_DELTA))
    header.base_timestamp = load64(pos + BASE_TIMESTAMP)
    header.max_timestamp = load64(pos + MAX_TIMESTAMP)
    header.producer_id = load64(pos + PRODUCER_ID)
    header.producer_epoch = load16(pos + PRODUCER_EPOCH)
    header.base_sequence = load32(pos + BASE_SEQUENCE)
    header.count = load32(pos + RECORD_COUNT)
    return STEP_FAULT if verify_crc and verify_checksum(pos, header, fault) else STEP_BATCH


cdef int verify_checksum(const uint8_t* batch, const Header* header, Fault* fault) noexcept nogil:
    """Compare the stored checksum with the bytes it covers."""
    cdef uint32_t computed
    if header.magic == 2:
        computed = crc32c_of(batch + ATTRIBUTES, <size_t>(header.size_in_bytes - ATTRIBUTES))
    else:
        computed = crc32_of(batch + MAGIC, <size_t>(header.size_in_bytes - MAGIC))
    if computed == header.crc:
        return FAULT_NONE
    return fail(fault, FAULT_CRC, CRC if header.magic == 2 else LEGACY_CRC, header.crc, computed)


cdef const uint8_t* skip_headers(const uint8_t* pos, const uint8_t* end, int64_t count) noexcept nogil:
    """The byte after `count` well-formed headers if that is exactly `end`, else NULL."""
    cdef Varint varint
    cdef int64_t size
    if count < 0 or count > end - pos:
        return NULL
    while count:
        varint = read_varint(pos, end, VARINT_BYTES_MAX)
        if varint.next == NULL:
            return NULL
        size = unzigzag(varint.bits)
        pos = varint.next
        if size < 0 or size > end - pos:
            return NULL
        varint = read_varint(pos + size, end, VARINT_BYTES_MAX)
        if varint.next == NULL:
            return NULL
        size = unzigzag(varint.bits)
        pos = varint.next
        if size > 0:
            if size > end - pos:
                return NULL
            pos += size
        count -= 1
    return end if pos == end else NULL


cdef const uint8_t* read_record_checked(const uint8_t* pos, const uint8_t* end, Fields* record) noexcept nogil:
    """read_record() with a check at every field: for the last records of a batch, where one may run over the end."""
    memset(record, 0, sizeof(Fields))
    cdef Varint varint = read_varint(pos, end, VARINT_BYTES_MAX)
    cdef int64_t length = unzigzag(varint.bits)
    cdef const uint8_t* record_end
    pos = varint.next
    if pos == NULL or length < 1 or length > end - pos:
        return NULL
    record_end = pos + length
    varint = read_varint(pos + 1, end, VARLONG_BYTES_MAX)
    if varint.next == NULL:
        return NULL
    record.timestamp_delta = unzigzag(varint.bits)
    varint = read_varint(varint.next, end, VARINT_BYTES_MAX)
    if varint.next == NULL:
        return NULL
    record.offset_delta = unzigzag(varint.bits)
    varint = read_varint(varint.next, end, VARINT_BYTES_MAX)
    if varint.next == NULL:
        return NULL
    return read_body(varint, end, record_end, record)


cdef bint leap_to_record(Place* place, const uint8_t* end, const Header* header, int64_t offset) noexcept nogil:
    """Go to the record of `offset` by its number in the batch, if offsets go one by one: the header says so, and the
    record, once it is reached. Otherwise nothing is changed. `place` is at the first record.

    Of the records before it only lengths are looked at. So this is for batches that were checked when they were written,
    and whose checksum is right: those of a log.
    """
    cdef const uint8_t* pos
    cdef int64_t count = offset - header.base_offset
    cdef Varint varint
    if header.count - 1 != header.last_offset - header.base_offset or not 0 < count < header.count:
        return False
    pos = skip_records(place.pos, end, count)
    if pos == NULL:
        return False
    varint = read_varint(pos, end, VARINT_BYTES_MAX)
    if varint.next != NULL and varint.next < end:
        varint = read_varint(varint.next + 1, end, VARLONG_BYTES_MAX)
        if varint.next != NULL:
            varint = read_varint(varint.next, end, VARINT_BYTES_MAX)
    if varint.next == NULL or unzigzag(varint.bits) != count:
        return False
    place.pos = pos
    place.left -= <int32_t>count
    return True


cdef const uint8_t* skip_records(const uint8_t* pos, const uint8_t* end, int64_t count) noexcept nogil:
    """Where the record lies that comes after `count` others; NULL if a length does not lead there.

    Each record waits for the length of the one before: some ten cycles. But where lengths repeat the processor need not
    wait. It guesses that the branch goes as before, and is with the next record while this length is on its way.
    """
    cdef Varint length
    cdef int32_t before = -1            # the first two bytes of the record before, if they say how long it is
    cdef int64_t size_before = 0
    while count > 0 and end - pos >= WALK_BYTES:
        if load16(pos) == before and size_before <= end - pos:
            pos += size_before
        else:
            prefetch(pos + WALK_AHEAD_BYTES)
            prefetch(pos + WALK_AHEAD_BYTES + CACHE_LINE_BYTES)
            length = read_varint_there(pos, end, VARINT_BYTES_MAX)
            if length.next == NULL or length.bits & 1 or (length.bits >> 1) - 1 >= <uint64_t>(end - length.next):
                return NULL
            size_before = length.next - pos + <int64_t>(length.bits >> 1)
            before = load16(pos) if length.next - pos <= 2 else -0x10000
            pos += size_before
        count -= 1
    return pos if count == 0 else NULL


cdef bint pass_records(
    Place* place, const uint8_t* end, const Header* header, int64_t low, int64_t high, bint inside,
) noexcept nogil:
    """Walk over records whose offsets lie in low to high (`inside`), or over those whose offsets do not.

    It stops at the first of the other kind, or behind the last of all, where place.left is 0. It returns False at a
    record that does not tell its length and offset; diagnose_record() says why. Nothing else of a record is looked at:
    its length leads to the next one.
    """
    cdef const uint8_t* pos = place.pos
    cdef const uint8_t* record_end
    cdef int32_t left = place.left
    cdef int64_t offset
    cdef uint64_t base_offset = <uint64_t>header.base_offset
    cdef Varint varint
    cdef bint whole = True
    while left > 0:
        # Where sizes differ, the processor does not see ahead by itself: half the time for records of 90 to 170 bytes.
        prefetch(pos + WALK_AHEAD_BYTES)
        prefetch(pos + WALK_AHEAD_BYTES + CACHE_LINE_BYTES)
        varint = read_varint(pos, end, VARINT_BYTES_MAX)
        # Each record waits for the length of the one before, so nothing is done to it that is not needed: an odd one
        # is negative, and half of an even one is its value.
        if unlikely(varint.next == NULL or varint.bits & 1 or (
                varint.bits >> 1) - 1 >= <uint64_t>(end - varint.next)):
            whole = False
            break
        record_end = varint.next + (varint.bits >> 1)
        varint = read_varint(varint.next + 1, end, VARLONG_BYTES_MAX)
        if unlikely(varint.next == NULL):
            whole = False
            break
        varint = read_varint(varint.next, end, VARINT_BYTES_MAX)
        if unlikely(varint.next == NULL or varint.next > record_end):
            whole = False
            break
        offset = <int64_t>(base_offset + <uint64_t>unzigzag(varint.bits))
        if (low <= offset <= high) != inside:
            break
        pos = record_end
        left -= 1
    place.pos = pos
    place.left = left
    return whole


cdef int diagnose_record(const uint8_t* start, const uint8_t* pos, const uint8_t* end, Fault* fault) noexcept nogil:
    """Why read_record() refused the record at `pos`: the same walk, slowly, with words."""
    cdef const uint8_t* record_end
    cdef Varint varint = read_varint(pos, end, VARINT_BYTES_MAX)
    cdef int64_t size
    cdef int64_t count
    cdef int field
    if varint.next == NULL:
        return fail(fault, FAULT_VARINT, pos - start, 0, VARINT_BYTES_MAX)
    size = unzigzag(varint.bits)
    if size > end - varint.next:
        return fail(fault, FAULT_RECORD_TRUNCATED, pos - start, size, end - varint.next)
    if size < 1:
        return fail(fault, FAULT_RECORD_LENGTH, pos - start, size, RECORD_SIZE_MIN - 1)
    record_end = varint.next + size
    pos = varint.next + 1
    for field in range(2):  # timestamp delta, offset delta
        varint = read_varint(pos, record_end, VARINT_BYTES_MAX if field else VARLONG_BYTES_MAX)
        if varint.next == NULL:
            return fail(fault, FAULT_VARINT, pos - start, 0, VARINT_BYTES_MAX if field else VARLONG_BYTES_MAX)
        pos = varint.next
    for field in range(2):  # key, value
        varint = read_varint(pos, record_end, VARINT_BYTES_MAX)
        if varint.next == NULL:
            return fail(fault, FAULT_VARINT, pos - start, 0, VARINT_BYTES_MAX)
        size = unzigzag(varint.bits)
        if size > record_end - varint.next:
            return fail(fault, FAULT_VALUE_LENGTH if field else FAULT_KEY_LENGTH, pos - start, size,
                        record_end - varint.next)
        pos = varint.next + (size if size > 0 else 0)
    varint = read_varint(pos, record_end, VARINT_BYTES_MAX)
    if varint.next == NULL:
        return fail(fault, FAULT_VARINT, pos - start, 0, VARINT_BYTES_MAX)
    count = unzigzag(varint.bits)
    if count < 0 or count > record_end - varint.next:
        return fail(fault, FAULT_HEADER_COUNT, pos - start, count, record_end - varint.next)
    pos = varint.next
    while count:
        for field in range(2):  # name, value
            varint = read_varint(pos, record_end, VARINT_BYTES_MAX)
            if varint.next == NULL:
                return fail(fault, FAULT_VARINT, pos - start, 0, VARINT_BYTES_MAX)
            size = unzigzag(varint.bits)
            if size > record_end - varint.next or (size < 0 and not field):
                return fail(fault, FAULT_HEADER_VALUE if field else FAULT_HEADER_KEY, pos - start, size,
                            record_end - varint.next)
            pos = varint.next + (size if size > 0 else 0)
        count -= 1
    return fail(fault, FAULT_TRAILING_BYTES, pos - start, record_end - pos, 0)


cdef int check_count(const Header* header, int64_t payload_bytes, Fault* fault) noexcept nogil:
    """Refuse a record count that the bytes cannot hold, before anything is allocated for it."""
    if header.count < 0:
        return fail(fault, FAULT_COUNT_NEGATIVE, RECORD_COUNT, header.count, 0)
    if header.count > payload_bytes // RECORD_SIZE_MIN:
        return fail(fault, FAULT_COUNT_TOO_LARGE, RECORD_COUNT, header.count, payload_bytes // RECORD_SIZE_MIN)
    return 0


cdef void write_header(uint8_t* batch, const Header* header) noexcept nogil:
    """Write every field of a v2 header but the checksum."""
    store64(batch + BASE_OFFSET, header.base_offset)
    store32(batch + LENGTH, header.size_in_bytes - LOG_OVERHEAD)
    store32(batch + LEADER_EPOCH, header.leader_epoch)
    batch[MAGIC] = 2
    store16(batch + ATTRIBUTES, header.attributes)
    store32(batch + LAST_OFFSET_DELTA, <int32_t>sub64(header.last_offset, header.base_offset))
    store64(batch + BASE_TIMESTAMP, header.base_timestamp)
    store64(batch + MAX_TIMESTAMP, header.max_timestamp)
    store64(batch + PRODUCER_ID, header.producer_id)
    store16(batch + PRODUCER_EPOCH, header.producer_epoch)
    store32(batch + BASE_SEQUENCE, header.base_sequence)
    store32(batch + RECORD_COUNT, header.count)


cdef void seal(uint8_t* batch, int32_t size) noexcept nogil:
    """Compute and write the checksum of a v2 batch of `size` bytes."""
    store32(batch + CRC, <int32_t>crc32c_of(batch + ATTRIBUTES, <size_t>(size - ATTRIBUTES)))


cdef int32_t sequence_after(int32_t sequence, int32_t increment) noexcept nogil:
    """Sequences run from 0 to 2^31 - 1 and then begin again at 0.

    In Java's wrapping arithmetic, so that nonsense in a header (a negative sequence or span) is the same nonsense here.
    """
    cdef uint32_t room = <uint32_t>0x7FFFFFFF - <uint32_t>increment
    if sequence > <int32_t>room:
        return <int32_t>(<uint32_t>increment - (<uint32_t>0x7FFFFFFF - <uint32_t>sequence) - 1)
    return <int32_t>(<uint32_t>sequence + <uint32_t>increment)


cdef bint is_plausible(const Header* header) noexcept nogil:
    """Whether a header could be a writer's, judged by the fields alone: keeps a search from checksumming noise."""
    if header.magic < 2:
        return not header.attributes & ~0x0F
    return (
        not header.attributes & ~0x7F
        and header.last_offset >= header.base_offset >= 0
        and 0 <= header.count <= header.last_offset - header.base_offset + 1
        and header.producer_id >= -1 and header.producer_epoch >= -1 and header.base_sequence >= -1
    )


# --------------------------------------------------------------------------------------- what the edges share

cdef int32_t size_limit(object batch_bytes_max) except -1:
    batch_bytes_max = check_optional("batch_bytes_max", batch_bytes_max, 1, 0x7FFFFFFF)
    return 0x7FFFFFFF if batch_bytes_max is None else batch_bytes_max


cdef Py_ssize_t position_in(object position, Py_ssize_t size) except -1:
    position = check_range("position in the buffer", position, 0, size)
    return position


cdef str timestamp_type_name(const Header* header):
    if header.magic == 0:
        return "none"
    return "log_append_time" if header.attributes & LOG_APPEND_TIME else "create_time"


# ---------------------------------------------------------------------------------------------- what Python sees

class BatchScan:
    """What scan_batches() found.

    headers: a numpy structured array, one row a whole batch (dtype HEADER_DTYPE)
    consumed: the position after the last of them
    is_partial: whether bytes follow that are the beginning of a batch
    error: the CorruptBatch that ended the scan, or None
    """

    __slots__ = ("consumed", "error", "headers", "is_partial")

    def __init__(self, headers, consumed, is_partial, error):
        self.headers = headers
        self.consumed = consumed
        self.is_partial = is_partial
        self.error = error

    def __len__(self):
        return len(self.headers)

    def __repr__(self):
        end = f"damaged: {self.error}" if self.error else "partial" if self.is_partial else "clean"
        return f"BatchScan({len(self)} batches, consumed={self.consumed}, end={end})"


def scan_batches(buffer, *, position=0, verify_crc=True, batch_bytes_max=None):
    """Read the headers of all whole batches in `buffer`, and check their checksums, without touching a record.

    Never raises for what the bytes say: damage ends the scan and is in `.error`, a batch cut short in `.is_partial`.

    >>> from logcore import encode_batch
    >>> scan = scan_batches(encode_batch([(b"k", b"v")], base_offset=7) + b"\\0\\0")
    >>> scan
    BatchScan(1 batches, consumed=70, end=partial)
    >>> int(scan.headers["base_offset"][0])
    7
    """
    cdef Source source = Source(buffer)
    return scan(source.data, source.size, position_in(position, source.size), verify_crc, size_limit(batch_bytes_max))


cdef object scan(const uint8_t* start, Py_ssize_t size, Py_ssize_t position, bint verify_crc, int32_t batch_bytes_max):
    cdef const uint8_t* end = start + size
    cdef const uint8_t* pos = start + position
    cdef Memory rows = Memory.new(64 * HEADER_BYTES)
    cdef Py_ssize_t found = 0, room = 64
    cdef Header* headers
    cdef Fault fault
    cdef Step step = STEP_BATCH
    while step == STEP_BATCH:
        if found == room:
            room *= 2
            rows.reserve(room * HEADER_BYTES)
        headers = <Header*>rows.data
        with nogil:
            while found < room:
                step = read_header(start, pos, end, batch_bytes_max, verify_crc, &headers[found], &fault)
                if step != STEP_BATCH:
                    break
                pos += headers[found].size_in_bytes
                found += 1
    rows.shrink(found * HEADER_BYTES)
    return BatchScan(
        np.frombuffer(rows, dtype=HEADER_DTYPE),
        pos - start,
        step == STEP_END and pos < end,
        corrupt_batch(&fault, pos - start) if step == STEP_FAULT else None,
    )


@cython.final
cdef class BatchSummary:
    """What the headers of a scan say together: an append asks for all of it, and numpy takes a microsecond a question.

    first_offset: base offset of the first batch; its last one for magic 0 and 1, which do not tell the first
    last_offset, leader_epoch: of the last batch
    max_timestamp, size_max: the largest timestamp, and size in bytes of a batch
    record_count: of all, -1 if one does not tell
    attributes, magic, first_max_timestamp: of the first batch
    first_last_offset: the last offset of the first batch
    is_one_epoch: whether all are of magic 2, and of one leader epoch
    has_producer: whether one has a producer id
    """
    cdef readonly int64_t first_offset, last_offset, first_last_offset, max_timestamp, first_max_timestamp, record_count
    cdef readonly int32_t size_max, leader_epoch
    cdef readonly int16_t attributes
    cdef readonly int8_t magic
    cdef readonly bint is_one_epoch, has_producer

    def __repr__(self):
        return f"BatchSummary(offsets {self.first_offset} to {self.last_offset})"


def summarize(headers):
    """A BatchSummary of a scan's headers, of which there is one at least.

    >>> from logcore import encode_batch
    >>> summarize(scan_batches(encode_batch([(b"k", b"v")] * 3, base_offset=7)).headers).last_offset
    9
    """
    cdef BatchSummary self = BatchSummary.__new__(BatchSummary)
    cdef Source source = Source(headers)
    cdef const Header* header = <const Header*>source.data
    cdef Py_ssize_t index, count = source.size // HEADER_BYTES
    if not count or source.size % HEADER_BYTES:
        raise UsageError("headers", got=f"{source.size} bytes", wanted=f"one or more of {HEADER_BYTES}")
    self.first_offset = header[0].base_offset
    self.first_last_offset = header[0].last_offset
    self.max_timestamp = self.first_max_timestamp = header[0].max_timestamp
    self.attributes = header[0].attributes
    self.magic = header[0].magic
    self.is_one_epoch = True
    for index in range(count):
        self.max_timestamp = max(self.max_timestamp, header[index].max_timestamp)
        self.size_max = max(self.size_max, header[index].size_in_bytes)
        if header[index].count < 0 or self.record_count < 0:
            self.record_count = -1
        else:
            self.record_count += header[index].count
        if header[index].magic < 2 or header[index].leader_epoch != header[0].leader_epoch:
            self.is_one_epoch = False
        if header[index].producer_id >= 0:
            self.has_producer = True
    self.last_offset = header[count - 1].last_offset
    self.leader_epoch = header[count - 1].leader_epoch
    return self


close_type(BatchSummary, "summarize(…)")


@cython.final
cdef class Prefixes:
    """CRCs of a buffer from its start to every 64th byte, as far as they were asked for.

    From them the CRC of any part comes by two short reads and a few multiplications. For find_batch(): a hostile
    buffer may hold a plausible header at every byte, each claiming all that follows.
    """
    cdef const uint8_t* start
    cdef bint castagnoli
    cdef Memory grid
    cdef Py_ssize_t known

    def __cinit__(self, Source source, Py_ssize_t position, bint castagnoli):
        self.start = source.data + position
        self.castagnoli = castagnoli
        self.grid = Memory.new(4 * ((source.size - position) // GRID_BYTES + 1))
        (<uint32_t*>self.grid.data)[0] = 0

    cdef uint32_t at(self, const uint8_t* pos) noexcept nogil:
        cdef uint32_t* crcs = <uint32_t*>self.grid.data
        cdef Py_ssize_t index = (pos - self.start) // GRID_BYTES
        while self.known < index:
            crcs[self.known + 1] = crc_prefix(self.castagnoli, crcs[self.known], self.start + GRID_BYTES * self.known,
                                              GRID_BYTES)
            self.known += 1
        return crc_prefix(self.castagnoli, crcs[index], self.start + GRID_BYTES * index,
                          <size_t>(pos - self.start - GRID_BYTES * index))

    cdef uint32_t between(self, const uint8_t* begin, const uint8_t* end) noexcept nogil:
        return crc_of_middle(self.castagnoli, self.at(begin), self.at(end), <uint32_t>(end - begin))


close_type(Prefixes)


def find_batch(buffer, *, position=0, batch_bytes_max=None):
    """The first position at or after `position` where a whole batch with a right checksum lies, or None.

    What a reader does behind damage. Every byte is tried; a header that no writer writes is passed over unread. The
    time is linear in the buffer, whatever it holds.
    """
    cdef Source source = Source(buffer)
    cdef int32_t limit = size_limit(batch_bytes_max)
    cdef const uint8_t* start = source.data
    cdef const uint8_t* end = start + source.size
    cdef const uint8_t* pos = start + position_in(position, source.size)
    cdef const uint8_t* pause
    cdef Header header
    cdef Fault fault
    cdef Prefixes modern = Prefixes.__new__(Prefixes, source, pos - start, True)
    cdef Prefixes legacy = Prefixes.__new__(Prefixes, source, pos - start, False)
    cdef bint found = False
    while not found and end - pos >= LOG_OVERHEAD + LEGACY_SIZE_MIN:
        with nogil:
            pause = pos + min(end - pos - (LOG_OVERHEAD + LEGACY_SIZE_MIN) + 1, SIGNAL_BYTES)
            while pos < pause:
                if read_header(start, pos, end, limit, False, &header, &fault) == STEP_BATCH and is_plausible(&header):
                    if header.magic == 2:
                        found = modern.between(pos + ATTRIBUTES, pos + header.size_in_bytes) == header.crc
                    else:
                        found = legacy.between(pos + MAGIC, pos + header.size_in_bytes) == header.crc
                    if found:
                        break
                pos += 1
        PyErr_CheckSignals()
    return pos - start if found else None


def first_batch_size(buffer, *, batch_bytes_max=None):
    """The size in bytes of the first batch of `buffer`, known from its first 17 bytes; None with fewer.

    For a reader that has the beginning of a batch and wants to know how much more to read.
    """
    cdef Source source = Source(buffer)
    cdef int32_t limit = size_limit(batch_bytes_max)
    cdef Header header
    cdef Fault fault
    if source.size >= SIZE_UP_TO_MAGIC:
        step = read_header(source.data, source.data, source.data + source.size, limit, False, &header, &fault)
        if step == STEP_FAULT:
            raise corrupt_batch(&fault, 0)
        return <int64_t>load32(source.data + LENGTH) + LOG_OVERHEAD
    return None


def split_batches(buffer):
    """The whole batches of `buffer` as memoryviews, without copying; a partial last one is left out.

    Sizes and magic are checked, checksums are not. Damage raises CorruptBatch.
    """
    cdef Source source = Source(buffer)
    scanned = scan(source.data, source.size, 0, False, 0x7FFFFFFF)
    if scanned.error is not None:
        raise scanned.error
    view = byte_view(buffer, source)
    return [view[at:at + size] for at, size in zip(scanned.headers["position"].tolist(),
                                                   scanned.headers["size_in_bytes"].tolist(), strict=True)]


def concat_batches(buffers) -> bytes:
    """One buffer out of many, each of which must hold whole batches only.

    A partial batch in the middle would swallow what follows it, so it is refused here.
    """
    if isinstance(buffers, (str, bytes, bytearray)) or not hasattr(buffers, "__iter__"):
        raise UsageTypeError("buffers to concatenate", got=type(buffers).__name__, wanted="an iterable of buffers")
    cdef Source source
    cdef list sources = [Source(buffer) for buffer in buffers]
    for index, source in enumerate(sources):
        scanned = scan(source.data, source.size, 0, False, 0x7FFFFFFF)
        if scanned.error is not None:
            raise scanned.error
        if scanned.is_partial:
            raise UsageError("buffer to concatenate", where=f"buffers[{index}]",
                             got=f"a partial batch at position {scanned.consumed}", wanted="whole batches")
    return b"".join(sources)


def assign_offsets(buffer, base_offset, *, leader_epoch=-1) -> int:
    """Number the v2 batches of a writable `buffer` from `base_offset` on, in place, and stamp `leader_epoch`.

    Each batch keeps its own span (last offset - base offset). Both fields lie outside the checksum, which stays
    valid. Returns the offset after the last. Nothing is changed if a batch is damaged, partial or of an older magic.
    """
    base_offset = check_range("base_offset", base_offset, 0, 0x7FFFFFFFFFFFFFFF)
    leader_epoch = check_range("leader_epoch", leader_epoch, -1, 0x7FFFFFFF)
    cdef Py_buffer view
    cdef uint8_t* data = writable(buffer, "buffer to number", &view)
    try:
        return _number(data, view.len, base_offset, leader_epoch)
    finally:
        PyBuffer_Release(&view)


cdef int64_t _number(uint8_t* data, Py_ssize_t size, base_offset, int32_t leader_epoch) except -1:
    cdef int64_t next_offset = base_offset, span
    scanned = scan(data, size, 0, False, 0x7FFFFFFF)
    if scanned.error is not None:
        raise scanned.error
    if scanned.is_partial or not len(scanned):
        raise UsageError("buffer to number", wanted="whole batches",
                         got=f"{len(scanned)} whole batches and a part" if scanned.is_partial else "none")
    headers = scanned.headers
    if (headers["magic"] != 2).any():
        raise UsageError("buffer to number", got=f"magic {headers['magic'].min()}", wanted="magic 2: convert it first")
    spans = headers["last_offset"] - headers["base_offset"]
    if (spans < 0).any() or base_offset + int(spans.sum()) + len(spans) > 0x7FFFFFFFFFFFFFFF:
        raise UsageError("offsets of the buffer", got=f"spans from {spans.min()}", wanted="0 or more, below 2^63")
    for position, span in zip(headers["position"].tolist(), spans.tolist(), strict=True):
        store64(data + <Py_ssize_t>position + BASE_OFFSET, next_offset)
        store32(data + <Py_ssize_t>position + LEADER_EPOCH, leader_epoch)
        next_offset += span + 1
    return next_offset


def patch_batch(
    buffer, *, position=0, base_offset=None, last_offset=None, leader_epoch=None, timestamp_type=None,
    max_timestamp=None,
) -> bool:
    """Change header fields of the batch at `position` of a writable `buffer`, in place.

    Base offset (or last offset, which moves the base by the same distance) and leader epoch lie outside the checksum
    of a v2 batch. Timestamp type and max timestamp lie inside it: the checksum is computed anew, but only if one of
    them changes. Returns whether it was. With "log_append_time" every record's time becomes `max_timestamp`.

    A v0/v1 message has one offset (give last_offset) and no leader epoch; a v0 message has no timestamp.
    """
    cdef Py_buffer view
    cdef uint8_t* data = writable(buffer, "batch to patch", &view)
    try:
        return _patch(data, view.len, position_in(position, view.len), base_offset, last_offset, leader_epoch,
                      timestamp_type, max_timestamp)
    finally:
        PyBuffer_Release(&view)


cdef bint _patch(
    uint8_t* data, Py_ssize_t size, Py_ssize_t position, base_offset, last_offset, leader_epoch, timestamp_type,
    max_timestamp,
) except -1:
    cdef Header header
    cdef Fault fault
    cdef uint8_t* batch = data + position
    cdef Step step = read_header(data, batch, data + size, 0x7FFFFFFF, False, &header, &fault)
    if step == STEP_FAULT:
        raise corrupt_batch(&fault, position)
    if step == STEP_END:
        raise UsageError("batch to patch", where=f"position {position}", got="no whole batch", wanted="one")
    if base_offset is not None and last_offset is not None:
        raise UsageError("offsets to patch", got="base_offset and last_offset", wanted="one of them")
    if timestamp_type is not None and timestamp_type != "create_time" and timestamp_type != "log_append_time":
        raise UsageError("timestamp_type", got=repr(timestamp_type), wanted='"create_time" or "log_append_time"')
    base_offset = check_optional("base_offset", base_offset, 0, 0x7FFFFFFFFFFFFFFF)
    last_offset = check_optional("last_offset", last_offset, 0, 0x7FFFFFFFFFFFFFFF)
    leader_epoch = check_optional("leader_epoch", leader_epoch, -1, 0x7FFFFFFF)
    max_timestamp = check_optional("max_timestamp", max_timestamp, -1, 0x7FFFFFFFFFFFFFFF)
    if timestamp_type == "log_append_time" and max_timestamp is None:
        raise UsageError("max_timestamp", got="None", wanted="the append time, with log_append_time")
    stamped = timestamp_type is not None or max_timestamp is not None
    if header.magic < 2:
        if leader_epoch is not None:
            raise UsageError("leader_epoch", got=f"a batch of magic {header.magic}", wanted="magic 2")
        if base_offset is not None:
            raise UsageError("base_offset", got=f"a batch of magic {header.magic}", wanted="last_offset there")
        if stamped and header.magic == 0:
            raise UsageError("timestamp to patch", got="a batch of magic 0", wanted="magic 1 or 2")
    elif last_offset is not None:
        base_offset = last_offset - sub64(header.last_offset, header.base_offset)
        base_offset = check_range("base_offset that follows from last_offset", base_offset, 0, 0x7FFFFFFFFFFFFFFF)

    if header.magic < 2:
        if last_offset is not None:
            store64(batch + BASE_OFFSET, last_offset)
    elif base_offset is not None:
        store64(batch + BASE_OFFSET, base_offset)
    if leader_epoch is not None:
        store32(batch + LEADER_EPOCH, leader_epoch)
    if not stamped:
        return False

    cdef int16_t attributes = header.attributes
    if timestamp_type is not None:
        attributes &= ~<int16_t>LOG_APPEND_TIME
        if timestamp_type == "log_append_time":
            attributes |= LOG_APPEND_TIME
    cdef int64_t timestamp = header.max_timestamp if max_timestamp is None else max_timestamp
    if attributes == header.attributes and timestamp == header.max_timestamp:
        return False
    if header.magic == 2:
        store16(batch + ATTRIBUTES, attributes)
        store64(batch + MAX_TIMESTAMP, timestamp)
        seal(batch, header.size_in_bytes)
    else:
        batch[LEGACY_ATTRIBUTES] = <uint8_t>attributes
        store64(batch + LEGACY_TIMESTAMP, timestamp)
        store32(batch + LEGACY_CRC, <int32_t>crc32_of(batch + MAGIC, <size_t>(header.size_in_bytes - MAGIC)))
    return True


def increment_sequence(sequence, increment) -> int:
    """A producer's sequence number `increment` records further on; after 2147483647 comes 0.

    >>> increment_sequence(2147483647, 1)
    0
    """
    sequence = check_range("sequence", sequence, 0, 0x7FFFFFFF)
    increment = check_range("increment", increment, 0, 0x7FFFFFFF)
    return sequence_after(sequence, increment)


def decrement_sequence(sequence, decrement) -> int:
    """A producer's sequence number `decrement` records back; before 0 comes 2147483647.

    >>> decrement_sequence(0, 1)
    2147483647
    """
    sequence = check_range("sequence", sequence, 0, 0x7FFFFFFF)
    decrement = check_range("decrement", decrement, 0, 0x7FFFFFFF)
    return <int32_t>((<int64_t>sequence - <int64_t>decrement) & 0x7FFFFFFF)
