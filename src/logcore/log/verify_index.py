"""The .index and .timeindex of a segment, compared with its .log while that is read.

An entry of the offset index must be the position of a batch and that batch's last offset. An entry of the time index
must be the largest timestamp of the segment up to a batch, and an offset of that batch. Where no batch has an entry is
not looked at: an index may be sparser than ours would be, and is only slower then.

The entries are taken into memory before the log is read, so that beside a writer none of them is newer than the log;
there can be no more of them than the log has batches.
"""

import errno
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from logcore.errors import CorruptionReason, StorageError

from .appending import Headers
from .disk import Disk
from .finding import SHOWN_MAX, Finding, damage

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])

_READ_ENTRIES = 1 << 16
_BATCH_BYTES_MIN = 26  # a message of magic 0 without key and value

Numbers = npt.NDArray[np.int64]


class IndexCheck:
    """An index file, and what was found in it. `exists` is False if there is none; then it has no entries.

    may_have_zeros: a writer has it open, or was killed: then room for more entries lies behind the last one
    """

    def __init__(
        self, disk: Disk, path: str, dtype: "np.dtype[np.void]", log_size: int, *, may_have_zeros: bool
    ) -> None:
        self.path = path
        self.exists = True
        self.findings: list[Finding] = []
        self.entry_bytes = dtype.itemsize
        self._may_have_zeros = may_have_zeros
        self._wrong_count = 0
        self._entries = np.frombuffer(self._read(disk, log_size), dtype)

    def __len__(self) -> int:
        return len(self._entries)

    def field(self, name: str) -> Numbers:
        """One field of all entries."""
        return self._entries[name].astype(np.int64)

    def _read(self, disk: Disk, log_size: int) -> bytes:
        """The entries up to the last that is not zero."""
        try:
            file = disk.open(self.path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            self.exists = False
            return b""
        try:
            size = file.size
            limit = (log_size // _BATCH_BYTES_MIN + 1) * self.entry_bytes
            parts: list[bytes] = []
            position = used = 0
            step = _READ_ENTRIES * self.entry_bytes
            while position < size:
                part = file.read(position, min(step, size - position))
                if not part:
                    break
                kept = len(part.rstrip(b"\0"))
                if kept:
                    used = position + kept
                if position <= limit:
                    parts.append(part)
                position += len(part)
        finally:
            file.close()
        used += -used % self.entry_bytes
        if not used and size == self.entry_bytes and self.entry_bytes == TIME_ENTRY.itemsize:
            used = size  # timestamp 0 at the first offset
        if size % self.entry_bytes:
            text = f"size got {size}, wanted a multiple of {self.entry_bytes}"
            size -= size % self.entry_bytes
            self._add(damage(self.path, CorruptionReason.ENTRY_SIZE, text, size))
            used = min(used, size)
        if used < size and not self._may_have_zeros:
            text = f"got {size - used} zero bytes, wanted the end of the file"
            self._add(damage(self.path, CorruptionReason.ENTRY_ORDER, text, used))
        if used > limit:
            self._add(damage(
                self.path, CorruptionReason.ENTRY_COUNT, f"got {used // self.entry_bytes} entries, wanted at most "
                f"{limit // self.entry_bytes}: the log has no room for more batches", limit,
            ))  # fmt: skip
            used = limit
        return b"".join(parts)[:used]

    def _add(self, finding: Finding) -> None:
        self.findings.append(finding)

    def wrong(self, entry: int, text: str) -> None:
        """An entry that is not what lies in the log. Behind the first few, such are only counted."""
        self._wrong_count += 1
        if self._wrong_count <= SHOWN_MAX:
            self._add(damage(self.path, CorruptionReason.ENTRY_ORDER, text, entry * self.entry_bytes))

    def results(self) -> Iterator[Finding]:
        """What was found, when all was compared."""
        yield from self.findings
        if self._wrong_count > SHOWN_MAX:
            more = self._wrong_count - SHOWN_MAX
            yield damage(self.path, CorruptionReason.ENTRY_ORDER, f"{more} more entries that are not what the log has")


class OffsetIndexCheck:
    """An .index beside its log: told the batches in order, by add()."""

    def __init__(self, disk: Disk, path: str, base_offset: int, log_size: int, *, may_have_zeros: bool) -> None:
        self.file = IndexCheck(disk, path, OFFSET_ENTRY, log_size, may_have_zeros=may_have_zeros)
        self._offsets = self.file.field("offset") + base_offset
        self._positions = self.file.field("position")
        self._order = np.argsort(self._positions, kind="stable")
        self._sorted = self._positions[self._order]
        self._check_order()

    def _check_order(self) -> None:
        steps = (np.diff(self._offsets) <= 0) | (np.diff(self._positions) <= 0)
        for entry in (np.flatnonzero(steps) + 1).tolist():
            self.file.wrong(
                entry,
                f"entry got offset {self._offsets[entry]} at {self._positions[entry]}, wanted more than "
                f"{self._offsets[entry - 1]} at {self._positions[entry - 1]}, as before it",
            )

    def add(self, headers: Headers, position: int, end: int) -> None:
        """Compare the entries that point between `position` and `end`, where these batches lie."""
        low, high = np.searchsorted(self._sorted, (position, end))
        if low == high:
            return
        entries = self._order[low:high]
        places = headers["position"].astype(np.int64) + position
        at = np.minimum(np.searchsorted(places, self._positions[entries]), len(places) - 1)
        lasts = headers["last_offset"].astype(np.int64)[at]
        is_wrong = (places[at] != self._positions[entries]) | (lasts != self._offsets[entries])
        for index in np.flatnonzero(is_wrong).tolist():
            entry = int(entries[index])
            begins = int(places[at[index]]) == int(self._positions[entry])
            got = f"a batch that ends with {lasts[index]}" if begins else "no beginning of a batch"
            self.file.wrong(
                entry,
                f"entry got {got} at position {self._positions[entry]} of the log, wanted a batch that ends with "
                f"{self._offsets[entry]}",
            )

    def finish(self, log_size: int) -> Iterator[Finding]:
        """All batches were told."""
        is_behind = (self._positions >= log_size) | (self._positions < 0)
        for entry in np.flatnonzero(is_behind).tolist():
            self.file.wrong(
                entry, f"entry got position {self._positions[entry]}, wanted less than the log's {log_size} bytes"
            )
        yield from self.file.results()


class TimeIndexCheck:
    """A .timeindex beside its log: told the batches in order, by add()."""

    def __init__(self, disk: Disk, path: str, base_offset: int, log_size: int, *, may_have_zeros: bool) -> None:
        self.file = IndexCheck(disk, path, TIME_ENTRY, log_size, may_have_zeros=may_have_zeros)
        self._offsets = self.file.field("offset") + base_offset
        self._timestamps = self.file.field("timestamp")
        self._order = np.argsort(self._offsets, kind="stable")
        self._sorted = self._offsets[self._order]
        self._done = 0  # of the sorted entries
        self._largest = -1
        steps = (np.diff(self._offsets) < 0) | (np.diff(self._timestamps) <= 0)
        for entry in (np.flatnonzero(steps) + 1).tolist():
            self.file.wrong(
                entry,
                f"entry got timestamp {self._timestamps[entry]} at offset {self._offsets[entry]}, wanted more than "
                f"{self._timestamps[entry - 1]} at {self._offsets[entry - 1]} or behind, as before it",
            )

    def add(self, headers: Headers, firsts: Numbers, *, is_behind_damage: bool) -> None:
        """Compare the entries up to the last offset of these batches, whose first offsets are `firsts`."""
        lasts = headers["last_offset"].astype(np.int64)
        stamps = headers["max_timestamp"].astype(np.int64)
        largest = np.maximum.accumulate(np.maximum(stamps, self._largest))
        end = int(np.searchsorted(self._sorted, lasts[-1], "right"))
        entries = self._order[self._done : end]
        self._done = max(end, self._done)
        self._largest = int(largest[-1])
        if not len(entries):
            return
        offsets, timestamps = self._offsets[entries], self._timestamps[entries]
        at = np.searchsorted(lasts, offsets)
        is_wrong = (firsts[at] > offsets) | (stamps[at] != timestamps) | (largest[at] != timestamps)
        for index in np.flatnonzero(is_wrong).tolist():
            if is_behind_damage and at[index] == 0:
                continue  # its batch is the damaged one, perhaps
            entry = int(entries[index])
            got = "no such offset"
            if firsts[at[index]] <= offsets[index]:
                got = f"timestamp {stamps[at[index]]} there, and {largest[at[index]]} as the largest up to it"
            self.file.wrong(
                entry,
                f"entry got {got} in the log, wanted timestamp {timestamps[index]} at offset {offsets[index]} to be "
                "the largest so far",
            )

    def finish(self, next_offset: int, *, is_complete: bool) -> Iterator[Finding]:
        """All batches were told. is_complete: nobody writes to it, so it must end with the largest timestamp."""
        for entry in self._order[self._done :].tolist():
            if self._offsets[entry] >= next_offset:
                self.file.wrong(
                    entry,
                    f"entry got offset {self._offsets[entry]}, wanted less than {next_offset}, where the log ends",
                )
        last = int(self._timestamps[-1]) if len(self.file) else -1
        if is_complete and self.file.exists and last < self._largest:
            self.file.findings.append(
                damage(
                    self.file.path,
                    CorruptionReason.ENTRY_COUNT,
                    f"last entry got timestamp {last}, wanted {self._largest}, the largest of the segment",
                    len(self.file) * self.file.entry_bytes,
                )
            )
        yield from self.file.results()
