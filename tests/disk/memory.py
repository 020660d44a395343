"""MemoryDisk: the seam of logcore.log.disk over a file system in memory.

It answers and refuses as SystemDisk does on Linux, down to errno and the order of checks: a test of one is a test of
the other. There is one root, and relative paths begin there too. There are no links and no permissions. `fileno()` is
missing, as it is from the seam.

    disk = MemoryDisk(clock=lambda: now_ms, capacity_bytes=1 << 20)
    reader = disk.as_process(2)        the same files, for another process: its locks are its own

What differs from a real disk, on purpose:

- A mapping of a file that is cut under it would end the process with SIGBUS when it is looked at. Here the cut is
  refused, with InvariantError. A view of before a resize() that made the file shorter shows POISON there.
- Only bytes that were written count against `capacity_bytes`: no names, no nodes, no zeros that were never written.
"""

from __future__ import annotations

import copy
import errno
import operator
import os
import posixpath
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NoReturn, SupportsIndex, TypeVar

from typing_extensions import Buffer

from logcore.errors import LockedError, StorageError, UsageError, UsageTypeError
from logcore.log.disk import FileStatus
from tests.disk.volume import DirectoryNode, FileNode, LentBytes, Node, Volume

FILE_BYTES_MAX = 0x7FFFFFFFFFFFFFFF
SEND_BYTES_MAX = 0x7FFFF000  # of one sendfile: what Linux takes
NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4095

_Disk = TypeVar("_Disk", bound="MemoryDisk")


def _checked(what: str, value: SupportsIndex, low: int, high: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageTypeError(what, got=type(value).__name__, wanted="an int")
    number = operator.index(value)
    if not low <= number <= high:
        raise UsageError(what, got=number, wanted=f"{low} to {high}")
    return number


def _refuse(what: str, code: int, path: str) -> NoReturn:
    raise StorageError(what, errno=code, path=path)


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[tuple[str, ...], bool]:
    """The names of a path, and whether it ends like a directory's. "." at the end stays: it cannot be renamed."""
    names = [name for name in path.split("/") if name]
    ends_like_directory = path.endswith("/") or names[-1:] in (["."], [".."])
    return (*(name for name in names[:-1] if name != "."), *names[-1:]), ends_like_directory


class MemoryFile:
    """An open file of a MemoryDisk: logcore._file.File, in Python."""

    def __init__(self, disk: MemoryDisk, node: Node, path: str, is_writable: bool) -> None:
        self.path = path
        self.size = self._end = node.length
        self.is_writable = is_writable
        self._volume = disk.volume
        self._process = disk.process
        self._node = node
        self._is_open = True
        self._is_torn = False
        node.opens += 1

    def _file(self, *, to_write: bool) -> FileNode:
        """The node of a file that may be used so. No directory is ever opened to be written."""
        if not self._is_open:
            raise UsageError("file", where=self.path, got="a call", wanted="none after close()")
        if to_write and not self.is_writable:
            raise UsageError("file", where=self.path, got="a write", wanted="a file that was opened to be written")
        return self._node  # type: ignore[return-value]

    def append(self, parts: Iterable[Buffer]) -> int:
        """See DiskFile."""
        begin = self.size
        node = self._file(to_write=True)
        if self._is_torn:
            self._mend()
        self._is_torn = True
        try:
            data = b"".join(parts)
            if data:
                self._volume.write(node, begin, data, self.path)
        except BaseException:
            if not self._volume.is_dead:
                with suppress(StorageError):  # append() tries again, and fails if it cannot be
                    self._mend()
            raise
        self._is_torn = False
        self.size = begin + len(data)
        self._end = max(self._end, self.size)
        return begin

    def write(self, position: int, data: bytes) -> None:
        """See DiskFile."""
        at = _checked("position", position, 0, self._end)
        node = self._file(to_write=True)
        if len(data) > self._end - at:
            raise UsageError(
                "write",
                where=self.path,
                got=f"{len(data)} bytes at {at}",
                wanted=f"none behind the end at {self._end}",
            )
        if data:
            self._volume.write(node, at, bytes(data), self.path)

    def _mend(self) -> None:
        """Cut off what a failed append left, and preallocate again what was."""
        end = self._end
        self._set_length(self.size)
        self._is_torn = False
        if end > self.size:
            self._set_length(end)

    def _set_length(self, length: int) -> None:
        self._volume.set_length(self._file(to_write=True), length, self.path)
        self._end = length

    def truncate(self, size: int) -> None:
        """See DiskFile."""
        kept = _checked("size", size, 0, self.size)
        self._set_length(kept)
        self.size = kept
        self._is_torn = False

    def preallocate(self, size_in_bytes: int) -> None:
        """See DiskFile."""
        length = _checked("size_in_bytes", size_in_bytes, 0, FILE_BYTES_MAX)
        self._file(to_write=True)
        if length > self._end:
            self._set_length(length)

    def set_size(self, size: int) -> None:
        """See DiskFile."""
        known = _checked("size", size, 0, self._end)
        self._file(to_write=False)
        self.size = known

    def refresh(self) -> int:
        """See DiskFile."""
        self.size = self._end = self._file(to_write=False).length
        return self.size

    def read(self, position: int, size: int) -> bytes:
        """See DiskFile."""
        at = _checked("position", position, 0, FILE_BYTES_MAX)
        most = _checked("size", size, 0, FILE_BYTES_MAX)
        self._file(to_write=False)
        most = min(most, self.size - at)
        if most <= 0:
            return b""
        if isinstance(self._node, DirectoryNode):
            _refuse("read", errno.EISDIR, self.path)
        return self._node.read(at, most)

    def sync(self) -> None:
        """See DiskFile."""
        self._volume.sync(self._file(to_write=True), self.path)

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """See DiskFile. Here with a copy."""
        out = _checked("descriptor", descriptor, 0, 0x7FFFFFFF)
        at = _checked("position", position, 0, FILE_BYTES_MAX)
        most = _checked("size", size, 0, FILE_BYTES_MAX)
        data = self.read(at, min(most, SEND_BYTES_MAX))
        return os.write(out, data) if data else 0

    def close(self) -> None:
        """See DiskFile. A process that is dead cuts nothing off."""
        if not self._is_open:
            return
        try:
            if self.is_writable and (self._end > self.size or self._is_torn) and not self._volume.is_dead:
                self._set_length(self.size)
        finally:
            self._is_open = False
            self._node.opens -= 1
            if isinstance(self._node, FileNode):
                if self._node.lock_holder == self._process:
                    self._node.lock_holder = None  # so it is with POSIX locks: any close() of the file lets go
                self._volume.forget_if_unused(self._node)

    def __repr__(self) -> str:
        return f"MemoryFile({self.path!r}, {f'{self.size} bytes' if self._is_open else 'closed'})"


class MemoryMapping:
    """A mapped file of a MemoryDisk: logcore._file.MappedFile, in Python."""

    def __init__(self, disk: MemoryDisk, path: str, size_in_bytes: int, is_writable: bool) -> None:
        self._file = disk.open(path, is_writable=is_writable, create=is_writable)
        self.is_new = self._file.size == 0
        if is_writable and self.is_new:
            self._file.preallocate(size_in_bytes)
        if isinstance(self._file._node, DirectoryNode):
            self._file.close()
            _refuse("map", errno.ENODEV, path)
        self._node = self._file._node
        self._view = self._map()

    def _map(self) -> LentBytes:
        view = LentBytes(self._file._end)
        front = self._node.data[: len(view)]
        view[: len(front)] = front
        self._node.mappings[:] = [other for other in self._node.mappings if other() is not None]
        self._node.mappings.append(weakref.ref(view))
        return view

    def view(self) -> Buffer:
        """See DiskMapping."""
        if not self._file._is_open:
            raise UsageError("mapped file", where=self.path, got="a look", wanted="none after close()")
        return self._view

    def __len__(self) -> int:
        return len(self._view) if self._file._is_open else 0

    @property
    def path(self) -> str:
        """As given; whoever renames the file sets it."""
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def write(self, position: int, data: bytes) -> None:
        """See DiskMapping."""
        self._file.write(position, data)

    def resize(self, size_in_bytes: int) -> None:
        """See DiskMapping."""
        length = _checked("size_in_bytes", size_in_bytes, 0, FILE_BYTES_MAX)
        self._file._file(to_write=True)
        self._view.is_current = False
        try:
            self._file._set_length(length)
            self._file.size = min(self._file.size, length)
        finally:
            if len(self._view) == self._file._end:
                self._view.is_current = True
            else:
                self._view = self._map()

    def flush(self) -> None:
        """See DiskMapping."""
        self._file.sync()

    def close(self) -> None:
        """See DiskMapping."""
        self._view.is_current = False
        self._file.size = self._file._end
        self._file.close()

    def __repr__(self) -> str:
        return f"MemoryMapping({self.path!r}, {f'{len(self)} bytes' if self._file._is_open else 'closed'})"


class MemoryLock:
    """A lock of a MemoryDisk: logcore.log.disk.RecordLock, of the process that the disk was made for."""

    def __init__(self, disk: MemoryDisk, file: MemoryFile) -> None:
        self._disk = disk
        self._file = file

    @property
    def is_ours(self) -> bool:
        """Whether it was not let go of yet."""
        return self._file._is_open

    def release(self) -> None:
        """See DiskLock. The file goes first, as RecordLock says."""
        if self._file._is_open:
            try:
                if not self._disk.volume.is_dead:
                    with suppress(StorageError):
                        self._disk.unlink(self._file.path)
            finally:
                self._file.close()


class MemoryDisk:
    """A file system in memory, as the process `process` sees it. Implements logcore.log.disk.Disk.

    clock: the time in milliseconds, for what is modified
    capacity_bytes: how much can be written to it; None for as much as there is memory. It may be set at any time
    """

    def __init__(
        self, *, clock: Callable[[], int] = lambda: 0, capacity_bytes: int | None = None, process: int = 1
    ) -> None:
        self.volume = Volume(clock, capacity_bytes)
        self.process = process

    @property
    def capacity_bytes(self) -> int | None:
        """How much can be written to it."""
        return self.volume.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int | None) -> None:
        self.volume.capacity_bytes = capacity_bytes

    @property
    def used_bytes(self) -> int:
        """How much of the capacity is used."""
        return self.volume.used_bytes

    def as_process(self: _Disk, process: int) -> _Disk:
        """The same files for another process."""
        other = copy.copy(self)
        other.process = process
        return other

    # ------------------------------------------------------------------------------------------------------- the seam

    def open(self, path: str, *, is_writable: bool = False, create: bool = False) -> MemoryFile:
        """See Disk."""
        return self._open("open", path, is_writable, create)

    def _open(self, what: str, path: str, is_writable: bool, create: bool) -> MemoryFile:
        parent, name, node = self._find(what, path)
        if create and path.endswith("/"):
            _refuse(what, errno.EISDIR, path)
        if node is None:
            if not create:
                _refuse(what, errno.ENOENT, path)
            node = self.volume.make_file()
            self.volume.change("create", path, (parent, name, node))
        if isinstance(node, DirectoryNode):
            if is_writable or create:
                _refuse(what, errno.EISDIR, path)
        elif _split(path)[1]:
            _refuse(what, errno.ENOTDIR, path)
        return MemoryFile(self, node, path, is_writable)

    def map(self, path: str, size_in_bytes: int, *, is_writable: bool = False) -> MemoryMapping:
        """See Disk."""
        return MemoryMapping(self, path, size_in_bytes, is_writable)

    def list(self, directory: str) -> list[str]:
        """See Disk."""
        return sorted(self._directory("list", directory).entries)

    def status(self, path: str) -> FileStatus | None:
        """See Disk."""
        try:
            _, _, node = self._find("stat", path)
        except StorageError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise
        if node is None or (isinstance(node, FileNode) and _split(path)[1]):
            return None
        return FileStatus(node.length, node.modified_ms, isinstance(node, DirectoryNode), node.number)

    def rename(self, source: str, target: str) -> None:
        """See Disk. The checks are in the order of the kernel's."""
        from_parent, from_name, node = self._find("rename", source)
        to_parent, to_name, replaced = self._find("rename", target, named=source)
        if from_name in ("", ".", "..") or to_name in ("", ".", ".."):
            _refuse("rename", errno.EBUSY, source)
        if node is None:
            _refuse("rename", errno.ENOENT, source)
        is_directory = isinstance(node, DirectoryNode)
        if not is_directory and (source.endswith("/") or target.endswith("/")):
            _refuse("rename", errno.ENOTDIR, source)
        if to_parent.is_within(node):
            _refuse("rename", errno.EINVAL, source)
        if from_parent.is_within(replaced):
            _refuse("rename", errno.ENOTEMPTY, source)
        if node is replaced:
            return
        if replaced is not None and is_directory != isinstance(replaced, DirectoryNode):
            _refuse("rename", errno.ENOTDIR if is_directory else errno.EISDIR, source)
        if isinstance(replaced, DirectoryNode) and replaced.entries:
            _refuse("rename", errno.ENOTEMPTY, source)
        self.volume.change(
            "rename", f"{source} -> {target}", (from_parent, from_name, None), (to_parent, to_name, node)
        )

    def unlink(self, path: str) -> bool:
        """See Disk."""
        parent, name, node = self._find_to_remove("unlink", path)
        if node is None:
            return False
        if isinstance(node, DirectoryNode):
            _refuse("unlink", errno.EISDIR, path)
        if path.endswith("/"):
            _refuse("unlink", errno.ENOTDIR, path)
        self.volume.change("unlink", path, (parent, name, None))
        return True

    def make_directory(self, path: str) -> bool:
        """See Disk. As os.makedirs(): one after the other, and what was made stays when the next is refused."""
        above, name = posixpath.split(path)
        if not name:
            above, name = posixpath.split(above)
        if above and name and not self._exists(above):
            try:
                self.make_directory(above)
            except StorageError as error:
                if error.errno != errno.EEXIST:
                    _refuse("make directory", error.errno or errno.EIO, path)
            if name == ".":
                return True
        parent, name, node = self._find("make directory", path)
        if isinstance(node, DirectoryNode):
            return False
        if node is not None:
            _refuse("make directory", errno.EEXIST, path)
        self.volume.change("make directory", path, (parent, name, self.volume.make_directory()))
        return True

    def remove_directory(self, path: str) -> bool:
        """See Disk."""
        parent, name, node = self._find_to_remove("remove directory", path)
        if node is None:
            return False
        if name in ("", ".", ".."):
            code = {"": errno.EBUSY, ".": errno.EINVAL, "..": errno.ENOTEMPTY}[name]
            _refuse("remove directory", code, path)
        if not isinstance(node, DirectoryNode):
            _refuse("remove directory", errno.ENOTDIR, path)
        if node.entries:
            _refuse("remove directory", errno.ENOTEMPTY, path)
        self.volume.change("remove directory", path, (parent, name, None))
        return True

    def sync_directory(self, path: str) -> None:
        """See Disk."""
        self.volume.sync_directory(self._directory("sync directory", path), path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """See Disk."""
        _, _, node = self._find("set time of", path)
        if node is None:
            _refuse("set time of", errno.ENOENT, path)
        if isinstance(node, FileNode) and _split(path)[1]:
            _refuse("set time of", errno.ENOTDIR, path)
        self.volume.set_modified(node, modified_ms, path)

    def lock(self, path: str) -> MemoryLock:
        """See Disk. The process may take it twice, and then has lost it when it lets go once: as with POSIX locks."""
        file = self._open("lock", path, True, True)
        node = file._node
        assert isinstance(node, FileNode)
        if node.lock_holder not in (None, self.process):
            holder = node.lock_holder
            file.close()
            raise LockedError(path, holder=holder)
        node.lock_holder = self.process
        return MemoryLock(self, file)

    # ----------------------------------------------------------------------------------------------------- for a test

    def tree(self, path: str = "/") -> dict[str, bytes | None]:
        """Everything below `path`: what each file holds, and None for a directory. Paths begin below `path`."""
        found: dict[str, bytes | None] = {}

        def walk(directory: DirectoryNode, prefix: str) -> None:
            for name, node in sorted(directory.entries.items()):
                if isinstance(node, DirectoryNode):
                    found[prefix + name] = None
                    walk(node, f"{prefix}{name}/")
                elif isinstance(node, FileNode):
                    found[prefix + name] = node.read(0, node.length)

        walk(self._directory("list", path), "")
        return found

    def copy_in(self, source: str | Path, path: str) -> None:
        """Take the files of a real directory, with their times."""
        self.make_directory(path)
        for entry in sorted(Path(source).iterdir()):
            inside = posixpath.join(path, entry.name)
            if entry.is_dir():
                self.copy_in(entry, inside)
                continue
            file = self.open(inside, is_writable=True, create=True)
            file.truncate(0)
            file.append([entry.read_bytes()])
            file.close()
            self.set_modified(inside, entry.stat().st_mtime_ns // 1_000_000)

    def copy_out(self, path: str, target: str | Path) -> None:
        """Write everything below `path` to a real directory: for `logcore dump`, or Kafka's own tools."""
        Path(target).mkdir(parents=True, exist_ok=True)
        for name, data in self.tree(path).items():
            if data is None:
                Path(target, name).mkdir(exist_ok=True)
            else:
                Path(target, name).write_bytes(data)

    # ---------------------------------------------------------------------------------------------------------- paths

    def _find(self, what: str, path: str, *, named: str | None = None) -> tuple[DirectoryNode, str, Node | None]:
        """Where a path ends: a directory, a name in it, and the node that has the name. Errors name `named`."""
        names, _ = _split(path)
        at: DirectoryNode = self.volume.root
        if not path:
            _refuse(what, errno.ENOENT, named or path)
        if len(path) * 4 > PATH_BYTES_MAX and len(os.fsencode(path)) > PATH_BYTES_MAX:
            _refuse(what, errno.ENAMETOOLONG, named or path)
        if not names:
            return at, "", at
        for name in names[:-1]:
            node = self._entry(what, at, name, named or path)
            if not isinstance(node, DirectoryNode):
                _refuse(what, errno.ENOENT if node is None else errno.ENOTDIR, named or path)
            at = node
        return at, names[-1], self._entry(what, at, names[-1], named or path)

    def _entry(self, what: str, directory: DirectoryNode, name: str, path: str) -> Node | None:
        if name == "..":
            return directory.parent
        if name == ".":
            return directory
        if len(name) * 4 > NAME_BYTES_MAX and len(os.fsencode(name)) > NAME_BYTES_MAX:
            _refuse(what, errno.ENAMETOOLONG, path)
        return directory.entries.get(name)

    def _find_to_remove(self, what: str, path: str) -> tuple[DirectoryNode, str, Node | None]:
        try:
            return self._find(what, path)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return self.volume.root, "", None
            raise

    def _directory(self, what: str, path: str) -> DirectoryNode:
        _, _, node = self._find(what, path)
        if not isinstance(node, DirectoryNode):
            _refuse(what, errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _exists(self, path: str) -> bool:
        try:
            return self.status(path) is not None
        except StorageError:
            return False
