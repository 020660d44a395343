"""From a leaf's status code to the exception: the one place where the core's faults get their words.

Leaves run without the GIL and only fill a `Fault`; the edge that called them raises what this module makes of it.
"""

from logcore.errors import CorruptBatch, CorruptionReason


# kind -> reason, what was wrong, how `got` and `wanted` read
_TABLE = (
    (None, None, None, None),
    ("BATCH_SIZE", "size", "{}", "at least {}"),
    ("BATCH_SIZE", "size", "{}", "at most {}"),
    ("MAGIC", "magic", "{}", "0, 1 or 2"),
    ("CRC", "crc", "0x{:08x}", "0x{:08x}"),
    ("RECORD_COUNT", "record count", "{}", "0 or more"),
    ("RECORD_COUNT", "record count", "{}", "at most the {} records that its bytes could hold"),
    ("RECORD_COUNT", "bytes after the last counted record", "{}", "{}"),
    ("VARINT", "varint", "no end within its bytes", "at most {} bytes"),
    ("RECORD_LENGTH", "record length", "{}", "{}"),
    ("RECORD_TRUNCATED", "record length", "{}", "at most the {} bytes left"),
    ("KEY_LENGTH", "key length", "{}", "at most the {} bytes left"),
    ("VALUE_LENGTH", "value length", "{}", "at most the {} bytes left"),
    ("HEADER_COUNT", "header count", "{}", "0 to the {} bytes left"),
    ("HEADER_KEY", "header name length", "{}", "0 to the {} bytes left"),
    ("HEADER_VALUE", "header value length", "{}", "at most the {} bytes left"),
    ("TRAILING_BYTES", "bytes behind the record's fields", "{}", "{}"),
    ("TRUNCATED", "bytes", "{}", "{}"),
    ("WRAPPER_VALUE", "value of a compressed message set", "null", "bytes"),
    ("WRAPPER_EMPTY", "messages inside a compressed message set", "{}", "at least {}"),
    ("BATCH_SIZE", "size of an inner message", "{}", "at least {}"),
    ("INNER_OFFSET", "offset of a compressed message set", "{}", "0, or at least {}, its last inner offset"),
    ("NESTED_COMPRESSION", "codec of an inner message", "{}", "{}: inner messages are not compressed again"),
    ("CRC", "crc of an inner message", "0x{:08x}", "0x{:08x}"),
    ("UNKNOWN_CODEC", "codec", "zstd in magic {}", "gzip, snappy or lz4 below magic 2"),
    ("OFFSET_ORDER", "offset of a record", "{}", "more than {}, and less than 2^31 above the batch's first"),
    ("OFFSET_ORDER", "largest offset of a batch", "{}", "{} or more"),
)
if len(_TABLE) != FAULT_KIND_COUNT:
    raise ImportError(f"fault table has {len(_TABLE)} rows, the enum {FAULT_KIND_COUNT}")


cdef object corrupt_batch(const Fault* fault, int64_t position, object offset=None):
    """The exception for `fault` in the batch that starts at byte `position` of what the caller gave."""
    reason, what, got, wanted = _TABLE[fault.kind]
    return CorruptBatch(
        what,
        reason=CorruptionReason[reason],
        got=got.format(fault.got),
        wanted=wanted.format(fault.wanted),
        position=position,
        offset=offset,
        record_index=None if fault.record_index < 0 else fault.record_index,
        at=None if fault.at < 0 else fault.at,
    )
