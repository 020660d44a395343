"""What follows from the batches of a segment, told slowly: its rows, its indexes, its leader epochs."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from logcore import Batch, decode_batches


class Row(NamedTuple):
    """A record, or a marker, whose key is what it says."""

    offset: int
    key: bytes | None
    value: bytes | None
    is_control: bool = False


def batches_of(data: bytes) -> list[Batch]:
    """All batches of a .log, their checksums looked at; it must have nothing else."""
    iterator = decode_batches(data)
    found = list(iterator)
    assert iterator.consumed == len(data), f"{len(data) - iterator.consumed} bytes behind the last batch"
    return found


def rows_of(batches: Iterable[Batch]) -> list[Row]:
    """The records of batches, markers too."""
    rows = []
    for batch in batches:
        if batch.is_control:
            rows += [Row(batch.base_offset, record.type.encode(), None, True) for record in batch.control_records()]
        else:
            rows += [Row(record.offset, record.key, record.value) for record in batch]
    return rows


def index_entries(
    batches: Iterable[Batch], base_offset: int, interval_bytes: int, index_bytes: int
) -> tuple[bytes, bytes, bytes]:
    """The entries of .index and .timeindex, and the one that the latter gets at last (none if it has it already).

    Neither is longer than `index_bytes`; the last place of a time index is kept for its last entry.
    """
    offsets, times = bytearray(), bytearray()
    position = since = 0
    largest, at, noted = -1, base_offset, -1
    for batch in batches:
        if batch.max_timestamp > largest:
            largest, at = batch.max_timestamp, batch.last_offset
        if since > interval_bytes and len(offsets) + 8 <= index_bytes:
            offsets += struct.pack(">ii", batch.last_offset - base_offset, position)
            if largest > noted and len(times) + 24 <= index_bytes:
                times += struct.pack(">qi", largest, at - base_offset)
                noted = largest
            since = 0
        position += batch.size_in_bytes
        since += batch.size_in_bytes
    last = struct.pack(">qi", largest, at - base_offset) if largest > noted else b""
    return bytes(offsets), bytes(times), last


def epochs_of(batches: Iterable[Batch]) -> list[tuple[int, int]]:
    """Leader epochs, and the offset at which each begins."""
    found: list[tuple[int, int]] = []
    for batch in batches:
        epoch = batch.leader_epoch
        if epoch >= 0 and (not found or epoch > found[-1][0]):
            found.append((epoch, batch.base_offset))
    return found
