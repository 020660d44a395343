"""A buffer of batches, one after another, whose last one may be cut.

The first 17 bytes are the same in every magic: offset, size, four bytes, magic. They decide how far the batch goes and
who reads it.
"""

from __future__ import annotations

from .batch_v2 import HEADER_BYTES, BatchV2
from .legacy import LOG_OVERHEAD, MESSAGE_BYTES_MIN, LegacyBatch
from .model import INT32_MAX, Refused

#: A RefBatch is one of these.
Batch = BatchV2 | LegacyBatch
_MAGIC_POSITION = 16
MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024


def next_batch(buffer: bytes, position: int, max_decompressed_bytes: int, batch_bytes_max: int | None) -> Batch | None:
    """The batch at `position`, None if the buffer ends before it does, or Refused."""
    remaining = len(buffer) - position
    if remaining < LOG_OVERHEAD:
        return None
    size = int.from_bytes(buffer[position + 8 : position + 12], "big", signed=True)
    # Judged as soon as the size is there, even if the rest is not: zeros after the last batch are damage, not a cut.
    if size < MESSAGE_BYTES_MIN:
        raise Refused("BATCH_SIZE", f"a size of {size}", position)
    if size > (INT32_MAX if batch_bytes_max is None else batch_bytes_max):
        raise Refused("BATCH_SIZE", f"a size of {size}, the limit is {batch_bytes_max}", position)
    if remaining <= _MAGIC_POSITION:
        return None
    magic = int.from_bytes(buffer[position + _MAGIC_POSITION : position + _MAGIC_POSITION + 1], "big", signed=True)
    if not 0 <= magic <= 2:
        raise Refused("MAGIC", f"magic {magic}", position)
    if remaining < LOG_OVERHEAD + size:
        return None
    data = bytes(buffer[position : position + LOG_OVERHEAD + size])
    if magic < 2:
        return LegacyBatch(data, position, max_decompressed_bytes)
    if len(data) < HEADER_BYTES:
        raise Refused("BATCH_SIZE", f"a batch of {len(data)} bytes has no room for its header", position)
    return BatchV2(data, position, max_decompressed_bytes)


def decode_batches(
    buffer: bytes,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    verify_crc: bool = True,
    batch_bytes_max: int | None = None,
) -> tuple[list[Batch], int, Refused | None]:
    """The batches up to the end, to a cut one or to a damaged one; the bytes they take; the damage, if any.

    `batch_bytes_max` bounds the size field, which counts 12 bytes less than the batch. Records are not read here.
    """
    batches: list[Batch] = []
    position = 0
    while True:
        try:
            batch = next_batch(buffer, position, max_decompressed_bytes, batch_bytes_max)
            if batch is None:
                return batches, position, None
            if verify_crc:
                batch.check_crc()
        except Refused as refused:
            return batches, position, refused
        batches.append(batch)
        position += batch.size_in_bytes
