"""The records of a log, one by one: from an offset on, to an end that was known when the reader was made.

A reader has a view of the log (logcore.log.view.LogView) and needs no lock: segments of the view stay readable when they
are sealed, replaced or deleted. Only a truncation takes records away that a view still promises. The log counts these;
a reader looks at the count before each read, and ends with an error rather than mix what was there with what came after.

The offset index says where to begin; that the batch there is the one of the index entry is checked. Where the next entry
is near, one small read brings all that lies between. Where it is far, batches are long: then the one of the next entry
has the offset, nearly always, and is read whole and no more, since most look-ups want one record. Where it begins behind
the offset, headers alone are read, from the first entry on. Whoever goes on reads ahead, twice as much each time, to a
megabyte.

    batches skipped unchecked:   before the offset, as their headers say
    batches skipped:             control batches; with read_committed those of aborted transactions
    batches checked:             all but the first, before their first record is handed out or they are skipped
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from logcore._arguments cimport check_range, close_type
from logcore._batch cimport (
    BATCH_HEADER_SIZE, CONTROL, LENGTH, LOG_OVERHEAD, STEP_BATCH, STEP_FAULT, TRANSACTIONAL, Header, Step, read_header,
    verify_checksum,
)
from logcore._buffer cimport GIL_RELEASE_BYTES, Source
from logcore._bytes cimport load32
from logcore._fault cimport Fault, corrupt_batch
from logcore._index cimport OffsetIndex
from logcore._record cimport Batch, Record, RecordIterator
from logcore._segment cimport BatchFile

from errno import ENOENT

import cython

from logcore.errors import CorruptBatch, CorruptionReason, OffsetOutOfRangeError, StorageError

cdef enum:
    AHEAD_BYTES_MIN = 12288          # three batches of 4 KiB: as far as it is to the one behind the next index entry
    AHEAD_BYTES_MAX = 1 << 20
    RENEWALS_MAX = 100
    WINDOW_BYTES = 256               # to look at a header: long batches have no second one near
    WINDOWS_MAX = 8                  # with an index there are two or three

cdef int64_t NO_OFFSET = -1
cdef Py_ssize_t NO_ENTRY = -2        # -1: before the first
cdef int64_t DECOMPRESSED_BYTES_MAX = 128 << 20


@cython.final
cdef class RecordReader:
    """An iterator of Records. Made by read_records()."""
    cdef object log                  # tells of truncations: `generation`, and check_cut() that raises
    cdef object view
    cdef tuple segments
    cdef Py_ssize_t index            # of the segment that is read
    cdef object segment
    cdef BatchFile file
    cdef int64_t base_offset         # of the segment
    cdef int64_t passed_offset       # the last one of the batches before what is wanted
    cdef int64_t limit               # where the batches of the segment end
    cdef Source chunk                # what was read last, of the file from `chunk_position` on
    cdef int64_t chunk_position
    cdef Py_ssize_t at               # in the chunk: the next batch
    cdef int64_t ahead               # how much to read next
    cdef int64_t expected_offset     # of the batch that the index led to, or -1
    cdef Py_ssize_t leapt_over       # the index entry before the one that was gone to, until that is known to be right
    cdef int64_t generation
    cdef readonly int64_t next_offset      # from here on nothing was handed out
    cdef int64_t end_offset
    cdef int64_t bytes_left          # of batches that may be opened
    cdef int32_t leader_epoch        # of the last batch
    cdef bint is_committed
    cdef bint is_in_order            # a batch of this segment was found to be wanted: so is all behind it
    cdef dict aborted                # with read_committed: producer id -> [(first offset, last offset)] of the segment
    cdef RecordIterator records

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record
        cdef Batch batch
        while True:
            if self.records is not None:
                record = self.records.next_record()
                if record is not None:
                    if record.offset >= self.end_offset:
                        self.finish()
                        break
                    self.next_offset = record.offset + 1
                    return record
                self.next_offset = max(self.next_offset, self.records.batch.header.last_offset + 1)
                self.records = None
            batch = self.next_batch()
            if batch is None:
                self.finish()
                break
            self.records = RecordIterator.new(batch, False, self.next_offset, True)
        raise StopIteration

    cdef void finish(self) noexcept:
        """Let go of everything; there is nothing more."""
        self.records = None
        self.chunk = None
        self.file = None
        self.segment = None
        self.index = len(self.segments)

    cdef Batch next_batch(self):
        """The next batch with records that are wanted, checked; None at the end."""
        cdef const uint8_t* start
        cdef Header header
        cdef Fault fault
        cdef Step step
        cdef Py_ssize_t at
        cdef int64_t wanted
        while self.index < len(self.segments):
            if self.chunk is None:
                if self.segment is None:
                    self.enter_segment()
                if not self.fill(0):
                    continue
            start = self.chunk.data
            at = self.at
            step = read_header(start, start + at, start + self.chunk.size, 0x7FFFFFFF, False, &header, &fault)
            if self.expected_offset != NO_OFFSET:
                if step == STEP_FAULT or (step == STEP_BATCH and header.last_offset != self.expected_offset):
                    self.distrust_index()
                    continue
                if step == STEP_BATCH:
                    self.expected_offset = NO_OFFSET
                    if self.leapt_over != NO_ENTRY and self.has_leapt_too_far(&header):
                        continue
            if step == STEP_FAULT:
                self.check_cut()
                raise corrupt_batch(&fault, 0).at_path(self.file.file.path, self.chunk_position + at)
            if step != STEP_BATCH:
                self.fill(self.size_at(at))
                continue
            self.at += header.size_in_bytes
            if header.magic == 2 and header.base_offset < self.base_offset:
                verify_checksum(start + at, &header, &fault) and self.refuse(&fault, at)
                self.refuse_order(at, header.base_offset, self.base_offset)
            if header.last_offset < self.next_offset:
                wanted = self.next_offset if self.is_in_order else self.passed_offset + 1
                if header.last_offset < wanted:
                    # Offsets go up. To pass over this batch would be to lose what it had without a word.
                    verify_checksum(start + at, &header, &fault) and self.refuse(&fault, at)
                    self.refuse_order(at, header.last_offset, wanted)
                self.passed_offset = header.last_offset
                continue
            self.is_in_order = True
            if header.magic == 2 and header.base_offset >= self.end_offset:
                return None
            if header.magic == 2 and header.attributes & CONTROL or self.is_aborted(&header):
                # A flipped bit can make it look so.
                verify_checksum(start + at, &header, &fault) and self.refuse(&fault, at)
                self.next_offset = header.last_offset + 1
                continue
            if self.bytes_left <= 0:
                return None
            self.bytes_left -= header.size_in_bytes
            if header.leader_epoch != self.leader_epoch:
                if self.leader_epoch >= 0:
                    self.log.check_epoch(self.leader_epoch, header.leader_epoch, self.next_offset)
                self.leader_epoch = header.leader_epoch
            if header.size_in_bytes < GIL_RELEASE_BYTES:
                verify_checksum(start + at, &header, &fault) and self.refuse(&fault, at)
            else:
                with nogil:
                    step = STEP_FAULT if verify_checksum(start + at, &header, &fault) else STEP_BATCH
                if step == STEP_FAULT:
                    self.refuse(&fault, at)
            return Batch.new(self.chunk, &header, DECOMPRESSED_BYTES_MAX, self.chunk_position)
        return None

    cdef int refuse(self, Fault* fault, Py_ssize_t at) except -1:
        self.check_cut()
        raise corrupt_batch(fault, 0).at_path(self.file.file.path, self.chunk_position + at)

    cdef int refuse_order(self, Py_ssize_t at, int64_t got, int64_t wanted) except -1:
        self.check_cut()
        raise CorruptBatch("offset", reason=CorruptionReason.OFFSET_ORDER, got=got, wanted=f"{wanted} or more",
                           path=self.file.file.path, position=self.chunk_position + at)

    cdef int64_t size_at(self, Py_ssize_t at) except -1:
        """How long the batch is whose beginning lies at the end of the chunk; 0 if that cannot be told yet."""
        if self.chunk.size - at < LOG_OVERHEAD:
            return 0
        return <int64_t>load32(self.chunk.data + at + LENGTH) + LOG_OVERHEAD

    cdef bint is_aborted(self, const Header* header) except -1:
        if not self.is_committed or header.magic < 2 or not header.attributes & TRANSACTIONAL:
            return False
        for first_offset, last_offset in self.aborted.get(header.producer_id, ()):
            if first_offset <= header.base_offset and header.last_offset < last_offset:
                return True
        return False

    cdef int enter_segment(self) except -1:
        """Begin with the segment of `index`, where its offset index says."""
        cdef OffsetIndex offsets
        self.segment = self.segments[self.index]
        for attempt in range(RENEWALS_MAX):
            try:
                self.file = self.segment.log
                offsets = self.segment.offset_index
                break
            except StorageError as error:
                if error.errno != ENOENT:
                    raise
                self.renew()
        else:
            raise OffsetOutOfRangeError(f"read: got offset {self.next_offset}, whose segments keep being deleted")
        self.limit = self.view.end_in(self.index, self.file.file_size())
        self.base_offset = self.segment.base_offset
        self.passed_offset = self.base_offset - 1
        self.is_in_order = False    # beside a writer, this may be a compacted segment that begins before
        self.expected_offset = NO_OFFSET
        self.at = 0
        self.chunk_position = 0
        self.leapt_over = NO_ENTRY
        if self.is_committed:
            self.find_aborted()
        if self.base_offset < self.next_offset:
            offsets.check_open()
            self.follow_index(offsets, offsets.find(self.next_offset, False), True)
        return 0

    cdef int follow_index(self, OffsetIndex offsets, Py_ssize_t entry, bint may_leap) except -1:
        """Go where the last entry before what is wanted leads; -1: to the beginning of the segment.

        may_leap: where batches are long each has an entry, and the one that is wanted is that of the next entry. So it is
            read at once. Whether it is the one, its base offset tells; next_batch() comes back if it is not
        """
        cdef int64_t position = 0, following = self.limit, behind = self.limit
        if entry >= 0:
            position = offsets.position_at(entry)
        if entry + 1 < offsets.entry_count:
            following = offsets.position_at(entry + 1)
        if entry + 2 < offsets.entry_count:
            behind = offsets.position_at(entry + 2)
        if not 0 <= position < max(self.limit, <int64_t>1):
            self.distrust_index()
            return 0
        self.chunk_position = position
        self.expected_offset = offsets.offset_at(entry) if entry >= 0 else NO_OFFSET
        if following - position <= AHEAD_BYTES_MIN:
            return 0
        if not may_leap or following >= self.limit:
            return self.approach(following, behind)
        self.leapt_over = entry
        self.chunk_position = following
        self.expected_offset = offsets.offset_at(entry + 1)
        self.ahead = min(max(behind - following, <int64_t>AHEAD_BYTES_MIN), <int64_t>AHEAD_BYTES_MAX)
        return 0

    cdef bint has_leapt_too_far(self, const Header* header) except -1:
        """Whether the batch that was leapt to begins behind what is wanted: then what lies before it is looked at."""
        cdef OffsetIndex offsets
        cdef Py_ssize_t entry = self.leapt_over
        self.leapt_over = NO_ENTRY
        if header.base_offset <= self.next_offset:
            return False
        self.chunk = None
        self.at = 0
        self.ahead = AHEAD_BYTES_MIN
        offsets = self.segment.offset_index     # it may be another one by now
        offsets.check_open()
        self.follow_index(offsets, min(entry, offsets.entry_count - 1), False)
        return True

    cdef int approach(self, int64_t following, int64_t behind) except -1:
        """Go on to the batch that is wanted, by headers alone. Whatever is odd is left to next_batch(), which tells.

        following, behind: where the next index entries lead, or the end; at the first of them the wanted batch lies at the
            latest, and hardly reaches farther than to the second
        """
        cdef uint8_t window[WINDOW_BYTES]
        cdef int64_t known, at
        cdef Header header
        cdef Fault fault
        cdef int count
        for count in range(WINDOWS_MAX):
            known = self.file.load(window, self.chunk_position, min(<int64_t>WINDOW_BYTES, self.limit - self.chunk_position))
            at = 0
            while known - at >= BATCH_HEADER_SIZE:
                # Only the header is looked at: read_header() is told that the rest of the batch is there too.
                if read_header(window + at, window + at, window + at + (self.limit - self.chunk_position), 0x7FFFFFFF,
                               False, &header, &fault) != STEP_BATCH:
                    return 0
                if self.expected_offset != NO_OFFSET and header.last_offset != self.expected_offset:
                    return 0
                if header.last_offset >= self.next_offset:
                    self.ahead = min(<int64_t>header.size_in_bytes, <int64_t>AHEAD_BYTES_MAX)
                    return 0
                if header.last_offset <= self.passed_offset:
                    return 0
                self.passed_offset = header.last_offset
                self.expected_offset = NO_OFFSET
                at += header.size_in_bytes
                self.chunk_position += header.size_in_bytes
                if self.chunk_position == following:
                    self.ahead = min(max(behind - following, <int64_t>AHEAD_BYTES_MIN), <int64_t>AHEAD_BYTES_MAX)
                    return 0
            if known < BATCH_HEADER_SIZE:
                return 0
        return 0

    cdef int renew(self) except -1:
        """A segment was deleted before it was opened: by compaction, which has left another, or by retention."""
        self.check_cut()
        self.view = self.log.view_from(self.next_offset)
        self.segments, _ = self.view.segments
        self.index = max(self.view.segments.floor_index(self.next_offset), 0)
        self.segment = self.segments[self.index]
        return 0

    cdef int find_aborted(self) except -1:
        """The aborted transactions that have batches in this segment."""
        self.aborted = {}
        end = self.segments[self.index + 1].base_offset if self.index + 1 < len(self.segments) else self.end_offset
        for transaction in self.view.aborted(max(self.next_offset, self.segment.base_offset), max(end, self.next_offset)):
            self.aborted.setdefault(transaction.producer_id, []).append(
                (transaction.first_offset, transaction.last_offset))
        return 0

    cdef int distrust_index(self) except -1:
        """The index led to something else than it says: search the segment from its beginning."""
        self.segment.distrust_index()
        self.chunk = None
        self.chunk_position = self.at = 0
        self.passed_offset = self.base_offset - 1
        self.expected_offset = NO_OFFSET
        self.leapt_over = NO_ENTRY
        return 0

    cdef bint fill(self, int64_t wanted) except -1:
        """Read on from the next batch, `wanted` bytes at least; False if the segment has ended: the next one follows."""
        cdef int64_t position = self.chunk_position + self.at
        cdef int64_t left = self.limit - position, size
        if self.log.generation != self.generation:
            self.check_cut()
        if left <= 0:
            self.chunk = None
            self.segment = None
            self.index += 1
            return False
        if wanted > left:
            self.cut_short(position, wanted, left)
        size = min(max(self.ahead, wanted), left)
        self.ahead = min(2 * self.ahead, <int64_t>AHEAD_BYTES_MAX)
        self.chunk = Source(self.file.read_bytes(position, size))
        self.chunk_position = position
        self.at = 0
        if self.chunk.size < size:
            # The log was cut, perhaps behind the end of what is to be read.
            self.check_cut()
            self.limit = position + self.chunk.size
        if self.chunk.size < max(wanted, <int64_t>LOG_OVERHEAD):
            self.cut_short(position, max(wanted, <int64_t>LOG_OVERHEAD), self.chunk.size)
        return True

    cdef int cut_short(self, int64_t position, int64_t wanted, int64_t got) except -1:
        """There are fewer bytes than there must be."""
        self.check_cut()
        raise CorruptBatch("size", reason=CorruptionReason.TRUNCATED, got=f"{got} bytes", wanted=wanted,
                           path=self.file.file.path, position=position, offset=self.next_offset)

    cdef int check_cut(self) except -1:
        """Raise LogTruncatedError if the log was cut before the end that the view promises."""
        self.log.check_cut(self.generation, self.end_offset)
        self.generation = self.log.generation
        return 0

    def __repr__(self):
        return f"RecordReader(next_offset={self.next_offset}, end_offset={self.end_offset})"


close_type(RecordReader, "log.read(offset)")


def read_records(log, view, offset, end_offset, *, is_committed=False, bytes_max=None):
    """The records of `view` with offsets of [offset, end_offset), as an iterator. `log` is asked about truncations.

    is_committed: leave out records of aborted transactions
    bytes_max: end after so many bytes of batches; the first one comes in any case
    """
    cdef RecordReader reader = RecordReader.__new__(RecordReader)
    reader.next_offset = check_range("offset", offset, 0, 0x7FFFFFFFFFFFFFFF)
    reader.end_offset = check_range("end_offset", end_offset, 0, 0x7FFFFFFFFFFFFFFF)
    reader.bytes_left = 0x7FFFFFFFFFFFFFFF if bytes_max is None else max(
        check_range("max_bytes", bytes_max, 0, 0x7FFFFFFFFFFFFFFF), 1)
    reader.log = log
    reader.view = view
    reader.segments, _ = view.segments
    reader.index = max(view.segments.floor_index(offset), 0) if offset < end_offset else len(reader.segments)
    reader.generation = view.generation
    reader.is_committed = is_committed
    reader.ahead = AHEAD_BYTES_MIN
    reader.expected_offset = NO_OFFSET
    reader.leapt_over = NO_ENTRY
    reader.leader_epoch = -1
    return reader
