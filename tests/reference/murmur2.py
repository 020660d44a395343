"""The hash by which Kafka's default partitioner places a key."""

from __future__ import annotations

from .model import int32

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's murmur2 as a signed 32-bit integer: b"21" gives -973932308."""
    hashed = _SEED ^ len(key)
    whole = len(key) // 4 * 4
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hashed = hashed * _M & _MASK ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return int32(hashed ^ hashed >> 15)


def partition(key: bytes, partition_count: int) -> int:
    """The sign bit is cleared, not negated."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
