"""The transaction index of a segment: which transactions were aborted by a marker in it.

     0 int16  version             0
     2 int64  producer id
    10 int64  first offset        of the transaction, perhaps in an earlier segment
    18 int64  last offset         of its abort marker, which lies in this segment
    26 int64  last stable offset  when the marker was written: every later aborted transaction begins at or behind it

Big-endian, 34 bytes an entry, ordered by last offset. There is a file only once there is an entry. Readers of committed
records leave out what lies in one of these. Kafka: TransactionIndex.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from logcore.errors import CorruptIndex, CorruptionReason, UsageError

from .disk import Disk, DiskFile
from .names import TXN_INDEX, file_name

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = 34
_VERSION = 0
_CHUNK_BYTES = 4096 * ENTRY_BYTES


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its records lie at first_offset or behind, its marker at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The .txnindex of a segment. Nothing is opened before it is asked for, and nothing made before the first append.

    exists: whether there is a file, where that is known from a listing
    is_writable: False beside a writer in another process, who may add and remove entries at any time
    replayed: entries that somebody who only reads has made from the batches. A writer appends the marker first and the
        entry then, so one who died in between has left a marker without
    """

    __slots__ = (
        "_exists",
        "_file",
        "_is_dirty",
        "_last_offset",
        "base_offset",
        "directory",
        "disk",
        "is_writable",
        "replayed",
        "suffix",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        suffix: str = "",
        exists: bool = True,
        is_writable: bool = True,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.is_writable = is_writable
        self._exists = exists or not is_writable  # who does not write is not told when a file comes
        self._file: DiskFile | None = None
        self._is_dirty = False  # has something that was not synced
        self._last_offset: int | None = None  # of the last entry; None: not known
        self.replayed: list[AbortedTransaction] = []

    @property
    def path(self) -> str:
        """Where the file is, or will be."""
        return f"{self.directory}/{file_name(self.base_offset, TXN_INDEX, self.suffix)}"

    @property
    def size_in_bytes(self) -> int:
        """0 if there is no file."""
        file = self._opened()
        return 0 if file is None else file.size

    def _opened(self, *, to_write: bool = False) -> DiskFile | None:
        file = self._file  # Another thread may let go of it meanwhile.
        if file is None and (to_write or (self._exists and self.disk.status(self.path) is not None)):
            file = self._file = self.disk.open(self.path, is_writable=self.is_writable, create=to_write)
            self._exists = True
        elif file is not None and not self.is_writable:
            file.refresh()
        return file

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry; last offsets must increase."""
        last_offset = self.last_offset
        if last_offset is not None and entry.last_offset <= last_offset:
            raise UsageError(
                "last offset of an aborted transaction", where=self.path, got=entry.last_offset,
                wanted=f"more than {last_offset}",
            )  # fmt: skip
        file = self._opened(to_write=True)
        assert file is not None
        self._is_dirty = True
        file.append([_ENTRY.pack(_VERSION, *entry)])
        self._last_offset = entry.last_offset

    @property
    def last_offset(self) -> int | None:
        """That of the last entry, or None."""
        if self._last_offset is None:
            file = self._opened()
            count = 0 if file is None else file.size // ENTRY_BYTES
            if count and file is not None:
                position = (count - 1) * ENTRY_BYTES
                self._last_offset = self._parse(file.read(position, ENTRY_BYTES), 0, position).last_offset
        return self._last_offset

    def _parse(self, data: bytes, at: int, position: int) -> AbortedTransaction:
        if len(data) - at < ENTRY_BYTES:
            raise CorruptIndex(
                "size", reason=CorruptionReason.ENTRY_SIZE, got=f"{len(data) - at} bytes", wanted=f"{ENTRY_BYTES}",
                path=self.path, position=position,
            )  # fmt: skip
        version, *fields = _ENTRY.unpack_from(data, at)
        if version != _VERSION:
            raise CorruptIndex(
                "version",
                reason=CorruptionReason.VERSION,
                got=version,
                wanted=_VERSION,
                path=self.path,
                position=position,
            )
        return AbortedTransaction(*fields)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        """Every entry, read a piece at a time, and those that were replayed. CorruptIndex at one that cannot be."""
        position = 0
        last_offset = -1
        file = self._opened()
        size = 0 if file is None else file.size
        while file is not None and position < size:
            data = file.read(position, min(_CHUNK_BYTES, size - position))
            for at in range(0, max(len(data), 1), ENTRY_BYTES):
                entry = self._parse(data, at, position + at)
                last_offset = entry.last_offset
                yield entry
            position += len(data)
        for entry in self.replayed:
            if entry.last_offset > last_offset:
                yield entry

    def collect(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that touch [first_offset, end_offset).

        And whether that is all: if not, the next segment's index has to be asked too.
        """
        found = []
        for entry in self:
            if entry.last_offset >= first_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Keep the entries whose marker lies before `offset`."""
        file = self._opened()
        if file is None:
            return
        kept = 0
        for entry in self:
            if entry.last_offset >= offset:
                break
            kept += ENTRY_BYTES
        self._is_dirty = True
        file.truncate(kept)
        self._last_offset = None

    def clear(self) -> None:
        """Forget every entry. Damage does not matter."""
        file = self._opened()
        if file is not None:
            self._is_dirty = True
            file.truncate(0)
        self._last_offset = None

    def check(self) -> None:
        """Raise CorruptIndex if an entry cannot be: of a marker before this segment, or before the one before."""
        last_offset = self.base_offset - 1
        for number, entry in enumerate(self):
            if entry.last_offset <= last_offset:
                raise CorruptIndex(
                    "last offset", reason=CorruptionReason.ENTRY_ORDER, got=entry.last_offset,
                    wanted=f"more than {last_offset}", path=self.path, position=number * ENTRY_BYTES,
                )  # fmt: skip
            last_offset = entry.last_offset

    def sync(self) -> None:
        """Make the entries survive the machine, if there are any that are not known to."""
        if self._is_dirty:
            file = self._opened()
            if file is not None:
                file.sync()
            self._is_dirty = False

    def rename(self, directory: str, suffix: str) -> bool:
        """Give the file another place; says whether there is one. Where it will be made, if there is none yet."""
        before = self.path
        has_file = self._file is not None or (self._exists and self.disk.status(before) is not None)
        self.directory, self.suffix = directory, suffix
        if has_file and before != self.path:
            self.disk.rename(before, self.path)
        if self._file is not None:
            self._file.path = self.path
        return has_file

    def moved(self, directory: str) -> None:
        """The whole directory has another name now."""
        self.directory = directory
        if self._file is not None:
            self._file.path = self.path

    def delete(self) -> bool:
        """Remove the file; says whether there was one."""
        self.close()
        self._exists = False
        return self.disk.unlink(self.path)

    def close(self) -> None:
        """Let go of the file: it is closed when the last reader has, too. The next call opens it again."""
        self._file = self._last_offset = None

    def __repr__(self) -> str:
        return f"TransactionIndex({self.path!r})"
