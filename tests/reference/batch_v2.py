"""Magic 2: one batch of records under one header and one checksum.

     0  base offset         int64   outside the CRC, like everything up to byte 21
     8  length              int32   bytes after this field
    12  leader epoch        int32
    16  magic               int8    2
    17  crc                 uint32  CRC-32C of byte 21 to the end
    21  attributes          int16   bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
    23  last offset delta   int32
    27  base timestamp      int64   or the delete horizon
    35  max timestamp       int64
    43  producer id         int64
    51  producer epoch      int16
    53  base sequence       int32
    57  count               int32
    61  records, compressed as one stream if the codec says so

A record: length varint | attributes int8 | timestamp delta varlong | offset delta varint | key | value | header
count varint | headers; a key, a value and a header's value is a varint length (any negative one: null) and its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from . import compression, varint
from .checksum import crc32c
from .model import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RefBatch,
    RefRecord,
    Refused,
    codec_id,
    increment_sequence,
    int32,
    int64,
    known_codec,
)

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
_CRC_START = 21


class BatchV2(RefBatch):
    """The header's fields; `data` is the whole batch and must be at least a header long."""

    def __init__(self, data: bytes, position: int, max_decompressed_bytes: int) -> None:
        super().__init__(data, position, max_decompressed_bytes)
        (
            self.base_offset,
            _length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(data)

    @property
    def last_offset(self) -> int:
        return int64(self.base_offset + self.last_offset_delta)

    @property
    def last_sequence(self) -> int:
        """From the offsets, not from the count: compaction removes records and keeps this."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def timestamp_type(self) -> str:
        return LOG_APPEND_TIME if self.attributes & 0x08 else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & 0x40 else None

    def check_crc(self) -> None:
        computed = crc32c(self.data[_CRC_START:])
        if computed != self.crc:
            raise Refused("CRC", f"got {self.crc:#010x}, computed {computed:#010x}", self.position)

    def payload(self) -> bytes:
        """What follows the header, decompressed."""
        codec = known_codec(self.codec_id)
        return compression.decompress(codec, self.data[HEADER_BYTES:], 2, self.max_decompressed_bytes)

    def _iterate(self) -> Iterator[RefRecord]:
        for record, _ in self.iterate_with_lengths():
            yield record

    def iterate_with_lengths(self) -> Iterator[tuple[RefRecord, int]]:
        """Each record with the length that stands before it."""
        if self.count == 0:
            return  # nothing after the header is looked at: not the bytes, not even the codec
        data = self._payload_for_count()
        position = 0
        for _ in range(self.count):
            record, length, position = read_record(data, position, self)
            yield record, length
        if position != len(data):
            raise Refused("TRAILING_BYTES", f"{len(data) - position} bytes after the last record")

    def stored_records(self) -> list[RefRecord]:
        """The records with the timestamps that their deltas say, even where log append time hides them.

        Only these give the batch's own bytes back when encoded again.
        """
        unhidden = BatchV2(self.data, self.position, self.max_decompressed_bytes)
        unhidden.attributes &= ~0x08
        return unhidden.records()

    def skim(self) -> Iterator[SkimmedRecord]:
        """The records without keys, values and headers, as the broker reads compressed batches it keeps as they are.

        This reader trusts no record's length and does not check it either: a batch in which only such a length is
        wrong passes here and is refused by whoever reads it whole.
        """
        if self.count == 0:
            return
        data = self._payload_for_count()
        position = 0
        for _ in range(self.count):
            record, position = skim_record(data, position, self)
            yield record
        if position != len(data):
            raise Refused("TRAILING_BYTES", f"{len(data) - position} bytes after the last record")

    def _payload_for_count(self) -> bytes:
        data = self.payload()
        if self.count < 0:
            raise Refused("RECORD_COUNT", f"a count of {self.count}")
        return data

    def record_place(self, timestamp_delta: int, offset_delta: int) -> tuple[int, int, int]:
        """Offset, timestamp and sequence of a record with these deltas; sums wrap as Java's do."""
        timestamp = int64(self.base_timestamp + timestamp_delta)
        if self.timestamp_type == LOG_APPEND_TIME:
            timestamp = self.max_timestamp
        sequence = increment_sequence(self.base_sequence, offset_delta) if self.base_sequence >= 0 else NO_SEQUENCE
        return int64(self.base_offset + offset_delta), timestamp, sequence


def read_record(data: bytes, position: int, batch: BatchV2) -> tuple[RefRecord, int, int]:
    """The record at `position`, its length as it stands there, and the position after it."""
    length, start = varint.read(data, position)
    if not 0 <= length <= len(data) - start:
        raise Refused("RECORD_LENGTH", f"a record of {length} bytes with {len(data) - start} left")
    body, at = data[start : start + length], 1
    if not body:
        raise Refused("RECORD_TRUNCATED", "a record without attributes")  # any value of the byte will do
    timestamp_delta, at = varint.read(body, at, 64)
    offset_delta, at = varint.read(body, at)
    key, at = _read_bytes(body, at, "KEY_LENGTH")
    value, at = _read_bytes(body, at, "VALUE_LENGTH")
    header_count, at = varint.read(body, at)
    if not 0 <= header_count <= len(body) - at:
        raise Refused("HEADER_COUNT", f"{header_count} headers in {len(body) - at} bytes")
    headers = []
    for _ in range(header_count):
        name, at = _read_bytes(body, at, "HEADER_KEY")
        if name is None:
            raise Refused("HEADER_KEY", "a header without a name")
        header_value, at = _read_bytes(body, at, "HEADER_VALUE")
        headers.append((name, header_value))
    if at != len(body):
        raise Refused("TRAILING_BYTES", f"{len(body) - at} bytes after a record's headers")
    offset, timestamp, sequence = batch.record_place(timestamp_delta, offset_delta)
    return RefRecord(offset, timestamp, key, value, headers, sequence), length, start + length


def _read_bytes(body: bytes, at: int, reason: str) -> tuple[bytes | None, int]:
    length, at = varint.read(body, at)
    if length < 0:
        return None, at
    if length > len(body) - at:
        raise Refused(reason, f"{length} bytes with {len(body) - at} left")
    return body[at : at + length], at + length


@dataclass(frozen=True)
class SkimmedRecord:
    offset: int
    timestamp: int
    sequence: int
    key_size: int
    value_size: int
    size_in_bytes: int


def skim_record(data: bytes, position: int, batch: BatchV2) -> tuple[SkimmedRecord, int]:
    length, at = varint.read(data, position)
    size = varint.size(length) + length
    if at >= len(data):
        raise Refused("RECORD_TRUNCATED", "a record without attributes")
    timestamp_delta, at = varint.read(data, at + 1, 64)
    offset_delta, at = varint.read(data, at)
    key_size, at = _skip_bytes(data, at, "KEY_LENGTH")
    value_size, at = _skip_bytes(data, at, "VALUE_LENGTH")
    header_count, at = varint.read(data, at)
    if header_count < 0:
        raise Refused("HEADER_COUNT", f"{header_count} headers")
    for _ in range(header_count):
        name_size, at = _skip_bytes(data, at, "HEADER_KEY")
        if name_size < 0:
            raise Refused("HEADER_KEY", "a header without a name")
        _, at = _skip_bytes(data, at, "HEADER_VALUE")
    offset, timestamp, sequence = batch.record_place(timestamp_delta, offset_delta)
    return SkimmedRecord(offset, timestamp, sequence, key_size, value_size, size), at


def _skip_bytes(data: bytes, at: int, reason: str) -> tuple[int, int]:
    length, at = varint.read(data, at)
    if length > len(data) - at:
        raise Refused(reason, f"{length} bytes with {len(data) - at} left")
    return length, at + max(length, 0)


def encode_record(record: RefRecord, base_offset: int, base_timestamp: int) -> bytes:
    """The differences wrap as Java's do."""
    body = b"\x00" + varint.write(int64(record.timestamp - base_timestamp))
    body += varint.write(int32(record.offset - base_offset))
    body += _sized(record.key) + _sized(record.value) + varint.write(len(record.headers))
    for name, value in record.headers:
        body += _sized(name) + _sized(value)
    return varint.write(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return varint.write(-1) if data is None else varint.write(len(data)) + data


def encode(
    records: Iterable[RefRecord],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression_name: str = "none",
    level: int | None = None,
    timestamp_type: str = CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """One batch as Kafka's builder writes it; `max_timestamp` is for one without records, or from before 1970.

    The base offset is the first record's unless told (compaction keeps the one of a removed record), the base timestamp
    is the first record's or the delete horizon, never the minimum.
    """
    records = list(records)
    if base_offset is None:
        base_offset = records[0].offset
    if last_offset is None:
        last_offset = records[-1].offset
    first_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    base_timestamp = first_timestamp if delete_horizon_ms is None else delete_horizon_ms
    if timestamp_type == LOG_APPEND_TIME:
        max_timestamp = log_append_time_ms
    elif max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    attributes = codec_id(compression_name)
    for bit, is_set in (
        (0x08, timestamp_type == LOG_APPEND_TIME),
        (0x10, is_transactional),
        (0x20, is_control),
        (0x40, delete_horizon_ms is not None),
    ):
        attributes |= bit if is_set else 0
    plain = b"".join(encode_record(record, base_offset, base_timestamp) for record in records)
    payload = compression.compress(compression_name, plain, 2, level) if records else b""
    header = HEADER.pack(
        base_offset,
        HEADER_BYTES - 12 + len(payload),
        leader_epoch,
        2,
        0,
        attributes,
        int32(last_offset - base_offset),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return with_crc(header + payload)


def with_crc(batch: bytes) -> bytes:
    """The batch with its checksum made right, whatever it was."""
    return batch[:17] + crc32c(batch[_CRC_START:]).to_bytes(4, "big") + batch[_CRC_START:]
