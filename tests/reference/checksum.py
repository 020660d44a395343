"""The three checksums of the format: CRC-32C (magic 2), CRC-32 (magic 0 and 1), xxHash32 (inside LZ4 frames)."""

from __future__ import annotations

import zlib

_CASTAGNOLI_REVERSED = 0x82F63B78
_MASK = 0xFFFFFFFF


def _table_entry(byte: int) -> int:
    crc = byte
    for _ in range(8):
        crc = (crc >> 1) ^ _CASTAGNOLI_REVERSED if crc & 1 else crc >> 1
    return crc


_TABLE = [_table_entry(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli): b"123456789" gives 0xE3069283."""
    crc = _MASK
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _MASK


def crc32(data: bytes) -> int:
    return zlib.crc32(data)


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK


def _word(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "little")


def xxhash32(data: bytes) -> int:
    """xxHash32 with seed 0: b"" gives 0x02CC5D05."""
    position = 0
    if len(data) >= 16:
        lanes = [_P1 + _P2 & _MASK, _P2, 0, -_P1 & _MASK]
        while position + 16 <= len(data):
            for lane in range(4):
                lanes[lane] = _rotate(lanes[lane] + _word(data, position + 4 * lane) * _P2, 13) * _P1 & _MASK
            position += 16
        acc = sum(_rotate(value, bits) for value, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        acc = _P5
    acc += len(data)
    while position + 4 <= len(data):
        acc = _rotate(acc + _word(data, position) * _P3, 17) * _P4
        position += 4
    for byte in data[position:]:
        acc = _rotate(acc + byte * _P5, 11) * _P1
    acc &= _MASK
    acc = (acc ^ acc >> 15) * _P2 & _MASK
    acc = (acc ^ acc >> 13) * _P3 & _MASK
    return acc ^ acc >> 16
