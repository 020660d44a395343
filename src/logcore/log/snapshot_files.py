"""The `.snapshot` files of a partition's directory: which there are, written, read, and removed.

A snapshot gets its name when it is whole: it is written beside as `.snapshot.tmp` and renamed. Kafka writes in place,
which is as good where there was no file, since the checksum tells a torn one. But where there was one, a crash in the
midst would take that too, and a shorter one written over a longer one would be damaged by what is left of it. A rename
has neither fault and costs a system call a segment. Without a sync the machine's death may still leave a torn file
under its name, and again the checksum tells.

The list is kept in memory. It is made from a listing of the directory, the caller's own if there is one.

**read_only**: nothing is written, renamed or removed; to remove a snapshot then means to look at it no more.
"""

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from contextlib import suppress

from logcore.errors import CorruptionReason, CorruptSnapshot, InvariantError, StorageError, UsageError

from . import snapshot
from .disk import Disk, read_file
from .names import DELETED, SNAPSHOT, file_name, parse_file_name
from .snapshot import SnapshotEntry

TEMPORARY = ".tmp"

# No array of Java's is longer, so Kafka has written no longer one, and could not read it.
SNAPSHOT_BYTES_MAX = 0x7FFFFFFF


class SnapshotFiles:
    """The snapshots of a directory, by offset.

    names: what the directory holds; None to list it
    is_directory_changed: whether names came or went since the owner, who syncs the directory, last set it to False
    """

    __slots__ = ("_disk", "_offsets", "_unsynced", "directory", "is_directory_changed", "read_only")

    def __init__(
        self, disk: Disk, directory: str, *, names: Iterable[str] | None = None, read_only: bool = False
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.read_only = read_only
        self.is_directory_changed = False
        self._offsets: list[int] = []  # sorted
        self._unsynced: set[int] = set()  # part of them: written here, and not synced
        self.reload(names)

    @property
    def offsets(self) -> list[int]:
        """Of all snapshots, lowest first."""
        return list(self._offsets)

    def oldest(self) -> int | None:
        """The lowest offset; None if there is no snapshot."""
        return self._offsets[0] if self._offsets else None

    def latest(self) -> int | None:
        """The highest offset; None if there is no snapshot."""
        return self._offsets[-1] if self._offsets else None

    def path(self, offset: int) -> str:
        """Where the snapshot at `offset` is, or would be."""
        return os.path.join(self.directory, file_name(offset, SNAPSHOT))

    def reload(self, names: Iterable[str] | None = None) -> None:
        """Forget the list and take what the directory holds."""
        found = [parse_file_name(name) for name in self._names(names)]
        self._offsets = sorted({file.offset for file in found if file and file.kind == SNAPSHOT and not file.suffix})
        self._unsynced &= set(self._offsets)

    def write(self, offset: int, entries: Iterable[SnapshotEntry], *, sync: bool) -> str:
        """Write the snapshot at `offset`, in place of one that may be there, and return its path.

        Synced, it survives the machine's death once the directory is synced too. Otherwise sync() does the first.
        """
        if self.read_only:
            raise UsageError("snapshot", where=self.path(offset), got="read_only", wanted="a log open for writing")
        path = self.path(offset)
        temporary = path + TEMPORARY
        data = snapshot.format(entries)
        try:
            file = self._disk.open(temporary, is_writable=True, create=True)
            try:
                file.truncate(0)
                file.append([data])
                if sync:
                    file.sync()
            finally:
                file.close()
            self._disk.rename(temporary, path)
        except StorageError:
            with suppress(StorageError):  # what made the write fail is what the caller is to know
                self._disk.unlink(temporary)
            raise
        self.is_directory_changed = True
        self._unsynced.discard(offset)
        if not sync:
            self._unsynced.add(offset)
        at = bisect_left(self._offsets, offset)
        if self._offsets[at : at + 1] != [offset]:
            self._offsets.insert(at, offset)
        return path

    def sync(self) -> None:
        """Sync what was written without; that of the directory is left to its owner."""
        for offset in sorted(self._unsynced):
            try:
                file = self._disk.open(self.path(offset), is_writable=True)
            except StorageError as error:
                if error.errno != errno.ENOENT:  # somebody else removed it: nothing is left to sync
                    raise
            else:
                try:
                    file.sync()
                finally:
                    file.close()
            self._unsynced.discard(offset)

    def read(self, offset: int) -> list[SnapshotEntry] | None:
        """The entries of a snapshot; None if its file is gone. CorruptSnapshot if it is damaged."""
        path = self.path(offset)
        try:
            data = read_file(self._disk, path, SNAPSHOT_BYTES_MAX)
        except StorageError as error:
            if error.errno == errno.EISDIR:
                return None
            if error.errno != errno.EFBIG:
                raise
            raise CorruptSnapshot(
                "size", reason=CorruptionReason.MALFORMED, wanted=f"up to {SNAPSHOT_BYTES_MAX} bytes", path=path
            ) from None
        return None if data is None else snapshot.parse(data, path)

    def remove(self, offset: int) -> None:
        """Remove a snapshot, if there is one."""
        at = bisect_left(self._offsets, offset)
        if self._offsets[at : at + 1] == [offset]:
            if not self.read_only:
                self._unlink(self.path(offset))
            self._forget(at)

    def remove_before(self, offset: int) -> None:
        """Remove the snapshots below `offset`."""
        for found in self._offsets[: bisect_left(self._offsets, offset)]:
            self.remove(found)

    def remove_outside(self, start_offset: int, end_offset: int) -> None:
        """Remove those at or below `start_offset` and those above `end_offset`.

        [1, 2, 3, 4, 5] with 1 and 3 becomes [2, 3].
        """
        first, end = bisect_right(self._offsets, start_offset), bisect_right(self._offsets, end_offset)
        for found in self._offsets[:first] + self._offsets[max(first, end) :]:
            self.remove(found)

    def remove_stray(self, segment_base_offsets: Iterable[int], names: Iterable[str] | None = None) -> None:
        """List the snapshots anew and remove those that belong to no segment, and what a crash left half-written.

        The highest is kept if it lies above all segments: it was written when the log was closed.
        """
        listed = list(self._names(names))
        self.reload(listed)
        bases = set(segment_base_offsets)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and strays[-1] > max(bases, default=-1):
            strays.pop()
        for offset in strays:
            self.remove(offset)
        if not self.read_only:
            for name in listed:
                file = parse_file_name(name)
                if file and (file.kind, file.suffix) == (SNAPSHOT, TEMPORARY):
                    self._unlink(os.path.join(self.directory, name))

    def mark_deleted(self, offset: int) -> str | None:
        """Rename a snapshot to .deleted and forget it; the path it has now, for whoever removes it later.

        None if there is none, or its file is gone already.
        """
        at = bisect_left(self._offsets, offset)
        if self._offsets[at : at + 1] != [offset]:
            return None
        marked: str | None = None
        if not self.read_only:
            path = self.path(offset)
            marked = path + DELETED
            try:
                self._disk.rename(path, marked)
                self.is_directory_changed = True
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                marked = None
        self._forget(at)
        return marked

    def check_invariants(self) -> None:
        """Raise InvariantError at what cannot be."""
        if self._offsets != sorted(set(self._offsets)):
            raise InvariantError(f"snapshots of {self.directory}: got {self._offsets}, wanted each once and in order")
        if not self._unsynced <= set(self._offsets):
            raise InvariantError(f"snapshots of {self.directory}: got {self._unsynced} unsynced of {self._offsets}")

    def _names(self, names: Iterable[str] | None) -> Iterable[str]:
        if names is not None:
            return names
        try:
            return self._disk.list(self.directory)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return []
            raise

    def _forget(self, at: int) -> None:
        self._unsynced.discard(self._offsets.pop(at))

    def _unlink(self, path: str) -> None:
        try:
            if self._disk.unlink(path):
                self.is_directory_changed = True
        except StorageError as error:
            if error.errno != errno.EISDIR:  # a directory is no snapshot, whatever it is called
                raise
