"""A log that somebody else writes, or nobody: read without a lock, and without writing a byte.

refresh() looks at the directory and makes a new view: which segments there are, and where the batches of the last one
end. From the end that was known it reads on, and believes a batch only when its checksum is right, so half of an
append is never seen. Nothing is mapped: the writer may cut a file at any time, and a mapping over it would end the
process. Index files are read, and checked like any index (segment.py).

What the writer does meanwhile:

    appends, rolls      the next refresh sees them
    retention           segments vanish: reading there is out of range
    compaction          a segment is replaced: what is open goes on, what is opened later is the new one. Offsets tell
                        what was read already, so nothing comes twice
    deletes the topic   the directory is gone; if another topic of that name is made, its id is another one
    truncation          the log is shorter, or goes on in a new leader epoch that begins before what was read: that is
                        LogTruncatedError for who has read it (KIP-320)
"""

import errno
from collections.abc import Callable

import numpy as np

from logcore._index import OffsetIndex, TimeIndex
from logcore._segment import RecordPosition
from logcore.errors import (
    CorruptBatch,
    CorruptCheckpoint,
    CorruptIndex,
    InconsistentTopicIdError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    StorageError,
)

from .checkpoints import EpochEntry, read_epochs, read_offsets
from .config import LogConfig
from .disk import Disk, FileStatus
from .index_file import IndexFile, open_index_file
from .names import (
    CLEANED,
    EPOCH_CHECKPOINT,
    INDEX,
    LOG,
    OFFSET_MAX,
    PARTITION_METADATA,
    START_CHECKPOINT,
    SWAP,
    TIME_INDEX,
    TopicPartition,
    parse_file_name,
)
from .partition_metadata import read_partition_metadata
from .producers import ProducerState
from .recovery import CHUNK_BYTES, HEADERS_MAX, read_producers
from .segment import OFFSET_SPAN_MAX, OpenSegments, Segment
from .segments import Segments
from .view import Isolation, LogView

LISTINGS_MAX = 100  # how often a directory is listed anew because a file of it vanished, before that is an error
LOOKUPS_MAX = 32  # in the files of a segment's indexes, before they are read into memory


class ReadOnlySegment(Segment):
    """A segment whose indexes are read into memory, as far as they are written; or looked into where they lie.

    The first look-ups read some twenty entries each: who plans a read asks once or twice, and an index may have a
    million. After LOOKUPS_MAX of them it is worth its memory.
    """

    __slots__ = ("_lookups", "check_topic", "valid_end")

    check_topic: Callable[[], None]  # raises if the topic was deleted, and what has its name is another one

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        created_ms: int,
        suffix: str = "",
        opened: OpenSegments | None = None,
    ) -> None:
        super().__init__(
            disk,
            directory,
            base_offset,
            config,
            created_ms=created_ms,
            suffix=suffix,
            is_writable=False,
            opened=opened,
        )
        self._lookups = 0
        self.valid_end: int | None = None  # of the last segment: where its batches end. None: it is sealed

    def _note_opened(self) -> None:
        try:
            self.check_topic()  # Now that the file is open: a new topic has its id before it has a segment.
            status = self.disk.status(self.path)
        except BaseException:
            self.release()
            raise
        self.inode = None if status is None else status.inode
        super()._note_opened()

    @property
    def offset_index(self) -> OffsetIndex:
        """To look positions up, as it was when it was first asked for."""
        index = self._offset_index
        if index is None:
            with self._index_file(INDEX) as file:
                index = self._offset_index = OffsetIndex(file.all(), self.base_offset)
        return index

    @property
    def time_index(self) -> TimeIndex:
        """To look times up, likewise."""
        index = self._time_index
        if index is None:
            with self._index_file(TIME_INDEX) as file:
                index = self._time_index = TimeIndex(file.all(), self.base_offset)
        return index

    def _index_file(self, kind: str) -> IndexFile:
        return open_index_file(self.disk, self.path_of(kind), kind)

    def _is_looked_up(self, index: OffsetIndex | TimeIndex | None) -> bool:
        """Whether to look into the file this time."""
        if index is not None or self._lookups >= LOOKUPS_MAX:
            return False
        self._lookups += 1
        return True

    def start_for(self, offset: int, end: int | None = None) -> int:
        """See Segment."""
        if not self._is_looked_up(self._offset_index):
            return super().start_for(offset, end)
        with self._index_file(INDEX) as file:
            entry = file.entry_before(file.count_up_to(offset - self.base_offset))
        return self._start_at(entry, offset, end)

    def _start_at(self, entry: bytes, offset: int, end: int | None) -> int:
        """The position that one entry of the index leads to, if it is right; otherwise the beginning."""
        try:
            return self.log.start_for(OffsetIndex(entry, self.base_offset), offset, end)
        except CorruptIndex:
            self.distrust_index()
            return 0

    def boundary_near(self, offset: int, low: int, high: int) -> int | None:
        """The offset between two batches, in [low, high], that is nearest to `offset`, as far as index entries tell.

        An entry has the last offset of its batch: behind it is a boundary. And so is the beginning of the segment.
        """
        with self._index_file(INDEX) as file:
            behind = file.count_up_to(offset - 1 - self.base_offset)
            found = [
                file.offset_at(number) + self.base_offset + 1 for number in (behind - 1, behind) if file.has(number)
            ]
        found = [one for one in (*found, self.base_offset) if low <= one <= high]
        return min(found, key=lambda one: abs(one - offset), default=None)

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """See Segment. While it is written to, the batches behind the last entries count too."""
        if self.max_position is not None:
            return self.max_position
        with self._index_file(TIME_INDEX) as file:
            timestamp, offset = TimeIndex(file.entry_before(file.count), self.base_offset).last_entry
        if self.valid_end is None:
            self.max_position = (timestamp, offset)
            return self.max_position
        with self._index_file(INDEX) as file:
            # The one before the last: a writer adds to one index, and then to the other.
            start = self._start_at(
                file.entry_before(file.count - 1), self.base_offset + OFFSET_SPAN_MAX, self.valid_end
            )
        while len(headers := self.log.headers(start, self.valid_end, HEADERS_MAX)):
            latest = headers[int(np.argmax(headers["max_timestamp"]))]  # the first of equals
            if latest["max_timestamp"] > timestamp:
                timestamp, offset = int(latest["max_timestamp"]), int(latest["last_offset"])
            start = int(headers[-1]["position"]) + int(headers[-1]["size_in_bytes"])
        return timestamp, offset

    def find_timestamp(self, timestamp: int, first_offset: int, end: int | None = None) -> RecordPosition | None:
        """See Segment."""
        start = self.start_for(max(self.time_floor(timestamp), first_offset), end)
        return self.log.find_timestamp(timestamp, first_offset, start, end)

    def time_floor(self, timestamp: int) -> int:
        """An offset before which no record of the segment is newer than `timestamp`, and as late as an entry tells."""
        if not self._is_looked_up(self._time_index):
            return self.time_index.lookup(timestamp).offset
        with self._index_file(TIME_INDEX) as file:
            entry = file.entry_before(file.count_up_to(timestamp))
        return TimeIndex(entry, self.base_offset).lookup(timestamp).offset


class StartOffsets:
    """Where the logs of a root begin, as its log-start-offset-checkpoint says: read anew when it is another file.

    Who opens many logs of a root lets them share one, so that the file is read once.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._path = f"{root}/{START_CHECKPOINT}"
        self._status: FileStatus | None = None
        self._offsets: dict[TopicPartition, int] = {}

    def get(self, partition: TopicPartition) -> int:
        """The offset of a partition, 0 if it has none."""
        status = self._disk.status(self._path)  # looked at first: what is read may be newer, never older
        if status is None or status != self._status:
            try:
                self._offsets = read_offsets(self._disk, self._path)
            except CorruptCheckpoint:
                self._offsets = {}
            self._status = status
        return self._offsets.get(partition, 0)


class ReadOnlyLog:
    """A partition's log, for reading. It has what readers ask of a PartitionLog.

    starts: the start offsets of the root, if they are at hand
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        starts: StartOffsets | None = None,
    ) -> None:
        self.disk = disk
        self.root = root
        self.directory = f"{root}/{partition}"
        self.partition = partition
        self.config = config
        self.now_ms = now_ms
        self.starts = StartOffsets(disk, root) if starts is None else starts
        self.segments = Segments()
        self.cuts: list[int] = []
        self.topic_id = read_partition_metadata(disk, f"{self.directory}/{PARTITION_METADATA}")
        self._end_position = 0  # of the last segment: batches before it are good
        self._end_offset = 0
        self._last_epoch = -1  # the highest leader epoch of the batches that were looked at
        self._epochs: list[EpochEntry] = []
        self._epochs_inode: int | None = -1  # of the file they were read from
        self._producers: ProducerState | None = None
        self._opened = OpenSegments()
        self.view: LogView
        self.refresh()

    @property
    def generation(self) -> int:
        """How often the log is known to have been truncated."""
        return len(self.cuts)

    def refresh(self) -> bool:
        """Look what the writer has done. Says whether the log has grown."""
        for _ in range(LISTINGS_MAX):
            try:
                return self._refresh()
            except StorageError as error:
                if error.errno != errno.ENOENT or self.disk.status(self.directory) is None:
                    raise
        raise self._changing()

    def _changing(self) -> StorageError:
        return StorageError("read a directory that keeps changing", errno=errno.EAGAIN, path=self.directory)

    def _refresh(self) -> bool:
        end_before, epoch_before = self._end_offset if len(self.segments) else -1, self._last_epoch
        self._find_segments()
        log_start_offset = self._log_start_offset()
        if not len(self.segments):
            self._end_offset = max(self._end_offset, log_start_offset)
        else:
            self._find_end()
        cut = self._find_cut(end_before, epoch_before)
        if cut is not None:
            self._producers = None
            if len(self.segments):
                self._begin_again()
                self._find_end()
            self.cuts.append(self._left_before(cut))
        if len(self.segments) and isinstance(self.segments.active, ReadOnlySegment):
            self.segments.active.valid_end = self._end_position
        log_start_offset = min(log_start_offset, self._end_offset)
        self.view = LogView(
            self.segments.view,
            log_start_offset,
            self._end_offset,
            self._end_offset,
            self._end_offset,  # what readers of committed records ask for is bounded()
            self._end_position,
            self.generation,
        )
        return self._end_offset > end_before

    def _find_cut(self, end_before: int, epoch_before: int) -> int | None:
        """Where the log was truncated below `end_before`, since that was its end; None if it was not.

        It is shorter now; or what was appended since is of a new leader epoch, that begins below. The epoch is on the
        disk before its first batch, so it is looked at after the batches.
        """
        cut = min(end_before, self._end_offset)
        status = self.disk.status(f"{self.directory}/{EPOCH_CHECKPOINT}")
        inode = None if status is None else status.inode
        if inode != self._epochs_inode:
            self._epochs_inode = inode
            try:
                self._epochs = read_epochs(self.disk, f"{self.directory}/{EPOCH_CHECKPOINT}")
            except CorruptCheckpoint:
                self._epochs = []
            if epoch_before >= 0:
                cut = min([cut, *(entry.start_offset for entry in self._epochs if entry.epoch > epoch_before)])
        return cut if cut < end_before else None

    def _left_before(self, cut: int) -> int:
        """The offset behind the last record before `cut`. A batch that had it in its middle went whole."""
        floor = self.segments.floor(cut - 1)
        return cut if floor is None else min(floor.end_before(cut), cut)

    def _begin_again(self) -> None:
        """Know nothing of the last segment: its indexes and its batches may be others.

        It is another object then. Views that have the old one go on with the file that it has open.
        """
        last = self.segments.active
        self.segments.replace([last], [self._segment(last.base_offset, last.suffix, is_last=True)])
        self._end_position, self._end_offset = 0, last.base_offset

    def _segment(self, base_offset: int, suffix: str, *, is_last: bool = False) -> ReadOnlySegment:
        # The last one stays open: the end that is known is one of this very file.
        segment = ReadOnlySegment(
            self.disk,
            self.directory,
            base_offset,
            self.config,
            created_ms=self.now_ms,
            suffix=suffix,
            opened=None if is_last else self._opened,
        )
        segment.check_topic = self._check_topic
        return segment

    def _check_topic(self) -> None:
        found = read_partition_metadata(self.disk, f"{self.directory}/{PARTITION_METADATA}")
        if found is not None and self.topic_id is not None and found != self.topic_id:
            raise InconsistentTopicIdError(
                f"read of {self.partition}: got topic id {found}, wanted {self.topic_id}: "
                "the topic was deleted, and another one has its name"
            )

    def _list(self) -> dict[int, str]:
        """The segments: base offset -> suffix of its files.

        A listing is not of one moment: it may have a file that was made last, and miss one that was made or renamed
        while it was under way. So what is news is listed until it is listed the same way twice.
        """
        found = self._list_once()
        if found != {segment.base_offset: segment.suffix for segment in self.segments}:
            for _ in range(LISTINGS_MAX):
                last, found = found, self._list_once()
                if found == last:
                    break
        return found

    def _list_once(self) -> dict[int, str]:
        files = [file for file in map(parse_file_name, self.disk.list(self.directory)) if file and file.kind == LOG]
        found = {file.offset: "" for file in files if not file.suffix}
        # What a compaction has written whole, and is about to give its name: the old one of that name may be gone.
        first_cleaned = min((file.offset for file in files if file.suffix == CLEANED), default=OFFSET_MAX + 1)
        for file in files:
            if file.suffix == SWAP and file.offset < first_cleaned:
                found.setdefault(file.offset, SWAP)
        return dict(sorted(found.items()))

    def _find_segments(self) -> None:
        known = {segment.base_offset: segment for segment in self.segments}
        now = self._list()
        if list(now) == list(self.segments.view.base_offsets) and not any(map(self._is_replaced, known.values())):
            return
        was_last = self.segments.active if len(self.segments) else None
        found = []
        for base_offset, suffix in now.items():
            segment = known.get(base_offset)
            is_stale = segment is was_last and base_offset != max(now)  # it went on after it was looked at
            if segment is None or is_stale or segment.suffix != suffix or self._is_replaced(segment):
                segment = self._segment(base_offset, suffix)
            found.append(segment)
        self.segments.replace(list(self.segments), found)
        if found and found[-1] is not was_last:
            self._begin_again()

    def _is_replaced(self, segment: Segment) -> bool:
        """Whether the file of that name is another one now. Only an open file can tell."""
        inode = segment.inode
        if inode is None:
            return False
        status = self.disk.status(segment.path)
        return status is None or status.inode != inode

    def _find_end(self) -> None:
        """Read on from the end that is known, as far as batches are good."""
        segment = self.segments.active
        size = segment.file.refresh()
        if size < self._end_position:
            self._begin_again()
            segment = self.segments.active
            size = segment.file.size
        if not self._end_position:
            self._end_position = segment.start_for(min(segment.base_offset + OFFSET_SPAN_MAX, OFFSET_MAX), size)
        while self._end_position < size:
            _, scan = segment.log.chunk(self._end_position, size, CHUNK_BYTES)
            for header in scan.headers:
                last_offset = int(header["last_offset"])
                if last_offset < self._end_offset or last_offset >= OFFSET_MAX:
                    return  # offsets do not go back: these are bytes from before a truncation
                self._end_offset = last_offset + 1
                self._end_position += int(header["size_in_bytes"])
                self._last_epoch = max(self._last_epoch, int(header["leader_epoch"]))
            if not len(scan) or scan.error is not None:
                return

    def _log_start_offset(self) -> int:
        first = self.segments.first.base_offset if len(self.segments) else 0
        return max(first, self.starts.get(self.partition))

    # --- what readers ask -------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Where the earliest open transaction begins: from the newest snapshot, and the batches behind it."""
        for _ in range(LISTINGS_MAX):
            try:
                return self._find_last_stable_offset()
            except StorageError as error:
                if error.errno != errno.ENOENT or self.disk.status(self.directory) is None:
                    raise
                self.refresh()  # A segment was deleted, or replaced.
            except CorruptBatch:
                generation = self.generation
                self.refresh()
                if self.generation == generation:
                    raise
        raise self._changing()

    def stable_offset_at(self, end_offset: int) -> int:
        """What the last stable offset is, or was, when the log ends, or ended, at `end_offset`.

        So a transaction that is ended by a marker at or behind `end_offset` is open. Of a log that is replicated, what
        lies behind the high watermark may yet be cut off, markers too.
        """
        view = self.view._replace(
            log_end_offset=min(max(end_offset, self.view.log_start_offset), self.view.log_end_offset)
        )
        producers = ProducerState(self.disk, self.directory, read_only=True)
        producers.truncate_and_reload(view.log_start_offset, view.log_end_offset, self.now_ms)
        return self._stable_offset(producers, view)

    def _find_last_stable_offset(self) -> int:
        view = self.view
        producers = self._producers
        if producers is None or producers.map_end_offset > view.log_end_offset:
            producers = self._producers = ProducerState(self.disk, self.directory, read_only=True)
            producers.truncate_and_reload(view.log_start_offset, view.log_end_offset, self.now_ms)
        try:
            return self._stable_offset(producers, view)
        except BaseException:
            self._producers = None  # Some of the batches are in it, and it does not say which.
            raise

    @staticmethod
    def _stable_offset(producers: ProducerState, view: LogView) -> int:
        read_producers(producers, view)
        producers.on_high_watermark_updated(view.log_end_offset)
        first = producers.first_unstable_offset()
        return view.log_end_offset if first is None else max(first.offset, view.log_start_offset)

    def bounded(self, isolation: Isolation) -> tuple[LogView, int]:
        """A view, and the offset up to which `isolation` lets one read it."""
        if isolation != "read_committed":
            view = self.view
            return view, view.log_end_offset
        for _ in range(LISTINGS_MAX):
            view = self.view
            stable_offset = self.last_stable_offset
            if view is self.view:  # Otherwise it was looked for in a newer one.
                return view, stable_offset
        raise self._changing()

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the end of the log, -1 if there is none: which of two replicas is ahead.

        Entries of the checkpoint that begin at the end or behind it are of records that are not here.
        """
        view = self.view
        known = [entry.epoch for entry in self._epochs if entry.start_offset < view.log_end_offset]
        return max([self._last_epoch, *known])

    def check_cut(self, generation: int, end_offset: int) -> None:
        """Raise LogTruncatedError if the log was cut below `end_offset` since `generation`."""
        self.refresh()
        cut = min(self.cuts[generation:], default=end_offset)
        if cut < end_offset:
            raise self._truncated(cut, end_offset)

    def view_from(self, offset: int) -> LogView:
        """The log as it is now, for a reader who found a segment of its own deleted."""
        self.refresh()
        if offset < self.view.log_start_offset:
            raise OffsetOutOfRangeError(
                f"read of {self.partition}: got offset {offset}, wanted {self.view.log_start_offset} or more: "
                "what lay before was deleted"
            )
        return self.view

    def check_epoch(self, last_epoch: int, epoch: int, offset: int) -> None:
        """A reader that has read up to `offset` comes from one leader epoch to another, and a later one began before.

        Then what it has read is no longer in the log.
        """
        if 0 <= last_epoch < epoch:
            self.refresh()
            cut = min((entry.start_offset for entry in self._epochs if entry.epoch > last_epoch), default=offset)
            if cut < offset:
                raise self._truncated(self._left_before(cut), offset)

    def _truncated(self, cut: int, offset: int) -> LogTruncatedError:
        return LogTruncatedError(
            f"read of {self.partition}: got a log that was truncated to {cut}, wanted records up to {offset}",
            offset=cut,
        )

    def check_next(self, offset: int) -> None:
        """Raise if a reader that has read up to `offset` cannot go on there."""
        if offset > self.view.log_end_offset:
            raise self._truncated(self.view.log_end_offset, offset)
        self.view_from(offset)

    def close(self) -> None:
        """Close the files."""
        self.segments.close()
