"""Log: one partition, from any thread of this process.

What is locked: everything that changes the log (append, roll, truncate, delete, retain, the swaps of a compaction,
close) holds the log's lock, one thread at a time. Reading holds none: it works on a view, and never waits for a writer.
flush() holds it only to begin and to end; while the disk works, others append. compact() holds it for its plan and for
each swap.
"""

import errno
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from typing_extensions import Buffer, Self

from logcore._columns import ColumnsStream
from logcore._reader import read_records
from logcore._record import Record
from logcore.errors import StorageError, UsageError
from logcore.log import compaction, retention, truncation
from logcore.log.appending import ORIGINS, AppendResult, Origin
from logcore.log.compaction import CompactionResult
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK
from logcore.log.loader import Recovery
from logcore.log.names import TopicPartition, parse_directory
from logcore.log.partition import PartitionLog
from logcore.log.readonly import ReadOnlyLog
from logcore.log.searching import OffsetAndTimestamp, find_max_timestamp, find_timestamp
from logcore.log.uuids import TopicId, parse_topic_id
from logcore.log.view import Isolation, LogView

from . import roots
from .clock import Clock, system_clock
from .committing import GroupCommit
from .following import Growth, follow, follow_async
from .reading import AnyLog, read_columns
from .roots import Config, SharedRoot

Progress = Callable[[int, int], None]  # told how many bytes are done, of how many

ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")


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
        self._growth = Growth()
        self._commit = GroupCommit(core, self._lock, clock) if isinstance(core, PartitionLog) else None
        self._is_closed = False
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
        if self._is_closed:
            raise UsageError("log", where=self.path, got="a call", wanted="none after close()")
        if isinstance(self._core, ReadOnlyLog):
            self._core.refresh()
        return self._core.view

    def _writable(self) -> PartitionLog:
        """What writes; the lock is held."""
        if self._is_closed:
            raise UsageError("log", where=self.path, got="a call", wanted="none after close()")
        core = self._core
        if not isinstance(core, PartitionLog) or self._shared is None:
            raise UsageError("log", where=self.path, got="a write", wanted="a log that was not opened with read_only")
        self._shared.check_ours()
        core.check_usable()
        return core

    def __len__(self) -> int:
        """How many offsets can be read: the records, but for gaps that transactions and compaction leave."""
        view = self._view()
        return view.log_end_offset - view.log_start_offset

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Iterable[Any],
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
        producer_id, producer_epoch, base_sequence: idempotent: the same batch again is answered with the offsets that
        it
            has (`is_duplicate`), a gap is refused. One append is one batch then

        UsageError for what cannot be a record, a KafkaError for what a broker would refuse, StorageError for the disk.
        """
        with self._lock:
            core = self._writable()
            now_ms = self._clock()
            result = core.append_records(
                records,
                now_ms=now_ms,
                compression=compression,
                timestamp_type=timestamp_type,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )
            core.tick(now_ms)
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
        with self._lock:
            core = self._writable()
            now_ms = self._clock()
            result = core.append_columns(
                columns,
                now_ms=now_ms,
                compression=compression,
                timestamp_type=timestamp_type,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )
            core.tick(now_ms)
        self._growth.tell()
        return result

    def append_batches(self, buffer: Buffer, *, leader_epoch: int, origin: Origin = "leader") -> AppendResult | None:
        """Append encoded batches. Returns None if the buffer has no whole one.

        origin: "leader" takes what a producer sends: checked, numbered, stamped with the epoch; "coordinator" likewise,
            for transaction markers and the like; "follower" and "raft_leader" keep offsets and epochs
        """
        if origin not in ORIGINS:
            raise UsageError("origin", got=repr(origin), wanted=", ".join(ORIGINS))
        with self._lock:
            core = self._writable()
            now_ms = self._clock()
            result = core.append_batches(buffer, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)
            core.tick(now_ms)
        self._growth.tell()
        return result

    def flush(self) -> int:
        """Make all that was appended survive the death of the machine; returns the offset up to which it does.

        Threads that call it together share one sync. A failure ends the log: every later call raises it.
        """
        with self._lock:
            self._writable()
        assert self._commit is not None
        return self._commit.flush()

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty. What lies before it is flushed first."""
        with self._lock:
            self._writable().roll(self._clock())

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch that has `offset` or a later one; the log ends at `offset`. Says whether there was one."""
        with self._lock:
            done = truncation.truncate_to(self._writable(), offset, self._clock())
        self._growth.tell()
        return done

    def delete_records(self, before_offset: int) -> int:
        """Let the log begin at `before_offset` (-1: at its end), for good. Returns the log start offset.

        Segments that lie before it are deleted; records in the first one that is left cannot be read any more.
        """
        with self._lock:
            return retention.delete_records(self._writable(), before_offset, self._clock())

    def retain(self, now_ms: int | None = None) -> int:
        """Delete what retention.ms, retention.bytes and the log start offset let go. Returns how many segments."""
        with self._lock:
            core = self._writable()
            now_ms = self._clock() if now_ms is None else now_ms
            core.tick(now_ms)
            core.maybe_roll_by_time(now_ms)
            return retention.retain(core, now_ms)

    def tick(self, now_ms: int | None = None) -> None:
        """Do what time drives: flush.ms, segment.ms, the removal of deleted files, the expiry of producers."""
        with self._lock:
            core = self._writable()
            now_ms = self._clock() if now_ms is None else now_ms
            core.tick(now_ms)
            core.maybe_roll_by_time(now_ms)

    def _tick_if_open(self) -> None:
        """tick(), for whoever does not know whether somebody closes it just now."""
        with self._lock:
            if not self._is_closed:
                self.tick()

    def _maintain_if_open(self) -> None:
        """Retention, and a compaction if one is due: for the background thread."""
        with self._lock:
            if self._is_closed:
                return
            self.retain()
            is_compacted = self._core.config.is_compacted
        if is_compacted:
            self.compact(only_if_due=True)

    def _core_and_lock(self) -> tuple[PartitionLog, threading.RLock] | None:
        """What a checkpoint of the root needs of it; None if there is nothing to write."""
        core = self._core
        return (core, self._lock) if isinstance(core, PartitionLog) and not self._is_closed else None

    @property
    def dirty_ratio(self) -> float:
        """How much of what a compaction would look at was not compacted before: 0 to 1."""
        with self._lock:
            core = self._writable()
            return compaction.cleanable(core, self._cleaned_offset(core), self._clock()).dirty_ratio

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
        with self._lock:
            core = self._writable()
            now_ms = self._clock() if now_ms is None else now_ms
            if not core.config.is_compacted:
                raise UsageError(
                    "compact", where=self.path, got=f"cleanup.policy={core.config.to_dict()['cleanup.policy']}",
                    wanted="compact, or compact,delete",
                )  # fmt: skip
            core.tick(now_ms)
            found = compaction.cleanable(core, self._cleaned_offset(core), now_ms)
            if only_if_due and not compaction.is_due(core, found):
                return None
        total: CompactionResult | None = None
        while True:
            result = self._compact_once(core, now_ms, memory_bytes, progress, is_first=total is None)
            if result is None:
                return total
            total = result if total is None else compaction.combined(total, result)

    def _compact_once(
        self, core: PartitionLog, now_ms: int, memory_bytes: int | None, progress: Progress | None, *, is_first: bool
    ) -> CompactionResult | None:
        """One pass. None if there is nothing to compact, or the log was cut meanwhile."""
        with self._lock:
            self._writable()
            found = compaction.cleanable(core, self._cleaned_offset(core), now_ms)
            if found.first_dirty_offset >= found.first_uncleanable_offset or not found.dirty_bytes:
                if not is_first or not compaction.has_expired_horizon(core, found.first_uncleanable_offset, now_ms):
                    return None
                found.first_dirty_offset = core.log_start_offset  # Tombstones whose time has come: all over again.
            done = 0
            size = 2 * found.dirty_bytes + found.clean_bytes

            def count(more: int) -> None:
                nonlocal done
                done += more
                if progress is not None:
                    progress(min(done, size), size)

            one = compaction.Pass(
                core, found, now_ms=now_ms, seed=secrets.token_bytes(16), memory_bytes=memory_bytes, progress=count
            )
        end_offset = one.build_map()
        for group in one.groups(end_offset):
            cleaned = one.write(group)
            with self._lock:
                if self._is_closed or not one.swap(group, cleaned):
                    return None
        with self._lock:
            if core.generation == one.generation and self._shared is not None:
                with self._shared.lock:
                    self._shared.root.write_cleaned_offset(core.partition, end_offset)
        one.result.end_offset = end_offset
        return one.result

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, *, isolation: Isolation = "read_uncommitted", max_bytes: int | None = None
    ) -> Iterator[Record]:
        """The records from `offset` on, to the end that is known now. Control records are left out.

        isolation: "read_committed" leaves out records of aborted transactions, and ends before open ones
        max_bytes: end after about so many bytes; the first batch comes in any case

        OffsetOutOfRangeError below the log start offset or above the log end; CorruptBatch at damage, with its place.
        """
        self._view()
        is_committed = _is_committed(isolation)
        view, end_offset = self._core.bounded(isolation)
        view.check_offset(offset)
        return read_records(self._core, view, offset, end_offset, is_committed=is_committed, bytes_max=max_bytes)

    def read_columns(
        self,
        offset: int,
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
        view, bound = self._core.bounded(isolation)
        return read_columns(
            self._core,
            view,
            offset,
            bound if end_offset is None else min(end_offset, bound),
            columns=columns,
            layout=layout,
            is_committed=is_committed,
            bytes_max=max_bytes,
        )

    def follow(
        self, offset: int | None = None, *, isolation: Isolation = "read_uncommitted", timeout: float | None = None
    ) -> Iterator[Record]:
        """The records from `offset` (default: the end) on, and those to come: it waits for more.

        Ends when the log is closed, or `timeout` seconds after the last record. A follower of a log that this process
        writes wakes at once; of one that another process writes, within some 20 ms.
        """
        view = self._view()
        _is_committed(isolation)
        return follow(self._core, self._growth, view.log_end_offset if offset is None else offset, isolation, timeout)

    def follow_async(
        self, offset: int | None = None, *, isolation: Isolation = "read_uncommitted", timeout: float | None = None
    ) -> AsyncIterator[Record]:
        """follow() for asyncio: `async for record in log.follow_async(0)`."""
        view = self._view()
        _is_committed(isolation)
        return follow_async(
            self._core, self._growth, view.log_end_offset if offset is None else offset, isolation, timeout
        )

    def offset_for_timestamp(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record that is not older than `timestamp_ms`, or None."""
        return find_timestamp(self._view(), timestamp_ms)

    def offset_of_max_timestamp(self) -> OffsetAndTimestamp | None:
        """The record with the largest timestamp, the first of them; None if there is none."""
        return find_max_timestamp(self._view())

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Make everything durable and close. Followers end. Again is harmless."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._growth.tell(is_closed=True)
            try:
                if isinstance(self._core, ReadOnlyLog):
                    self._core.close()
                elif self._shared is not None:
                    self._shared.close_log(self._core)
            finally:
                self._on_close()

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
    directory = os.path.abspath(os.fspath(path))
    root, name = os.path.split(directory)
    partition, kind = parse_directory(name)
    if kind:
        raise UsageError("partition directory", got=repr(name), wanted=f"one that is not {kind}")
    settings = LogConfig.of(config)
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
    core = ReadOnlyLog(SYSTEM_DISK, root, partition, config, now_ms=clock())
    return Log(core, clock, Recovery(was_clean=True, end_offset=core.view.log_end_offset), None, lambda: None)
