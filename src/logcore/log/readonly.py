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
    truncation          the log is shorter, or goes on in a new leader epoch that begins before what was read: that is
                        LogTruncatedError for who has read it (KIP-320)
"""

import errno

from logcore._index import OffsetIndex, TimeIndex
from logcore.errors import CorruptCheckpoint, LogTruncatedError, OffsetOutOfRangeError, StorageError

from .checkpoints import read_epochs, read_offsets
from .config import LogConfig
from .disk import Disk
from .epochs import LeaderEpochCache
from .names import (
    EPOCH_CHECKPOINT,
    INDEX,
    LOG,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    START_CHECKPOINT,
    TIME_INDEX,
    TopicPartition,
    parse_file_name,
)
from .partition_metadata import read_partition_metadata
from .producers import ProducerState
from .recovery import CHUNK_BYTES, read_producers
from .segment import Segment
from .segments import Segments
from .view import Isolation, LogView

LISTINGS_MAX = 100  # how often a directory is listed anew because a file of it vanished, before that is an error


class ReadOnlySegment(Segment):
    """A segment whose indexes are read into memory, as far as they are written."""

    __slots__ = ()

    @property
    def offset_index(self) -> OffsetIndex:
        """To look positions up, as it was when it was first asked for."""
        if self._offset_index is None:
            self._offset_index = OffsetIndex(self._entries(INDEX, 8, 4), self.base_offset)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """To look times up, likewise."""
        if self._time_index is None:
            self._time_index = TimeIndex(self._entries(TIME_INDEX, 12, 0), self.base_offset)
        return self._time_index

    def _entries(self, kind: str, entry_bytes: int, field: int) -> bytes:
        """The entries of an index file; the rest of it is zeros. A used entry has a `field` that is not 0."""
        try:
            file = self.disk.open(self.path_of(kind))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return b""
        try:
            low, high = 0, file.size // entry_bytes
            while low < high:
                middle = (low + high) // 2
                if any(file.read(middle * entry_bytes + field, entry_bytes - field)):
                    low = middle + 1
                else:
                    high = middle
            return file.read(0, low * entry_bytes)
        finally:
            file.close()


class ReadOnlyLog:
    """A partition's log, for reading. It has what readers ask of a PartitionLog."""

    def __init__(self, disk: Disk, root: str, partition: TopicPartition, config: LogConfig, *, now_ms: int) -> None:
        self.disk = disk
        self.root = root
        self.directory = f"{root}/{partition}"
        self.partition = partition
        self.config = config
        self.now_ms = now_ms
        self.segments = Segments()
        self.cuts: list[int] = []
        self.topic_id = read_partition_metadata(disk, f"{self.directory}/{PARTITION_METADATA}")
        self._end_position = 0  # of the last segment: batches before it are good
        self._end_offset = 0
        self._producers: ProducerState | None = None
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
        raise StorageError("list a directory that keeps changing", errno=errno.EAGAIN, path=self.directory)

    def _refresh(self) -> bool:
        before = self._end_offset if len(self.segments) else -1
        self._find_segments()
        log_start_offset = self._log_start_offset()
        if not len(self.segments):
            self._end_offset = max(self._end_offset, log_start_offset)
        else:
            self._find_end()
        if self._end_offset < before:
            self.cuts.append(self._end_offset)
            self._producers = None
        log_start_offset = min(log_start_offset, self._end_offset)
        self.view = LogView(
            self.segments.view,
            log_start_offset,
            self._end_offset,
            self._end_offset,
            self._end_offset,  # what readers of committed records ask for is bound()
            self._end_position,
            self.generation,
        )
        return self._end_offset > before

    def _find_segments(self) -> None:
        kinds: dict[int, set[str]] = {}
        for name in self.disk.list(self.directory):
            file = parse_file_name(name)
            if file is not None and not file.suffix and file.kind in SEGMENT_SUFFIXES:
                kinds.setdefault(file.offset, set()).add(file.kind)
        known = {segment.base_offset: segment for segment in self.segments}
        now = sorted(base for base, found in kinds.items() if LOG in found)
        if now == list(self.segments.view.base_offsets) and not any(map(self._is_replaced, known.values())):
            return
        was_last = self.segments.active if len(self.segments) else None
        found = []
        for base_offset in now:
            segment = known.get(base_offset)
            if segment is None or self._is_replaced(segment):
                segment = ReadOnlySegment(
                    self.disk, self.directory, base_offset, self.config, created_ms=self.now_ms, is_writable=False
                )
            found.append(segment)
        self.segments.replace(list(self.segments), found)
        if found and found[-1] is not was_last:
            if was_last is not None:
                # It was active, and its indexes went on.
                was_last.release()
            self._end_position, self._end_offset = 0, found[-1].base_offset

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
            self._end_position, self._end_offset = 0, segment.base_offset
        if not self._end_position:
            self._end_position = segment.start_for(segment.base_offset + 0x7FFFFFFF, size)
        while self._end_position < size:
            _, scan = segment.log.chunk(self._end_position, size, CHUNK_BYTES)
            for header in scan.headers:
                last_offset = int(header["last_offset"])
                if last_offset < self._end_offset:
                    return  # offsets do not go back: these are bytes from before a truncation
                self._end_offset = last_offset + 1
                self._end_position += int(header["size_in_bytes"])
            if not len(scan) or scan.error is not None:
                return

    def _log_start_offset(self) -> int:
        first = self.segments.first.base_offset if len(self.segments) else 0
        try:
            checkpointed = read_offsets(self.disk, f"{self.root}/{START_CHECKPOINT}").get(self.partition, 0)
        except CorruptCheckpoint:
            checkpointed = 0
        return max(first, checkpointed)

    # --- what readers ask -------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Where the earliest open transaction begins: from the newest snapshot, and the batches behind it."""
        view = self.view
        producers = self._producers
        if producers is None or producers.map_end_offset > view.log_end_offset:
            producers = self._producers = ProducerState(self.disk, self.directory, read_only=True)
            producers.truncate_and_reload(view.log_start_offset, view.log_end_offset, self.now_ms)
        read_producers(producers, view)
        producers.on_high_watermark_updated(view.log_end_offset)
        first = producers.first_unstable_offset()
        return view.log_end_offset if first is None else max(first.offset, view.log_start_offset)

    def bound(self, isolation: Isolation) -> int:
        """The offset up to which `isolation` lets one read."""
        return self.last_stable_offset if isolation == "read_committed" else self.view.log_end_offset

    def check_cut(self, generation: int, end_offset: int) -> None:
        """Raise LogTruncatedError if the log was cut below `end_offset` since `generation`."""
        self.refresh()
        cut = min(self.cuts[generation:], default=end_offset)
        if cut < end_offset:
            raise self._truncated(cut, end_offset)

    def check_epoch(self, last_epoch: int, epoch: int, offset: int) -> None:
        """A reader that has read up to `offset` comes from one leader epoch to another.

        If another epoch begins before `offset`, what was read there is no longer in the log.
        """
        if last_epoch < 0 or epoch < 0:
            return
        try:
            epochs = LeaderEpochCache("", read_epochs(self.disk, f"{self.directory}/{EPOCH_CHECKPOINT}"))
        except CorruptCheckpoint:
            return
        end = epochs.end_offset_for(last_epoch, self.view.log_end_offset)
        if 0 <= end.end_offset < offset:
            self.cuts.append(end.end_offset)
            raise self._truncated(end.end_offset, offset)

    def _truncated(self, cut: int, offset: int) -> LogTruncatedError:
        return LogTruncatedError(
            f"read of {self.partition}: got a log that was truncated to {cut}, wanted records up to {offset}",
            offset=cut,
        )

    def check_next(self, offset: int) -> None:
        """Raise if a reader that has read up to `offset` cannot go on there."""
        if offset > self.view.log_end_offset:
            raise self._truncated(self.view.log_end_offset, offset)
        if offset < self.view.log_start_offset:
            raise OffsetOutOfRangeError(
                f"read of {self.partition}: got offset {offset}, wanted {self.view.log_start_offset} or more: "
                "what lay before was deleted"
            )

    def close(self) -> None:
        """Close the files."""
        self.segments.close()
