"""Zig-zag varints as records use them.

Seven bits a byte, lowest first, the top bit meaning "more follows". Kafka's readers accept any encoding that ends
within 5 bytes (10 for 64 bits): longer than needed is fine (`80 00` is 0), and bits of the last byte that do not fit
into the integer are dropped without a word.
"""

from __future__ import annotations

from .model import Refused

_BYTES_MAX = {32: 5, 64: 10}


def read(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """The signed integer at `position`, and the position after it."""
    raw = 0
    for index in range(_BYTES_MAX[bits]):
        if position + index >= len(data):
            raise Refused("RECORD_TRUNCATED", f"a varint at byte {position} has no end")
        byte = data[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            raw %= 2**bits
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise Refused("VARINT", f"the varint at byte {position} is longer than {_BYTES_MAX[bits]} bytes")


def write(value: int) -> bytes:
    """The shortest encoding of a signed integer of at most 64 bits."""
    raw = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def size(value: int) -> int:
    return len(write(value))
