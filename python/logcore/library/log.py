"""Log: one partition, from any thread of this process.

What is locked: everything that changes the log (append, roll, truncate, delete, retain, the swaps of a compaction,
close) holds the log's lock, one thread at a time. Reading holds none: it works on a view, and never waits for a writer.
flush() holds it only to begin and to end; while the disk works, others append. compact() holds it for its plan and for
each swap, and `_compaction` all the while: one compaction at a time, and none that outlives the log.

A change out of the midst of another one by the same thread is refused: by the iterable that append() reads, a signal
handler, a finalizer. The lock would let it in, and what the first one has found out no longer holds.
"""

import errno
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, cast

from typing_extensions import Buffer, Self

from logcore._columns import ColumnsStream
from logcore._reader import read_records
from logcore._record import Record
from logcore.errors import LogcoreError, StorageError, UsageError
from logcore.log import compaction, retention, truncation
from logcore.log.appending import ORIGINS, AppendResult, Origin
from logcore.log.compaction import CompactionResult
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK
from logcore.log.loader import Recovery
from logcore.log.names import TopicPartition
from logcore.log.partition import PartitionLog
from logcore.log.readonly import ReadOnlyLog
from logcore.log.searching import OffsetAndTimestamp, find_max_timestamp, find_timestamp
from logcore.log.segment import Segment
from logcore.log.uuids import TopicId, parse_topic_id
from logcore.log.view import Isolation, LogView

from . import roots
from .arguments import Row, check_clock, moment, moment_or_now, seconds, whole
from .clock import Clock, system_clock
from .committing import GroupCommit
from .directories import absolute, partition_of
from .following import Growth, follow, follow_async
from .reading import AnyLog, read_columns
from .roots import Config, SharedRoot
from .sharing import SharedReadOnlyLog

Progress = Callable[[int, int], None]  # told how many bytes are done, of how many

ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")


Method = TypeVar("Method", bound=Callable[..., Any])


def _change(method: Method) -> Method:
    """A method that changes the log: it has the lock, and no other change is under way."""

    @wraps(method)
    def change(self: "Log", *args: Any, **named: Any) -> Any:
        self._check_ours()  # First: in a forked child nobody is left to let go of the lock.
        with self._lock:
            if self._is_changing:
                raise UsageError(
                    "log", where=self.path, got="a change out of the midst of another one", wanted="one after the other"
                )
            try:
                self._is_changing = True
                return method(self, *args, **named)
            finally:
                self._is_changing = False

    return cast("Method", change)


class SegmentInfo(NamedTuple):
    """A segment of a log, for who wants to look."""

    base_offset: int
    size_in_bytes: int
    path: str


class Log:
    """A partition's log. Made by open_log() and LogRoot.log(); a context manager that closes it.

    A returned append survives the death of the process; flush() and close() make everything before them survive the
    death of the machine. An append that raises leaves nothing of itself.
    """

    def __init__(
        self, core: AnyLog, clock: Clock, recovery: Recovery, shared: SharedRoot | None, on_close: Callable[[], None]
    ) -> None:
        self._core = core
        self._clock = clock
        self._shared = shared
        self._on_close = on_close
        self._lock = threading.RLock()
        self._is_changing = False
        self._compaction = threading.RLock()  # taken before the lock, never after it
        self._is_compacting = False
        self._growth = Growth()
        self._commit = GroupCommit(core, self._lock, clock) if isinstance(core, PartitionLog) else None
        self._is_closed = False
        self._is_finished = False  # somebody has begun to do what that takes,
        self._is_done = False  # and has done it
        self._recovery = recovery

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The partition's directory."""
        return self._core.directory

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._core.partition.partition

    @property
    def topic_id(self) -> str | None:
        """The topic's id, 22 characters, as in partition.metadata; None if there is none."""
        return self._core.topic_id

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._core.config

    @property
    def read_only(self) -> bool:
        """Whether it was opened to be read only."""
        return isinstance(self._core, ReadOnlyLog)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._is_closed

    @property
    def recovery(self) -> Recovery:
        """What opening had to repair; false if that was nothing."""
        return self._recovery

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._view().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._view().log_end_offset

    @property
    def high_watermark(self) -> int:
        """Up to which offset records are committed: the log end, as long as this process is the only replica."""
        return self._view().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Up to which offset every transaction has ended."""
        self._view()
        return self._core.bounded("read_committed")[1]

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size_in_bytes for segment in self.segments)

    @property
    def segments(self) -> list[SegmentInfo]:
        """The segments, in order."""
        return [SegmentInfo(one.base_offset, one.size, one.path) for one in self._view().segments.segments]

    def _view(self) -> LogView:
        self._check_open()
        if isinstance(self._core, ReadOnlyLog):
            self._core.refresh()
        return self._core.view

    def _writable(self) -> PartitionLog:
        """What writes; the lock is held."""
        self._check_open()
        core = self._core
        if not isinstance(core, PartitionLog) or self._shared is None:
            raise UsageError("log", where=self.path, got="a write", wanted="a log that was not opened with read_only")
        core.check_usable()
        return core

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("log", where=self.path, got="a call", wanted="none after close()")

    def _check_ours(self) -> None:
        if self._shared is not None:
            self._shared.check_ours()

    def __len__(self) -> int:
        """How many offsets can be read: the records, but for gaps that transactions and compaction leave."""
        view = self._view()
        return view.log_end_offset - view.log_start_offset

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Iterable[Row],
        *,
        compression: str | None = None,
        timestamp_type: str | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
    ) -> AppendResult:
        """Append records: Record, or (key, value), (key, value, timestamp), (key, value, timestamp, headers).

        They are encoded whole before a byte is written, cut into batches of 1 MiB at most (max.message.bytes if that is
        less), and get the next offsets; a Record's own offset does not count. One without a timestamp gets the clock's.

        compression: "none", "gzip", "snappy", "lz4", "zstd" (default: the config's)
        timestamp_type: "create_time" or "log_append_time" (default: the config's)
        producer_id, producer_epoch, base_sequence: idempotent: the same batch again is answered with the offsets
            that it has (`is_duplicate`), a gap is refused. One append is one batch then

        UsageError for what cannot be a record, a KafkaError for what a broker would refuse, StorageError for the disk.
        """
        result: AppendResult = self._append(
            PartitionLog.append_records,
            records,
            compression=compression,
            timestamp_type=timestamp_type,
            producer_id=whole("producer_id", producer_id),
            producer_epoch=whole("producer_epoch", producer_epoch),
            base_sequence=whole("base_sequence", base_sequence),
        )
        self._growth.tell()
        return result

    def append_columns(
        self,
        columns: object,
        *,
        compression: str | None = None,
        timestamp_type: str | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
    ) -> AppendResult:
        """Append what any Arrow producer has, or a Columns, or a dict of Arrow arrays: columns key, value, timestamp,
        headers.

        No Python object is made for a record. The others as in append().
        """
        result: AppendResult = self._append(
            PartitionLog.append_columns,
            columns,
            compression=compression,
            timestamp_type=timestamp_type,
            producer_id=whole("producer_id", producer_id),
            producer_epoch=whole("producer_epoch", producer_epoch),
            base_sequence=whole("base_sequence", base_sequence),
        )
        self._growth.tell()
        return result

    def append_batches(self, buffer: Buffer, *, leader_epoch: int, origin: Origin = "leader") -> AppendResult | None:
        """Append encoded batches. Returns None if the buffer has no whole one.

        origin: "leader" takes what a producer sends: checked, numbered, stamped with the epoch; "coordinator" likewise,
            for transaction markers and the like; "follower" and "raft_leader" keep offsets and epochs
        """
        if origin not in ORIGINS:
            raise UsageError("origin", got=repr(origin), wanted=", ".join(ORIGINS))
        result: AppendResult | None = self._append(
            PartitionLog.append_batches, buffer, leader_epoch=whole("leader_epoch", leader_epoch), origin=origin
        )
        self._growth.tell()
        return result

    @_change
    def _append(self, append: Callable[..., Any], what: object, **options: Any) -> Any:
        core = self._writable()
        now_ms = moment("now_ms", self._clock())
        core.tick(now_ms)  # Before: if it fails, the append has not been done.
        return append(core, what, now_ms=now_ms, **options)

    def flush(self) -> int:
        """Make all that was appended survive the death of the machine; returns the offset up to which it does.

        Threads that call it together share one sync. A failure ends the log: every later call raises it.
        """
        self._check_writable()
        assert self._commit is not None
        return self._commit.flush()

    @_change
    def _check_writable(self) -> None:
        self._writable()

    def _flush_if_open(self) -> None:
        """flush(), for whoever does not know whether somebody closes it just now."""
        with self._lock:
            if self._is_closed:
                return  # which made it durable
        try:
            self.flush()
        except UsageError:
            if not self._is_closed:
                raise

    @_change
    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty. What lies before it is flushed first."""
        self._writable().roll(self._clock())

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that has `offset` or a later one; the log ends at `offset`. Says whether there was one."""
        done = self._truncate_to(whole("offset to truncate to", offset))
        self._growth.tell()
        return done

    @_change
    def _truncate_to(self, offset: int) -> bool:
        return truncation.truncate_to(self._writable(), offset, self._clock())

    @_change
    def delete_records(self, before_offset: int) -> int:
        """Let the log begin at `before_offset` (-1: at its end), for good. Returns the log start offset.

        Segments that lie before it are deleted; records in the first one that is left cannot be read any more.
        """
        offset = whole("before_offset", before_offset)
        return retention.delete_records(self._writable(), offset, self._clock())

    @_change
    def retain(self, now_ms: int | None = None) -> int:
        """Delete what retention.ms, retention.bytes and the log start offset let go. Returns how many segments."""
        core = self._writable()
        now_ms = moment_or_now(now_ms, self._clock)
        core.tick(now_ms)
        core.maybe_roll_by_time(now_ms)
        return retention.retain(core, now_ms)

    @_change
    def tick(self, now_ms: int | None = None) -> None:
        """Do what time drives: flush.ms, segment.ms, the removal of deleted files, the expiry of producers."""
        core = self._writable()
        now_ms = moment_or_now(now_ms, self._clock)
        core.tick(now_ms)
        core.maybe_roll_by_time(now_ms)

    def _tick_if_open(self) -> None:
        """tick(), for whoever does not know whether somebody closes it just now."""
        with self._lock:
            if not self._is_closed:
                self.tick()

    def _retain_if_open(self) -> None:
        """Retention, for the background thread."""
        with self._lock:
            if not self._is_closed:
                self.retain()

    def _ratio_if_due(self) -> float | None:
        """The dirty ratio if a compaction is due, for the background thread, which takes the dirtiest log first."""
        with self._lock:
            if self._is_closed or not self._core.config.is_compacted:
                return None
            ratio, is_due = self._look(self._clock())
            return ratio if is_due else None

    def _compact_if_open(self) -> None:
        """A compaction, if it is still due."""
        with self._lock:
            if self._is_closed:
                return
        self.compact(only_if_due=True)

    def _core_and_lock(self) -> tuple[PartitionLog, threading.RLock] | None:
        """What a checkpoint of the root needs of it; None if there is nothing to write."""
        core = self._core
        return (core, self._lock) if isinstance(core, PartitionLog) and not self._is_closed else None

    @property
    def dirty_ratio(self) -> float:
        """How much of what a compaction would look at was not compacted before: 0 to 1."""
        return self._look(self._clock())[0]

    @_change
    def _look(self, now_ms: int) -> tuple[float, bool]:
        return self._look_now(now_ms)

    def _look_now(self, now_ms: int) -> tuple[float, bool]:
        """The dirty ratio, and whether a compaction is due."""
        core = self._writable()
        found = self._cleanable(core, now_ms)
        return found.dirty_ratio, compaction.is_due(core, found)

    def _cleanable(self, core: PartitionLog, now_ms: int) -> compaction.Cleanable:
        """What can be compacted. A checkpoint that lies outside of the log is written anew: it must not be believed
        later, when the log has grown beyond it.
        """
        assert self._shared is not None
        found = compaction.cleanable(core, self._cleaned_offset(core), now_ms)
        if found.is_reset:
            with self._shared.lock:
                self._shared.root.write_cleaned_offset(core.partition, found.first_dirty_offset)
        return found

    def _cleaned_offset(self, core: PartitionLog) -> int | None:
        assert self._shared is not None
        with self._shared.lock:
            return self._shared.root.cleaned.get(core.partition)

    def compact(
        self,
        now_ms: int | None = None,
        *,
        only_if_due: bool = False,
        memory_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> CompactionResult | None:
        """Keep of each key only the latest record, in all segments but the active one. None if there was nothing to do.

        The log must have "compact" in its cleanup.policy. A record with a key and no value deletes the key: it stays
        for delete.retention.ms after the compaction that first met it. Others append and read meanwhile.

        only_if_due: only if more than min.cleanable.dirty.ratio is dirty, or something longer than
            max.compaction.lag.ms
        memory_bytes: of the map of keys (log.cleaner.dedupe.buffer.size); with less it takes more passes
        progress: called with the bytes done and the bytes there are
        """
        if memory_bytes is not None:
            memory_bytes = whole("memory_bytes", memory_bytes)
        self._check_ours()
        with self._compaction:
            if self._is_compacting:
                raise UsageError("compact", where=self.path, got="a call out of its progress", wanted="one at a time")
            try:
                self._is_compacting = True
                return self._compact(now_ms, only_if_due, memory_bytes, progress)
            finally:
                self._is_compacting = False

    def _compact(
        self, now_ms: int | None, only_if_due: bool, memory_bytes: int | None, progress: Progress | None
    ) -> CompactionResult | None:
        now_ms = moment_or_now(now_ms, self._clock)
        if only_if_due and not self._is_due(now_ms):
            return None
        total: CompactionResult | None = None
        while True:
            try:
                result = self._compact_once(now_ms, memory_bytes, progress, is_first=total is None)
            except compaction.SegmentSpansTooMuch as error:
                self._split(error.segment, now_ms)
                continue
            if result is None:
                return total
            total = result if total is None else compaction.combined(total, result)

    @_change
    def _is_due(self, now_ms: int) -> bool:
        self._writable().tick(now_ms)
        return self._look_now(now_ms)[1]

    @_change
    def _split(self, segment: Segment, now_ms: int) -> None:
        compaction.split(self._writable(), segment, now_ms)

    def _compact_once(
        self, now_ms: int, memory_bytes: int | None, progress: Progress | None, *, is_first: bool
    ) -> CompactionResult | None:
        """One pass. None if there is nothing to compact, or the log was cut meanwhile."""
        one = self._begin_pass(now_ms, memory_bytes, progress, is_first=is_first)
        if one is None:
            return None
        end_offset = one.build_map()
        for group in one.groups(end_offset):
            cleaned = one.write(group)
            if not self._swap(one, group, cleaned):
                return None
        self._end_pass(one, end_offset)
        one.result.end_offset = end_offset
        return one.result

    @_change
    def _begin_pass(
        self, now_ms: int, memory_bytes: int | None, progress: Progress | None, *, is_first: bool
    ) -> compaction.Pass | None:
        core = self._writable()
        if not core.config.is_compacted:
            raise UsageError(
                "compact", where=self.path, got=f"cleanup.policy={core.config.to_dict()['cleanup.policy']}",
                wanted="compact, or compact,delete",
            )  # fmt: skip
        if is_first:
            core.tick(now_ms)
        found = self._cleanable(core, now_ms)
        if found.first_dirty_offset >= found.first_uncleanable_offset or not found.dirty_bytes:
            if not is_first or not compaction.has_expired_horizon(core, found.first_uncleanable_offset, now_ms):
                return None
            found.first_dirty_offset = core.log_start_offset  # Tombstones whose time has come: all over again.
        done = 0
        size = 2 * found.dirty_bytes + found.clean_bytes

        def count(more: int) -> None:
            nonlocal done
            self._check_open()  # who closes the log waits for this
            done += more
            if progress is not None:
                progress(min(done, size), size)

        return compaction.Pass(
            core, found, now_ms=now_ms, seed=secrets.token_bytes(16), memory_bytes=memory_bytes, progress=count
        )

    @_change
    def _swap(self, one: compaction.Pass, group: compaction.Group, cleaned: Segment) -> bool:
        try:
            self._writable()
        except LogcoreError:
            cleaned.delete()
            raise
        return one.swap(group, cleaned)

    @_change
    def _end_pass(self, one: compaction.Pass, end_offset: int) -> None:
        core = self._writable()
        if core.generation == one.generation and self._shared is not None:
            with self._shared.lock:
                self._shared.root.write_cleaned_offset(core.partition, end_offset)

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(
        self, offset: int | None = None, *, isolation: Isolation = "read_uncommitted", max_bytes: int | None = None
    ) -> Iterator[Record]:
        """The records from `offset` on (default: the log start), to the end that is known now, without control records.

        isolation: "read_committed" leaves out records of aborted transactions, and ends before open ones
        max_bytes: end after about so many bytes; the first batch comes in any case

        OffsetOutOfRangeError below the log start offset or above the log end; CorruptBatch at damage, with its place.
        """
        self._view()
        is_committed = _is_committed(isolation)
        begin = None if offset is None else whole("offset", offset)
        view, end_offset = self._core.bounded(isolation)
        if begin is None:
            begin = view.log_start_offset
        view.check_offset(begin)
        return read_records(
            self._core,
            view,
            begin,
            end_offset,
            is_committed=is_committed,
            bytes_max=None if max_bytes is None else whole("max_bytes", max_bytes),
        )

    def read_columns(
        self,
        offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        columns: Sequence[str] | None = None,
        layout: str = "binary",
        max_bytes: int | None = None,
        end_offset: int | None = None,
    ) -> ColumnsStream:
        """The same as columns: iterate it for Columns, or hand it to pyarrow, polars, DuckDB or pandas as it is.

        columns, layout: as in decode_columns(); end_offset: end before it
        """
        self._view()
        is_committed = _is_committed(isolation)
        begin = None if offset is None else whole("offset", offset)
        view, bound = self._core.bounded(isolation)
        return read_columns(
            self._core,
            view,
            view.log_start_offset if begin is None else begin,
            bound if end_offset is None else min(whole("end_offset", end_offset), bound),
            columns=columns,
            layout=layout,
            is_committed=is_committed,
            bytes_max=None if max_bytes is None else whole("max_bytes", max_bytes),
        )

    def follow(
        self, offset: int | None = None, *, isolation: Isolation = "read_uncommitted", timeout: float | None = None
    ) -> Iterator[Record]:
        """The records from `offset` (default: the end) on, and those to come: it waits for more.

        Ends when the log is closed, or `timeout` seconds after the last record. A follower of a log that this process
        writes wakes at once; of one that another process writes, within some 20 ms.
        """
        first_offset = self._first_offset(offset, isolation)
        return follow(self._core, self._growth, first_offset, isolation, seconds(timeout))

    def _first_offset(self, offset: int | None, isolation: str) -> int:
        """Where a follower begins."""
        view = self._view()
        _is_committed(isolation)
        return view.log_end_offset if offset is None else whole("offset", offset)

    def follow_async(
        self, offset: int | None = None, *, isolation: Isolation = "read_uncommitted", timeout: float | None = None
    ) -> AsyncIterator[Record]:
        """follow() for asyncio: `async for record in log.follow_async(0)`."""
        first_offset = self._first_offset(offset, isolation)
        return follow_async(self._core, self._growth, first_offset, isolation, seconds(timeout))

    def offset_for_timestamp(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record that is not older than `timestamp_ms`, or None."""
        return find_timestamp(self._view(), moment("timestamp_ms", timestamp_ms))

    def offset_of_max_timestamp(self) -> OffsetAndTimestamp | None:
        """The record with the largest timestamp, the first of them; None if there is none."""
        return find_max_timestamp(self._view())

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Make everything durable and close. Followers end, and so does a compaction. Again is harmless."""
        self._begin_close()
        is_ours = False
        try:
            with self._compaction:  # It sees that the log is closed, and ends.
                is_ours = not self._is_finished
                self._finish_close()
        finally:
            if is_ours:
                self._is_done = True
                self._on_close()  # Without a lock of ours: it takes that of a LogRoot, which may just be closing us.

    @_change
    def _begin_close(self) -> None:
        self._is_closed = True
        self._growth.tell(is_closed=True)

    @_change
    def _finish_close(self) -> None:
        """Done by the first who gets here, and waited for by the others."""
        if self._is_finished:
            return
        self._is_finished = True
        if isinstance(self._core, ReadOnlyLog):
            self._core.close()
        elif self._shared is not None:
            self._shared.close_log(self._core)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._is_closed:
            return f"Log({self.path!r}, closed)"
        view = self._core.view
        mode = ", read only" if self.read_only else ""
        count = len(view.segments.segments)
        return (
            f"Log({self.path!r}, offsets {view.log_start_offset} to {view.log_end_offset}, "
            f"{count} segment{'s' * (count != 1)}{mode})"
        )


def _is_committed(isolation: str) -> bool:
    if isolation not in ISOLATIONS:
        raise UsageError("isolation", got=repr(isolation), wanted=" or ".join(map(repr, ISOLATIONS)))
    return isolation == "read_committed"


def open_log(
    path: str | os.PathLike[str],
    *,
    config: Config | None = None,
    read_only: bool = False,
    topic_id: str | None = None,
    clock: Clock = system_clock,
    repair: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Log:
    """Open a partition directory such as data/orders-0, made if it is missing (not when read_only).

    The parent directory is the log root: its lock is taken, its checkpoints are used, and other processes can read but
    not write, until the last log of it is closed. A log that was not closed is recovered; `Log.recovery` says what that
    took.

    config: Kafka's topic settings by name, as {"segment.bytes": 1 << 20, "cleanup.policy": "compact"}
    read_only: never write a byte; a writer may be at work in another process, or none
    topic_id: of partition.metadata, if there is none yet (default: that of other partitions of the topic, or a new one)
    clock: milliseconds since 1970 (default: the system's)
    repair: cut off damage also where it was on the disk for sure, instead of raising CorruptBatch
    progress: called with a number of bytes whenever recovery has read as many more

    LockedError if another process writes to the root.
    """
    directory = absolute(path)
    root = os.path.dirname(directory)
    partition = partition_of(directory)
    settings = LogConfig.of(config)
    check_clock(clock)
    if read_only:
        return open_read_only(root, partition, settings, clock)
    shared = roots.enter(root, clock)
    try:
        return open_shared(
            shared,
            partition,
            settings,
            create=True,
            topic_id=None if topic_id is None else parse_topic_id(topic_id),
            repair=repair,
            progress=progress,
            on_close=shared.leave,
        )
    except BaseException:
        shared.leave()
        raise


def open_shared(
    shared: SharedRoot,
    partition: TopicPartition,
    config: LogConfig,
    *,
    create: bool,
    on_close: Callable[[], None],
    topic_id: TopicId | None = None,
    repair: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Log:
    """A log of a root that this process has open."""
    core, recovery = shared.open(partition, config, create=create, topic_id=topic_id, repair=repair, progress=progress)
    return Log(core, shared.clock, recovery, shared, on_close)


def open_read_only(root: str, partition: TopicPartition, config: LogConfig, clock: Clock) -> Log:
    """A log that is only read."""
    directory = f"{root}/{partition}"
    status = SYSTEM_DISK.status(directory)
    if status is None or not status.is_directory:
        raise StorageError("open", errno=errno.ENOENT if status is None else errno.ENOTDIR, path=directory)
    core = SharedReadOnlyLog(SYSTEM_DISK, root, partition, config, now_ms=clock())
    return Log(core, clock, Recovery(was_clean=True, end_offset=core.view.log_end_offset), None, lambda: None)
