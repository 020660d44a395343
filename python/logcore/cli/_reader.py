"""A file as a run of batches, read forward once in bounded memory.

What lies in a file is told as one of these, in order of position:

    Batch      a whole batch with a right checksum; its records have not been looked at
    Damage     a size, magic or checksum that no writer writes; without `salvage` nothing comes after it
    Skipped    with `salvage`: the bytes from the damage to the next batch, or to the end
    Partial    the file ends inside a batch, as after a crash or in a fetch: an end, not damage
    Zeros      the file ends in zero bytes, as one that was allocated ahead does: likewise

Memory: a chunk and the largest batch; behind damage two such batches, or 2 * SEARCH_BATCH_BYTES. The file is read, not
mapped: it may be a pipe, or be cut by a live writer, and a mapping over a cut file ends the process.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from logcore import (
    Batch,
    CorruptBatch,
    CorruptionReason,
    StorageError,
    UsageError,
    decode_batches,
    find_batch,
    first_batch_size,
    scan_batches,
)

CHUNK_BYTES = 4 << 20
BATCH_BYTES_MAX = 128 << 20  # unless told: far beyond what brokers accept, and small enough to hold
BATCH_BYTES_LARGEST = (1 << 31) - 13  # with the 12 bytes before it, as far as Kafka's 32-bit sizes go
# A search tries each byte as the beginning of a batch and checksums what looks like one. In noise the cost of a
# false beginning is the size it claims, so a search believes smaller sizes than a reader that stands on a batch.
SEARCH_BATCH_BYTES = 16 << 20

_OVERHEAD = 12  # base offset and size: what the size field does not count
_SIZE_AT = 8
_SIZE_UP_TO_MAGIC = 17  # enough to know a batch's size
_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)  # compared at the speed of memory, where lstrip() goes byte by byte
_LEADING_ZEROS_MAX = 11  # a batch at offset 0 begins with 8 zero bytes, and its size with up to 3


@dataclass(frozen=True)
class Damage:
    """Bytes that are not the batch they should be."""

    error: CorruptBatch


@dataclass(frozen=True)
class Skipped:
    """Bytes that --salvage passed over; at the end of the file nothing follows them."""

    position: int
    size_in_bytes: int
    is_end: bool


@dataclass(frozen=True)
class Partial:
    """The first `size_in_bytes` of a batch; `batch_bytes` is its whole size, if they tell it."""

    position: int
    size_in_bytes: int
    batch_bytes: int | None


@dataclass(frozen=True)
class Zeros:
    """Zero bytes up to the end of the file."""

    position: int
    size_in_bytes: int


Event: TypeAlias = Batch | Damage | Skipped | Partial | Zeros


@dataclass(frozen=True)
class Source:
    """Where the bytes come from. `size_in_bytes` is None for what has no size, such as a pipe."""

    path: str
    read: Callable[[int], bytes]
    size_in_bytes: int | None

    @property
    def base_offset(self) -> int | None:
        """What the name of a log segment says; nothing depends on it."""
        match = re.match(r"([0-9]{20})\.log\b", os.path.basename(self.path))
        return int(match[1]) if match else None


@contextmanager
def open_source(path: str, position: int = 0) -> Iterator[Source]:
    """Open the file `path`, or standard input for "-", at byte `position`; raises StorageError or UsageError."""
    is_stdin = path == "-"
    name = "standard input" if is_stdin else path
    try:
        file = open(0 if is_stdin else path, "rb", buffering=0, closefd=not is_stdin)  # noqa: SIM115
    except OSError as error:
        raise StorageError("open", errno=error.errno or errno.EIO, path=name) from error
    except ValueError:
        raise UsageError("file name", got=repr(path), wanted="one without a NUL in it") from None

    def read(count: int) -> bytes:
        try:
            return file.read(count)
        except OSError as error:
            raise StorageError("read", errno=error.errno or errno.EIO, path=name) from error

    with file:
        status = os.fstat(file.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) and not is_stdin else None
        passed = 0
        if size is not None:
            passed = file.seek(min(position, size))
        else:
            while passed < position and (part := read(min(position - passed, CHUNK_BYTES))):
                passed += len(part)
        if passed < position:
            raise UsageError("position", where=name, got=position, wanted=f"at most its {passed} bytes")
        yield Source(name, read, size)


class Window:
    """The bytes of a source from `position` on, as far as they were read: `data`."""

    def __init__(self, read: Callable[[int], bytes], position: int) -> None:
        self._read = read
        self.data = memoryview(b"")
        self.position = position
        self.is_end = False

    def drop(self, count: int) -> None:
        """Forget the first `count` bytes, without moving the others."""
        self.data = self.data[count:]
        self.position += count

    def grow(self, size: int) -> None:
        """Read until `data` has at least `size` bytes or the source ends."""
        parts: list[bytes | memoryview] = [self.data]
        held = len(self.data)
        while held < size and not self.is_end:
            # One read may give less, as a pipe does: what is there is looked at before more is waited for.
            part = self._read(CHUNK_BYTES)
            self.is_end = not part
            parts.append(part)
            held += len(part)
        if len(parts) > 1:
            self.data = memoryview(b"".join(parts))


class BatchReader:
    """Iterate it, once, for the events of `source`, which was opened at byte `position`."""

    def __init__(
        self,
        source: Source,
        *,
        position: int = 0,
        salvage: bool = False,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        max_decompressed_bytes: int | None = None,
    ) -> None:
        self._window = Window(source.read, position)
        self._path = source.path
        self._salvage = salvage
        self._batch_bytes_max = batch_bytes_max
        self._max_decompressed_bytes = max_decompressed_bytes

    def __iter__(self) -> Iterator[Event]:
        window = self._window
        while True:
            error = yield from self._whole_batches()
            if error is None and self._read_more():
                continue
            if not window.data:
                return
            start = window.position
            if not any(window.data[:_OVERHEAD]) and self._only_zeros_follow():
                yield Zeros(start, window.position + len(window.data) - start)
                return
            if error is None:
                size = first_batch_size(window.data, batch_bytes_max=self._batch_bytes_max)
                inside = self._search(1)
                if inside is None:
                    yield Partial(start, len(window.data), size)
                    return
                error = self._wrong_size(inside)
            yield Damage(error)
            if not self._salvage:
                return
            self._find_next(start)
            yield Skipped(start, window.position - start, is_end=not window.data)

    def _whole_batches(self) -> Generator[Batch, None, CorruptBatch | None]:
        """The batches that the window holds; then it begins behind them. Returns the damage that ended them."""
        batches = decode_batches(
            self._window.data,
            batch_bytes_max=self._batch_bytes_max,
            max_decompressed_bytes=self._max_decompressed_bytes,
            base_position=self._window.position,
        )
        error = None
        try:
            yield from batches
        except CorruptBatch as damage:
            error = damage.at_path(self._path, 0)
        self._window.drop(batches.consumed)
        return error

    def _read_more(self) -> bool:
        """Read what the batch at the window's beginning lacks; False if the source has no more."""
        window = self._window
        held = len(window.data)
        window.grow(first_batch_size(window.data, batch_bytes_max=self._batch_bytes_max) or _SIZE_UP_TO_MAGIC)
        return len(window.data) > held

    def _only_zeros_follow(self) -> bool:
        """Whether the source holds nothing else. If it does, the window ends up near the first other byte."""
        window = self._window
        while True:
            zeros = 0
            while zeros < len(window.data):
                block = bytes(window.data[zeros : zeros + _BLOCK_BYTES])
                other = 0 if _ZEROS.startswith(block) else len(block.lstrip(b"\0"))
                zeros += len(block) - other
                if other:
                    window.drop(max(0, zeros - _LEADING_ZEROS_MAX))
                    return False
            if window.is_end:
                return True
            window.drop(max(0, zeros - _LEADING_ZEROS_MAX))
            window.grow(len(window.data) + 1)

    def _wrong_size(self, inside: int) -> CorruptBatch:
        """The file ends inside the batch at the window's beginning, but another whole one lies within, at `inside`."""
        position = self._window.position
        return CorruptBatch(
            "size",
            reason=CorruptionReason.TRUNCATED,
            got=self._size_field(),
            wanted=f"at most {inside - _OVERHEAD}: a batch begins at position {position + inside}",
            path=self._path,
            position=position,
            at=_SIZE_AT,
        )

    def _size_field(self) -> int:
        return int.from_bytes(self._window.data[_SIZE_AT:_OVERHEAD], "big", signed=True)

    def _find_next(self, damaged: int) -> None:
        """Move the window from the damage at position `damaged` to the next batch, or to the end."""
        window = self._window
        if window.position == damaged:
            # Most often the inside is damaged and the size is right. The inside may hold whole batches, as someone's
            # values: they are not to be taken for this log's.
            end = _OVERHEAD + self._size_field()
            if _OVERHEAD < end <= _OVERHEAD + self._batch_bytes_max and self._is_boundary(end):
                inside = self._search(1)
                # Unless only the size is damaged, and led by chance to the end of a later batch.
                if inside is None or inside > end or not self._is_whole(inside):
                    inside = end
                window.drop(inside)
                return
            window.drop(1)
        while (found := self._search(0)) is None:
            if window.is_end:
                found = len(window.data)
                break
            # What begins further from the window's end than the largest batch is long would have been found.
            window.drop(max(0, len(window.data) - SEARCH_BATCH_BYTES - _OVERHEAD))
            window.grow(2 * len(window.data) + 1)
        window.drop(found)

    def _search(self, at: int) -> int | None:
        limit = min(SEARCH_BATCH_BYTES, self._batch_bytes_max)
        found: int | None = find_batch(self._window.data, position=at, batch_bytes_max=limit)
        return found

    def _is_boundary(self, at: int) -> bool:
        """Whether the source ends `at` bytes into the window, or a whole batch begins there."""
        window = self._window
        window.grow(at + _SIZE_UP_TO_MAGIC)
        if len(window.data) <= at:
            return len(window.data) == at
        try:
            size = first_batch_size(window.data[at:], batch_bytes_max=self._batch_bytes_max)
        except CorruptBatch:
            return False
        if size is None:
            return False
        window.grow(at + size)
        return len(scan_batches(window.data[at : at + size])) == 1

    def _is_whole(self, size: int) -> bool:
        """Whether the window begins with a batch of `size` bytes, but for its size field, which no checksum covers."""
        if size <= _OVERHEAD:
            return False
        data = self._window.data[:size]
        mended = b"".join((data[:_SIZE_AT], (size - _OVERHEAD).to_bytes(4, "big"), data[_OVERHEAD:]))
        return len(scan_batches(mended)) == 1
