"""Making a log out of the files in its directory: finishing or undoing what was interrupted, and finding its end.

    1  .deleted files go. .cleaned files go, and .swap files at or behind the first of them: a compaction or split that
       was not done. The other .swap files are done: they take the place of the segments that they were made of
    2  index files without a .log go; a segment without indexes gets them made from its .log
    3  after a crash: every segment from that of the last record before the recovery point on is read. At the first bad
       batch the log ends; the segments behind it go
    4  leader epochs and the log start offset are brought in line with what is there, producers with the log's end

After a clean shutdown only the active segment is opened, and only its batches behind the last index entry are read.
Everything here can be interrupted and done again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from logcore.errors import CorruptBatch, CorruptIndex, CorruptionReason

from .config import LogConfig
from .disk import Disk
from .epochs import LeaderEpochCache
from .names import (
    CLEANED,
    DELETED,
    EPOCH_CHECKPOINT,
    INDEX,
    LOG,
    OFFSET_MAX,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    OffsetFile,
    TopicPartition,
    parse_file_name,
)
from .partition import UNSYNCED_SEGMENTS_MAX, Keeper, PartitionLog
from .producers import ProducerState
from .recovery import Outcome, Progress, SegmentRecovery, rebuild_producers, recover_segment
from .segment import OpenSegments, Segment, SegmentOffsetOverflow
from .segments import Segments
from .splitting import split_segment
from .uuids import TopicId


@dataclass
class Recovery:
    """What opening a log had to repair. False if that was nothing."""

    was_clean: bool  # the log was closed the last time
    outcome: Outcome = "clean"  # how it ended: see recovery.py
    error: CorruptBatch | None = None  # what was wrong with the first batch that was cut off
    bytes_cut: int = 0
    end_offset: int = 0  # where the log ends now
    segments_read: int = 0
    bytes_read: int = 0
    segments_deleted: int = 0  # behind a bad batch
    indexes_rebuilt: int = 0  # missing or damaged ones, of segments that were flushed
    files_removed: int = 0  # left over from what was interrupted
    swaps_completed: int = 0
    segments_split: int = 0

    def __bool__(self) -> bool:
        return bool(
            self.bytes_cut
            or self.segments_deleted
            or self.indexes_rebuilt
            or self.swaps_completed
            or self.segments_split
        )


class Found(NamedTuple):
    """What was known of a log before its directory was looked at."""

    log_start_offset: int = 0  # as checkpointed
    recovery_point: int = 0
    is_clean: bool = False


@dataclass
class Loader:
    """One load of a log. `repair` cuts off bad bytes also where they had been flushed."""

    disk: Disk
    directory: str
    partition: TopicPartition
    config: LogConfig
    found: Found
    now_ms: int
    draw: Callable[[int], int]
    repair: bool = False
    progress: Progress | None = None
    segments: Segments = field(default_factory=Segments)
    opened: OpenSegments = field(default_factory=OpenSegments)
    recovered: list[Segment] = field(default_factory=list)  # read whole, and their indexes made again
    recovery: Recovery = field(init=False)
    epochs: LeaderEpochCache = field(init=False)

    def load(self, keeper: Keeper, topic_id: TopicId | None) -> PartitionLog:
        """Make the log. Its directory is there."""
        self.recovery = Recovery(self.found.is_clean)
        names = self.finish_interrupted(self.disk.list(self.directory))
        self.epochs = LeaderEpochCache.load(self.disk, f"{self.directory}/{EPOCH_CHECKPOINT}")
        self.producers = self._producers(names)
        self.find_segments(names)
        end_offset = self.recover(keeper)
        # An epoch may begin where the log ends: its leader has not written yet. After a crash it is not known to.
        self.epochs.truncate_from_end(end_offset + 1 if self.found.is_clean else end_offset)
        log_start_offset = max(self.found.log_start_offset, self.segments.first.base_offset)
        self.epochs.truncate_from_start(self.found.log_start_offset)
        self.producers.remove_stray_snapshots(self.segments.view.base_offsets)
        rebuild_producers(
            self.producers,
            self.segments,
            log_start_offset,
            end_offset,
            self.now_ms,
            is_clean=self.found.is_clean,
            progress=self._progress,
        )
        self.recovery.end_offset = end_offset
        if self.found.recovery_point > end_offset:
            # A truncation inside a batch leaves it behind the end. What is appended there now is not on the disk.
            keeper.lower_recovery_point(self.partition, end_offset)
        recovery_point = end_offset if self.found.is_clean else min(self.found.recovery_point, end_offset)
        log = PartitionLog(
            self.disk,
            self.directory,
            self.partition,
            self.config,
            self.segments,
            self.epochs,
            self.producers,
            keeper,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=recovery_point,
            topic_id=topic_id,
            draw=self.draw,
            now_ms=self.now_ms,
            opened=self.opened,
        )
        log.sync_recovered([one for one in self.recovered if any(one is kept for kept in self.segments)])
        if not self.found.is_clean:
            # What was removed must not come back beside what is written now: a snapshot of a history that was cut off
            # has the name that one of the new history will have.
            self.disk.sync_directory(self.directory)
            # Nor must what was cut off by a process that died then.
            self.segments.active.sync_log()
        return log

    def _producers(self, names: list[str]) -> ProducerState:
        return ProducerState(
            self.disk,
            self.directory,
            names=names,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            max_transaction_timeout_ms=self.config.transaction_max_timeout_ms,
            is_verification_enabled=False,  # Who has a transaction coordinator to ask switches it on.
        )

    def _progress(self, size_in_bytes: int) -> None:
        self.recovery.bytes_read += size_in_bytes
        if self.progress is not None:
            self.progress(size_in_bytes)

    # --- 1: what was interrupted ------------------------------------------------------------------------------------

    def finish_interrupted(self, names: list[str]) -> list[str]:
        """Undo or finish compactions and splits, and remove what was to be deleted. Returns the names that are left."""
        parsed = {name: parse_file_name(name) for name in names}
        cleaned = [file.offset for file in parsed.values() if file is not None and file.suffix == CLEANED]
        first_cleaned = min(cleaned, default=OFFSET_MAX + 1)
        swapped: list[str] = []
        undone: list[str] = []
        for name, file in parsed.items():
            if name.endswith(DELETED) and (file is None or file.kind in (*SEGMENT_SUFFIXES, SNAPSHOT)):
                if file is not None:
                    self._remove(name)
            elif file is not None and file.kind in SEGMENT_SUFFIXES and file.suffix == SWAP:
                (undone if file.offset >= first_cleaned else swapped).append(name)
        if undone:
            # Before the .cleaned: as long as one is there, a .swap is known to be undone.
            for name in undone:
                self._remove(name)
            self.disk.sync_directory(self.directory)
        for name, file in parsed.items():
            if file is not None and file.kind in SEGMENT_SUFFIXES and file.suffix == CLEANED:
                self._remove(name)
        if swapped:
            self._complete_swap(swapped, parsed)
        return self.disk.list(self.directory) if swapped or self.recovery.files_removed else names

    def _complete_swap(self, swapped: list[str], parsed: dict[str, OffsetFile | None]) -> None:
        """The segments that a .swap was made of go, and then it gets their name."""
        first, end = OFFSET_MAX + 1, -1
        for name in swapped:
            file = parsed[name]
            assert file is not None
            if file.kind == LOG:
                # Its indexes may have their names already, if this is done again.
                kinds = {other.kind for other in map(parsed.get, swapped) if other and other.offset == file.offset}
                segment = self._segment(file.offset, suffix=SWAP, kinds=kinds)
                first, end = min(first, file.offset), max(end, segment.next_offset())
                segment.close()
        for name, file in parsed.items():
            if file is not None and not file.suffix and file.kind in SEGMENT_SUFFIXES and first <= file.offset < end:
                self._remove(name)
        self.disk.sync_directory(self.directory)
        # The .log last: as long as it is a .swap, all of this can be done again.
        for name in sorted(swapped, key=lambda name: LOG in name):
            self.disk.rename(f"{self.directory}/{name}", f"{self.directory}/{name.removesuffix(SWAP)}")
        self.disk.sync_directory(self.directory)
        self.recovery.swaps_completed += 1

    def _remove(self, name: str) -> None:
        self.disk.unlink(f"{self.directory}/{name}")
        self.recovery.files_removed += 1

    # --- 2: segments ------------------------------------------------------------------------------------------------

    def _segment(self, base_offset: int, *, suffix: str = "", kinds: set[str] | None = None) -> Segment:
        bound = self.config.segment_jitter_bound_ms
        return Segment(
            self.disk,
            self.directory,
            base_offset,
            self.config,
            created_ms=self.now_ms,
            roll_jitter_ms=self.draw(bound) if bound else 0,
            suffix=suffix,
            kinds=kinds,
            opened=self.opened,
        )

    def find_segments(self, names: list[str]) -> None:
        """A segment for each .log. Its indexes are made again if one is missing, and nothing else will do that."""
        kinds: dict[int, set[str]] = {}
        for name in names:
            file = parse_file_name(name)
            if file is not None and not file.suffix and file.kind in SEGMENT_SUFFIXES:
                kinds.setdefault(file.offset, set()).add(file.kind)
        found = []
        for base_offset in sorted(kinds):
            if LOG in kinds[base_offset]:
                found.append(self._segment(base_offset, kinds=kinds[base_offset]))
            else:
                for kind in (INDEX, TIME_INDEX, TXN_INDEX):
                    if kind in kinds[base_offset]:
                        self._remove(f"{base_offset:020}{kind}")
        self.segments.replace([], found)

    # --- 3: the end of the log --------------------------------------------------------------------------------------

    def recover(self, keeper: Keeper) -> int:
        """Read what a crash may have touched, and cut off what it spoiled. Returns the log end offset."""
        segments = self.segments.view.segments
        first_read = len(segments)
        if not self.found.is_clean and segments:
            # That of the last record before it: if a segment begins just there, the one before was perhaps active when
            # the recovery point was written down, and its indexes were not on the disk.
            first_read = max(self.segments.view.floor_index(self.found.recovery_point - 1), 0)
        for index, found in enumerate(segments):
            segment = found
            lacks_index = not segment.has_offset_index or not segment.has_time_index
            if index >= first_read or (lacks_index and segment.size):
                if index < first_read:
                    # From here on they are no more on the disk than those behind: if this is interrupted, the next
                    # recovery is to make them again, and not to take half of them for whole.
                    keeper.lower_recovery_point(self.partition, segment.base_offset)
                    self.recovery.indexes_rebuilt += 1
                segment, done = self._recover_or_split(segment)
                if done.bytes_cut:
                    self._delete_behind(segment)
                    break
        return self._end_offset()

    def _recover_or_split(self, segment: Segment) -> tuple[Segment, SegmentRecovery]:
        """Recover a segment; the last of those that it was split into, if it was."""
        while True:
            try:
                return segment, self._recover(segment)
            except SegmentOffsetOverflow as overflow:
                made = split_segment(
                    self.disk, self.directory, self.segments, overflow.segment, self.now_ms, self.opened
                )
                overflow.segment.delete()
                self.recovery.segments_split += 1
                for one in made[:-1]:
                    self._recover(one)
                segment = made[-1]

    def _recover(self, segment: Segment) -> SegmentRecovery:
        producers = self._producers(self.disk.list(self.directory))
        lower = self.segments.lower(segment.base_offset)
        rebuild_producers(
            producers,
            self.segments,
            self.found.log_start_offset,
            segment.base_offset,
            self.now_ms,
            progress=self._progress,
        )
        first_offset = segment.base_offset
        if lower is not None:
            first_offset = max(first_offset, lower.next_offset())
        self.recovery.segments_read += 1
        # A log start offset takes the recovery point along, over what was never flushed: nobody needs it any more.
        has_flushed = self.found.recovery_point > self.found.log_start_offset
        done = recover_segment(
            segment,
            producers,
            self.epochs,
            first_offset=first_offset,
            keep_before=0 if self.repair or not has_flushed else self.found.recovery_point,
            progress=self._progress,
        )
        producers.take_snapshot(sync=False)
        if len(self.recovered) >= UNSYNCED_SEGMENTS_MAX:
            self._sync_recovered()
        self.recovered.append(segment)
        if done.bytes_cut:
            self.recovery.bytes_cut += done.bytes_cut
            self.recovery.outcome, self.recovery.error = done.outcome, done.error
        return done

    def _sync_recovered(self) -> None:
        """Make what was recovered so far survive the machine: as long as it does not, its files stay open."""
        for segment in self.recovered:
            if any(segment is kept for kept in self.segments):
                segment.is_log_dirty = True
                segment.sync()
                segment.release_if_sealed()
        self.recovered.clear()

    def _delete_behind(self, segment: Segment) -> None:
        """Segments behind a bad batch would be behind a hole."""
        for behind in reversed(self.segments.view.segments):
            if behind is segment:
                break
            if behind.size:
                self.recovery.outcome = "corrupt"
            self.recovery.bytes_cut += behind.size
            self.segments.remove(behind)
            behind.rename(DELETED)
            self.disk.sync_directory(self.directory)
            behind.delete()
            self.recovery.segments_deleted += 1

    def _find_end(self) -> int:
        """The offset behind the last record. An active segment is written to, so its indexes have to be right."""
        active = self.segments.active
        end_offset = active.next_offset()
        try:
            self._check_time_index(active)
            active.transactions.check()
        except CorruptIndex:
            active.is_index_damaged = True
        if active.has_bad_index(end_offset):
            self.recovery.indexes_rebuilt += 1
            return self._recover(active).end_offset
        return end_offset

    def _check_time_index(self, segment: Segment) -> None:
        """Compare its last entry with the batch that it names, if that lies where the log's end was looked for.

        Batches before the last index entry are not read when a log is opened that was closed in order.
        """
        timestamp, offset = segment.max_timestamp
        if timestamp >= 0 and (not len(segment.offset_index) or offset > segment.offset_index.last_offset):
            batch = segment.find(offset)
            if batch is None or segment.log.max_timestamp(batch.position, batch.position + batch.size_in_bytes)[0] != (
                timestamp
            ):
                raise CorruptIndex(
                    "last entry", reason=CorruptionReason.ENTRY_ORDER, got=f"{timestamp} at offset {offset}",
                    wanted="the largest timestamp of the batch there", path=segment.path_of(TIME_INDEX),
                )  # fmt: skip

    def _end_offset(self) -> int:
        if len(self.segments):
            end_offset = self._find_end()
            if end_offset >= self.found.log_start_offset:
                return end_offset
            # Somebody removed segments: what is left ends before the log begins.
            for segment in reversed(self.segments.view.segments):
                self.segments.remove(segment)
                segment.delete()
                self.recovery.segments_deleted += 1
            self.epochs.clear()
            self.producers.truncate_fully_and_start_at(self.found.log_start_offset)
        segment = self._segment(self.found.log_start_offset)
        segment.create()
        self.segments.add(segment)
        return segment.base_offset
