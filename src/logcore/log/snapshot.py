"""The bytes of a `.snapshot` file: what is known of each producer before an offset, which is the file's name.

     0 int16   version                    1
     2 uint32  crc                        CRC-32C of all that follows, to the end of the file
     6 int32   count
    10 int64   producer id                │
    18 int16   producer epoch             │
    20 int32   last sequence              │ -1: none
    24 int64   last offset                │ count times: of the producer's last data batch; -1: none
    32 int32   offset delta               │ from that batch's first offset to its last
    36 int64   timestamp                  │ of its last batch or marker
    44 int32   coordinator epoch          │ of its last marker; -1: none
    48 int64   first offset of its open   │ -1: none
               transaction

Big-endian, 46 bytes an entry. The order of the entries has no meaning. Kafka: ProducerSnapshot.

This is Kafka's reader to the letter: version 1 and no other, and bytes behind the last entry are no damage as long as
the checksum covers them. It takes any numbers for an entry; whether they can be true is for the reader's reader.
"""

import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

from typing_extensions import Buffer

from logcore._checksum import crc32c
from logcore.errors import CorruptionReason, CorruptSnapshot, UsageError

VERSION = 1

_VERSION = struct.Struct(">h")
_VERSION_AND_CRC = struct.Struct(">hI")
_HEADER = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_POSITION = _VERSION.size
_COUNT_POSITION = _VERSION_AND_CRC.size
HEADER_BYTES = _HEADER.size
ENTRY_BYTES = _ENTRY.size


class SnapshotEntry(NamedTuple):
    """A producer, as a snapshot has it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def format(entries: Iterable[SnapshotEntry]) -> bytes:
    """The file for `entries`. UsageError if a number does not fit its field.

    >>> format([SnapshotEntry(7, 0, 4, 104, 4, 1600000000000, -1, -1)]).hex(" ", 2)[:44]
    '0001 4b2d 5819 0000 0001 0000 0000 0000 0007'
    """
    try:
        packed = [_ENTRY.pack(*entry) for entry in entries]
    except struct.error as error:
        raise UsageError("snapshot entry", got=str(error), wanted="numbers that fit their fields") from None
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _VERSION_AND_CRC.pack(VERSION, crc32c(body)) + body


def parse(data: Buffer, path: str | os.PathLike[str] | None = None) -> list[SnapshotEntry]:
    """The entries of a file, in its order. CorruptSnapshot, with `path`, if it is damaged."""
    view = memoryview(data).cast("B")
    size = len(view)
    if size >= _VERSION.size:
        version = _VERSION.unpack_from(view)[0]
        if version != VERSION:
            raise _corrupt("version", CorruptionReason.VERSION, version, VERSION, path, 0)
    if size < HEADER_BYTES:
        raise _corrupt("size", CorruptionReason.TRUNCATED, size, f"at least {HEADER_BYTES}", path, size)
    _, crc, count = _HEADER.unpack_from(view)
    room = (size - HEADER_BYTES) // ENTRY_BYTES
    if not 0 <= count <= room:
        raise _corrupt("count", CorruptionReason.ENTRY_COUNT, count, f"0 to {room}", path, _COUNT_POSITION)
    computed = crc32c(view[_COUNT_POSITION:])
    if crc != computed:
        raise _corrupt("crc", CorruptionReason.CRC, f"0x{crc:08x}", f"0x{computed:08x}", path, _CRC_POSITION)
    entries = view[HEADER_BYTES : HEADER_BYTES + count * ENTRY_BYTES]
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(entries)]


def _corrupt(
    what: str,
    reason: CorruptionReason,
    got: int | str,
    wanted: int | str,
    path: str | os.PathLike[str] | None,
    position: int,
) -> CorruptSnapshot:
    return CorruptSnapshot(what, reason=reason, got=got, wanted=wanted, path=path, position=position)
