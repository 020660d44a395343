"""A log root: a directory of partitions, its lock, its checkpoints, and whether it was closed in order.

    .lock                               held while somebody writes: one process a root
    .kafka_cleanshutdown                there only between a close that was in order and the next open
    recovery-point-offset-checkpoint    below it a log is on the disk for sure, and is not read after a crash
    log-start-offset-checkpoint         where a log begins, if that is not where its first segment does
    cleaner-offset-checkpoint           up to where a log is compacted
    replication-offset-checkpoint       high watermarks
    orders-0/ …                         the partitions

The checkpoints are the root's, one entry a partition. A log that is about to do what an entry would contradict after a
crash (to cut itself below its recovery point, to delete what lies before its new start) has the entry written first.

A root that was not closed in order is clean again when all its partitions have been opened and closed since.

What a partition's config is, nobody writes down here, as in Kafka: it is handed in.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from logcore.errors import LogcoreError, StorageError, UnknownTopicOrPartitionError, UsageError

from .checkpoints import read_offsets, write_offsets
from .config import LogConfig
from .disk import Disk, DiskLock
from .loader import Found, Loader, Recovery
from .names import (
    CLEANER_CHECKPOINT,
    DELETE_DIRECTORY,
    LOCK,
    PARTITION_METADATA,
    RECOVERY_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    START_CHECKPOINT,
    TopicPartition,
    check_topic,
    moving_directory,
    parse_directory,
)
from .partition import Keeper, PartitionLog
from .partition_metadata import PartitionMetadata, read_partition_metadata
from .recovery import Progress
from .root_files import UNKNOWN_BROKER_EPOCH, take_clean_shutdown, write_clean_shutdown
from .uuids import TopicId, draw_topic_id

CHECKPOINT_INTERVAL_MS = 60_000  # Kafka's log.flush.offset.checkpoint.interval.ms


@dataclass(frozen=True)
class Chance:
    """Where a root's randomness comes from."""

    draw: Callable[[int], int]  # draw(n): a number from 0 to n - 1
    draw_bytes: Callable[[int], bytes]


class Checkpoint:
    """Offsets of partitions, in memory and in a file of the root. The file is written when something has changed."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.offsets = read_offsets(disk, path)
        self._is_dirty = False

    def get(self, partition: TopicPartition) -> int | None:
        """The offset of a partition, or None."""
        return self.offsets.get(partition)

    def set(self, partition: TopicPartition, offset: int | None) -> None:
        """Note an offset; None removes the entry."""
        if self.offsets.get(partition) != offset:
            if offset is None:
                del self.offsets[partition]
            else:
                self.offsets[partition] = offset
            self._is_dirty = True

    def put(self, disk: Disk, partition: TopicPartition, offset: int) -> None:
        """Note an offset and write the file, or neither."""
        before = self.offsets.get(partition)
        self.set(partition, offset)
        try:
            self.write(disk)
        except BaseException:
            self.set(partition, before)
            raise

    def write(self, disk: Disk) -> None:
        """Write the file, if something has changed."""
        if self._is_dirty:
            write_offsets(disk, self.path, self.offsets)
            self._is_dirty = False


class Root:
    """A log root that is open for writing. One thread at a time calls it."""

    def __init__(self, disk: Disk, directory: str, chance: Chance, now_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.chance = chance
        self.checkpointed_ms = now_ms
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.keeper: Keeper = self  # what logs tell their checkpoints to
        _make_root(disk, directory)
        self._lock: DiskLock = disk.lock(f"{directory}/{LOCK}")
        try:
            self.recovery_points = Checkpoint(disk, f"{directory}/{RECOVERY_CHECKPOINT}")
            self.log_starts = Checkpoint(disk, f"{directory}/{START_CHECKPOINT}")
            self.cleaned = Checkpoint(disk, f"{directory}/{CLEANER_CHECKPOINT}")
            self.high_watermarks = Checkpoint(disk, f"{directory}/{REPLICATION_CHECKPOINT}")
            broker_epoch = take_clean_shutdown(disk, directory)
            self._broker_epoch = UNKNOWN_BROKER_EPOCH if broker_epoch is None else broker_epoch
            # Partitions that were left in disorder, and were not opened and closed since.
            self._unclean = set() if broker_epoch is not None else set(self.partitions())
            if broker_epoch is None:
                # Checkpoints that a dead process has put in place are believed from here on: they must not go back.
                disk.sync_directory(directory)
            self._remove_deleted()
        except BaseException:
            self._lock.release()
            raise

    # --- what there is ----------------------------------------------------------------------------------------------

    def path_of(self, partition: TopicPartition) -> str:
        """The directory of a partition."""
        return f"{self.directory}/{partition}"

    def partitions(self) -> list[TopicPartition]:
        """All partitions, in order. Directories that are to be deleted, or being filled, or strays, are none."""
        return list_partitions(self.disk, self.directory)

    def _remove_deleted(self) -> None:
        for name in self.disk.list(self.directory):
            path = f"{self.directory}/{name}"
            if name.endswith(DELETE_DIRECTORY) and _is_partition(name) and _is_directory(self.disk, path):
                remove_tree(self.disk, path)

    # --- logs -------------------------------------------------------------------------------------------------------

    def open(
        self,
        partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        create: bool,
        topic_id: TopicId | None = None,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[PartitionLog, Recovery]:
        """Open a partition's log, recovering it if the root was not closed in order."""
        if partition in self.logs:
            raise UsageError(
                "log",
                where=self.path_of(partition),
                got="a second open",
                wanted="one at a time: use the Log that is open, close it first, or read with read_only=True",
            )
        check_topic(partition.topic)
        directory = self.path_of(partition)
        is_new = False
        if self.disk.status(directory) is None:
            if not create:
                raise UnknownTopicOrPartitionError(f"partition {partition}: got no directory {directory}, wanted one")
            # One that had its name was removed by hand, or by a process that died then: this one begins at 0.
            self._forget_offsets(partition)
            is_new = self.disk.make_directory(directory)
            # If this fails, the directory is there the next time, and its name not on the disk.
            self._unclean.add(partition)
        metadata = PartitionMetadata.load(self.disk, f"{directory}/{PARTITION_METADATA}", topic_id)
        if metadata.topic_id is None:
            metadata.record(self._topic_id(partition) or draw_topic_id(self.chance.draw_bytes))
        is_changed = metadata.flush(self.disk)
        loader = Loader(
            self.disk,
            directory,
            partition,
            config,
            Found(
                self.log_starts.get(partition) or 0,
                self.recovery_points.get(partition) or 0,
                is_new or partition not in self._unclean,
            ),
            now_ms,
            self.chance.draw,
            repair,
            progress,
        )
        log = loader.load(self.keeper, metadata.topic_id)
        log.is_parent_dirty = is_new or not loader.found.is_clean
        log.is_changed |= is_new or is_changed or not loader.found.is_clean
        self.logs[partition] = log
        if is_new:
            self._unclean.discard(partition)
        return log, loader.recovery

    def _topic_id(self, partition: TopicPartition) -> TopicId | None:
        """That of another partition of the topic: all have the same."""
        for other in self.partitions():
            if other.topic == partition.topic and other != partition:
                found = read_partition_metadata(self.disk, f"{self.path_of(other)}/{PARTITION_METADATA}")
                if found is not None:
                    return found
        return None

    def close_log(self, log: PartitionLog, now_ms: int) -> None:
        """Close one log in order. If that fails, it is recovered when it is opened next."""
        del self.logs[log.partition]
        self._unclean.add(log.partition)
        log.close(now_ms)
        self.note_closed(log)

    def note_closed(self, log: PartitionLog) -> None:
        """A log was closed in order."""
        self.logs.pop(log.partition, None)
        self._unclean.discard(log.partition)
        if log.is_changed:
            self.note(log)
            self._broker_epoch = UNKNOWN_BROKER_EPOCH

    def distrust(self, partition: TopicPartition) -> None:
        """Let the next open of a partition read all of it, as after a crash before anything was flushed."""
        if partition in self.logs:
            raise UsageError("partition to read anew", where=str(partition), got="an open log", wanted="a closed one")
        if self.recovery_points.get(partition):
            self.recovery_points.set(partition, 0)
            self.recovery_points.write(self.disk)
        self._unclean.add(partition)

    def note_failed(self, log: PartitionLog) -> None:
        """A log could not be closed in order, and is recovered when it is opened next."""
        self.logs.pop(log.partition, None)
        self._unclean.add(log.partition)

    def delete(self, partition: TopicPartition) -> None:
        """Delete a partition, for good. It must not be open."""
        if partition in self.logs:
            raise UsageError("partition to delete", where=str(partition), got="an open log", wanted="a closed one")
        directory = self.path_of(partition)
        if self.disk.status(directory) is None:
            raise UnknownTopicOrPartitionError(f"partition {partition}: got no directory {directory}, wanted one")
        unique = self.chance.draw_bytes(16).hex()
        moved = f"{self.directory}/{moving_directory(partition, unique, DELETE_DIRECTORY)}"
        self.disk.rename(directory, moved)
        self.disk.sync_directory(self.directory)
        self._forget_offsets(partition)
        self._unclean.discard(partition)
        self._broker_epoch = UNKNOWN_BROKER_EPOCH
        remove_tree(self.disk, moved)

    def _forget_offsets(self, partition: TopicPartition) -> None:
        """Remove what the checkpoints say of a partition."""
        for checkpoint in (self.recovery_points, self.log_starts, self.cleaned, self.high_watermarks):
            checkpoint.set(partition, None)
            checkpoint.write(self.disk)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def lower_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """See Keeper."""
        known = self.recovery_points.get(partition)
        if known is not None and known > offset:
            self.recovery_points.put(self.disk, partition, offset)

    def lower_cleaned_offset(self, partition: TopicPartition, offset: int) -> None:
        """See Keeper."""
        cleaned = self.cleaned.get(partition)
        if cleaned is not None and cleaned > offset:
            self.cleaned.put(self.disk, partition, offset)

    def write_log_start_offset(self, partition: TopicPartition, offset: int) -> None:
        """See Keeper."""
        self.log_starts.put(self.disk, partition, offset)

    def write_cleaned_offset(self, partition: TopicPartition, offset: int) -> None:
        """Note up to where a log is compacted."""
        self.cleaned.set(partition, offset)
        self.cleaned.write(self.disk)

    def note(self, log: PartitionLog) -> None:
        """Note a log's offsets, to be written with the next write()."""
        self.recovery_points.set(log.partition, log.recovery_point_to_keep)
        self.high_watermarks.set(log.partition, log.high_watermark)
        is_later = log.log_start_offset > log.first_base_offset
        self.log_starts.set(log.partition, log.log_start_offset if is_later else None)

    def checkpoint(self, now_ms: int) -> None:
        """Write down up to where each log is on the disk."""
        for log in self.logs.values():
            log.sync_sealed()
            self.note(log)
        self.write(now_ms)

    def write(self, now_ms: int) -> None:
        """Write the checkpoints that have changed."""
        for checkpoint in (self.log_starts, self.recovery_points, self.high_watermarks):
            checkpoint.write(self.disk)
        self.checkpointed_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Do what time drives: in every log, and the checkpoints."""
        for log in self.logs.values():
            log.tick(now_ms)
        if now_ms - self.checkpointed_ms >= CHECKPOINT_INTERVAL_MS:
            self.checkpoint(now_ms)

    def close(self, now_ms: int) -> None:
        """Close all logs, write the checkpoints and say that all is in order, if it is. The lock goes in any case."""
        failures: list[LogcoreError] = []
        try:
            for log in list(self.logs.values()):
                try:
                    self.close_log(log, now_ms)
                except LogcoreError as error:
                    failures.append(error)
            self.write(now_ms)
            if not self._unclean:
                write_clean_shutdown(self.disk, self.directory, self._broker_epoch)
        finally:
            self._lock.release()
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Let go of the lock and of nothing else: what a forked child does with its copy."""
        self._lock.release()


def _make_root(disk: Disk, directory: str) -> None:
    """Make the directory, and what is missing above it, and let its name survive the machine: no flush does it later.

    So too for one that is empty: whoever made it may have died before.
    """
    made = []
    at = directory
    while at and disk.status(at) is None:
        made.append(at)
        at = os.path.dirname(at)
    disk.make_directory(directory)
    if not made and not disk.list(directory):
        made.append(directory)
    for path in reversed(made):
        disk.sync_directory(os.path.dirname(path) or ".")


def _is_partition(name: str) -> bool:
    try:
        parse_directory(name)
    except UsageError:
        return False
    return True


def list_partitions(disk: Disk, directory: str) -> list[TopicPartition]:
    """The partitions of a log root, in order. UsageError if two directories are one partition."""
    found: dict[TopicPartition, str] = {}
    for name in disk.list(directory):
        if not _is_partition(name):
            continue
        partition, kind = parse_directory(name)
        if kind or not _is_directory(disk, os.path.join(directory, name)):
            continue
        if partition in found:
            raise UsageError(
                "log root",
                where=directory,
                got=f"{found[partition]} and {name}",
                wanted=f"one directory for {partition}",
            )
        found[partition] = name
    return sorted(partition for partition, name in found.items() if name == str(partition))


def _is_directory(disk: Disk, path: str) -> bool:
    status = disk.status(path)
    return status is not None and status.is_directory


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory and what is in it. Of a link to a directory only the link: what it leads to is not ours."""
    try:
        disk.unlink(path)
    except StorageError:
        if not _is_directory(disk, path):
            raise
        for name in disk.list(path):
            remove_tree(disk, f"{path}/{name}")
        disk.remove_directory(path)
