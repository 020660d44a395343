"""One list of calls, done to any disk, with what came of each in words that are the same for every disk.

A call is a tuple: its name, and what it takes. Files, mappings and locks go by number, in the order in which they were
opened; a number that there is none of wraps around, and a call for which there is none at all does nothing.

    ("open", "d/a", True, True)      open d/a to be written, and make it
    ("append", 0, b"abc")            append to the file that was opened first
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logcore.errors import LogcoreError, StorageError
from logcore.log.disk import Disk, DiskFile, DiskLock, DiskMapping

Call = tuple[Any, ...]
Outcome = tuple[Any, ...]

SET_MS = 1_234_567_890_123  # the one time that is ever set: whether a call changed it can be told, but not to what


class Twin:
    """A disk that calls are done to, below the directory `root` of it."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root
        self.files: list[DiskFile] = []
        self.mappings: list[DiskMapping] = []
        self.locks: list[DiskLock] = []
        disk.make_directory(root)

    def do(self, call: Call) -> Outcome:
        """Do it; what it gave, or how it failed."""
        name, *arguments = call
        try:
            return "gave", getattr(self, "_" + name)(*arguments)
        except LogcoreError as error:
            facts: Outcome = (type(error).__name__, str(error).replace(self.root, "ROOT"))
            if isinstance(error, StorageError):
                facts += (error.errno, error.path.replace(self.root, "ROOT"))
            return "failed", *facts

    def close(self) -> None:
        """Close all that is open."""
        for mapping in self.mappings:
            mapping.close()
        for file in self.files:
            file.close()
        for lock in self.locks:
            lock.release()

    def _path(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _open(self, path: str, is_writable: bool, create: bool) -> Outcome:
        file = self.disk.open(self._path(path), is_writable=is_writable, create=create)
        status = self.disk.status(self._path(path))
        assert status is not None
        if status.is_directory:  # how long one is, every file system says as it likes
            file.close()
            return ("directory",)
        self.files.append(file)
        return (file.size,)

    def _map(self, path: str, size_in_bytes: int, is_writable: bool) -> Outcome:
        mapping = self.disk.map(self._path(path), size_in_bytes, is_writable=is_writable)
        self.mappings.append(mapping)
        return mapping.is_new, len(mapping)

    def _lock(self, path: str) -> None:
        self.locks.append(self.disk.lock(self._path(path)))

    def _release(self, number: int) -> None:
        if self.locks:
            self.locks[number % len(self.locks)].release()

    def _list(self, path: str) -> list[str]:
        return self.disk.list(self._path(path))

    def _status(self, path: str) -> Outcome | None:
        status = self.disk.status(self._path(path))
        if status is None:
            return None
        return (
            None if status.is_directory else status.size,
            status.modified_ms == SET_MS,
            status.is_directory,
        )

    def _rename(self, source: str, target: str) -> bool:
        before = self.disk.status(self._path(source))
        self.disk.rename(self._path(source), self._path(target))
        after = self.disk.status(self._path(target))
        return before is not None and after is not None and before.inode == after.inode

    def _unlink(self, path: str) -> bool:
        return self.disk.unlink(self._path(path))

    def _make(self, path: str) -> bool:
        return self.disk.make_directory(self._path(path))

    def _remove(self, path: str) -> bool:
        return self.disk.remove_directory(self._path(path))

    def _sync_directory(self, path: str) -> None:
        self.disk.sync_directory(self._path(path))

    def _touch(self, path: str) -> None:
        self.disk.set_modified(self._path(path), SET_MS)

    def _with_file(self, number: int, call: Callable[[DiskFile], Any]) -> Outcome | None:
        """The call's value, and where the file ends after it."""
        if not self.files:
            return None
        file = self.files[number % len(self.files)]
        return call(file), file.size

    def _append(self, number: int, *parts: bytes) -> Outcome | None:
        return self._with_file(number, lambda file: file.append(parts))

    def _write(self, number: int, position: int, data: bytes) -> Outcome | None:
        return self._with_file(number, lambda file: file.write(position, data))

    def _read(self, number: int, position: int, size: int) -> Outcome | None:
        return self._with_file(number, lambda file: file.read(position, size))

    def _truncate(self, number: int, size: int) -> Outcome | None:
        return self._with_file(number, lambda file: file.truncate(size))

    def _preallocate(self, number: int, size_in_bytes: int) -> Outcome | None:
        return self._with_file(number, lambda file: file.preallocate(size_in_bytes))

    def _set_size(self, number: int, size: int) -> Outcome | None:
        return self._with_file(number, lambda file: file.set_size(size))

    def _refresh(self, number: int) -> Outcome | None:
        return self._with_file(number, lambda file: file.refresh())

    def _sync(self, number: int) -> Outcome | None:
        return self._with_file(number, lambda file: file.sync())

    def _close(self, number: int) -> Outcome | None:
        return self._with_file(number, lambda file: file.close())

    def _with_mapping(self, number: int, call: Callable[[DiskMapping], Any]) -> Outcome | None:
        if not self.mappings:
            return None
        mapping = self.mappings[number % len(self.mappings)]
        return call(mapping), len(mapping), bytes(memoryview(mapping.view())) if len(mapping) else b""

    def _look(self, number: int) -> Outcome | None:
        return self._with_mapping(number, lambda mapping: None)

    def _put(self, number: int, position: int, data: bytes) -> Outcome | None:
        return self._with_mapping(number, lambda mapping: mapping.write(position, data))

    def _resize(self, number: int, size_in_bytes: int) -> Outcome | None:
        return self._with_mapping(number, lambda mapping: mapping.resize(size_in_bytes))

    def _resize_seen(self, number: int, size_in_bytes: int) -> Outcome | None:
        def resize_seen(mapping: DiskMapping) -> bytes:
            if not len(mapping):
                return b""
            with memoryview(mapping.view()) as view:  # stays, as far as the file goes
                mapping.resize(size_in_bytes)
                with view[:size_in_bytes] as kept:
                    return bytes(kept)

        return self._with_mapping(number, resize_seen)

    def _flush(self, number: int) -> Outcome | None:
        return self._with_mapping(number, lambda mapping: mapping.flush())

    def _unmap(self, number: int) -> Outcome | None:
        return self._with_mapping(number, lambda mapping: mapping.close())
