"""The seam to the disk: every open, write, fsync, rename, unlink and directory fsync of a log goes through one object.

`SystemDisk` is the operating system, with compiled files (logcore._file). A test hands in another disk that records
the calls, fails them, or forgets what was not synced. The seam costs a call a batch, never a call a record.

What survives what, on any disk:

    death of the process   everything that a call returned for
    death of the machine   of a file: what was there at its last sync(), and any part of what was written since;
                           of a directory: its entries at its last sync_directory(), and any part of the changes since

A rename is atomic in both cases: afterwards the name means the old file or the new one.

Every failure is a StorageError with errno and path. Paths are str. A file or mapping that is renamed stays open and
usable: tell it by its `path`, which is what its errors name.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

from typing_extensions import Buffer

from logcore._file import File, MappedFile
from logcore.errors import LockedError, StorageError


class FileStatus(NamedTuple):
    """What a directory knows of an entry."""

    size: int
    modified_ms: int
    is_directory: bool
    inode: int  # of two files that had one name, tells which


class DiskFile(Protocol):
    """An open file. One thread appends, cuts and closes; any thread may read what lies before `size`."""

    path: str

    @property
    def size(self) -> int:
        """Where what is written ends; preallocated zeros may lie behind."""
        ...

    def append(self, parts: Iterable[Buffer]) -> int:
        """Write at the end, all or nothing; returns where it begins."""
        ...

    def write(self, position: int, data: bytes) -> None:
        """Overwrite bytes before the end."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position` on; fewer where the file ends."""
        ...

    def truncate(self, size: int) -> None:
        """Keep the first `size` bytes; preallocated space goes too."""
        ...

    def preallocate(self, size_in_bytes: int) -> None:
        """Let the file be this long, with zeros behind what is written."""
        ...

    def set_size(self, size: int) -> None:
        """Say where what is written ends, in a file that was preallocated and not cut."""
        ...

    def refresh(self) -> int:
        """Look how long the file is now: another process may write to it. Returns the size."""
        ...

    def sync(self) -> None:
        """Make what was written survive the machine. After a failure nobody knows what did."""
        ...

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """Send bytes to a socket without a copy; returns how many it took."""
        ...

    def close(self) -> None:
        """Cut off preallocated space and close. Again is harmless."""
        ...


class DiskMapping(Protocol):
    """A file whose bytes are looked at in place, through view(), and written by write(). It keeps its length."""

    path: str
    is_new: bool  # there was no file, or an empty one

    def __len__(self) -> int: ...

    def view(self) -> Buffer:
        """The bytes as they are now. write() shows in it; after resize() there is another, and this one stays."""
        ...

    def write(self, position: int, data: bytes) -> None:
        """Overwrite bytes of the file; views show them at once."""
        ...

    def resize(self, size_in_bytes: int) -> None:
        """Give the file another length."""
        ...

    def flush(self) -> None:
        """Make what was written survive the machine."""
        ...

    def close(self) -> None:
        """Unmap and close. Again is harmless."""
        ...


class DiskLock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let go of it. Again is harmless."""
        ...


class Disk(Protocol):
    """What a log asks of a file system."""

    def open(self, path: str, *, is_writable: bool = False, create: bool = False) -> DiskFile:
        """An open file. Without `create` there must be one."""
        ...

    def map(self, path: str, size_in_bytes: int, *, is_writable: bool = False) -> DiskMapping:
        """A mapped file. A writable one is made, and given `size_in_bytes` if it is new or empty."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names of the entries, sorted."""
        ...

    def status(self, path: str) -> FileStatus | None:
        """None if there is no such entry."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic. What was called `target` is gone; a directory must not be."""
        ...

    def unlink(self, path: str) -> bool:
        """Remove a file; says whether there was one."""
        ...

    def make_directory(self, path: str) -> bool:
        """Make it and what is missing above it; says whether it was missing."""
        ...

    def remove_directory(self, path: str) -> bool:
        """Remove an empty directory; says whether there was one."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory survive the machine."""
        ...

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of the last modification."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Take the lock that Java's FileChannel takes. LockedError names who has it.

        It belongs to the process, and goes when the process ends or opens and closes the file anywhere else: take it
        once a process.
        """
        ...


def _refused(what: str, path: str, error: OSError) -> StorageError:
    return StorageError(what, errno=error.errno or errno.EIO, path=path)


class SystemDisk:
    """The operating system's files."""

    def open(self, path: str, *, is_writable: bool = False, create: bool = False) -> DiskFile:
        """See Disk."""
        return File(path, is_writable=is_writable, create=create)

    def map(self, path: str, size_in_bytes: int, *, is_writable: bool = False) -> DiskMapping:
        """See Disk."""
        return MappedFile(path, size_in_bytes, is_writable=is_writable)

    def list(self, directory: str) -> list[str]:
        """See Disk."""
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            raise _refused("list", directory, error) from error

    def status(self, path: str) -> FileStatus | None:
        """See Disk."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refused("stat", path, error) from error
        is_directory = (found.st_mode & 0o170000) == 0o040000
        return FileStatus(found.st_size, found.st_mtime_ns // 1_000_000, is_directory, found.st_ino)

    def rename(self, source: str, target: str) -> None:
        """See Disk."""
        try:
            os.rename(source, target)
        except OSError as error:
            raise _refused("rename", source, error) from error

    def unlink(self, path: str) -> bool:
        """See Disk."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _refused("unlink", path, error) from error
        return True

    def make_directory(self, path: str) -> bool:
        """See Disk."""
        try:
            os.makedirs(path)
        except FileExistsError as error:
            if os.path.isdir(path):
                return False
            raise _refused("make directory", path, error) from error
        except OSError as error:
            raise _refused("make directory", path, error) from error
        return True

    def remove_directory(self, path: str) -> bool:
        """See Disk."""
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _refused("remove directory", path, error) from error
        return True

    def sync_directory(self, path: str) -> None:
        """See Disk."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _refused("sync directory", path, error) from error

    def set_modified(self, path: str, modified_ms: int) -> None:
        """See Disk."""
        try:
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise _refused("set time of", path, error) from error

    def lock(self, path: str) -> DiskLock:
        """See Disk."""
        return RecordLock(path)


SYSTEM_DISK: Disk = SystemDisk()


class RecordLock:
    """A POSIX record lock on a whole file. It belongs to the process that took it: a forked child has none.

    Who lets go of it removes the file first, as Kafka does. So whoever gets a lock looks whether its file is still the
    one of that name; if not, somebody let go of it just now, and there may be another one.
    """

    # Linux's struct flock on 64-bit machines: type, whence, start, length, pid; the lock reaches to the end for 0.
    _LAYOUT = struct.Struct("hhqqi4x")

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()
        self._descriptor: int | None = None
        while self._descriptor is None:
            self._descriptor = self._try()

    def _try(self) -> int | None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _refused("lock", self._path, error) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError as error:
            holder = self._holder(descriptor)
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise LockedError(self._path, holder=holder) from None
            raise _refused("lock", self._path, error) from error
        os.close(descriptor)
        return None

    def _holder(self, descriptor: int) -> int | None:
        asked = self._LAYOUT.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = self._LAYOUT.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else pid

    @property
    def is_ours(self) -> bool:
        """Whether this process holds it: not after release(), and not in a forked child."""
        return self._descriptor is not None and self._pid == os.getpid()

    def release(self) -> None:
        """Let go of it. Again is harmless; a forked child only closes its copy."""
        if self._descriptor is not None:
            if self.is_ours:
                with suppress(OSError):
                    os.unlink(self._path)
            os.close(self._descriptor)
            self._descriptor = None


def write_file(disk: Disk, path: str, data: bytes) -> None:
    """Put `data` in place of the file `path`, so that after a crash it is the old one or the new one, whole.

    Written beside it as `path`.tmp, synced, renamed. That the new one has its name after the death of the machine is
    sure only once its directory is synced, which is left to the caller.
    """
    temporary = path + ".tmp"
    file = disk.open(temporary, is_writable=True, create=True)
    try:
        file.truncate(0)
        file.append([data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)


def read_file(disk: Disk, path: str, bytes_max: int) -> bytes | None:
    """The whole file, or None if there is none. It must not be longer than `bytes_max`."""
    status = disk.status(path)
    if status is None:
        return None
    if status.is_directory:
        raise StorageError("read", errno=errno.EISDIR, path=path)
    if status.size > bytes_max:
        raise StorageError(f"read at most {bytes_max} bytes", errno=errno.EFBIG, path=path)
    try:
        file = disk.open(path)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    try:
        return file.read(0, file.size)
    finally:
        file.close()
