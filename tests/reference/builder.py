"""What Kafka's builder makes of records that cannot stay in the buffer they came in.

The builder refuses by Java's IllegalArgumentException what a validated buffer should not hold; a broker answers that
with UNKNOWN_SERVER_ERROR, and so does the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import batch_v2, legacy
from .model import LOG_APPEND_TIME, NO_TIMESTAMP, RefKafkaError, RefRecord
from .stream import Batch


@dataclass(frozen=True)
class Built:
    data: bytes
    max_timestamp: int
    bytes_before_compression: int


def header_bytes(magic: int, codec: str) -> int:
    """What a batch of this magic and codec takes besides its records."""
    if magic == 2:
        return batch_v2.HEADER_BYTES
    if codec == "none":
        return 0
    return legacy.LOG_OVERHEAD + (14 if magic == 0 else 22)


def build(
    records: list[RefRecord],
    *,
    first_batch: Batch,
    base_offset: int,
    magic: int,
    codec: str,
    level: int | None,
    timestamp_type: str,
    now_ms: int,
    leader_epoch: int,
) -> Built:
    """`records` at consecutive offsets from `base_offset`, under the producer of `first_batch`.

    The control bit does not come along: a compressed control batch that must be rebuilt ends as an ordinary one.
    """
    records = [replace(record, offset=base_offset + index) for index, record in enumerate(records)]
    for record in records:
        if record.timestamp < 0 and record.timestamp != NO_TIMESTAMP:
            raise RefKafkaError("UNKNOWN_SERVER_ERROR", f"a timestamp of {record.timestamp}")
        if magic < 2 and record.headers:
            raise RefKafkaError("UNKNOWN_SERVER_ERROR", f"headers in magic {magic}")
    _check_producer(first_batch, magic)
    is_log_append = timestamp_type == LOG_APPEND_TIME
    if not records:
        if is_log_append and (magic == 2 or codec != "none"):
            raise RefKafkaError("UNKNOWN_SERVER_ERROR", "no record, so no last offset to report")
        return Built(b"", now_ms if is_log_append else NO_TIMESTAMP, header_bytes(magic, codec))
    if magic == 2:
        data = batch_v2.encode(
            records,
            base_offset=base_offset,
            compression_name=codec,
            level=level,
            timestamp_type=timestamp_type,
            log_append_time_ms=now_ms,
            producer_id=first_batch.producer_id,
            producer_epoch=first_batch.producer_epoch,
            base_sequence=first_batch.base_sequence,
            leader_epoch=leader_epoch,
            is_transactional=first_batch.is_transactional,
        )
        plain = sum(len(batch_v2.encode_record(record, base_offset, records[0].timestamp)) for record in records)
    else:
        data = legacy.encode_set(
            records,
            magic=magic,
            base_offset=base_offset,
            compression_name=codec,
            level=level,
            timestamp_type=timestamp_type,
            log_append_time_ms=now_ms,
        )
        plain = sum(len(legacy.encode_message(0, record.key, record.value, magic=magic)) for record in records)
    newest = NO_TIMESTAMP if magic == 0 else max(record.timestamp for record in records)
    return Built(data, now_ms if is_log_append else newest, plain + header_bytes(magic, codec))


def _check_producer(batch: Batch, magic: int) -> None:
    if batch.is_transactional and batch.producer_id == -1:
        raise RefKafkaError("UNKNOWN_SERVER_ERROR", "a transaction without a producer id")
    if batch.producer_id != -1:
        if batch.producer_epoch == -1:
            raise RefKafkaError("UNKNOWN_SERVER_ERROR", "a producer id without an epoch")
        if batch.base_sequence < 0:
            raise RefKafkaError("UNKNOWN_SERVER_ERROR", "a producer id without a sequence")
        if magic < 2:
            raise RefKafkaError("UNKNOWN_SERVER_ERROR", f"a producer id in magic {magic}")
