"""FaultyDisk: any disk, with calls that fail when a test says so, reads that lie, and a list of all that was asked.

    disk = FaultyDisk(SystemDisk())
    disk.fail("sync", "*.log", errno=errno.EIO)                       the next sync of a .log fails
    disk.fail("append", "*.log", errno=errno.ENOSPC, short=100)       … after 100 bytes of it were written
    disk.fail("create", "*.snapshot", errno=errno.ENOSPC, times=None) no snapshot can be made, as long as this stands
    disk.fail("read", "*.log", errno=errno.EIO, within=range(4096, 8192), times=None)       a bad page
    disk.flip("*/0.index", 17, mask=0x80)                             a bit of it reads wrong
    with disk.recorded() as calls: …                                  what was asked of it meanwhile
    disk.calls, disk.bytes_read[path], disk.still_open()              … and since it was made

Kinds are the names of the seam's methods (a mapping is synced by `flush`), and "create" for an open, map or lock that
makes a file. Patterns are those of a shell, against the whole path, where `*` stands for `/` too; of a rename either
name fits. A file's path is what its `path` says, which whoever renames it sets.

**A failed sync** leaves what was written unsynced ("kept"), unless told otherwise by `unsynced`:

    "forgotten"   it is still read, but a later sync does not make it durable: ext4 and xfs. Only over a CrashDisk,
                  since only after a crash can it be told.
    "reverted"    it is gone at once: where this open file was written to since its last sync is what was there before,
                  zeros where nothing was; it keeps its length. btrfs, or a page that was dropped and read again.

**A short append** is cut off again, as logcore._file does it, and so leaves nothing; with is_mended=False that fails
too, and the bytes stay behind the file's end until its next append, truncate or close.

A mapping shows a copy of the bytes of the mapping behind it, which is kept up to date with what is written through this
disk. A bit that is to read wrong does so in what is mapped or resized from then on.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeVar

from typing_extensions import Buffer

from logcore.errors import StorageError, UsageError
from logcore.log.disk import Disk, DiskFile, DiskLock, DiskMapping, FileStatus
from tests.disk.volume import LentBytes

_T = TypeVar("_T")

Unsynced = Literal["kept", "forgotten", "reverted"]

KINDS = frozenset(
    {name for kind in (Disk, DiskFile, DiskMapping, DiskLock) for name in vars(kind) if not name.startswith("_")}
    - {"size", "view"}
    | {"create"}
)

# The words of an error, where they are not the name of the call: those of SystemDisk and logcore._file.
_WORDS = {
    "append": "write",
    "preallocate": "truncate",
    "resize": "truncate",
    "flush": "sync",
    "refresh": "stat",
    "status": "stat",
    "make_directory": "make directory",
    "remove_directory": "remove directory",
    "sync_directory": "sync directory",
    "set_modified": "set time of",
}


class Call(NamedTuple):
    """Something that was asked of the disk."""

    kind: str
    path: str
    position: int | None = None  # of bytes, where it is about some; a length is a position
    size: int | None = None  # how many were to be read or written
    target: str | None = None  # of a rename
    is_new: bool = False  # it makes a file


@dataclass(eq=False)
class Fault:
    """What is to go wrong. `hits` counts how often it did."""

    kinds: frozenset[str]
    pattern: str
    errno: int
    skip: int
    times: int | None
    within: range | None
    happens: bool
    short: int | None
    is_mended: bool
    unsynced: Unsynced
    hits: int = 0

    def takes(self, call: Call) -> bool:
        """Whether the call is to fail; counts it."""
        kinds = {call.kind, "create"} if call.is_new else {call.kind}
        if self.kinds.isdisjoint(kinds) or (self.times is not None and self.hits >= self.times):
            return False
        if not (_fits(self.pattern, call.path) or (call.target is not None and _fits(self.pattern, call.target))):
            return False
        if self.within is not None:
            begin, size = call.position or 0, call.size or 0
            if begin >= self.within.stop or begin + size <= self.within.start:
                return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.hits += 1
        return True

    def error(self, call: Call) -> StorageError:
        """What the call is to raise."""
        return StorageError(_WORDS.get(call.kind, call.kind), errno=self.errno, path=call.path)


@dataclass(eq=False)
class Flip:
    """A byte that reads wrong."""

    pattern: str
    position: int
    mask: int
    times: int | None
    hits: int = 0


def _fits(pattern: str, path: str) -> bool:
    return fnmatchcase(path, pattern)


class FaultyDisk:
    """A disk in front of another one. Implements logcore.log.disk.Disk. See the module."""

    def __init__(self, inner: Disk) -> None:
        self.inner = inner
        self.calls: list[Call] = []
        self.bytes_read: Counter[str] = Counter()  # by path; not what was looked at in mappings
        self.bytes_written: Counter[str] = Counter()
        self._faults: list[Fault] = []
        self._flips: list[Flip] = []
        # By id; one that is forgotten is closed.
        self._opened: weakref.WeakValueDictionary[int, FaultyFile | FaultyMapping] = weakref.WeakValueDictionary()

    # ---------------------------------------------------------------------------------------------- what goes wrong

    def fail(
        self,
        kinds: str | Iterable[str],
        pattern: str = "*",
        *,
        errno: int,
        skip: int = 0,
        times: int | None = 1,
        within: range | None = None,
        happens: bool = False,
        short: int | None = None,
        is_mended: bool = True,
        unsynced: Unsynced = "kept",
    ) -> Fault:
        """Let calls fail with `errno`.

        skip: so many calls are let through first; times: so many fail then, None for all that come
        within: only calls about these bytes of the file
        happens: it is done all the same, and then fails
        short: of an append or a write, so many bytes are written first; is_mended: and cut off again
        unsynced: what a failed sync leaves of what was not synced
        """
        if unsynced == "forgotten" and not hasattr(self.inner, "forget_unsynced"):
            raise UsageError("unsynced", got="forgotten", wanted="a CrashDisk behind: only a crash can tell")
        chosen = frozenset([kinds] if isinstance(kinds, str) else kinds)
        if not chosen <= KINDS:
            raise UsageError("kinds", got=", ".join(sorted(chosen - KINDS)), wanted=", ".join(sorted(KINDS)))
        fault = Fault(chosen, pattern, errno, skip, times, within, happens, short, is_mended, unsynced)
        self._faults.append(fault)
        return fault

    def flip(self, pattern: str, position: int, *, mask: int = 1, times: int | None = None) -> Flip:
        """Let the bits `mask` of the byte at `position` read wrong, `times` times or always."""
        flip = Flip(pattern, position, mask, times)
        self._flips.append(flip)
        return flip

    def heal(self) -> None:
        """Let nothing fail and nothing read wrong any more. What is mapped shows what it showed."""
        self._faults.clear()
        self._flips.clear()

    # ------------------------------------------------------------------------------------------- what was asked of it

    @contextmanager
    def recorded(self) -> Iterator[list[Call]]:
        """The calls that are made inside the block; complete when it ends."""
        before, found = len(self.calls), list[Call]()
        try:
            yield found
        finally:
            found.extend(self.calls[before:])

    def paths(self, *kinds: str) -> list[str]:
        """The paths of all calls of these kinds, in order; without kinds, of all calls."""
        return [call.path for call in self.calls if not kinds or call.kind in kinds]

    def still_open(self) -> list[str]:
        """The paths of what was opened or mapped and not closed."""
        return sorted(opened.path for opened in self._opened.values())

    def do(self, call: Call, action: Callable[[], _T]) -> _T:
        """Note the call, and do it or let it fail."""
        fault = self.noted(call)
        if fault is None:
            return action()
        if fault.happens:
            action()
        raise fault.error(call)

    def noted(self, call: Call) -> Fault | None:
        """Note the call; the fault that it is to fail with."""
        self.calls.append(call)
        return next((fault for fault in self._faults if fault.takes(call)), None)

    def flips(self, path: str, position: int, size: int) -> dict[int, int]:
        """Which of those bytes are to read wrong now, by position, and the bits of each. Counts them."""
        found: dict[int, int] = {}
        for flip in self._flips:
            is_read = position <= flip.position < position + size and _fits(flip.pattern, path)
            if is_read and (flip.times is None or flip.hits < flip.times):
                flip.hits += 1
                found[flip.position] = found.get(flip.position, 0) ^ flip.mask
        return found

    def opened(self, opened: FaultyFile | FaultyMapping) -> int:
        """Note that it is open; the inode that it is of."""
        self._opened[id(opened)] = opened
        status = self.inner.status(opened.path)
        return -1 if status is None else status.inode

    def closed(self, opened: FaultyFile | FaultyMapping) -> None:
        """Note that it is open no more."""
        self._opened.pop(id(opened), None)

    def show(self, inode: int, position: int, size: int) -> None:
        """Show what was written in all mappings of the file."""
        for opened in list(self._opened.values()):
            if isinstance(opened, FaultyMapping) and opened.inode == inode:
                opened.show(position, size)

    # ------------------------------------------------------------------------------------------------------- the seam

    def _is_missing(self, path: str) -> bool:
        try:
            return self.inner.status(path) is None
        except StorageError:
            return False

    def open(self, path: str, *, is_writable: bool = False, create: bool = False) -> FaultyFile:
        """See Disk."""
        call = Call("open", path, is_new=create and self._is_missing(path))
        return FaultyFile(self, self.do(call, lambda: self.inner.open(path, is_writable=is_writable, create=create)))

    def map(self, path: str, size_in_bytes: int, *, is_writable: bool = False) -> FaultyMapping:
        """See Disk."""
        call = Call("map", path, size=size_in_bytes, is_new=is_writable and self._is_missing(path))
        return FaultyMapping(self, self.do(call, lambda: self.inner.map(path, size_in_bytes, is_writable=is_writable)))

    def list(self, directory: str) -> list[str]:
        """See Disk."""
        return self.do(Call("list", directory), lambda: self.inner.list(directory))

    def status(self, path: str) -> FileStatus | None:
        """See Disk."""
        return self.do(Call("status", path), lambda: self.inner.status(path))

    def rename(self, source: str, target: str) -> None:
        """See Disk."""
        self.do(Call("rename", source, target=target), lambda: self.inner.rename(source, target))

    def unlink(self, path: str) -> bool:
        """See Disk."""
        return self.do(Call("unlink", path), lambda: self.inner.unlink(path))

    def make_directory(self, path: str) -> bool:
        """See Disk."""
        return self.do(Call("make_directory", path), lambda: self.inner.make_directory(path))

    def remove_directory(self, path: str) -> bool:
        """See Disk."""
        return self.do(Call("remove_directory", path), lambda: self.inner.remove_directory(path))

    def sync_directory(self, path: str) -> None:
        """See Disk."""
        self.do(Call("sync_directory", path), lambda: self.inner.sync_directory(path))

    def set_modified(self, path: str, modified_ms: int) -> None:
        """See Disk."""
        self.do(Call("set_modified", path), lambda: self.inner.set_modified(path, modified_ms))

    def lock(self, path: str) -> FaultyLock:
        """See Disk."""
        call = Call("lock", path, is_new=self._is_missing(path))
        return FaultyLock(self, path, self.do(call, lambda: self.inner.lock(path)))


class FaultyLock:
    """A held lock of a FaultyDisk."""

    def __init__(self, disk: FaultyDisk, path: str, lock: DiskLock) -> None:
        self._disk = disk
        self._path = path
        self.inner = lock

    def release(self) -> None:
        """See DiskLock."""
        self._disk.do(Call("release", self._path), self.inner.release)


def _with_flips(data: bytes, position: int, flips: dict[int, int]) -> bytes:
    if not flips:
        return data
    wrong = bytearray(data)
    for at, mask in flips.items():
        if position <= at < position + len(data):
            wrong[at - position] ^= mask
    return bytes(wrong)


class FaultyFile:
    """An open file of a FaultyDisk."""

    def __init__(self, disk: FaultyDisk, file: DiskFile) -> None:
        self._disk = disk
        self.inner = file
        self._torn_size: int | None = None  # where the file ends, if a short append has left bytes behind that
        self._preallocated = 0
        self._unsynced: list[tuple[int, bytes]] = []  # position, and what was there before; since the last sync
        self.inode = disk.opened(self)

    @property
    def path(self) -> str:
        """See DiskFile."""
        return self.inner.path

    @path.setter
    def path(self, path: str) -> None:
        self.inner.path = path

    @property
    def size(self) -> int:
        """See DiskFile."""
        return self.inner.size if self._torn_size is None else self._torn_size

    def append(self, parts: Iterable[Buffer]) -> int:
        """See DiskFile."""
        parts = list(parts)
        data = b"".join(parts)
        call = Call("append", self.path, self.size, len(data))
        fault = self._disk.noted(call)
        if fault is None:
            self._mend()
            begin = self.inner.append(parts)
            self._wrote(begin, bytes(len(data)))
            return begin
        part = data if fault.happens else data[: fault.short or 0]
        if part:
            self._mend()
            begin = self.inner.append([part])
            self._wrote(begin, bytes(len(part)))
            self._torn_size = begin
            if fault.is_mended:
                self._mend()
        raise fault.error(call)

    def _mend(self) -> None:
        """Cut off what a short append has left."""
        if self._torn_size is not None:
            self.inner.truncate(self._torn_size)
            self._torn_size = None
            if self._preallocated > self.inner.size:
                self.inner.preallocate(self._preallocated)

    def _wrote(self, position: int, before: bytes) -> None:
        self._unsynced.append((position, before))
        self._disk.bytes_written[self.path] += len(before)
        self._disk.show(self.inode, position, len(before))

    def write(self, position: int, data: bytes) -> None:
        """See DiskFile."""
        call = Call("write", self.path, position, len(data))
        fault = self._disk.noted(call)
        part = data if fault is None or fault.happens else data[: fault.short or 0]
        if fault is None or part:
            before = b""
            with suppress(UsageError):  # the write says it too, and better
                before = self.inner.read(position, len(part))
            self.inner.write(position, part)
            self._wrote(position, before.ljust(len(part), b"\0"))
        if fault is not None:
            raise fault.error(call)

    def read(self, position: int, size: int) -> bytes:
        """See DiskFile."""
        call = Call("read", self.path, position, size)
        data = self._disk.do(call, lambda: self.inner.read(position, self._within(position, size)))
        self._disk.bytes_read[self.path] += len(data)
        return _with_flips(data, position, self._disk.flips(self.path, position, len(data)))

    def _within(self, position: int, size: int) -> int:
        """How much of it lies before the file's end."""
        return size if self._torn_size is None else max(min(size, self._torn_size - position), 0)

    def truncate(self, size: int) -> None:
        """See DiskFile."""
        self._disk.do(Call("truncate", self.path, size), lambda: self.inner.truncate(size))
        self._torn_size = None
        self._preallocated = 0

    def preallocate(self, size_in_bytes: int) -> None:
        """See DiskFile."""
        self._disk.do(Call("preallocate", self.path, size_in_bytes), lambda: self.inner.preallocate(size_in_bytes))
        self._preallocated = max(self._preallocated, size_in_bytes)

    def set_size(self, size: int) -> None:
        """See DiskFile."""
        self._disk.do(Call("set_size", self.path, size), lambda: self.inner.set_size(size))
        self._torn_size = None

    def refresh(self) -> int:
        """See DiskFile."""
        size = self._disk.do(Call("refresh", self.path), self.inner.refresh)
        self._torn_size = None
        return size

    def sync(self) -> None:
        """See DiskFile."""
        call = Call("sync", self.path)
        fault = self._disk.noted(call)
        if fault is None or fault.happens:
            self.inner.sync()
            self._unsynced.clear()
        if fault is not None:
            _lose_unsynced(self, fault, self._unsynced, self.inner.size)
            raise fault.error(call)

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """See DiskFile. With a copy, if something of it is to read wrong."""
        call = Call("send_to", self.path, position, size)
        fault = self._disk.noted(call)
        if fault is not None:
            raise fault.error(call)
        most = self._within(position, size)
        flips = self._disk.flips(self.path, position, min(most, max(self.size - position, 0)))
        if flips:
            sent = os.write(descriptor, _with_flips(self.inner.read(position, most), position, flips))
        else:
            sent = self.inner.send_to(descriptor, position, most)
        self._disk.bytes_read[self.path] += sent
        return sent

    def close(self) -> None:
        """See DiskFile. It is closed even if it is to fail: so is a descriptor."""
        call = Call("close", self.path)
        fault = self._disk.noted(call)
        self._disk.closed(self)
        try:
            with suppress(UsageError):  # closed before
                self._mend()
        finally:
            self.inner.close()
        if fault is not None:
            raise fault.error(call)


class FaultyMapping:
    """A mapped file of a FaultyDisk: a copy of the bytes of the mapping behind it."""

    def __init__(self, disk: FaultyDisk, mapping: DiskMapping) -> None:
        self._disk = disk
        self.inner = mapping
        self.is_new = mapping.is_new
        self._unsynced: list[tuple[int, bytes]] = []
        self._views: list[weakref.ref[LentBytes]] = []
        self.inode = disk.opened(self)
        self._fill()

    def _fill(self) -> None:
        """Take over all bytes, and draw which of them are wrong."""
        self._flips = self._disk.flips(self.path, 0, len(self.inner))
        self._view = LentBytes(len(self.inner))
        self._views = [view for view in self._views if view() is not None] + [weakref.ref(self._view)]
        self.show(0, len(self._view))

    def show(self, position: int, size: int) -> None:
        """Take over bytes that were written, as far as they are mapped."""
        written = _with_flips(self._behind(position, size), position, self._flips)
        for view in self._views:
            shown = view()
            if shown is not None and position < len(shown):
                part = written[: len(shown) - position]
                shown[position : position + len(part)] = part

    def _behind(self, position: int, size: int) -> bytes:
        """Bytes of the mapping behind this one."""
        if not len(self.inner):
            return b""  # nobody can look at it once it is closed
        with memoryview(self.inner.view()) as view, view[position : position + size] as found:
            return bytes(found)

    def view(self) -> Buffer:
        """See DiskMapping."""
        self.inner.view()  # refused once it is closed
        return self._view

    def __len__(self) -> int:
        return len(self.inner)

    @property
    def path(self) -> str:
        """See DiskMapping."""
        return self.inner.path

    @path.setter
    def path(self, path: str) -> None:
        self.inner.path = path

    def write(self, position: int, data: bytes) -> None:
        """See DiskMapping."""
        call = Call("write", self.path, position, len(data))
        fault = self._disk.noted(call)
        part = data if fault is None or fault.happens else data[: fault.short or 0]
        if fault is None or part:
            before = self._behind(max(position, 0), len(part))
            self.inner.write(position, part)
            self._unsynced.append((position, before))
            self._disk.bytes_written[self.path] += len(part)
            self._disk.show(self.inode, position, len(part))
        if fault is not None:
            raise fault.error(call)

    def resize(self, size_in_bytes: int) -> None:
        """See DiskMapping."""
        call = Call("resize", self.path, size_in_bytes)
        try:
            self._disk.do(call, lambda: self.inner.resize(size_in_bytes))
        finally:
            if len(self._view) != len(self.inner):
                self._fill()

    def flush(self) -> None:
        """See DiskMapping."""
        call = Call("flush", self.path)
        fault = self._disk.noted(call)
        if fault is None or fault.happens:
            self.inner.flush()
            self._unsynced.clear()
        if fault is not None:
            _lose_unsynced(self, fault, self._unsynced, len(self))
            raise fault.error(call)

    def close(self) -> None:
        """See DiskMapping."""
        call = Call("close", self.path)
        fault = self._disk.noted(call)
        self._disk.closed(self)
        self.inner.close()
        if fault is not None:
            raise fault.error(call)


def _lose_unsynced(
    opened: FaultyFile | FaultyMapping, fault: Fault, unsynced: list[tuple[int, bytes]], size: int
) -> None:
    """Do to what was not synced what the fault says."""
    if fault.unsynced == "forgotten":
        opened._disk.inner.forget_unsynced(opened.inner)  # type: ignore[attr-defined]
    elif fault.unsynced == "reverted":
        for position, before in reversed(unsynced):
            back = before[: max(size - position, 0)]
            if back:
                opened.inner.write(position, back)
                opened._disk.show(opened.inode, position, len(back))
        unsynced.clear()
