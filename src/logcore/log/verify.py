"""Looking for damage in a partition's directory or a whole log root, without writing a byte.

    batches            sizes, checksums, every record decodes, offsets go forward        verify_segment.py
    .index .timeindex  each entry is what the log has there                              verify_index.py
    .txnindex          each aborted transaction that has records has its entry, each entry its marker
    .snapshot          can be read, and knows nothing of offsets behind its own
    checkpoints        can be read, and agree with where the logs begin and end
    leader epochs      those of the batches
    leftovers          of compactions, deletions, writes and directories that were interrupted: noted

It may run beside a writer in another process. A root without .kafka_cleanshutdown is one that somebody writes to, or
that crashed; the two look the same, and what either leaves unfinished at the end of a log is a note. Everything else is
damage wherever it lies. Damage does not end the check.

Memory: see verify_segment.py; besides, the checkpoints of the root, and a word for each file name of a directory.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from logcore.errors import CorruptCheckpoint, CorruptionError, CorruptionReason, CorruptSnapshot, UsageError

from . import snapshot
from .checkpoints import read_epochs, read_offsets
from .disk import Disk, read_file
from .epochs import LeaderEpochCache
from .finding import Finding, damage, note, of_error
from .names import (
    CLEAN_SHUTDOWN,
    CLEANED,
    CLEANER_CHECKPOINT,
    DELETE_DIRECTORY,
    DELETED,
    EPOCH_CHECKPOINT,
    LOG,
    OFFSET_MAX,
    PARTITION_METADATA,
    RECOVERY_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    START_CHECKPOINT,
    SWAP,
    OffsetFile,
    TopicPartition,
    file_name,
    parse_directory,
    parse_file_name,
)
from .partition_metadata import read_partition_metadata
from .root_files import parse_clean_shutdown, read_meta_properties
from .snapshot_files import SNAPSHOT_BYTES_MAX
from .text_files import SMALL_FILE_BYTES_MAX, read_bytes
from .verify_segment import Progress, Sofar, Surroundings, check_segment

OFFSET_CHECKPOINTS = (RECOVERY_CHECKPOINT, START_CHECKPOINT, REPLICATION_CHECKPOINT, CLEANER_CHECKPOINT)
TEMPORARY = ".tmp"


class Known(NamedTuple):
    """What the files of a root say of one of its logs; None where they say nothing."""

    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    cleaned_offset: int | None = None
    is_clean: bool = False  # the root was closed in order


def _ignore(_: int) -> None:
    pass


class PartitionCheck:
    """The check of one partition. What it learned is in its attributes when run() has ended."""

    def __init__(self, disk: Disk, directory: str, known: Known, progress: Progress | None = None) -> None:
        self.disk = disk
        self.directory = directory
        self.known = known
        self.log_start_offset = known.log_start_offset or 0
        self.log_end_offset = self.log_start_offset
        self.segment_count = 0
        self.size_in_bytes = 0
        self.record_count = 0
        self.topic_id: str | None = None
        # Where the first bad batch is: path, position, and the lowest offset that it can have had.
        self.first_bad: tuple[str, int, int] | None = None
        self._sizes: dict[int, int] = {}  # of the segments, by base offset
        self._progress = progress or _ignore

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def run(self) -> Iterator[Finding]:
        """Everything there is to find."""
        names = self.disk.list(self.directory)
        files = {name: file for name in names if (file := parse_file_name(name)) is not None}
        yield from self._leftovers(names, files)
        yield from self._metadata()
        bases = sorted(file.offset for file in files.values() if file.kind == LOG and not file.suffix)
        for name, file in files.items():
            if file.kind in SEGMENT_SUFFIXES and not file.suffix and file.kind != LOG and file.offset not in bases:
                yield note(self._path(name), "orphan", "no .log belongs to it; opening the log removes it")
        if bases:
            self.log_start_offset = max(self.log_start_offset, bases[0])
        epochs, found = self._epochs()
        yield from found
        yield from self._segments(bases, epochs)
        yield from self._offsets()
        if epochs is not None:
            yield from self._epoch_bounds(epochs)
        yield from self._snapshots(files)
        if not self.known.is_clean and bases:
            point = self.known.recovery_point or 0
            first = max((base for base in bases if base <= point), default=bases[0])
            sizes = [size for base, size in self._sizes.items() if base >= first]
            yield note(
                self.directory, "not_closed", "not closed: a writer has it open, or had when it ended. Opening it reads"
                f" {len(sizes)} of {self.segment_count} segments, {sum(sizes)} bytes, from recovery point {point} on",
                offset=point,
            )  # fmt: skip

    def _leftovers(self, names: list[str], files: dict[str, OffsetFile]) -> Iterator[Finding]:
        cleaned = [file.offset for file in files.values() if file.suffix == CLEANED]
        first_cleaned = min(cleaned, default=OFFSET_MAX + 1)
        for name in names:
            text = None
            file = files.get(name)
            if name.endswith(DELETED):
                text = "to be deleted; opening the log removes it"
            elif name.endswith(TEMPORARY):
                text = "of a write that was not finished; nobody reads it"
            elif file is not None and file.suffix == CLEANED:
                text = "of a compaction that was not finished; opening the log removes it"
            elif file is not None and file.suffix == SWAP:
                text = "of a compaction that was done; opening the log puts it in the place of what it was made of"
                if file.offset >= first_cleaned:
                    text = "of a compaction or split that was not finished; opening the log removes it"
            if text is not None:
                yield note(self._path(name), "leftover", text)

    def _metadata(self) -> Iterator[Finding]:
        path = self._path(PARTITION_METADATA)
        try:
            self.topic_id = read_partition_metadata(self.disk, path)
        except CorruptCheckpoint as error:
            yield of_error(error, path)
            return
        if self.topic_id is None:
            yield note(path, "missing", "nothing says which topic's it is; opening the log writes one")

    def _epochs(self) -> tuple[LeaderEpochCache | None, list[Finding]]:
        path = self._path(EPOCH_CHECKPOINT)
        try:
            entries = read_epochs(self.disk, path)
        except CorruptCheckpoint as error:
            return None, [of_error(error, path)]
        cache = LeaderEpochCache(path, entries)
        if cache.is_dirty:
            text = f"got {len(entries)} entries that contradict each other, wanted epochs and offsets that increase"
            return cache, [damage(path, CorruptionReason.ENTRY_ORDER, text)]
        return cache, []

    def _epoch_bounds(self, epochs: LeaderEpochCache) -> Iterator[Finding]:
        for epoch, start_offset in epochs.entries:
            if start_offset > self.log_end_offset:
                text = (
                    f"epoch {epoch} got start offset {start_offset}, wanted at most the log end {self.log_end_offset}"
                )
                yield self._by_closing(self._path(EPOCH_CHECKPOINT), text)

    def _by_closing(self, path: str, text: str) -> Finding:
        """Damage in a log that was closed; otherwise something that a crash explains."""
        if self.known.is_clean:
            return damage(path, CorruptionReason.MALFORMED, text)
        return note(path, "ahead", f"{text}; opening the log puts it right")

    def _segments(self, bases: list[int], epochs: LeaderEpochCache | None) -> Iterator[Finding]:
        sofar = Sofar()
        last = max((base for base in bases if _log_size(self.disk, self.directory, file_name(base, LOG))), default=0)
        for base_offset in bases:
            around = Surroundings(
                self.log_start_offset,
                self.known.recovery_point or 0,
                self.known.is_clean,
                epochs,
                base_offset >= last,  # those behind it are empty
            )
            done = check_segment(self.disk, self.directory, base_offset, around, sofar, self._progress)
            if done is None:
                continue  # a writer has deleted it meanwhile
            check, findings = done
            yield from findings
            sofar = check.sofar
            sofar.next_offset = max(sofar.next_offset, base_offset)
            self._sizes[base_offset] = check.size
            self.segment_count += 1
            self.size_in_bytes += check.size
            if check.bad_position is not None and self.first_bad is None:
                self.first_bad = check.path, check.bad_position, check.bad_offset
        self.record_count = sofar.record_count
        self.log_end_offset = max(sofar.next_offset, self.log_start_offset if not bases else 0)

    def _offsets(self) -> Iterator[Finding]:
        """The entries of the root's checkpoints, against the log."""
        root, end = os.path.dirname(self.directory), self.log_end_offset
        known = self.known
        for name, offset in (
            (RECOVERY_CHECKPOINT, known.recovery_point),
            (START_CHECKPOINT, known.log_start_offset),
            (REPLICATION_CHECKPOINT, known.high_watermark),
            (CLEANER_CHECKPOINT, known.cleaned_offset),
        ):
            if offset is None:
                continue
            what = f"offset of {os.path.basename(self.directory)} got {offset}, wanted"
            if offset < 0:
                yield damage(f"{root}/{name}", CorruptionReason.MALFORMED, f"{what} 0 or more")
            elif offset > end and name in (RECOVERY_CHECKPOINT, START_CHECKPOINT):
                text = f"{what} at most {end}, where the log ends: what lay behind was flushed, and is lost"
                yield damage(f"{root}/{name}", CorruptionReason.MALFORMED, text)
            elif offset > end:
                yield self._by_closing(f"{root}/{name}", f"{what} at most {end}, where the log ends")

    def _snapshots(self, files: dict[str, OffsetFile]) -> Iterator[Finding]:
        for name, file in files.items():
            if file.kind != SNAPSHOT or file.suffix:
                continue
            path = self._path(name)
            if file.offset > self.log_end_offset:
                text = f"of offset {file.offset}, where the log ends at {self.log_end_offset}; opening it removes this"
                yield note(path, "stray", text, offset=file.offset)
            data = read_file(self.disk, path, SNAPSHOT_BYTES_MAX)
            if data is None:
                continue
            try:
                entries = snapshot.parse(data, path)
            except CorruptSnapshot as error:
                yield of_error(error, path)
                continue
            for number, entry in enumerate(entries):
                known_to = max(entry.last_offset, entry.current_txn_first_offset)
                if known_to >= file.offset or entry.producer_id < 0 or entry.offset_delta < 0:
                    text = (
                        f"entry of producer {entry.producer_id} got offset {known_to}, wanted less than {file.offset}"
                    )
                    position = snapshot.HEADER_BYTES + number * snapshot.ENTRY_BYTES
                    yield damage(path, CorruptionReason.MALFORMED, text, position)


class RootCheck:
    """The check of a log root: its files, and every partition in it."""

    def __init__(self, disk: Disk, directory: str, progress: Progress | None = None) -> None:
        self.disk = disk
        self.directory = directory
        self.partitions: list[PartitionCheck] = []
        self._progress = progress
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self.is_clean = disk.status(self._path(CLEAN_SHUTDOWN)) is not None

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def run(self) -> Iterator[Finding]:
        """Everything there is to find."""
        yield from self.read_files()
        yield from self._small_files()
        found: dict[TopicPartition, str] = {}
        for name in self.disk.list(self.directory):
            status = self.disk.status(self._path(name))
            if status is None:
                continue
            if not status.is_directory:
                if name.endswith(TEMPORARY):
                    yield note(self._path(name), "leftover", "of a write that was not finished; nobody reads it")
                continue
            try:
                partition, kind = parse_directory(name)
            except UsageError:
                yield note(self._path(name), "unknown", "no partition's name; Kafka does not start with it in a root")
                continue
            if kind:
                text = (
                    "is to be deleted; opening the root removes it" if kind == DELETE_DIRECTORY else "is not looked at"
                )
                yield note(self._path(name), "leftover", f"a directory that {text}")
            elif partition in found:
                text = f"got a second directory of {partition} beside {found[partition]}, wanted one"
                yield damage(self._path(name), CorruptionReason.MALFORMED, text)
            else:
                found[partition] = name
        yield from self._strangers(set(found))
        ids: dict[str, tuple[str, str]] = {}
        for partition, name in sorted(found.items()):
            check = PartitionCheck(self.disk, self._path(name), self.known(partition), self._progress)
            try:
                yield from check.run()
            except FileNotFoundError:
                continue  # deleted meanwhile
            self.partitions.append(check)
            if check.topic_id is not None:
                first, other = ids.setdefault(partition.topic, (name, check.topic_id))
                if other != check.topic_id:
                    text = f"topic id got {check.topic_id}, wanted {other}, as {first} has it"
                    yield damage(f"{check.directory}/{PARTITION_METADATA}", CorruptionReason.MALFORMED, text)

    def read_files(self) -> Iterator[Finding]:
        """Read the checkpoints. One that cannot be read is as if it were not there."""
        for name in OFFSET_CHECKPOINTS:
            try:
                self._offsets[name] = read_offsets(self.disk, self._path(name))
            except CorruptCheckpoint as error:
                self._offsets[name] = {}
                yield of_error(error, self._path(name))

    def known(self, partition: TopicPartition) -> Known:
        """What the checkpoints say of a partition, after read_files()."""
        recovery_point, start, high, cleaned = (self._offsets[name].get(partition) for name in OFFSET_CHECKPOINTS)
        return Known(recovery_point, start, high, cleaned, self.is_clean)

    def _small_files(self) -> Iterator[Finding]:
        path = self._path(CLEAN_SHUTDOWN)
        try:
            data = read_bytes(self.disk, path, SMALL_FILE_BYTES_MAX)
            if data is not None:
                parse_clean_shutdown(data, path)
        except CorruptionError as error:
            yield of_error(error, path)
        try:
            read_meta_properties(self.disk, self.directory)
        except CorruptionError as error:
            yield of_error(error, error.path or self.directory)

    def _strangers(self, present: set[TopicPartition]) -> Iterator[Finding]:
        for name in OFFSET_CHECKPOINTS:
            for partition in sorted(set(self._offsets[name]) - present):
                yield note(self._path(name), "stranger", f"names {partition}, which is not in this root")


def check_of(disk: Disk, directory: str, progress: Progress | None = None) -> RootCheck | PartitionCheck:
    """The check of a directory: of a partition, if its name and what is in it say so, else of a root.

    A partition's is told what the root around it says of it. UsageError if it is neither.
    """
    given, directory = directory, os.path.abspath(directory)
    if is_partition(disk, directory):
        partition, _ = parse_directory(os.path.basename(directory))
        root = RootCheck(disk, os.path.dirname(directory))
        for _ in root.read_files():
            pass  # the root's own check tells them
        return PartitionCheck(disk, directory, root.known(partition), progress)
    if not is_root(disk, directory):
        wanted = "a partition's, such as orders-0, or a log root"
        raise UsageError("directory", where=given, got="no files of a log", wanted=wanted)
    return RootCheck(disk, directory, progress)


def is_partition(disk: Disk, directory: str) -> bool:
    """Whether a directory has a partition's name, and nothing in it is a partition's directory."""
    try:
        parse_directory(os.path.basename(directory))
    except UsageError:
        return False
    return not _has_partitions(disk, directory)


def is_root(disk: Disk, directory: str) -> bool:
    """Whether a directory looks like a log root: partitions are in it, or a root's files."""
    root_files = {*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN}
    return _has_partitions(disk, directory) or any(name in root_files for name in disk.list(directory))


def _has_partitions(disk: Disk, directory: str) -> bool:
    for name in disk.list(directory):
        try:
            parse_directory(name)
        except UsageError:
            continue
        status = disk.status(f"{directory}/{name}")
        if status is not None and status.is_directory:
            return True
    return False


def log_bytes(disk: Disk, directory: str) -> int:
    """The bytes of all .log files in a directory and in those of its partitions: what a check will read, about."""
    total = 0
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        status = disk.status(path)
        file = parse_file_name(name)
        if status is not None and status.is_directory:
            total += sum(_log_size(disk, path, inner) for inner in disk.list(path))
        elif status is not None and file is not None:
            total += _log_size(disk, directory, name)
    return total


def _log_size(disk: Disk, directory: str, name: str) -> int:
    file = parse_file_name(name)
    if file is None or file.kind != LOG or file.suffix:
        return 0
    status = disk.status(f"{directory}/{name}")
    return 0 if status is None else status.size
