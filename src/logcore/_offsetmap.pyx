"""Which offset of a key is its latest: the map that compaction builds from the dirty part of a log.

A table of fixed size, whatever the keys are like. A slot has 24 bytes:

     0 uint64 low, 8 uint64 high    128 bits of a keyed hash of the key (_siphash.pxd)
    16 uint64 offset + 1            all zeros: empty

Keys are not kept. Two keys of one digest would count as one, and compaction would lose the older's value: among 2^40
keys that happens once in 2^49 logs, and since the seed is handed in anew for each run, nobody can make it happen.
Kafka has MD5 there, for which anybody can make such keys. The same seed keeps an attacker from filling one stretch of
the table.

Who will filter the very records that were mapped can have the map note, in a bit for each offset, which of them a later
one took the place of: then they are neither hashed nor looked up again (`first_offset` of OffsetMap).

Collisions of slots are resolved by linear probing, with entries ordered by their distance from home ("Robin Hood").
At nine tenths full, where Kafka stops, a key lies 5 slots from home on average and a missing key costs no more; with
plain linear probing that would be 50. Lookups are random reads of memory, so the loops hash some keys ahead and
prefetch (KEYS_AHEAD).

map_keys() fills the map from a buffer of batches. Kafka: SkimpyOffsetMap, Cleaner.buildOffsetMapForSegment.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from logcore._arguments cimport check_callable, check_optional, check_range, close_type
from logcore._batch cimport (
    BATCH_HEADER_SIZE, CONTROL, STEP_BATCH, STEP_END, TRANSACTIONAL, Fields, Header, Step, check_count, read_header,
    read_record,
)
from logcore._buffer cimport GIL_RELEASE_BYTES, Source
from logcore._bytes cimport add64
from logcore._convert cimport OpenBatch, open_batch
from logcore._fault cimport FAULT_CRC, Fault, corrupt_batch
from logcore._legacy cimport Message
from logcore._payload cimport decompressed_limit
from logcore._record cimport Batch

import cython

from logcore.errors import InvariantError, UsageError, UsageTypeError

cdef extern from * nogil:
    """
    #include <sys/mman.h>
    #include <unistd.h>
    /* Random reads of many small pages miss the processor's table of pages nearly each time, and each first write to a
       page is a fault. Only advice: where there are no huge pages, or fewer than asked for, nothing changes. */
    #define LC_HUGE_BYTES (4u << 20)
    static void lc_use_huge_pages(void *data, size_t size) {
    #ifdef MADV_HUGEPAGE
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t begin = ((uintptr_t)data + page - 1) / page * page, end = ((uintptr_t)data + size) / page * page;
        if (size >= LC_HUGE_BYTES) (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    #endif
    }
    """
    void use_huge_pages "lc_use_huge_pages"(void* data, size_t size)

cdef enum:
    SEED_BYTES = 16

if sizeof(Slot) != SLOT_BYTES:
    raise ImportError(f"a slot has {SLOT_BYTES} bytes, not {sizeof(Slot)}")


cdef int read_seed(seed, uint64_t* low, uint64_t* high) except -1:
    if not isinstance(seed, bytes):
        raise UsageTypeError("seed", got=type(seed).__name__, wanted=f"{SEED_BYTES} bytes")
    if len(<bytes>seed) != SEED_BYTES:
        raise UsageError("seed", got=f"{len(<bytes>seed)} bytes", wanted=f"{SEED_BYTES} bytes")
    memcpy(low, PyBytes_AS_STRING(seed), 8)
    memcpy(high, PyBytes_AS_STRING(seed) + 8, 8)
    return 0


def siphash128(data, *, seed) -> bytes:
    """SipHash-2-4 of `data` under the 16 bytes of `seed`, with 16 bytes out.

    >>> siphash128(b"", seed=bytes(range(16))).hex()
    'a3817f04ba25a8e66df67214c7550293'
    """
    cdef Source source = Source(data, "data")
    cdef uint64_t low, high
    cdef Digest digest
    read_seed(seed, &low, &high)
    digest = siphash128_of(low, high, source.data, <size_t>source.size)
    return PyBytes_FromStringAndSize(<const char*>&digest.low, 8) + PyBytes_FromStringAndSize(<const char*>&digest.high, 8)


cdef object busy():
    return UsageError("offset map", got="a call while it is filled or looked up in", wanted="one user at a time")


@cython.final
cdef class OffsetMap:
    """OffsetMap(memory_bytes, *, seed, first_offset=None)\n--\n
    Key -> latest offset, in at most `memory_bytes`; owns its table.

    seed: 16 bytes that nobody can guess, new for each run
    first_offset: says that every record with a key from there on to `latest_offset` is put. What is superseded is noted
        then by its offset, for 8 offsets a slot in a 24th of memory_bytes more, and filter_batches() asks that first

    The system gives memory as it is written to, in huge pages where it has them, and entries lie everywhere: ask for no
    more than the offsets to map need, 24 bytes each by the load factor. How full it may get is the caller's to say
    (`limit` of map_keys). While one thread is in map_keys() with a map, every other call with it is refused.

    >>> offset_map = OffsetMap(1 << 20, seed=bytes(16))
    >>> offset_map.put(b"k", 7)
    >>> offset_map.get(b"k"), offset_map.get(b"other"), offset_map.latest_offset, offset_map.slots
    (7, -1, 7, 43690)
    """

    def __cinit__(self, memory_bytes, *, seed, first_offset=None):
        self.latest_offset = -1
        memory_bytes = check_range("memory_bytes", memory_bytes, SLOT_BYTES, 0x7FFFFFFFFFFFFFFF)
        read_seed(seed, &self.table.seed_low, &self.table.seed_high)
        self.table.slot_count = memory_bytes // SLOT_BYTES
        self.table.slots = <Slot*>calloc(self.table.slot_count, SLOT_BYTES)
        if self.table.slots == NULL:
            raise MemoryError(f"{memory_bytes} bytes for an offset map")
        use_huge_pages(self.table.slots, <size_t>self.table.slot_count * SLOT_BYTES)
        first_offset = check_optional("first_offset", first_offset, 0, 0x7FFFFFFFFFFFFFFF)
        if first_offset is not None:
            self.table.superseded = <uint64_t*>calloc(self.table.slot_count // 8 + 1, 8)
            if self.table.superseded == NULL:
                raise MemoryError(f"{self.table.slot_count} bytes for an offset map")
            self.table.first_offset = first_offset
            self.table.noted_count = self.table.slot_count * NOTED_PER_SLOT

    def __dealloc__(self):
        free(self.table.slots)
        free(self.table.superseded)

    cdef int begin_reading(self) except -1:
        if self.users < 0:
            raise busy()
        self.users += 1
        return 0

    cdef int begin_writing(self) except -1:
        if self.users:
            raise busy()
        self.users = -1
        return 0

    cdef void end(self) noexcept:
        self.users += 1 if self.users < 0 else -1

    def put(self, key, offset) -> None:
        """Say that the latest record of `key` is at `offset`. Refused in a full map, as Kafka does, also for a key in it."""
        cdef Source source = Source(key, "key")
        cdef int64_t at = check_range("offset", offset, 0, 0x7FFFFFFFFFFFFFFF)
        if self.table.used >= self.table.slot_count:
            raise UsageError("offset map", got="a put", wanted=f"fewer than its {self.table.slot_count} entries")
        self.begin_writing()
        put_offset(&self.table, digest_of(&self.table, source.data, source.size), at)
        self.latest_offset = at
        self.end()

    def get(self, key) -> int:
        """The offset that was put for `key` last, or -1."""
        cdef Source source = Source(key, "key")
        self.begin_reading()
        cdef int64_t found = find_offset(&self.table, digest_of(&self.table, source.data, source.size))
        self.end()
        return found

    def update_latest_offset(self, offset) -> None:
        """Say that the map covers the log up to `offset`, though nothing may have been put there."""
        offset = check_range("offset", offset, -1, 0x7FFFFFFFFFFFFFFF)
        self.begin_writing()
        self.latest_offset = offset
        self.end()

    def clear(self) -> None:
        """Empty it; the seed stays. It writes to all of the memory: a new map costs less, and has a new seed."""
        self.begin_writing()
        memset(self.table.slots, 0, <size_t>self.table.slot_count * SLOT_BYTES)
        if self.table.noted_count:
            memset(self.table.superseded, 0, <size_t>(self.table.slot_count // 8 + 1) * 8)
        self.table.used = 0
        self.latest_offset = -1
        self.end()

    def __len__(self):
        return <Py_ssize_t>self.table.used

    @property
    def slots(self):
        """How many entries there is room for."""
        return self.table.slot_count

    @property
    def utilization(self):
        """Entries / slots."""
        return <double>self.table.used / <double>self.table.slot_count

    def check_invariants(self) -> None:
        """Walk the table: each entry can be found, and there are as many as were counted."""
        cdef uint64_t at, before, found = 0, distance
        cdef uint64_t last = self.table.slot_count - 1
        self.begin_reading()
        try:
            for at in range(self.table.slot_count):
                if self.table.slots[at].offset_after == 0:
                    continue
                found += 1
                distance = distance_from_home(&self.table, at)
                before = at - 1 if at else last
                if distance and (self.table.slots[before].offset_after == 0
                                 or distance > distance_from_home(&self.table, before) + 1):
                    raise InvariantError(f"offset map, slot {at}: {distance} from its home, and cannot be found")
            if found != self.table.used:
                raise InvariantError(f"offset map: {found} entries, {self.table.used} counted")
        finally:
            self.end()


# ----------------------------------------------------------------------------------------------- filling it: leaves

cdef struct Waiting:
    Digest digest
    int64_t offset
    int64_t index              # of the record in its batch


# The records of one batch on their way into the map.
cdef struct Intake:
    Table* table
    int64_t first_offset
    uint64_t limit
    int64_t latest_offset      # of what was put; or what it was before
    int64_t read               # records of the batch before the end, or before the first for which there was no room
    bint is_full
    int held
    Waiting waiting[KEYS_AHEAD]


cdef bint put_waiting(Intake* intake) noexcept nogil:
    """Put the keys that were hashed, in order; False if one of them meets a full map."""
    cdef int index
    for index in range(intake.held):
        if intake.table.used >= intake.limit:
            # Also for a key that is in the map. Kafka does not look either.
            intake.is_full = True
            intake.read = intake.waiting[index].index
            return False
        put_offset(intake.table, intake.waiting[index].digest, intake.waiting[index].offset)
        intake.latest_offset = intake.waiting[index].offset
    intake.held = 0
    return True


cdef inline bint take(Intake* intake, int64_t offset, const uint8_t* key, int64_t key_size, int64_t index) noexcept nogil:
    """Note a record; False once the map is full."""
    cdef Waiting* waiting
    if key_size < 0 or offset < intake.first_offset:
        return True
    waiting = &intake.waiting[intake.held]
    waiting.digest = digest_of(intake.table, key, key_size)
    waiting.offset = offset
    waiting.index = index
    intake.held += 1
    return intake.held < KEYS_AHEAD or put_waiting(intake)


cdef const uint8_t* take_records(
    Intake* intake, const uint8_t* pos, const uint8_t* end, const Header* header,
) noexcept nogil:
    """Take in the records of a v2 batch; returns where it stopped, at `end` unless they are damaged or the map is full."""
    cdef Fields record
    cdef const uint8_t* after
    cdef int64_t index = 0, count = header.count, base_offset = header.base_offset
    while index < count:
        after = read_record(pos, end, &record)
        if after == NULL:
            break
        if not take(intake, add64(base_offset, record.offset_delta), record.key, record.key_size, index):
            return pos
        pos = after
        index += 1
    intake.read = index
    put_waiting(intake)
    return pos


cdef void take_messages(Intake* intake, const Message* messages, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        if not take(intake, messages[index].offset, messages[index].key, messages[index].key_size, index):
            return
    intake.read = count
    put_waiting(intake)


# ------------------------------------------------------------------------------------------------------ filling it

cdef bint is_worth_the_gil(Source source, Py_ssize_t position) noexcept:
    """Whether so much can be done from `position` on without Python that the GIL may go meanwhile.

    To come back for it may take a switch interval, if other threads compute: not for each small batch of a transaction.
    """
    cdef Header header
    cdef Fault fault
    cdef const uint8_t* start = source.data
    cdef Py_ssize_t end = position + GIL_RELEASE_BYTES
    if end > source.size:
        return False
    while position < end:
        if read_header(start, start + position, start + source.size, 0x7FFFFFFF, False, &header, &fault) != STEP_BATCH:
            return False
        if not is_plain(&header):
            return False
        position += header.size_in_bytes
    return True


cdef enum Pause:
    PAUSE_END          # no whole batch is left, or the map is full
    PAUSE_FAULT        # damage in a header
    PAUSE_RECORDS      # damage in the records
    PAUSE_BATCH        # a batch that needs Python


@cython.final
cdef class KeyMapping:
    """One run of map_keys()."""
    cdef Source source
    cdef OffsetMap offset_map
    cdef object should_discard_batch
    cdef Py_ssize_t position
    cdef int64_t bytes_max, shift, messages_read
    cdef Intake intake
    cdef Header header               # of the batch at `position`
    cdef const uint8_t* stopped      # where its records are damaged
    cdef Fault fault

    cdef Pause run(self) noexcept nogil:
        """Take in uncompressed v2 batches outside transactions, until something needs Python."""
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* end = start + self.source.size
        cdef const uint8_t* batch
        cdef Header* header = &self.header
        cdef Step step
        while not self.intake.is_full:
            batch = start + self.position
            step = read_header(start, batch, end, 0x7FFFFFFF, True, header, &self.fault)
            if step != STEP_BATCH:
                return PAUSE_END if step == STEP_END else PAUSE_FAULT
            if not is_plain(header):
                return PAUSE_BATCH
            if check_count(header, header.size_in_bytes - BATCH_HEADER_SIZE, &self.fault):
                return PAUSE_FAULT
            if not self.take_plain(batch + BATCH_HEADER_SIZE, batch + header.size_in_bytes):
                return PAUSE_RECORDS
        return PAUSE_END

    cdef bint take_plain(self, const uint8_t* begin, const uint8_t* end) noexcept nogil:
        """Take in a v2 batch whose records lie there; False if they are damaged."""
        self.intake.read = 0
        if self.header.count:      # a count of 0 means: do not look
            self.stopped = take_records(&self.intake, begin, end, &self.header)
            if not self.intake.is_full and (self.stopped != end or self.intake.read != self.header.count):
                return False
        self.pass_batch(self.intake.read)
        return True

    cdef void pass_batch(self, int64_t messages_read) noexcept nogil:
        """Count the batch, and go past it unless the map was full in the middle of it."""
        self.messages_read += messages_read
        if self.intake.is_full:
            return
        self.position += self.header.size_in_bytes
        if self.header.last_offset >= self.intake.first_offset:
            self.intake.latest_offset = self.header.last_offset

    cdef int take_batch(self) except -1:
        """Any batch, with what needs Python: transactions, decompression, messages of magic 0 and 1."""
        cdef Header* header = &self.header
        cdef OpenBatch opened
        cdef bint is_good
        if header.magic == 2 and header.attributes & (TRANSACTIONAL | CONTROL):
            discard = self.should_discard_batch is not None and self.should_discard_batch(
                Batch.new(self.source, header, self.bytes_max, self.shift))
            if header.attributes & CONTROL:
                self.pass_batch(1)
                return 0
            if discard:
                self.pass_batch(max(header.count, 0))
                return 0
        if header.magic == 2 and header.count == 0:
            self.pass_batch(0)
            return 0
        opened = open_batch(self.source, header, self.bytes_max, self.shift)
        if opened.plain_bytes() < GIL_RELEASE_BYTES:
            is_good = self.take_opened(opened)
        else:
            with nogil:
                is_good = self.take_opened(opened)
        if not is_good:
            raise opened.refusal(self.stopped, self.intake.read)
        return 0

    cdef bint take_opened(self, OpenBatch opened) noexcept nogil:
        if opened.messages is None:
            return self.take_plain(opened.plain.data + opened.begin, opened.plain.data + opened.end)
        take_messages(&self.intake, opened.messages.messages, opened.messages.count)
        self.pass_batch(self.intake.read)
        return True

    cdef object refusal(self, Pause pause):
        """The exception for what run() met. A batch whose header or checksum is wrong has no offset to speak of."""
        if pause == PAUSE_RECORDS:
            return open_batch(self.source, &self.header, self.bytes_max, self.shift).refusal(
                self.stopped, self.intake.read)
        return corrupt_batch(&self.fault, self.position + self.shift,
                             None if self.fault.kind <= FAULT_CRC else self.header.base_offset)


close_type(KeyMapping)


class MapResult:
    """What map_keys() did; the map itself knows its latest offset.

    consumed: the position after the last batch that is in the map as a whole
    is_full: whether a record was met for which there was no room
    messages_read: records looked at, as Kafka's cleaner counts them: a control batch as one
    """

    __slots__ = ("consumed", "is_full", "messages_read")

    def __init__(self, consumed, is_full, messages_read):
        self.consumed = consumed
        self.is_full = is_full
        self.messages_read = messages_read

    def __repr__(self):
        return f"MapResult(consumed={self.consumed}, is_full={self.is_full}, messages_read={self.messages_read})"


def map_keys(
    buffer, OffsetMap offset_map not None, *, first_offset, limit=None, should_discard_batch=None, base_position=0,
    max_decompressed_bytes=None,
):
    """Put the key of every record of `buffer` from `first_offset` on into the map, with its offset.

    Records without key are passed over, control batches too. Call it with one chunk of the log after another: a
    partial last batch is left, and `.consumed` tells where to go on.

    limit: stop before the map has more entries (slots x load factor; all slots unless told)
    should_discard_batch: called with each transactional and each control Batch, in order; whether its transaction was
        aborted. Records of one that was do not count. What it says of a control batch is not looked at
    base_position: where `buffer` begins in what it was read from; added to positions in errors
    max_decompressed_bytes: the most that one batch may decompress to (128 MiB)

    After each batch the map's latest offset is the batch's last offset, also if nothing of it was put. When the map is
    full in the middle of a batch, it is the offset of the last record that was put: up to there a log may be cleaned
    with this map, and from the next offset on the next pass goes on. So a pass gets ahead if `limit` is 1 or more.

    Damage raises CorruptBatch. The map then holds some of the keys: clear it, or take a new one.

    >>> from logcore import encode_batch
    >>> offset_map = OffsetMap(1 << 20, seed=bytes(16))
    >>> data = encode_batch([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], base_offset=5)
    >>> map_keys(data, offset_map, first_offset=0)
    MapResult(consumed=88, is_full=False, messages_read=3)
    >>> offset_map.get(b"a"), offset_map.get(b"b"), offset_map.latest_offset
    (7, 6, 7)
    """
    cdef KeyMapping run = KeyMapping.__new__(KeyMapping)
    cdef Pause pause
    first_offset = check_range("first_offset", first_offset, 0, 0x7FFFFFFFFFFFFFFF)
    limit = check_optional("limit", limit, 0, offset_map.table.slot_count)
    if should_discard_batch is not None:
        check_callable("should_discard_batch", should_discard_batch)
    run.source = Source(buffer)
    base_position = check_range("base_position", base_position, 0, 0x7FFFFFFFFFFFFFFF - run.source.size)
    run.shift = base_position
    run.bytes_max = decompressed_limit(max_decompressed_bytes)
    run.offset_map = offset_map
    run.should_discard_batch = should_discard_batch
    run.intake.table = &offset_map.table
    run.intake.first_offset = first_offset
    run.intake.limit = offset_map.table.slot_count if limit is None else limit
    run.intake.latest_offset = offset_map.latest_offset
    offset_map.begin_writing()
    try:
        while True:
            if is_worth_the_gil(run.source, run.position):
                with nogil:
                    pause = run.run()
            else:
                pause = run.run()
            if pause == PAUSE_END:
                break
            if pause != PAUSE_BATCH:
                raise run.refusal(pause)
            run.take_batch()
    finally:
        offset_map.latest_offset = run.intake.latest_offset
        offset_map.end()
    return MapResult(run.position, run.intake.is_full, run.messages_read)
