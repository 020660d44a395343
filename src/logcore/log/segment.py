"""A segment: a stretch of the log in four files that have its first offset for a name.

    .log         the batches
    .index       offset -> position in the .log      sparse, made from the .log, can be made again
    .timeindex   timestamp -> offset                 likewise
    .txnindex    aborted transactions                likewise; only if there are any

Only the last segment of a log is written to: the active one. Its indexes are longer than their entries, so that they
can be written in place. seal() ends that: it gives the time index the largest timestamp and cuts all files to what is
in them; from then on a segment changes only by being cut, replaced or deleted.

A sealed segment opens a file when it is first asked for what is in it. So a log of a thousand segments opens one.

Any thread may search and read, up to an end that it is told, while one thread writes. Whoever reads takes `log` and the
indexes as they are: they are replaced, never changed under a reader, but for entries that are added.

An index is not believed: an entry that does not point to the batch it names is damage of the index, and the segment is
then searched from its beginning, which is slower and right.
"""

import errno
from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from logcore._batch import BatchSummary, summarize
from logcore._index import OffsetIndex, TimeIndex
from logcore._segment import BatchFile, BatchPosition, Indexer, RecordPosition
from logcore.errors import CorruptBatch, CorruptIndex, CorruptionReason, StorageError, UsageError

from .config import LogConfig
from .disk import Disk, DiskFile
from .names import INDEX, LOG, OFFSET_MAX, TIME_INDEX, TXN_INDEX, file_name
from .txnindex import TransactionIndex

OPEN_SEGMENTS_MAX = 64  # sealed ones of a log that have files open, three at most each
OFFSET_SPAN_MAX = 0x7FFFFFFF  # of a segment: an index entry has 32 bits for an offset
POSITION_MAX = 0x7FFFFFFF  # and as many for where a batch begins
TIME_ENTRY_BYTES = 12
TIMESTAMP_MAX = 0x7FFFFFFFFFFFFFFF


class OpenSegments:
    """The sealed segments of a log that have files open: at most so many, since a process has only so many descriptors.

    The one that was opened or sealed first is let go of. Whoever reads it goes on with the files it has.
    """

    def __init__(self, count_max: int | None = None) -> None:
        self._count_max = OPEN_SEGMENTS_MAX if count_max is None else count_max
        self._opened: deque[Segment] = deque()

    def note(self, segment: "Segment") -> None:
        """A segment has opened its .log, or was sealed: from then on it can do without."""
        if segment.is_noted:
            return
        segment.is_noted = True
        self._opened.append(segment)
        while len(self._opened) > self._count_max:
            first = self._opened.popleft()
            first.is_noted = False
            first.release_if_sealed()


class SegmentOffsetOverflow(UsageError):
    """An offset does not fit a segment: it is before its first, or too far behind. `segment` says which segment."""

    def __init__(self, segment: "Segment", offset: int) -> None:
        super().__init__(
            "offset of a batch",
            where=segment.path,
            got=offset,
            wanted=f"{segment.base_offset} to {segment.base_offset + OFFSET_SPAN_MAX}",
        )
        self.segment = segment


class Segment:
    """One segment, active or sealed.

    kinds: which of its files there are, where that is known from a listing (None: all of them may be)
    created_ms: when it was made, or opened: what a segment without timestamps is rolled by
    roll_jitter_ms: how much earlier than segment.ms it is rolled
    opened: is told when it opens its .log, and lets go of segments that have been open for long
    """

    __slots__ = (
        "_are_indexes_dirty",
        "_indexer",
        "_is_sealed",
        "_kinds",
        "_log",
        "_offset_index",
        "_time_index",
        "base_offset",
        "config",
        "created_ms",
        "directory",
        "disk",
        "first_timestamp",
        "inode",
        "is_closed",
        "is_deleted",
        "is_index_damaged",
        "is_log_dirty",
        "is_noted",
        "is_writable",
        "max_position",
        "opened",
        "roll_jitter_ms",
        "suffix",
        "transactions",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        created_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
        kinds: Iterable[str] | None = None,
        is_writable: bool = True,
        opened: OpenSegments | None = None,
    ) -> None:
        self.opened = opened
        self.is_noted = False  # by `opened`, which sets it
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.config = config
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.suffix = suffix
        self.is_writable = is_writable
        self._kinds = None if kinds is None else set(kinds)
        self._log: BatchFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._indexer: Indexer | None = None  # while it is written to
        self.max_position: tuple[int, int] | None = None  # largest timestamp, offset; None: ask the time index
        self.first_timestamp: int | None = None  # of the first batch; None: not looked up yet
        self.inode: int | None = None  # of the open .log, beside a writer who may replace it
        self.is_closed = self.is_deleted = False  # Its files are not opened again: by then others may have the names.
        self.is_index_damaged = False  # an index was found to be unusable
        self.is_log_dirty = False  # has bytes that were not synced
        self._are_indexes_dirty = False
        self._is_sealed = False  # by this object; one that was sealed before it was opened is not written to either
        self.transactions = TransactionIndex(
            disk,
            directory,
            base_offset,
            suffix=suffix,
            exists=self._kinds is None or TXN_INDEX in self._kinds,
            is_writable=is_writable,
        )

    # --- files ------------------------------------------------------------------------------------------------------

    def path_of(self, kind: str) -> str:
        """Where one of its files is, or will be."""
        return f"{self.directory}/{file_name(self.base_offset, kind, self.suffix)}"

    @property
    def path(self) -> str:
        """Where its .log is."""
        return self.path_of(LOG)

    @property
    def log(self) -> BatchFile:
        """The batches; opens the file."""
        log = self._log  # A thread that opens others may let go of it at any time.
        if log is None:
            self._check_open()
            file = self.disk.open(self.path, is_writable=self.is_writable)
            if file.size > POSITION_MAX:
                file.close()
                raise StorageError("open a segment", errno=errno.EFBIG, path=self.path)
            log = self._log = BatchFile(file)
            self._note_opened()
        return log

    def _note_opened(self) -> None:
        if self.opened is not None:
            self.opened.note(self)

    def _check_open(self) -> None:
        if self.is_deleted:
            raise StorageError("open", errno=errno.ENOENT, path=self.path)
        if self.is_closed:
            raise UsageError("segment", where=self.path, got="a call", wanted="none after close()")

    @property
    def file(self) -> DiskFile:
        """The .log itself."""
        file: DiskFile = self.log.file
        return file

    def create(self) -> None:
        """Make the .log, empty: what a roll does. With preallocate it has its full length at once."""
        file = self.disk.open(self.path, is_writable=True, create=True)
        if file.size:
            file.truncate(0)
        if self.config.preallocate and not self.suffix:
            file.preallocate(self.config.segment_size)
            file.set_size(0)
        self._log = BatchFile(file)
        self._kinds = {LOG}
        self.is_log_dirty = True

    @property
    def size(self) -> int:
        """Bytes of batches; does not open the file for it."""
        log = self._log
        if log is not None:
            size: int = log.file.size
            return size
        status = self.disk.status(self.path)
        return 0 if status is None else status.size

    @property
    def modified_ms(self) -> int:
        """When the .log was last written to."""
        status = self.disk.status(self.path)
        return 0 if status is None else status.modified_ms

    def _has(self, kind: str) -> bool:
        return self._kinds is None or kind in self._kinds

    @property
    def has_offset_index(self) -> bool:
        """Whether there is an .index file, as far as the listing knows."""
        return self._has(INDEX)

    @property
    def has_time_index(self) -> bool:
        """Likewise, a .timeindex file."""
        return self._has(TIME_INDEX)

    @property
    def offset_index(self) -> OffsetIndex:
        """To look positions up. Empty if there is no usable file: then the log is searched from its beginning."""
        index = self._offset_index
        if index is None:
            self._check_open()
            if self._has(INDEX):
                index = OffsetIndex(self.disk.map(self.path_of(INDEX), 0), self.base_offset)
                try:
                    index.check()
                except CorruptIndex:
                    self.is_index_damaged = True
                    index.close()
                    index = None
            if index is None:
                index = OffsetIndex(b"", self.base_offset)
            if self._offset_index is None:  # Otherwise the writer has opened it meanwhile, to write.
                self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        """To look times up; empty if there is no usable file."""
        index = self._time_index
        if index is None:
            self._check_open()
            if self._has(TIME_INDEX):
                index = TimeIndex(self.disk.map(self.path_of(TIME_INDEX), 0), self.base_offset)
                try:
                    index.check()
                except CorruptIndex:
                    self.is_index_damaged = True
                    index.close()
                    index = None
            if index is None:
                index = TimeIndex(b"", self.base_offset)
            if self._time_index is None:  # Otherwise the writer has opened it meanwhile, to write.
                self._time_index = index
        return index

    @property
    def index_size_in_bytes(self) -> tuple[int, int]:
        """Of the entries of both indexes: what a compaction adds up."""
        sizes = self.offset_index.size_in_bytes, self.time_index.size_in_bytes
        if self._log is None:
            self._offset_index = self._time_index = None  # It asks every segment, and is to keep no file open for it.
        return sizes

    # --- what is in it ----------------------------------------------------------------------------------------------

    def fits(self, offset: int) -> bool:
        """Whether a batch that ends with `offset` can lie here."""
        return self.base_offset <= offset <= self.base_offset + OFFSET_SPAN_MAX

    def start_for(self, offset: int, end: int | None = None) -> int:
        """The position from which on to look for `offset`. An index that misleads is not asked again."""
        try:
            return self.log.start_for(self.offset_index, offset, end)
        except CorruptIndex:
            self.distrust_index()
            return 0

    def distrust_index(self) -> None:
        """An entry was not what it says: search this segment from its beginning from now on."""
        index, empty = self._offset_index, OffsetIndex(b"", self.base_offset)
        if index is None or not index.is_writable:  # The writer has looked at what it writes to.
            self.is_index_damaged = True
            self._offset_index = empty

    def has_bad_index(self, end_offset: int) -> bool:
        """Whether its indexes cannot be those of a segment that ends at `end_offset`, as far as their ends show."""
        offsets, times = self.offset_index, self.time_index
        return (
            self.is_index_damaged
            or (len(offsets) > 0 and offsets.last_offset >= end_offset)
            or (len(times) > 0 and not (times.last_entry.timestamp >= 0 and times.last_entry.offset < end_offset))
        )

    def find(self, offset: int, end: int | None = None) -> BatchPosition | None:
        """The batch that has `offset`, or the first behind it, or None."""
        return self.log.find(offset, self.start_for(offset, end), end)

    def next_offset(self, end: int | None = None) -> int:
        """The offset after its last record: found from the last index entry on."""
        if not self.size:
            return self.base_offset
        last = self.log.last(self.start_for(min(self.base_offset + OFFSET_SPAN_MAX, OFFSET_MAX), end), end)
        if last is None:
            return self.base_offset
        if last.last_offset >= OFFSET_MAX:
            raise CorruptBatch(
                "last offset", reason=CorruptionReason.OFFSET_ORDER, got=last.last_offset,
                wanted=f"less than {OFFSET_MAX}", path=self.path, position=last.position,
            )  # fmt: skip
        offset: int = last.last_offset + 1
        return offset

    def end_before(self, offset: int) -> int:
        """The offset behind the last batch that ends before `offset`; its base offset if there is none.

        What remains when the log is cut at `offset`: a batch that has it in its middle goes whole.
        """
        found, position = self.base_offset, self.start_for(offset - 1)
        while (batch := self.log.find(-1, position)) is not None and batch.last_offset < offset:
            found, position = batch.last_offset + 1, batch.position + batch.size_in_bytes
        return found

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the first batch that has it; (-1, base offset) if none has."""
        if self._indexer is not None:
            return self._indexer.max_timestamp, self._indexer.max_timestamp_offset
        found = self.max_position
        if found is None:
            timestamp, offset = self.time_index.last_entry
            found = self.max_position = (timestamp, offset)
            if self._log is None:
                self._time_index = None  # Every segment of a log may be asked, and is to keep no file open for it.
        return found

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp; when the file was last written to, if no record has one."""
        timestamp, _ = self.max_timestamp
        return timestamp if timestamp >= 0 else self.modified_ms

    def _load_first_timestamp(self) -> None:
        if self.first_timestamp is None and self.size:
            first = self.log.find(-1)
            if first is not None:
                self.first_timestamp, _ = self.log.max_timestamp(0, first.size_in_bytes)

    @property
    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch; 2^63 - 1 if there is none."""
        self._load_first_timestamp()
        timestamp = self.first_timestamp
        return TIMESTAMP_MAX if timestamp is None or timestamp < 0 else timestamp

    def find_timestamp(self, timestamp: int, first_offset: int, end: int | None = None) -> RecordPosition | None:
        """The first record at or behind `first_offset` that is not older than `timestamp`, or None."""
        entry = self.time_index.lookup(timestamp)
        start = self.start_for(max(entry.offset, first_offset), end)
        return self.log.find_timestamp(timestamp, first_offset, start, end)

    # --- appending --------------------------------------------------------------------------------------------------

    def waited_ms(self, now_ms: int, timestamp: int) -> int:
        """How long the first batch waits for the roll: by the timestamps, or by the clock if it has none."""
        self._load_first_timestamp()
        if self.first_timestamp is not None and self.first_timestamp >= 0:
            return timestamp - self.first_timestamp
        return now_ms - self.created_ms

    def should_roll(self, size_in_bytes: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether batches of this size, time and last offset belong into a new segment."""
        size = self.size
        if size > self.config.segment_size - size_in_bytes or not self.fits(last_offset):
            return True
        if size:
            self._begin_to_write()  # A segment that was opened anew does not know otherwise how full its indexes are.
        if self._indexer is not None and (self.offset_index.is_full or self.time_index.is_full):
            return True
        return size > 0 and self.waited_ms(now_ms, max_timestamp) > self.config.max_segment_ms - self.roll_jitter_ms

    def _begin_to_write(self) -> Indexer:
        """Open the indexes to be written to, at their full length, unless they are."""
        if self._indexer is None:
            timestamp, offset = self.max_timestamp
            self._open_to_write()
            return self._go_on_from(timestamp, offset)
        return self._indexer

    def _open_to_write(self) -> None:
        self._is_sealed, self._are_indexes_dirty = False, True
        if not self.offset_index.is_writable or not self.time_index.is_writable:
            room = self.config.segment_index_bytes
            offsets = self.disk.map(self.path_of(INDEX), room, is_writable=True)
            times = self.disk.map(self.path_of(TIME_INDEX), room, is_writable=True)
            # One that was left by a call which failed or was interrupted here has its length, and no entries.
            count = 0 if offsets.is_new or not self._has(INDEX) else None
            self._offset_index = OffsetIndex(offsets, self.base_offset, entry_count=count, is_writable=True)
            count = 0 if times.is_new or not self._has(TIME_INDEX) else None
            self._time_index = TimeIndex(times, self.base_offset, entry_count=count, is_writable=True)
            if self._kinds is not None:
                self._kinds |= {INDEX, TIME_INDEX}
        self.offset_index.resize(self.config.segment_index_bytes)
        self.time_index.resize(self.config.segment_index_bytes)

    def _go_on_from(self, timestamp: int, offset: int) -> Indexer:
        """Write on from what the indexes hold; `timestamp` is the largest of the log so far, at `offset`."""
        # A time index ends with the largest timestamp when its segment is closed or sealed. If that is not an entry
        # which writing on would have made anyway, it goes: the indexes are to follow from the log alone. So too if it
        # has taken the place that is kept for the last one: there would be none for the next largest timestamp.
        last = self.time_index.last_entry
        has_room = (len(self.time_index) + 1) * TIME_ENTRY_BYTES <= self.config.segment_index_bytes
        if len(self.time_index) and (
            not has_room or not len(self.offset_index) or last.offset > self.offset_index.last_offset
        ):
            self.time_index.truncate_to(last.offset)
        self._indexer = Indexer(
            self.offset_index,
            self.time_index,
            self.config.index_interval_bytes,
            log_size=self.size,
            max_timestamp=timestamp,
            max_timestamp_offset=offset,
        )
        return self._indexer

    def append(
        self, parts: Iterable[Buffer], headers: npt.NDArray[np.void], summary: BatchSummary | None = None
    ) -> int:
        """Write batches at the end; `headers` is what scan_batches() says of them, their positions aside.

        summary: what summarize() makes of the headers, if the caller has it
        Returns where they begin. All or nothing: if the log or an index cannot be written, both are as before.
        """
        if not len(headers):
            return self.size
        if summary is None:
            summary = summarize(headers)
        for offset in (summary.first_last_offset, summary.last_offset):
            if not self.fits(offset):
                raise SegmentOffsetOverflow(self, offset)
        indexer = self._begin_to_write()
        position = self.file.append(parts)
        try:
            indexer.add(headers, position)
        except BaseException:
            self.file.truncate(position)
            raise
        if position == 0:
            self.first_timestamp = summary.first_max_timestamp
        self.is_log_dirty = self._are_indexes_dirty = True
        return position

    def seal(self) -> None:
        """End of writing, as finish(); and an empty segment gets indexes too, empty ones."""
        if not self.size:
            self._begin_to_write()
        self.finish()
        self._is_sealed = True
        if self.opened is not None:
            self.opened.note(self)

    def finish(self) -> None:
        """The time index gets the largest timestamp, and the files are cut to what is in them. append() may go on."""
        if self._indexer is not None:
            self._indexer.finish()
            self.max_position = (self._indexer.max_timestamp, self._indexer.max_timestamp_offset)
            self.offset_index.trim()
            self.time_index.trim()
            self._indexer = None
            self._are_indexes_dirty = True
        if self.config.preallocate and self._log is not None and self.is_writable:
            self.file.truncate(self.file.size)
            self.is_log_dirty = True  # zeros behind the end of a sealed segment would be taken for damage

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cut at the batch that has `offset`, or the first behind it; returns how many bytes that were.

        [10..10][11..30][31..40] cut at 15 is [10..10]; cut at 31 it is [10..10][11..30].
        """
        found = self.find(offset)
        self._open_to_write()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transactions.truncate_to(offset)
        size = self.size
        if found is not None:
            self.file.truncate(found.position)
            self.is_log_dirty = True
        if not self.size:
            self.created_ms = now_ms
            self.first_timestamp = None
        last = self.time_index.last_entry
        timestamp, at = self.log.max_timestamp(self.start_for(last.offset))
        if timestamp <= last.timestamp:
            timestamp, at = last
        self._go_on_from(timestamp, at if timestamp >= 0 else self.base_offset)
        return size - self.size

    def rebuild(self) -> Indexer:
        """Empty the indexes, and return what is to be told of every batch of the log; seal() ends it."""
        self._offset_index = self._time_index = self._indexer = None
        self.is_index_damaged = False
        for kind in (INDEX, TIME_INDEX):
            self.disk.unlink(self.path_of(kind))
        self.transactions.clear()
        self._kinds = {LOG, TXN_INDEX}
        self.is_index_damaged = False
        self.max_position = None
        self.first_timestamp = None
        self._open_to_write()
        self._indexer = Indexer(self.offset_index, self.time_index, self.config.index_interval_bytes)
        return self._indexer

    # --- on the disk ------------------------------------------------------------------------------------------------

    def sync_log(self) -> None:
        """Make its batches survive the machine. The directory is the caller's."""
        if self.is_log_dirty:
            self.file.sync()
            self.is_log_dirty = False

    def sync(self) -> None:
        """Make all of it survive the machine, indexes too: needed before the recovery point passes it.

        A segment that has let go of its files has none open afterwards either.
        """
        was_open = self._log is not None
        self.sync_log()
        if self._are_indexes_dirty:
            self._sync_index(INDEX, self._offset_index)
            self._sync_index(TIME_INDEX, self._time_index)
            self._are_indexes_dirty = False
        self.transactions.sync()
        if not was_open:
            self.release()

    def _sync_index(self, kind: str, index: OffsetIndex | TimeIndex | None) -> None:
        if index is not None and index.is_writable:
            index.flush()
            return
        # A write that failed meanwhile is told to whoever syncs the file next, also by another descriptor.
        file = self.disk.open(self.path_of(kind), is_writable=True)
        try:
            file.sync()
        finally:
            file.close()

    def rename(self, suffix: str) -> None:
        """Give its files another suffix: .deleted, .cleaned, .swap or none. The .log goes first."""
        before = [self.path_of(kind) for kind in (LOG, INDEX, TIME_INDEX)]
        self.suffix = suffix
        for source, kind in zip(before, (LOG, INDEX, TIME_INDEX), strict=True):
            if self._has(kind) and (self._kinds is not None or self.disk.status(source) is not None):
                self.disk.rename(source, self.path_of(kind))
        self.transactions.rename(self.directory, suffix)
        self._tell_path()

    def moved(self, directory: str) -> None:
        """The whole directory has another name now."""
        self.directory = directory
        self.transactions.moved(directory)
        self._tell_path()

    def _tell_path(self) -> None:
        if self._log is not None:
            self._log.file.path = self.path

    def set_modified(self, modified_ms: int) -> None:
        """Set the time of its last change: a compacted segment keeps that of what it was made of."""
        for kind in (LOG, INDEX, TIME_INDEX):
            if self.disk.status(self.path_of(kind)) is not None:
                self.disk.set_modified(self.path_of(kind), modified_ms)

    def delete(self) -> None:
        """Remove its files. What is missing is no error. Whoever still reads them can go on."""
        self.release()
        self.is_deleted = True
        self.transactions.delete()
        for kind in (LOG, INDEX, TIME_INDEX):
            self.disk.unlink(self.path_of(kind))

    def release(self) -> None:
        """Let go of the files; they are closed when the last reader has let go too, and opened again when needed."""
        self._log = self._offset_index = self._time_index = self._indexer = None
        self.transactions.close()

    def release_if_sealed(self) -> None:
        """release(), unless it is written to, or has batches that were not synced. Its indexes sync() opens again."""
        if self._indexer is None and not self.is_log_dirty and (self._is_sealed or not self._are_indexes_dirty):
            self.release()

    def close(self) -> None:
        """Close the files. One that was written to is finished first, so that nothing lies behind its end."""
        self.finish()
        if self._log is not None:
            self._log.file.close()
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()
        self.release()
        self.is_closed = True

    def check_invariants(self) -> None:
        """Walk both indexes, and compare the last entry with the log."""
        self.offset_index.check_invariants()
        self.time_index.check_invariants()
        if len(self.offset_index):
            self.log.start_for(self.offset_index, self.offset_index.last_offset, self.size)

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, {self.size} bytes)"
