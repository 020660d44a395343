"""What this machine's files can do: write(2) and pread(2) of the same bytes, with and without the work around them.

The C side is limits.c. The bytes are the log's own, the memory is made once, and the kernel's cache holds what is read:
it is the log that is measured here, not the disk. Only a flush waits for that.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from logcore import BinaryColumn, Columns, InvariantError
from logcore.bench.limits import load_limits, pointer


class LimitFile:
    """A file that C and the operating system work on alone."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> None:
        """Append, by one call of the system."""
        self._count(load_limits().lc_limit_write(self.fd, data, len(data)), len(data))

    def write_and_sync(self, data: bytes) -> None:
        """Append, and wait for the disk: fdatasync(2)."""
        self._count(os.write(self.fd, data), len(data))
        os.fdatasync(self.fd)

    def _count(self, written: int, wanted: int) -> None:
        if written != wanted:
            raise InvariantError(f"write to {self.path}: {written} of {wanted} bytes")
        self.size += written

    def restart(self) -> None:
        """Begin with a new file."""
        os.close(self.fd)
        os.unlink(self.path)
        self.__init__(self.path)  # type: ignore[misc]

    def close(self) -> None:
        """Close, and remove it."""
        os.close(self.fd)
        os.unlink(self.path)


class CFile:
    """The loops of limits.c that have a file. A call has room for `size` bytes of batches, and for `rows` records."""

    def __init__(self, rows: int, size: int) -> None:
        self._limits = load_limits()
        self._size = size
        self._room = np.empty(2 * size + 4096, np.uint8)
        self._columns = (
            *(np.empty(rows, np.int64), np.empty(rows, np.int64)),
            *(np.empty(size, np.uint8), np.empty(rows + 1, np.int32), np.full(rows // 8 + 1, 0xFF, np.uint8)),
            *(np.empty(size, np.uint8), np.empty(rows + 1, np.int32), np.full(rows // 8 + 1, 0xFF, np.uint8)),
        )

    def append_call(self, file: LimitFile, columns: Columns, batch_bytes: int) -> Callable[[], object]:
        """A call that encodes `columns` and writes them."""
        key, value = columns.key, columns.value
        if not isinstance(key, BinaryColumn) or not isinstance(value, BinaryColumn):
            raise InvariantError("columns to append have the binary layout")
        arrays = (columns.timestamp, key.data, key.offsets, value.data, value.offsets)
        pointers = [pointer(array) for array in (self._room, *arrays)]

        def call() -> None:
            file.size += self._limits.lc_limit_append(file.fd, pointers[0], len(columns), batch_bytes, *pointers[1:])

        return call

    def fetch_call(self, fd: int) -> Callable[[], int]:
        """A call that reads a file of batches into columns, and returns how many records there were."""
        return partial(
            self._limits.lc_limit_fetch, fd, pointer(self._room), self._size, *(pointer(one) for one in self._columns)
        )

    def read_call(self, fd: int) -> Callable[[], int]:
        """A call that reads a file, and returns how many bytes that were."""
        return partial(self._limits.lc_limit_read, fd, pointer(self._room), self._size)

    def points_call(self, fd: int, positions: Sequence[int], sizes: Sequence[int]) -> Callable[[], int]:
        """A call that reads the batches at `positions`, and returns how many had the right checksum."""
        arrays: list[Any] = [np.array(positions, np.int64), np.array(sizes, np.int64)]
        count = ctypes.c_int64(len(positions))
        return partial(self._limits.lc_limit_points, fd, pointer(self._room), count, *map(pointer, arrays))
