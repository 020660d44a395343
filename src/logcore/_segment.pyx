"""A segment's .log: batches end to end in a file, found by offset or time; and when a batch gets an entry in the indexes.

Whoever reads hands in the end of what is known to be written. Bytes behind it may be half of an append, or zeros that
were preallocated, and are not looked at. Nothing is trusted before it: a length is compared with what is left, an
offset must not go back.

A search reads headers only, in windows: a batch that lies whole in the window costs no further read. It begins where
the index says, so it sees about index.interval.bytes of the log.

Kafka: FileRecords, LogSegment.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from logcore._arguments cimport check_range
from logcore._batch cimport (
    BATCH_HEADER_SIZE, DELETE_HORIZON, LOG_OVERHEAD, STEP_BATCH, STEP_FAULT, Header, Step, read_header,
)
from logcore._buffer cimport Source
from logcore._fault cimport Fault, corrupt_batch
from logcore._file cimport File
from logcore._index cimport OffsetIndex, TimeIndex

from collections import namedtuple

import cython
import numpy as np

from logcore._batch import HEADER_DTYPE, first_batch_size, scan_batches
from logcore._record import decode_batches
from logcore.errors import CorruptBatch, CorruptIndex, CorruptionReason, UsageError

cdef enum:
    WINDOW_BYTES = 4096              # of a search: a read of this size costs hardly more than one of a header
    NARROW_BYTES = 256               # of a walk over headers, where batches are longer than what was read
    WIDE_BYTES = 1 << 14             # and where many lie in it
    POSITION_MAX = 0x7FFFFFFF        # of a batch in a segment: an index entry has 32 bits for it

BatchPosition = namedtuple("BatchPosition", ("base_offset", "last_offset", "position", "size_in_bytes"))
BatchPosition.__doc__ = "Where a batch lies in a segment."

RecordPosition = namedtuple("RecordPosition", ("offset", "timestamp", "leader_epoch"))
RecordPosition.__doc__ = "A record that was found by its timestamp; leader_epoch is -1 where the batch has none."


@cython.final
cdef class BatchFile:
    """The batches of a file, by position. Any thread may search and read what lies before the end it is told.

    file: a logcore._file.File, or another with its methods

    >>> import tempfile
    >>> from logcore import encode_batch
    >>> from logcore._file import File
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     log = BatchFile(File(f"{directory}/0.log", is_writable=True, create=True))
    ...     _ = log.file.append([encode_batch([(b"k", b"v")] * 3, base_offset=offset) for offset in (0, 3)])
    ...     log.find(4)
    ...     log.file.close()
    BatchPosition(base_offset=3, last_offset=5, position=88, size_in_bytes=88)
    """

    def __cinit__(self, file):
        self.file = file
        if isinstance(file, File):
            self.native = file

    cdef int64_t load(self, uint8_t* into, int64_t position, int64_t size) except -1:
        """Read up to `size` bytes; says how many there were."""
        cdef Source read
        if self.native is not None:
            return self.native.read_into(into, position, size)
        read = Source(self.file.read(position, size))
        memcpy(into, read.data, <size_t>min(read.size, size))
        return min(read.size, size)

    cdef bytes read_bytes(self, int64_t position, int64_t size):
        if self.native is not None:
            return self.native.read_bytes(position, size)
        return self.file.read(position, size)

    cdef int64_t file_size(self) except -1:
        return self.file.size if self.native is None else self.native.size

    cdef int find_header(self, int64_t offset, int64_t position, int64_t end, Header* header) except -1:
        """The first batch from `position` on that has `offset` or a later one: 1, or 0 if there is none before `end`.

        header.position is its place in the file.
        """
        cdef uint8_t window[WINDOW_BYTES]
        cdef int64_t begin = position, known = 0, at, size
        cdef Fault fault
        cdef Step step
        while True:
            at = position - begin
            if at + BATCH_HEADER_SIZE > known and begin + known < end:
                begin, at = position, 0
                known = self.load(window, begin, min(<int64_t>WINDOW_BYTES, end - begin))
            # The header is all there is in the window, and all that is looked at: read_header() is told that the rest
            # of the batch is there too, as far as the file goes.
            if known - at < LOG_OVERHEAD:
                return 0
            if known - at < BATCH_HEADER_SIZE and end - position >= BATCH_HEADER_SIZE:
                return 0    # the file was cut under way
            step = read_header(window + at, window + at, window + at + (end - position), 0x7FFFFFFF, False, header,
                               &fault)
            if step == STEP_FAULT:
                raise corrupt_batch(&fault, 0).at_path(self.file.path, position)
            if step != STEP_BATCH:
                return 0
            header.position = position
            if header.last_offset >= offset:
                return 1
            position += header.size_in_bytes
            if position >= end:
                return 0

    def find(self, offset, position=0, end=None):
        """The first batch from `position` on that has `offset` or a later one, as a BatchPosition, or None."""
        cdef Header header
        offset = check_range("offset", offset, -1, 0x7FFFFFFFFFFFFFFF)
        position, end = self.span(position, end)
        if not self.find_header(offset, position, end, &header):
            return None
        return BatchPosition(header.base_offset, header.last_offset, header.position, header.size_in_bytes)

    def start_for(self, OffsetIndex index not None, offset, end=None):
        """Where to begin to look for `offset`: the position of an index entry, or 0.

        CorruptIndex if the entry is not what lies there: the position of a batch that ends with the entry's offset.
        """
        cdef Header header
        cdef Py_ssize_t entry
        cdef int64_t position
        offset = check_range("offset", offset, -1, 0x7FFFFFFFFFFFFFFF)
        _, end = self.span(0, end)
        index.check_open()
        entry = index.find(offset, False)
        if entry < 0:
            return 0
        position = index.position_at(entry)
        got = "no batch"
        if 0 <= position < end:
            try:
                if self.find_header(-0x7FFFFFFFFFFFFFFF - 1, position, end, &header):
                    if header.last_offset == index.offset_at(entry):
                        return position
                    got = f"a batch that ends with {header.last_offset}"
            except CorruptBatch as error:
                got = str(error)
        raise CorruptIndex("entry", reason=CorruptionReason.ENTRY_ORDER, got=got, position=entry * index.entry_bytes,
                           wanted=f"a batch that ends with {index.offset_at(entry)} at position {position} of the log")

    def last(self, position=0, end=None):
        """The last whole batch, looked for from `position` on, as a BatchPosition, or None."""
        cdef Header header
        cdef int64_t at, stop
        position, end = self.span(position, end)
        at, stop = position, end
        found = None
        while self.find_header(-0x7FFFFFFFFFFFFFFF - 1, at, stop, &header):
            found = BatchPosition(header.base_offset, header.last_offset, header.position, header.size_in_bytes)
            at = header.position + header.size_in_bytes
        return found

    def max_timestamp(self, position=0, end=None):
        """The largest timestamp of the batches from `position` on, and the last offset of the first that has it.

        (-1, -1) if there is none.
        """
        cdef Header header
        cdef int64_t at, stop, timestamp = -1, offset = -1
        position, end = self.span(position, end)
        at, stop = position, end
        while at < stop and self.find_header(-0x7FFFFFFFFFFFFFFF - 1, at, stop, &header):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
            at = header.position + header.size_in_bytes
        return timestamp, offset

    def has_horizon(self, now_ms, position=0, end=None) -> bool:
        """Whether a batch from `position` on has tombstones or a marker, and a delete horizon not after `now_ms`.

        A batch keeps its horizon when its tombstones have gone and other records stay, so those few are looked into.
        """
        cdef Header header
        cdef int64_t at, stop, now = check_range("now_ms", now_ms, 0, 0x7FFFFFFFFFFFFFFF)
        position, end = self.span(position, end)
        at, stop = position, end
        while at < stop and self.find_header(-0x7FFFFFFFFFFFFFFF - 1, at, stop, &header):
            if header.magic == 2 and header.attributes & DELETE_HORIZON and header.base_timestamp <= now:
                for batch in self.batches(header.position, header.position + header.size_in_bytes):
                    if batch.is_control or any(record.value is None for record in batch):
                        return True
            at = header.position + header.size_in_bytes
        return False

    def find_timestamp(self, timestamp, first_offset, position=0, end=None):
        """The first record from `position` on that is at or behind `first_offset` and not older than `timestamp`.

        A RecordPosition, or None. Headers say which batches cannot have one; the others are read.
        """
        cdef Header header
        cdef int64_t at, stop, wanted = check_range("timestamp", timestamp, -0x8000000000000000, 0x7FFFFFFFFFFFFFFF)
        position, end = self.span(position, end)
        at, stop = position, end
        while at < stop and self.find_header(first_offset, at, stop, &header):
            if header.max_timestamp >= wanted:
                for batch in self.batches(header.position, header.position + header.size_in_bytes):
                    for record in batch:
                        if record.timestamp >= timestamp and record.offset >= first_offset:
                            return RecordPosition(record.offset, record.timestamp, batch.leader_epoch)
            at = header.position + header.size_in_bytes
        return None

    def headers(self, position, end, count_max):
        """The headers of at most `count_max` batches from `position` on, as of a BatchScan; no batch is checked.

        Their positions are those in the file. Fewer where a batch is not whole before `end`; CorruptBatch where a
        header cannot be one.
        """
        cdef Header header
        cdef Header* into
        cdef Py_buffer view
        cdef Fault fault
        cdef Step step = STEP_BATCH
        cdef const uint8_t* start
        cdef Py_ssize_t count = 0, room = check_range("count_max", count_max, 1, 0x7FFFFFFF)
        cdef int64_t at, stop, begin = 0, known = 0, wanted = WINDOW_BYTES
        cdef bytes window = b""
        position, end = self.span(position, end)
        at, stop = position, end
        made = np.empty(room, HEADER_DTYPE)
        PyObject_GetBuffer(made, &view, PyBUF_SIMPLE)
        try:
            into = <Header*>view.buf
            while count < room and at < stop:
                if at < begin or at + BATCH_HEADER_SIZE > begin + known:
                    if known:
                        wanted = NARROW_BYTES if at > begin + known else min(4 * wanted, <int64_t>WIDE_BYTES)
                    begin = at
                    window = self.read_bytes(begin, min(wanted, stop - begin))
                    known = len(window)
                    if known < BATCH_HEADER_SIZE and stop - at > known:
                        break       # the file was cut under way
                start = <const uint8_t*>window + (at - begin)
                step = read_header(start, start, start + (stop - at), 0x7FFFFFFF, False, &header, &fault)
                if step != STEP_BATCH:
                    break
                header.position = at
                into[count] = header
                count += 1
                at += header.size_in_bytes
        finally:
            PyBuffer_Release(&view)
        if step == STEP_FAULT and not count:
            raise corrupt_batch(&fault, 0).at_path(self.file.path, at)
        return made[:count]

    def batches(self, position, end):
        """The batches between two positions, checked, as decode_batches() gives them; errors name the file."""
        data = self.file.read(position, end - position)
        try:
            yield from decode_batches(data, base_position=position)
        except CorruptBatch as error:
            raise error.at_path(self.file.path, 0) from None

    def chunk(self, position, end, bytes_max, *, verify_crc=True):
        """Read whole batches from `position` on, at most `bytes_max` or the first one if that is larger.

        Returns the bytes and their BatchScan. A scan without a batch means that none is whole before `end`, or that the
        first is damaged: then its `error` says so, with path and position in the file.
        """
        position, end = self.span(position, end)
        data = self.file.read(position, min(bytes_max, end - position))
        scan = scan_batches(data, verify_crc=verify_crc)
        if not len(scan) and scan.error is None and scan.is_partial:
            size = first_batch_size(data)
            if size is not None and len(data) < size <= end - position:
                data = self.file.read(position, size)
                scan = scan_batches(data, verify_crc=verify_crc)
        if scan.error is not None:
            scan.error = scan.error.at_path(self.file.path, position)
        return data, scan

    cdef object span(self, position, end):
        position = check_range("position", position, 0, 0x7FFFFFFFFFFFFFFF)
        end = self.file.size if end is None else check_range("end", end, 0, 0x7FFFFFFFFFFFFFFF)
        return min(position, end), end

    def __repr__(self):
        return f"BatchFile({self.file!r})"


@cython.final
cdef class Indexer:
    """Decides which batches of a segment get an entry in its indexes, and keeps what that needs.

    A batch gets one when more than `interval_bytes` of the log have been written since the batch that got the last one
    (that batch counts, the new one does not). The offset index is told its last offset and position, the time index
    the largest timestamp so far, if it is a new one. All of it follows from the log alone: so the indexes are the same
    bytes, however often a segment is opened, cut or rebuilt in between.

    log_size: bytes of the log that are in the indexes
    max_timestamp, max_timestamp_offset: the largest timestamp in them and the last offset of the first batch that has
        it; (-1, base offset) if there is none
    """

    def __cinit__(
        self, OffsetIndex offsets not None, TimeIndex times not None, interval_bytes, *, log_size=0, max_timestamp=-1,
        max_timestamp_offset=None,
    ):
        self.offsets = offsets
        self.times = times
        self.interval_bytes = check_range("interval_bytes", interval_bytes, 0, 0x7FFFFFFF)
        self.bytes_since_entry = check_range("log_size", log_size, 0, POSITION_MAX)
        if offsets.entry_count:
            self.bytes_since_entry -= offsets.entry(offsets.entry_count - 1).position
        self.max_timestamp = check_range("max_timestamp", max_timestamp, -1, 0x7FFFFFFFFFFFFFFF)
        self.max_timestamp_offset = offsets.base_offset if max_timestamp_offset is None else max_timestamp_offset

    def add(self, headers, position) -> None:
        """Note batches that lie in the log from `position` on: a scan's headers.

        If an entry cannot be written, or an offset goes back, nothing is noted.
        """
        cdef Py_buffer view
        cdef const Header* header
        cdef Py_ssize_t index, count
        cdef int64_t at = check_range("position", position, 0, POSITION_MAX)
        before = self.mark()
        PyObject_GetBuffer(headers, &view, PyBUF_SIMPLE)
        try:
            header = <const Header*>view.buf
            count = view.len // <Py_ssize_t>sizeof(Header)
            for index in range(count):
                if header[index].max_timestamp > self.max_timestamp:
                    self.max_timestamp = header[index].max_timestamp
                    self.max_timestamp_offset = header[index].last_offset
                if self.bytes_since_entry > self.interval_bytes and self.offsets.entry_count < self.offsets.entries_max:
                    if at > POSITION_MAX:
                        raise UsageError("position of a batch", got=at, wanted=f"at most {POSITION_MAX}")
                    self.offsets.put(header[index].last_offset, <int32_t>at)
                    self.note_time(False)
                    self.bytes_since_entry = 0
                at += header[index].size_in_bytes
                self.bytes_since_entry += header[index].size_in_bytes
        except BaseException:
            self.back_to(before)
            raise
        finally:
            PyBuffer_Release(&view)

    cdef int note_time(self, bint is_last) except -1:
        if self.max_timestamp >= 0 and self.times.entry_count < self.times.entries_max - (0 if is_last else 1):
            self.times.put(self.max_timestamp, self.max_timestamp_offset, is_last)
        return 0

    def finish(self) -> None:
        """Tell the time index the largest timestamp, for which it keeps a place: nothing more is added."""
        self.note_time(True)

    def mark(self) -> tuple:
        """What back_to() takes."""
        return (self.offsets.entry_count, self.times.entry_count, self.bytes_since_entry, self.max_timestamp,
                self.max_timestamp_offset)

    def back_to(self, mark) -> None:
        """Forget what was noted since mark()."""
        (self.offsets.entry_count, self.times.entry_count, self.bytes_since_entry, self.max_timestamp,
         self.max_timestamp_offset) = mark
