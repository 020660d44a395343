"""Compaction: of each key only the latest record stays, in the part of the log that is sealed, decided and old enough.

    clean | dirty | uncleanable
          ^       ^
          |       first uncleanable offset: the active segment, open transactions, min.compaction.lag.ms
          first dirty offset: where the last compaction ended, as checkpointed

A pass reads the dirty part and maps each key to its latest offset, in memory that is bounded: a map that is full ends
the pass there, and the next one goes on. Then it reads clean and dirty part from the beginning and writes what stays
into new segments, several old ones into one as far as they fit. Each takes the place of its old ones in one step
(swapping.py).

Whoever calls says when the log may change meanwhile: plan() and swap() need it still, write() only reads sealed
segments and writes files of its own, so appends and reads go on beside it. A log that was truncated meanwhile keeps
what it has.

Memory: the map (log.cleaner.dedupe.buffer.size at most, and never more than the dirty offsets need), a chunk of input,
its output, and the largest batch. Kafka: Cleaner, LogCleanerManager.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logcore._batch import scan_batches
from logcore._filter import LastRecords, filter_batches
from logcore._offsetmap import OffsetMap, map_keys
from logcore.errors import CorruptBatch, CorruptionReason, LogcoreError, StorageError

from .cleaned_transactions import CleanedTransactions
from .names import CLEANED
from .segment import OFFSET_SPAN_MAX, TIMESTAMP_MAX, Segment, SegmentOffsetOverflow
from .splitting import split_segment
from .swapping import swap_in

if TYPE_CHECKING:
    from .partition import PartitionLog

CHUNK_BYTES = 1 << 20
SLOT_BYTES = 24  # of the offset map
# How full a map gets that may be as large as it likes. At nine tenths a key goes through a dozen slots on its way in.
ROOMY_LOAD_FACTOR = 0.5


@dataclass
class CompactionResult:
    """What a compaction did."""

    first_dirty_offset: int
    end_offset: int  # up to here the log is compacted now
    passes: int = 0
    segments_read: int = 0
    segments_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    records_without_key: int = 0  # these are dropped: a compacted log cannot have them


def combined(first: CompactionResult, second: CompactionResult) -> CompactionResult:
    """Two passes, one after the other, as one."""
    sums = {
        name: getattr(first, name) + getattr(second, name)
        for name in CompactionResult.__dataclass_fields__
        if name not in ("first_dirty_offset", "end_offset")
    }
    return CompactionResult(first.first_dirty_offset, second.end_offset, **sums)


@dataclass
class Cleanable:
    """What of a log can be compacted."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int  # how long ago max.compaction.lag.ms was over for a dirty record; 0 if it was not
    is_reset: bool = False  # the checkpoint lay outside of the log, and is to be written anew

    @property
    def dirty_ratio(self) -> float:
        """How much of it is dirty: 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable(log: "PartitionLog", cleaned_offset: int | None, now_ms: int) -> Cleanable:
    """Look what can be compacted. `cleaned_offset` is where the last compaction ended, as checkpointed."""
    first_dirty = log.log_start_offset if cleaned_offset is None else cleaned_offset
    is_reset = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if is_reset:
        first_dirty = log.log_start_offset
    segments = log.segments
    end = min(log.last_stable_offset, segments.active.base_offset)
    not_active = segments.between(first_dirty, max(segments.active.base_offset, first_dirty))
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        end = min([end, *(one.base_offset for one in not_active if one.largest_timestamp > now_ms - lag_ms)])
    # Whole segments: one that holds an undecided record is not touched.
    floor = segments.floor(max(end, first_dirty))
    end = segments.first.base_offset if floor is None else floor.base_offset
    oldest = min(
        (one.first_batch_timestamp for one in not_active if one.first_batch_timestamp > 0), default=TIMESTAMP_MAX
    )
    return Cleanable(
        first_dirty,
        end,
        sum(one.size for one in segments if one.base_offset < first_dirty),
        sum(one.size for one in segments.between(min(first_dirty, end), end)),
        max(now_ms - log.config.max_compaction_lag_ms - oldest, 0),
        is_reset,
    )


def is_due(log: "PartitionLog", found: Cleanable) -> bool:
    """Whether the policy asks for a compaction: enough is dirty, or something dirty is too old."""
    return log.config.is_compacted and (
        found.dirty_ratio > log.config.min_cleanable_dirty_ratio or (found.delay_ms > 0 and found.dirty_bytes > 0)
    )


class SegmentSpansTooMuch(LogcoreError):
    """A segment's offsets do not fit it, and it has to be split. Log.compact() does, and nobody else sees this."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"segment to compact: got offsets in {segment.path} that do not fit it, wanted a split one")
        self.segment = segment


@dataclass
class Group:
    """Old segments that become one, and the offset behind them."""

    segments: list[Segment]
    end_offset: int


class Pass:
    """One pass over a log: plan(), and for each group write() and swap()."""

    def __init__(
        self,
        log: "PartitionLog",
        found: Cleanable,
        *,
        now_ms: int,
        seed: bytes,
        memory_bytes: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.log = log
        self.found = found
        self.now_ms = now_ms
        self.progress = progress
        self.generation = log.generation
        self.view = log.view
        self.last_records = LastRecords(log.producers.last_records())
        config = log.config
        self.load_factor = config.log_cleaner_io_buffer_load_factor
        limit = config.log_cleaner_dedupe_buffer_size if memory_bytes is None else memory_bytes
        roomy = min(self.load_factor, ROOMY_LOAD_FACTOR)
        needed = int((found.first_uncleanable_offset - found.first_dirty_offset) / roomy) + 2
        self.map = OffsetMap(
            max(min(limit, SLOT_BYTES * needed), SLOT_BYTES), seed=seed, first_offset=found.first_dirty_offset
        )
        clean = self._sealed(0, found.first_dirty_offset)
        self.legacy_horizon_ms = clean[-1].modified_ms - config.delete_retention_ms if clean else 0
        self.transactions = CleanedTransactions()
        self.result = CompactionResult(found.first_dirty_offset, found.first_dirty_offset, passes=1)

    def _sealed(self, first_offset: int, end_offset: int) -> list[Segment]:
        segments, bases = self.view.segments
        ends = (*bases[1:], self.view.log_end_offset)
        return [
            one
            for one, base, end in zip(segments[:-1], bases, ends, strict=False)
            if base < end_offset and end > first_offset
        ]

    def build_map(self) -> int:
        """Map the keys of the dirty part; returns the offset up to which that went."""
        first, end = self.found.first_dirty_offset, self.found.first_uncleanable_offset
        segments = self._sealed(first, end)
        transactions = CleanedTransactions()
        transactions.add(self.view.aborted(first, end))
        limit = max(int(self.map.slots * self.load_factor), 1)
        for segment, following in zip(segments, [*(one.base_offset for one in segments[1:]), end], strict=True):
            for data, position in self._chunks(segment, segment.start_for(first)):
                done = map_keys(
                    data,
                    self.map,
                    first_offset=first,
                    limit=limit,
                    should_discard_batch=transactions.may_discard,
                    base_position=position,
                )
                if done.is_full:
                    return self.map.latest_offset + 1
            self.map.update_latest_offset(following - 1)
        return self.map.latest_offset + 1

    def _chunks(self, segment: Segment, position: int) -> Iterator[tuple[bytes, int]]:
        """Batches of a segment, a read at a time, each with its position; a last one that is not whole comes again."""
        end = segment.size
        while position < end:
            data, scan = segment.log.chunk(position, end, CHUNK_BYTES, verify_crc=False)
            if not len(scan):
                raise scan.error or CorruptBatch(
                    "size", reason=CorruptionReason.TRUNCATED, got=f"{end - position} bytes", wanted="a whole batch",
                    path=segment.path, position=position,
                )  # fmt: skip
            try:
                yield data, position
            except CorruptBatch as error:
                raise error.at_path(segment.path, 0) from None
            position += scan.consumed
            if self.progress is not None:
                self.progress(scan.consumed)

    def groups(self, end_offset: int) -> list[Group]:
        """The segments below `end_offset`, in groups that become one segment each: as many as fit it."""
        segments = self._sealed(0, end_offset)
        config = self.log.config
        groups: list[Group] = []
        sizes = (0, 0, 0)
        for index, segment in enumerate(segments):
            last = segments[index + 1].base_offset if index + 1 < len(segments) else self.found.first_uncleanable_offset
            size = (segment.size, *segment.index_size_in_bytes)
            total = (sizes[0] + size[0], sizes[1] + size[1], sizes[2] + size[2])
            if (
                groups
                and total[0] <= config.segment_size
                and max(total[1:]) <= config.segment_index_bytes
                and (not size[0] or last - 1 - groups[-1].segments[0].base_offset <= OFFSET_SPAN_MAX)
            ):
                groups[-1].segments.append(segment)
                groups[-1].end_offset = last
                sizes = total
            else:
                groups.append(Group([segment], last))
                sizes = size
        return groups

    def write(self, group: Group) -> Segment:
        """Write what stays of a group into a new segment, with the suffix .cleaned, and make it durable."""
        log = self.log
        cleaned = Segment(
            log.disk,
            log.directory,
            group.segments[0].base_offset,
            log.config,
            created_ms=self.now_ms,
            suffix=CLEANED,
            opened=log.opened,
        )
        cleaned.create()
        try:
            self.transactions.keep = cleaned.transactions.append
            for index, segment in enumerate(group.segments):
                end = group.segments[index + 1].base_offset if index + 1 < len(group.segments) else group.end_offset
                self.transactions.add(self.view.aborted(segment.base_offset, end))
                try:
                    self._filter(segment, cleaned)
                except SegmentOffsetOverflow:
                    raise SegmentSpansTooMuch(segment) from None
            cleaned.seal()
            cleaned.sync()
            cleaned.set_modified(group.segments[-1].modified_ms)
        except BaseException:
            cleaned.delete()
            raise
        self.result.segments_read += len(group.segments)
        self.result.segments_written += 1
        self.result.bytes_written += cleaned.size
        return cleaned

    def _filter(self, segment: Segment, cleaned: Segment) -> None:
        keeps_legacy_deletes = segment.modified_ms > self.legacy_horizon_ms
        for data, position in self._chunks(segment, 0):
            done = filter_batches(
                data,
                self.map,
                now_ms=self.now_ms,
                delete_retention_ms=self.log.config.delete_retention_ms,
                should_discard_batch=self.transactions.may_discard,
                last_records=self.last_records,
                retain_legacy_deletes=keeps_legacy_deletes,
                upper_bound_offset=self.found.first_uncleanable_offset,
                base_position=position,
            )
            self.result.bytes_read += done.consumed
            self.result.records_read += done.messages_read
            self.result.records_written += done.messages_retained
            self.result.records_without_key += done.invalid_messages_read
            if done.output:
                cleaned.append([done.output], scan_batches(done.output, verify_crc=False).headers)

    def swap(self, group: Group, cleaned: Segment) -> bool:
        """Put a new segment in the place of its group. Says whether it could: not if the log was truncated
        meanwhile.
        """
        log = self.log
        if log.generation != self.generation or not any(one is group.segments[-1] for one in log.segments):
            cleaned.delete()
            return False
        # What is dropped has a later record of its key, perhaps in a segment that is not on the disk yet.
        log.sync_sealed()
        old = [one for one in group.segments if any(one is known for known in log.segments)]
        try:
            swap_in(log.disk, log.directory, log.segments, old, [cleaned])
            log.forget_segments(old, kept_offset=cleaned.base_offset, now_ms=self.now_ms)
            cleaned.release_if_sealed()  # Nobody has noted that it is open.
            log.publish()
        except BaseException as error:
            raise log.fail_halfway("compaction", error) from None
        return True


def split(log: "PartitionLog", segment: Segment, now_ms: int) -> None:
    """Put segments that fit in the place of one whose offsets do not, unless it is out of the log meanwhile."""
    if any(one is segment for one in log.segments):
        try:
            split_segment(log.disk, log.directory, log.segments, segment, now_ms, log.opened)
            log.delete_now(segment)
        except StorageError as error:
            raise log.fail(error) from None  # perhaps half of it is done
        log.publish()


def has_expired_horizon(log: "PartitionLog", end_offset: int, now_ms: int) -> bool:
    """Whether a batch below `end_offset` has tombstones or a marker whose time has come. Of other batches it
    reads the headers only.
    """
    for segment in log.segments.view.segments[:-1]:
        if segment.base_offset >= end_offset:
            break
        if segment.log.has_horizon(now_ms):
            return True
    return False
