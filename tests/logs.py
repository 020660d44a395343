"""Logs for tests: a partition in a root of its own, on a clock that the test sets, and batches of any offsets.

`Partition` is the engine without the library around it, so that a test can be a follower, set the high watermark, look
at segments, and drop everything on the floor as a killed process does.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from logcore import Record, encode_batch, encode_transaction_marker
from logcore._reader import read_records
from logcore.errors import StorageError
from logcore.log import retention, truncation
from logcore.log.appending import AppendResult
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK, Disk, DiskFile, SystemDisk
from logcore.log.loader import Recovery
from logcore.log.names import TopicPartition
from logcore.log.partition import PartitionLog
from logcore.log.root import Chance, Root
from logcore.log.segment import Segment
from logcore.log.view import Isolation

NAME = TopicPartition("orders", 0)
SMALL = {"index.interval.bytes": 1, "segment.index.bytes": 1200, "message.timestamp.after.max.ms": 2**63 - 1}

Settings = Mapping[str, str | int | bool | float]


def chance() -> Chance:
    return Chance(lambda bound: bound // 2, lambda count: bytes(range(1, count + 1)))


def batch(
    offset: int,
    count: int = 1,
    *,
    timestamp: int = -1,
    value: bytes = b"value",
    key: bytes | None = b"key",
    **more: Any,
) -> bytes:
    """A batch of records at `offset` and behind, all of one time."""
    return encode_batch([(key, value, timestamp)] * count, base_offset=offset, **more)


def produced(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, **more: Any) -> bytes:
    """A batch of an idempotent producer."""
    return batch(
        offset, count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **{"timestamp": 0, **more}
    )


def marker(producer_id: int, *, commit: bool, epoch: int = 0, offset: int = 0, coordinator_epoch: int = 0) -> bytes:
    """The end of a transaction."""
    return encode_transaction_marker(
        producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, offset=offset, timestamp=0
    )


BATCH_BYTES = len(batch(0))  # of one record


class Partition:
    """A partition's log in its own root. `now_ms` is its clock."""

    def __init__(
        self, root: Path, config: Settings | None = None, *, disk: Disk = SYSTEM_DISK, now_ms: int = 0, **more: Any
    ) -> None:
        self.path = root / str(NAME)
        self.disk = disk
        self.now_ms = now_ms
        self.config = LogConfig.of({**SMALL, **(config or {})})
        self.root: Root
        self.log: PartitionLog
        self.recovery: Recovery
        self.open(**more)

    # --- open and close ---------------------------------------------------------------------------------------------

    def open(self, **more: Any) -> None:
        self.root = Root(self.disk, str(self.path.parent), chance(), self.now_ms)
        try:
            self.log, self.recovery = self.root.open(NAME, self.config, now_ms=self.now_ms, create=True, **more)
        except BaseException:
            self.root.abandon()
            raise
        self.log.producers.is_verification_enabled = False

    def close(self) -> None:
        self.root.close(self.now_ms)

    def crash(self) -> None:
        """What the death of the process leaves: nothing is finished, the operating system lets go of the files."""
        for segment in self.log.segments:
            segment.release()
        self.root.abandon()
        del self.log, self.root

    def reopen(self, *, clean: bool = True, **more: Any) -> None:
        if clean:
            self.close()
        else:
            self.crash()
        self.open(**more)

    def __enter__(self) -> Partition:
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "root"):
            with suppress(StorageError):
                self.close()

    # --- writing ----------------------------------------------------------------------------------------------------

    def lead(self, *batches: bytes, epoch: int = 0, **more: Any) -> AppendResult:
        """Append as a leader, which numbers the batches."""
        result = self.log.append_batches(b"".join(batches), leader_epoch=epoch, now_ms=self.now_ms, **more)
        assert result is not None
        return result

    def follow(self, *batches: bytes, epoch: int = 1000) -> AppendResult:
        """Append as a follower, which keeps what the batches say."""
        return self.lead(*batches, epoch=epoch, origin="follower")

    def end(
        self, producer_id: int, *, commit: bool, epoch: int = 0, transaction_version: int = 1, **more: Any
    ) -> AppendResult:
        """Append a marker as a coordinator."""
        control = marker(producer_id, commit=commit, epoch=epoch, **more)
        return self.lead(control, origin="coordinator", transaction_version=transaction_version)

    def fill(self, count: int, *, timestamp: int | None = None) -> None:
        """Append batches of one record each, whose timestamps are ten times their offsets."""
        for _ in range(count):
            offset = self.log.log_end_offset
            self.lead(batch(0, timestamp=10 * offset if timestamp is None else timestamp, value=b"%05d" % offset))

    def roll(self) -> Segment:
        return self.log.roll(self.now_ms)

    def flush(self) -> None:
        self.log.flush(self.now_ms)

    def checkpoint(self) -> None:
        self.root.checkpoint(self.now_ms)

    def truncate_to(self, offset: int) -> bool:
        return truncation.truncate_to(self.log, offset, self.now_ms)

    def truncate_fully(self, offset: int, log_start_offset: int | None = None) -> None:
        truncation.truncate_fully(self.log, offset, self.now_ms, log_start_offset)

    def delete_records(self, offset: int) -> int:
        return retention.delete_records(self.log, offset, self.now_ms)

    def retain(self) -> int:
        return retention.retain(self.log, self.now_ms)

    def configure(self, settings: Settings) -> None:
        """Other settings, for the segments that there are too."""
        self.config = self.log.config = self.log.config.with_changes(settings)
        for segment in self.log.segments:
            segment.config = self.config

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def bases(self) -> list[int]:
        return list(self.log.segments.view.base_offsets)

    @property
    def active(self) -> Segment:
        return self.log.segments.active

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())

    @property
    def snapshots(self) -> list[int]:
        return sorted(int(name.split(".")[0]) for name in self.files if name.endswith(".snapshot"))

    @property
    def epochs(self) -> list[tuple[int, int]]:
        return [tuple(entry) for entry in self.log.epochs.entries]

    def read(self, offset: int, isolation: Isolation = "read_uncommitted") -> list[Record]:
        view, end_offset = self.log.bounded(isolation)
        view.check_offset(offset)
        is_committed = isolation == "read_committed"
        return list(read_records(self.log, view, offset, end_offset, is_committed=is_committed))

    def offsets(self, offset: int, isolation: Isolation = "read_uncommitted") -> list[int]:
        return [record.offset for record in self.read(offset, isolation)]

    def indexes(self) -> dict[str, bytes]:
        """The bytes of all index files."""
        return {name: (self.path / name).read_bytes() for name in self.files if name.endswith("index")}


def segment(
    directory: Path, base_offset: int = 0, config: Settings | None = None, *, now_ms: int = 0, **more: Any
) -> Segment:
    """A new segment, outside of a log."""
    made = Segment(
        SYSTEM_DISK, str(directory), base_offset, LogConfig.of({**SMALL, **(config or {})}), created_ms=now_ms, **more
    )
    made.create()
    return made


def entries(index: Any) -> list[tuple[int, int]]:
    """All entries of an index."""
    return [tuple(index.entry(number)) for number in range(len(index))]


def rebuilt_indexes(one: Segment) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What the indexes of a closed or sealed segment have to be, told by its batches alone."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    since, highest, at = 0, -1, one.base_offset
    _, scan = one.log.chunk(0, one.size, 1 << 30)
    for header in scan.headers:
        last_offset, timestamp = int(header["last_offset"]), int(header["max_timestamp"])
        if timestamp > highest:
            highest, at = timestamp, last_offset
        if since > one.config.index_interval_bytes:
            offsets.append((last_offset, int(header["position"])))
            if highest >= 0 and (not times or highest > times[-1][0]):
                times.append((highest, at))
            since = 0
        since += int(header["size_in_bytes"])
    if highest >= 0 and (not times or highest > times[-1][0]):
        times.append((highest, at))
    return offsets, times


class FailingFile:
    """A file whose next writes or syncs fail as the disk says."""

    def __init__(self, file: DiskFile, disk: FailingDisk) -> None:
        self.__dict__.update(_file=file, _disk=disk)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        if callable(found) and self._disk.is_due(name, self._file.path):
            raise StorageError(name, errno=self._disk.errno, path=self._file.path)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._file, name, value)


class FailingDisk(SystemDisk):
    """The system's disk, that fails calls of one name on paths with one ending: `fail("append", ".txnindex")`."""

    def __init__(self) -> None:
        self.errno = errno.EIO
        self._name = self._ending = ""
        self._after = 0

    def fail(self, name: str, ending: str, *, after: int = 0) -> None:
        self._name, self._ending, self._after = name, ending, after

    def heal(self) -> None:
        self._name = ""

    def is_due(self, name: str, path: str) -> bool:
        if name != self._name or not path.endswith(self._ending):
            return False
        self._after -= 1
        return self._after < 0

    def open(self, path: str, *, is_writable: bool = False, create: bool = False) -> DiskFile:
        if self.is_due("open", path):
            raise StorageError("open", errno=self.errno, path=path)
        return FailingFile(super().open(path, is_writable=is_writable, create=create), self)  # type: ignore[return-value]

    def rename(self, source: str, target: str) -> None:
        if self.is_due("rename", target):
            raise StorageError("rename", errno=self.errno, path=source)
        super().rename(source, target)
