"""The log of one partition: appended to by one thread, read by any, on files that Kafka reads too.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    recovery_point <= log_end_offset       what lies before it survives the machine

One object, one writer: calls that change the log must not overlap (the library puts a lock around them, the broker has
one thread). Readers take `view` and need no lock.

An append either returns, and then its records survive the death of the process; or raises, and then nothing of it is
there. A sync that fails ends the log: nobody knows what of the unsynced data the disk still has, and a second sync
would say that all is well. Every later call raises the same StorageError, and the next open recovers.

What makes a log out of its files is in loader.py; retention and truncation are here, compaction in cleaner.py.
"""

import errno
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from typing_extensions import Buffer

from logcore._batch import summarize
from logcore._encode import encode_columns
from logcore._record import encode_batches
from logcore.errors import (
    InvariantError,
    LogcoreError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    StorageError,
    UsageError,
)

from . import truncation
from .appending import Appendable, AppendResult, Origin, from_encoded, from_follower, from_leader
from .config import LogConfig
from .disk import Disk, DiskFile
from .epochs import EpochEndOffset, LeaderEpochCache
from .feeding import aborted_transaction, producer_batches
from .names import DELETED, OFFSET_MAX, SEGMENT_SUFFIXES, TopicPartition, file_name
from .producer_append import Origin as ProducerOrigin
from .producer_append import ProducerAppend
from .producers import PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS, ProducerState
from .segment import OpenSegments, Segment
from .segments import Segments
from .transactions import CompletedTxn
from .uuids import TopicId
from .verification import NO_GUARD, VerificationGuard
from .view import Isolation, LogView

UNSYNCED_SEGMENTS_MAX = 32  # sealed ones: each has three files open until it is on the disk whole
BATCH_BYTES_MAX = 1 << 20  # of a batch that rows and columns are cut into, if max.message.bytes is not less
TRANSACTION_VERSION = 2  # of markers that a coordinator appends, unless it says otherwise

PRODUCER_ORIGINS: dict[Origin, ProducerOrigin] = {
    "leader": "client",
    "coordinator": "coordinator",
    "raft_leader": "raft_leader",
    "follower": "replication",
}


class Keeper(Protocol):
    """Whoever keeps the checkpoints of the log root: told before the log does what they must not contradict."""

    def lower_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """Make a checkpointed recovery point that is above `offset` durable at `offset`, before the log is cut
        there.
        """
        ...

    def lower_cleaned_offset(self, partition: TopicPartition, offset: int) -> None:
        """The same for the offset up to which it is compacted: what comes behind the cut is not."""
        ...

    def write_log_start_offset(self, partition: TopicPartition, offset: int) -> None:
        """Make a log start offset durable, before segments below it are deleted."""
        ...


class PendingDeletion(NamedTuple):
    """Files that were renamed to .deleted, and are removed at due_ms."""

    due_ms: int
    delete: Callable[[], object]


class Flush(NamedTuple):
    """A flush under way."""

    disk: Disk
    end_offset: int
    segments: list[Segment]
    files: list[DiskFile]
    directories: list[str]

    def run(self) -> None:
        """Sync. Whoever else uses the log may go on meanwhile."""
        for file in self.files:
            file.sync()
        for directory in self.directories:
            self.disk.sync_directory(directory)


class PartitionLog:
    """A partition's log. load() of loader.py makes it."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        segments: Segments,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        keeper: Keeper,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: TopicId | None,
        draw: Callable[[int], int],
        now_ms: int,
        opened: OpenSegments,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.partition = partition
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.keeper = keeper
        self.topic_id = topic_id
        self.opened = opened
        self.draw = draw  # draw(n): a number from 0 to n - 1, from whoever has the randomness
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.written_end_offset = log_end_offset  # less than log_end_offset as long as the log ends with a gap
        self.cut_offset = -1  # where it was last truncated to: its last batch may end before
        self.high_watermark = log_start_offset
        self.is_sole_replica = True  # then what is appended is committed
        self.cuts: list[int] = []  # behind the last record that a truncation has left, each time
        self.failure: StorageError | None = None
        self.flushed_ms = now_ms
        self.expired_ms = now_ms
        self.is_directory_dirty = False
        self.is_parent_dirty = False
        self.is_changed = False  # not what it was when it was opened
        self.least_epoch = 0  # the log was cut: what comes now must not pass for what was there
        self._unsynced: list[Segment] = []  # sealed, and perhaps not synced whole; at most UNSYNCED_SEGMENTS_MAX
        self._begun: list[Flush] = []  # that have not ended: what they are to sync is not on the disk yet
        self._deletions: list[PendingDeletion] = []
        self.view: LogView
        self.publish()

    # --- offsets ----------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Show readers what is there now."""
        if self.is_sole_replica:
            self.high_watermark = self.log_end_offset
        self.high_watermark = min(max(self.high_watermark, self.log_start_offset), self.log_end_offset)
        self.producers.on_high_watermark_updated(self.high_watermark)
        self.view = LogView(
            self.segments.view,
            self.log_start_offset,
            self.log_end_offset,
            self.high_watermark,
            self.last_stable_offset,
            self.segments.active.size,
            self.generation,
        )

    @property
    def generation(self) -> int:
        """How often the log was truncated."""
        return len(self.cuts)

    def check_cut(self, generation: int, end_offset: int) -> None:
        """Raise LogTruncatedError if the log was cut below `end_offset` since `generation`."""
        cut = min(self.cuts[generation:], default=end_offset)
        if cut < end_offset:
            raise LogTruncatedError(
                f"read of {self.partition}: got a log that was truncated to {cut}, wanted records up to {end_offset}",
                offset=cut,
            )

    def view_from(self, offset: int) -> LogView:
        """The log as it is now, for a reader who found a segment of its own deleted."""
        self.check_usable()  # Half of a deletion is done, and what has which name is not known.
        if offset < self.view.log_start_offset:
            raise OffsetOutOfRangeError(
                f"read of {self.partition}: got offset {offset}, wanted {self.view.log_start_offset} or more: "
                "what lay before was deleted"
            )
        return self.view

    def check_epoch(self, last_epoch: int, epoch: int, offset: int) -> None:
        """A reader has come from one leader epoch to another. Here truncations are counted, and need not be guessed."""

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction begins that is open, or whose end is not below the high watermark yet."""
        first = self.producers.first_unstable_offset()
        return None if first is None else max(first.offset, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Up to which offset every transaction has ended."""
        offset = self.first_unstable_offset
        return self.high_watermark if offset is None else min(offset, self.high_watermark)

    def bounded(self, isolation: Isolation) -> tuple[LogView, int]:
        """A view, and the offset up to which `isolation` lets one read it."""
        view = self.view
        return view, view.last_stable_offset if isolation == "read_committed" else view.high_watermark

    def set_high_watermark(self, offset: int) -> int:
        """Set by whoever knows the replicas; kept within the log. Returns what it is now."""
        self.is_sole_replica = False
        self.high_watermark = offset
        self.publish()
        return self.high_watermark

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Move it up to `offset`, if that is up: what a leader does. Says whether it did."""
        if offset > self.log_end_offset:
            raise UsageError(
                "high watermark", where=self.directory, got=offset, wanted=f"at most {self.log_end_offset}"
            )
        if offset <= self.high_watermark:
            return False
        self.set_high_watermark(offset)
        return True

    @property
    def leader_epoch(self) -> int:
        """That of what the library appends: the latest that is known, and a new one after the log was cut."""
        latest = self.epochs.latest_epoch
        return self.least_epoch if latest is None else max(latest, self.least_epoch)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where the largest known epoch up to `epoch` ends in this log: what a leader tells a follower that asks.

        (-1, -1) where nobody knows; see LeaderEpochCache.end_offset_for().
        """
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self.segments.size

    @property
    def first_base_offset(self) -> int:
        """Of its first segment; the log may begin later."""
        return self.segments.first.base_offset

    # --- failures ---------------------------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise what ended the log, if something did."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: StorageError) -> StorageError:
        """End the log because of `error`."""
        if self.failure is None:
            self.failure = StorageError(
                f"log {self.partition} after a failed {error.what}", errno=error.errno or errno.EIO, path=error.path
            )
        return error

    def fail_halfway(self, what: str, error: BaseException) -> BaseException:
        """End the log because `what` was not done whole: the disk refused, or a signal handler has raised.

        What is in memory no longer says what is on the disk; whoever opens the log next does the rest, or none.
        """
        if isinstance(error, StorageError):
            return self.fail(error)
        self.fail(StorageError(what, errno=errno.EINTR, path=self.directory))
        return error

    # --- appending --------------------------------------------------------------------------------------------------

    def append_records(
        self,
        records: Iterable[Any],
        *,
        now_ms: int,
        compression: str | None = None,
        timestamp_type: str | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> AppendResult:
        """Append rows: encoded whole, and cut into batches. With a producer id they must fit one batch."""
        self.check_usable()
        codec, level = self.config.compression_for(compression)
        data = encode_batches(
            records,
            batch_bytes=self._batch_bytes(producer_id),
            base_offset=self.log_end_offset,
            compression=codec,
            level=level,
            timestamp_type=timestamp_type or self.config.timestamp_type,
            now_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            leader_epoch=self.leader_epoch,
            is_transactional=is_transactional,
        )
        return self._append_encoded(data, now_ms, producer_id)

    def append_columns(
        self,
        columns: object,
        *,
        now_ms: int,
        compression: str | None = None,
        timestamp_type: str | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> AppendResult:
        """Append what any Arrow producer has. Offsets among the columns do not count: rows get the log's own."""
        self.check_usable()
        codec, level = self.config.compression_for(compression)
        data = encode_columns(
            columns,
            batch_bytes=self._batch_bytes(producer_id),
            base_offset=self.log_end_offset,
            compression=codec,
            level=level,
            timestamp_type=timestamp_type or self.config.timestamp_type,
            now_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            leader_epoch=self.leader_epoch,
            is_transactional=is_transactional,
            renumber=True,
        )
        return self._append_encoded(data, now_ms, producer_id)

    def _batch_bytes(self, producer_id: int) -> int:
        # A retry is told by its batch, so it must be cut as the first try was: not at all.
        limit = min(self.config.max_message_bytes, self.config.segment_size)
        return max(limit if producer_id >= 0 else min(limit, BATCH_BYTES_MAX), 1)

    def _append_encoded(self, data: bytes, now_ms: int, producer_id: int) -> AppendResult:
        batches = from_encoded(data, self.config, now_ms)
        if producer_id >= 0 and len(batches.headers) > 1:
            raise UsageError(
                "records of a producer", got=f"{len(batches.headers)} batches",
                wanted=f"one, of at most {self.config.max_message_bytes} bytes (max.message.bytes)",
            )  # fmt: skip
        return self._append(batches, "leader", now_ms)

    def append_batches(
        self,
        buffer: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = "leader",
        transaction_version: int = TRANSACTION_VERSION,
        guard: VerificationGuard = NO_GUARD,
    ) -> AppendResult | None:
        """Append batches as a producer sent them, or as a leader has them. None if there is no whole batch.

        origin: "leader" checks and numbers them, as Kafka does what clients send; "coordinator" likewise, but for their
            sequences; "follower" and "raft_leader" keep their offsets
        """
        self.check_usable()
        if origin in ("leader", "coordinator"):
            batches = from_leader(
                buffer,
                self.config,
                first_offset=self.log_end_offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                origin=origin,
            )
        else:
            batches = from_follower(buffer, leader_epoch=leader_epoch, origin=origin)
        if batches is None:
            return None
        if origin in ("follower", "raft_leader") and (
            batches.summary.first_offset < self.log_end_offset
            or (origin == "raft_leader" and batches.summary.first_offset != self.log_end_offset)
        ):
            raise UsageError(
                "offset to append", where=self.directory, wanted=f"{self.log_end_offset} or more",
                got=f"{batches.summary.first_offset} to {batches.summary.last_offset}",
            )  # fmt: skip
        if batches.size_in_bytes > self.config.segment_size:
            raise RecordListTooLargeError(
                f"batches to append: got {batches.size_in_bytes} bytes, wanted at most {self.config.segment_size} "
                "(segment.bytes)"
            )
        return self._append(batches, origin, now_ms, transaction_version, guard)

    def _append(
        self,
        batches: Appendable,
        origin: Origin,
        now_ms: int,
        transaction_version: int = TRANSACTION_VERSION,
        guard: VerificationGuard = NO_GUARD,
    ) -> AppendResult:
        first_offset = self.log_end_offset
        if batches.summary.last_offset >= OFFSET_MAX:  # There is an offset behind each, where the log ends.
            raise UsageError(
                "offset to append", where=self.directory, got=batches.summary.last_offset,
                wanted=f"less than {OFFSET_MAX}",
            )  # fmt: skip
        runs = list(self._runs(batches))
        active, size = self.segments.active, self.segments.active.size
        try:
            for run in runs:
                duplicate = self._append_run(run, origin, now_ms, transaction_version, guard)
                if duplicate is not None:
                    return duplicate
            self.publish()
        except BaseException:
            # An earlier run is in an earlier segment; or a signal handler has raised when the batches were written, and
            # not yet counted.
            now_active = self.segments.active
            if self.log_end_offset != first_offset or now_active.size != (size if now_active is active else 0):
                self._take_back(first_offset, now_ms)
            self.publish()
            raise
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush(now_ms)
        return self._result(batches)

    def _result(self, batches: Appendable) -> AppendResult:
        summary = batches.summary
        return AppendResult(
            summary.first_offset,
            summary.last_offset,
            summary.record_count if summary.record_count >= 0 else None,
            batches.size_in_bytes,
            summary.max_timestamp,
            batches.log_append_time_ms,
            summary.leader_epoch,
            self.log_start_offset,
        )

    def _take_back(self, offset: int, now_ms: int) -> None:
        """Cut off what a failed append has written from `offset` on. If that fails too, the log ends here."""
        if self.view.log_end_offset > offset:
            self.cuts.append(offset)  # A roll has shown readers a part of it.
        try:
            truncation.cut(self, offset, now_ms)
        except StorageError as error:
            self.fail(error)
        except BaseException as error:
            raise self.fail_halfway("append", error) from None

    def _runs(self, batches: Appendable) -> Iterable[Appendable]:
        """`batches` in pieces that fit a segment each. Only what was encoded here can be longer than one."""
        if batches.size_in_bytes <= self.config.segment_size:
            yield batches
            return
        [data] = batches.parts
        view = memoryview(data)
        sizes = batches.headers["size_in_bytes"].astype(np.int64)
        begin = position = 0
        while begin < len(sizes):
            ends = np.cumsum(sizes[begin:])
            count = int(np.searchsorted(ends, self.config.segment_size, side="right"))
            if not count:
                raise RecordListTooLargeError(
                    f"batch to append: got {int(sizes[begin])} bytes, wanted at most {self.config.segment_size} "
                    "(segment.bytes)"
                )
            size = int(ends[count - 1])
            headers = batches.headers[begin : begin + count]
            yield Appendable(
                [view[position : position + size]], headers, summarize(headers), size, batches.log_append_time_ms
            )
            begin, position = begin + count, position + size

    def _append_run(
        self, batches: Appendable, origin: Origin, now_ms: int, transaction_version: int, guard: VerificationGuard
    ) -> AppendResult | None:
        """Append to one segment. Returns what a duplicate is answered with, if it is one."""
        summary = batches.summary
        last_offset = summary.last_offset
        self._assign_epochs(batches)
        segment = self.segments.active
        if segment.should_roll(batches.size_in_bytes, summary.max_timestamp, last_offset, now_ms):
            segment = self.roll(now_ms, batches.roll_offset)
        candidates: dict[int, ProducerAppend] = {}
        completed: list[CompletedTxn] = []
        if summary.has_producer:
            duplicate = self._check_producers(
                batches, segment, origin, transaction_version, guard, candidates, completed
            )
            if duplicate is not None:
                return duplicate
        segment.append(batches.parts, batches.headers, summary)
        self.log_end_offset = self.written_end_offset = last_offset + 1
        # Before the producers change: if the append is taken back, by this they are known to have changed.
        self.producers.map_end_offset = last_offset + 1
        self.is_changed = True
        for candidate in candidates.values():
            self.producers.update(candidate)
        for transaction in completed:
            if transaction.is_aborted:
                segment.transactions.append(aborted_transaction(self.producers, transaction))
                self.is_directory_dirty = True
            self.producers.complete_transaction(transaction)
        return None

    def _assign_epochs(self, batches: Appendable) -> None:
        """Note where a leader epoch begins, on the disk too, before its first batch is written."""
        headers, summary = batches.headers, batches.summary
        if summary.is_one_epoch:
            if summary.leader_epoch >= 0:
                self.epochs.assign(summary.leader_epoch, summary.first_offset)
        else:
            # Most appends are of one epoch: look at those batches only whose epoch is not that of the one before.
            epochs = headers["leader_epoch"]
            for index in (0, *(np.flatnonzero(epochs[1:] != epochs[:-1]) + 1).tolist()):
                self._assign_epoch(headers[index])
        if self.epochs.is_dirty:
            self.epochs.flush(self.disk)
            self.is_directory_dirty = True

    def _assign_epoch(self, header: np.void) -> None:
        if header["magic"] < 2:
            # An older format tells no epochs. Kafka forgets them all then, and truncates by high watermark again.
            self.epochs.clear()
        elif header["leader_epoch"] >= 0:
            self.epochs.assign(int(header["leader_epoch"]), int(header["base_offset"]))

    def _check_producers(
        self,
        batches: Appendable,
        segment: Segment,
        origin: Origin,
        transaction_version: int,
        guard: VerificationGuard,
        candidates: dict[int, ProducerAppend],
        completed: list[CompletedTxn],
    ) -> AppendResult | None:
        """Check every batch of a producer against what is known of it; nothing is changed yet."""
        for batch in producer_batches(batches.headers, batches.parts[0]):
            entry = self.producers.last_entry(batch.producer_id)
            if origin == "leader" and not batch.is_control and entry is not None:
                kept = entry.find_duplicate(batch.producer_epoch, batch.base_sequence, batch.last_sequence)
                if kept is not None:
                    return self._result(batches)._replace(
                        first_offset=kept.first_offset,
                        last_offset=kept.last_offset,
                        log_append_time_ms=kept.timestamp,
                        is_duplicate=True,
                    )
            if origin in ("leader", "coordinator") and batch.is_transactional:
                self.producers.check_verified(
                    batch.producer_id, batch.producer_epoch, guard, is_control=batch.is_control
                )
            candidate = candidates.get(batch.producer_id)
            if candidate is None:
                candidate = self.producers.prepare(batch.producer_id, PRODUCER_ORIGINS[origin])
                candidates[batch.producer_id] = candidate
            done = batch.feed(
                candidate,
                transaction_version=None if origin == "follower" else transaction_version,
                segment_base_offset=segment.base_offset,
                position=segment.size + batch.position,
            )
            if done is not None:
                completed.append(done)
        return None

    # --- segments ---------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int, expected_offset: int = 0) -> Segment:
        """Begin a new segment at the log end, or at `expected_offset` if that is behind it. Returns the active one.

        What lies before it is flushed first: a crash could leave the new segment, and of the old one less than was
        written, and nobody could tell such a hole from one that compaction has left. (Kafka flushes here too, but
        beside the appends, and lives with the hole.) An active segment that is empty and begins there already stays.
        """
        self.check_usable()
        base_offset = max(expected_offset, self.log_end_offset)
        active = self.segments.active
        if base_offset == active.base_offset and not active.size:
            return active
        if base_offset <= active.base_offset:
            raise InvariantError(f"roll of {self.directory} to {base_offset}, behind {active!r}")
        if len(self._unsynced) >= UNSYNCED_SEGMENTS_MAX:
            self.sync_sealed()
        try:
            return self._roll(base_offset, now_ms)
        except LogcoreError:
            raise  # The log has its last segment still, or the new one already.
        except BaseException as error:
            raise self.fail_halfway("roll", error) from None

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        active = self.segments.active
        for kind in SEGMENT_SUFFIXES:
            self.disk.unlink(f"{self.directory}/{file_name(base_offset, kind)}")
        active.seal()
        self.flush(now_ms)
        segment = self.new_segment(base_offset, now_ms)
        segment.create()
        self.is_directory_dirty = True
        self._unsynced.append(active)
        self.segments.add(segment)
        self.producers.map_end_offset = base_offset
        self.producers.take_snapshot(sync=False)
        self.publish()
        return segment

    def new_segment(self, base_offset: int, now_ms: int, suffix: str = "") -> Segment:
        bound = self.config.segment_jitter_bound_ms
        return Segment(
            self.disk,
            self.directory,
            base_offset,
            self.config,
            created_ms=now_ms,
            roll_jitter_ms=self.draw(bound) if bound else 0,
            suffix=suffix,
            opened=self.opened,
        )

    def flush(self, now_ms: int) -> int:
        """Make all records survive the machine. Returns the recovery point: the log end."""
        started = self.begin_flush()
        try:
            started.run()
        except StorageError as error:
            raise self.fail(error) from None
        return self.end_flush(started, now_ms)

    def begin_flush(self) -> "Flush":
        """What flush() has to sync. The log may be appended to while run() of it runs.

        What another flush has begun to sync is synced here too: nobody knows yet whether it will be. That one may be
        under way in another thread, or have been interrupted.
        """
        self.check_usable()
        for segment in self._being_synced():
            segment.is_log_dirty = True
        dirty = [one for one in (*self._unsynced, self.segments.active) if one.is_log_dirty]
        started = Flush(
            self.disk, self.written_end_offset, dirty, [one.file for one in dirty], self._dirty_directories()
        )
        self._begun.append(started)  # First: whatever interrupts this, the next flush does it again.
        for segment in dirty:
            segment.is_log_dirty = False  # What is appended from here on makes it so again.
        self._clear_directories()
        return started

    def end_flush(self, started: "Flush", now_ms: int) -> int:
        """Note that run() has ended well."""
        self.recovery_point = max(self.recovery_point, min(started.end_offset, self.log_end_offset))
        self.flushed_ms = now_ms
        for index, begun in enumerate(self._begun):
            if begun is started:
                del self._begun[: index + 1]  # The ones before it had nothing to sync that it had not.
                break
        return self.recovery_point

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to flush beside what lies behind the recovery point."""
        return bool(self._begun or self.is_directory_dirty or self.is_parent_dirty or self.segments.active.is_log_dirty)

    def _being_synced(self) -> list[Segment]:
        return [segment for flush in self._begun for segment in flush.segments]

    def _dirty_directories(self) -> list[str]:
        """The directories whose entries have changed since they were synced."""
        begun = {directory for flush in self._begun for directory in flush.directories}
        parent = self.directory.rpartition("/")[0] or "/"
        found = []
        if self.is_directory_dirty or self.producers.snapshots.is_directory_changed or self.directory in begun:
            found.append(self.directory)
        if self.is_parent_dirty or parent in begun:
            found.append(parent)
        return found

    def _clear_directories(self) -> None:
        self.is_directory_dirty = self.is_parent_dirty = self.producers.snapshots.is_directory_changed = False

    @property
    def recovery_point_to_keep(self) -> int:
        """What a checkpoint may say. After a truncation inside a batch there is nothing just below the log end.

        Who finds a bad batch there after a crash must not take it for one that was flushed.
        """
        floor = self.segments.floor(self.recovery_point - 1)
        if self.recovery_point != self.cut_offset or floor is None:
            return self.recovery_point
        return floor.base_offset

    def sync_recovered(self, segments: Iterable[Segment]) -> None:
        """Segments that recovery has read: nobody knows whether they are on the disk, and their indexes are new.

        They are synced now, one by one, but for the active one: a flush has the files open of all that it syncs.
        """
        for segment in segments:
            segment.is_log_dirty = True
            if segment is not self.segments.active:
                segment.sync()

    def sync_sealed(self) -> None:
        """Make indexes and snapshots survive the machine too: before the recovery point is checkpointed.

        Kafka trusts what lies below it. The active segment's indexes are made again in any case.
        """
        self.check_usable()
        try:
            for segment in self._being_synced():
                segment.is_log_dirty = True
            for segment in self._unsynced:
                segment.sync()
                if segment is not self.segments.active:
                    segment.release_if_sealed()
            self._unsynced.clear()
            self.producers.snapshots.sync()
            for directory in self._dirty_directories():
                self.disk.sync_directory(directory)
            self._clear_directories()
        except StorageError as error:
            raise self.fail(error) from None

    def tick(self, now_ms: int) -> None:
        """Do what time drives: flush.ms, delayed deletion, the expiry of producers."""
        self.check_usable()
        if self.recovery_point < self.log_end_offset and now_ms - self.flushed_ms >= self.config.flush_ms:
            self.flush(now_ms)
        if now_ms - self.expired_ms >= PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS:
            self.producers.remove_expired(now_ms)
            self.expired_ms = now_ms
        if self._deletions and self._deletions[0].due_ms <= now_ms:
            self._delete_due(now_ms)

    def maybe_roll_by_time(self, now_ms: int) -> bool:
        """Roll an active segment that has been open for segment.ms, so that retention and compaction get at it.

        An append rolls by the timestamps of what it brings. This is for a log that gets nothing.
        """
        active = self.segments.active
        limit = self.config.max_segment_ms - active.roll_jitter_ms
        if not active.size or now_ms - active.created_ms <= limit:
            return False
        self.roll(now_ms)
        return True

    def _delete_due(self, now_ms: int | None) -> None:
        while self._deletions and (now_ms is None or self._deletions[0].due_ms <= now_ms):
            self._deletions.pop(0).delete()  # A file that cannot be removed is tried once, and keeps no other.

    def delete_later(self, segments: list[Segment], now_ms: int) -> None:
        """Rename the files of segments that are out of the log to .deleted, and remove them after a while.

        A reader in another process may have just listed them.
        """
        for segment in segments:
            segment.rename(DELETED)
        self.forget_segments(segments, kept_offset=-1, now_ms=now_ms)
        self.is_directory_dirty = True

    def forget_segments(self, segments: list[Segment], *, kept_offset: int, now_ms: int) -> None:
        """Segments that others have taken the place of are removed after a while; they have the suffix .deleted.

        Their snapshots go too, but for that of the segment that begins where they began.
        """
        self._unsynced = [one for one in self._unsynced if not any(one is gone for gone in segments)]
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in segments:
            segment.release()
            self._deletions.append(PendingDeletion(due_ms, segment.delete))
            if segment.base_offset != kept_offset:
                self._delete_snapshot_later(segment.base_offset, due_ms)
        self.is_changed = True

    def delete_now(self, segment: Segment) -> None:
        """Delete a segment that was split, so that nobody opens it any more.

        A segment of the same base may be compacted before long. Who took that one's .deleted file for this one's would
        miss what the others have of it.
        """
        self._unsynced = [one for one in self._unsynced if one is not segment]
        segment.delete()
        self.is_changed = self.is_directory_dirty = True

    def _delete_snapshot_later(self, offset: int, due_ms: int) -> None:
        snapshot = self.producers.mark_snapshot_for_deletion(offset)
        if snapshot is not None:
            self._deletions.append(PendingDeletion(due_ms, partial(self.disk.unlink, snapshot)))

    def close(self, now_ms: int) -> None:
        """Make everything durable, and close. What opens it next has nothing to repair."""
        if self.failure is not None:
            self.segments.close()
            raise self.failure
        try:
            self._delete_due(None)
            active = self.segments.active
            self._unsynced.append(active)
            self.flush(now_ms)
            if active.has_offset_index and active.has_time_index:
                active.finish()
            else:  # Nothing was appended to it. Kafka takes a segment without indexes for one to recover.
                active.seal()
                self.is_directory_dirty = True
            self.producers.take_snapshot(sync=True)
            if self.epochs.is_dirty:
                self.epochs.flush(self.disk)
                self.is_directory_dirty = True
            self.sync_sealed()
        finally:
            self.segments.close()
